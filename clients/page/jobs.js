/** jobs.js: one's jobs, and one of them with its recorded series as curves while they come. */
import { ask, get, inPath, list, mayAct, poll, post } from "./api.js";
import { curves } from "./chart.js";
import { age, attempt, badge, button, bytes, count, duration, el, progress, question, rate, renew, tell } from "./dom.js";
import { makeLink } from "./links.js";
import { follow, seat } from "./stream.js";
import { table } from "./table.js";

const text = value => (typeof value === "string" ? value : JSON.stringify(value));

/** A job that reads a file or writes one: its steps are bytes. */
const file = job => job.import ?? job.export;

/** The first statements, or the file, in a line. */
export const brief = job => (file(job) ? `${job.import ? "import" : "export"} ${file(job).folder}/${file(job).path}` : job.program?.body.join("; ") ?? "");

/** How far it is; before a file has been looked into, nobody knows how far it goes. */
function steps(job) {
    const say = file(job) ? bytes : count;
    return file(job) && job.steps <= 1 ? "" : `${say(job.step)} of ${say(job.steps)}`;
}

export const pace = job => (!file(job) ? rate(job.steps_per_s) : job.steps_per_s ? `${bytes(job.steps_per_s)}/s` : "");

/** Of an import or export: the file, and what is taken from or put into it. */
function transfer(job) {
    const { variables = [], arrays = [] } = file(job);
    const parts = [...variables, ...arrays].map(x => (typeof x === "string" ? x : `${x.variable ?? x.array ?? ""}${x.index ? `[${x.index}]` : ""}${x.name ? ` as ${x.name}` : ""}`));
    return [[job.import ? "Imports" : "Exports to", `${file(job).folder}/${file(job).path}`], ["Arrays", parts.join(", ")], [job.import ? "Read" : "Written", steps(job)], ["Speed", pace(job)]];
}

/** What it computes: as it was sent, with the arrays that it assigns. */
function program({ body, bind = {}, record = {}, until, arrays = [], cut }) {
    const rows = [
        ["With", Object.entries(bind).map(([name, value]) => `${name} = ${text(value)}`).join(", ")],
        ["Records", Object.entries(record).map(([name, value]) => `${name} = ${text(value)}`).join(", ")],
        ["Until", until === undefined ? "" : text(until)],
        ["Writes", arrays.length ? el("ul", { class: "chips" }, arrays.map(a => el("li", {}, el("a", { href: `#array/${a.id}`, text: a.name })))) : ""],
    ].filter(([, value]) => value);
    return el("section", { class: "card" }, el("h2", { text: "Program" }), el("pre", { class: "attrs", text: body.join("\n") }),
        cut ? el("p", { class: "soft", text: "It is longer than what is shown." }) : null,
        el("dl", { class: "facts left" }, rows.flatMap(([term, value]) => [el("dt", { text: term }), el("dd", {}, value)])));
}

const isActive = job => job.state === "queued" || job.state === "running";

/** Buttons for what can be done with a job now; `after` is called when it was done, `gone` when the job was removed. */
function hands(job, after, gone, signal) {
    if (!mayAct())
        return "";
    const path = `v1/jobs/${inPath(job.id)}`;
    const act = action => attempt(async () => {
        await action();
        await after();
    });
    const remove = () => attempt(async () => {
        if (!await question({ title: "Remove the job?", text: "Its records are forgotten. The arrays stay as they are.", act: "Remove", danger: true }))
            return;
        await ask("DELETE", path, { signal });
        await gone();
    });
    return el("div", { class: "buttons" },
        isActive(job) ? button("Stop", () => act(() => ask("DELETE", path, { signal })))
            : [job.step < job.steps && job.state !== "done" && !file(job) ? button("Resume", () => act(() => post(`${path}/resume`, undefined, { signal }))) : null,
                button("Remove", remove, { class: "danger" })]);
}

export const show = (root, id, signal) => (id ? one(root, id, signal) : all(root, signal));

async function all(root, signal) {
    const held = new Map(); // by id
    function take(jobs, isWhole, isAnew) {
        if (isAnew)
            held.clear();
        jobs.forEach(j => held.set(j.id, j));
        view.set([...held.values()], isWhole);
    }
    const refresh = async () => take(await list("v1/jobs", "jobs", { signal }), true, true);
    const view = table({
        label: "jobs", id: j => j.id, words: j => `${j.id} ${j.state} ${j.session} ${brief(j)}`, sort: 7,
        empty: "There are no jobs. A program that is sent to run by itself is one (see Expression, Program), and so is a file that is imported or exported.",
        columns: [
            { title: "Job", key: j => j.id, node: j => el("a", { class: "mono", href: `#job/${j.id}`, text: `${j.id.slice(0, 10)}…`, title: j.id }) },
            { title: "Program", kind: "name", text: brief },
            { title: "State", sort: j => j.state, node: badge },
            { title: "Progress", sort: j => j.step / j.steps, node: progress },
            { title: "Steps", right: true, sort: j => j.step, text: steps },
            { title: "Steps per second", right: true, sort: j => j.steps_per_s, text: j => (isActive(j) ? pace(j) : "") },
            { title: "Remaining", right: true, sort: j => j.eta_s ?? 0, text: j => (j.eta_s === undefined ? "" : duration(j.eta_s)) },
            { title: "Age", right: true, sort: j => -Date.parse(j.created), text: j => age(j.created) },
            { title: "Device time", right: true, sort: j => j.device_s, text: j => duration(j.device_s) },
            { title: "", right: true, key: j => j.state, node: j => hands(j, refresh, refresh, signal) },
        ],
    });
    root.append(el("h1", { class: "visually-hidden", text: "Jobs" }), el("section", { class: "card" },
        el("div", { class: "tools" }, el("div", { class: "grow field" }, el("span", { text: "Search by id, state, session, program" }), view.search), view.said), view.element));
    view.set([], false);
    const aging = setInterval(() => document.hidden || view.said.textContent.includes("so far") || view.set([...held.values()]), 2000);
    signal.addEventListener("abort", () => clearInterval(aging));
    follow("v1/events", signal, { query: { arrays: false, interval: 1 }, ask: refresh, every: 1000, on(_, told) {
        told.gone.forEach(id => held.delete(id));
        take(told.jobs, !told.more, told.first);
    } });
}

async function one(root, id, signal) {
    const path = `v1/jobs/${inPath(id)}`;
    let job = await get(path, { signal });
    const head = el("div", { class: "tools middle grow" }), buttons = el("div", { class: "buttons" }), facts = el("dl", { class: "facts left" }), trouble = el("p", { class: "problem", role: "alert" });
    const what = job.program ? program(job.program) : "", plots = el("div", { class: "cards" }), copies = el("div");
    const charts = new Map();
    const series = new Map(); // by name, what was recorded so far
    const link = button("Link", () => attempt(() => makeLink({ jobs: [job.id] }, signal)));
    let source = null, listening = null;
    root.append(el("h1", {}, el("a", { href: "#jobs", text: "Jobs" }), el("span", { class: "soft", text: " / " }), el("span", { class: "mono", text: job.id })),
        el("section", { class: "card" }, el("div", { class: "tools middle" }, head, buttons), trouble, facts), what, plots, copies);

    function take(next) {
        job = { ...job, ...next };
        for (const gone of ["eta_s", "waiting", "error", "failed_step", "failed_statement", "stopped_by", "ended"])
            if (!(gone in next))
                delete job[gone];
        for (const [name, values] of Object.entries(next.records ?? {})) {
            const kept = series.get(name) ?? [];
            kept.length = Math.min(kept.length, next.records_from); // what comes again replaces what is there
            for (const value of values)
                kept.push(typeof value === "string" ? Number(value) : Number(value));
            series.set(name, kept);
        }
        draw();
    }

    function draw() {
        head.replaceChildren(badge(job), progress(job));
        if (buttons.dataset.state !== job.state) // not while one is pressed
            renew(buttons, hands(job, again, () => { location.hash = "#jobs"; }, signal), mayAct() ? link : "");
        buttons.dataset.state = job.state;
        const rows = [
            ...(file(job) ? transfer(job) : [["Steps", steps(job)], ["Steps per second", pace(job)]]),
            ["Remaining", job.eta_s === undefined ? "" : duration(job.eta_s)],
            ["Elapsed", duration(job.elapsed_s)],
            ["Device time", file(job) ? "" : `${duration(job.device_s)}${job.step ? `, ${duration(job.device_s / job.step)} a step` : ""}`],
            ["Memory moved", job.bytes_moved ? `${bytes(job.bytes_moved)}${job.memory_speed === undefined ? "" : `, at ${count(Math.round(job.memory_speed * 100))} % of the speed of a copy`}` : ""],
            ["Forms of kernels", job.forms?.join(", ")],
            ["In one pass", job.pass ? [`${count(job.pass.steps)} ${job.pass.steps === 1 ? "step" : "steps"}`,
                job.pass.kernels === undefined ? "" : `${job.pass.kernels} ${job.pass.kernels === 1 ? "kernel" : "kernels"} a step`, job.pass.why ?? ""].filter(Boolean).join(", ") : ""],
            ["Kernels", job.kernels], ["Stopped by", job.stopped_by], ["Waits", job.waiting],
            ["Created", new Date(job.created).toLocaleString("sv")], ["Ended", job.ended ? new Date(job.ended).toLocaleString("sv") : ""], ["Session", el("span", { class: "mono", text: job.session })],
        ].filter(([, value]) => value);
        facts.replaceChildren(...rows.flatMap(([term, value]) => [el("dt", { text: term }), el("dd", {}, value)]));
        trouble.hidden = !job.error;
        if (job.error) {
            const place = [job.failed_step === undefined ? "" : `Step ${job.failed_step}`, job.failed_statement === undefined ? "" : `statement ${job.failed_statement + 1}`];
            trouble.textContent = [place.filter(Boolean).join(", "), job.error.detail].filter(Boolean).join(": ");
        }
        for (const [name, values] of series) {
            if (!charts.has(name)) {
                const chart = curves({ label: name, sayX: x => `step ${count(Math.round(x))}`, height: 180, legend: false });
                charts.set(name, chart);
                plots.append(el("section", { class: "card" }, el("h2", {}, el("span", { text: name }), " ", el("span", { class: "soft last" })), chart.element));
            }
            const every = job.record_every ?? 1;
            charts.get(name).set([{ name: "", xs: values.map((_, k) => (k + 1) * every), ys: values }]);
            const last = charts.get(name).element.parentElement.querySelector(".last");
            last.textContent = values.length ? String(values.at(-1)) : "nothing yet";
        }
        if (job.snapshots?.length)
            copies.replaceChildren(el("section", { class: "card" }, el("h2", { text: "Copies" }), el("ul", { class: "chips" },
                job.snapshots.map(s => el("li", {}, el("a", { href: `#array/${s.id}`, text: `${s.name} after step ${count(s.step)}` }))))));
    }

    /** Events bring what has been recorded since the last; the daemon sends at most ten a second. */
    async function listen() {
        leave();
        const mine = listening = new AbortController();
        const isFree = await seat(AbortSignal.any([signal, mine.signal]));
        if (signal.aborted || mine.signal.aborted)
            return;
        if (!isFree) // one asks
            return leave();
        source = new EventSource(`${path}/events`);
        const on = event => {
            if (!signal.aborted)
                take(JSON.parse(event.data));
        };
        source.addEventListener("progress", on);
        source.addEventListener("end", event => { on(event); leave(); });
    }
    function leave() {
        source?.close();
        listening?.abort();
        source = listening = null;
    }
    async function again() {
        take(await get(path, { signal }));
        if (isActive(job))
            listen();
    }
    signal.addEventListener("abort", leave);
    document.addEventListener("visibilitychange", () => document.hidden && leave(), { signal });
    take({ ...job, records_from: job.records_from ?? 0 });
    if (isActive(job))
        listen();
    /* Events that are refused do not say why, and of a job that has ended none come: the login may have ended, the job be gone or resumed. */
    const left = new AbortController();
    poll(3000, AbortSignal.any([signal, left.signal]), async () => {
        if (isActive(job) && listening && source?.readyState !== EventSource.CLOSED)
            return;
        await again().catch(problem => {
            if (problem.status !== 404)
                throw problem;
            tell(problem.message, true);
            left.abort();
        });
    });
}
