/**
 * picture.js: an array of two axes or more as a picture that the device makes: only the pixels that are seen leave it, whatever
 * the array's size. One picture is asked for at a time, always of what is wanted last.
 */
import { send, state, summary } from "./api.js";
import { axes, isOfColours } from "./axes.js";
import { histogram } from "./chart.js";
import { attempt, bytes, digits, duration, el, element, field, later, named, number, select } from "./dom.js";
import { moving } from "./moving.js";
import { follow } from "./stream.js";

const MAPS = ["viridis", "magma", "inferno", "plasma", "cividis", "gray", "turbo", "coolwarm", "RdBu_r", "twilight"];
const RANGES = [["seen", "what is seen"], ["1,99", "1 to 99 % of it"], ["0.1,99.9", "0.1 to 99.9 % of it"], ["slice", "the whole slice"], ["fixed", "fixed"]];
const OF_COLOURS = [["slice", "the whole slice"], ["fixed", "fixed"]]; // besides that of the type
const LIVE = [["0", "off"], ["1000", "once a second"], ["500", "2 a second"], ["200", "5 a second"]];
const GAP = 10; // pixels between the picture and its colour bar
const memory = { cmap: "viridis", live: "500", pool: "mean" }; // kept from array to array

export function picture(left, side, meta, path, signal) {
    const dims = meta.shape;
    const rank = dims.length;
    const look = {
        isColour: isOfColours(dims) && meta.dtype === "uint8", isFlipped: false, range: "seen", lo: null, hi: null,
        row: 0, column: 1, at: dims.map(n => Math.floor((n - 1) / 2)),
    };

    // What is seen: the scales are in pixels of the page an element, the middle in elements.
    const view = { x: 0, y: 0, sx: 1, sy: 1 };
    let shown = null; // { bitmap, r0, r1, c0, c1, turned }
    let whole = null; // the same of the whole slice, to be seen beneath while one moves
    let wanted = 0, made = 0, isAsking = false, etag = null, etagOf = "", waiting = [], changedAt = 0, summedOf = 0, summedAt = 0;

    const board = el("canvas", { class: "board", tabindex: "0", role: "img", "aria-label": `Picture of ${named(meta)}` });
    const stage = el("div", { class: "stage" }, el("div", { class: "nothing" }), board);
    const barCanvas = el("canvas", { class: "scale", width: "16", height: "256", "aria-hidden": "true" });
    const top = el("span"), bottom = el("span");
    const beside = el("div", { class: "scalebox" }, barCanvas, el("div", { class: "ends" }, top, meta.units ? el("span", { class: "unit", text: meta.units }) : null, bottom));
    const holes = el("span", { class: "holes", hidden: true, text: "NaN" });
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
        const w = stage.parentElement.clientWidth - (look.isColour ? 0 : beside.offsetWidth + GAP);
        const h = Math.max(200, Math.min(w * rows() / columns(), innerHeight * 0.62));
        board.style.width = `${w}px`;
        board.style.height = `${Math.round(h)}px`;
        board.width = Math.round(w * devicePixelRatio);
        board.height = Math.round(h * devicePixelRatio);
        barCanvas.style.height = board.style.height;
        beside.style.height = board.style.height;
    }

    /** The elements in sight, half-open. */
    function sight() {
        const { clientWidth: w, clientHeight: h } = board;
        const clip = (x, n) => Math.min(n, Math.max(0, x));
        const c0 = clip(Math.floor(view.x - w / 2 / view.sx), columns() - 1), c1 = clip(Math.ceil(view.x + w / 2 / view.sx), columns());
        const r0 = clip(Math.floor(view.y - h / 2 / view.sy), rows() - 1), r1 = clip(Math.ceil(view.y + h / 2 / view.sy), rows());
        const [first, last] = [r0, Math.max(r1, r0 + 1)];
        return { r0: look.isFlipped ? rows() - last : first, r1: look.isFlipped ? rows() - first : last, c0, c1: Math.max(c1, c0 + 1) };
    }

    const indexOf = ({ r0, r1, c0, c1 }) => dims.map((_, k) => (k === look.row ? `${r0}:${r1}` : k === look.column ? `${c0}:${c1}`
        : look.isColour && k === rank - 1 ? ":" : String(look.at[k]))).join(",");
    const sliceIndex = () => indexOf({ r0: 0, r1: rows(), c0: 0, c1: columns() });

    /** Draws a layer into a box of a canvas. Enlarged elements have edges. */
    function put(context, { bitmap, turned }, [x, y, w, h]) {
        const across = turned ? bitmap.height : bitmap.width, down = turned ? bitmap.width : bitmap.height;
        const [top, tall] = look.isFlipped ? [y + h, -h] : [y, h];
        context.imageSmoothingEnabled = w < across * 1.5 && h < down * 1.5;
        context.setTransform(...(turned ? [0, tall / down, w / across, 0, x, top] : [w / across, 0, 0, tall / down, x, top]));
        context.drawImage(bitmap, 0, 0);
        context.setTransform(1, 0, 0, 1, 0, 0);
    }

    function paint() {
        const context = board.getContext("2d");
        const ratio = devicePixelRatio;
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, board.width, board.height);
        const place = (element, x, y, w, h) => Object.entries({ left: x, top: y, width: w, height: h }).forEach(([side, n]) => { element.style[side] = `${n}px`; });
        const x0 = board.clientWidth / 2 - view.x * view.sx, y0 = board.clientHeight / 2 - view.y * view.sy;
        place(stage.firstChild, x0, y0, columns() * view.sx, rows() * view.sy);
        for (const layer of [whole, shown]) {
            if (!layer)
                continue;
            const upper = look.isFlipped ? rows() - layer.r1 : layer.r0;
            const box = [x0 + layer.c0 * view.sx, y0 + upper * view.sy, (layer.c1 - layer.c0) * view.sx, (layer.r1 - layer.r0) * view.sy].map(n => n * ratio);
            if (layer === shown)
                context.clearRect(...box); // NaN is transparent: nothing older is seen through it
            put(context, layer, box);
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
        if ((look.range === "fixed" || look.range === "slice") && look.lo !== null && (look.lo < look.hi || !look.isColour))
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
        side.picture(saved, meta.shape.length === 2 && isWhole ? named(meta) : `${named(meta)}[${query.index.replaceAll(":", "-")}]`);
        if (range.length === 2)
            ends(range);
        made_of.textContent = `${bitmap.width} × ${bitmap.height} pixels, ${bytes(blob.size)}${more}`;
        board.setAttribute("aria-label", `Picture of ${named(meta)}, rows ${box.r0} to ${box.r1}, columns ${box.c0} to ${box.c1}, colours from ${apart(range[0], range)} to ${
            apart(range[1], range)}. Arrow keys move it, plus and minus zoom, 0 shows all; below it is the value in the middle.`);
        board.dataset.frames = String(Number(board.dataset.frames ?? 0) + 1);
        paint();
    }

    /** A value with the digits that tell it from what is a hundredth of the range beside it. */
    const apart = (x, [lo, hi], parts = 100) => number(x, digits(x, (hi - lo) / parts));

    let room = 64; // pixels beside the picture
    function ends([lo, hi]) {
        const short = x => [number(Number(x.toPrecision(3))), x.toExponential(1).replace("e+", "e")].find(text => Math.abs(Number(text) - x) <= (hi - lo) / 20 && text.length <= 7);
        const say = x => [apart(x, [lo, hi]), apart(x, [lo, hi], 10)].find(text => text.length <= 7) ?? short(x) ?? apart(x, [lo, hi], 10); // seven letters have room
        [top.textContent, bottom.textContent] = [hi, lo].map(say);
        if (beside.offsetWidth > room && !look.isColour) { // it grows, but does not shrink: the picture would move at each frame
            room = beside.offsetWidth;
            beside.style.minWidth = `${room}px`;
            settle();
            refreshLater();
        }
        bars.mark([lo, hi]);
        if (look.range !== "fixed")
            for (const [input, end] of [[low, lo], [high, hi]])
                if (document.activeElement !== input)
                    write(input, end, Math.max(7, digits(end, (hi - lo) / 1000)));
    }
    function write(input, value, n) {
        input.value = String(Number(value.toPrecision(n)));
        input.size = Math.max(10, input.value.length);
        input.removeAttribute("aria-invalid");
    }

    /** The picture as it is seen, with its colour bar. */
    function saved() {
        const ratio = devicePixelRatio;
        const [w, h] = [(shown.c1 - shown.c0) * view.sx, (shown.r1 - shown.r0) * view.sy].map(n => Math.ceil(n * ratio));
        const bar = look.isColour ? 0 : beside.offsetWidth + GAP;
        const canvas = el("canvas", { width: w + bar * ratio, height: h });
        const context = canvas.getContext("2d");
        put(context, shown, [0, 0, w, h]);
        if (bar) {
            context.setTransform(ratio, 0, 0, ratio, w, 0);
            context.fillStyle = "#fff";
            context.fillRect(0, 0, bar, h);
            context.drawImage(barCanvas, GAP, 0, 12, h / ratio);
            context.fillStyle = "#000";
            context.font = "11px system-ui, sans-serif";
            context.fillText(top.textContent, GAP + 16, 11);
            context.fillText(meta.units ?? "", GAP + 16, h / ratio / 2, bar - GAP - 16);
            context.fillText(bottom.textContent, GAP + 16, h / ratio - 3);
        }
        return new Promise(resolve => canvas.toBlob(resolve, "image/png"));
    }

    /** The colours of the bar are the daemon's own: those that it draws beside any picture. */
    async function colourBar() {
        beside.hidden = look.isColour;
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
        [summedOf, summedAt] = [changedAt, performance.now()];
        const found = await summary(path, { query, signal });
        bars.set(found.histogram);
        side.figures(found);
        holes.hidden = found.nan === 0;
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
        shown = whole = etag = null;
        side.picture(null);
        attempt(colourBar);
        figuresLater();
        return refresh();
    };

    /* -- Controls -- */

    let wasColour = look.isColour;
    const chosen = () => {
        if (wasColour !== look.isColour)
            ranges();
        wasColour = look.isColour;
        settle(true);
        anew();
    };
    const along = axes(meta, look, signal, { chosen, stopped: () => watched(), flipped() {
        paint();
        refresh();
    }, moved() {
        whole = null;
        figuresLater();
        return refresh();
    } });

    const rangeChoice = select(RANGES, look.range, value => {
        look.range = value;
        if (value === "fixed")
            fixed(false);
        else {
            look.lo = look.hi = null;
            if (value === "slice")
                attempt(figures);
            refresh();
        }
    });
    /** Of colours the range is the type's, where no other is chosen; figures that are no colours have one of their own at once. */
    function ranges() {
        const own = meta.dtype === "bool" || !/int/.test(meta.dtype) ? "0 to 1" : "0 to 255";
        Object.assign(look, { range: look.isColour && own === "0 to 1" ? "slice" : "seen", lo: null, hi: null });
        rangeChoice.replaceChildren(...(look.isColour ? [["seen", own], ...OF_COLOURS] : RANGES).map(([value, text]) => el("option", { value, text, selected: value === look.range })));
        mapField.hidden = look.isColour;
    }
    function fixed(isTyped = true) {
        const [lo, hi] = [low, high].map(input => (input.value.trim() === "" ? NaN : Number(input.value)));
        const isWrong = [lo, hi].map(x => !Number.isFinite(x));
        if (lo >= hi)
            isWrong.fill(true);
        [low, high].forEach((input, i) => input.setAttribute("aria-invalid", String(isTyped && isWrong[i])));
        if (isWrong.includes(true))
            return;
        Object.assign(look, { lo, hi, range: "fixed" });
        rangeChoice.value = "fixed";
        refresh();
    }
    low.addEventListener("change", () => fixed());
    high.addEventListener("change", () => fixed());
    bars.element.addEventListener("click", event => { // the nearer end comes here
        const value = bars.valueAt(event.offsetX);
        if (value === null)
            return;
        const near = Math.abs(value - Number(low.value)) < Math.abs(value - Number(high.value)) ? low : high;
        write(near, value, Math.max(5, digits(value, bars.width() / 100)));
        fixed();
    });

    const mapField = field("Colours", select(MAPS, memory.cmap, value => { memory.cmap = value; attempt(colourBar); refresh(); }));
    left.append(el("section", { class: "card" },
        el("div", { class: "tools" },
            mapField,
            field("Range", rangeChoice), field("From", low), field("To", high),
            field("A pixel is", select([["mean", "the mean"], ["max", "the greatest"], ["min", "the least"], ["nearest", "one element"]], memory.pool,
                value => { memory.pool = value; refresh(); })),
            field("Live", select(LIVE, memory.live, value => { memory.live = value; lively(); }))),
        along.choices,
        el("div", { class: "viewer" }, stage, beside),
        el("div", { class: "below" }, under, el("span", {}, holes, made_of)),
        trouble,
        el("div", { class: "buttons" },
            el("button", { type: "button", text: "Zoom in", on: { click: () => zoom(2) } }), el("button", { type: "button", text: "Zoom out", on: { click: () => zoom(0.5) } }),
            el("button", { type: "button", text: "All", on: { click: () => { fit(); paint(); refresh(); } } })),
        along.sliders));

    const { zoom, isHeld } = moving(board, view, { size: () => [rows(), columns()], fit, letGo: () => watched(), point, unpoint, paint, moved() {
        paint();
        refreshLater();
    } });

    /* -- The value under the pointer, or in the middle -- */

    let pointed = null, pointedPlace = "";
    const valueLater = later(70, () => attempt(async () => {
        if (!pointed)
            return;
        const [index, place] = [pointed, pointedPlace];
        const value = await (await send("GET", `${path}/data`, { query: { index }, signal })).text(); // as it is: 64-bit integers are exact
        if (index === pointed)
            under.textContent = [`${named(meta)}[${index.replaceAll(",", ", ")}] = ${element(value, meta.dtype)}`, meta.units ?? "",
                place && `at ${place}`].filter(Boolean).join(" ");
    }));
    function point(px, py) {
        const c = Math.floor(view.x + (px - board.clientWidth / 2) / view.sx), y = Math.floor(view.y + (py - board.clientHeight / 2) / view.sy);
        const r = look.isFlipped ? rows() - 1 - y : y;
        if (c < 0 || r < 0 || c >= columns() || r >= rows())
            return unpoint();
        const spot = dims.map((_, k) => (k === look.row ? r : k === look.column ? c : look.isColour && k === rank - 1 ? null : look.at[k]));
        const index = spot.filter(i => i !== null).join(",");
        if (index === pointed)
            return;
        pointed = index;
        pointedPlace = along.place(spot);
        under.textContent = `${named(meta)}[${index.replaceAll(",", ", ")}]`;
        valueLater();
    }
    function unpoint() {
        pointed = null;
        under.textContent = " ";
    }

    /* -- Live -- */

    let living = new AbortController(), streamed = "";
    function lively() {
        living.abort();
        living = new AbortController();
        streamed = "";
        if (memory.live === "0" || along.isPlaying() || isHeld())
            return;
        const wish = asked();
        const key = streamed = keyOf(wish);
        let summing;
        const sum = async () => {
            clearTimeout(summing);
            if (changedAt === summedOf)
                return;
            const wait = summedAt + 2000 - performance.now();
            if (wait > 0) // the last state is always told
                summing = setTimeout(() => attempt(sum), wait);
            else
                await figures();
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
                const failure = !along.isPlaying() && !isHeld() ? await refresh() : null;
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

    /** The board in its place, which may be another; who has zoomed stays where they were. */
    function settle(isAnew = false) {
        const { r0, r1, c0, c1 } = sight();
        const isAll = r1 - r0 === rows() && c1 - c0 === columns();
        resize();
        if (isAll || isAnew)
            fit();
        paint();
    }
    let wide = 0;
    const around = new ResizeObserver(later(100, () => {
        if (left.clientWidth === wide)
            return;
        wide = left.clientWidth;
        settle();
        refresh();
    }));
    ranges();
    settle(true);
    wide = left.clientWidth;
    anew();
    around.observe(left);
    signal.addEventListener("abort", () => { around.disconnect(); living.abort(); livelyLater.cancel(); });
}
