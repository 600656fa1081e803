/**
 * values.js: elements and numbers, and how they are read and written: types and the typed arrays that hold them, .npy files, JSON with
 * exact integers. What of it is the user's is in arrayd.js.
 */

/* ---- Types of elements and their bytes ------------------------------------------------------ */

/** What holds the elements of each type; complex numbers are pairs, re before im. */
export const HOLDERS = {
    int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
    uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
    float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array,
    bfloat16: Uint16Array, complex64: Float32Array, complex128: Float64Array, bool: Uint8Array,
};

/** The type of a typed array's elements where no `dtype` is given: the first that it holds. */
export const NATURAL = { Uint8ClampedArray: "uint8" };
for (const [dtype, { name }] of Object.entries(HOLDERS))
    NATURAL[name] ??= dtype;

/** What else a type takes than its holder. */
const ALSO = { uint8: "Uint8ClampedArray", float16: "Uint16Array" };

export const itemsize = dtype => HOLDERS[dtype].BYTES_PER_ELEMENT * (dtype.startsWith("complex") ? 2 : 1);
/** The kind of an object by name, so that those of other frames and contexts count, too. */
export const tagOf = data => (data === null || data === undefined ? "" : data[Symbol.toStringTag] ?? "");
const isBuffer = data => /^(Shared)?ArrayBuffer$/.test(tagOf(data));
export const isBinary = data => ArrayBuffer.isView(data) || isBuffer(data);

/** The bytes of a typed array's own part of its buffer; ArrayBuffer and DataView hold any type. */
export function bytesOf(data, dtype) {
    const tag = tagOf(data);
    if (!Object.hasOwn(HOLDERS, dtype ?? ""))
        throw new TypeError(dtype === undefined ? `${tag} needs a dtype` : `there is no dtype ${dtype}`);
    if (tag in NATURAL && tag !== HOLDERS[dtype].name && tag !== ALSO[dtype])
        throw new TypeError(`${dtype} is not held by ${tag}, but by ${HOLDERS[dtype].name}`);
    const bytes = isBuffer(data) ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    return tagOf(bytes.buffer) === "SharedArrayBuffer" ? bytes.slice() : bytes; // fetch takes no shared memory
}

const DESCR = { b1: "bool", V2: "bfloat16", c8: "complex64", c16: "complex128" };
const KINDS = { i: "int", u: "uint", f: "float" };

/** The array in an .npy file of the daemon's: little-endian and in C order, as it writes them. */
export function fromNpy(buffer) {
    const view = new DataView(buffer);
    const wide = view.getUint8(6) > 1;
    const start = (wide ? 12 : 10) + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
    const head = new TextDecoder().decode(new Uint8Array(buffer, 0, start));
    const descr = /'descr': '.(\w+)'/.exec(head)[1];
    const dtype = DESCR[descr] ?? KINDS[descr[0]] + 8 * Number(descr.slice(1));
    const shape = /'shape': \(([^)]*)\)/.exec(head)[1].split(",").filter(s => s.trim()).map(Number);
    return { dtype, shape, data: new HOLDERS[dtype](buffer, start) }; // the header's length keeps it aligned
}

/* ---- JSON that keeps integers --------------------------------------------------------------- */

/** An ArrayBuffer of base64. */
export function fromBase64(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++)
        bytes[k] = raw.charCodeAt(k);
    return bytes.buffer;
}

/** What stands for something in the daemon, and goes into requests as its id. */
export class Handle {
    constructor(client, meta) { Object.assign(this, { client, meta }); }
    get id() { return this.meta.id; }
}

const MARK = `int-${Math.random().toString(36).slice(2)}:`; // of strings that stand for raw text
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;

/** JSON.parse, but that integers beyond ±(2^53 - 1) become bigints. */
export function parse(text) {
    if (!/\d{16}/.test(text))
        return JSON.parse(text);
    const isLarge = t => /^-?\d{16,}$/.test(t) && !Number.isSafeInteger(Number(t));
    const marked = text.replace(TOKENS, t => (isLarge(t) ? `"${MARK}${t}"` : t));
    return JSON.parse(marked, (_, v) => (v?.startsWith?.(MARK) ? BigInt(v.slice(MARK.length)) : v));
}

/** JSON.stringify, but for bigints, typed arrays, NaN, infinities and -0. */
export function stringify(value) {
    let marks = 0;
    const raw = text => (marks++, MARK + text);
    const text = JSON.stringify(value, function (key, v) {
        if (typeof v === "bigint") {
            const exact = isSafe(v) || Array.isArray(this) || key === "" || key === "data";
            return exact ? raw(v) : String(v); // beyond ±2^53 the daemon takes numbers in data alone
        }
        if (typeof v === "number" && (!Number.isFinite(v) || Object.is(v, -0)))
            return v === 0 ? raw("-0.0") : String(v);
        return v instanceof Handle ? v.id : ArrayBuffer.isView(v) ? Array.from(v) : v;
    });
    return marks ? text.replace(new RegExp(`"${MARK}([^"]*)"`, "g"), "$1") : text;
}

export const freshSeed = () => // Node 18 has no global crypto
    globalThis.crypto?.getRandomValues(new BigUint64Array(1))[0] ?? Math.floor(Math.random() * 2 ** 53);
const isSafe = v => BigInt.asIntN(54, v) === v && v !== -(2n ** 53n);
export const mapValues = (object, f) => Object.fromEntries(Object.entries(object).map(([k, v]) => [k, f(v)]));
export const defined = object => Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined));
const nested = (x, f) => (Array.isArray(x) ? x.map(y => nested(y, f)) : f(x));

/** Bits and least exponent of the significands of float types. */
const PRECISION = { float16: [11, -14], bfloat16: [8, -126], float32: [24, -126], complex64: [24, -126],
    float64: [53, -1022], complex128: [53, -1022] };

/** A value or nested lists of a reply as its type's: bigints for 64 bits, and the very elements of narrow floats. */
export function typed(value, dtype) {
    if (dtype === "int64" || dtype === "uint64")
        return nested(value, BigInt);
    const [bits, least] = PRECISION[dtype] ?? [];
    const element = text => { // the shortest decimal that is nearest to it, or "NaN", "Infinity"
        const x = Number(text);
        const last = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(x))), least) + 1 - bits);
        const beyond = 1.5 * 2 ** 52 * last; // where a float64 ends with the last bit, and ties go to even
        return bits === 53 || !Number.isFinite(x) || x === 0 ? x : x + beyond - beyond;
    };
    return bits ? nested(value, element) : value;
}

/** The dtype of numbers that were given without one: float64, but of bigints and booleans. */
export const numberType = data => (Array.isArray(data) || ArrayBuffer.isView(data) ? numberType(data[0]) : typeof data === "number" ? "float64" : undefined);
