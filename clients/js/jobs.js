/** jobs.js: programs that run in the daemon. */
import { ArraydError } from "./requests.js";
import { mapValues, parse } from "./values.js";

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
