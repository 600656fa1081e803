/**
 * stream.js: what the daemon tells by itself, as Server-Sent Events. A view has one stream at most, and none while nobody sees it:
 * under HTTP/1.1 a browser holds six connections to a host, for all its windows. Where there is no stream, one asks.
 */
import { poll, seen, send } from "./api.js";

const SEATS = 4; // streams of all windows; the other connections are for requests
const FIRST = 10000; // ms within which something comes: what lies between may hold it back
const AGAIN = 5000; // ms that one asks, before the next try

/** Takes one of this browser's streams until the signal is aborted; false if all are taken. */
export async function seat(signal) {
    for (let k = 0; k < SEATS && navigator.locks; k++) {
        const isMine = await new Promise(done => {
            navigator.locks.request(`arrayd-stream-${k}`, { ifAvailable: true }, lock => {
                done(Boolean(lock));
                return lock && new Promise(free => (signal.aborted ? free() : signal.addEventListener("abort", free, { once: true })));
            });
        });
        if (isMine)
            return true;
    }
    return !navigator.locks; // without TLS a page cannot count them
}

async function* events(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let parts = []; // of the event whose end is to come, and the newline that may be half of its end: a frame comes in many
    let edge = ""; //  chunks, each of which is looked through once
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
        const blocks = (edge + decoder.decode(chunk.value, { stream: true })).split("\n\n");
        const rest = blocks.pop();
        edge = rest.endsWith("\n") ? "\n" : "";
        for (const end of blocks) {
            const block = parts.join("") + end;
            parts = [];
            const event = Object.fromEntries([...block.matchAll(/^(\w+): (.*)$/gm)].map(([, field, value]) => [field, value]));
            if (event.data)
                yield event;
        }
        parts.push(edge ? rest.slice(0, -1) : rest);
    }
}

/** Until the stream ends, which it says by the event end, or breaks off. */
async function listen(path, { query, last, on, signal, late }) {
    const reply = await send("GET", path, { query, accept: "text/event-stream", headers: last ? { "Last-Event-ID": last } : {}, signal });
    document.dispatchEvent(new CustomEvent("daemon", { detail: 0 }));
    for await (const { event, id, data } of events(reply.body)) {
        clearTimeout(late);
        if (signal.aborted || event === "end")
            return;
        await on(event, JSON.parse(data), id);
    }
}

/**
 * Calls `on(name, data, id)` for each event of the path's until the signal is aborted. Where there are none, does `ask` every `every` ms
 * for a while, and tries again; `failed` is told why a stream was refused. `last` is the id of what is there already; then nothing may come at first.
 */
export async function follow(path, signal, { query, last, on, ask, every, failed }) {
    while (!signal.aborted) {
        await seen(signal);
        const leaving = new AbortController();
        const here = AbortSignal.any([signal, leaving.signal]);
        const late = last ? undefined : setTimeout(() => leaving.abort("late"), FIRST);
        document.addEventListener("visibilitychange", () => leaving.abort("hidden"), { signal: here });
        try {
            if (await seat(here))
                await listen(path, { query, last, on, signal: here, late });
        } catch (problem) {
            if (problem.status === 401)
                return;
            failed?.(problem);
            console.debug(problem);
        }
        clearTimeout(late);
        const isHidden = leaving.signal.reason === "hidden";
        leaving.abort();
        last = undefined; // what comes after is newer
        if (!signal.aborted && !isHidden)
            await poll(every, AbortSignal.any([signal, AbortSignal.timeout(AGAIN)]), ask);
    }
}
