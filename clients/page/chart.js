/**
 * chart.js: curves, bars of memory and histograms, drawn on canvases in the page's own colours. A canvas has no
 * text that a screen reader could read, so each has a label that says what it shows and its last value.
 */
import { digits, el, number } from "./dom.js";

/** The colours of series, in order, as page.css has them. */
const INKS = 6;

const colour = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();

/** Round numbers that divide a range in about `n` parts. */
export function ticks(lo, hi, n) {
    const raw = (hi - lo) / Math.max(1, n);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw * 0.999) ?? 10 * power;
    const first = Math.ceil(lo / step - 1e-9);
    const found = [];
    for (let k = first; k * step <= hi + step * 1e-9 && found.length < 50; k++)
        found.push(Number((k * step).toPrecision(12)));
    return found;
}

/** A canvas as wide as its place, drawn anew when that or the colours change. */
export function canvas(draw, { label, height, className = "" }) {
    const element = el("canvas", { role: "img", "aria-label": label, class: className });
    element.style.height = `${height}px`;
    let asked = false;
    const redraw = () => {
        if (asked)
            return;
        asked = true;
        requestAnimationFrame(() => {
            asked = false;
            const width = element.clientWidth;
            if (!width)
                return;
            const ratio = devicePixelRatio || 1;
            const high = element.clientHeight;
            element.width = Math.round(width * ratio);
            element.height = Math.round(high * ratio);
            const context = element.getContext("2d");
            context.setTransform(ratio, 0, 0, ratio, 0, 0);
            context.font = "11px system-ui, sans-serif";
            draw(context, width, high, name => colour(element, name));
        });
    };
    new ResizeObserver(redraw).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    return { element, redraw };
}

/** The least and the greatest of a run's finite values, pixel by pixel: a long curve costs as little as a short one. */
function thinned(xs, ys, at, width) {
    if (xs.length <= 2 * width)
        return xs.map((x, i) => [at(x), ys[i]]);
    const points = [];
    let pixel = null, lo = 0, hi = 0;
    const flush = () => {
        if (pixel !== null)
            points.push([pixel, lo], [pixel, hi]);
    };
    for (let i = 0; i < xs.length; i++) {
        const p = Math.round(at(xs[i])), y = ys[i];
        if (!Number.isFinite(y))
            continue;
        if (p !== pixel) {
            flush();
            pixel = p;
            lo = hi = y;
        } else {
            lo = Math.min(lo, y);
            hi = Math.max(hi, y);
        }
    }
    flush();
    return points;
}

const finiteRange = lists => {
    let lo = Infinity, hi = -Infinity;
    for (const list of lists)
        for (const x of list)
            if (Number.isFinite(x)) {
                lo = Math.min(lo, x);
                hi = Math.max(hi, x);
            }
    return [lo, hi];
};

/**
 * Curves over a common x. `set([{ name, xs, ys }])` shows them. Options: `label` (what is shown), `say` (a value in words; without it all
 * digits, and at the axis those that tell its ticks apart), `unit`, `sayX`, `sayAt` (more of a place that is pointed at), `zero` (the y axis begins at 0), `top` (the y axis ends at least there), `height`, `legend`.
 */
export function curves({ label, say, sayX = number, sayAt = () => "", unit = "", zero = false, top, height = 130, legend = true }) {
    let series = [], pointer = null;
    const key = el("ul", { class: "legend", "aria-hidden": "true" });
    const { element, redraw } = canvas(draw, { label, height });
    element.tabIndex = 0;
    const right = 8, above = 8, below = 18;
    const full = y => `${(say ?? String)(y)}${unit}`;
    let left = 52;

    function draw(c, width, high, ink) {
        let [x0, x1] = finiteRange(series.map(s => s.xs));
        let [y0, y1] = finiteRange(series.map(s => s.ys));
        const isEmpty = !(x0 <= x1) || !(y0 <= y1);
        if (isEmpty)
            [x0, x1, y0, y1] = [0, 1, 0, 1];
        if (zero)
            y0 = Math.min(0, y0);
        if (top !== undefined)
            y1 = Math.max(top, y1);
        if (y0 === y1)
            [y0, y1] = zero && y1 === 0 ? [0, 1] : [y0 - Math.abs(y0) * 0.05 - 1e-9, y1 + Math.abs(y1) * 0.05 + 1e-9];
        if (x0 === x1)
            x1 = x0 + 1;
        if (top === undefined || y1 > top)
            y1 += (y1 - y0) * 0.06;
        const marks = ticks(y0, y1, Math.max(2, high / 45));
        const tick = say ?? (y => number(y, digits(y, marks[1] - marks[0])));
        left = Math.max(52, ...marks.map(y => c.measureText(tick(y)).width + 8));
        const atX = x => left + (x - x0) / (x1 - x0) * (width - left - right);
        const atY = y => high - below - (y - y0) / (y1 - y0) * (high - above - below);
        c.strokeStyle = ink("--line");
        c.fillStyle = ink("--soft");
        c.lineWidth = 1;
        c.textAlign = "right";
        c.textBaseline = "middle";
        for (const y of marks) {
            const p = Math.round(atY(y)) + 0.5;
            c.beginPath();
            c.moveTo(left, p);
            c.lineTo(width - right, p);
            c.stroke();
            c.fillText(tick(y), left - 6, p);
        }
        c.textBaseline = "alphabetic";
        if (!isEmpty) {
            c.textAlign = "right";
            c.fillText(sayX(x1), width - right, high - 4);
            c.textAlign = "left";
            if (sayX(x0) !== sayX(x1))
                c.fillText(sayX(x0), left, high - 4);
        }
        series.forEach((s, i) => {
            c.strokeStyle = ink(`--ink-${i % INKS + 1}`);
            c.lineWidth = 1.5;
            c.lineJoin = "round";
            c.beginPath();
            let isDown = false;
            for (const [x, y] of thinned(s.xs, s.ys, atX, width)) {
                if (!Number.isFinite(y))
                    isDown = false;
                else if (isDown)
                    c.lineTo(x, atY(y));
                else {
                    c.moveTo(x, atY(y));
                    isDown = true;
                }
            }
            c.stroke();
        });
        if (pointer === null || isEmpty)
            return;
        const wanted = x0 + (pointer - left) / (width - left - right) * (x1 - x0);
        const longest = series.reduce((a, b) => (b.xs.length > a.xs.length ? b : a), series[0]);
        let nearest = 0;
        longest.xs.forEach((x, i) => {
            if (Math.abs(x - wanted) < Math.abs(longest.xs[nearest] - wanted))
                nearest = i;
        });
        const x = longest.xs[nearest];
        c.strokeStyle = ink("--soft");
        c.lineWidth = 1;
        c.beginPath();
        c.moveTo(atX(x), above);
        c.lineTo(atX(x), high - below);
        c.stroke();
        const lines = [[sayX(x), sayAt(x)].filter(Boolean).join(" "), ...series.map(s => `${s.name ? `${s.name}: ` : ""}${full(s.ys[s.xs.indexOf(x)] ?? NaN)}`)];
        const wide = Math.max(...lines.map(text => c.measureText(text).width)) + 12;
        const from = Math.min(Math.max(left, atX(x) + 8), width - right - wide);
        c.fillStyle = ink("--card");
        c.fillRect(from, above, wide, lines.length * 15 + 6);
        c.strokeRect(from + 0.5, above + 0.5, wide, lines.length * 15 + 6);
        c.textAlign = "left";
        c.textBaseline = "top";
        lines.forEach((text, i) => {
            c.fillStyle = i ? ink(`--ink-${(i - 1) % INKS + 1}`) : ink("--text");
            c.fillText(text, from + 6, above + 5 + i * 15);
        });
    }

    element.addEventListener("pointermove", event => { pointer = event.offsetX; redraw(); });
    for (const end of ["pointerleave", "blur"])
        element.addEventListener(end, () => { pointer = null; redraw(); });
    element.addEventListener("keydown", event => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step)
            return;
        event.preventDefault();
        const width = element.clientWidth;
        pointer = Math.min(width - right, Math.max(left, (pointer ?? width - right) + step * (width - left - right) / 40));
        redraw();
    });
    return {
        element: el("div", { class: "chart" }, element, legend ? key : null),
        set(next) {
            series = next;
            const last = s => s.ys.findLast(Number.isFinite);
            if (legend && key.dataset.names !== JSON.stringify(next.map(s => s.name))) {
                key.dataset.names = JSON.stringify(next.map(s => s.name));
                key.replaceChildren(...(next.length > 1 ? next : []).map((s, i) =>
                    el("li", { class: `ink-${i % INKS + 1}`, text: s.name })));
            }
            element.setAttribute("aria-label", `${label}: ${next.map(s => {
                const value = last(s);
                return `${s.name ? `${s.name} ` : ""}${value === undefined ? "nothing yet" : full(value)}`;
            }).join(", ")}`);
            redraw();
        },
    };
}

/** A histogram as the daemon's summary has it, with two marks at the ends of the colours. */
export function histogram({ label, height = 90 }) {
    let data = null, marks = [];
    const { element, redraw } = canvas((c, width, high, ink) => {
        if (!data)
            return;
        const { counts, lo, hi } = data;
        const most = Math.max(1, ...counts);
        const wide = width / counts.length;
        c.fillStyle = ink("--ink-1");
        counts.forEach((n, i) => {
            const tall = n ? Math.max(1, n / most * (high - 18)) : 0;
            c.fillRect(i * wide, high - 14 - tall, Math.max(1, wide - 1), tall);
        });
        c.strokeStyle = ink("--text");
        for (const mark of marks.filter(m => m >= lo && m <= hi)) {
            const x = Math.round((mark - lo) / (hi - lo) * (width - 1)) + 0.5;
            c.beginPath();
            c.moveTo(x, 0);
            c.lineTo(x, high - 14);
            c.stroke();
        }
        c.fillStyle = ink("--soft");
        c.textAlign = "left";
        const end = x => number(x, digits(x, (hi - lo) / 100));
        c.fillText(end(lo), 0, high - 2);
        c.textAlign = "right";
        c.fillText(end(hi), width, high - 2);
    }, { label, height });
    return {
        element,
        set(next, at = marks) {
            data = next;
            marks = at;
            redraw();
        },
        mark(at) { marks = at; redraw(); },
        width: () => (data ? data.hi - data.lo : 0),
        /** The value at a place of the canvas, or null. */
        valueAt: x => (data ? data.lo + x / element.clientWidth * (data.hi - data.lo) : null),
    };
}

/** A bar of parts: [{ name, value, say }] of a whole. */
export function parts({ label }) {
    const bar = el("div", { class: "bar", role: "img", "aria-label": label });
    const key = el("ul", { class: "legend" });
    return {
        element: el("div", {}, bar, key),
        set(whole, list) {
            bar.setAttribute("aria-label", `${label}: ${list.map(p => `${p.name} ${p.say}`).join(", ")}`);
            if (bar.children.length !== list.length) {
                bar.replaceChildren(...list.map(p => el("span", { class: `part ${p.kind}` })));
                key.replaceChildren(...list.map(p => el("li", { class: p.kind }, el("span", { text: p.name }), " ", el("b"))));
            }
            list.forEach((p, i) => {
                bar.children[i].style.flexGrow = String(Math.max(0, p.value / Math.max(1, whole)));
                key.children[i].querySelector("b").textContent = p.say;
            });
        },
    };
}
