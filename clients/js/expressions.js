/** expressions.js: expressions with values in them, as the bodies of requests. */
import { Handle, mapValues, stringify } from "./values.js";

/** What expr`…` makes: the text of an expression with values in it, which become bound names. */
export class Expression {
    constructor(strings, values) { Object.assign(this, { strings, values }); }
}

/** A tagged template of infix text, expr`where(${a} > 0, ${a}, ${k})`: values are bound, never pasted as text. */
export const expr = (strings, ...values) => new Expression(strings, values);

/** What `bind` says of a value. A number is weak: it takes the type of the array beside it. */
function bound(v) {
    if (v instanceof Handle)
        return v.id;
    if (["string", "number", "bigint", "boolean"].includes(typeof v) || v?.op === "const"
        || (Array.isArray(v) && v.length === 2))
        return v;
    throw new TypeError(`neither an array nor a number: ${v}`);
}

/** A request's members with its Expressions, wherever they are, written as text that `bind` goes with. */
export function written({ bind, ...members }) {
    const bindings = mapValues(bind ?? {}, bound);
    const keyOf = v => typeof v + stringify(v);
    const names = new Map(Object.entries(bindings).map(([name, v]) => [keyOf(v), name])); // each is bound once
    const everything = stringify([bindings, members]);
    let prefix = "_v";
    while (everything.includes(prefix))
        prefix = `_${prefix}`;
    const nameOf = v => {
        const name = names.get(keyOf(bound(v))) ?? prefix + names.size;
        names.set(keyOf(bound(v)), name);
        bindings[name] = bound(v);
        return name;
    };
    const textOf = ({ strings, values }) => strings.reduce((text, s, i) => {
        const v = values[i - 1];
        return text + (v instanceof Expression ? `(${textOf(v)})` : nameOf(v)) + s;
    });
    const write = x => (x instanceof Expression ? textOf(x) : Array.isArray(x) ? x.map(write)
        : x?.constructor === Object ? mapValues(x, write) : x);
    return { ...write(members), bind: Object.keys(bindings).length ? bindings : undefined };
}

/** The body of an evaluation: infix text or an Expression in `expr`, anything else is a `tree`. */
export function evaluation(e, { let: shared, ...options } = {}) {
    const pairs = shared && !Array.isArray(shared) ? Object.entries(shared) : shared;
    return written({ ...options, let: pairs, [typeof e === "string" || e instanceof Expression ? "expr" : "tree"]: e });
}
