/**
 * main.js: the page's frame. It asks who one is, lets one log in where there are accounts, and shows the view
 * that the address names after its `#`. A view is a module's `show(place, rest, signal)`, which fills the place
 * and stops all that it started when the signal is aborted.
 */
import { get, isOperator, mayAct, post, send, state } from "./api.js";
import { attempt, button, el, field, question, tell } from "./dom.js";

const VIEWS = [
    ["node", "Node", "node.js"],
    ["arrays", "Arrays", "arrays.js"],
    ["jobs", "Jobs", "jobs.js"],
    ["eval", "Expression", "eval.js"],
    ["sessions", "Sessions", "sessions.js"],
    ["admin", "Everybody", "admin.js"],
];
const FILES = Object.fromEntries([...VIEWS.map(([name, , file]) => [name, file]), ["array", "opened.js"], ["job", "jobs.js"], ["shown", "links.js"]]);
const PARENT = { array: "arrays", job: "jobs" };
/** What a visitor who came by a read-only link can be told of the daemon: where the link shows only some things, nothing. */
const UNTOLD = { version: "", backend: "", devices: [], operations: [], limits: {}, principal: { name: "", role: "viewer", quotas: {} } };

const main = document.getElementById("main");
const nav = document.getElementById("views");
const who = document.getElementById("who");
let leaving = new AbortController();

/** The view's name and the rest of the address: "#array/a-…" is ["array", "a-…"]. */
function address() {
    const [name, ...rest] = location.hash.slice(1).split("/");
    return [Object.hasOwn(FILES, name) ? name : isLimited() ? "shown" : "node", decoded(rest.join("/"))];
}

/** Anyone may have written the address: escapes that are none are read as they stand. */
function decoded(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

/** The key of a read-only link, where the address is one's. */
const keyInAddress = () => /^#link=(.+)$/.exec(location.hash)?.[1];

/** Whether one came by a link that shows only some arrays and jobs. */
const isLimited = () => state.login?.role === "viewer" && (state.login.arrays !== null || state.login.jobs !== null);

/** The views that one has. */
function mine() {
    if (isLimited())
        return [["shown", "What is shown"]];
    return VIEWS.filter(([name]) => (name === "admin" ? isOperator() : mayAct() || ["node", "arrays", "jobs"].includes(name)));
}

function mark(view) {
    for (const link of nav.children) {
        link.removeAttribute("aria-current");
        if (link.dataset.view !== (PARENT[view] ?? view))
            continue;
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
}

async function go() {
    if (!state.info)
        return;
    leaving.abort();
    leaving = new AbortController();
    const { signal } = leaving;
    const [view, rest] = address();
    mark(view);
    const module = await import(`./${FILES[view]}`);
    if (signal.aborted)
        return;
    main.replaceChildren();
    main.dataset.view = view;
    document.title = `arrayd: ${rest || (VIEWS.find(([name]) => name === view)?.[1] ?? view)}`;
    await attempt(() => module.show(main, rest, signal));
    performance.mark("usable"); // tests look at when that was
}

function frame() {
    const { info } = state;
    document.getElementById("version").textContent = [info.version, info.backend].filter(Boolean).join(" · ");
    nav.replaceChildren(...mine().map(([name, title]) => {
        const link = el("a", { href: `#${name}`, text: title });
        link.dataset.view = name;
        return link;
    }));
    const { name, role } = mayAct() ? info.principal : { name: state.login.principal ?? "", role: "read-only" };
    const until = state.login?.expires ? `, until ${new Date(state.login.expires).toLocaleString("sv")}` : "";
    who.replaceChildren(el("span", { class: "dot", title: "The daemon answers" }),
        el("span", { class: "name", text: name, title: `${name}, ${role}${until}` }), el("span", { class: "role", text: role }),
        ...(state.login?.expires ? [button("Log out", () => attempt(logOut), { class: "quiet" })] : []));
}

async function logOut() {
    await post("v1/logout");
    location.reload();
}

/** The form for a token. The token is sent once; what stays is a cookie that scripts cannot read. */
function askToken(error) {
    leaving.abort();
    state.info = null;
    const token = el("input", { type: "password", name: "token", required: true, autocomplete: "current-password", spellcheck: "false" });
    const form = el("form", { class: "login", on: { submit: async event => {
        event.preventDefault();
        try {
            await send("POST", "v1/login", { body: { token: token.value.trim() } });
            tell("");
            await start();
        } catch (problem) {
            askToken(problem.status === 401 ? "No account has this token." : problem.message);
        }
    } } },
    el("h1", { text: "Log in" }),
    el("p", { text: "This daemon has accounts. Your token was made with “arrayd token add”; ask its operator if you have none." }),
    field("Token", token), error ? el("p", { class: "problem", role: "alert", text: error }) : null,
    el("button", { type: "submit", class: "primary", text: "Log in" }));
    nav.replaceChildren();
    who.replaceChildren();
    main.replaceChildren(form);
    token.focus();
}

/** The browser has one login: a link's takes the place of one's own, which nobody should lose without a word. */
async function openLink(key) {
    const { principal, role, expires } = await get("v1/login");
    const isOwn = Boolean(expires) && role !== "viewer";
    if (isOwn && !await question({ title: "Open the link?", act: "Open it", text:
        `You are logged in as ${principal}. The link logs you out, in all windows of this browser, and shows what another may have chosen. A private window keeps your login.` }))
        return;
    try {
        await send("POST", "v1/login", { body: { link: key } });
        state.session = null; // it was the other login's
    } catch (problem) {
        if (problem.status !== 401 || !isOwn)
            throw problem;
        tell("The link is unknown, or over.", true);
    }
}

async function start() {
    leaving.abort();
    state.info = null;
    import(`./${FILES[address()[0]]}`).catch(() => {}); // it comes while the daemon says who one is
    try {
        const key = keyInAddress();
        if (key) {
            history.replaceState(null, "", location.pathname); // nobody who looks over a shoulder needs to see it
            await openLink(key);
        }
        state.login = await get("v1/login");
        if (state.login.required && !state.login.principal)
            return askToken();
        state.info = isLimited() ? UNTOLD : await get("v1/info");
    } catch (problem) {
        if (problem.status === 401)
            return askToken("The link, or the login, has ended.");
        main.replaceChildren(el("p", { class: "problem", text: `The daemon does not answer: ${problem.message}` }),
            button("Try again", () => location.reload()));
        return undefined;
    }
    frame();
    return go();
}

document.addEventListener("unauthorized", () => state.info && askToken("You are no longer logged in."));
document.addEventListener("daemon", ({ detail: failures }) => {
    const dot = who.querySelector(".dot");
    dot?.classList.toggle("away", failures > 1);
    if (dot)
        dot.title = failures > 1 ? "The daemon does not answer" : "The daemon answers";
});
document.getElementById("skip").addEventListener("click", event => {
    event.preventDefault(); // the address names the view
    main.focus();
});
/** Alt and a number is a view; a slash goes to the search of a table. */
document.addEventListener("keydown", event => {
    const link = event.altKey && /^[1-9]$/.test(event.key) ? nav.children[Number(event.key) - 1] : null;
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    const search = event.key === "/" && !isTyping ? main.querySelector("input[type=search]") : null;
    if (!link && !search)
        return;
    event.preventDefault();
    (link ?? search).focus();
    link?.click();
});
window.addEventListener("hashchange", () => {
    tell("");
    const isWithin = main.contains(document.activeElement);
    if (keyInAddress()) // of a link that was pasted where the page was shown
        start();
    else
        go().then(() => isWithin && document.activeElement === document.body && main.focus()); // what had the focus is gone
});
start();
