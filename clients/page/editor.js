/**
 * editor.js: a box for expressions or statements, which completes names and marks a mistake at its place. The marks are in a
 * text behind the box, set in the same letters.
 */
import { el } from "./dom.js";

const MOST = 12;

/** The place in a text of UTF-16 of the daemon's offset, which counts characters. */
const place = (text, offset) => [...text].slice(0, offset).join("").length;

/** `names()` is what can be completed: [{ name, kind, note }]; `run` is called by Ctrl+Enter. */
export function editor({ label, names, run, rows = 3, placeholder = "" }) {
    const box = el("textarea", { rows: String(rows), spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": label, placeholder,
        "aria-autocomplete": "list", "aria-controls": "completions", "aria-describedby": "mistake" });
    const behind = el("div", { class: "behind", "aria-hidden": "true" });
    const choices = el("ul", { class: "choices", id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
    const mistake = el("p", { class: "problem", id: "mistake", role: "alert", hidden: true });
    let found = [], at = 0;

    /** The name before the caret, and where it begins. */
    function word() {
        const before = box.value.slice(0, box.selectionStart);
        const [name] = /[A-Za-z_]\w*$/.exec(before) ?? [""];
        return { name, start: before.length - name.length };
    }

    function close() {
        choices.hidden = true;
        found = [];
        box.removeAttribute("aria-activedescendant");
    }

    function suggest(all = false) {
        const { name, start } = word();
        const low = name.toLowerCase();
        const isInText = /["'\d]\w*$/.test(box.value.slice(0, start)) || /\w/.test(box.value[box.selectionStart] ?? "");
        if (!all && (name === "" || isInText))
            return close();
        const rank = n => (n.name.startsWith(name) ? 0 : n.name.toLowerCase().startsWith(low) ? 1 : 2);
        found = names().filter(n => n.name.toLowerCase().includes(low) && (n.name !== name || all)).sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name)).slice(0, MOST);
        if (found.length === 0 || found.every(n => rank(n) === 2 && name.length < 2))
            return close();
        at = 0;
        choices.replaceChildren(...found.map((n, i) => el("li", { role: "option", id: `completion-${i}`, on: { pointerdown: event => { event.preventDefault(); take(i); } } },
            el("span", { class: "mono", text: n.name }), el("small", { text: [n.kind, n.note].filter(Boolean).join(" ") }))));
        behind.replaceChildren(box.value.slice(0, start), el("span", { class: "caret", text: "\u200b" }), box.value.slice(start));
        const caret = behind.querySelector(".caret");
        choices.style.left = `${Math.max(0, Math.min(caret.offsetLeft, box.clientWidth - 240))}px`;
        choices.style.top = `${caret.offsetTop + 22 - box.scrollTop}px`;
        choices.hidden = false;
        return point(0);
    }

    function point(i) {
        at = (i + found.length) % found.length;
        [...choices.children].forEach((c, k) => c.setAttribute("aria-selected", String(k === at)));
        choices.children[at].scrollIntoView({ block: "nearest" });
        box.setAttribute("aria-activedescendant", `completion-${at}`);
    }

    function take(i) {
        const { start } = word();
        const { name, isCall } = found[i];
        const follows = box.value[box.selectionStart] === "(";
        box.setRangeText(isCall && !follows ? `${name}(` : name, start, box.selectionStart, "end");
        close();
        plain();
    }

    const plain = () => { behind.textContent = `${box.value}\n`; };
    function clear() {
        mistake.hidden = true;
        box.removeAttribute("aria-invalid");
        plain();
    }

    box.addEventListener("input", () => { clear(); suggest(); });
    box.addEventListener("scroll", () => { behind.scrollTop = box.scrollTop; });
    box.addEventListener("blur", close);
    box.addEventListener("keydown", event => {
        const isOpen = !choices.hidden;
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            close();
            run();
        } else if (event.key === " " && event.ctrlKey)
            suggest(true);
        else if (isOpen && event.key === "ArrowDown")
            point(at + 1);
        else if (isOpen && event.key === "ArrowUp")
            point(at - 1);
        else if (isOpen && (event.key === "Enter" || event.key === "Tab"))
            take(at);
        else if (isOpen && event.key === "Escape")
            close();
        else
            return;
        event.preventDefault();
    });

    return {
        box,
        element: el("div", { class: "editor" }, el("div", { class: "paper" }, behind, box, choices), mistake),
        clear,
        /** Says what is wrong where that is not in the text. */
        say(words) {
            mistake.textContent = words;
            mistake.hidden = false;
        },
        /** Marks a mistake: `from` is where the text that the offset counts in begins. */
        mark(problem, from = 0, length = box.value.length) {
            mistake.textContent = problem.message;
            mistake.hidden = false;
            box.setAttribute("aria-invalid", "true");
            const text = box.value.slice(from, from + length);
            const start = problem.offset === undefined ? 0 : place(text, problem.offset);
            // A word, a number, a sign; at the end of the text, what is missing behind it.
            const [marked] = problem.offset === undefined ? [text] : /^(?:[\w.]+|\S|\s+)/.exec(text.slice(start)) ?? [""];
            behind.replaceChildren(box.value.slice(0, from + start), el("mark", { class: marked ? "" : "missing", text: marked || "\u00a0" }),
                `${box.value.slice(from + start + marked.length)}\n`);
            behind.scrollTop = box.scrollTop;
        },
    };
}
