/** arrays.js: an array of the daemon's, and exclusive use of it. */
import { told } from "./events.js";
import { asShape, asyncDispose, inPath, region, settings, split } from "./requests.js";
import { HOLDERS, Handle, bytesOf, fromBase64, isBinary, parse, typed } from "./values.js";

/** A handle of an array in the daemon. `meta` is what it said of it last. */
export class RemoteArray extends Handle {
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
    /** PATCH /v1/arrays/{ref}: `name`, `replace`, `read_only`, `coordinate`, `location`, `boundary`, `spacing`, `attrs`, `dims`, `units`, `coords`. */
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
    /** GET …/events: `meta`, now and whenever the contents or it have changed, until the array is gone; `interval`: seconds between two, at least. */
    async *changes({ signal, retries, ...query } = {}) {
        for await (const meta of told(this.client, this.#path("/events"), { signal, retries, query })) {
            this.meta = meta;
            yield meta;
        }
    }
    /** The same with pictures, { png, range }: picture's options. */
    async *frames({ retries, ...options } = {}) {
        const query = { ...region(options), frames: true };
        for await (const { png, range } of told(this.client, this.#path("/events"), { signal: options.signal, retries, query }))
            yield { png: fromBase64(png), range };
    }
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
