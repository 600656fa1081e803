/**
 * main.js: the page's frame. It asks who one is, lets one log in where there are accounts, and shows the view
 * that the address names after its `#`. A view is a module's `show(place, rest, signal)`, which fills the place
 * and stops all that it started when the signal is aborted.
 */
import { get, isOperator, mayAct, pause, post, send, state } from "./api.js";
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
const AGAIN = 2000; // ms until a view that did not come is tried again
const BY_LINK = "by-link"; // in this window's storage: what is over, when nobody is logged in any more, was a link
const PARENT = { array: "arrays", job: "jobs" };
/** What a visitor who came by a read-only link can be told of the daemon: where the link shows only some things, nothing. */
const UNTOLD = { version: "", backend: "", devices: [], operations: [], limits: {}, principal: { name: "", role: "viewer", quotas: {} } };

const main = document.getElementById("main");
const nav = document.getElementById("views");
const who = document.getElementById("who");
let leaving = new AbortController();
let shownTo = null; // the user whose page it has been since it was loaded

/** Ends the view, and what it asks the person. */
function leave() {
    leaving.abort();
    document.querySelector("dialog")?.close();
}

/** The view's name and the rest of the address: "#array/a-…" is ["array", "a-…"]. */
function address() {
    const [name, ...rest] = location.hash.slice(1).split("/");
    const isThere = Object.hasOwn(FILES, name) && (state.login?.role !== "viewer" || Object.hasOwn(PARENT, name) || mine().some(([view]) => view === name));
    return [isThere ? name : isLimited() ? "shown" : "node", decoded(rest.join("/"))];
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
        if (link.dataset.view !== (isLimited() ? "shown" : PARENT[view] ?? view))
            continue;
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
}

/** Shows the view that the address names; while the daemon does not answer, tries again. */
async function go() {
    if (!state.info)
        return;
    leave();
    leaving = new AbortController();
    const { signal } = leaving;
    const [view, rest] = address();
    mark(view);
    main.replaceChildren(); // what is there has stopped
    for (let isFailing = false; !signal.aborted; await pause(AGAIN, signal)) {
        const turn = new AbortController();
        const { session } = state;
        let module;
        try {
            module = await import(`./${FILES[view]}`);
            if (signal.aborted)
                return;
            main.replaceChildren();
            main.dataset.view = view;
            document.title = `arrayd: ${rest || (VIEWS.find(([name]) => name === view)?.[1] ?? view)}`;
            await module.show(main, rest, AbortSignal.any([signal, turn.signal]));
        } catch (error) {
            turn.abort();
            if (signal.aborted)
                return;
            if (session && !state.session) { // it has ended: the view begins with those that there are
                main.replaceChildren();
                continue;
            }
            if (!module || error.status === 0 || error.status === 503) { // the last: it is about to begin or to end
                isFailing = true;
                sayAway(true);
                main.replaceChildren(el("p", { class: "problem", role: "alert", text: "The daemon does not answer. The view comes when it does." }));
                continue;
            }
            if (error.status !== 401) // then there is the form for a token
                tell(error.message, true);
        }
        if (isFailing)
            sayAway(false);
        performance.mark("usable"); // tests look at when that was
        return;
    }
}

function frame() {
    const { info } = state;
    document.getElementById("version").textContent = [info.version, info.backend].filter(Boolean).join(" · ");
    nav.replaceChildren(...mine().map(([name, title]) => {
        const link = el("a", { href: `#${name}`, text: title });
        link.dataset.view = name;
        return link;
    }));
    const until = state.login?.expires ? `until ${new Date(state.login.expires).toLocaleString("sv").slice(0, -3)}` : "";
    const { name, role } = mayAct() ? info.principal : { name: `${state.login.principal}’s link`, role: `read-only, ${until}` };
    who.replaceChildren(el("span", { class: "dot", title: "The daemon answers" }),
        el("span", { class: "name", text: name, title: [name, mayAct() ? role : "read-only", until].filter(Boolean).join(", ") }), el("span", { class: "role", text: role }),
        ...(state.login?.expires ? [button(mayAct() ? "Log out" : "Leave", () => attempt(logOut), { class: "quiet" })] : []));
}

function sayAway(yes) {
    const dot = who.querySelector(".dot");
    dot?.classList.toggle("away", yes);
    if (dot)
        dot.title = yes ? "The daemon does not answer" : "The daemon answers";
}

async function logOut() {
    await post("v1/logout");
    sessionStorage.clear();
    location.reload();
}

/** What a visitor is told whose link is over: who came by a link has no token. */
function linkIsOver() {
    leave();
    state.info = null;
    nav.replaceChildren();
    who.replaceChildren();
    tell("");
    main.replaceChildren(el("section", { class: "login" }, el("h1", { text: "The link has ended" }),
        el("p", { text: "Its time is over, or somebody has ended it. Ask whoever gave it to you for another." }),
        button("Log in with a token", () => askToken())));
}

/** The form for a token. The token is sent once; what stays is a cookie that scripts cannot read. */
function askToken(error) {
    leave();
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
    } catch (problem) {
        if (problem.status !== 401 || !isOwn)
            throw problem;
        tell("The link is unknown, or over.", true);
    }
}

/** `reason` is what the form for a token says if nobody is logged in; there is one where one has not logged out. */
async function start(reason) {
    let isLink = Boolean(sessionStorage.getItem(BY_LINK));
    leave();
    Object.assign(state, { info: null, login: null });
    import(`./${FILES[address()[0]]}`).catch(() => {}); // it comes while the daemon says who one is
    try {
        const key = keyInAddress();
        if (key) {
            isLink = true;
            history.replaceState(null, "", location.pathname); // nobody who looks over a shoulder needs to see it
            await openLink(key);
        }
        state.login = await get("v1/login");
        if (state.login.required && !state.login.principal)
            return isLink ? linkIsOver() : askToken(reason);
        const { principal, role } = state.login;
        if (role === "viewer")
            sessionStorage.setItem(BY_LINK, "yes");
        else
            sessionStorage.removeItem(BY_LINK);
        if (shownTo && shownTo !== principal) { // nothing of one user's is left for another
            history.replaceState({ told: reason ? `You are ${principal} now: somebody has logged in in another window of this browser.` : "" }, "");
            sessionStorage.clear();
            return location.reload();
        }
        shownTo = principal;
        state.info = isLimited() ? UNTOLD : await get("v1/info");
    } catch (problem) {
        if (problem.status === 401)
            return isLink ? linkIsOver() : askToken("The login has ended.");
        main.replaceChildren(el("p", { class: "problem", text: problem.message }),
            button("Try again", () => location.reload()));
        return undefined;
    }
    frame();
    await go();
    if (history.state?.told) {
        tell(history.state.told, true);
        history.replaceState(null, "");
    }
    return undefined;
}

document.addEventListener("unauthorized", () => state.info && start("You are no longer logged in.")); // or are another
window.addEventListener("focus", () => state.info && get("v1/login").catch(() => {}));
document.addEventListener("daemon", ({ detail: failures }) => sayAway(failures > 1));
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
