/**
 * table.js: a table that is searched and sorted in the browser, and refreshed without losing the place or the focus.
 * More rows than anyone reads are not made; a button makes more.
 */
import { button, count, el, renew } from "./dom.js";

const AT_ONCE = 200;

/** A shape as people write it: 3 × 4, 3x4, 3*4, "3, 4", (3, 4), [3, 4], (3,). */
const SHAPE = /(?<![\w.])(?:[([]\s*\d+\s*,?\s*[)\]]|[([]?\s*\d+(?:\s*[×x*,]\s*\d+)+\s*,?\s*[)\]]?)(?![\w.])/gi;

/**
 * A column is { title, text(item) } or { title, node(item) }, with `sort(item)` (a number or a string; none: not sorted by),
 * `right` (numbers) and `kind` (a class). A node is made anew where `key(item)`, without one the item, has changed: a button
 * that is made anew while it is pressed is not clicked. `id(item)` tells rows apart, `words(item)` is what is searched,
 * and `shape(item)`, where there is one, is compared with shapes that are looked for.
 */
export function table({ label, columns, id, words, shape, sort, down = false, empty }) {
    let items = [], shown = AT_ONCE, by = sort, isDown = down, isWhole = true;
    const rows = new Map();
    const search = el("input", { type: "search", "aria-label": `Search ${label}`, placeholder: "Search", on: { input: () => { shown = AT_ONCE; draw(); } } });
    const said = el("span", { class: "soft", role: "status" });
    const more = button("Show more", () => { shown += 5 * AT_ONCE; draw(); });
    const body = el("tbody");
    const heads = columns.map((column, i) => {
        const head = el("th", { scope: "col", class: column.right ? "right" : false });
        if (column.sort)
            head.append(button(column.title, () => {
                isDown = by === i ? !isDown : Boolean(column.right);
                by = i;
                draw();
            }));
        else if (column.title)
            head.textContent = column.title;
        else
            head.append(el("span", { class: "visually-hidden", text: "Actions" }));
        return head;
    });
    const nothing = el("p", { class: "empty", hidden: true });

    function make(item) {
        const cells = columns.map((column, i) => el(i ? "td" : "th",
            { scope: i ? false : "row", class: [column.right ? "right" : "", column.kind ?? ""].join(" ").trim() }));
        return { row: el("tr", {}, cells), cells, keys: [] };
    }

    function fill(entry, item) {
        columns.forEach((column, i) => {
            const cell = entry.cells[i];
            if (column.node) {
                const key = column.key ? column.key(item) : JSON.stringify(item);
                if (entry.keys[i] !== key)
                    renew(cell, column.node(item));
                entry.keys[i] = key;
                return;
            }
            const text = column.text(item);
            if (cell.textContent !== text)
                cell.textContent = text;
            if (column.kind === "name")
                cell.title = text;
        });
    }

    function draw() {
        const shapes = shape ? search.value.match(SHAPE) ?? [] : [];
        const wanted = (shape ? search.value.replace(SHAPE, " ") : search.value).toLowerCase().split(/\s+/).filter(Boolean);
        const found = items.filter(item => {
            const text = wanted.length || shapes.length ? words(item).toLowerCase() : "";
            return wanted.every(w => text.includes(w)) && shapes.every(s => String(s.match(/\d+/g)) === String(shape(item)) || /\dx\d/i.test(s) && text.includes(s.toLowerCase())); // or a name
        });
        if (by !== undefined) {
            const keys = new Map(found.map(item => [item, columns[by].sort(item)]));
            const order = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
            found.sort((a, b) => (isDown ? -1 : 1) * order(keys.get(a), keys.get(b)));
        }
        heads.forEach((head, i) => (i === by ? head.setAttribute("aria-sort", isDown ? "descending" : "ascending")
            : head.removeAttribute("aria-sort")));
        const visible = found.slice(0, shown);
        const keep = new Set(visible.map(id));
        for (const [key, entry] of rows)
            if (!keep.has(key)) {
                entry.row.remove();
                rows.delete(key);
            }
        visible.forEach((item, i) => {
            let entry = rows.get(id(item));
            if (!entry)
                rows.set(id(item), entry = make(item));
            fill(entry, item);
            if (body.children[i] !== entry.row)
                body.insertBefore(entry.row, body.children[i] ?? null);
        });
        more.hidden = found.length <= shown;
        nothing.hidden = found.length > 0;
        nothing.textContent = items.length ? "Nothing of that kind." : isWhole ? empty : "…";
        said.textContent = found.length === items.length ? `${count(items.length)}${isWhole ? "" : " so far"}` : `${count(found.length)} of ${count(items.length)}`;
    }

    return {
        search, said,
        element: el("div", {}, el("div", { class: "wide" }, el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, heads)), body)), nothing, more),
        /** Shows these items; `whole` says whether more will come. */
        set(next, whole = true) {
            items = next;
            isWhole = whole;
            draw();
        },
    };
}
