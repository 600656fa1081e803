/**
 * picture.js: one array. An array of two axes or more is a picture that the device makes: only the pixels that are seen
 * leave it, whatever the array's size. One picture is asked for at a time, always of what is wanted last.
 */
import { get, inPath, send, state } from "./api.js";
import { aside } from "./array.js";
import { curves, histogram } from "./chart.js";
import { attempt, bytes, count, duration, el, field, later, number, select, shape } from "./dom.js";
import { follow } from "./stream.js";

const MAPS = ["viridis", "magma", "inferno", "plasma", "cividis", "gray", "turbo", "coolwarm", "RdBu_r", "twilight"];
const RANGES = [["seen", "what is seen"], ["1,99", "1 to 99 % of it"], ["0.1,99.9", "0.1 to 99.9 % of it"], ["slice", "the whole slice"], ["fixed", "fixed"]];
const ASIDE = 74; // pixels beside the picture, for its colour bar
const CURVE = 2000; // elements of a curve at most
const LIVE = [["0", "off"], ["1000", "once a second"], ["500", "2 a second"], ["200", "5 a second"]];
const memory = { cmap: "viridis", live: "500", pool: "mean" }; // kept from array to array

const ordinal = n => `${count(n)}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th"}`;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

export async function show(root, ref, signal) {
    const meta = await get(`v1/arrays/${inPath(ref)}`, { signal });
    const path = `v1/arrays/${inPath(meta.id)}`;
    const name = meta.name ?? `${meta.id.slice(0, 10)}…`;
    document.title = `arrayd: ${name}`;
    const ending = new AbortController(); // of all looking, before the array is deleted: what is asked for then is not there
    signal = AbortSignal.any([signal, ending.signal]);
    const side = aside(meta, path, signal, () => ending.abort());
    const left = el("div", { class: "left" });
    root.append(el("h1", {}, el("a", { href: "#arrays", text: "Arrays" }), el("span", { class: "soft", text: " / " }), el("span", { text: name }), " ",
        el("span", { class: "soft", text: `${shape(meta.shape)} ${meta.dtype}, ${bytes(meta.nbytes)}` })),
    el("div", { class: "two" }, left, side.element));
    if (meta.size === 0)
        left.append(el("section", { class: "card" }, el("p", { class: "soft", text: "The array has no elements." })));
    else if (meta.shape.length < 2)
        line(left, side, meta, path, name, signal);
    else
        picture(left, side, meta, path, name, signal);
}

/* ---- One axis or none ------------------------------------------------------------------------ */

function line(left, side, meta, path, name, signal) {
    const n = meta.shape[0] ?? 1;
    const step = Math.ceil(n / CURVE);
    const value = el("p", { class: "value" });
    const chart = curves({ label: `Elements of ${name}`, sayX: x => `[${count(x)}]`, height: 320, legend: false });
    left.append(el("section", { class: "card" }, meta.shape.length ? chart.element : value,
        step > 1 ? el("p", { class: "soft", text: `Every ${ordinal(step)} element is shown.` }) : null));
    const plain = x => (Array.isArray(x) ? Math.hypot(...x.map(plain)) : Number(x));
    let etag;
    const ask = async () => {
        const reply = await send("GET", `${path}/data`, { query: { index: meta.shape.length && step > 1 ? `::${step}` : undefined },
            headers: etag ? { "If-None-Match": etag } : {}, signal });
        if (reply.status === 304)
            return;
        etag = reply.headers.get("ETag");
        const text = await reply.text();
        if (meta.shape.length) {
            const data = JSON.parse(text);
            chart.set([{ name: "", xs: data.map((_, i) => i * step), ys: data.map(plain) }]);
        } else
            value.textContent = text;
        side.figures(await get(`${path}/summary`, { query: { bins: 48 }, signal }));
    };
    follow(`${path}/events`, signal, { query: { interval: 1 }, on: () => attempt(ask), ask, every: 1000 });
}

/* ---- Two axes and more ----------------------------------------------------------------------- */

function picture(left, side, meta, path, name, signal) {
    const dims = meta.shape;
    const rank = dims.length;
    const called = k => (meta.dims?.[k] ? `${meta.dims[k]}` : `axis ${k}`);
    const canColour = rank > 2 && (dims[rank - 1] === 3 || dims[rank - 1] === 4);
    const look = {
        isColour: canColour && meta.dtype === "uint8", range: "seen", lo: null, hi: null,
        row: 0, column: 1, at: dims.map(n => Math.floor((n - 1) / 2)),
    };
    const newest = axes => { [look.row, look.column] = axes; };
    const free = () => dims.map((_, k) => k).filter(k => !(look.isColour && k === rank - 1));
    newest(free().slice(-2));

    // What is seen: the scales are in pixels of the page an element, the middle in elements.
    const view = { x: 0, y: 0, sx: 1, sy: 1 };
    let shown = null; // { bitmap, r0, r1, c0, c1, turned }
    let whole = null; // the same of the whole slice, to be seen beneath while one moves
    let wanted = 0, made = 0, isAsking = false, etag = null, etagOf = "", played = null, waiting = [], changedAt = 0;

    const board = el("canvas", { class: "board", tabindex: "0", role: "img", "aria-label": `Picture of ${name}` });
    const barCanvas = el("canvas", { class: "scale", width: "16", height: "256", "aria-hidden": "true" });
    const top = el("span"), bottom = el("span");
    const under = el("span", { class: "mono", "aria-live": "off", text: " " });
    const made_of = el("span", { class: "soft" });
    const trouble = el("p", { class: "problem", role: "alert", hidden: true });
    const low = el("input", { type: "text", inputmode: "decimal", size: "10", "aria-label": "Value of the first colour" });
    const high = el("input", { type: "text", inputmode: "decimal", size: "10", "aria-label": "Value of the last colour" });
    const bars = histogram({ label: "Histogram of the slice" });
    side.histogram(bars.element);

    const rows = () => dims[look.row], columns = () => dims[look.column];

    function fit() {
        const { clientWidth: w, clientHeight: h } = board;
        view.sx = w / columns();
        view.sy = h / rows();
        const ratio = view.sx / view.sy;
        if (ratio < 12 && ratio > 1 / 12) // else a long strip would be a line
            view.sx = view.sy = Math.min(view.sx, view.sy);
        view.x = columns() / 2;
        view.y = rows() / 2;
    }

    function resize() {
        const w = board.parentElement.clientWidth - ASIDE;
        const h = Math.max(200, Math.min(w * rows() / columns(), innerHeight * 0.62));
        board.style.width = `${w}px`;
        board.style.height = `${Math.round(h)}px`;
        board.width = Math.round(w * devicePixelRatio);
        board.height = Math.round(h * devicePixelRatio);
        barCanvas.style.height = board.style.height;
        barCanvas.parentElement.style.height = board.style.height;
    }

    /** The elements in sight, half-open. */
    function sight() {
        const { clientWidth: w, clientHeight: h } = board;
        const clip = (x, n) => Math.min(n, Math.max(0, x));
        const c0 = clip(Math.floor(view.x - w / 2 / view.sx), columns() - 1), c1 = clip(Math.ceil(view.x + w / 2 / view.sx), columns());
        const r0 = clip(Math.floor(view.y - h / 2 / view.sy), rows() - 1), r1 = clip(Math.ceil(view.y + h / 2 / view.sy), rows());
        return { r0, r1: Math.max(r1, r0 + 1), c0, c1: Math.max(c1, c0 + 1) };
    }

    const indexOf = ({ r0, r1, c0, c1 }) => dims.map((_, k) => (k === look.row ? `${r0}:${r1}` : k === look.column ? `${c0}:${c1}`
        : look.isColour && k === rank - 1 ? ":" : String(look.at[k]))).join(",");
    const sliceIndex = () => indexOf({ r0: 0, r1: rows(), c0: 0, c1: columns() });

    function paint() {
        const context = board.getContext("2d");
        const ratio = devicePixelRatio;
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, board.width, board.height);
        for (const layer of [whole, shown]) {
            if (!layer)
                continue;
            const x = ((layer.c0 - view.x) * view.sx + board.clientWidth / 2) * ratio;
            const y = ((layer.r0 - view.y) * view.sy + board.clientHeight / 2) * ratio;
            const w = (layer.c1 - layer.c0) * view.sx * ratio, h = (layer.r1 - layer.r0) * view.sy * ratio;
            const pixels = layer.turned ? layer.bitmap.height : layer.bitmap.width;
            context.imageSmoothingEnabled = w < pixels * 1.5;
            if (layer === shown)
                context.clearRect(x, y, w, h); // NaN is transparent: nothing older is seen through it
            if (layer.turned) {
                context.setTransform(0, h / layer.bitmap.width, w / layer.bitmap.height, 0, x, y);
                context.drawImage(layer.bitmap, 0, 0);
                context.setTransform(1, 0, 0, 1, 0, 0);
            } else
                context.drawImage(layer.bitmap, x, y, w, h);
        }
        if (!board.matches(":focus-visible"))
            return;
        const [x, y] = [board.width / 2, board.height / 2]; // the element whose value keys show
        for (const [colour, width] of [["#000", 3], ["#fff", 1]]) {
            [context.strokeStyle, context.lineWidth] = [colour, width * ratio];
            context.beginPath();
            for (const [dx, dy] of [[8, 0], [0, 8]]) {
                context.moveTo(x - dx * ratio, y - dy * ratio);
                context.lineTo(x + dx * ratio, y + dy * ratio);
            }
            context.stroke();
        }
    }

    /** What is asked of the daemon for what is in sight now. */
    function asked() {
        const box = sight();
        const turned = look.row > look.column;
        const limit = state.info.limits.max_picture ?? 4096;
        // No more pixels than elements: the canvas makes them larger.
        const pixels = (n, scale) => Math.max(1, Math.min(n, limit, Math.ceil(n * scale * devicePixelRatio)));
        const across = pixels(box.c1 - box.c0, view.sx), down = pixels(box.r1 - box.r0, view.sy);
        const query = { index: indexOf(box), width: turned ? down : across, height: turned ? across : down, pool: memory.pool };
        if (!look.isColour) {
            query.cmap = memory.cmap;
            if (/,/.test(look.range))
                query.percentiles = look.range;
        }
        if ((look.range === "fixed" || look.range === "slice") && look.lo !== null && look.hi !== null)
            Object.assign(query, { lo: look.lo, hi: look.hi });
        return { box, turned, query };
    }

    /** Asks until the newest wish is fulfilled; resolves then, to what went wrong if anything did. */
    function refresh() {
        wanted++;
        return new Promise(resolve => {
            waiting.push(resolve);
            if (!isAsking)
                asking();
        });
    }

    async function asking() {
        let failure = null;
        isAsking = true;
        while (made !== wanted && !signal.aborted) {
            const turn = wanted;
            failure = await frame().then(() => null, error => error);
            made = turn;
        }
        isAsking = false;
        watched();
        const done = waiting;
        waiting = [];
        done.forEach(resolve => resolve(failure));
    }

    const keyOf = ({ turned, query }) => JSON.stringify([query, turned]); // the same picture may be meant to lie differently

    async function frame() {
        const wish = asked();
        const key = keyOf(wish);
        const start = performance.now();
        let reply;
        try {
            reply = await send("GET", `${path}/data`, { accept: "image/png", query: wish.query, signal,
                headers: etag && etagOf === key ? { "If-None-Match": etag } : {} });
        } catch (problem) {
            if (problem.name === "AbortError")
                return;
            trouble.textContent = problem.status === 404 ? "The array is no longer there." : problem.status ? problem.message : "The daemon does not answer.";
            trouble.hidden = false;
            throw problem;
        }
        trouble.hidden = true;
        if (reply.status === 304)
            return;
        const range = (reply.headers.get("Arrayd-Range") ?? "").split(" ").map(Number);
        await draw(await reply.blob(), range, wish, reply.headers.get("ETag"), `, ${duration((performance.now() - start) / 1e3)}`);
    }

    async function draw(blob, range, { box, turned, query }, tag, more) {
        const bitmap = await createImageBitmap(blob);
        const isWhole = box.r1 - box.r0 === rows() && box.c1 - box.c0 === columns();
        shown = { bitmap, turned, ...box };
        if (isWhole)
            whole = shown;
        [etag, etagOf] = [tag, keyOf({ turned, query })];
        changedAt = performance.now();
        side.picture(blob, name);
        if (range.length === 2)
            ends(range);
        made_of.textContent = `${bitmap.width} × ${bitmap.height} pixels, ${bytes(blob.size)}${more}`;
        board.setAttribute("aria-label", `Picture of ${name}, rows ${box.r0} to ${box.r1}, columns ${box.c0} to ${box.c1}, colours from ${number(range[0])} to ${
            number(range[1])}. Arrow keys move it, plus and minus zoom, 0 shows all; below it is the value in the middle.`);
        board.dataset.frames = String(Number(board.dataset.frames ?? 0) + 1);
        paint();
    }

    function ends([lo, hi]) {
        const short = x => // there is room for so many letters
            [number(x), number(Number(x.toPrecision(3))), x.toExponential(1).replace("e+", "e")].find((text, i) => i === 2 || text.length <= 7);
        top.textContent = short(hi);
        bottom.textContent = short(lo);
        bars.mark([lo, hi]);
        if (look.range !== "fixed")
            for (const [input, end] of [[low, lo], [high, hi]])
                if (document.activeElement !== input) {
                    input.value = String(Number(end.toPrecision(7)));
                    input.removeAttribute("aria-invalid");
                }
    }

    /** The colours of the bar are the daemon's own: those that it draws beside any picture. */
    async function colourBar() {
        barCanvas.parentElement.hidden = look.isColour;
        if (look.isColour)
            return;
        const spot = dims.map((_, k) => (k === look.row || k === look.column ? "0:1" : "0")).join(",");
        const reply = await send("GET", `${path}/data`, { accept: "image/png", signal,
            query: { index: spot, width: 1, height: 256, cmap: memory.cmap, bar: true, lo: 0, hi: 1 } });
        const bitmap = await createImageBitmap(await reply.blob());
        barCanvas.getContext("2d").drawImage(bitmap, bitmap.width - 16, 0, 16, 256, 0, 0, 16, 256);
    }

    async function figures() {
        const query = { index: sliceIndex(), bins: 64 };
        const found = await get(`${path}/summary`, { query, signal });
        bars.set(found.histogram);
        side.figures(found);
        if (look.range === "slice" && found.min !== null) {
            const isNew = look.lo !== found.min || look.hi !== found.max;
            [look.lo, look.hi] = [found.min, found.max];
            if (isNew)
                refresh();
        }
    }
    const figuresLater = later(200, () => attempt(figures));
    const refreshLater = later(60, refresh);
    const anew = () => {
        shown = whole = null;
        attempt(colourBar);
        figuresLater();
        return refresh();
    };

    /* -- Controls -- */

    const axes = el("div", { class: "tools" });
    const sliders = el("div", { class: "sliders" });

    function chooseAxes() {
        const options = free().map(k => [String(k), `${called(k)} (${dims[k]})`]);
        const change = which => value => {
            const other = which === "row" ? "column" : "row";
            if (Number(value) === look[other])
                look[other] = look[which];
            look[which] = Number(value);
            chooseAxes();
            resize();
            fit();
            anew();
        };
        axes.replaceChildren(
            ...(free().length > 2 || rank === 2 && rows() !== columns() || rank === 2 ? [
                field("Down", select(options, String(look.row), change("row"))),
                field("Across", select(options, String(look.column), change("column")))] : []),
            ...(canColour ? [el("label", { class: "check" }, el("input", { type: "checkbox", checked: look.isColour, on: { change: event => {
                look.isColour = event.target.checked;
                newest(free().slice(-2));
                chooseAxes();
                resize();
                fit();
                anew();
            } } }), "Last axis is colours")] : []));
        sliders.replaceChildren(...free().filter(k => k !== look.row && k !== look.column).map(slider));
    }

    function slider(k) {
        const said = el("output", { class: "mono", text: `${look.at[k]}` });
        const range = el("input", { type: "range", min: "0", max: String(dims[k] - 1), value: String(look.at[k]), "aria-label": `Index along ${called(k)}`,
            on: { input: () => move(Number(range.value)) } });
        const play = el("button", { type: "button", text: "Play", "aria-pressed": "false", "aria-label": `Play along ${called(k)}`, on: { click: () => {
            const isOn = played !== k;
            played = isOn ? k : null;
            sliders.querySelectorAll("button").forEach(b => { b.setAttribute("aria-pressed", "false"); b.textContent = "Play"; });
            play.setAttribute("aria-pressed", String(isOn));
            play.textContent = isOn ? "Stop" : "Play";
            if (isOn)
                run();
            else
                watched();
        } } });
        async function move(i) {
            look.at[k] = i;
            range.value = String(i);
            said.textContent = String(i);
            whole = null;
            figuresLater();
            await refresh();
        }
        async function run() {
            while (played === k && !signal.aborted && range.isConnected) {
                const start = performance.now();
                await move((look.at[k] + 1) % dims[k]);
                await pause(Math.max(80 - (performance.now() - start), performance.now() - start, 10)); // half of the time is others'
                if (document.hidden)
                    await new Promise(resolve => document.addEventListener("visibilitychange", resolve, { once: true, signal }));
            }
        }
        return el("div", { class: "slider" }, el("span", { text: called(k) }), range, said, el("span", { class: "soft", text: `of ${dims[k]}` }), play);
    }

    const rangeChoice = select(RANGES, look.range, value => {
        look.range = value;
        if (value === "fixed")
            fixed();
        else {
            look.lo = look.hi = null;
            if (value === "slice")
                attempt(figures);
            refresh();
        }
    });
    function fixed() {
        const [lo, hi] = [low, high].map(input => (input.value.trim() === "" ? NaN : Number(input.value)));
        const isWrong = [lo, hi].map(x => !Number.isFinite(x));
        if (lo >= hi)
            isWrong.fill(true);
        [low, high].forEach((input, i) => input.setAttribute("aria-invalid", String(isWrong[i])));
        if (isWrong.includes(true))
            return;
        Object.assign(look, { lo, hi, range: "fixed" });
        rangeChoice.value = "fixed";
        refresh();
    }
    low.addEventListener("change", fixed);
    high.addEventListener("change", fixed);
    bars.element.addEventListener("click", event => { // the nearer end comes here
        const value = bars.valueAt(event.offsetX);
        if (value === null)
            return;
        const near = Math.abs(value - Number(low.value)) < Math.abs(value - Number(high.value)) ? low : high;
        near.value = String(Number(value.toPrecision(5)));
        fixed();
    });

    left.append(el("section", { class: "card" },
        el("div", { class: "tools" },
            field("Colours", select(MAPS, memory.cmap, value => { memory.cmap = value; attempt(colourBar); refresh(); })),
            field("Range", rangeChoice), field("From", low), field("To", high),
            field("A pixel is", select([["mean", "the mean"], ["max", "the greatest"], ["min", "the least"], ["nearest", "one element"]], memory.pool,
                value => { memory.pool = value; refresh(); })),
            field("Live", select(LIVE, memory.live, value => { memory.live = value; lively(); }))),
        axes,
        el("div", { class: "viewer" }, board, el("div", { class: "scalebox" }, barCanvas, el("div", { class: "ends" }, top, bottom))),
        el("div", { class: "below" }, under, made_of),
        trouble,
        el("div", { class: "buttons" },
            el("button", { type: "button", text: "Zoom in", on: { click: () => zoom(2) } }), el("button", { type: "button", text: "Zoom out", on: { click: () => zoom(0.5) } }),
            el("button", { type: "button", text: "All", on: { click: () => { fit(); paint(); refresh(); } } })),
        sliders));

    /* -- Moving about -- */

    function moved() {
        const { clientWidth: w, clientHeight: h } = board;
        const least = Math.min(w / columns(), h / rows()) / 2;
        const scale = Math.max(1, least / Math.min(view.sx, view.sy));
        view.sx = Math.min(view.sx * scale, 200);
        view.sy = Math.min(view.sy * scale, 200);
        view.x = Math.min(columns(), Math.max(0, view.x));
        view.y = Math.min(rows(), Math.max(0, view.y));
        paint();
        refreshLater();
    }
    /** By a factor, about a point of the board, which stays where it is. */
    function zoom(factor, px = board.clientWidth / 2, py = board.clientHeight / 2) {
        const dx = px - board.clientWidth / 2, dy = py - board.clientHeight / 2;
        const [x, y] = [view.x + dx / view.sx, view.y + dy / view.sy];
        const most = Math.min(factor, 200 / Math.max(view.sx, view.sy));
        view.sx *= most;
        view.sy *= most;
        view.x = x - dx / view.sx;
        view.y = y - dy / view.sy;
        moved();
    }
    const touches = new Map();
    board.addEventListener("pointerdown", event => {
        board.setPointerCapture(event.pointerId);
        touches.set(event.pointerId, [event.offsetX, event.offsetY]);
    });
    board.addEventListener("pointermove", event => {
        const before = touches.get(event.pointerId);
        if (!before)
            return point(event.offsetX, event.offsetY);
        const others = [...touches].filter(([id]) => id !== event.pointerId);
        touches.set(event.pointerId, [event.offsetX, event.offsetY]);
        if (others.length === 1) {
            const [ox, oy] = others[0][1];
            const span = (x, y) => Math.max(10, Math.hypot(x - ox, y - oy));
            return zoom(span(event.offsetX, event.offsetY) / span(...before), ox, oy);
        }
        view.x -= (event.offsetX - before[0]) / view.sx;
        view.y -= (event.offsetY - before[1]) / view.sy;
        return moved();
    });
    for (const end of ["pointerup", "pointercancel"])
        board.addEventListener(end, event => { touches.delete(event.pointerId); watched(); });
    board.addEventListener("pointerleave", () => unpoint());
    board.addEventListener("wheel", event => {
        event.preventDefault();
        zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.offsetX, event.offsetY);
    }, { passive: false });
    board.addEventListener("dblclick", event => zoom(2, event.offsetX, event.offsetY));
    board.addEventListener("keydown", event => {
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
        if (step) {
            view.x += step[0] * board.clientWidth / view.sx / 8;
            view.y += step[1] * board.clientHeight / view.sy / 8;
            moved();
        } else if ("+=".includes(event.key))
            zoom(1.5);
        else if (event.key === "-")
            zoom(1 / 1.5);
        else if (event.key === "0") {
            fit();
            moved();
        } else
            return;
        event.preventDefault();
        middle();
    });
    const middle = () => board.matches(":focus-visible") && point(board.clientWidth / 2, board.clientHeight / 2);
    board.addEventListener("focus", () => { paint(); middle(); });
    board.addEventListener("blur", () => { paint(); unpoint(); });

    /* -- The value under the pointer, or in the middle -- */

    let pointed = null;
    const valueLater = later(70, () => attempt(async () => {
        if (!pointed)
            return;
        const index = pointed;
        const value = await (await send("GET", `${path}/data`, { query: { index }, signal })).text(); // as it is: 64-bit integers are exact
        if (index === pointed)
            under.textContent = `${name}[${index.replaceAll(",", ", ")}] = ${value.replaceAll(",", ", ")}`;
    }));
    function point(px, py) {
        const c = Math.floor(view.x + (px - board.clientWidth / 2) / view.sx), r = Math.floor(view.y + (py - board.clientHeight / 2) / view.sy);
        if (c < 0 || r < 0 || c >= columns() || r >= rows())
            return unpoint();
        const index = dims.map((_, k) => (k === look.row ? r : k === look.column ? c : look.isColour && k === rank - 1 ? null : look.at[k]))
            .filter(i => i !== null).join(",");
        if (index === pointed)
            return;
        pointed = index;
        under.textContent = `${name}[${index.replaceAll(",", ", ")}]`;
        valueLater();
    }
    function unpoint() {
        pointed = null;
        under.textContent = " ";
    }

    /* -- Live -- */

    let living = new AbortController(), streamed = "", drawnAt = 0, summedAt = performance.now();
    function lively() {
        living.abort();
        living = new AbortController();
        streamed = "";
        if (memory.live === "0" || played !== null || touches.size)
            return;
        const wish = asked();
        const key = streamed = keyOf(wish);
        const sum = async () => {
            if (changedAt !== drawnAt && performance.now() - summedAt > 2000) {
                drawnAt = changedAt;
                summedAt = performance.now();
                await figures();
            }
        };
        follow(`${path}/events`, AbortSignal.any([signal, living.signal]), {
            query: { ...wish.query, frames: true, interval: Number(memory.live) / 1000 },
            last: etagOf === key ? etag?.slice(1, -1) : undefined,
            every: Number(memory.live),
            async on(event, said, id) {
                if (key !== keyOf(asked())) // by now something else is looked at
                    return;
                trouble.hidden = event !== "error";
                if (event === "error")
                    trouble.textContent = said.detail;
                else
                    await draw(new Blob([Uint8Array.from(atob(said.png), c => c.charCodeAt(0))], { type: "image/png" }), said.range, wish, id && `"${id}"`, "");
                attempt(sum);
            },
            async ask() {
                const failure = played === null && !touches.size ? await refresh() : null;
                if (failure)
                    throw failure; // asked again later, and later still
                await sum();
            },
        });
    }
    const livelyLater = later(150, lively);
    /** Frames of what is no longer looked at are not sent any more. */
    function watched() {
        if (signal.aborted)
            return;
        if (streamed && streamed !== keyOf(asked())) {
            living.abort();
            streamed = "";
        }
        if (!streamed && memory.live !== "0")
            livelyLater();
    }

    chooseAxes();
    resize();
    fit();
    anew();
    const around = new ResizeObserver(later(100, () => {
        if (board.parentElement.clientWidth - ASIDE === board.clientWidth)
            return;
        resize();
        fit();
        paint();
        refresh();
    }));
    around.observe(left);
    signal.addEventListener("abort", () => { around.disconnect(); living.abort(); livelyLater.cancel(); });
}
