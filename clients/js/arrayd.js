/**
 * arrayd.js: arrays that live in an arrayd daemon, from a browser, Node, Deno or Bun. One ES module over
 * `fetch` and other web types. A method makes the request that its comment names and nothing behind one's
 * back: nothing is retried but a job's events, nothing cached. arrayd.d.ts beside it says all of it with
 * types, README.md tells how it is used.
 *
 * Failures: a reply that is an error is thrown as ArraydError; what fetch throws (TypeError where there
 * is no connection or it is cut, the signal's reason where one was aborted) comes as it is.
 * Numbers: a number is a float64 and a bigint an int64 wherever nothing else says of which type they
 * are; 64-bit integers come back as bigints, and are exact both ways.
 */

/* ---- Types of elements and their bytes ------------------------------------------------------ */

/** What holds the elements of each type; complex numbers are pairs, re before im. */
const HOLDERS = {
    int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
    uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
    float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array,
    bfloat16: Uint16Array, complex64: Float32Array, complex128: Float64Array, bool: Uint8Array,
};

/** The type of a typed array's elements where no `dtype` is given: the first that it holds. */
const NATURAL = { Uint8ClampedArray: "uint8" };
for (const [dtype, { name }] of Object.entries(HOLDERS))
    NATURAL[name] ??= dtype;

/** What else a type takes than its holder. */
const ALSO = { uint8: "Uint8ClampedArray", float16: "Uint16Array" };

const itemsize = dtype => HOLDERS[dtype].BYTES_PER_ELEMENT * (dtype.startsWith("complex") ? 2 : 1);
/** The kind of an object by name, so that those of other frames and contexts count, too. */
const tagOf = data => (data === null || data === undefined ? "" : data[Symbol.toStringTag] ?? "");
const isBuffer = data => /^(Shared)?ArrayBuffer$/.test(tagOf(data));
const isBinary = data => ArrayBuffer.isView(data) || isBuffer(data);

/** The bytes of a typed array's own part of its buffer; ArrayBuffer and DataView hold any type. */
function bytesOf(data, dtype) {
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
function fromNpy(buffer) {
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

const MARK = `int-${Math.random().toString(36).slice(2)}:`; // of strings that stand for raw text
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;

/** JSON.parse, but that integers beyond ±(2^53 - 1) become bigints. */
function parse(text) {
    if (!/\d{16}/.test(text))
        return JSON.parse(text);
    const isLarge = t => /^-?\d{16,}$/.test(t) && !Number.isSafeInteger(Number(t));
    const marked = text.replace(TOKENS, t => (isLarge(t) ? `"${MARK}${t}"` : t));
    return JSON.parse(marked, (_, v) => (v?.startsWith?.(MARK) ? BigInt(v.slice(MARK.length)) : v));
}

/** JSON.stringify, but for bigints, typed arrays, NaN, infinities and -0. */
function stringify(value) {
    let marks = 0;
    const raw = text => (marks++, MARK + text);
    const text = JSON.stringify(value, function (key, v) {
        if (typeof v === "bigint") {
            const exact = isSafe(v) || Array.isArray(this) || key === "" || key === "data";
            return exact ? raw(v) : String(v); // beyond ±2^53 the daemon takes numbers in data alone
        }
        if (typeof v === "number" && (!Number.isFinite(v) || Object.is(v, -0)))
            return v === 0 ? raw("-0.0") : String(v);
        return v instanceof RemoteArray ? v.id : ArrayBuffer.isView(v) ? Array.from(v) : v;
    });
    return marks ? text.replace(new RegExp(`"${MARK}([^"]*)"`, "g"), "$1") : text;
}

const freshSeed = () => // Node 18 has no global crypto
    globalThis.crypto?.getRandomValues(new BigUint64Array(1))[0] ?? Math.floor(Math.random() * 2 ** 53);
const isSafe = v => BigInt.asIntN(54, v) === v && v !== -(2n ** 53n);
const mapValues = (object, f) => Object.fromEntries(Object.entries(object).map(([k, v]) => [k, f(v)]));
const defined = object => Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined));
const nested = (x, f) => (Array.isArray(x) ? x.map(y => nested(y, f)) : f(x));

/** Bits and least exponent of the significands of float types. */
const PRECISION = { float16: [11, -14], bfloat16: [8, -126], float32: [24, -126], complex64: [24, -126],
    float64: [53, -1022], complex128: [53, -1022] };

/** A value or nested lists of a reply as its type's: bigints for 64 bits, and the very elements of narrow floats. */
function typed(value, dtype) {
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
const numberType = data => (Array.isArray(data) || ArrayBuffer.isView(data) ? numberType(data[0]) : typeof data === "number" ? "float64" : undefined);

/* ---- Errors --------------------------------------------------------------------------------- */

/** A reply that is an error, or what ended a job; members that do not apply are undefined. */
export class ArraydError extends Error {
    constructor({ status, code, detail, pointer, offset }, { requestId, retryAfter, body } = {}) {
        const place = [pointer, offset === undefined ? "" : `character ${offset}`].filter(Boolean).join(", ");
        super(place ? `${detail} (${place})` : detail);
        const found = pointer?.slice(1).split("/").reduce((node, step) => node?.[step], body);
        const source = typeof found === "string" ? found : undefined;
        this.name = "ArraydError";
        Object.assign(this, { status, code, detail, pointer, offset, source, requestId, retryAfter });
    }
}

async function errorOf(response, body) {
    const text = await response.text();
    const header = name => response.headers.get(name) ?? undefined;
    const { status } = response;
    const unknown = { status, code: "http_error", detail: text.slice(0, 500) || `HTTP status ${status}` }; // a proxy's
    const problem = /\bproblem\+json\b/.test(header("Content-Type")) ? parse(text) : unknown;
    const retryAfter = /^\d+$/.test(header("Retry-After")) ? Number(header("Retry-After")) : undefined;
    return new ArraydError(problem, { requestId: header("X-Request-Id"), retryAfter, body });
}

/* ---- Expressions ---------------------------------------------------------------------------- */

/** What expr`…` makes: the text of an expression with values in it, which become bound names. */
export class Expression {
    constructor(strings, values) { Object.assign(this, { strings, values }); }
}

/** A tagged template of infix text, expr`where(${a} > 0, ${a}, ${k})`: values are bound, never pasted as text. */
export const expr = (strings, ...values) => new Expression(strings, values);

/** What `bind` says of a value. A number is weak: it takes the type of the array beside it. */
function bound(v) {
    if (v instanceof RemoteArray)
        return v.id;
    if (["string", "number", "bigint", "boolean"].includes(typeof v) || v?.op === "const"
        || (Array.isArray(v) && v.length === 2))
        return v;
    throw new TypeError(`neither an array nor a number: ${v}`);
}

/** A request's members with its Expressions, wherever they are, written as text that `bind` goes with. */
function written({ bind, ...members }) {
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
function evaluation(e, { let: shared, ...options } = {}) {
    const pairs = shared && !Array.isArray(shared) ? Object.entries(shared) : shared;
    return written({ ...options, let: pairs, [typeof e === "string" || e instanceof Expression ? "expr" : "tree"]: e });
}

/* ---- The client ----------------------------------------------------------------------------- */

const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
const inPath = name => encodeURIComponent(name).replaceAll("%40", "@"); // the daemon takes no escapes in paths
const asShape = shape => (typeof shape === "number" ? [shape] : shape);
const refOf = array => {
    const ref = array instanceof RemoteArray ? array.id : array;
    if (typeof ref !== "string" || ref === "")
        throw new TypeError("an array is named by its name or id, or by what stands for it");
    return encodeURIComponent(ref);
};

/** Parts options: [what is of the request, what is of its body]. */
const split = ({ signal, wait, ...rest } = {}) => [{ signal, wait }, rest];

/** A client of the daemon at `url`; makes no request. options: `token`, `session`, `headers`, `fetch`. */
export function connect(url = "http://127.0.0.1:7411", options = {}) {
    if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1)
        throw new Error("arrayd.js hands out bytes as they come, little-endian, which this machine is not");
    return new Client(url, options);
}

const settings = new WeakMap(); // of each client, which itself shows no token where it is logged or made JSON of
/** A session of a daemon, and all that is done in it. */
export class Client {
    constructor(url, { token, session, headers = {}, fetch = globalThis.fetch } = {}) {
        this.url = String(url).replace(/\/+$/, "");
        this.session = session ?? "default";
        settings.set(this, { token, session, headers, fetch });
        this.fetch = (...args) => fetch(...args); // a browser's fetch must not be called as a method
    }
    /** The same client but for these options: with({ session }), with({ headers }). */
    with(options) { return new Client(this.url, { ...settings.get(this), ...options }); }
    /** Any request below /v1: its Response. `body` is sent as JSON, `bytes` as they are. */
    async request(method, path, { query = {}, body, bytes, accept = "application/json", headers, signal, wait } = {}) {
        const { token, session, headers: always } = settings.get(this);
        const content = bytes ?? (body === undefined ? undefined : stringify(body));
        const sent = defined({
            Accept: accept,
            Authorization: token === undefined ? undefined : `Bearer ${token}`,
            "Arrayd-Session": session,
            Prefer: wait === undefined ? undefined : `wait=${Math.ceil(wait)}`,
            "Content-Type": bytes ? "application/octet-stream" : content && "application/json",
            ...always, ...headers,
        });
        const search = new URLSearchParams(defined(query)).toString();
        const address = `${this.url}/v1${path}${search && `?${search}`}`;
        const response = await this.fetch(address, { method, headers: sent, body: content, signal });
        if (!response.ok)
            throw await errorOf(response, body);
        return response;
    }
    /** The same for a reply in JSON, which is returned; undefined where it is empty. */
    async json(method, path, options) {
        const text = await (await this.request(method, path, options)).text();
        return text ? parse(text) : undefined;
    }
    /** Sends what of the options is the API's as the body, with further members. */
    send(method, path, options, members) {
        const [request, body] = split(options);
        return this.json(method, path, { ...request, body: { ...body, ...members } });
    }
    /** All members of a list, page by page, each as `make` makes it; `path` is the list's where it is not named as its member is. */
    async *pages(key, { limit, ...options } = {}, make = meta => meta, path = `/${key}`) {
        let after;
        do {
            const page = await this.json("GET", path, { ...options, query: { limit, after } });
            for (const meta of page[key])
                yield make(meta);
            after = page.next;
        } while (after !== undefined);
    }
    /** GET /v1/info. */
    info(options) { return this.json("GET", "/info", options); }

    /** POST /v1/sessions: options `name`, `ttl_s` (seconds), `memory_limit` (bytes), `device`. */
    async createSession(options) { return new Session(this, await this.send("POST", "/sessions", options)); }
    /** GET /v1/sessions: what the daemon says of each. */
    sessions(options) { return this.pages("sessions", options); }
    /** POST …/sync: resolves, to what the daemon says of the session, when all work sent so far is done. */
    sync(options) { return this.json("POST", `/sessions/${this.session}/sync`, options); }

    /** POST /v1/arrays, or with `replace` PUT /v1/arrays/{name}: members as the API has them. */
    async create({ replace, name, ...options }) {
        return new RemoteArray(this, replace ? await this.send("PUT", `/arrays/${refOf(name)}`, options)
            : await this.send("POST", "/arrays", options, { name }));
    }

    /** Of a typed array or buffer (only with `shape`, `dtype`, `name`, `replace`, `location`, labels), nested lists, or one number. */
    async array(data, { replace, shape, dtype, name, ...options } = {}) {
        if (!isBinary(data))
            return this.create({ ...options, replace, name, data, shape: asShape(shape), dtype: dtype ?? numberType(data) });
        const [request, { location, dims, units, attrs, coords, ...other }] = split(options);
        if (Object.keys(other).length)
            throw new TypeError(`an array of bytes takes no ${Object.keys(other)}: make it with zeros(), then put()`);
        const bytes = bytesOf(data, dtype ??= NATURAL[tagOf(data)]);
        const [method, path] = replace ? ["PUT", `/arrays/${refOf(name)}`] : ["POST", "/arrays"];
        const query = { dtype, location, shape: String(asShape(shape) ?? bytes.length / itemsize(dtype)), name: replace ? undefined : name,
            dims: dims?.join(), units: units ?? undefined, ...mapValues({ attrs, coords }, v => (v ? stringify(v) : undefined)) };
        return new RemoteArray(this, await this.json(method, path, { ...request, bytes, query }));
    }

    /** Zeros, float64 unless `dtype` says otherwise. */
    zeros(shape, options) { return this.create({ ...options, shape: asShape(shape) }); }
    /** One value everywhere; complex ones are [re, im]. */
    full(shape, value, options) {
        const dtype = options?.dtype ?? (Array.isArray(value) ? "complex128" : numberType(value));
        return this.create({ ...options, dtype, shape: asShape(shape), fill: value });
    }
    /** start, start + step, … before stop. */
    arange(start, stop, step = 1, options = {}) {
        return this.create({ ...options, dtype: options.dtype ?? numberType(start), arange: { start, stop, step } });
    }
    /** `num` numbers from start to stop; `endpoint: false` leaves the last one out. */
    linspace(start, stop, num, { endpoint, ...options } = {}) { return this.create({ ...options, linspace: { start, stop, num, endpoint } }); }
    /** Ones on diagonal `k` (0) of n rows and `m` (n) columns. */
    eye(n, { m, k, ...options } = {}) { return this.create({ ...options, eye: { n, m, k } }); }
    /** `distribution` uniform (default), normal or integers from `low` below `high`; others each time without `seed`. */
    random(shape, { distribution = "uniform", seed = freshSeed(), low, high, ...options } = {}) {
        return this.create({ ...options, shape: asShape(shape), random: { distribution, seed, low, high } });
    }
    /** Zeros of another's shape, type, ghosts, boundary and spacing. */
    like(array, options) { return this.create({ ...options, like: array }); }

    /** POST /v1/layouts: extents, `padded`, that fit several shapes; option `ghosts`, those of each. */
    layout(shapes, options) { return this.send("POST", "/layouts", options, { shapes }); }

    /** GET /v1/arrays/{ref}: the array of an id, or of a name in this session. */
    async get(ref, options) { return new RemoteArray(this, await this.json("GET", `/arrays/${refOf(ref)}`, options)); }
    /** GET /v1/arrays: the session's arrays in order of creation; `limit` is the size of a page. */
    list(options) { return this.pages("arrays", options, meta => new RemoteArray(this, meta)); }

    #result(reply) {
        return reply.id === undefined ? typed("data" in reply ? reply.data : reply.value, reply.dtype)
            : new RemoteArray(this, reply);
    }

    /** POST /v1/evaluate: infix text, expr`…` or a tree; an array, or the value of a single number. */
    async evaluate(e, options) { return this.#result(await this.send("POST", "/evaluate", evaluation(e, options))); }
    /** evaluate(expr`…`): await c.eval`${a} + 2*${b}`. Called with a text it is evaluate. */
    eval(e, ...more) { return Array.isArray(e) ? this.evaluate(expr(e, ...more)) : this.evaluate(e, ...more); }
    /** The value of a single number, or nested lists of up to 65,536 elements; no array is made. */
    value(e, options) { return this.evaluate(e, { ...options, inline: true }); }
    /** The result itself, however large: { dtype, shape, data: a typed array }; no array is made. */
    async compute(e, options) { return fromNpy(await this.#computed("application/x-npy", e, options)); }
    /** The result as a PNG, an ArrayBuffer; RemoteArray.picture's options beside evaluate's. No array is made. */
    picture(e, { cmap, lo, hi, percentiles, width, height, pool, bar, ...options } = {}) {
        return this.#computed("image/png", e, options, { cmap, lo, hi, percentiles, width, height, pool, bar });
    }
    async #computed(accept, e, options, query) {
        const [request, body] = split(evaluation(e, options));
        return (await this.request("POST", "/evaluate", { ...request, query, accept, body })).arrayBuffer();
    }
    /** POST /v1/evaluate with statements; their results, arrays and values by name. */
    async statements(lines, options) {
        const { results } = await this.send("POST", "/evaluate", written({ ...options, statements: [lines].flat() }));
        return mapValues(results, r => this.#result(r));
    }
    /** POST /v1/explain: what evaluate would do, with the kernels' sources; runs nothing. */
    explain(e, options) { return this.send("POST", "/explain", evaluation(e, options)); }

    /** POST /v1/functions, or with `replace` PUT: an operator of one's own; `e` is infix text or a tree. */
    defineFunction(name, params, e, { replace, ...options } = {}) {
        const body = { params, [typeof e === "string" ? "expr" : "tree"]: e };
        return replace ? this.send("PUT", `/functions/${refOf(name)}`, options, body)
            : this.send("POST", "/functions", options, { name, ...body });
    }
    /** GET /v1/functions. */
    functions(options) { return this.pages("functions", options); }
    /** DELETE /v1/functions/{name}. */
    deleteFunction(name, options) { return this.json("DELETE", `/functions/${refOf(name)}`, options); }

    /** POST /v1/programs: statements that run `steps` times in the daemon, as a job. */
    async start(lines, options) {
        return new Job(this, await this.send("POST", "/programs", written({ ...options, body: [lines].flat() })));
    }
    /** GET /v1/jobs/{id}. */
    job(id, options) { return new Job(this, { id }).refresh(options); }
    /** GET /v1/jobs. */
    jobs(options) { return this.pages("jobs", options, meta => new Job(this, meta)); }
}

/** A session of its own: a Client that can be deleted, by `await using` also. */
export class Session extends Client {
    constructor(client, meta) {
        super(client.url, { ...settings.get(client), session: meta.id });
        Object.assign(this, { id: meta.id, meta });
    }
    /** DELETE /v1/sessions/{id}: releases all its arrays. */
    delete(options) { return this.json("DELETE", `/sessions/${this.id}`, options); }
    [asyncDispose]() { return this.delete(); }
}

/* ---- Arrays --------------------------------------------------------------------------------- */

/** The query of a region: `index` as text ("1:-1, ::2") or integers ([3, 4]), `ghost` for ghost cells; and what else is asked. */
const region = ({ index, ghost, signal, wait, ...asked }) => ({ index: index?.toString(), ghost: ghost ? "1" : undefined, ...asked });

/** A handle of an array in the daemon. `meta` is what it said of it last. */
export class RemoteArray {
    constructor(client, meta) { Object.assign(this, { client, meta }); }

    get id() { return this.meta.id; }
    get name() { return this.meta.name; }
    get dtype() { return this.meta.dtype; }
    get shape() { return this.meta.shape.map(Number); }
    get size() { return Number(this.meta.size); }
    get nbytes() { return Number(this.meta.nbytes); }

    #path(path) { return `/arrays/${this.id}${path}`; }
    #post(path, options, members) { return this.client.send("POST", this.#path(path), options, members); }
    async #update(reply) {
        this.meta = await reply;
        return this;
    }

    /** GET /v1/arrays/{ref}: asks for `meta` anew. */
    refresh(options) { return this.#update(this.client.json("GET", this.#path(""), options)); }
    /** PATCH /v1/arrays/{ref}: `name`, `read_only`, `location`, `boundary`, `spacing`, `attrs`, `dims`, `units`, `coords`. */
    patch(changes) { return this.#update(this.client.send("PATCH", this.#path(""), changes)); }
    /** POST …/resize: new memory, zeroed, where the number of elements changes. */
    resize(shape, options) { return this.#update(this.#post("/resize", options, { shape: asShape(shape) })); }
    /** POST …/swap: exchanges the memory with a like array. */
    swap(other, options) { return this.#update(this.#post("/swap", options, { with: other })); }
    /** POST …/fill_ghost: fills the ghost cells from the boundary. */
    fillGhost(options) { return this.#update(this.client.json("POST", this.#path("/fill_ghost"), options)); }
    /** POST …/lease: exclusive use or, with `mode: "read"`, no changes, for `ttl_s` seconds. */
    async lease({ mode = "write", ...options } = {}) { return new Lease(this, await this.#post("/lease", options, { mode })); }
    /** POST …/shares: lets another account use it, to read or, with `access: "write"`, to write. */
    share(principal, { access = "read", ...options } = {}) { return this.#post("/shares", options, { principal, access }); }
    /** GET …/shares. */
    async shares(options) { return (await this.client.json("GET", this.#path("/shares"), options)).shares; }
    /** DELETE …/shares/{principal}. */
    unshare(account, options) { return this.client.json("DELETE", this.#path(`/shares/${inPath(account)}`), options); }
    /** DELETE /v1/arrays/{ref}: releases this handle; views of it keep the memory. */
    delete(options) { return this.client.json("DELETE", this.#path(""), options); }
    [asyncDispose]() { return this.delete(); }
    /** POST …/views: an index as text, or `index`, `permute`, `reshape`, `broadcast_to`, `dtype`, `name`, `ghost`. */
    async view(steps = {}) { return new RemoteArray(this.client, await this.#post("/views", typeof steps === "string" ? { index: steps } : steps)); }
    /** POST …/copy: a deep copy; option `name`. */
    async copy(options) { return new RemoteArray(this.client, await this.#post("/copy", options)); }

    /** GET …/data: the Response; `index`, `ghost`, `start` and `end` (bytes), `accept`, `headers`. */
    read({ start, end, method = "GET", accept = "application/octet-stream", headers, ...options } = {}) {
        const whole = start === undefined && end === undefined;
        const Range = whole ? undefined : `bytes=${start ?? 0}-${end === undefined ? "" : end - 1}`;
        return this.client.request(method, this.#path("/data"),
            { ...split(options)[0], query: region(options), accept, headers: { ...headers, Range } });
    }
    /** The elements, or those of a region (`index`, `ghost`), as a typed array in C order. */
    async data(options) { return new HOLDERS[this.dtype](await (await this.read(options)).arrayBuffer()); }
    /** The same as nested lists: numbers, bigints for 64-bit integers, booleans, [re, im]. */
    async toList(options) {
        const response = await this.read({ ...options, accept: "application/json" });
        return typed(parse(await response.text()), this.dtype);
    }
    /** One element: a.item(3, 4). */
    item(...index) { return this.toList(index.length ? { index } : {}); }
    /** The bytes as they come, a ReadableStream; `start` and `end` (bytes, end excluded) ask for a range. */
    async stream(options) { return (await this.read(options)).body; }
    /** The array, or a region, as an .npy file: an ArrayBuffer. */
    async npy(options) { return (await this.read({ ...options, accept: "application/x-npy" })).arrayBuffer(); }
    /** Two axes of it, or of a region, as a PNG, an ArrayBuffer: `cmap`, `lo`, `hi`, `percentiles`, `width`, `height`, `pool`, `bar`. */
    async picture(options) { return (await this.read({ ...options, accept: "image/png" })).arrayBuffer(); }
    /** GET …/summary: figures of it or of a region; `bins`, `lo`, `hi`, `percentiles`, `exact`. */
    summary(options = {}) { return this.client.json("GET", this.#path("/summary"), { ...split(options)[0], query: region(options) }); }
    /** The ETag of the bytes as they are now, for put's `ifMatch`. */
    async etag(options) { return (await this.read({ ...options, method: "HEAD" })).headers.get("ETag"); }
    /** PUT …/data: all, or a region (`index`, `ghost`): a typed array of its type, or nested lists or a number. */
    async put(data, { ifMatch, ...options } = {}) {
        const content = isBinary(data) ? { bytes: bytesOf(data, this.dtype) } : { body: data };
        await this.client.request("PUT", this.#path("/data"),
            { ...split(options)[0], ...content, query: region(options), headers: { "If-Match": ifMatch } });
    }
}

/** A lease on an array's memory: `client` sends its token, and `array` is the array as that client uses it. */
export class Lease {
    constructor(array, meta) {
        const { headers } = settings.get(array.client);
        const tokens = [headers["Arrayd-Lease"], meta.token].filter(Boolean).join(", ");
        this.client = array.client.with({ headers: { ...headers, "Arrayd-Lease": tokens } });
        this.array = new RemoteArray(this.client, array.meta);
        Object.assign(this, meta);
    }
    /** POST …/lease: for `ttl_s` seconds from now; `mode` changes it, where it is the only one. */
    async renew({ mode = this.mode, ...options } = {}) {
        return Object.assign(this, await this.client.send("POST", `/arrays/${this.array.id}/lease`, options, { mode }));
    }
    /** DELETE …/lease. */
    end(options) { return this.client.json("DELETE", `/arrays/${this.array.id}/lease`, options); }
    [asyncDispose]() { return this.end(); }
}

/* ---- Jobs ----------------------------------------------------------------------------------- */

/** Events of a text/event-stream: { event, id, data, retry }; one that was cut off is left out. */
async function* serverSentEvents(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    try {
        for (let rest = "", chunk = {}; !chunk.done;) {
            chunk = await reader.read();
            rest += chunk.done ? decoder.decode() : decoder.decode(chunk.value, { stream: true });
            const blocks = rest.replace(/\r\n|\r(?!$)/g, "\n").split("\n\n"); // behind a \r at the end a \n may come
            rest = blocks.pop();
            for (const block of blocks) {
                const event = {};
                for (const [, field, value = ""] of block.matchAll(/^([^:\n]+)(?:: ?([^\n]*))?$/gm))
                    event[field] = field === "data" && "data" in event ? `${event.data}\n${value}` : value;
                if ("data" in event)
                    yield event;
            }
        }
    } finally {
        reader.cancel().catch(() => {}); // a caller that stops reading closes the connection
    }
}

const sleep = (ms, signal) => new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
});

/** Values that a job recorded: NaN and infinities come as text. */
function withRecords(meta) {
    const number = v => (typeof v === "string" ? Number(v) : v);
    return meta.records ? { ...meta, records: mapValues(meta.records, list => list.map(number)) } : meta;
}

/** A program that runs in the daemon, independently of the client's connection. */
export class Job {
    constructor(client, meta) { Object.assign(this, { client, meta: withRecords(meta) }); }

    get id() { return this.meta.id; }
    get state() { return this.meta.state; }
    get step() { return this.meta.step; }
    get ended() { return ["done", "failed", "cancelled"].includes(this.state); }
    get records() { return this.meta.records ?? {}; }
    get error() { return this.meta.error && new ArraydError(this.meta.error); }

    async #update(method, path, options) {
        const meta = await this.client.json(method, `/jobs/${this.id}${path}`, options);
        this.meta = meta ? withRecords(meta) : this.meta;
        return this;
    }

    /** GET /v1/jobs/{id}: asks for `meta` anew. */
    refresh(options) { return this.#update("GET", "", options); }
    /** Resolves when it is done or cancelled, rejects where it failed; an abort ends the waiting alone. */
    async wait({ signal } = {}) {
        do
            await this.#update("GET", "", { signal, query: { wait: 1 }, wait: 30 });
        while (!this.ended);
        if (this.state === "failed")
            throw this.error;
        return this;
    }
    /** Stops it between two steps; one that has ended is left alone. Its arrays stay as they are then. */
    async cancel(options) {
        await this.refresh(options);
        return this.ended ? this : this.#update("DELETE", "", options);
    }
    /** POST …/resume: goes on with the steps that are left. */
    resume(options) { return this.#update("POST", "/resume", options); }
    /** Cancels it where it runs, and gives back what the daemon keeps of it. */
    async forget(options) {
        await this.cancel(options);
        await this.client.json("DELETE", `/jobs/${this.id}`, options);
    }

    /** GET …/events: `meta` as the job goes on, to its end; goes on behind the last event where it is cut. */
    async *events({ signal, retries = 5 } = {}) {
        let last, pause = 1000;
        for (let failures = 0, failure; ; failures++) {
            if (failures > retries)
                throw failure;
            if (failure) // after any cut, however much came before it
                await sleep((failure.retryAfter ?? 0) * 1000 || pause, signal);
            failure = new TypeError("the events were cut off");
            try {
                const response = await this.client.request("GET", `/jobs/${this.id}/events`,
                    { accept: "text/event-stream", headers: { "Last-Event-ID": last }, signal });
                if (response.status === 204)
                    return;
                for await (const { event, id, retry, data } of serverSentEvents(response.body)) {
                    this.meta = withRecords(parse(data));
                    last = id ?? last;
                    pause = retry === undefined ? pause : Number(retry);
                    yield this.meta;
                    if (event === "end")
                        return;
                    failures = -1;
                }
            } catch (e) {
                signal?.throwIfAborted(); // older engines throw something else
                if (e instanceof ArraydError && e.status < 500)
                    throw e;
                failure = e;
            }
        }
    }

    [Symbol.asyncIterator]() { return this.events(); }
}
