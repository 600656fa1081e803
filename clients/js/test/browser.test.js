// As in a browser: the modules in a world that has the web's globals alone, and a fetch that does what
// browsers do about pages from elsewhere: it asks beforehand, and hides what it was not told to show.
import assert from "node:assert/strict";
import fs from "node:fs";
import test from "node:test";
import vm from "node:vm";
import { origin, token, url } from "./live.js";

const read = name => fs.readFileSync(new URL(`../${name}`, import.meta.url), "utf8");
const SIMPLE = new Set(["accept", "accept-language", "content-language"]);
const SHOWN = ["cache-control", "content-language", "content-length", "content-type", "expires", "last-modified", "pragma"];
const words = text => (text ?? "").toLowerCase().split(/,\s*/).filter(Boolean);

/** fetch as a page of `from` has it; `asked` counts what it asked beforehand. */
function browserFetch(from, asked = []) {
    return async function (address, { method, headers, body, signal }) {
        if (this !== undefined)
            throw new TypeError("Illegal invocation");
        const names = Object.keys(headers).map(n => n.toLowerCase()).filter(n => !SIMPLE.has(n)).sort();
        if (!["GET", "HEAD", "POST"].includes(method) || names.length) {
            const answer = await fetch(address, { method: "OPTIONS", signal, headers: {
                Origin: from, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": names.join(",") } });
            const allowed = name => words(answer.headers.get(`Access-Control-Allow-${name}`));
            asked.push(method);
            if (!answer.ok || answer.headers.get("Access-Control-Allow-Origin") !== from || names.some(n => !allowed("Headers").includes(n))
                || !(allowed("Methods").includes(method.toLowerCase()) || ["GET", "HEAD", "POST"].includes(method)))
                throw new TypeError("Failed to fetch");
        }
        const reply = await fetch(address, { method, headers: { ...headers, Origin: from }, body, signal });
        if (reply.headers.get("Access-Control-Allow-Origin") !== from)
            throw new TypeError("Failed to fetch");
        const shown = [...SHOWN, ...words(reply.headers.get("Access-Control-Expose-Headers"))];
        const { status, statusText } = reply;
        return new Response(reply.body, { status, statusText, headers: [...reply.headers].filter(([n]) => shown.includes(n)) });
    };
}

/** The module as a page gets it, with those that it imports and nothing of Node's around it. */
function load(fetch) {
    const context = vm.createContext({ AbortController, AbortSignal, Headers, ReadableStream, Response, TextDecoder, TextEncoder, URL, URLSearchParams,
        clearTimeout, setTimeout, fetch });
    const loaded = {};
    const get = name => (loaded[name] ??= run(read(name)));
    const run = source => {
        const names = [...source.matchAll(/^export (?:async )?(?:class|const|function)\*? (\w+)/gm)].map(m => m[1]);
        const others = [...source.matchAll(/^export { (.*) } from "\.\/(.*)";$/gm)].map(m => `{ const { ${m[1]} } = get("${m[2]}"); Object.assign(all, { ${m[1]} }); }`);
        const script = source.replace(/^export {.*;$/gm, "").replace(/^export /gm, "").replace(/^import ({.*}) from "\.\/(.*)";$/gm, 'const $1 = get("$2");');
        return vm.runInContext(`"use strict"; get => { ${script}\nconst all = { ${names} }; ${others.join(" ")} return all; }`, context)(get);
    };
    return get("arrayd.js");
}

test("the modules import one another alone", () => {
    const files = fs.readdirSync(new URL("..", import.meta.url)).filter(f => f.endsWith(".js"));
    assert(files.length > 5);
    for (const file of files) {
        const source = read(file);
        for (const [, from] of source.matchAll(/^(?:import|export) .*\bfrom "(.*)";$/gm))
            assert(from.startsWith("./") && files.includes(from.slice(2)) && file !== "access.js", `${file} imports ${from}`);
        assert.doesNotMatch(source, /^\s*import\b(?! .* from "\.)|\bimport\(|\brequire\(|\bprocess\.|\bBuffer\b|node:/m);
    }
});

test("a page that the daemon lets in", async () => {
    const asked = [];
    const { connect, expr } = load(browserFetch(origin, asked));
    const s = await connect(url, { token }).createSession();
    try {
        const a = await s.array(new Float32Array([1, 2, 3]), { name: "a" });
        assert.deepEqual([...await a.data()], [1, 2, 3]);
        await a.put([5], { index: "1:2", ifMatch: await a.etag() });
        await a.patch({ name: "b" });
        assert.equal(await s.value(expr`sum(${a})`, { wait: 30 }), 9);
        assert.deepEqual([...(await s.compute("b*2")).data], [2, 10, 6]);
        const reader = (await a.stream({ start: 4 })).getReader();
        assert.equal((await reader.read()).value.length, 8);
        await reader.cancel();
        const e = await s.value("a + 1").catch(e => e);
        assert.deepEqual([e.code, e.source], ["unknown_name", "a + 1"]);
        assert.match(e.requestId, /\w+/);
        const job = await s.start("b += 1", { steps: 50 });
        let last;
        for await (const meta of job)
            last = meta;
        assert.equal(last.state, "done");
        await job.forget();
        await a.delete();
    } finally {
        await s.delete();
    }
    assert.deepEqual([...new Set(asked)].sort(), ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]);
});

test("a page that it does not", async () => {
    const { connect } = load(browserFetch("https://elsewhere.example"));
    await assert.rejects(connect(url, { token }).info(), { name: "TypeError", message: "Failed to fetch" });
});

test("the declarations name what there is", async () => {
    const module = await import("../arrayd.js");
    const declared = fs.readFileSync(new URL("../arrayd.d.ts", import.meta.url), "utf8");
    const exported = [...declared.matchAll(/^export (?:class|function|const) (\w+)/gm)].map(m => m[1]);
    assert.deepEqual([...new Set(exported)].sort(), Object.keys(module).sort());
    const { Access } = await import("../access.js");
    const all = declared + fs.readFileSync(new URL("../access.d.ts", import.meta.url), "utf8");
    for (const name of ["Client", "Session", "RemoteArray", "Job", "Access"]) {
        const body = new RegExp(`^export class ${name} .*?^}`, "ms").exec(all)[0];
        const told = [...body.matchAll(/^ {4}(?:readonly )?(\w+)\??[(<:]/gm)].map(m => m[1]);
        const own = { client: 0, meta: 0, id: 0, url: 0, session: 0 };
        const there = Object.getOwnPropertyNames((module[name] ?? Access).prototype).filter(n => !["send", "pages"].includes(n));
        for (const n of told)
            assert(there.includes(n) || n in own, `${name} has no ${n}`);
        for (const n of there)
            assert(told.includes(n), `${name}.${n} is not declared`);
    }
});
