// What the declarations allow, and what they do not: compiled, never run.
import { ArraydError, Client, Job, Lease, RemoteArray, Session, connect, expr, type Dtype, type JobMeta, type Value } from "arrayd";
import { Access } from "arrayd/access";

export async function allowed(fetch: typeof globalThis.fetch): Promise<number> {
    const c: Client = connect("http://127.0.0.1:7411", { token: "t", session: "s-1", fetch });
    const signal = new AbortController().signal;
    const s: Session = await c.createSession({ name: "s", ttl_s: 60, signal });
    await c.createSession({ device: 1 });
    await c.createSession({ device: "mesh" });
    const a: RemoteArray = await s.array(new Float32Array(6), { shape: [2, 3], name: "a", wait: 3 });
    await s.array(new BigInt64Array(1));
    await s.array(new SharedArrayBuffer(4), { dtype: "complex64" });
    await s.array([[1, 2n], [true, new Int8Array(2)]], { ghost: [1, 1], boundary: ["periodic", [{ type: "none" }, { type: "dirichlet", value: 1 }]] });
    await s.random([3], { distribution: "integers", seed: 2n ** 60n, low: 0, high: 9 });
    const dtype: Dtype = a.dtype;
    const data = await a.data<Float32Array>({ index: ":, 1" });
    const named: RemoteArray = await s.evaluate("a + 1", { name: "b", dtype });
    const out: RemoteArray = await s.evaluate(expr`${a} + ${1n}`, { out: a, index: "0" });
    const sum = await s.evaluate<number>("sum(a)", { let: { m: "mean(a)" }, bind: { a, k: [1, 2] } });
    const either: RemoteArray | Value = await s.eval`${a}*2`;
    const tree: Value = await s.value({ op: "add", args: [a, { op: "const", value: "1", dtype: "int8" }] });
    const { r } = await s.statements<RemoteArray>(["r = a*2", expr`${a} = r`]);
    const { shape } = await s.compute("a*2");
    for await (const each of s.list({ limit: 10 }))
        await each.delete();
    const job: Job = await s.start(["a += 1"], { steps: 10, record: { s: expr`sum(${a})` }, until: "all(a > 3)" });
    for await (const meta of job) {
        const state: JobMeta["state"] = meta.state;
        if (state === "failed")
            throw job.error;
    }
    const stream: ReadableStream<Uint8Array> = await a.stream({ start: 0, end: 8, signal });
    await stream.cancel();
    await (await a.view("::2")).put([1, 2], { ifMatch: await a.etag() });
    await a[Symbol.asyncDispose]();
    await s[Symbol.asyncDispose]();
    const lease: Lease = await a.lease({ mode: "read", ttl_s: 5, wait: 1 });
    await (await lease.renew({ mode: "write" })).array.put([1, 2]);
    await lease.end();
    for (const { principal, access } of await a.shares())
        await a.share(principal, { access: access === "read" ? "write" : access });
    await s.zeros([3], { padded: (await s.layout([[3], [4]], { ghosts: [[1], [1]] })).padded, location: "host" });
    const pngs: ArrayBuffer[] = [await a.picture({ cmap: "viridis", percentiles: [1, 99], index: "0" }), await s.picture(expr`${a}*2`, { width: 9, bind: { k: 1 } })];
    const { min, histogram } = await a.summary({ bins: 8, percentiles: [50], exact: true });
    for await (const { arrays, jobs, gone, first } of c.changes({ interval: 1, jobs: false, signal }))
        if (first && gone.includes(arrays?.[0].id ?? jobs?.[0].id ?? ""))
            break;
    for await (const { png, range: [lo, hi] } of a.frames({ cmap: "gray", index: "0", interval: 0.5, retries: 1 }))
        pngs.push(png), await a.picture({ lo, hi });
    for await (const { shape, read_only } of a.changes())
        if (read_only || shape.length > 3)
            break;
    const access = new Access(c);
    const { url } = await access.createLink({ expires_s: 60, arrays: [a, "b"], jobs: [job], signal });
    for await (const { owner, array } of access.arrays({ limit: 5 }))
        await access.endArray(array.id), await access.setPrincipal(owner, { weight: null, quotas: { arrays: 3 } });
    if (url === "" || min === null || histogram.counts.length === pngs.length)
        await access.logIn({ link: (await access.links())[0].id });
    const e = new ArraydError({ status: 422, code: "bad_name", detail: "" });
    return data.length + sum + named.size + out.size + r.size + shape.length + (e.retryAfter ?? 0) + (either === tree ? 1 : 0);
}

export async function refused(c: Client, a: RemoteArray): Promise<void> {
    // @ts-expect-error: no such type
    await c.zeros(3, { dtype: "float" });
    // @ts-expect-error: a number of steps is needed
    await c.start("a += 1", {});
    // @ts-expect-error: text is data of no array
    await c.array("abc");
    // @ts-expect-error: not a value
    await c.eval`${a} + ${{}}`;
    // @ts-expect-error: the id is the daemon's
    a.id = "a-1";
    // @ts-expect-error: value makes no array
    await c.value("a", { out: a });
    // @ts-expect-error: what goes to `out` is an array
    const n: number = await c.evaluate("a", { out: a });
    // @ts-expect-error: no such colours
    await a.picture({ cmap: "jet" });
    // @ts-expect-error: a token or a link
    await new Access(c).logIn({});
    // @ts-expect-error: no such access
    await a.share("ann", { access: "all" });
    // @ts-expect-error: bytes have no ghosts
    await c.array(new ArrayBuffer(8), { dtype: "int8", ghost: [n] });
}
