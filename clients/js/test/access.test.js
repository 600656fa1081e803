// Leases, shares and grids.
import assert from "node:assert/strict";
import { client, fails, live } from "./live.js";

const same = assert.deepEqual;

live("a lease for writing is exclusive", async c => {
    const a = await c.array([1, 2, 3], { name: "a" });
    const lease = await a.lease({ ttl_s: 30 });
    same([lease.mode, lease.token.slice(0, 2), lease.array.id], ["write", "l-", a.id]);
    assert(Date.parse(lease.expires) > 0);
    await fails("locked", a.data());
    await fails("locked", a.lease());
    await lease.array.put([4, 5, 6]);
    same(await lease.client.value("sum(a)"), 15);
    same(lease.client.session, c.session);
    const b = await (await c.array([1], { name: "b" })).lease();
    await fails("locked", lease.client.value("sum(a) + b[0]"));
    const both = await lease.client.get("b"); // a second one beside it
    await b.end();
    const second = await both.lease();
    same(await second.client.value("sum(a) + b[0]"), 16);
    await second.end();
    await lease.end();
    same(await a.toList(), [4, 5, 6]);
    await fails("not_found", lease.end());
});

live("leases for reading, and their renewal", async c => {
    const a = await c.array([1, 2, 3]);
    const lease = await a.lease({ mode: "read" });
    same(await a.item(0), 1);
    await fails("locked", a.put([0, 0, 0]));
    await lease.array.put([0, 0, 0]); // the only one
    const { token, expires } = lease;
    same((await lease.renew({ mode: "write", ttl_s: 600 })).token, token);
    assert(lease.mode === "write" && Date.parse(lease.expires) > Date.parse(expires));
    await fails("locked", a.data());
    await lease[Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]();
    same(await a.toList(), [0, 0, 0]);
    same((await fails("bad_field", a.lease({ ttl_s: -1 }))).pointer, "/ttl_s");
    same((await fails("bad_field", a.lease({ mode: "both" }))).pointer, "/mode");
});

live("shares", async c => {
    const a = await c.array([1, 2]);
    const bob = client({ token: process.env.ARRAYD_OTHER });
    await fails("not_found", bob.get(a.id));
    same(await a.shares(), []);
    same(await a.share("b.o@b"), { principal: "b.o@b", access: "read" });
    const theirs = await bob.get(a.id);
    same(await theirs.toList(), [1, 2]);
    await fails("forbidden", theirs.put([3, 4]));
    await a.share("b.o@b", { access: "write" });
    await theirs.put([3, 4]);
    same(await a.shares(), [{ principal: "b.o@b", access: "write" }]);
    await a.unshare("b.o@b");
    await fails("not_found", theirs.data());
    await fails("not_found", a.unshare("b.o@b"));
    await fails("not_found", a.share("nobody"));
    same((await fails("bad_field", a.share("b.o@b", { access: "all" }))).pointer, "/access");
});

live("layouts, and where arrays are", async c => {
    const { padded, strides, pads } = await c.layout([[64, 65], [65, 64]], { ghosts: [[1, 1], [1, 1]] });
    same([padded, strides, pads], [[67, 80], [80, 1], [[1, 13], [0, 14]]]);
    const x = await c.zeros([64, 65], { ghost: [1, 1], padded });
    const y = await c.zeros([65, 64], { ghost: [1, 1], congruent_to: x });
    same([x.meta.strides, y.meta.strides], [[80, 1], [80, 1]]);
    same((await fails("bad_shape", c.layout([[1], [-1]]))).pointer, "/shapes/1/0");
    const h = await c.full(3, 7, { location: "host" });
    same([h.meta.location, await h.toList()], ["host", [7, 7, 7]]);
    same((await h.patch({ location: "device" })).meta.location, "device");
});
