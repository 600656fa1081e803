/** axes.js: which axes of an array go down and across, where the others stand, and the coordinates along them. */
import { get, inPath, pause, send } from "./api.js";
import { el, field, number, select } from "./dom.js";

const MOST = 20000; // elements of a coordinate that is fetched

/** Whether the last axis may be colours. */
export const isOfColours = dims => dims.length > 2 && (dims.at(-1) === 3 || dims.at(-1) === 4);

/** Under the pointer there is room for so many letters. */
const short = text => (text.length > 9 && Number.isFinite(Number(text)) ? number(Number(text), 7) : text.replace(/\.0$/, ""));

/**
 * What is told of a place along an axis: resolves to a function of the axis and the index, such as "lat 12.5 degrees_north", or "" where there is
 * no coordinate of that axis alone. With `isBare` the coordinate's name is left out.
 */
export async function coordinates(meta, signal) {
    const found = await Promise.all(meta.shape.map(async (n, k) => {
        const dim = meta.dims?.[k];
        const own = Object.entries(meta.coords ?? {}).filter(([, c]) => dim && c.dims.length === 1 && c.dims[0] === dim);
        const [name, c] = own.find(([called]) => called === dim) ?? own[0] ?? [];
        if (!c || n > MOST)
            return null;
        try {
            const path = `v1/arrays/${inPath(c.array)}`;
            const { shape, units } = await get(path, { signal });
            if (shape.length !== 1 || shape[0] !== n)
                return null;
            const text = await (await send("GET", `${path}/data`, { signal })).text(); // each as the daemon writes it
            return { name, unit: units ?? "", values: text.slice(1, -1).replaceAll("\"", "").split(",") };
        } catch {
            return null; // it is gone, or not shown to whom the array is shown
        }
    }));
    return (k, i, isBare = false) => (found[k] ? [isBare ? "" : found[k].name, short(found[k].values[i]), found[k].unit].filter(Boolean).join(" ") : "");
}

/**
 * The choice of the axes, and a slider for each other one. `look` has `row`, `column`, `isColour` and `at`, the index along each axis. `chosen` is called when
 * other axes are shown, `flipped` when they are the other way up, `moved` when one has moved, which resolves when that is seen, and `stopped` when a film has.
 */
export function axes(meta, look, signal, { chosen, flipped, moved, stopped }) {
    const dims = meta.shape, rank = dims.length;
    const called = k => (meta.dims?.[k] ? `${meta.dims[k]}` : `axis ${k}`);
    const canColour = isOfColours(dims);
    const free = () => dims.map((_, k) => k).filter(k => !(look.isColour && k === rank - 1));
    const choices = el("div", { class: "tools" }), sliders = el("div", { class: "sliders" });
    let played = null, along = () => "", says = [];

    const areColours = canColour && dims.slice(-3, -1).every(n => n > dims[rank - 1]); // as it seems: that axis is none to look at first
    function first() {
        [look.row, look.column] = free().filter(k => !(areColours && k === rank - 1)).slice(-2);
    }
    first();

    function draw() {
        const options = free().map(k => [String(k), `${called(k)} (${dims[k]})`]);
        const change = which => value => {
            const other = which === "row" ? "column" : "row";
            if (Number(value) === look[other])
                look[other] = look[which];
            look[which] = Number(value);
            draw();
            chosen();
        };
        const check = (text, key, then) => el("label", { class: "check" }, el("input", { type: "checkbox", checked: look[key], on: { change: event => {
            look[key] = event.target.checked;
            then();
        } } }), text);
        choices.replaceChildren(
            field("Down", select(options, String(look.row), change("row"))),
            field("Across", select(options, String(look.column), change("column"))),
            ...(canColour ? [check("Last axis is colours", "isColour", () => { first(); draw(); chosen(); })] : []),
            check("First row at the bottom", "isFlipped", flipped));
        says = [];
        sliders.replaceChildren(...free().filter(k => k !== look.row && k !== look.column).map(slider));
        where();
    }

    function where() {
        says.forEach(({ k, place }) => { place.textContent = along(k, look.at[k], true); });
    }

    function slider(k) {
        const said = el("output", { class: "mono", text: `${look.at[k]}` });
        const place = el("output", { class: "place" });
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
                stopped();
        } } });
        says.push({ k, place });
        function move(i) {
            look.at[k] = i;
            range.value = String(i);
            said.textContent = String(i);
            where();
            return moved();
        }
        async function run() {
            while (played === k && !signal.aborted && range.isConnected) {
                const start = performance.now();
                await move((look.at[k] + 1) % dims[k]);
                await pause(Math.max(80 - (performance.now() - start), performance.now() - start, 10), signal); // half of the time is others'
                if (document.hidden)
                    await new Promise(resolve => document.addEventListener("visibilitychange", resolve, { once: true, signal }));
            }
        }
        return el("div", { class: "slider" }, el("span", { text: called(k) }), range, said, el("span", { class: "soft", text: `of ${dims[k]}` }), play, place);
    }

    draw();
    coordinates(meta, signal).then(found => {
        along = found;
        where();
    });
    return {
        choices, sliders,
        isPlaying: () => played !== null,
        /** The coordinates of an element, in words. */
        place: index => index.map((i, k) => (i === null ? "" : along(k, i))).filter(Boolean).join(", "),
    };
}
