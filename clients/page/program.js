/**
 * program.js: a program as people write it, the same text as in the files of arrayd-cli: a statement a line, which goes on in the
 * next while a bracket is open; # begins a comment, and lines that begin with @ are about the whole.
 */
import { Problem } from "./api.js";

const NAME = /^[A-Za-z_]\w{0,63}$/;
const COUNTS = ["steps", "record_every", "until_every"];
const FLAGS = ["stop_on_nan", "fast_math"];
const REF = /^(?:[A-Za-z_]\w{0,63}|a-[A-Za-z0-9]+)$/;

/** A line with spaces for its comment, so that places stay, and by how many brackets it opens more than it closes. */
function bare(line) {
    let depth = 0, end = line.length;
    for (const { 0: c, index } of line.matchAll(/'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?|[#()[\]{}]/g)) {
        if (c === "#") {
            end = index;
            break;
        }
        depth += "([{".includes(c) - ")]}".includes(c);
    }
    return { line: line.slice(0, end) + " ".repeat([...line.slice(end)].length), depth };
}

/** A number above 0 without a fraction, or NaN, which the daemon refuses. */
export const whole = text => (/^\d[\d_]*$|^\d+(?:\.\d*)?e\+?\d+$/i.test(text.replaceAll(/\s/g, "")) ? Number(text.replaceAll(/[\s_]/g, "")) : NaN);

/**
 * The members of a program's request that are in a text, and `places`: by their pointer, where they are there.
 * A mistake is thrown with such a place.
 */
export function read(text) {
    const found = { body: [] }, places = new Map();
    const refuse = (place, detail) => { throw Object.assign(new Problem(400, { detail }), { place }); };
    const keep = (pointer, from, to) => {
        const piece = text.slice(from, to);
        const lead = piece.length - piece.trimStart().length;
        places.set(pointer, { from: from + lead, length: piece.trim().length });
    };

    function about(line, from) {
        const [, key, value] = /^\s*@(\w*)\s*(.*?)\s*$/s.exec(line);
        const place = { from, length: line.trimEnd().length };
        const [, name, of] = /^(\w+)\s*=\s*(.+)$/s.exec(value) ?? [];
        const put = (member, what) => {
            if (!NAME.test(name ?? ""))
                refuse(place, `“${value}” is not NAME = ${what}`);
            found[member] ??= {};
            keep(`/${member}/${name}`, from + line.indexOf("=") + 1, from + line.length);
        };
        keep(`/${key}`, from + line.indexOf(key) + key.length, from + line.length);
        if (COUNTS.includes(key))
            found[key] = whole(value) || refuse(place, `“${value}” is not a whole number above 0`);
        else if (FLAGS.includes(key))
            found[key] = value === "" || refuse(place, `@${key} stands alone`);
        else if (key === "until")
            found.until = value || refuse(place, "@until wants an expression");
        else if (key === "record") {
            put("record", "EXPRESSION");
            found.record[name] = of;
        } else if (key === "bind") {
            put("bind", "a number or an array");
            found.bind[name] = of !== "" && Number.isFinite(Number(of)) ? Number(of) : REF.test(of) ? of : refuse(place, `“${of}” is neither a number nor an array`);
        } else if (key === "snapshot") {
            put("snapshot", "STEPS");
            found.snapshot[name] = whole(of) || refuse(place, `“${of}” is not a whole number above 0`);
        } else
            refuse(place, `there is no @${key}: steps, bind, record, record_every, until, until_every, snapshot, stop_on_nan, fast_math`);
    }

    let from = 0, open = null; // the statement whose brackets are open
    for (const raw of text.split("\n")) {
        const { line, depth } = bare(raw);
        if (open || line.trim() && !/^\s*@/.test(line)) {
            open ??= { from, text: "", depth: 0 };
            open.text += `${open.text && "\n"}${line}`;
            open.depth += depth;
        } else if (line.trim())
            about(line, from);
        if (open?.depth <= 0) {
            keep(`/body/${found.body.length}`, open.from, from + line.trimEnd().length);
            found.body.push(open.text.trim());
            open = null;
        }
        from += raw.length + 1;
    }
    if (open)
        refuse({ from: open.from, length: text.length - open.from }, "a bracket is not closed before the end");
    if (!found.body.length)
        refuse({ from: 0, length: text.length }, "there is no statement");
    return { ...found, places };
}
