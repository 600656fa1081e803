/** events.js: what the daemon tells by itself, as Server-Sent Events; going on where a stream was cut. */
import { ArraydError } from "./requests.js";
import { parse } from "./values.js";

/** Events of a text/event-stream: { event, id, data, retry }; one that was cut off is left out. */
async function* serverSentEvents(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let event = {};
    let parts = []; // of the line whose end is to come: a frame's comes in many chunks, each of which is looked through once
    try {
        for (let chunk = {}, held = ""; !chunk.done;) {
            chunk = await reader.read();
            const text = held + (chunk.done ? decoder.decode() : decoder.decode(chunk.value, { stream: true }));
            held = !chunk.done && text.endsWith("\r") ? "\r" : ""; // a \n may come
            const [rest, ...more] = (held ? text.slice(0, -1) : text).split(/\r\n|\r|\n/);
            parts.push(rest);
            for (const next of more) {
                const line = parts.join("");
                const colon = line.indexOf(":");
                const field = colon < 0 ? line : line.slice(0, colon);
                const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
                parts = [next];
                if (line)
                    event[field] = field === "data" && "data" in event ? `${event.data}\n${value}` : value;
                else if ("data" in event)
                    yield event;
                event = line ? event : {};
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

/**
 * Events of a path's, { event, data }. Where the stream ends it is asked for again behind the last event, `retries` times without one
 * in between: the caller knows which event is the last one. A reply without a stream says that there are no more.
 */
export async function* follow(client, path, { query, signal, retries = 5 } = {}) {
    let last, pause = 1000;
    for (let failures = 0, failure; ; failures++) {
        if (failures > retries)
            throw failure;
        if (failure) // after any cut, however much came before it
            await sleep((failure.retryAfter ?? 0) * 1000 || pause, signal);
        failure = new TypeError("the events were cut off");
        try {
            const response = await client.request("GET", path, { query, accept: "text/event-stream", headers: { "Last-Event-ID": last }, signal });
            if (response.status === 204)
                return;
            for await (const { event, id, retry, data } of serverSentEvents(response.body)) {
                last = id ?? last;
                pause = retry === undefined ? pause : Number(retry);
                yield { event, data: parse(data) };
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

/** Reasons of the last event that are no end of what is told: what a request would get now. */
const TAKEN = {
    login_ended: { status: 401, code: "unauthorized", detail: "the login, the token or the account that listened has ended" },
    not_shared: { status: 404, code: "not_found", detail: "the array is no longer shared with this account" },
    out_of_memory: { status: 507, code: "out_of_memory", detail: "the daemon has no memory for what there is to tell of so many arrays and jobs" },
};

/** The data of events of an array or of lists until that, or the session, is gone. What cannot be told is thrown; a daemon that stops may come back. */
export async function* told(client, path, options) {
    for await (const { event, data } of follow(client, path, options)) {
        const problem = event === "error" ? data : event === "end" && TAKEN[data.reason];
        if (problem)
            throw new ArraydError(problem);
        if (event !== "end")
            yield data;
        else if (data.reason !== "stopping")
            return;
    }
}
