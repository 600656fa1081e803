// What goes wrong: errors with their places, credentials, sessions, requests that are given up.
import assert from "node:assert/strict";
import test from "node:test";
import { inspect } from "node:util";
import { Client, connect } from "../arrayd.js";
import { client, collect, fails, live, token, url } from "./live.js";

const same = (got, want) => assert.deepStrictEqual(got, want);
/** A client whose requests are answered by a function instead. */
const answered = answer => connect("http://elsewhere.example/", { fetch: async (...args) => answer(...args) });

live("an error says where in the request it is", async c => {
    let e = await fails("unknown_name", c.evaluate("2 + q"));
    same([e.name, e.status, e.pointer, e.offset, e.source], ["ArraydError", 422, "/expr", 4, "2 + q"]);
    assert.match(e.message, /'q' \(\/expr, character 4\)$/);
    assert.match(e.detail, /'q'$/);
    assert.match(e.requestId, /^\w+/);
    assert(e instanceof Error);
    e = await fails("unknown_name", c.value("a", { let: { a: "1", b: "a + zz" } }));
    same([e.pointer, e.source.slice(e.offset)], ["/let/1/1", "zz"]);
    e = await fails("bad_shape", c.zeros([2, -3]));
    same([e.pointer, e.offset, e.source, e.retryAfter], ["/shape/1", undefined, undefined, undefined]);
    await fails("unknown_field", c.zeros(1, { colour: "red" }));
});

test("who has no token, or a wrong one, is told so", async () => {
    for (const wrong of [undefined, "at-nobody", ""])
        same((await fails("unauthorized", connect(url, { token: wrong }).info())).status, 401);
    assert.equal(typeof (await connect(`${url}//`, { token }).info()).version, "string");
});

live("a token is in no log and in no JSON", async c => {
    const a = await c.zeros(3), session = await c.createSession();
    for (const shown of [c, a, session, connect(url, { token: "at-s3cret", headers: { Authorization: "Bearer at-s3cret" } })])
        for (const text of [inspect(shown, { depth: 9, showHidden: true }), JSON.stringify(shown) ?? ""])
            assert(!text.includes("s3cret") && !(token && text.includes(token)), text);
    await session.delete();
    await a.delete();
});

test("what waits in line says for how long", async () => {
    const problem = { type: "urn:arrayd:problem:overloaded", title: "Overloaded", status: 503, code: "overloaded", detail: "too much" };
    const headers = { "Content-Type": "application/problem+json; charset=utf-8", "Retry-After": "3", "X-Request-Id": "abc" };
    const e = await fails("overloaded", answered(() => new Response(JSON.stringify(problem), { status: 503, headers })).info());
    same([e.status, e.retryAfter, e.requestId, e.message], [503, 3, "abc", "too much"]);
});

test("errors that a proxy makes up", async () => {
    const e = await fails("http_error", answered(() => new Response("<h1>Bad gateway</h1>", { status: 502 })).info());
    same([e.status, e.detail, e.retryAfter], [502, "<h1>Bad gateway</h1>", undefined]);
    const other = new Response('{"error": "no"}', { status: 500, headers: { "Content-Type": "application/json" } });
    same((await fails("http_error", answered(() => other).info())).detail, '{"error": "no"}');
    same((await fails("http_error", answered(() => new Response(null, { status: 504 })).info())).detail, "HTTP status 504");
});

test("what is sent", async () => {
    const calls = [];
    const c = answered((address, init) => (calls.push([address, init]), new Response("{}"))).with({
        token: "t", session: "s-1", headers: { "Arrayd-Lease": "l" } });
    await c.json("GET", "/x", { query: { index: ":, 1:", none: undefined }, wait: 1.5 });
    same(calls[0][0], "http://elsewhere.example/v1/x?index=%3A%2C+1%3A");
    same(calls[0][1].headers, { Accept: "application/json", "Arrayd-Lease": "l", Authorization: "Bearer t",
        "Arrayd-Session": "s-1", Prefer: "wait=2" });
});

test("no connection is a TypeError of fetch's", async () => {
    await assert.rejects(connect("http://127.0.0.1:1").info(), TypeError);
});

test("sessions end", async () => {
    const c = client();
    const s = await c.createSession({ name: "js", memory_limit: 1000 });
    same([s.meta.name, s.meta.memory_limit, s.session, s instanceof Client], ["js", 1000, s.id, true]);
    assert((await collect(c.sessions())).some(meta => meta.id === s.id));
    same((await s.sync()).id, s.id);
    await fails("quota_exceeded", s.zeros(1000));
    await s.delete();
    await fails("not_found", s.zeros(1));
    const brief = await c.createSession({ ttl_s: 0.1 });
    await new Promise(resolve => setTimeout(resolve, 600));
    same((await fails("not_found", brief.value("1 + 1"))).status, 404);
    await fails("not_found", brief.delete());
});

test("sessions and arrays are given back by await using", async () => {
    const dispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
    const s = await client().createSession();
    const a = await s.zeros(1);
    await a[dispose]();
    await fails("not_found", a.refresh());
    await s[dispose]();
    await fails("not_found", s.sync());
});

live("an AbortSignal ends a request", async c => {
    await assert.rejects(c.info({ signal: AbortSignal.abort() }), { name: "AbortError" });
    const why = new Error("not wanted any more");
    await assert.rejects(c.zeros(1, { signal: AbortSignal.abort(why) }), why);
    same(await collect(c.list()), []);
});

live("a download is cut off", async c => {
    const a = await c.zeros(8_000_000);
    const controller = new AbortController();
    const reader = (await a.stream({ signal: controller.signal })).getReader();
    assert((await reader.read()).value.length > 0);
    controller.abort();
    await assert.rejects(async () => {
        while (!(await reader.read()).done);
    }, { name: "AbortError" });
    const late = new AbortController();
    const whole = a.data({ signal: late.signal });
    setTimeout(() => late.abort(), 1);
    await assert.rejects(whole, { name: "AbortError" });
    same(await a.item(7_999_999), 0);
});

live("what takes longer than one waits for", async c => {
    await c.random(1_000_000, { name: "u" });
    const slow = `sum(${Array.from({ length: 40 }, (_, k) => `gamma(u + ${k})`).join(" + ")})`;
    same((await fails("deadline_exceeded", c.evaluate(slow, { wait: 0 }))).status, 504);
    assert(await c.evaluate("sum(u)", { wait: 60 }) > 0);
});
