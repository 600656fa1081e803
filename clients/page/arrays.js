/** arrays.js: the arrays of a session, those that others share, or for operators everybody's, in a table; a click leads to the picture. */
import { get, isOperator, list, mayAct, poll, post, state } from "./api.js";
import { age, attempt, button, bytes, el, field, question, select, shape, tell } from "./dom.js";
import { makeLink } from "./links.js";
import { follow } from "./stream.js";
import { table } from "./table.js";

const EVERYBODY = "everybody", SHARED = "shared";
const EVERY = 2000; // ms
const INTERVAL = 0.5; // seconds between two events

const place = a => (a.location === "host" ? "host" : `device ${a.device}`);
const link = a => el("a", { href: `#array/${encodeURIComponent(a.id)}`, text: a.name ?? `${a.id.slice(0, 10)}…`, title: a.name ?? a.id });
const written = new Map(); // by id, when one heard of it last
const isWritten = a => performance.now() - (written.get(a.id) ?? -Infinity) < 1.5 * EVERY;
const notes = a => [a.view_of ? "view" : "", a.read_only ? "read-only" : "", a.restored_from ? "restored" : "", isWritten(a) ? "being written" : ""]
    .filter(Boolean).join(", ");

export async function show(root, _, signal) {
    const sessions = await list("v1/sessions", "sessions", { signal });
    let whose = sessions.some(s => s.id === state.session) ? state.session : sessions.find(s => s.default)?.id ?? "";
    const { arrays: someShared } = await get("v1/arrays", { query: { shared: true, limit: 1 }, signal });
    let wake = new AbortController();
    const chosen = new Set(); // ids, for one link to several
    const linking = button("Link to the chosen", () => attempt(() => makeLink({ arrays: [...chosen] }, signal)), { hidden: true });
    const choose = (id, isChosen) => {
        chosen[isChosen ? "add" : "delete"](id);
        linking.hidden = chosen.size === 0;
    };
    const file = el("input", { type: "file", accept: ".npy", hidden: true, on: { change: () => attempt(async () => {
        const [chosenFile] = file.files;
        file.value = ""; // the same one can be chosen again
        const like = chosenFile.name.replace(/\.npy$/i, "").replace(/[^A-Za-z0-9_]/g, "_").replace(/^(?=\d|$)/, "_").slice(0, 64);
        let made;
        const perform = async query => { made = await post("v1/arrays", chosenFile, { query, signal }); };
        if (await question({ title: `Upload ${chosenFile.name}`, text: bytes(chosenFile.size), act: "Upload", perform,
            fields: [field("Name", el("input", { name: "name", value: like, required: true, pattern: "[A-Za-z_][A-Za-z0-9_]*", maxlength: "64", autofocus: true }))] }))
            location.hash = `#array/${made.id}`;
    }) } });
    const uploading = mayAct() ? [file, button("Upload a .npy file", () => file.click())] : [];
    const box = ({ id, name }) => el("input", { type: "checkbox", checked: chosen.has(id), "aria-label": `Choose ${name ?? id}`, on: { change: event => choose(id, event.target.checked) } });
    const view = table({
        label: "arrays",
        id: x => x.array.id,
        words: x => [x.array.name, x.array.id, x.array.dtype, shape(x.array.shape), x.owner, place(x.array), notes(x.array)].join(" "),
        shape: x => x.array.shape,
        sort: 6, down: false,
        empty: "There are no arrays yet. Evaluate an expression with a name, or upload a file.",
        columns: [
            // Another user's array is not the operator's to look at.
            { title: "Name", kind: "name", sort: x => x.array.name ?? "~", key: x => x.array.name, node: x => (x.owner === state.info.principal.name || x.array.owner ? link(x.array)
                : el("span", { text: x.array.name ?? `${x.array.id.slice(0, 10)}…`, title: x.array.id })) },
            { title: "Shape", right: true, sort: x => x.array.size, text: x => shape(x.array.shape) },
            { title: "Type", sort: x => x.array.dtype, text: x => x.array.dtype },
            { title: "Bytes", right: true, sort: x => x.array.nbytes, text: x => bytes(x.array.nbytes) },
            { title: "Owner", kind: "name", sort: x => x.owner, text: x => x.owner },
            { title: "Place", sort: x => place(x.array), text: x => place(x.array) },
            { title: "Age", right: true, sort: x => -Date.parse(x.array.created), text: x => age(x.array.created) },
            { title: "Notes", sort: x => notes(x.array), text: x => notes(x.array) },
            ...(mayAct() ? [{ title: "", key: x => x.array.name, node: x => (x.owner === state.info.principal.name ? box(x.array) : "") }] : []),
        ],
    });
    view.search.addEventListener("keydown", event => {
        if (event.key === "Enter" && /^a-\w+$/.test(event.target.value)) // one that someone shared, say
            location.hash = `#array/${event.target.value}`;
    });
    const choices = [...sessions.map(s => [s.id, s.name ?? `${s.id.slice(0, 10)}…`]), ...(someShared.length ? [[SHARED, "Shared with you"]] : []), ...(isOperator() ? [[EVERYBODY, "Everybody's"]] : [])];
    const which = select(choices, whose, next => {
        whose = next;
        chosen.clear();
        linking.hidden = true;
        if (sessions.some(s => s.id === whose))
            state.session = whose;
        view.set([], false);
        wake.abort();
        read();
    });
    const others = someShared.length ? el("p", { class: "soft" }, "Others share arrays with you. ", button("Show them", () => {
        which.value = SHARED;
        which.dispatchEvent(new Event("change"));
    }, { class: "quiet" })) : null;
    root.append(el("h1", { class: "visually-hidden", text: "Arrays" }), el("section", { class: "card" },
        el("div", { class: "tools" },
            field("Session", which), el("div", { class: "grow field" }, el("span", { text: "Search by name, type, shape" }), view.search), linking, uploading, view.said),
        others, view.element));

    /** The session has ended, by its time or by somebody's hand: the view begins anew with those that there are. */
    function gone(problem) {
        if (problem.status === 404) {
            state.session = null;
            window.dispatchEvent(new Event("hashchange"));
            tell("The session has ended.");
        }
    }

    const held = new Map(); // by id, in order of their making
    function draw(isWhole = true) {
        const mine = state.info.principal.name;
        [...chosen].filter(id => isWhole && !held.has(id)).forEach(id => choose(id, false));
        view.set([...held.values()].map(a => (whose === EVERYBODY ? a : { owner: a.owner ?? mine, array: a })).reverse(), isWhole); // the newest first where two are of one age
    }

    function take(arrays, isWhole, isAnew) {
        if (isAnew)
            held.clear();
        arrays.forEach(a => held.set((a.array ?? a).id, a));
        if (isWhole || view.said.textContent === "" || view.said.textContent.includes("so far"))
            draw(isWhole);
    }

    async function read() {
        wake = new AbortController();
        written.clear();
        const until = AbortSignal.any([signal, wake.signal]);
        const isAll = whose === EVERYBODY, isShared = whose === SHARED, had = new Map();
        const ask = () => list(isAll ? "v1/admin/arrays" : "v1/arrays", "arrays", { signal: until, had, query: { shared: isShared || undefined }, each: (some, whole) => take(some, whole, true) }).catch(problem => { gone(problem); throw problem; });
        if (isAll || isShared)
            return poll(EVERY, until, ask); // others' arrays are told to nobody
        state.session = whose;
        const aging = setInterval(() => document.hidden || view.said.textContent.includes("so far") || draw(), EVERY);
        until.addEventListener("abort", () => clearInterval(aging));
        return follow("v1/events", until, { query: { jobs: false, interval: INTERVAL }, ask, every: EVERY, failed: gone, on(_, told) {
            told.written.forEach(id => written.set(id, performance.now()));
            told.gone.forEach(id => [held, written].forEach(known => known.delete(id)));
            take(told.arrays, !told.more, told.first);
        } });
    }
    read();
}
