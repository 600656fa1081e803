/**
 * arrayd.js: arrays that live in an arrayd daemon, from a browser, Node, Deno or Bun. One ES module, with
 * others beside it, over `fetch` and other web types. A method makes the request that its comment names and nothing behind one's
 * back: nothing is retried but events, nothing cached. arrayd.d.ts beside it says all of it with
 * types, README.md tells how it is used.
 *
 * Failures: a reply that is an error is thrown as ArraydError; what fetch throws (TypeError where there
 * is no connection or it is cut, the signal's reason where one was aborted) comes as it is.
 * Numbers: a number is a float64 and a bigint an int64 wherever nothing else says of which type they
 * are; 64-bit integers come back as bigints, and are exact both ways.
 */
import { RemoteArray } from "./arrays.js";
import { told } from "./events.js";
import { Expression, evaluation, expr, written } from "./expressions.js";
import { Job } from "./jobs.js";
import { asShape, asyncDispose, errorOf, refOf, settings, split } from "./requests.js";
import { NATURAL, bytesOf, defined, freshSeed, fromNpy, isBinary, itemsize, mapValues, numberType, parse, stringify, tagOf, typed } from "./values.js";

export { Lease, RemoteArray } from "./arrays.js";
export { Expression, expr } from "./expressions.js";
export { Job } from "./jobs.js";
export { ArraydError } from "./requests.js";

/** A client of the daemon at `url`; makes no request. options: `token`, `session`, `headers`, `fetch`. */
export function connect(url = "http://127.0.0.1:7411", options = {}) {
    if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1)
        throw new Error("arrayd.js hands out bytes as they come, little-endian, which this machine is not");
    return new Client(url, options);
}

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
    async *pages(key, { limit, shared, ...options } = {}, make = meta => meta, path = `/${key}`) {
        let after;
        do {
            const page = await this.json("GET", path, { ...options, query: { limit, after, shared } });
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

    /** Of a typed array or buffer (only with `shape`, `dtype`, `name`, `replace`, `location`, `placement`, labels), nested lists, or one number. */
    async array(data, { replace, shape, dtype, name, ...options } = {}) {
        if (!isBinary(data))
            return this.create({ ...options, replace, name, data, shape: asShape(shape), dtype: dtype ?? numberType(data) });
        const [request, { location, placement, dims, units, attrs, coords, ...other }] = split(options);
        if (Object.keys(other).length)
            throw new TypeError(`an array of bytes takes no ${Object.keys(other)}: make it with zeros(), then put()`);
        const bytes = bytesOf(data, dtype ??= NATURAL[tagOf(data)]);
        const [method, path] = replace ? ["PUT", `/arrays/${refOf(name)}`] : ["POST", "/arrays"];
        const query = { dtype, location, shape: String(asShape(shape) ?? bytes.length / itemsize(dtype)), name: replace ? undefined : name,
            placement: placement?.parts.join(), dims: dims?.join(), units: units ?? undefined, ...mapValues({ attrs, coords }, v => (v ? stringify(v) : undefined)) };
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
    /** GET /v1/arrays: the session's arrays in order of creation, or with `shared` those that others share; `limit` is the size of a page. */
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

    /** GET /v1/events: what is new in the lists of the session's arrays and one's jobs, first all there is; `arrays: false`, `jobs: false`, `interval` (seconds). */
    async *changes({ signal, retries, ...query } = {}) {
        for await (const { arrays, jobs, ...more } of told(this, "/events", { signal, retries, query }))
            yield arrays ? { arrays: arrays.map(meta => new RemoteArray(this, meta)), ...more } : { jobs: jobs.map(meta => new Job(this, meta)), ...more };
    }
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
