// Arrays: made, looked up, listed, changed; their data in and out.
import assert from "node:assert/strict";
import { RemoteArray, expr } from "../arrayd.js";
import { collect, fails, live } from "./live.js";

const same = (got, want) => assert.deepStrictEqual(got, want);

live("typed arrays of every type come back as they went", async c => {
    const samples = [
        [new Int8Array([-128, 127]), "int8"], [new Int16Array([-32768, 32767]), "int16"],
        [new Int32Array([-(2 ** 31), 2 ** 31 - 1]), "int32"],
        [new BigInt64Array([-(2n ** 63n), 2n ** 63n - 1n, 2n ** 53n + 1n]), "int64"],
        [new Uint8Array([0, 255]), "uint8"], [new Uint16Array([0, 65535]), "uint16"],
        [new Uint32Array([0, 2 ** 32 - 1]), "uint32"], [new BigUint64Array([0n, 2n ** 64n - 1n]), "uint64"],
        [new Float32Array([0.1, -0, NaN, Infinity]), "float32"],
        [new Float64Array([0.1, -0, NaN, -Infinity, 5e-324]), "float64"],
    ];
    for (const [data, dtype] of samples) {
        const a = await c.array(data);
        same([a.dtype, a.shape, a.size, a.nbytes], [dtype, [data.length], data.length, data.byteLength]);
        same(await a.data(), data);
        await a.put(data.slice().reverse());
        same(await a.data(), data.slice().reverse());
    }
    same((await c.array(new Uint8ClampedArray([255]))).dtype, "uint8");
});

live("what is left out is not taken for something", async c => {
    await assert.rejects(c.create({ shape: [2], replace: true }), TypeError);
    await assert.rejects(c.array(new Float32Array(2), { replace: true }), TypeError);
    await assert.rejects(c.get(undefined), TypeError);
    same((await c.full(3, 1, { dtype: undefined })).dtype, (await c.full(3, 1)).dtype);
    same((await c.arange(0, 3, 1, { dtype: undefined })).dtype, (await c.arange(0, 3)).dtype);
});

live("types that share a holder are named", async c => {
    const flags = await c.array(new Uint8Array([1, 0, 1]), { dtype: "bool" });
    same(await flags.toList(), [true, false, true]);
    same(await flags.data(), new Uint8Array([1, 0, 1]));
    const z = await c.array(new Float32Array([1, 2, 3, -4]), { dtype: "complex64" });
    same([z.shape, await z.toList()], [[2], [[1, 2], [3, -4]]]);
    same(await z.data(), new Float32Array([1, 2, 3, -4]));
    const w = await c.array(new Float64Array([0.5, NaN]), { dtype: "complex128", shape: [] });
    same([w.shape, await w.toList()], [[], [0.5, NaN]]);
    const b = await c.array(new Uint16Array([0x3f80, 0xc000]), { dtype: "bfloat16" });
    same(await b.toList(), [1, -2]);
    same(await b.data(), new Uint16Array([0x3f80, 0xc000]));
    const h = await c.array(new Uint16Array([0x3c00]), { dtype: "float16" });
    same(await h.item(0), 1);
    const bits = await h.data();
    same(new Uint16Array(bits.buffer), new Uint16Array([0x3c00]));
    same(bits.constructor, globalThis.Float16Array ?? Uint16Array);
});

live("a view of a buffer sends its own part alone", async c => {
    const whole = new Float64Array([9, 1, 2, 9]);
    same(await (await c.array(whole.subarray(1, 3))).data(), new Float64Array([1, 2]));
    const odd = new DataView(new Uint8Array([7, 1, 0, 2, 0, 7]).buffer, 1, 4);
    same(await (await c.array(odd, { dtype: "int16" })).toList(), [1, 2]);
    same(await (await c.array(whole.buffer, { dtype: "float64", shape: [2, 2] })).toList(), [[9, 1], [2, 9]]);
    const shared = new Int32Array(new SharedArrayBuffer(12), 4, 2);
    shared.set([5, 6]);
    same(await (await c.array(shared)).toList(), [5, 6]);
});

live("bytes are never taken for another type", async c => {
    await assert.rejects(c.array(new Float64Array(2), { dtype: "float32" }), /float32 is not held by Float64Array/);
    await assert.rejects(c.array(new ArrayBuffer(8)), /ArrayBuffer needs a dtype/);
    await assert.rejects(c.array(new Uint8Array(1), { dtype: "int1" }), /no dtype int1/);
    await assert.rejects(c.array(new Uint8Array(1), { ghost: [1] }), /takes no ghost/);
    const a = await c.zeros(2, { dtype: "float32" });
    await assert.rejects(a.put(new Float64Array(2)), TypeError);
    await fails("length_mismatch", a.put(new Float32Array(3)));
    await fails("length_mismatch", c.array(new Float32Array(3), { shape: [2, 2] }));
});

live("lists: a number is a float64, a bigint an int64, and nothing is rounded", async c => {
    const of = async (data, options) => {
        const a = await c.array(data, options);
        return [a.dtype, a.shape, await a.toList()];
    };
    same(await of([[1, 2], [3, -0]]), ["float64", [2, 2], [[1, 2], [3, -0]]]);
    same(await of([NaN, Infinity, -Infinity, 1e-300]), ["float64", [4], [NaN, Infinity, -Infinity, 1e-300]]);
    same(await of([1n, -(2n ** 63n), 2n ** 63n - 1n, 9007199254740993n]),
        ["int64", [4], [1n, -(2n ** 63n), 2n ** 63n - 1n, 9007199254740993n]]);
    same(await of([2n ** 64n - 1n], { dtype: "uint64" }), ["uint64", [1], [2n ** 64n - 1n]]);
    same(await of([true, false]), ["bool", [2], [true, false]]);
    same(await of([1, 2], { dtype: "int8" }), ["int8", [2], [1, 2]]);
    same(await of([[1, 2], [NaN, -0]], { dtype: "complex64" }), ["complex64", [2], [[1, 2], [NaN, -0]]]);
    same(await of([new Float32Array([1, 2]), new Float32Array([3, 4])], { dtype: "float32" }),
        ["float32", [2, 2], [[1, 2], [3, 4]]]);
    same(await of(7), ["float64", [], 7]);
    same(await of(2n ** 62n + 1n), ["int64", [], 2n ** 62n + 1n]);
    same(await of(1234567890.1234567), ["float64", [], 1234567890.1234567]);
});

live("lists and values have the elements that typed arrays have", async c => {
    const bits = Uint32Array.from({ length: 3000 }, (_, k) => Math.imul(k + 1, 0x9e3779b1)); // NaNs, subnormals, all signs
    bits.set([0, 0x80000000, 1, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0x00800000, 0x007fffff, 0x3f7fffff, 0x3f800001]);
    const f = new Float32Array(bits.buffer);
    const a = await c.array(f);
    same(await a.toList(), [...f]);
    same(await (await c.array(f, { dtype: "complex64" })).toList(), Array.from({ length: 1500 }, (_, k) => [f[2 * k], f[2 * k + 1]]));
    same(await c.value(expr`${a}[9]`), f[9]);
    const halves = Uint16Array.from({ length: 4096 }, (_, k) => k * 16 + (k >> 8));
    for (const dtype of ["float16", "bfloat16"]) {
        const h = await c.array(halves, { dtype });
        same(await h.toList(), [...await (await c.eval`astype(${h}, "float32")`).data()]);
    }
});

live("rank 0 and empty arrays", async c => {
    const one = await c.array(new Float64Array([2.5]), { shape: [] });
    same([one.shape, one.size, await one.item(), await one.data()], [[], 1, 2.5, new Float64Array([2.5])]);
    await one.put(3.5);
    same(await one.item(), 3.5);
    const none = await c.array(new Float32Array(0));
    same([none.shape, await none.data(), await none.toList()], [[0], new Float32Array(0), []]);
    same(await (await c.array([])).toList(), []);
    const wide = await c.zeros([3, 0, 2], { dtype: "int64" });
    await wide.put(new BigInt64Array(0));
    same(await wide.toList(), [[], [], []]);
});

live("creators", async c => {
    const list = async promise => (await promise).toList();
    same(await list(c.zeros(3)), [0, 0, 0]);
    same(await list(c.zeros([1, 2], { dtype: "bool" })), [[false, false]]);
    same(await list(c.full([2], 7)), [7, 7]);
    same(await list(c.full([2], 2n ** 60n + 1n)), [2n ** 60n + 1n, 2n ** 60n + 1n]);
    same(await list(c.full([1], [1, -2])), [[1, -2]]);
    same(await list(c.full(1, NaN, { dtype: "float32" })), [NaN]);
    same(await list(c.arange(0, 1, 0.25)), [0, 0.25, 0.5, 0.75]);
    same(await list(c.arange(0n, 3n)), [0n, 1n, 2n]);
    same(await list(c.arange(0, 3, 1, { dtype: "int16" })), [0, 1, 2]);
    same(await list(c.linspace(0, 1, 2, { endpoint: false })), [0, 0.5]);
    same(await list(c.eye(2, { m: 3, k: 1, dtype: "int8" })), [[0, 1, 0], [0, 0, 1]]);
    const r = await c.random([4], { seed: 2n ** 60n, name: "noise" });
    same(await list(c.random(4, { seed: 2n ** 60n })), await r.toList());
    assert.notDeepEqual(await list(c.random(4)), await list(c.random(4)));
    same(r.name, "noise");
    const g = await c.zeros([4], { ghost: [1], boundary: ["periodic"], dtype: "float32" });
    await g.put(new Float32Array([1, 2, 3, 4]));
    same(await (await g.fillGhost()).data({ ghost: true }), new Float32Array([4, 1, 2, 3, 4, 1]));
    same((await c.like(g)).meta.ghost, [1]);
});

live("names, lookup, replacement", async c => {
    const a = await c.array([1, 2], { name: "a" });
    same((await c.get("a")).id, a.id);
    same((await c.get(a.id)).name, "a");
    await fails("conflict", c.zeros(1, { name: "a" }));
    const b = await c.array(new Int8Array([5]), { name: "a", replace: true });
    assert.notEqual(b.id, a.id);
    same((await c.full(1, 3, { name: "a", replace: true })).name, "a");
    await fails("not_found", a.refresh());
    await fails("not_found", c.get("nobody"));
});

live("lists of arrays are read page by page", async c => {
    for (const name of ["p", "q", "r", "s", "t"])
        await c.zeros(1, { name });
    const all = await collect(c.list({ limit: 2 }));
    assert(all.every(a => a instanceof RemoteArray));
    same(all.map(a => a.name), ["p", "q", "r", "s", "t"]);
    for await (const a of c.list({ limit: 1 })) {
        same(a.name, "p");
        break;
    }
});

live("metadata, views, copies", async c => {
    const a = await c.array([[1, 2, 3], [4, 5, 6]]);
    const v = await a.view(":, ::-1");
    same([v.meta.view_of, v.meta.strides, await v.toList()], [a.id, [3, -1], [[3, 2, 1], [6, 5, 4]]]);
    const t = await a.view({ index: "1:", permute: [1, 0], name: "t" });
    same([t.name, t.shape, await t.data()], ["t", [3, 1], new Float64Array([4, 5, 6])]);
    const copy = await a.copy({ name: "copy" });
    await copy.put([[0, 0, 0], [0, 0, 0]]);
    same((await a.refresh()).meta.references, 3);
    await a.swap(copy);
    same(await t.toList(), [[0], [0], [0]]);
    await fails("conflict", a.resize(6));
    same(await (await copy.resize([3, 2])).toList(), [[1, 2], [3, 4], [5, 6]]);
    await a.patch({ name: "renamed", read_only: true });
    same([a.name, a.meta.read_only], ["renamed", true]);
    await fails("read_only", a.delete());
    await a.patch({ read_only: false });
    const lat = await c.array([1, 2]);
    await a.patch({ dims: ["lat", null], units: "K", attrs: { n: [1.5, null], text: "<b>" }, coords: { lat } });
    same([a.meta.dims, a.meta.units, a.meta.attrs], [["lat", null], "K", { n: [1.5, null], text: "<b>" }]);
    same(a.meta.coords, { lat: { array: lat.id, dims: ["lat"] } });
    same((await a.view({ index: "0" })).meta.attrs, a.meta.attrs);
    await a.patch({ attrs: { text: null }, units: null, coords: null });
    same([a.meta.units, a.meta.attrs, a.meta.coords], [undefined, { n: [1.5, null] }, undefined]);
    same((await c.zeros(2, { dims: ["t"], units: "s" })).meta.units, "s");
    const bytes = await c.array(Float32Array.of(1, 2), { shape: [1, 2], dims: [null, "lat"], units: "m/s & µ", attrs: { n: [1.5, null], "ä&=": "<b>" }, coords: { lat } });
    same([bytes.meta.dims, bytes.meta.units, bytes.meta.attrs], [[null, "lat"], "m/s & µ", { n: [1.5, null], "ä&=": "<b>" }]);
    same(bytes.meta.coords, { lat: { array: lat.id, dims: ["lat"] } });
    const named = await c.array(Uint8Array.of(1), { name: "of_bytes", replace: true, location: "host", dims: null, units: null, attrs: null, coords: null });
    same([named.meta.location, named.meta.dims, named.meta.units, named.meta.attrs], ["host", undefined, undefined, undefined]);
    same(await a.delete(), undefined);
    await fails("not_found", a.data());
    const flags = await c.zeros(1, { dtype: "bool" });
    const huge = await flags.view({ broadcast_to: [2 ** 27 + 1, 2 ** 27 - 1] });
    same(huge.meta.size, 2n ** 54n - 1n); // past 2^53 a number is a bigint, and exact
});

live("regions", async c => {
    const a = await c.array([[1, 2, 3], [4, 5, 6]], { dtype: "float32" });
    same(await a.data({ index: ":, 1:" }), new Float32Array([2, 3, 5, 6]));
    same(await a.item(1, 2), 6);
    await a.put(new Float32Array([7, 8]), { index: ":, 0" });
    await a.put(9, { index: [0, 2] });
    await a.put([[1, 1]], { index: "1:, 1:" });
    same(await a.toList(), [[7, 2, 9], [8, 1, 1]]);
    same((await fails("bad_index", a.item(2, 0))).status, 422);
});

live("streams and ranges", async c => {
    const data = new Float64Array(100_000).map((_, i) => i);
    const a = await c.array(data);
    const whole = new Uint8Array(await new Response(await a.stream()).arrayBuffer());
    same(new Float64Array(whole.buffer), data);
    const part = await new Response(await a.stream({ start: 8, end: 24 })).arrayBuffer();
    same(new Float64Array(part), new Float64Array([1, 2]));
    same((await new Response(await a.stream({ start: 799_992 })).arrayBuffer()).byteLength, 8);
    const chunks = (await a.stream()).getReader();
    assert((await chunks.read()).value instanceof Uint8Array);
    await chunks.cancel();
    assert.match(new TextDecoder("latin1").decode(await a.npy({ index: ":4" })), /NUMPY.*'shape': \(4,\)/);
    same((await fails("range_not_satisfiable", a.stream({ start: 800_000 }))).status, 416);
});

live("only what is still as it was", async c => {
    const a = await c.array([1, 2]);
    const tag = await a.etag();
    await a.put([3, 4], { ifMatch: tag });
    same((await fails("precondition_failed", a.put([5, 6], { ifMatch: tag }))).status, 412);
    same(await a.toList(), [3, 4]);
});

live("figures and pictures", async c => {
    const a = await c.array(new Float64Array([0, 1, 2, NaN, 4, 1e9]), { shape: [2, 3], name: "a" });
    const found = await a.summary({ bins: 2, lo: 0, hi: 10, percentiles: [50, 100], exact: true });
    same([found.count, found.finite, found.nan, found.min, found.max], [6, 5, 1, 0, 1e9]);
    same(found.histogram, { lo: 0, hi: 10, below: 0, above: 1, counts: [4, 0] });
    same(found.percentiles, [{ percent: 50, value: 2, error: 0 }, { percent: 100, value: 1e9, error: 0 }]);
    same((await a.summary({ index: "0" })).max, 2);
    const large = await c.array(new BigInt64Array([2n ** 62n + 1n]));
    same((await large.summary()).max, 2n ** 62n + 1n);
    const size = png => [new DataView(png).getUint32(16), new DataView(png).getUint32(20)];
    same(size(await a.picture()), [3, 2]);
    same(size(await a.picture({ width: 30, height: 20, index: ":, 1:", cmap: "viridis", lo: 0, hi: 4, bar: true })), [54, 20]);
    same(size(await c.picture("b*k", { width: 6, percentiles: [0, 100], bind: { b: a, k: 2 } })), [6, 4]);
    await fails("bad_field", a.picture({ cmap: "jet" }));
    await fails("bad_field", a.summary({ bins: 0 }));
});
