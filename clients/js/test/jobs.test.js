// Programs: jobs that are watched, waited for, stopped and resumed; Server-Sent Events.
import assert from "node:assert/strict";
import test from "node:test";
import { ArraydError, Job, expr } from "../arrayd.js";
import { answering, collect, fails, live } from "./live.js";

const same = (got, want) => assert.deepStrictEqual(got, want);

live("a program runs to its end", async c => {
    const u = await c.array([1, 2], { name: "u" });
    const job = await c.start(["t = 2*u", expr`u = t - ${u} + ${1}`], {
        bind: { u }, steps: 10, record: { top: "max(u)", odd: "0.0/(u[0] - u[0])" }, record_every: 5, snapshot: { u: 10 } });
    same((await job.wait()).state, "done");
    same([job.step, job.ended, job.error], [10, true, undefined]);
    same(job.records, { top: [7, 12], odd: [NaN, NaN] });
    same(await u.toList(), [11, 12]);
    const { id } = job.meta.snapshots[0];
    same(await (await c.get(id)).toList(), [11, 12]);
    same((await c.job(job.id)).meta.steps, 10);
    assert((await collect(c.jobs())).some(j => j instanceof Job && j.id === job.id));
    await job.forget();
    await fails("not_found", job.refresh());
});

live("cancelled and resumed", async c => {
    const u = await c.array([0n], { name: "u" });
    const job = await c.start("u += 1", { steps: 1e12 });
    await assert.rejects(job.wait({ signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
    same((await job.cancel()).state, "cancelled");
    same(await u.item(0), BigInt(job.step));
    same((await job.cancel()).state, "cancelled");
    same((await job.wait()).state, "cancelled");
    const before = job.step;
    await job.resume();
    await job.forget();
    assert(await u.item(0) >= BigInt(before));
});

live("one that fails", async c => {
    await c.array([1, 2], { name: "u" });
    const job = await c.start("u = sqrt(u - 1.5)", { steps: 9, stop_on_nan: true });
    await fails("not_a_number", job.wait());
    same([job.state, job.meta.failed_step, job.error.code], ["failed", 1, "not_a_number"]);
    const e = await fails("unknown_name", c.start(["u += 1", "u += q"], { steps: 1 }));
    same([e.pointer, e.source, e.offset], ["/body/1", "u += q", 5]);
    await fails("unknown_name", c.start("u += 1", { steps: 1, until: expr`${3} > q` }));
});

live("events to the end", async c => {
    await c.array([0], { name: "u" });
    const job = await c.start("u += 1", { steps: 200_000, record: { u: "u[0]" }, record_every: 50 });
    const seen = [];
    let steps = 0;
    for await (const { step, records, records_from } of job) {
        same(records_from, seen.length);
        seen.push(...records.u);
        assert(step >= steps);
        steps = step;
    }
    same([job.state, steps, seen.length], ["done", 200_000, 4000]);
    assert(seen.every((v, k) => v === 50 * (k + 1)));
    const again = await collect(job.events());
    same(again.at(-1).state, "done");
});

live("events are left before the end", async c => {
    await c.array([0], { name: "u" });
    const job = await c.start("u += 1", { steps: 1e12 });
    for await (const { state } of job.events())
        if (state === "running")
            break;
    await assert.rejects(async () => {
        for await (const _ of job.events({ signal: AbortSignal.timeout(50) }));
    }, { name: "TimeoutError" });
    const ended = collect(job.events());
    await job.cancel();
    same((await ended).at(-1).state, "cancelled");
});

/* What a stream may look like, and how it goes on where it was cut. */

const job = answers => {
    const [c, asked] = answering(answers);
    return [new Job(c, { id: "j-1" }), asked];
};

test("every way to write events, cut anywhere", async () => {
    const text = '\uFEFF: hello\r\nretry: 1\r\nevent: progress\r\nid: 1.1\r\ndata: {"step": 1,\r\ndata:"é": 1}\r\n\r\n'
        + ': beat\n\nid:1.2\ndata: {"step": 2}\n\nevent: end\rid: 1.3\rdata: {"step": 3}\r\rdata: never';
    const want = [{ step: 1, é: 1 }, { step: 2 }, { step: 3 }];
    for (const chunks of [[text], [...text], text.match(/.{1,7}/gsu)]) {
        const [j, asked] = job([chunks]);
        same(await collect(j), want);
        same(asked, [undefined]);
    }
});

test("an interrupted stream goes on behind the last event", async () => {
    const [j, asked] = job([
        ['retry: 1\nid: a\ndata: {"step": 1}\n\nid: b\ndata: {"st'], // ends within an event
        new TypeError("fetch failed"),
        new Response('{"status": 503, "code": "overloaded", "detail": "busy"}',
            { status: 503, headers: { "Content-Type": "application/problem+json" } }),
        ['id: b\ndata: {"step": 2}\n\n', new TypeError("terminated")],
        new Response(null, { status: 204 }),
    ]);
    same((await collect(j)).map(e => e.step), [1, 2]);
    same(asked, [undefined, "a", "a", "a", "b"]);
});

test("who stops looking closes the connection", async () => {
    let closed = false;
    const body = new ReadableStream({
        start: controller => controller.enqueue(new TextEncoder().encode('data: {"step": 1}\n\n')),
        cancel() { closed = true; },
    });
    for await (const { step } of job([new Response(body)])[0]) {
        same(step, 1);
        break;
    }
    assert(closed);
});

test("after every cut there is a pause, whatever came before it", async () => {
    const streams = ["a", "b", "c"].map(id => [`retry: 30\nid: ${id}\ndata: {"step": 1}\n\n`]);
    const [j, asked] = job([...streams, ['event: end\ndata: {"step": 2, "state": "done"}\n\n']]);
    const begun = performance.now();
    same((await collect(j.events())).length, 4);
    same(asked.length, 4);
    assert(performance.now() - begun > 80);
});

test("it is given up when nothing comes", async () => {
    const cut = Array(4).fill(new TypeError("fetch failed"));
    const [j, asked] = job([['retry: 1\nid: a\ndata: {"step": 1}\n\n'], ...cut]);
    await assert.rejects(collect(j.events({ retries: 3 })), /fetch failed/);
    same(asked.length, 5);
    const gone = new Response('{"status": 404, "code": "not_found", "detail": "gone"}',
        { status: 404, headers: { "Content-Type": "application/problem+json" } });
    await assert.rejects(collect(job([gone])[0]), ArraydError);
    const [waiting] = job([new TypeError("fetch failed")]);
    await assert.rejects(collect(waiting.events({ signal: AbortSignal.timeout(10) })), { name: "TimeoutError" });
});
