/**
 * arrayd.js: arrays that live in an arrayd daemon, from a browser, Node, Deno or Bun.
 *
 * Failures: a reply that is an error is thrown as ArraydError; what fetch throws (TypeError where there
 * is no connection or it is cut, the signal's reason where one was aborted) comes as it is.
 */

/* TypeScript before 5.2 does not know the symbol. */
declare global {
    interface SymbolConstructor {
        readonly asyncDispose: unique symbol;
    }
}

import type { Access, ArrayMeta, Boundary, JobMeta, JobProgram, LayoutMeta, LeaseMeta, Problem, SessionMeta, ShareMeta } from "./meta.js";
import type { Binary, Complex, Dtype, Integer, Lists, PictureOptions, Scalar, Shape, SummaryMeta, TypedArray, Value } from "./types.js";
export type { Access, ArrayMeta, Boundary, Face, JobMeta, LayoutMeta, LeaseMeta, Problem, SessionMeta, ShareMeta } from "./meta.js";
export type { Binary, Complex, Dtype, Integer, Lists, Nested, PictureOptions, Scalar, Shape, SummaryMeta, TypedArray, Value } from "./types.js";

/** An array by its handle, its id, or its name in the session. */
export type Ref = RemoteArray | string;

/** What goes with every request. */
export interface RequestOptions {
    /** Ends the request: it is rejected with the signal's reason. */
    signal?: AbortSignal;
    /** Seconds, rounded up, that the reply may wait for work; then it is 504 `deadline_exceeded`. */
    wait?: number;
}

/** Of streams of events, which go on where they were cut. */
export interface EventOptions {
    /** Ends them: the iteration throws the signal's reason. */
    signal?: AbortSignal;
    /** How often a stream is asked for again without an event in between (5). */
    retries?: number;
    /** Seconds between two, at least; the daemon has a least one of its own. */
    interval?: number;
}

/** Which part of an array is meant. */
export interface Region {
    /** NumPy's basic indexing as text, "1:-1, ::2", or integers of one element, [3, 4]. */
    index?: string | number | readonly number[];
    /** Ghost cells too; an index then begins at the first ghost. */
    ghost?: boolean;
}

export interface ConnectOptions {
    /** Of an account, where the daemon has accounts. */
    token?: string;
    /** A session's id; without it the one named default. */
    session?: string;
    /** Sent with every request, such as Arrayd-Lease. */
    headers?: Record<string, string>;
    /** Instead of the global fetch. */
    fetch?: typeof globalThis.fetch;
}

/** What is said of an array; null removes (docs/arrays.md). */
export interface LabelOptions {
    attrs?: Record<string, unknown> | null;
    /** A name, or null, for each axis. */
    dims?: readonly (string | null)[] | null;
    units?: string | null;
    /** An array alone lies on the axis of its own name. */
    coords?: Record<string, Ref | { array: Ref; dims: readonly string[] } | null> | null;
}

/** Options of everything that makes an array. One of bytes takes a part of them: BytesOptions. */
export interface CreateOptions extends RequestOptions, LabelOptions {
    dtype?: Dtype;
    /** Letters, digits and underscores; 409 `conflict` where it is taken. */
    name?: string;
    /** Replaces the array of that name, or makes it: the new one has another id. */
    replace?: boolean;
    /** Ghost cells of each axis. */
    ghost?: readonly number[];
    boundary?: readonly Boundary[];
    /** Between cells, of each axis. */
    spacing?: readonly number[];
    /** Bytes, a power of two. */
    alignment?: number;
    padded?: readonly number[];
    congruent_to?: Ref;
    /** "host": made, and moved to host memory before the reply. */
    location?: "device" | "host";
    /** On several GPUs as one: [1], whole on the first, or as many as there are along the first axis, and 1 along the others. */
    placement?: { parts: readonly number[] };
}

/** With others `array` throws TypeError: make it with zeros(), then put(). */
export type BytesOptions = RequestOptions & LabelOptions & Pick<CreateOptions, "dtype" | "name" | "replace" | "location" | "placement"> & { shape?: Shape };

/** What is new in the list of arrays, or in that of jobs (docs/data.md). */
export interface Changes {
    /** Those that are new, or of which something else than the contents is. */
    arrays?: RemoteArray[];
    /** Ids of other arrays whose contents are. */
    written?: string[];
    jobs?: Job[];
    /** Ids of those that are no longer there. */
    gone: string[];
    /** It is the first of its list, which begins with all there is: also after the stream was cut. */
    first: boolean;
    /** More of what there is at first is to come. */
    more: boolean;
}

/** A picture, and the values of its first and its last colour. */
export interface Frame {
    png: ArrayBuffer;
    range: [number, number];
}

export interface FunctionMeta {
    name: string;
    params: string[];
    expr?: string;
    tree?: Tree;
    created: string;
}

/** A reply that is an error, or what ended a job. */
export class ArraydError extends Error {
    constructor(problem: Problem, context?: { requestId?: string; retryAfter?: number; body?: unknown });
    /** HTTP's. */
    status: number;
    /** A stable token to test for (docs/errors.md); "http_error" where a proxy answered. */
    code: string;
    /** A sentence for a person; `message` has the place as well. */
    detail: string;
    /** A JSON pointer to the offending part of the request: "/expr", "/body/1", "/shape/0". */
    pointer?: string;
    /** Characters before the mistake in `source`. */
    offset?: number;
    /** The text that `pointer` leads to. */
    source?: string;
    /** Names the request in the daemon's log. */
    requestId?: string;
    /** Seconds after which it may be worth another try (429, 503). */
    retryAfter?: number;
}

/** What expr`…` makes. */
export class Expression {
    constructor(strings: readonly string[], values: readonly Bindable[]);
    readonly strings: readonly string[];
    readonly values: readonly Bindable[];
}

/** An expression as JSON: a number, an array or its name, or an operation (docs/expressions.md). */
export type Tree = number | boolean | string | RemoteArray | TreeNode | Tree[];
export interface TreeNode {
    op: string;
    args?: Tree[];
    [attribute: string]: unknown;
}

/** What a name in an expression may stand for; a string is an array's name or id. */
export type Bound = RemoteArray | string | number | bigint | boolean | Complex | { op: "const"; value: unknown; dtype?: Dtype };
/** What a template may hold. */
export type Bindable = Bound | Expression;
/** Infix text, or a template of it. */
export type Infix = string | Expression;

/**
 * A tagged template of infix text: expr`where(${a} > 0, ${a}, ${k})`. Values are bound, never pasted as
 * text; another expr`…` stands as if in brackets. An array that `bind` names goes by that name. A number is
 * weak, as in `bind`: it takes the type of the array beside it, and 2 is an integer.
 * @throws TypeError, with the request, for what is neither an array nor a number
 */
export function expr(strings: TemplateStringsArray, ...values: Bindable[]): Expression;

export interface BindOptions {
    /** What names in the text stand for; other names are the session's arrays. */
    bind?: Record<string, Bound>;
    /** Allows rounding differently for speed. */
    fast_math?: boolean;
}

export interface EvaluateOptions extends RequestOptions, BindOptions {
    /** Shared subexpressions, in order: [name, expression] or an object. */
    let?: ReadonlyArray<readonly [string, Infix | Tree]> | Record<string, Infix | Tree>;
    /** Casts the result, as astype does. */
    dtype?: Dtype;
    /** Names the result; a taken name is replaced. */
    name?: string;
    /** An array that is written to; the result must broadcast to its shape. */
    out?: Ref;
    /** The region of `out`, as text. */
    index?: string;
}

export interface StatementsOptions extends RequestOptions, BindOptions {
    /** Names whose results to return; by default all assigned names that are not arrays. */
    results?: readonly string[];
}

export interface ProgramOptions extends RequestOptions, BindOptions {
    steps: number;
    /** Numbers to be recorded, by name. */
    record?: Record<string, Infix | Tree>;
    /** Steps (1). */
    record_every?: number;
    /** Copies an array every so many steps. */
    snapshot?: Record<string, number>;
    /** Ends after the first step behind which it is true. */
    until?: Infix | Tree;
    /** Steps (1). */
    until_every?: number;
    /** Fails before the step in which an array that is assigned gets a NaN. */
    stop_on_nan?: boolean;
}

/** A result as it is: `data` as Client.array says of its dtype, in C order. */
export interface Computed {
    dtype: Dtype;
    shape: number[];
    data: TypedArray;
}

/**
 * A client of the daemon at `url` (http://127.0.0.1:7411). Makes no request: `await client.info()` says
 * whether the daemon is there.
 * @throws Error on a machine whose numbers are big-endian
 */
export function connect(url?: string | URL, options?: ConnectOptions): Client;

/** A session of a daemon, and all that is done in it. */
export class Client {
    constructor(url: string | URL, options?: ConnectOptions);
    readonly url: string;
    /** The session's id, or "default". */
    readonly session: string;

    /** The same client but for these options. */
    with(options: ConnectOptions): Client;
    /** Any request below /v1, for what has no method here: its Response. @throws ArraydError */
    request(method: string, path: string, options?: RequestOptions & {
        /** Those that are undefined are left out. */
        query?: Record<string, unknown>;
        /** Sent as JSON: bigints and typed arrays are written out, arrays as their ids. */
        body?: unknown;
        /** Sent as application/octet-stream. */
        bytes?: Uint8Array;
        accept?: string;
        headers?: Record<string, string>;
    }): Promise<Response>;
    /** The same for a reply in JSON, with its integers exact; undefined where it is empty. */
    json(method: string, path: string, options?: Parameters<Client["request"]>[2]): Promise<any>;

    /** Version, backend, devices, memory, limits, dtypes, operations. */
    info(options?: RequestOptions): Promise<Record<string, any>>;

    /** A new session: `ttl_s` in seconds without a request, `memory_limit` in bytes, `device` of several GPUs. */
    createSession(options?: RequestOptions & { name?: string; ttl_s?: number; memory_limit?: Integer; device?: number | "mesh" }): Promise<Session>;
    /** What the daemon says of each session. */
    sessions(options?: RequestOptions & { limit?: number }): AsyncGenerator<SessionMeta, void>;
    /** Resolves when all work sent so far in this session is done. */
    sync(options?: RequestOptions): Promise<SessionMeta>;

    /**
     * An array of these data.
     *
     * Bytes are sent as they are, those of a view alone; `shape` is one axis if left out. The dtype is that
     * of the typed array; with `dtype` a Uint8Array holds bool, a Float32Array complex64 and a Float64Array
     * complex128 (re before im), a Uint16Array the bits of float16 and bfloat16; ArrayBuffer and DataView
     * hold any. Float16Array is float16 where the engine has it.
     *
     * Nested lists, or one number, make float64 of numbers, int64 of bigints, bool of booleans; with `dtype`
     * any other. Complex numbers are [re, im] and need a dtype.
     * @throws TypeError where a typed array does not hold the dtype; ArraydError `length_mismatch`, `conflict`, `quota_exceeded`, …
     */
    array(data: Binary, options?: BytesOptions): Promise<RemoteArray>;
    array(data: Lists, options?: CreateOptions & { shape?: Shape }): Promise<RemoteArray>;
    /** POST /v1/arrays with members as the API has them. */
    create(members: CreateOptions & { shape?: readonly Integer[]; [creator: string]: unknown }): Promise<RemoteArray>;
    /** Zeros, float64 unless `dtype` says otherwise. */
    zeros(shape: Shape, options?: CreateOptions): Promise<RemoteArray>;
    /** One value everywhere: float64 of a number, int64 of a bigint, complex128 of [re, im] unless `dtype` says otherwise. */
    full(shape: Shape, value: Scalar, options?: CreateOptions): Promise<RemoteArray>;
    /** start, start + step, … before stop: float64 of numbers, int64 of bigints. */
    arange(start: number | bigint, stop: number | bigint, step?: number | bigint, options?: CreateOptions): Promise<RemoteArray>;
    /** `num` numbers from start to stop; `endpoint: false` leaves the last one out. */
    linspace(start: number, stop: number, num: number, options?: CreateOptions & { endpoint?: boolean }): Promise<RemoteArray>;
    /** Ones on diagonal `k` (0) of n rows and `m` (n) columns. */
    eye(n: number, options?: CreateOptions & { m?: number; k?: number }): Promise<RemoteArray>;
    /** Philox numbers: uniform in [0, 1), normal, or integers from `low` below `high`; the same for the same `seed`, else others each time. */
    random(shape: Shape, options?: CreateOptions & {
        distribution?: "uniform" | "normal" | "integers"; seed?: Integer; low?: Integer; high?: Integer;
    }): Promise<RemoteArray>;
    /** Zeros of another's shape, type, ghosts, padding, boundary and spacing. */
    like(array: Ref, options?: CreateOptions): Promise<RemoteArray>;
    /** Extents that fit several shapes, with `ghosts` cells of each: arrays created with them as `padded` have the same strides. */
    layout(shapes: ReadonlyArray<readonly number[]>, options?: RequestOptions & { ghosts?: ReadonlyArray<readonly number[]> }): Promise<LayoutMeta>;
    /** The array of an id, or of a name in this session. @throws ArraydError `not_found` */
    get(ref: Ref, options?: RequestOptions): Promise<RemoteArray>;
    /** The session's arrays in order of creation, or with `shared` those that other users share; read page by page of `limit` (100). */
    list(options?: RequestOptions & { limit?: number; shared?: boolean }): AsyncGenerator<RemoteArray, void>;

    /**
     * Evaluates infix text, a template or a tree. Resolves to an array, new, named or `out`, or, where the
     * result is a single number with neither `name` nor `out`, to its value.
     * @throws ArraydError with the place: `bad_expression`, `unknown_name`, `shape_mismatch`, `dtype_mismatch`, …
     */
    evaluate(e: Infix | Tree, options: EvaluateOptions & ({ name: string } | { out: Ref })): Promise<RemoteArray>;
    evaluate<T extends RemoteArray | Value = RemoteArray | Value>(e: Infix | Tree, options?: EvaluateOptions): Promise<T>;
    /** evaluate(expr`…`): await c.eval`${a} + 2*${b}`. */
    eval<T extends RemoteArray | Value = RemoteArray | Value>(strings: TemplateStringsArray, ...values: Bindable[]): Promise<T>;
    /** Called with a text, as a function: evaluate(). */
    eval<T extends RemoteArray | Value = RemoteArray | Value>(e: string, options?: EvaluateOptions): Promise<T>;
    /** The value of a single number, or nested lists of up to 65,536 elements (else `too_large`); no array is made. */
    value<T extends Value = Value>(e: Infix | Tree, options?: Omit<EvaluateOptions, "name" | "out" | "index">): Promise<T>;
    /** The result itself, however large; no array is made. */
    compute(e: Infix | Tree, options?: Omit<EvaluateOptions, "name" | "out" | "index">): Promise<Computed>;
    /** The result as a PNG; no array is made. */
    picture(e: Infix | Tree, options?: Omit<EvaluateOptions, "name" | "out" | "index"> & PictureOptions): Promise<ArrayBuffer>;
    /** Statements that are done all or none; resolves to their results, arrays and values, by name. */
    statements(lines: Infix | readonly Infix[], options: StatementsOptions & { inline: true }): Promise<Record<string, Value>>;
    statements<T extends RemoteArray | Value = RemoteArray | Value>(lines: Infix | readonly Infix[], options?: StatementsOptions): Promise<Record<string, T>>;
    /** What evaluate would do: the typed tree, kernels, their sources, bytes they move; runs nothing. */
    explain(e: Infix | Tree, options?: EvaluateOptions): Promise<Record<string, any>>;

    /** Makes, or with `replace` replaces, an operator of one's own, of all sessions. */
    defineFunction(name: string, params: readonly string[], e: string | Tree, options?: RequestOptions & { replace?: boolean }): Promise<FunctionMeta>;
    functions(options?: RequestOptions & { limit?: number }): AsyncGenerator<FunctionMeta, void>;
    deleteFunction(name: string, options?: RequestOptions): Promise<void>;

    /**
     * Runs statements `steps` times in the daemon, as a job that does not depend on the client's connection.
     * @throws ArraydError with the statement, "/body/1", where one has a mistake; nothing has run then
     */
    start(lines: Infix | readonly Infix[], options: ProgramOptions): Promise<Job>;
    /** @throws ArraydError `not_found` */
    job(id: string, options?: RequestOptions): Promise<Job>;
    jobs(options?: RequestOptions & { limit?: number }): AsyncGenerator<Job, void>;

    /**
     * What changes in the lists of the session's arrays and one's jobs, after all there is, until the session ends; `arrays` or `jobs`
     * can be false. @throws ArraydError `unauthorized` when the login ends
     */
    changes(options?: EventOptions & { arrays?: boolean; jobs?: boolean }): AsyncGenerator<Changes, void>;
}

/** A session that this client created: a Client that can be deleted, also by `await using`. */
export class Session extends Client {
    constructor(client: Client, meta: SessionMeta);
    readonly id: string;
    /** As it was made. */
    readonly meta: SessionMeta;
    /** Releases all its arrays. */
    delete(options?: RequestOptions): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** A handle of an array in the daemon. */
export class RemoteArray {
    constructor(client: Client, meta: ArrayMeta);
    readonly client: Client;
    /** What the daemon said of it last. */
    readonly meta: ArrayMeta;
    readonly id: string;
    readonly name: string | null;
    readonly dtype: Dtype;
    readonly shape: number[];
    /** Elements, rounded beyond 2^53 (which only views can be); exact in `meta`. */
    readonly size: number;
    /** Bytes, likewise. */
    readonly nbytes: number;

    /** Asks for `meta` anew. */
    refresh(options?: RequestOptions): Promise<this>;
    /** Changes the name, whether it may be written, where it is, its boundary and spacing, what is said of it. */
    patch(changes: RequestOptions & LabelOptions & {
        name?: string | null; replace?: boolean; read_only?: boolean; coordinate?: boolean; location?: "device" | "host"; boundary?: readonly Boundary[]; spacing?: readonly number[];
    }): Promise<this>;
    /** New memory, zeroed, where the number of elements changes. @throws ArraydError `conflict` while views exist */
    resize(shape: Shape, options?: RequestOptions): Promise<this>;
    /** Exchanges the memory with an array of the same type and layout. @throws ArraydError `conflict` */
    swap(other: Ref, options?: RequestOptions): Promise<this>;
    /** Fills the ghost cells from the boundary. */
    fillGhost(options?: RequestOptions): Promise<this>;
    /**
     * Takes a lease, by default for writing: exclusive use of the memory, for `ttl_s` seconds (60). With "read" others
     * can read it, and only a sole holder can write. @throws ArraydError `locked`
     */
    lease(options?: RequestOptions & { mode?: Access; ttl_s?: number }): Promise<Lease>;
    /** Lets another account use the array, by its id; by default for reading. @throws ArraydError `not_found` */
    share(principal: string, options?: RequestOptions & { access?: Access }): Promise<ShareMeta>;
    /** Whom it is shared with. */
    shares(options?: RequestOptions): Promise<ShareMeta[]>;
    /** Takes a share back, which also ends that account's leases and programs on the array. */
    unshare(principal: string, options?: RequestOptions): Promise<void>;
    /** Releases this handle; views of it keep the memory. */
    delete(options?: RequestOptions): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;

    /** A view that shares the memory: an index as text, or steps in this order. @throws ArraydError `not_a_view`, `bad_index` */
    view(steps?: string | (RequestOptions & {
        index?: string; permute?: readonly number[]; reshape?: readonly number[]; broadcast_to?: readonly Integer[];
        dtype?: Dtype; name?: string; ghost?: boolean;
    })): Promise<RemoteArray>;
    /** A deep copy. */
    copy(options?: RequestOptions & { name?: string }): Promise<RemoteArray>;

    /** The Response of a download, for what the methods below do not do. */
    read(options?: ReadOptions & { method?: "GET" | "HEAD"; accept?: string; headers?: Record<string, string> }): Promise<Response>;
    /** The elements, or those of a region, as Client.array takes them, in C order. */
    data<T extends ArrayBufferView = TypedArray>(options?: RequestOptions & Region): Promise<T>;
    /** The same as nested lists: numbers, bigints for 64-bit integers, booleans, [re, im]. */
    toList<T extends Value = Value>(options?: RequestOptions & Region): Promise<T>;
    /** One element. @throws ArraydError `bad_index` */
    item<T extends Scalar = Scalar>(...index: number[]): Promise<T>;
    /** The bytes as they come, those of the array as of the reply's beginning, whatever is written meanwhile. */
    stream(options?: ReadOptions): Promise<ReadableStream<Uint8Array>>;
    /** The array, or a region, as an .npy file. */
    npy(options?: RequestOptions & Region): Promise<ArrayBuffer>;
    /** Two axes of it, or of a region, as a PNG; a last axis of 3 or 4 is colours. */
    picture(options?: RequestOptions & Region & PictureOptions): Promise<ArrayBuffer>;
    /** Figures of its elements, or of a region's: the exact ones, a histogram, and percentiles with their error. */
    summary(options?: RequestOptions & Region & {
        bins?: number; lo?: number; hi?: number; percentiles?: readonly number[]; exact?: boolean;
    }): Promise<SummaryMeta>;
    /**
     * What the daemon says of it, now and whenever its contents or that have changed, until it is gone; `meta` follows.
     * @throws ArraydError `not_found` when it is no longer shared, `unauthorized` when the login ends
     */
    changes(options?: EventOptions): AsyncGenerator<ArrayMeta, void>;
    /** Pictures likewise, now and whenever its contents have changed. @throws ArraydError also where one cannot be made */
    frames(options?: EventOptions & Region & PictureOptions): AsyncGenerator<Frame, void>;
    /** The ETag of the bytes as they are now, for put's `ifMatch`. */
    etag(options?: RequestOptions & Region): Promise<string>;
    /**
     * Writes all, or a region: bytes of the array's own type, or nested lists or a number of the region's
     * shape; nothing is broadcast or converted. With `ifMatch` only what is still as it was is written.
     * @throws TypeError for a typed array of another type; ArraydError `length_mismatch`, `shape_mismatch`, `precondition_failed`, `read_only`
     */
    put(data: Binary | Lists, options?: RequestOptions & Region & { ifMatch?: string }): Promise<void>;
}

/** A lease on an array's memory; `await using` ends it. */
export class Lease {
    constructor(array: RemoteArray, meta: LeaseMeta);
    /** What the lease's token goes with: its requests can use the array. */
    readonly client: Client;
    /** The array, as that client uses it. */
    readonly array: RemoteArray;
    readonly token: string;
    readonly mode: Access;
    /** RFC 3339. */
    readonly expires: string;
    /** For `ttl_s` seconds (60) from now; `mode` changes it. @throws ArraydError `locked` where others hold one, too */
    renew(options?: RequestOptions & { mode?: Access; ttl_s?: number }): Promise<this>;
    /** @throws ArraydError `not_found` where its time is over */
    end(options?: RequestOptions): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

export interface ReadOptions extends RequestOptions, Region {
    /** The first byte that is wanted. */
    start?: number;
    /** The byte behind the last. */
    end?: number;
}

/** A program that runs in the daemon, independently of the client's connection. */
export class Job implements AsyncIterable<JobMeta> {
    constructor(client: Client, meta: Partial<JobMeta> & { id: string });
    readonly client: Client;
    /** What the daemon said of it last. */
    readonly meta: JobMeta;
    readonly id: string;
    readonly state: JobMeta["state"];
    /** Whole steps that the arrays have seen. */
    readonly step: Integer;
    /** Whether it is done, failed or cancelled. */
    readonly ended: boolean;
    /** What was recorded, by name; after an event what was since the event before. */
    readonly records: Record<string, Array<number | bigint | boolean>>;
    /** What it failed with. */
    readonly error?: ArraydError;

    /** Asks for `meta` anew. */
    refresh(options?: RequestOptions): Promise<this>;
    /** Resolves when it is done or cancelled, rejects with its error where it failed; `signal` ends the waiting alone. */
    wait(options?: { signal?: AbortSignal }): Promise<this>;
    /** Stops the job between two steps; a job that has ended stays as it is. */
    cancel(options?: RequestOptions): Promise<this>;
    /** Goes on with the steps that are left. */
    resume(options?: RequestOptions): Promise<this>;
    /** Cancels it where it runs, and gives back what the daemon keeps of it. */
    forget(options?: RequestOptions): Promise<void>;
    /**
     * What the daemon says of it as it goes on, ten times a second at most, to its end; `meta` follows.
     * Where the connection is cut it goes on behind the last event; `retries` (5) says how often without
     * one in between.
     */
    events(options?: Pick<EventOptions, "signal" | "retries">): AsyncGenerator<JobMeta, void>;
    [Symbol.asyncIterator](): AsyncGenerator<JobMeta, void>;
}
