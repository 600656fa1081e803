/** admin.js: everybody's, for operators: users and their quotas, sessions, jobs, arrays, and who did what. */
import { ask, get, inPath, isOperator, list, poll } from "./api.js";
import { age, attempt, badge, button, bytes, count, duration, el, field, progress, question, shape } from "./dom.js";
import { brief, pace } from "./jobs.js";
import { table } from "./table.js";

const ago = at => (at === null ? "never" : age(at));
const since = at => (at === null ? Infinity : -Date.parse(at));
const MEMORY = ["device_memory", "host_memory", "request_memory", "body"];
const NAMES = { weight: "Weight", device_memory: "Device memory", host_memory: "Host memory", request_memory: "Memory of requests", arrays: "Arrays", sessions: "Sessions",
    requests: "Requests at once", connections: "Connections", body: "Bytes of bodies" };
const say = (key, n) => (n === null || n === undefined ? "none" : MEMORY.includes(key) ? bytes(n) : count(n));

/** A size as a person writes it, "2 GiB" or "2 GB", or a count; null: as in the accounts file; 0: no limit. */
function read(key, text) {
    const refuse = why => { throw Object.assign(new Error(why), { pointer: `/${key}` }); };
    const words = text.trim().toLowerCase().replaceAll(/(?<=\d)\s(?=\d{3})/g, "");
    if (words === "")
        return null;
    if (words === "none")
        return 0;
    const isMemory = MEMORY.includes(key);
    const [, digits, unit, isBinary] = /^(\d+(?:\.\d+)?(?:e\d+)?)\s*(?:([kmgt])?(i)?b)?$/.exec(words) ?? [];
    if (digits === undefined || !isMemory && words !== digits)
        refuse(`“${text}” is not a ${isMemory ? "size, such as 2 GiB or 2 GB" : "number"}`);
    const n = Number(digits) * (isBinary ? 1024 : 1000) ** (unit ? "kmgt".indexOf(unit) + 1 : 0);
    if (!isMemory && !Number.isInteger(n))
        refuse(`“${text}” is not a whole number`);
    if (Math.round(n) === 0 && key !== "weight")
        refuse("0 cannot be a limit: “none” is no quota");
    return Math.round(n);
}

/** Changes of weight and quotas: an empty field means what the accounts file says. */
async function change(p, signal) {
    const text = key => (!(key in p.changed) ? "" : p.changed[key] === null ? "none" : MEMORY.includes(key) && p.changed[key] % 1024 === 0 ? bytes(p.changed[key]) : String(p.changed[key]));
    const fields = Object.keys(NAMES).map(key => field(NAMES[key], el("input", { name: key, value: text(key), placeholder: say(key, p.accounts[key]), autocomplete: "off" })));
    const perform = answer => {
        const changes = { quotas: {} };
        for (const [key, value] of Object.entries(answer)) {
            if (value.trim() === text(key))
                continue;
            if (key === "weight")
                changes.weight = read(key, value);
            else
                changes.quotas[key] = read(key, value);
        }
        return ask("PATCH", `v1/admin/principals/${inPath(p.name)}`, { body: changes, signal });
    };
    await question({ title: `Weight and quotas of ${p.name}`, text: "An empty field means what the accounts file says, which is shown in grey. “none” is no quota.",
        fields: [el("div", { class: "pairs" }, fields)], act: "Change", perform });
}

/** A button that asks first. */
const ending = (text, title, words, path, after, signal) => button(text, () => attempt(async () => {
    if (await question({ title, text: words, act: text, danger: true })) {
        await ask("DELETE", path, { signal });
        await after();
    }
}), { class: "danger" });

const hands = (...buttons) => el("div", { class: "buttons" }, buttons);

const TABS = {
    principals: ["Users", "principals", (signal, again) => table({
        label: "users", id: p => p.name, words: p => `${p.name} ${p.role}`, sort: 8, down: true, empty: "None.",
        columns: [
            { title: "User", kind: "name", sort: p => p.name, text: p => p.name },
            { title: "Role", sort: p => p.role, text: p => p.role },
            { title: "Weight", right: true, sort: p => p.weight, text: p => `${p.weight}${"weight" in p.changed ? ` (${p.accounts.weight ?? 1})` : ""}` },
            { title: "Memory", right: true, sort: p => p.quotas.device_memory.used, text: p => bytes(p.quotas.device_memory.used) },
            { title: "of", right: true, sort: p => p.quotas.device_memory.limit ?? Infinity, text: p => say("device_memory", p.quotas.device_memory.limit) },
            { title: "Arrays", right: true, sort: p => p.quotas.arrays.used, text: p => count(p.quotas.arrays.used) },
            { title: "Jobs", right: true, sort: p => p.jobs, text: p => `${count(p.jobs_running)} of ${count(p.jobs)}` },
            { title: "Leases, shares, exports", right: true, sort: p => p.leases + p.shares + p.exports, text: p => [p.leases, p.shares, p.exports].map(count).join(", ") },
            { title: "Device time", right: true, sort: p => p.device_s, text: p => duration(p.device_s) },
            { title: "This month", right: true, sort: p => p.this_month.device_s, text: p => duration(p.this_month.device_s) },
            { title: "Requests", right: true, sort: p => p.requests_total, text: p => count(p.requests_total) },
            { title: "Last seen", right: true, sort: p => since(p.last_used), text: p => ago(p.last_used) },
            { title: "Changed", text: p => Object.keys(p.changed).map(key => `${NAMES[key] ?? key}: ${say(key, p.changed[key])}`).join(", ") },
            { title: "", right: true, key: p => JSON.stringify([p.changed, p.accounts]), node: p => hands(button("Quotas", () => attempt(async () => { await change(p, signal); await again(); })),
                ending("End logins", `End all of ${p.name}'s logins?`, "Every browser where this user is logged in asks for a token again. Links and tokens stay.",
                    `v1/admin/principals/${inPath(p.name)}/logins`, again, signal),
                ending("End", `End ${p.name}?`, "All that this user has is deleted: sessions, arrays, jobs, functions. The tokens are refused until the accounts file is read again.",
                    `v1/admin/principals/${inPath(p.name)}`, again, signal)) },
        ],
    })],
    sessions: ["Sessions", "sessions", (signal, again) => table({
        label: "everybody's sessions", id: x => x.session.id, words: x => `${x.owner} ${x.session.name} ${x.session.id}`, sort: 3, down: true, empty: "None.",
        columns: [
            { title: "Owner", kind: "name", sort: x => x.owner, text: x => x.owner },
            { title: "Session", kind: "name", sort: x => x.session.name ?? "~", text: x => x.session.name ?? x.session.id },
            { title: "Arrays", right: true, sort: x => x.session.arrays, text: x => count(x.session.arrays) },
            { title: "Memory", right: true, sort: x => x.session.bytes_in_use, text: x => bytes(x.session.bytes_in_use) },
            { title: "Device time", right: true, sort: x => x.session.device_s, text: x => duration(x.session.device_s) },
            { title: "Last used", right: true, sort: x => since(x.last_used), text: x => ago(x.last_used) },
            { title: "Age", right: true, sort: x => -Date.parse(x.session.created), text: x => age(x.session.created) },
            { title: "", right: true, key: x => String(x.session.arrays), node: x => hands(ending("End", `End ${x.owner}'s session ${x.session.name ?? x.session.id}?`,
                `Its ${count(x.session.arrays)} arrays are deleted, and its jobs end.`, `v1/admin/sessions/${x.session.id}`, again, signal)) },
        ],
    })],
    jobs: ["Jobs", "jobs", (signal, again) => table({
        label: "everybody's jobs", id: x => x.job.id, words: x => `${x.owner} ${x.job.id} ${x.job.state} ${brief(x.job)}`, sort: 8, empty: "Nobody has a job.",
        columns: [
            { title: "Owner", kind: "name", sort: x => x.owner, text: x => x.owner },
            { title: "Job", kind: "mono", text: x => `${x.job.id.slice(0, 10)}…` },
            { title: "Program", kind: "name", text: x => brief(x.job) },
            { title: "State", sort: x => x.job.state, node: x => badge(x.job) },
            { title: "Progress", sort: x => x.job.step / x.job.steps, node: x => progress(x.job) },
            { title: "Steps per second", right: true, sort: x => x.job.steps_per_s, text: x => pace(x.job) },
            { title: "Remaining", right: true, sort: x => x.job.eta_s ?? 0, text: x => (x.job.eta_s === undefined ? "" : duration(x.job.eta_s)) },
            { title: "Device time", right: true, sort: x => x.job.device_s, text: x => duration(x.job.device_s) },
            { title: "Age", right: true, sort: x => -Date.parse(x.job.created), text: x => age(x.job.created) },
            { title: "", right: true, key: x => x.job.state, node: x => hands(["queued", "running"].includes(x.job.state)
                ? ending("Stop", `Stop ${x.owner}'s job?`, x.job.program ? "It can be resumed by its owner." : "Nothing is left of it.", `v1/admin/jobs/${x.job.id}`, again, signal)
                : ending("Remove", `Remove ${x.owner}'s job?`, "Its records are forgotten.", `v1/admin/jobs/${x.job.id}`, again, signal)) },
        ],
    })],
    arrays: ["Arrays", "arrays", (signal, again) => table({
        label: "everybody's arrays", id: x => x.array.id, words: x => `${x.owner} ${x.array.name} ${x.array.id} ${x.array.dtype}`, shape: x => x.array.shape, sort: 4, down: true, empty: "None.",
        columns: [
            { title: "Owner", kind: "name", sort: x => x.owner, text: x => x.owner },
            { title: "Array", kind: "name", sort: x => x.array.name ?? "~", text: x => x.array.name ?? x.array.id },
            { title: "Shape", right: true, sort: x => x.array.size, text: x => shape(x.array.shape) },
            { title: "Type", sort: x => x.array.dtype, text: x => x.array.dtype },
            { title: "Bytes", right: true, sort: x => x.array.nbytes, text: x => bytes(x.array.nbytes) },
            { title: "Last used", right: true, sort: x => since(x.last_used), text: x => ago(x.last_used) },
            { title: "Shared with", kind: "name", text: x => x.shares.map(s => `${s.principal} (${s.access})`).join(", ") },
            { title: "Leased by", kind: "name", text: x => x.leases.map(l => `${l.principal ?? "nobody any more"} (${l.export ? "export" : l.mode})`).join(", ") },
            { title: "", right: true, key: x => x.array.id, node: x => hands(ending("Delete", `Delete ${x.owner}'s array ${x.array.name ?? x.array.id}?`, `${shape(x.array.shape)} ${x.array.dtype}, ${bytes(x.array.nbytes)}.`,
                `v1/admin/arrays/${x.array.id}`, again, signal)) },
        ],
    })],
    audit: ["Who did what", "entries", () => table({
        label: "what was done", id: e => e.number, words: e => `${e.who} ${e.from} ${e.action} ${e.target} ${e.result}`, sort: 0, down: true, empty: "Nothing has been done that is written down.",
        columns: [
            { title: "No.", right: true, sort: e => e.number, text: e => String(e.number) },
            { title: "When", sort: e => e.at, text: e => new Date(e.at).toLocaleString("sv") },
            { title: "Who", kind: "name", sort: e => e.who ?? "", text: e => e.who ?? "–" },
            { title: "From", sort: e => e.from ?? "", text: e => e.from ?? "–" },
            { title: "Did", sort: e => e.action, text: e => e.action.replaceAll("_", " ") },
            { title: "To", kind: "text", sort: e => e.target, text: e => e.target },
            { title: "Result", sort: e => e.result, text: e => e.result.replaceAll("_", " ") },
            { title: "Times", right: true, sort: e => e.count, text: e => count(e.count) },
        ],
    })],
};

async function faults(signal, again) {
    const { work, users } = await get("v1/faults", { signal });
    if (!work.length && !users.length)
        return "";
    const row = (title, words, which) => el("li", {}, el("span", {}, el("b", { text: title }), " ", el("span", { class: "soft", text: words })),
        button("Allow again", () => attempt(async () => { await ask("DELETE", `v1/faults/${inPath(which)}`, { signal }); await again(); })));
    return el("section", { class: "card" }, el("h2", { text: "Faults" }), el("ul", { class: "plain" },
        work.map(w => row(`${w.kernels}, ${w.state}`, `${w.reason}, ${age(w.at)} ago`, w.key)), users.map(u => row(u.principal, `${age(u.at)} ago`, u.principal))));
}

export async function show(root, rest, signal) {
    if (!isOperator()) {
        root.append(el("p", { class: "soft", text: "Only operators see everybody's." }));
        return;
    }
    const tab = rest in TABS ? rest : "principals";
    const [, member, make] = TABS[tab];
    const refused = el("div"), had = new Map();
    const refresh = async () => {
        view.set(await list(`v1/admin/${tab}`, member, { signal, had }));
        if (tab === "principals")
            refused.replaceChildren(await faults(signal, refresh));
    };
    const view = make(signal, refresh);
    root.append(el("h1", { class: "visually-hidden", text: "Everybody" }), el("section", { class: "card" },
        el("div", { class: "tools" },
            el("div", { class: "tabs", role: "navigation", "aria-label": "Of everybody" }, Object.entries(TABS).map(([name, [title]]) =>
                el("a", { href: `#admin/${name}`, text: title, "aria-current": name === tab ? "page" : false }))),
            el("div", { class: "grow field" }, view.search), view.said), view.element), refused);
    view.set([], false);
    poll(2000, signal, refresh);
}
