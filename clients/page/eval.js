/**
 * eval.js: expressions and programs. What is typed is explained first, which checks it and takes nothing of the device; then
 * the value, the picture or the new array is asked for.
 */
import { get, list, post, Problem, send, state } from "./api.js";
import { curves } from "./chart.js";
import { COPIES } from "./copies.js";
import { attempt, blame, button, bytes, copy, count, digits, duration, el, element, field, forgive, inWords, number, question, shape, tell } from "./dom.js";
import { editor } from "./editor.js";
import { read, whole } from "./program.js";
import { sessionField } from "./sessions.js";

const SOON = 500; // ms after which it is said that something is under way
const CONSTANTS = ["pi", "e", "inf", "nan", "True", "False", "None"];
const kept = { mode: "expression", expression: "", program: "", name: "", steps: "1000", record: "", every: "100" }; // in this window, also when it is loaded again
const TYPED = "typed"; // its name in the window's storage

/** What can be completed: names of arrays, functions and operations. */
async function vocabulary(signal) {
    const arrays = (await get("v1/arrays", { query: { limit: 1000 }, signal })).arrays.filter(a => a.name);
    const functions = await list("v1/functions", "functions", { signal });
    const arity = o => (Array.isArray(o.arity) ? `${o.arity[0]} to ${o.arity[1]} arguments` : o.arity === 1 ? "" : `${o.arity} arguments`);
    return [
        ...arrays.map(a => ({ name: a.name, kind: shape(a.shape), note: a.dtype })),
        ...functions.map(f => ({ name: f.name, kind: "your function", isCall: true })),
        ...state.info.operations.map(o => ({ name: o.name, kind: "operation", note: arity(o), isCall: true })),
        ...CONSTANTS.map(name => ({ name, kind: "constant" })),
    ];
}

/** The kernels as boxes, one after the other; the bars say how much of the memory traffic is whose. */
function kernels(how, took) {
    const most = Math.max(1, ...how.kernels.map(k => Math.max(k.bytes_read, k.bytes_written)));
    const bar = (title, n) => {
        const fill = el("span");
        fill.style.width = `${n / most * 100}%`;
        return el("div", { class: "traffic" }, el("span", { class: "soft", text: title }), el("div", { class: "track" }, fill), el("span", { text: bytes(n) }));
    };
    const boxes = how.kernels.map(k => el("li", { class: "kernel" },
        el("h3", {}, el("span", { text: `${k.index + 1}. ${k.shape}` }), " ", el("span", { class: "soft", text: `over ${shape(k.iteration)}${k.steps ? `, ${k.steps} steps` : ""}` })),
        el("ul", { class: "chips" }, k.inputs.map(i => el("li", { text: i.name ?? "from before", title: i.dtype }))),
        bar("reads", k.bytes_read), bar("writes", k.bytes_written),
        el("p", { class: "soft", text: [`${count(k.nodes)} ${k.nodes === 1 ? "operation" : "operations"}`, k.registers === undefined ? "" : `${k.registers} registers`,
            k.shared_bytes ? `${bytes(k.shared_bytes)} shared` : "", k.local_bytes ? `${bytes(k.local_bytes)} spilled` : "",
            k.interpreted ? "interpreted until it is compiled" : k.cached ? "" : "to be compiled"].filter(Boolean).join(" · ") }),
        el("details", {}, el("summary", { text: "Source" }), el("pre", { text: k.source }))));
    const all = how.kernels.reduce((sum, k) => sum + k.bytes_read + k.bytes_written, 0);
    return el("section", { class: "card" }, el("h2", {}, el("span", { text: how.kernels.length === 1 ? "One kernel" : `${count(how.kernels.length)} kernels` }), " ",
        el("span", { class: "soft", text: [`${bytes(all)} over the memory`, took ? `${duration(took)}, ${bytes(all / took)} a second` : "",
            how.pass ? `${how.pass.steps} ${how.pass.steps === 1 ? "step" : "steps"} in one pass` : ""].filter(Boolean).join(", ") })),
    how.kernels.length ? el("ol", { class: "kernels" }, boxes) : el("p", { class: "soft", text: "Nothing is computed: the result is known, or a view." }),
    how.pass?.why ? el("p", { class: "soft", text: `No more steps in one pass: ${how.pass.why}.` }) : "",
    how.wholes?.length ? el("p", { class: "soft", text: `Together where that pays: ${how.wholes.map(w => `kernels ${w.kernels.map(k => k + 1).join(", ")} (${w.why})`).join("; ")}.` }) : "");
}

/** What the daemon expects of a program, and what it expects it from. */
function expectation({ by, copy_rate: speed, device_s: busy, share, elapsed_s: takes, ends }) {
    if (busy === undefined)
        return "How long it will take cannot be told.";
    const from = by === "last_run" ? "as its kernels took when they last ran" : `as if its kernels ran as fast as a copy, ${bytes(speed)} a second; arithmetic takes longer, on a CPU often many times as long`;
    return `Expected, not promised: ${by === "last_run" ? "" : "at least "}${duration(busy)} of device time, ${from}. With ${share > 0.995 ? "all" : `${count(Math.max(1, Math.round(share * 100)))} %`} of the device, as things are now, that is ${
        duration(takes)}${ends === undefined ? "" : `: until ${new Date(ends).toLocaleString("sv")}`}.`;
}

/** A value in the daemon's own words: 64-bit integers are exact, which numbers in JavaScript are not. */
const valueIn = (text, dtype) => element(/"value":(\[[^\]]*\]|"[^"]*"|[^,}]*)/.exec(text)?.[1] ?? text, dtype);

/** Seconds that the device took, by the reply's own word. */
const deviceTime = reply => {
    const found = /(?:gpu|cpu);dur=([\d.]+)/.exec(reply.headers.get("Server-Timing") ?? "");
    return found ? Number(found[1]) / 1e3 : 0;
};

const keep = () => sessionStorage.setItem(TYPED, JSON.stringify({ ...kept, whose: state.login.principal }));

export async function show(root, _, signal) {
    const before = JSON.parse(sessionStorage.getItem(TYPED));
    if (before?.whose === state.login.principal)
        Object.assign(kept, before);
    let words = await vocabulary(signal);
    const results = el("div", { "aria-live": "polite" });
    const under = el("div", { class: "tools middle under", role: "status" }); // what is under way
    const area = el("div", { on: { input: () => { keep(); forgive(area); paper.clear(); } } });
    const name = el("input", { name: "name", value: kept.name, placeholder: "not kept", pattern: "[A-Za-z_][A-Za-z0-9_]*", maxlength: "64", size: "14", on: { input: e => { kept.name = e.target.value; } } });
    const steps = el("input", { name: "steps", value: kept.steps, inputmode: "numeric", size: "9", on: { input: e => { kept.steps = e.target.value; } } });
    const record = el("input", { name: "record", value: kept.record, placeholder: "energy = sum(u*u); most = max(u)", size: "36", on: { input: e => { kept.record = e.target.value; } } });
    const every = el("input", { name: "record_every", value: kept.every, inputmode: "numeric", size: "6", on: { input: e => { kept.every = e.target.value; } } });
    let paper, work;

    const isProgram = () => kept.mode === "program";
    function countIn(control) {
        const n = whole(control.value);
        if (Number.isNaN(n))
            throw new Problem(400, { detail: "a whole number was expected here", pointer: `/${control.name}` });
        return n;
    }
    /** What is typed, as a request; of a program, what the text says comes before the fields. */
    function request() {
        if (!isProgram())
            return { expr: paper.box.value.trim() };
        const { places: _places, ...said } = read(paper.box.value);
        const body = { steps: said.steps ?? countIn(steps), ...said };
        const records = record.value.split(";").map(r => r.trim()).filter(Boolean).map((r, i) => {
            const parts = /^([A-Za-z_]\w*)\s*=(?!=)\s*(.*)$/.exec(r);
            return parts ? [parts[1], parts[2]] : [`value_${i + 1}`, r];
        });
        if (records.length || said.record)
            Object.assign(body, { record: { ...Object.fromEntries(records), ...said.record }, record_every: said.record_every ?? countIn(every) });
        return body;
    }

    /** Where in the text that is of which an error tells; undefined: not there. */
    function placeOf({ place, pointer = "" }) {
        if (place || !isProgram())
            return place ?? (pointer === "/expr" ? { from: paper.box.value.length - paper.box.value.trimStart().length, length: paper.box.value.trim().length } : undefined);
        const { places } = read(paper.box.value);
        return places.get(pointer) ?? places.get(/^\/body\/\d+/.exec(pointer)?.[0]);
    }

    function fail(problem) {
        if (problem.name !== "Problem")
            throw problem;
        problem.message = problem.message.replace("array, let, bound scalar or constant", isProgram() ? "array, constant or number (@bind NAME = 0.1)" : "array or constant"); // what can be written here
        const place = placeOf(problem);
        if (place)
            paper.mark(problem, place.from, place.length);
        else
            paper.say(inWords(problem, blame(area, problem, "mistake")));
    }

    /** Runs one piece of work at a time: the newest. */
    const running = action => attempt(async () => {
        if (paper.box.value.trim() === "")
            return paper.box.focus();
        work?.abort();
        const mine = work = new AbortController();
        paper.clear();
        forgive(area);
        const until = AbortSignal.any([signal, mine.signal]);
        const start = performance.now();
        const since = el("span", { "aria-hidden": "true" }); // a reader would read it each second
        const ticking = setInterval(() => {
            since.textContent = `for ${count(Math.round((performance.now() - start) / 1e3))} s`;
            if (!under.hasChildNodes())
                under.append(el("span", {}, el("span", { text: "Under way " }), since), button("Give up", () => mine.abort()));
        }, SOON);
        results.setAttribute("aria-busy", "true");
        try {
            await action(until);
        } catch (problem) {
            results.replaceChildren();
            fail(problem);
        } finally {
            clearInterval(ticking);
            if (mine === work) {
                under.replaceChildren();
                results.removeAttribute("aria-busy");
            }
        }
        return undefined;
    });

    const explain = until => post("v1/explain", request(), { signal: until });

    const card = (title, note, ...children) => el("section", { class: "card result" }, el("h2", {}, el("span", { text: title }), " ", note ? el("span", { class: "soft", text: note }) : ""), children);

    function isPicture({ shape: s }) {
        return s.length === 2 && s[0] > 1 && s[1] > 1 || s.length === 3 && (s[2] === 3 || s[2] === 4) && s[0] > 1;
    }

    async function pictureOf(blobbed, title, note) {
        const blob = await blobbed.blob();
        const image = el("img", { class: "picture", alt: `Picture of ${title}`, src: URL.createObjectURL(blob) });
        image.addEventListener("load", () => URL.revokeObjectURL(image.src));
        const range = (blobbed.headers.get("Arrayd-Range") ?? "").split(" ").map(Number);
        return card(title, note, image, el("p", { class: "soft", text: `Colours from ${range.map(x => number(x, digits(x, (range[1] - range[0]) / 100))).join(" to ")}, ${bytes(blob.size)}` }));
    }

    const run = () => running(async until => {
        if (isProgram()) {
            const job = await post("v1/programs", request(), { signal: until });
            location.hash = `#job/${job.id}`;
            return;
        }
        const how = await explain(until);
        const { expr } = request();
        const { shape: s, dtype } = how.result;
        const size = s.reduce((a, b) => a * b, 1);
        const note = `${shape(s)} ${dtype}`;
        const options = { signal: until, body: { expr } };
        const wide = Math.max(1, s[1] ?? 1);
        const look = { cmap: "viridis", bar: true, width: Math.min(900, wide * Math.ceil(240 / wide)) }; // of few elements, large pixels
        if (s.length === 3)
            delete look.cmap, delete look.bar;
        let shown, reply;
        const called = kept.name.trim();
        if (called !== "") {
            const old = (await list("v1/arrays", "arrays", { signal: until })).find(a => a.name === called);
            if (old && !await question({ title: `Replace ${called}?`, text: `There is an array of that name, ${shape(old.shape)} ${old.dtype}, ${bytes(old.nbytes)}. The result takes its place, and it is deleted.`,
                act: "Replace", danger: true }))
                return;
            reply = await send("POST", "v1/evaluate", { ...options, body: { expr, name: called } });
            const said = await reply.text();
            const meta = JSON.parse(said);
            shown = meta.id === undefined ? card("Value", note, el("p", { class: "value mono", text: valueIn(said, dtype) }))
                : isPicture(how.result) ? await pictureOf(await send("GET", `v1/arrays/${meta.id}/data`, { accept: "image/png", query: look, signal: until }), meta.name ?? "result", note)
                    : card(meta.name ?? "result", note);
            if (meta.id !== undefined)
                shown.append(el("p", {}, el("a", { href: `#array/${meta.id}`, text: `Open ${meta.name ?? "the array"}` })));
            words = await vocabulary(until);
        } else if (size === 1 && s.length === 0) {
            reply = await send("POST", "v1/evaluate", options);
            shown = card("Value", note, el("p", { class: "value mono", text: valueIn(await reply.text(), dtype) }));
        } else if (isPicture(how.result)) {
            shown = await pictureOf(await send("POST", "v1/evaluate", { ...options, accept: "image/png", query: look }), "Picture", note);
        } else if (size <= 4096) {
            reply = await send("POST", "v1/evaluate", { ...options, body: { expr, inline: true } });
            const said = await reply.text();
            shown = card("Values", note, s.length === 1 && size > 1 && !/complex/.test(dtype) ? plot(JSON.parse(said).data) : "",
                el("pre", { class: "values", text: element(/"data":(.*)\}\s*$/s.exec(said)?.[1] ?? said, dtype) }));
        } else
            shown = card("An array", note, el("p", { class: "soft", text: "It is too large to be shown as numbers, and is no picture. Give it a name to keep it, then look at it." }));
        results.replaceChildren(shown, kernels(how, reply ? deviceTime(reply) : 0));
    });
    function plot(data) {
        const chart = curves({ label: "Values", height: 180, legend: false, sayX: x => `[${x}]` });
        chart.set([{ name: "", xs: data.map((__, i) => i), ys: data.map(Number) }]);
        return chart.element;
    }

    const onlyExplain = () => running(async until => {
        const how = await explain(until);
        const parts = [];
        if (isProgram()) {
            const n = request().steps;
            const traffic = how.kernels.filter(k => k.steps === undefined).reduce((sum, k) => sum + k.bytes_read + k.bytes_written, 0);
            parts.push(card("Before it starts", "", el("p", { text: `${count(n)} ${n === 1 ? "step" : "steps"}, ${bytes(traffic)} over the memory a step, ${
                bytes(how.expected.bytes_moved)} in all. Besides its arrays it holds ${bytes(how.bytes_held)} until it ends.` }), el("p", { text: expectation(how.expected) })));
        }
        results.replaceChildren(...parts, kernels(how, 0));
    });

    const copyAs = language => attempt(async () => {
        const how = isProgram() ? null : await explain(signal).catch(() => null); // one with a mistake is copied, too
        const own = (await list("v1/sessions", "sessions", { signal })).find(s => s.id === state.session);
        let text;
        try {
            text = COPIES[language](request(), isProgram(), kept.name.trim(), { ...state, session: own?.default ? null : state.session, result: how?.result });
        } catch (problem) {
            return fail(problem);
        }
        const pre = el("pre", { class: "copy", text, tabindex: "0", "aria-label": `As ${language}` });
        results.replaceChildren(card(`As ${language}`, "", pre));
        return tell(await copy(pre));
    });

    function layout() {
        paper = editor({
            label: isProgram() ? "Statements, one a line, as in a program file" : "Expression", names: () => words, run, rows: isProgram() ? 6 : 3,
            placeholder: isProgram() ? "u += 0.1*laplacian(u, boundary=\"wrap\")" : "u + 0.1*laplacian(u, boundary=\"wrap\")",
        });
        paper.box.value = kept[kept.mode];
        paper.box.addEventListener("input", () => { kept[kept.mode] = paper.box.value; });
        paper.clear();
        area.replaceChildren(paper.element, el("div", { class: "tools" },
            isProgram() ? [field("Steps", steps), field("Record", record), field("Every so many steps", every)] : field("Keep it as", name),
            el("div", { class: "buttons" }, button(isProgram() ? "Start" : "Evaluate", run, { class: "primary", title: "Ctrl+Enter" }), button("Explain", onlyExplain)),
            el("div", { class: "buttons last" }, el("span", { class: "soft", text: "Copy as" }), Object.keys(COPIES).map(language => button(language, () => copyAs(language), { class: "quiet" })))));
        results.replaceChildren();
        paper.box.focus();
    }
    const tabs = el("div", { class: "tabs" });
    const choose = mode => {
        kept.mode = mode;
        keep();
        tabs.replaceChildren(...[["expression", "Expression"], ["program", "Program"]].map(([m, title]) =>
            button(title, () => choose(m), { "aria-pressed": String(m === mode) })));
        layout();
    };
    const names = await sessionField(signal, () => attempt(async () => { words = await vocabulary(signal); }));
    root.append(el("h1", { class: "visually-hidden", text: "Expression" }), el("section", { class: "card" },
        el("div", { class: "tools" }, tabs, el("span", { class: "grow" }), names), area, under), results);
    choose(kept.mode);
}
