/** opened.js: one array that is looked at, and what is known of it as that changes. An array of one axis or none is drawn here, others by picture.js. */
import { get, inPath, poll, send, summary } from "./api.js";
import { aside } from "./array.js";
import { coordinates } from "./axes.js";
import { curves } from "./chart.js";
import { attempt, bytes, count, el, element, named, shape } from "./dom.js";
import { picture } from "./picture.js";
import { follow } from "./stream.js";

const CURVE = 2000; // elements of a curve at most
const EVERY = 2000; // ms between two looks at what is known of it: the stream of frames does not tell

const ordinal = n => `${count(n)}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th"}`;

export async function show(root, ref, signal) {
    const meta = await get(`v1/arrays/${inPath(ref)}`, { signal }); // changed in place: all that look at it see what it is now
    const path = `v1/arrays/${inPath(meta.id)}`;
    const ending = new AbortController(); // of all looking, before the array is deleted: what is asked for then is not there
    signal = AbortSignal.any([signal, ending.signal]);
    const side = aside(meta, path, signal, { end: () => ending.abort(), changed: take });
    const left = el("div", { class: "left" });
    const title = el("span"), kind = el("span", { class: "soft" });
    root.append(el("h1", {}, el("a", { href: "#arrays", text: "Arrays" }), el("span", { class: "soft", text: " / " }), title, " ", kind),
        el("div", { class: "two" }, left, side.element));
    let known = "", drawn = "", looking = new AbortController();

    function open() {
        looking.abort();
        looking = new AbortController();
        const until = AbortSignal.any([signal, looking.signal]);
        left.replaceChildren();
        side.histogram("");
        if (meta.size === 0)
            left.append(el("section", { class: "card" }, el("p", { class: "soft", text: "The array has no elements." })));
        else if (meta.shape.length < 2)
            line(left, side, meta, path, until);
        else
            picture(left, side, meta, path, until);
    }

    function take(now) {
        const all = JSON.stringify({ ...now, references: 0 });
        if (all === known)
            return;
        known = all;
        Object.keys(meta).forEach(key => delete meta[key]);
        Object.assign(meta, now);
        document.title = `arrayd: ${named(meta)}`;
        title.textContent = named(meta);
        kind.textContent = `${shape(meta.shape)} ${meta.dtype}, ${bytes(meta.nbytes)}`;
        side.meta();
        const looks = JSON.stringify([meta.shape, meta.dtype, meta.dims, meta.units, meta.coords]);
        if (looks !== drawn)
            open();
        drawn = looks;
    }
    take({ ...meta });
    const gone = new AbortController();
    poll(EVERY, AbortSignal.any([signal, gone.signal]), async () => {
        try {
            take(await get(path, { signal }));
        } catch (problem) {
            if (problem.status !== 404)
                throw problem;
            gone.abort(); // what looks at it says so
        }
    });
}

/** One axis or none. */
function line(left, side, meta, path, signal) {
    const n = meta.shape[0] ?? 1;
    const step = Math.ceil(n / CURVE);
    const isComplex = /complex/.test(meta.dtype);
    const unit = meta.units ? ` ${meta.units}` : "";
    const value = el("p", { class: "value" });
    let along = () => "";
    const chart = curves({ label: `Elements of ${named(meta)}`, sayX: x => `[${count(x)}]`, sayAt: x => along(0, x), unit, height: 320, legend: false });
    const notes = [step > 1 ? `Every ${ordinal(step)} element is shown.` : "", isComplex && meta.shape.length ? "Of complex numbers the absolute values are shown." : ""].filter(Boolean);
    left.append(el("section", { class: "card" }, meta.shape.length ? chart.element : value, notes.length ? el("p", { class: "soft", text: notes.join(" ") }) : null));
    coordinates(meta, signal).then(found => { along = found; });
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
            value.textContent = `${element(text, meta.dtype)}${unit}`;
        side.figures(await summary(path, { query: { bins: 48 }, signal }));
    };
    follow(`${path}/events`, signal, { query: { interval: 1 }, on: () => attempt(ask), ask, every: 1000 });
}
