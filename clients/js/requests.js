/** requests.js: what requests are made of: references, options, what a client sends always; and replies that are errors. */
import { Handle, parse } from "./values.js";

export const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
export const inPath = name => encodeURIComponent(name).replaceAll("%40", "@"); // the daemon takes no escapes in paths
export const asShape = shape => (typeof shape === "number" ? [shape] : shape);
export const refOf = array => {
    const ref = array instanceof Handle ? array.id : array;
    if (typeof ref !== "string" || ref === "")
        throw new TypeError("an array is named by its name or id, or by what stands for it");
    return encodeURIComponent(ref);
};

/** Parts options: [what is of the request, what is of its body]. */
export const split = ({ signal, wait, ...rest } = {}) => [{ signal, wait }, rest];

/** The query of a region: `index` as text ("1:-1, ::2") or integers ([3, 4]), `ghost` for ghost cells; and what else is asked. */
export const region = ({ index, ghost, signal, wait, ...asked }) => ({ index: index?.toString(), ghost: ghost ? "1" : undefined, ...asked });

/** Of each client, which itself shows no token where it is logged or made JSON of. */
export const settings = new WeakMap();

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

export async function errorOf(response, body) {
    const text = await response.text();
    const header = name => response.headers.get(name) ?? undefined;
    const { status } = response;
    const unknown = { status, code: "http_error", detail: text.slice(0, 500) || `HTTP status ${status}` }; // a proxy's
    const problem = /\bproblem\+json\b/.test(header("Content-Type")) ? parse(text) : unknown;
    const retryAfter = /^\d+$/.test(header("Retry-After")) ? Number(header("Retry-After")) : undefined;
    return new ArraydError(problem, { requestId: header("X-Request-Id"), retryAfter, body });
}
