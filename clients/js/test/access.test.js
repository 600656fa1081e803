// Leases, shares and grids; links, logins, and what operators see and end.
import assert from "node:assert/strict";
import { Access } from "../access.js";
import test from "node:test";
import { client, collect, fails, live, token } from "./live.js";

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
    const shared = (await collect(bob.list({ shared: true }))).filter(({ id }) => id === a.id); // other tests share with him, too
    same(shared.map(({ meta }) => [meta.owner, meta.read_only]), [[(await c.info()).principal.name, true]]);
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

live("links", async c => {
    const access = new Access(c);
    const a = await c.array([1, 2], { name: "a" });
    const job = await (await c.start("a += 1", { steps: 1 })).wait();
    const before = (await access.links()).length;
    const link = await access.createLink({ expires_s: 600, arrays: [a], jobs: [job.id] });
    same([link.arrays, link.jobs, link.url.slice(0, 7)], [[a.id], [job.id], "/#link="]);
    same((await access.links()).length, before + 1);
    same((await access.createLink({ expires_s: 600 })).arrays, null);
    for (const { id } of await access.links())
        await access.deleteLink(id);
    same(await access.links(), []);
    await fails("not_found", access.deleteLink(link.id));
    same((await fails("bad_field", access.createLink({ expires_s: -1 }))).pointer, "/expires_s");
});

test("an id stays in its place", async () => {
    const asked = [];
    const c = { json: (method, path) => void asked.push(path) };
    const access = new Access(c);
    const ends = { "/links/": "deleteLink", "/admin/sessions/": "endSession", "/admin/jobs/": "endJob", "/admin/arrays/": "endArray",
                   "/admin/principals/": "endPrincipal", "/faults/": "forgetFault" };
    for (const [path, end] of Object.entries(ends)) {
        await access[end]("../principals/b.o@b?x#");
        same(asked.pop(), `${path}..%2Fprincipals%2Fb.o@b%3Fx%23`);
        for (const id of [".", ".."])
            assert.throws(() => access[end](id), TypeError);
    }
    assert.throws(() => access.setPrincipal("..", {}), TypeError);
    await assert.rejects(access.endLogins({ principal: ".." }), TypeError);
    same(asked, []);
});

live("logins", async c => {
    const access = new Access(c);
    same((await access.login()).principal, "ann");
    const guest = new Access(client({ token: undefined }));
    same((await guest.login()).principal, null);
    const link = await access.createLink({ expires_s: 600 });
    const said = await guest.logIn({ link: link.url.slice("/#link=".length) });
    same([said.principal, said.role], ["ann", "viewer"]);
    same((await guest.logIn({ token })).role, "user");
    await fails("unauthorized", guest.logIn({ token: "no-such-token" }));
    await guest.logOut();
    await guest.logIn({ token });
    assert(await access.endLogins() >= 1);
    same(await access.endLogins(), 0);
    await guest.logIn({ token });
    const operator = new Access(client({ token: process.env.ARRAYD_OPERATOR }));
    same(await operator.endLogins({ principal: "ann" }), 1);
    await fails("forbidden", access.endLogins({ principal: "b.o@b" }));
    await access.deleteLink(link.id);
});

live("an operator's hands", async c => {
    const operator = new Access(client({ token: process.env.ARRAYD_OPERATOR }));
    await fails("forbidden", collect(new Access(c).principals()));
    const a = await c.array([1, 2], { name: "a" });
    const names = (await collect(operator.principals({ limit: 1 }))).map(p => p.name);
    assert(names.includes("ann"));
    assert((await collect(operator.arrays())).some(({ owner, array }) => owner === "ann" && array.id === a.id));
    assert((await collect(operator.sessions())).some(({ session }) => session.id === c.session));
    const job = await c.start("a += 1", { steps: 1e12 });
    assert((await collect(operator.jobs())).some(x => x.job.id === job.id));
    same((await operator.endJob(job.id)).state, "cancelled");
    same(await operator.endJob(job.id), undefined);
    await operator.endArray(a.id);
    await fails("not_found", a.refresh());
    same((await operator.setPrincipal("b.o@b", { weight: 3, quotas: { arrays: 5 } })).changed, { weight: 3, arrays: 5 });
    same((await operator.setPrincipal("b.o@b", { weight: null, quotas: { arrays: null } })).changed, {});
    const other = await client().createSession();
    await operator.endSession(other.id);
    await fails("not_found", other.delete());
    await fails("not_found", operator.endPrincipal("nobody@home"));
    assert((await collect(operator.audit())).some(({ action, target }) => action === "delete_array" && target.includes(a.id)));
    same(await operator.faults(), { work: [], users: [] });
    await operator.forgetFaults();
    await fails("not_found", operator.forgetFault("b.o@b"));
});
