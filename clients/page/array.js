/** array.js: what stands beside an array's picture: its figures, what is known of it, with whom it is shared, what can be done with it. */
import { ask, get, inPath, mayAct, post, send, state } from "./api.js";
import { attempt, button, bytes, count, digits, el, field, number, question, renew, select, shape, tell } from "./dom.js";
import { makeLink } from "./links.js";

const save = (blob, file) => {
    const url = URL.createObjectURL(blob);
    el("a", { href: url, download: file }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
};

const facts = entries => el("dl", { class: "facts" }, entries.filter(([, value]) => value !== undefined && value !== null && value !== "")
    .flatMap(([term, value]) => [el("dt", { text: term }), el("dd", {}, value instanceof Node ? value : String(value))]));

function known(meta) {
    return facts([
        ["Id", el("span", { class: "mono", text: meta.id })],
        ["Shape", shape(meta.shape)], ["Type", meta.dtype], ["Bytes", meta.nbytes < 1024 ? bytes(meta.nbytes) : `${bytes(meta.nbytes)} (${count(meta.nbytes)})`],
        ["Strides", meta.strides.join(", ")],
        ["Ghost cells", meta.ghost.some(g => g > 0) ? meta.ghost.join(", ") : ""],
        ["Units", meta.units], ["Axes", meta.dims?.filter(Boolean).join(", ")],
        ["Coordinates", Object.keys(meta.coords ?? {}).length ? el("ul", { class: "chips" }, Object.entries(meta.coords).map(([name, c]) =>
            el("li", {}, meta.owner ? name : el("a", { href: `#array/${encodeURIComponent(c.array)}`, text: name }), el("span", { class: "soft", text: c.dims.length ? ` on ${c.dims.join(", ")}` : "" })))) : ""],
        ["Place", meta.location === "host" ? `host, of device ${meta.device}` : `device ${meta.device}`],
        ["View of", meta.view_of && !meta.owner ? el("a", { href: `#array/${meta.view_of}`, text: meta.view_of }) : ""],
        ["Owner", meta.owner],
        ["Session", meta.owner ? "" : el("span", { class: "mono", text: meta.session })], ["Created", new Date(meta.created).toLocaleString("sv")],
        ["Restored from", meta.restored_from ? new Date(meta.restored_from).toLocaleString("sv") : ""],
        ["Access", meta.read_only ? "read-only" : meta.owner ? "read and write" : ""],
    ]);
}

/**
 * The column; `figures`, `histogram` and `picture` take what the picture's view finds out, `meta` shows what `meta` has come to be.
 * `end` ends the view's asking, `changed` is told what the array is after it was changed here.
 */
export function aside(meta, path, signal, { end, changed }) {
    const figures = el("div"), bars = el("div"), about = el("div"), attributes = el("pre", { class: "attrs" });
    const attrs = el("details", {}, el("summary", { text: "Attributes" }), attributes);
    const numbers = el("section", { class: "card" }, el("h2", { text: "Figures" }), bars, figures);
    const sharing = el("div");
    let picture = null, file = "";

    async function change(changes) {
        changed(await ask("PATCH", path, { body: changes, signal }));
    }

    async function shares() {
        const { shares: found } = await get(`${path}/shares`, { signal });
        renew(sharing, found.length === 0 ? el("p", { class: "soft", text: "With nobody." }) : el("ul", { class: "plain" }, found.map(s =>
            el("li", {}, el("span", { text: `${s.principal}, ${s.access}` }), button("Take back", () => attempt(async () => {
                const answer = await question({ title: `Take the share back from ${s.principal}?`, text: "Jobs and leases of theirs on this array end.", act: "Take back", danger: true });
                if (answer)
                    await ask("DELETE", `${path}/shares/${inPath(s.principal)}`, { signal });
                await shares();
            }), { class: "quiet" })))));
    }

    const buttons = el("div", { class: "buttons" });
    const taking = () => [
        button("Save the picture", () => attempt(async () => picture && save(await picture(), `${file}.png`)), { class: meta.shape.length < 2 || meta.size === 0 ? "never" : "" }),
        button("Download .npy", () => attempt(async () => save(await (await send("GET", `${path}/data`, { accept: "application/x-npy", signal })).blob(), `${meta.name ?? meta.id}.npy`))),
        el("a", { class: "button", href: `${path}/data`, download: `${meta.name ?? meta.id}.bin`, text: "Download bytes" })];
    function act() {
        if (meta.owner) // all else is the owner's
            return renew(buttons, ...taking());
        return renew(buttons,
            button("Rename", () => attempt(async () => {
                const input = el("input", { name: "name", value: meta.name ?? "", required: true, pattern: "[A-Za-z_][A-Za-z0-9_]*", maxlength: "64", autofocus: true });
                if (await question({ title: "Rename the array", fields: [field("Name", input)], act: "Rename", perform: change }))
                    tell(`The array is now called ${meta.name}.`);
            })),
            button(meta.read_only ? "Make writable" : "Make read-only", () => attempt(() => change({ read_only: !meta.read_only }))),
            button(meta.location === "host" ? "Move to the device" : "Move to host memory",
                () => attempt(() => change({ location: meta.location === "host" ? "device" : "host" })), { class: state.info.backend === "cpu" ? "never" : "" }),
            button("Share", () => attempt(async () => {
                await question({ title: "Share the array", fields: [field("With", el("input", { name: "principal", required: true, autofocus: true })),
                    field("They may", select([["read", "read it"], ["write", "read and write it"]], "read", () => {}, { name: "access" }))], act: "Share",
                    perform: answer => post(`${path}/shares`, answer, { signal }) });
                await shares();
            })),
            button("Link", () => attempt(() => makeLink({ arrays: [meta.id] }, signal))),
            ...taking(),
            button("Delete", () => attempt(async () => {
                const answer = await question({ title: `Delete ${meta.name ?? meta.id}?`, text: `${shape(meta.shape)} ${meta.dtype}, ${bytes(meta.nbytes)}.`, act: "Delete", danger: true });
                if (!answer)
                    return;
                end();
                try {
                    await ask("DELETE", path);
                } catch (problem) {
                    window.dispatchEvent(new Event("hashchange")); // it is still there: the view begins anew
                    throw problem;
                }
                location.hash = "#arrays";
            }), { class: "danger" }));
    }
    if (mayAct() && !meta.owner)
        attempt(shares);
    return {
        element: el("div", { class: "aside" },
            numbers,
            el("section", { class: "card" }, el("h2", { text: "About it" }), about, attrs),
            mayAct() ? [meta.owner ? null : el("section", { class: "card" }, el("h2", { text: "Shared with" }), sharing),
                el("section", { class: "card" }, el("h2", { text: "Do" }), buttons)] : null),
        histogram(element) { bars.replaceChildren(element); },
        /** `make` makes a file of what is seen; null while nothing is. */
        picture(make, name = "") { [picture, file] = [make, name]; },
        meta() {
            numbers.hidden = meta.size === 0;
            about.replaceChildren(known(meta));
            attrs.hidden = Object.keys(meta.attrs ?? {}).length === 0;
            attributes.textContent = JSON.stringify(meta.attrs ?? {}, null, 1);
            if (mayAct())
                act();
        },
        figures(found) {
            const rare = [["NaN", found.nan], ["Infinity", found.inf], ["−Infinity", found.minus_inf]].filter(([, n]) => n > 0);
            const percent = p => found.percentiles.find(x => x.percent === p);
            const about = p => (percent(p) && percent(p).value !== null ? `${number(percent(p).value, digits(percent(p).value, percent(p).error))} ± ${number(Number(percent(p).error.toPrecision(1)), 1)}` : "");
            figures.replaceChildren(facts([
                ["Least", found.min === null ? "none" : found.exact.min], ["Greatest", found.max === null ? "none" : found.exact.max],
                ["Mean", found.mean === null ? "" : number(found.mean, digits(found.mean, found.std / 1000))], ["Deviation", found.std === null ? "" : number(found.std)],
                ["Median", about(50)], ["1 %", about(1)], ["99 %", about(99)],
                ["Elements", count(found.count)], ...rare.map(([name, n]) => [name, count(n)])]));
        },
    };
}
