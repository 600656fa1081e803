/** jobs.js: programs that run in the daemon. */
import { follow } from "./events.js";
import { ArraydError } from "./requests.js";
import { mapValues } from "./values.js";

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
    async *events(options) {
        for await (const { event, data } of follow(this.client, `/jobs/${this.id}/events`, options)) {
            this.meta = withRecords(data);
            yield this.meta;
            if (event === "end")
                return;
        }
    }

    [Symbol.asyncIterator]() { return this.events(); }
}
