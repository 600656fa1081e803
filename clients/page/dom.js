/**
 * dom.js: elements, numbers and jobs' states in words, and questions to the person. What the daemon says is only ever
 * set as text: names are other people's, and may be written to do harm.
 */

/** An element. Properties: `class`, `text`, `on` (listeners), anything else is an attribute; false leaves it out. */
export function el(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
        if (value === undefined || value === null || value === false)
            continue;
        if (key === "class")
            element.className = value;
        else if (key === "text")
            element.textContent = value;
        else if (key === "on")
            for (const [event, listener] of Object.entries(value))
                element.addEventListener(event, listener);
        else
            element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
    return element;
}

/** A button. What was told of the last thing that one did is over with the next. */
export const button = (text, click, properties = {}) => el("button", { type: "button", text, on: { click: event => { tell(""); click(event); } }, ...properties });

/** Replaces what is in a place. The focus stays with what comes to stand where it was: who uses the keyboard does not begin anew. */
export function renew(place, ...children) {
    const all = () => [...place.querySelectorAll("a, button, input")];
    const at = all().indexOf(document.activeElement);
    place.replaceChildren(...children);
    if (at >= 0)
        (all()[at] ?? all().at(-1))?.focus();
}

/** A labelled control: the label's text stands above it. */
export function field(label, control, note) {
    return el("label", { class: "field" }, el("span", { text: label }), control, note ? el("small", { text: note }) : null);
}

export function select(options, chosen, change, properties = {}) {
    const element = el("select", { ...properties, on: { change: event => change(event.target.value) } },
        options.map(o => {
            const [value, text] = Array.isArray(o) ? o : [o, o];
            return el("option", { value, text, selected: value === chosen });
        }));
    return element;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(n) {
    let unit = 0;
    while (n >= 1024 && unit < UNITS.length - 1) {
        n /= 1024;
        unit++;
    }
    return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${UNITS[unit]}`;
}

/** So many significant digits, without an exponent where that is short. */
export function number(x, n = 4) {
    if (typeof x !== "number")
        return String(x);
    const most = 10 ** Math.max(6, n), size = Math.abs(x);
    if (!Number.isFinite(x) || Number.isInteger(x) && size < most)
        return String(x);
    return size >= 1e-3 && size < most ? String(Number(x.toPrecision(n))) : x.toExponential(n - 1).replace("e+", "e");
}

/** How many significant digits, four at least, tell a number from what is `step` beside it. */
export const digits = (x, step) => (x !== 0 && step > 0 ? Math.min(17, Math.max(4, Math.ceil(Math.log10(Math.abs(x) / step)) + 1)) : 4);

/** An element as a person writes it: in JSON NaN is a text, and a complex number a pair. */
export function element(json, dtype) {
    const plain = json.replaceAll("\"", "");
    return (/complex/.test(dtype) ? plain.replace(/\[([^,[\]]+),\s*(-?)([^,[\]]+)\]/g, (_, re, sign, im) => `${re} ${sign ? "−" : "+"} ${im}i`) : plain).replace(/,\s*/g, ", ");
}

/** What an array is called. */
export const named = a => a.name ?? `${a.id.slice(0, 10)}…`;

export const count = n => n.toLocaleString("en-US").replaceAll(",", "\u202f");

export const rate = x => (x < 10 ? x.toFixed(1) : x < 1e6 ? count(Math.round(x)) : number(x));

export function duration(seconds) {
    if (seconds < 1e-3)
        return `${Math.round(seconds * 1e6)} µs`;
    if (seconds < 1)
        return `${(seconds * 1e3).toPrecision(3)} ms`;
    if (seconds < 60)
        return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const first = parts.findIndex(([size]) => seconds >= size);
    return parts.slice(first, first + 2).map(([size, unit], i) =>
        `${Math.floor((i === 0 ? seconds : seconds % parts[first][0]) / size)} ${unit}`).join(" ");
}

export const age = at => {
    const seconds = Math.max(0, (Date.now() - Date.parse(at)) / 1e3);
    return seconds < 1 ? "now" : duration(Math.floor(seconds)).replace(/\.0 s$/, " s");
};

export const shape = s => (s.length === 0 ? "scalar" : s.join(" × "));

const STATES = { queued: "is waiting for its turn", running: "is running", done: "has ended", failed: "has failed", cancelled: "was stopped" };

/** The state of a job, and how far it is. */
export const badge = job => el("span", { class: `badge ${job.waiting ? "waiting" : job.state}`, text: job.waiting ? "waiting" : job.state, title: job.waiting ?? STATES[job.state] });

export function progress(job) {
    const bar = el("progress", { max: "1", value: String(job.step / job.steps), "aria-label": `Progress: ${job.step} of ${job.steps} steps` });
    return el("span", { class: "progress" }, bar, el("span", { text: `${Math.floor(job.step / job.steps * 100)} %` }));
}

/* ---- Questions ------------------------------------------------------------------------------- */

/**
 * Asks in a dialog; resolves to the form's values, or to null where the person thinks better of it.
 * `fields` are elements with names, `act` is what the button says. Where there is nothing to decide, it alone is there.
 * `perform(values)` does it; while that fails, the dialog stays with what was typed, and says why.
 */
export function question({ title, text, fields = [], act, danger = false, isChoice = true, perform }) {
    return new Promise(resolve => {
        const why = el("p", { class: "problem", id: "why", role: "alert", hidden: true });
        const values = () => Object.fromEntries(new FormData(form));
        const form = el("form", { method: "dialog", on: { submit: async event => {
            if (!perform)
                return;
            event.preventDefault();
            forgive(form);
            why.hidden = true;
            form.inert = true; // once is enough
            try {
                await perform(values());
                dialog.close("yes");
            } catch (problem) {
                form.inert = false;
                const control = blame(form, problem, "why");
                why.textContent = inWords(problem, control);
                why.hidden = false;
                (control ?? form.querySelector("input, button")).focus();
            }
        } } }, el("h2", { text: title, id: "question" }),
            text ? el("p", { text }) : null, fields, why,
            el("div", { class: "buttons" },
                isChoice ? button("Cancel", () => dialog.close(), { class: "cancel" }) : null, // no submit button: Enter takes the first of those
                el("button", { value: "yes", type: "submit", text: act, class: danger ? "danger" : "primary" })));
        const dialog = el("dialog", { "aria-labelledby": "question" }, form);
        dialog.addEventListener("close", () => {
            const answer = dialog.returnValue === "yes" ? values() : null;
            dialog.remove();
            resolve(answer);
        });
        document.body.append(dialog);
        dialog.showModal();
        if (danger)
            form.querySelector(".cancel").focus(); // Enter must not be what deletes
    });
}

/** Marks the control within that a problem's place names, and has the words `said` belong to it; undefined where there is none. */
export function blame(within, { pointer = "" }, said) {
    const control = pointer.split("/").filter(Boolean).map(part => within.querySelector(`[name="${CSS.escape(part)}"]`)).find(Boolean);
    control?.setAttribute("aria-invalid", "true");
    control?.setAttribute("aria-describedby", said);
    return control;
}

/** Takes all such marks back. */
export const forgive = within => within.querySelectorAll("[aria-invalid]").forEach(control => ["aria-invalid", "aria-describedby"].forEach(name => control.removeAttribute(name)));

/** A problem's words, which say the control's name where it is not marked in a text. */
export const inWords = (problem, control) => [control?.closest("label")?.querySelector("span").textContent, problem.message].filter(Boolean).join(": ");

let hiding;

/** Tells something at the top of the window; errors stay until one does the next thing. */
export function tell(text, isError = false) {
    const notice = document.getElementById("notice");
    clearTimeout(hiding);
    notice.replaceChildren(el("span", { text }), isError ? button("×", () => {}, { class: "quiet", "aria-label": "Close" }) : "");
    notice.classList.toggle("error", isError);
    notice.hidden = text === "";
    if (!isError && text !== "")
        hiding = setTimeout(() => { notice.hidden = true; }, 5000);
}

/** Copies what an element has as its text or value; resolves to what is to be told of that. */
export async function copy(element) {
    try {
        await navigator.clipboard.writeText(element.value ?? element.textContent);
        return "Copied.";
    } catch { // without TLS a page may not write there: what is marked can be copied, by hand if need be
        if (element.select)
            element.select();
        else
            getSelection().selectAllChildren(element);
        return document.execCommand("copy") ? "Copied." : "Marked: copy it with Ctrl+C.";
    }
}

/** Runs what a button does, and tells how it failed. */
export async function attempt(action) {
    try {
        const result = await action();
        return result;
    } catch (error) {
        if (error.name !== "AbortError" && error.status !== 401) // then the page asks for a token
            tell(error.message, true);
        return undefined;
    }
}

/** What is done in quick succession is done once, `ms` after the last time. */
export function later(ms, action) {
    let timer;
    const run = (...args) => {
        clearTimeout(timer);
        timer = setTimeout(action, ms, ...args);
    };
    run.cancel = () => clearTimeout(timer);
    return run;
}
