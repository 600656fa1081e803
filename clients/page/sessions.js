/** sessions.js: what one holds: sessions, functions, shares that one has given, and the quotas it counts in. */
import { ask, get, isOperator, list, poll, post, state } from "./api.js";
import { age, attempt, button, bytes, count, duration, el, field, question, select } from "./dom.js";
import { links } from "./links.js";
import { table } from "./table.js";

const QUOTAS = { device_memory: ["Device memory", bytes], host_memory: ["Host memory", bytes], request_memory: ["Memory of requests", bytes], arrays: ["Arrays", count],
    sessions: ["Sessions", count], requests: ["Requests at once", count], connections: ["Connections", count], body: ["Bytes of bodies", bytes], attrs_memory: ["Attributes and coordinates", bytes] };

/** Which session names are looked up in; it is kept while the page is open. */
export async function sessionField(signal, change = () => {}) {
    const found = await list("v1/sessions", "sessions", { signal });
    const own = found.find(s => s.default);
    if (!found.some(s => s.id === state.session))
        state.session = own?.id ?? null;
    return field("Session", select(found.map(s => [s.id, s.name ?? `${s.id.slice(0, 10)}…`]), state.session, id => { state.session = id; change(); }));
}

/** What one has used of the device, and of one's quotas. */
function used(principal) {
    const { month, device_s: seconds } = principal.this_month;
    return [el("p", { text: `Device time in ${month}: ${duration(seconds)}` }), quotaTable(principal)];
}

function quotaTable(principal) {
    return el("table", {}, el("thead", {}, el("tr", {}, ["Quota", "Used", "Limit", "Part used"].map((text, i) => el("th", { scope: "col", class: i === 1 || i === 2 ? "right" : false },
        el("span", { class: i === 3 ? "visually-hidden" : false, text }))))),
        el("tbody", {}, Object.entries(QUOTAS).filter(([key]) => principal.quotas[key]).map(([key, [title, say]]) => {
            const { limit, used } = principal.quotas[key];
            return el("tr", {}, el("th", { scope: "row", text: title }), el("td", { class: "right", text: say(used) }), el("td", { class: "right", text: limit === null ? "none" : say(limit) }),
                el("td", {}, limit === null ? "" : el("meter", { min: "0", max: "1", high: "0.9", value: String(Math.min(1, used / limit)), "aria-label": `${title} used` })));
        })));
}

/** Who may use one's arrays. Operators get one list; for other users each array is asked for, up to a maximum. */
async function given(signal) {
    if (isOperator()) {
        const mine = (await list("v1/admin/arrays", "arrays", { signal })).filter(a => a.owner === state.info.principal.name);
        return { shares: mine.flatMap(({ array, shares }) => shares.map(s => ({ ...s, array }))),
            leases: mine.flatMap(({ array, leases }) => leases.map(l => ({ ...l, array }))), isAll: true };
    }
    const { arrays, next } = await get("v1/arrays", { query: { limit: 200 }, signal });
    const shares = [];
    for (const array of arrays) // one after the other: the daemon has others to serve
        shares.push(...(await get(`v1/arrays/${array.id}/shares`, { signal })).shares.map(s => ({ ...s, array })));
    return { shares, leases: null, isAll: !next };
}

export async function show(root, _, signal) {
    const account = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Your account" });
    const refresh = async () => sessions.set(await list("v1/sessions", "sessions", { signal }));
    const sessions = table({
        label: "sessions", id: s => s.id, words: s => `${s.name} ${s.id}`, sort: 6, empty: "None.",
        columns: [
            { title: "Session", kind: "name", sort: s => s.name ?? "~", text: s => s.name ?? s.id },
            { title: "Arrays", right: true, sort: s => s.arrays, text: s => count(s.arrays) },
            { title: "Memory", right: true, sort: s => s.bytes_in_use, text: s => bytes(s.bytes_in_use) },
            { title: "Limit", right: true, sort: s => s.memory_limit ?? Infinity, text: s => (s.memory_limit === null ? "none" : bytes(s.memory_limit)) },
            { title: "Device time", right: true, sort: s => s.device_s, text: s => duration(s.device_s) },
            { title: "Ends after idle", right: true, sort: s => s.ttl_s ?? Infinity, text: s => (s.ttl_s === null ? "never" : duration(s.ttl_s)) },
            { title: "Age", right: true, sort: s => -Date.parse(s.created), text: s => age(s.created) },
            { title: "Device", right: true, text: s => (state.info.devices[s.device]?.parts ? "mesh" : String(s.device)) },
            { title: "", right: true, key: s => String(s.arrays), node: s => el("div", { class: "buttons" }, s.default ? null : button("End", () => attempt(async () => {
                const answer = await question({ title: `End the session ${s.name ?? s.id}?`, text: `Its ${count(s.arrays)} arrays are deleted, and its jobs end.`, act: "End", danger: true });
                if (!answer)
                    return;
                await ask("DELETE", `v1/sessions/${s.id}`, { signal });
                state.session = state.session === s.id ? null : state.session;
                await refresh();
            }), { class: "danger" })) },
        ],
    });
    const create = button("New session", () => attempt(async () => {
        const { devices, default_device: usual } = state.info;
        await question({ title: "New session", act: "Create", fields: [
            field("Name", el("input", { name: "name", maxlength: "64", autofocus: true })),
            field("Ends when idle for (seconds)", el("input", { name: "ttl_s", type: "number", min: "1" }), "Empty: never"),
            field("Limit of memory (MiB)", el("input", { name: "memory_limit", type: "number", min: "1" }), "Empty: none but yours"),
            devices.length > 1 ? field("Device", select([["", usual === "any" ? "The one with most free memory" : usual === "mesh" ? "The usual one: the mesh" : `The usual one: ${usual}`], ...devices.map(d => [String(d.index), d.parts ? `mesh: ${d.name}` : `${d.index}: ${d.name}`])],
                "", () => {}, { name: "device" }), devices.some(d => d.parts) ? "On the mesh, arrays and work are divided over its GPUs" : undefined) : ""],
        perform: answer => post("v1/sessions", { ...(answer.name ? { name: answer.name } : {}), ...(answer.ttl_s ? { ttl_s: Number(answer.ttl_s) } : {}),
            ...(answer.memory_limit ? { memory_limit: Number(answer.memory_limit) * 2 ** 20 } : {}),
            ...(answer.device ? { device: Number(answer.device) } : {}) }, { signal }) });
        await refresh();
    }));
    const functions = table({
        label: "functions", id: f => f.name, words: f => `${f.name} ${f.expr ?? ""}`, sort: 0,
        empty: "None. A function is defined by POST /v1/functions, and used in expressions by its name.",
        columns: [
            { title: "Function", kind: "name", sort: f => f.name, text: f => `${f.name}(${f.params.map(p => (Array.isArray(p) ? `${p[0]}=${p[1]}` : typeof p === "string" ? p : p.name ?? "")).join(", ")})` },
            { title: "Is", kind: "text mono", text: f => f.expr ?? "a tree" },
            { title: "Age", right: true, sort: f => -Date.parse(f.created), text: f => age(f.created) },
            { title: "", right: true, node: f => el("div", { class: "buttons" }, button("Delete", () => attempt(async () => {
                if (await question({ title: `Delete the function ${f.name}?`, act: "Delete", danger: true })) {
                    await ask("DELETE", `v1/functions/${f.name}`, { signal });
                    functions.set(await list("v1/functions", "functions", { signal }));
                }
            }), { class: "danger" })) },
        ],
    });
    const leaveAll = button("Log out everywhere", () => attempt(async () => {
        if (await question({ title: "Log out everywhere?", text: "Every browser where you are logged in, this one included, asks for a token again. Links and tokens stay.", act: "Log out", danger: true })) {
            await ask("DELETE", "v1/logins", { signal });
            location.reload();
        }
    }), { class: "danger" });
    const shares = el("div");
    const arrayLink = a => el("a", { href: `#array/${a.id}`, text: a.name ?? a.id });
    const look = () => attempt(async () => {
        const found = await given(signal);
        shares.replaceChildren(
            found.shares.length ? el("ul", { class: "plain" }, found.shares.map(s => el("li", {}, arrayLink(s.array),
                el("span", { text: `${s.principal}, ${s.access}` })))) : el("p", { class: "soft", text: "You have shared no array." }),
            found.leases?.length ? el("h2", { text: "Leases and exports" }) : "",
            found.leases?.length ? el("ul", { class: "plain" }, found.leases.map(l => el("li", {}, arrayLink(l.array),
                el("span", { text: `${l.principal ?? "nobody any more"}, ${l.mode}, ${l.export ? "an export" : `until ${new Date(l.expires).toLocaleTimeString("sv")}`}` })))) : "",
            found.isAll ? "" : el("p", { class: "soft", text: "Of your first 200 arrays." }));
    });
    root.append(el("h1", { class: "visually-hidden", text: "Sessions" }),
        el("section", { class: "card" }, el("div", { class: "tools" }, el("h2", { class: "grow", text: "Sessions" }), create), sessions.element),
        el("div", { class: "cards" },
            el("section", { class: "card" }, el("div", { class: "tools" }, el("h2", { class: "grow", text: "Your account" }), state.login?.required ? leaveAll : ""), account),
            el("section", { class: "card" }, el("div", { class: "tools" }, el("h2", { class: "grow", text: "Shares and leases" }), button("Look again", look)), shares)),
        el("section", { class: "card" }, el("h2", { text: "Functions" }), functions.element),
        links(signal));
    look();
    attempt(async () => functions.set(await list("v1/functions", "functions", { signal })));
    poll(2000, signal, async () => {
        await refresh();
        state.info = await get("v1/info", { signal });
        account.replaceChildren(...used(state.info.principal));
    });
}
