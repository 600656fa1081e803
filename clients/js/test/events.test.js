// What the daemon tells by itself: changes of an array, frames of its picture, changes of the lists; how they end, and go on.
import assert from "node:assert/strict";
import test from "node:test";
import { Job, RemoteArray } from "../arrayd.js";
import { answering, client, collect, fails, live } from "./live.js";

const same = (got, want) => assert.deepStrictEqual(got, want);
const next = async events => (await events.next()).value;

live("an array's changes", async c => {
    const u = await c.array([1, 2, 3], { name: "u" });
    const watched = await c.get("u");
    const changes = watched.changes();
    same((await next(changes)).name, "u");
    await u.put([4, 5, 6]);
    same((await next(changes)).id, u.id);
    await u.patch({ name: "w", units: "K" });
    same((await next(changes)).units, "K");
    same(watched.name, "w");
    await u.delete();
    same(await changes.next(), { value: undefined, done: true });
    await fails("not_found", u.changes().next());
});

live("frames are its pictures", async c => {
    const u = await c.random([40, 30], { seed: 1 });
    const how = { cmap: "magma", lo: -1, hi: 1, width: 20, index: "0:20, :" };
    const frames = u.frames({ ...how, interval: 0.2 });
    const began = performance.now();
    for (let k = 0; k < 3; k++) {
        const { png, range } = await next(frames);
        same([range, Buffer.from(png).equals(Buffer.from(await u.picture(how)))], [[-1, 1], true]);
        await u.put(new Float64Array(1200).fill((k + 1) / 4));
    }
    assert(performance.now() - began > 380);
    await frames.return();
});

live("a frame that cannot be made", async c => {
    const u = await c.zeros([6, 8]);
    const frames = u.frames({ index: "3:, :" });
    await next(frames);
    await u.resize([48]);
    assert.equal((await next(frames).catch(e => e)).status, 422);
    await fails("not_acceptable", next(u.frames())); // of one axis
});

live("the lists' changes", async c => {
    const u = await c.array([1, 2], { name: "u" });
    const changes = c.changes();
    const first = [await next(changes), await next(changes)];
    same(first.map(({ first, more, gone }) => [first, more, gone]), [[true, false, []], [true, false, []]]);
    assert(first[0].arrays[0] instanceof RemoteArray && first[0].arrays[0].id === u.id);
    assert(first[1].jobs.every(j => j instanceof Job));
    const told = async test => {
        for (let event; !test(event ?? {});)
            event = await next(changes);
    };
    const v = await c.zeros(3, { name: "v" });
    await told(({ arrays }) => arrays?.some(a => a.name === "v"));
    await u.put([3, 4]);
    await told(({ written }) => written?.includes(u.id));
    await v.delete();
    await told(({ gone }) => gone?.includes(v.id));
    const job = await c.start("u += 1", { steps: 3 });
    await told(({ jobs }) => jobs?.some(j => j.id === job.id && j.state === "done"));
    for await (const { arrays, jobs, written } of c.changes({ jobs: false, interval: 0.2 })) {
        same([arrays.length, jobs, written], [1, undefined, []]);
        break;
    }
    await assert.rejects(collect(c.changes({ signal: AbortSignal.timeout(50) })), { name: "TimeoutError" });
    const other = await c.createSession();
    const ending = collect(other.changes({ jobs: false }));
    await other.delete();
    assert((await ending).length <= 1);
    await job.forget();
});

live("an array that is shared no more", async c => {
    const u = await c.array([1, 2], { name: "u" });
    await u.share("b.o@b");
    const theirs = await client({ token: process.env.ARRAYD_OTHER }).get(u.id);
    const changes = theirs.changes();
    assert((await next(changes)).read_only);
    await u.unshare("b.o@b");
    await fails("not_found", next(changes));
});

/* How a stream goes on where it was cut. */

const event = (name, data, id) => `${id ? `id: ${id}\n` : ""}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const stopping = event("end", { reason: "stopping" });

test("behind the last event, with what was asked for", async () => {
    const frame = (bytes, id) => event("frame", { range: [0, 1], bytes, png: Buffer.alloc(bytes, 7).toString("base64") }, id);
    const [c, asked, addresses] = answering([
        ["retry: 1\n", frame(3, "a-1"), stopping],
        new TypeError("fetch failed"),
        [frame(5, "b-2"), new TypeError("terminated")],
        [":\n\n", event("end", { reason: "deleted" })],
    ]);
    const frames = await collect(new RemoteArray(c, { id: "a-1" }).frames({ cmap: "gray", index: [1, 2], interval: 0.5 }));
    same(frames.map(f => [...new Uint8Array(f.png)]), [[7, 7, 7], [7, 7, 7, 7, 7]]);
    same(asked, [undefined, "a-1", "a-1", "b-2"]);
    same(new Set(addresses).size, 1);
    const { pathname, searchParams } = new URL(addresses[0]);
    same([pathname, Object.fromEntries(searchParams)], ["/v1/arrays/a-1/events", { index: "1,2", cmap: "gray", interval: "0.5", frames: "true" }]);
});

test("why they end", async () => {
    for (const [reason, code] of [["login_ended", "unauthorized"], ["not_shared", "not_found"], ["out_of_memory", "out_of_memory"]])
        await fails(code, collect(answering([[event("end", { reason })]])[0].changes()));
    same(await collect(answering([[event("end", { reason: "session_ended" })]])[0].changes()), []);
    const problem = { status: 422, code: "bad_index", detail: "no", pointer: "/index" };
    const u = new RemoteArray(answering([[event("error", problem)]])[0], { id: "a-1" });
    same((await fails("bad_index", collect(u.frames()))).pointer, "/index");
});

test("a long event costs what its bytes do", async () => {
    const text = event("frame", { range: [0, 1], bytes: 0, png: "A".repeat(1 << 24) });
    const chunks = text.match(/.{1,4096}|\n/gs);
    const [c] = answering([[...chunks, event("end", { reason: "deleted" })]]);
    const began = performance.now();
    const [{ png }] = await collect(new RemoteArray(c, { id: "a-1" }).frames());
    same(png.byteLength, 3 << 22);
    assert(performance.now() - began < 5000); // minutes, if each chunk had what came before it looked through again
});
