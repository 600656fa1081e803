// Expressions: text, templates, trees; where results go; statements and functions.
import assert from "node:assert/strict";
import { Expression, RemoteArray, expr } from "../arrayd.js";
import { collect, fails, live } from "./live.js";

const same = (got, want) => assert.deepStrictEqual(got, want);

live("results become arrays, values, or data", async c => {
    const u = await c.array([[1, 2], [3, 4]], { name: "u" });
    const twice = await c.evaluate("2*u");
    assert(twice instanceof RemoteArray);
    same([twice.name, await twice.toList()], [null, [[2, 4], [6, 8]]]);
    same(await c.evaluate("sum(u)"), 10);
    const named = await c.evaluate("u + 1", { name: "v", dtype: "int16" });
    same([named.name, named.dtype], ["v", "int16"]);
    const out = await c.evaluate("0", { out: u, index: "0, :" });
    same([out.id, await u.toList()], [u.id, [[0, 0], [3, 4]]]);
    same(await c.value("u > 0"), [[false, false], [true, true]]);
    same(await c.compute("u[1]*2.5"), { dtype: "float64", shape: [2], data: new Float64Array([7.5, 10]) });
    same(await c.compute("any(u > 3)"), { dtype: "bool", shape: [], data: new Uint8Array([1]) });
    same(await c.value("a + k", { bind: { a: u, k: 0.5 } }), [[0.5, 0.5], [3.5, 4.5]]);
    same(await c.value("(u - m)/s", { let: { m: "mean(u)", s: "m + 1" } }), await c.value("(u - mean(u))/(mean(u) + 1)"));
    same(await c.value("s", { let: [["m", "2"], ["s", "m*m"]] }), 4n);
});

live("compute knows every type", async c => {
    const types = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "bfloat16", "float32", "float64", "complex64", "complex128"];
    for (const dtype of types) {
        const a = await c.zeros([2, 3], { dtype });
        const { data, ...what } = await c.compute(expr`${a} + zeros`, { bind: { zeros: a } }).catch(e => assert.fail(e));
        same(what, { dtype, shape: [2, 3] });
        same(data, await a.data());
    }
});

live("integers are exact both ways", async c => {
    const large = 2n ** 53n + 1n;
    const a = await c.array([1n, 2n], { name: "a" });
    same(await c.value("a + 9007199254740993"), [large + 1n, large + 2n]);
    same(await c.value(expr`${a} + ${large}`), [large + 1n, large + 2n]);
    same(await c.value(expr`${a} + ${-(2n ** 63n)}`), [1n - 2n ** 63n, 2n - 2n ** 63n]);
    same(await c.value(expr`${2n ** 64n - 1n}`), 2n ** 64n - 1n);
    same(await c.value("k", { bind: { k: large } }), large);
    same(await c.evaluate("sum(a)"), 3n);
    same(await c.value("9007199254740993 + 0"), large);
    same(await c.value("int8", { bind: { int8: 7n } }), 7n);
});

live("NaN, infinities, complex numbers, booleans", async c => {
    same(await c.value("nan"), NaN);
    same(await c.value(expr`${NaN}`), NaN);
    same(await c.value(expr`[${0}, 1][0]`), 0n);
    same(await c.value(expr`-${Infinity}`), -Infinity);
    same(await c.value(expr`${[1, 2]} * ${[0, 1]}`), [-2, 1]);
    same(await c.value(expr`where(${true}, ${1.5}, 2)`), 1.5);
    same(await c.value("-0.0*1.0"), -0);
    same(await c.value(expr`${-0} * 1.0`), -0);
    const z = await c.array([[NaN, 1], [-Infinity, -0]], { dtype: "complex128" });
    same(await z.toList(), [[NaN, 1], [-Infinity, -0]]);
    same((await c.compute(expr`${z}`)).data, new Float64Array([NaN, 1, -Infinity, -0]));
});

live("templates bind what is in them", async c => {
    const a = await c.array([-1, 2]);
    const k = 10;
    const relu = await c.eval`where(${a} > 0, ${a}, ${k})`;
    assert.equal(await c.eval("1 + 2"), 3n); // with a text it is evaluate()
    same(await relu.toList(), [10, 2]);
    same(await c.evaluate(expr`sum(${a}, axis=${0})`), 1);
    const square = expr`${a}**2`;
    assert(square instanceof Expression);
    same(await c.value(expr`${square} + 2*${square}`), [3, 12]);
    same(await c.value(expr`-${expr`${1} - ${2}`}`), 1n);
    await c.array([5], { name: "_v0" });
    same(await c.value(expr`_v0 + ${1}`), [6]);
    same(await c.value(expr`s + ${"_v0"}`, { let: { s: expr`${7}` } }), [12]);
    same(await c.value("_v1", { bind: { _v1: 3 }, let: { x: expr`${4}` } }), 3n);
    same((await fails("bad_field", c.value(expr`${"1 + 1"}`))).pointer, "/bind/_v0");
    await assert.rejects(c.value(expr`${{}}`), TypeError);
    await assert.rejects(c.value(expr`${undefined}`), TypeError);
    const out = await c.evaluate(expr`${a}*2`, { out: a });
    same(await out.toList(), [-2, 4]);
});

live("trees", async c => {
    const a = await c.array([1, -2], { name: "a" });
    const tree = { op: "where", args: [{ op: "greater", args: ["a", 0] }, a, { op: "const", value: "9", dtype: "int8" }] };
    same(await c.value(tree), [1, 9]);
    same(await c.value(2.5), 2.5);
});

live("statements are done all or none", async c => {
    const v = await c.array([1, 2, 3], { name: "v" });
    const r = await c.statements(["t = v*2", "s = sum(t)", expr`${v}[1:] = ${v}[1:] + ${1}`], { bind: { v } });
    same([await r.t.toList(), r.s, await v.toList()], [[2, 4, 6], 12, [1, 3, 4]]);
    same(await c.statements("s = v + 1", { results: ["s"], inline: true }), { s: [2, 4, 5] });
    const e = await fails("unknown_name", c.statements(["v += 1", "v += nobody"]));
    same([e.pointer, e.source], ["/statements/1", "v += nobody"]);
    same(await v.toList(), [1, 3, 4]);
});

live("functions", async c => {
    const name = `js_mix_${process.pid}`;
    await c.defineFunction(name, ["x", "t"], "x*t");
    try {
        same(await c.value(`${name}(3, t=2)`), 6n);
        await fails("conflict", c.defineFunction(name, ["x"], "x"));
        const tree = { op: "add", args: ["x", "t"] };
        await c.defineFunction(name, ["x", "t"], tree, { replace: true });
        same(await c.value(`${name}(3, 2)`), 5n);
        same((await collect(c.functions())).find(f => f.name === name).tree, tree);
    } finally {
        await c.deleteFunction(name);
    }
});

live("explain runs nothing", async c => {
    await c.array([1, 2], { name: "u" });
    const how = await c.explain(expr`u + ${1}`, { out: "u" });
    assert(how.kernels.length > 0);
    same(await (await c.get("u")).toList(), [1, 2]);
});
