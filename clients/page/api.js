/**
 * api.js: requests to the daemon that serves this page. Paths are relative to the page, so that it works
 * behind a proxy's prefix, too. Who is logged in is in a cookie that scripts cannot read.
 */

/** What all views know: the daemon's /v1/info, who one is, and whose arrays are looked at. */
export const state = { info: null, login: null, session: null };

export const isOperator = () => state.login?.role !== "viewer" && state.info?.principal.role === "operator";

/** Whether one may do more than look: who came by a read-only link may not. */
export const mayAct = () => state.login?.role !== "viewer";

/** A name as a part of a path: the daemon takes no escapes there, and users' names may have an @. */
export const inPath = name => encodeURIComponent(name).replaceAll("%40", "@");

/** A reply that is an error; of status 0 where none came. */
export class Problem extends Error {
    constructor(status, { detail, title, code, pointer, offset }) {
        super(detail ?? title ?? `the daemon replied with status ${status}`);
        Object.assign(this, { name: "Problem", status, code, pointer, offset });
    }
}

/** Sends a request, whose body is a .npy file or what becomes JSON, and returns its Response; errors are thrown as Problem. 304 is a reply, too. */
export async function send(method, path, { query = {}, body, accept = "application/json", headers = {}, signal, session = state.session } = {}) {
    const asked = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== ""));
    const url = asked.size ? `${path}?${asked}` : path;
    const all = { Accept: accept, ...headers };
    if (session)
        all["Arrayd-Session"] = session;
    if (state.login?.principal) // the daemon refuses what is sent for one user once the browser's login is another's
        all["Arrayd-Principal"] = state.login.principal;
    const isFile = body instanceof Blob;
    if (body !== undefined)
        all["Content-Type"] = isFile ? "application/x-npy" : "application/json";
    const reply = await fetch(url, { method, headers: all, body: body === undefined || isFile ? body : JSON.stringify(body), signal,
        cache: "no-store", credentials: "same-origin" }).catch(error => { throw signal?.aborted ? error : new Problem(0, { detail: "The daemon does not answer." }); });
    if (reply.ok || reply.status === 304)
        return reply;
    const problem = new Problem(reply.status, await reply.json().catch(() => ({})));
    if (reply.status === 401)
        document.dispatchEvent(new CustomEvent("unauthorized"));
    if (reply.status === 404 && state.session && path !== "v1/info") // of a session that is gone: the next request does without
        state.session = /session/.test(problem.message) ? null : state.session;
    throw problem;
}

/** The reply's JSON; null where there is none. */
export async function ask(method, path, options) {
    const reply = await send(method, path, options);
    return reply.status === 204 ? null : reply.json();
}

export const get = (path, options) => ask("GET", path, options);
export const post = (path, body, options) => ask("POST", path, { body, ...options });

/** An array's figures. `exact` has the least and the greatest as the daemon writes them: integers of 64 bits are more than a number holds here. */
export async function summary(path, options) {
    const text = await (await send("GET", `${path}/summary`, options)).text();
    const [min, max] = ["min", "max"].map(end => new RegExp(`"${end}":([^,]+)`).exec(text)[1].replace(/\.0$/, ""));
    return { ...JSON.parse(text), exact: { min, max } };
}

/** All items of a list, page by page; `each` is told of each page as it comes. `had`, a Map, keeps pages from one time to the next: those that are as they were do not come again. */
export async function list(path, member, { signal, session = state.session, each, query, had = new Map() } = {}) {
    const all = [], has = new Map(); // the pages' edges move: of had only what this time was asked for is kept
    let after;
    do {
        const before = had.get(after);
        const reply = await send("GET", path, { query: { limit: 1000, after, ...query }, headers: before ? { "If-None-Match": before.tag } : {}, signal, session });
        const page = reply.status === 304 ? before.page : await reply.json();
        const tag = reply.headers.get("ETag");
        if (tag)
            has.set(after, { tag, page });
        all.push(...page[member]);
        after = page.next;
        each?.(all, !after);
    } while (after);
    had.clear();
    has.forEach((page, at) => had.set(at, page));
    return all;
}

export const pause = (ms, signal) => new Promise(resolve => {
    const end = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", end);
        resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
});

export const seen = signal => new Promise(resolve => {
    if (!document.hidden)
        return resolve();
    document.addEventListener("visibilitychange", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve, { once: true });
});

/**
 * Does `action` every `ms` until the signal is aborted, never twice at once, and not while nobody sees the page.
 * After a failure it waits longer, and tells the document, whose header says that the daemon is away.
 */
export async function poll(ms, signal, action) {
    let failures = 0;
    while (!signal.aborted) {
        const start = performance.now();
        let isRefused = false; // that is an answer, too
        try {
            await action();
            failures = 0;
        } catch (error) {
            if (signal.aborted || error.status === 401)
                return;
            failures++;
            isRefused = error.status >= 400 && error.status < 500;
            console.debug(error);
        }
        document.dispatchEvent(new CustomEvent("daemon", { detail: isRefused ? 0 : failures }));
        // What takes long is asked for more rarely: the daemon has others to serve.
        const took = performance.now() - start;
        await pause(Math.max(ms * Math.min(2 ** failures, 16) - took, took, 50), signal);
        await seen(signal);
    }
}

const METRIC = /^(\w+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Some numbers of /metrics: by name a list of { labels, value }. */
export async function metrics(names, signal) {
    const text = await (await send("GET", "metrics", { query: { names: names.join(",") }, accept: "text/plain", signal })).text();
    const found = new Map();
    for (const line of text.split("\n")) {
        const parts = METRIC.exec(line);
        if (!parts)
            continue;
        const labels = {};
        for (const [, key, value] of (parts[2] ?? "").matchAll(LABEL))
            labels[key] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
        found.set(parts[1], [...(found.get(parts[1]) ?? []), { labels, value: Number(parts[3]) }]);
    }
    return found;
}
