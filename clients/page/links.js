/**
 * links.js: read-only links that expire, for a colleague or a projector: the list of one's own, making one, and what a visitor
 * sees whose link shows only some arrays and jobs.
 */
import { ask, get, list, post, state } from "./api.js";
import { age, attempt, badge, button, copy, el, field, progress, question, select, shape } from "./dom.js";
import { table } from "./table.js";

const LASTS = [["3600", "an hour"], ["28800", "eight hours"], ["86400", "a day"], ["604800", "a week"], ["2592000", "30 days"]];

const remains = at => age(new Date(2 * Date.now() - Date.parse(at)).toISOString());

/** Makes a link and shows its address, which the daemon tells once. `shown` are ids of arrays and jobs; none: all that is one's own. */
export async function makeLink(shown, signal) {
    const most = state.info.limits.max_link_lifetime ?? Infinity;
    const answer = await question({ title: "Read-only link", act: "Make the link",
        text: shown ? "Whoever opens it sees this, and can change nothing." : "Whoever opens it sees all your arrays and jobs, and can change nothing.",
        fields: [field("It lasts", select(LASTS.filter(([s]) => Number(s) <= most), "86400", () => {}, { name: "expires_s" }))] });
    if (!answer)
        return;
    const made = await post("v1/links", { expires_s: Number(answer.expires_s), ...shown }, { signal });
    const address = `${location.origin}${location.pathname}${made.url.replace(/^\//, "")}`;
    const box = el("input", { value: address, readonly: true, "aria-label": "Address of the link", on: { focus: event => event.target.select() } });
    const said = el("span", { class: "soft", role: "status" });
    const copying = el("div", { class: "tools" }, button("Copy", async () => { said.textContent = await copy(box); }), said);
    await question({ title: "The link", text: "Its address is shown only now.", fields: [box, copying], act: "Close", isChoice: false });
}

/** The card with one's links. */
export function links(signal) {
    const names = new Map(); // of arrays, by id
    const refresh = async () => {
        const { links: found } = await get("v1/links", { signal });
        if (found.some(l => l.arrays?.some(id => !names.has(id))))
            for (const session of await list("v1/sessions", "sessions", { signal }))
                for (const a of await list("v1/arrays", "arrays", { signal, session: session.id }))
                    names.set(a.id, a.name ?? a.id);
        view.set(found);
    };
    const what = l => (l.arrays === null && l.jobs === null ? "all of yours" : [
        ...(l.arrays ?? []).map(id => names.get(id) ?? `${id}, which is deleted`), ...(l.jobs ?? []).map(id => `job ${id.slice(0, 10)}…`)].join(", "));
    const view = table({
        label: "read-only links", id: l => l.id, words: l => l.id, sort: 2, empty: "None. A link lets a colleague or a screen on the wall look, without an account.",
        columns: [
            { title: "Shows", kind: "text", text: what },
            { title: "Ends in", right: true, sort: l => Date.parse(l.expires), text: l => remains(l.expires) },
            { title: "Age", right: true, sort: l => -Date.parse(l.created), text: l => age(l.created) },
            { title: "", right: true, key: l => l.id, node: l => el("div", { class: "buttons" }, button("End", () => attempt(async () => {
                if (await question({ title: "End the link?", text: "Who has it open sees nothing any more.", act: "End", danger: true })) {
                    await ask("DELETE", `v1/links/${l.id}`, { signal });
                    await refresh();
                }
            }), { class: "danger" })) },
        ],
    });
    attempt(refresh);
    return el("section", { class: "card" }, el("div", { class: "tools" }, el("h2", { class: "grow", text: "Read-only links" }),
        button("New link", () => attempt(async () => { await makeLink(null, signal); await refresh(); }))), view.element);
}

/** What a visitor sees whose link shows some arrays and jobs. */
export async function show(root, _, signal) {
    const { arrays, jobs } = state.login;
    const each = async (ids, path, row) => (await Promise.all((ids ?? []).map(id => get(`${path}/${id}`, { signal }).then(row, () => null)))).filter(Boolean);
    const found = [
        ...await each(arrays, "v1/arrays", a => el("li", {}, el("a", { href: `#array/${a.id}`, text: a.name ?? a.id }), el("span", { class: "soft", text: `${shape(a.shape)} ${a.dtype}` }))),
        ...await each(jobs, "v1/jobs", j => el("li", {}, el("a", { class: "mono", href: `#job/${j.id}`, text: j.id }), el("span", {}, badge(j), " ", progress(j)))),
    ];
    root.append(el("section", { class: "card" }, el("h1", { text: "What this link shows" }),
        found.length ? el("ul", { class: "plain" }, found) : el("p", { class: "soft", text: "Nothing of it is there any more." })));
    if (found.length === 1) // nothing to choose
        location.replace(found[0].querySelector("a").href);
}
