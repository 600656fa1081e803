"""Calls of the Python client's beside the array namespace: grids, memory, shares, lists; and that the namespace has every
operation of the daemon's."""
import asyncio
import pickle

import numpy as np
import pytest

from test_client_python import DTYPES, arrayd, same, xp  # noqa: F401
from test_client_python_async import run, url
from arrayd.numpy._hosted import Hosted

pytestmark = pytest.mark.release_only  # it is the client that is tested here

WALLS = [[{"type": "dirichlet", "value": 10}, {"type": "neumann", "value": 2}]]
# Operations of the daemon's that the namespace does not have, and why.
WITHOUT = {"index": "an expression of Python's has no shape around it: xp.indices, xp.mgrid and xp.arange say theirs",
           "sliding_windows": "NumPy's name of it is lib.stride_tricks.sliding_window_view",
           "unravel_index": "NumPy's has another meaning: one outside is a mistake, and the places along all axes are given"}


# --- operations ---


def test_every_operation_of_the_daemon_s(xp):  # noqa: F811
    listed = {o["name"] for o in xp.info()["operations"]}
    assert len(listed) > 100
    missing = {name for name in listed if isinstance(getattr(xp, name, None), (Hosted, type(None)))}
    assert missing == set(WITHOUT)


def correlated(a, w, mode, **more):
    """What docs/expressions.md says."""
    w = np.asarray(w)
    front = [n // 2 for n in w.shape]
    padded = np.pad(a, [(n, n) for n in w.shape], mode, **more)
    total = 0
    for j in np.ndindex(*w.shape):
        at = tuple(slice(n + k - f, n + k - f + size) for n, k, f, size in zip(w.shape, j, front, a.shape))
        total = total + w[j] * padded[at]
    return total


def test_correlate(xp):  # noqa: F811
    a = np.random.default_rng(1).random((7, 9))
    x, w = xp.asarray(a), [[0.5, -1, 0.25], [2, 0, 1]]
    for boundary, mode in (("wrap", "wrap"), ("clamp", "edge"), ("reflect", "reflect")):
        np.testing.assert_allclose(xp.correlate(x, w, boundary=boundary).numpy(), correlated(a, w, mode), rtol=1e-13)
    np.testing.assert_allclose(xp.correlate(x, np.asarray(w), boundary="constant", value=3).numpy(),
                               correlated(a, w, "constant", constant_values=3), rtol=1e-13)
    np.testing.assert_allclose(np.asarray(xp.correlate(x + 1, [[1]], boundary="self")), a + 1)
    for wrong, error in (([1, 2], ValueError), ([[]], ValueError), ([["a"]], TypeError), ([[1j]], TypeError), ([[1, 2], [3]], ValueError)):
        with pytest.raises(error):
            xp.correlate(x, wrong, boundary="self")
    with pytest.raises(OverflowError, match="300"):
        xp.correlate(xp.asarray([1], dtype="int8"), [300], boundary="self")
    with pytest.raises(ValueError, match="boundary"):
        xp.correlate(x, w, boundary="round").compute()
    one = xp.arange(4.0)  # without a boundary it is NumPy's
    for mode in ("valid", "same", "full"):
        for correlate in (np.correlate, xp.correlate):
            same(correlate(one, xp.asarray([1.0, 2.0]), mode), np.correlate(np.arange(4.0), [1.0, 2.0], mode))


def test_combinations(xp):  # noqa: F811
    t, v, a, b = (np.random.default_rng(k).random((3, 4)) + 1 for k in range(4))
    same(xp.addcmul(*map(xp.asarray, (t, v, a, b))), t + v * a * b)
    same(xp.addcdiv(xp.asarray(t), 2, xp.asarray(a[0]), b), t + 2 * a[0] / b)
    same(xp.addcmul(1, 2, xp.asarray([1, 2]), 3), np.asarray([7, 13]))
    with pytest.raises(TypeError, match="addcmul"):
        xp.addcmul(1, 2, 3, 4)
    with pytest.raises(ValueError, match="broadcast"):
        xp.addcdiv(xp.zeros(2), 1, xp.zeros(3), 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_their_dtypes_are_the_servers(xp, dtype):  # noqa: F811
    x = xp.ones(3, dtype=dtype).compute()
    for y in (*(xp.correlate(x, w, boundary="wrap") for w in ([1, 2], [0.5, 1.0], [True])), xp.addcmul(x, x, x, x), xp.addcmul(x, x, 2, 0.5),
              xp.addcdiv(x, x, x, x), xp.addcdiv(x, 1, x, 2)):
        assert xp.metadata(y.compute())["dtype"] == arrayd._dtypes.name_of(y.dtype)


# --- grids ---


def test_a_grid(xp):  # noqa: F811
    u = xp.grid(4, ghost=[1], boundary=WALLS, spacing=(np.float32(0.5),))
    m = xp.metadata(u)
    assert m["ghost"] == [1] and m["boundary"] == WALLS and m["spacing"] == [0.5] and m["dtype"] == "float64" and u.name is None
    u[...] = xp.arange(4.0) + 1
    before, number = xp.laplacian(u, boundary="ghost", spacing="array"), u.id
    assert u.read(ghost=True).tolist() == [0, 1, 2, 3, 4, 0]
    assert u.fill_ghost() is u
    assert u.read(ghost=True).tolist() == [19, 1, 2, 3, 4, 5]
    assert before.numpy().tolist() == [0, 0, 0, -20]  # made before: of the ghosts as they were
    assert xp.laplacian(u, boundary="ghost", spacing="array").numpy().tolist() == [76, 0, 0, 0]
    u[0] = 7.0  # in place: its ghosts stay
    u *= 2
    u[u > 13] = 1.0
    assert u.read(ghost=True).tolist() == [19, 1, 4, 6, 8, 5] and u.id == number
    assert u.read("-1:1", ghost=True).tolist() == [19, 1] and u.read("::2").tolist() == [1, 6]
    assert u.write([3.0, 4.0], "-1:1", ghost=True) is u
    assert u.read(ghost=True).tolist() == [3, 4, 4, 6, 8, 5] and float(u[0]) == 4
    assert float(u.write(np.float32([9, 9, 9, 9]))[2]) == 9
    with pytest.raises(ValueError, match="length_mismatch"):
        u.write([1.0])
    with pytest.raises(TypeError, match="complex"):
        u.write([1j] * 4)
    with pytest.raises(IndexError):
        u.read("-3", ghost=True)
    with pytest.raises(ValueError, match="view"):
        u[1:].fill_ghost()


def test_grids_of_one_layout(xp):  # noqa: F811
    layout = xp.layout([(64, 65), [65, 64]], np.ones((2, 2), int))
    assert layout == {"padded": [67, 80], "strides": [80, 1], "pads": [[1, 13], [0, 14]]}
    vx = xp.grid((65, 64), "float32", ghost=(1, 1), padded=layout["padded"], fill=2)
    vy = xp.grid((64, 65), "float32", ghost=(1, 1), congruent_to=vx, location="host", alignment=256)
    assert xp.metadata(vx)["strides"] == xp.metadata(vy)["strides"] == [80, 1]
    assert vy.location == "host" and xp.metadata(vy)["alignment"] == 256 and float(xp.sum(vx)) == 2 * 64 * 65
    like = xp.grid(like=vx, name="field")
    assert like.shape == (65, 64) and like.dtype == np.float32 and xp.metadata("field")["ghost"] == [1, 1] and not like.numpy().any()
    assert xp.grid(3, name="field").shape == (3,) and xp.grid(like="field").shape == (3,)
    xp.delete("field")
    for wrong in (lambda: xp.grid(3, ghost=[1, 1]), lambda: xp.grid(3, boundary=["round"]), lambda: xp.layout([[1], [2, 2]]),
                  lambda: xp.grid(3).patch(boundary=["round"]), lambda: xp.grid(3, name="a b"), lambda: xp.grid(-1)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(arrayd.NotFound):
        xp.grid(like="nobody")


def test_copies_and_programs_of_a_grid(xp):  # noqa: F811
    u = xp.grid(100, ghost=[1], boundary=[[{"type": "neumann", "value": 0}] * 2])
    u[40:60] = 1.0
    v = u.copy()  # an ordinary array
    v[0] = 5.0
    assert xp.metadata(v)["ghost"] == [0] and float(u[0]) == 0 and float(v[0]) == 5
    same = u.view()
    u[0] = 0.5
    assert float(same[0]) == 0.5
    u[0] = 0.0
    with pytest.raises(ValueError, match="ghost_width"):
        xp.laplacian(v, boundary="ghost").compute()
    xp.program(["fill_ghost(u)", "u += 0.1*laplacian(u, boundary='ghost')"], steps=800, u=u).wait(60)
    np.testing.assert_allclose(u.numpy()[[0, 29, 49]], [0.00158441, 0.195173, 0.570679], atol=1e-6)
    u.patch(boundary=["periodic"], spacing=[2])
    assert u.fill_ghost().read("-1", ghost=True) == u.numpy()[-1] and xp.metadata(u)["spacing"] == [2]


# --- memory ---


def test_swap(xp):  # noqa: F811
    a, b = xp.zeros(3).compute(), xp.ones(3).compute()
    ids, later, view = (a.id, b.id), a + b * 2, a[1:]
    xp.swap(a, b)
    assert a.numpy().tolist() == [1, *view.numpy().tolist()] == [1, 1, 1] and not b.numpy().any() and (a.id, b.id) == ids
    assert later.numpy().tolist() == [2, 2, 2]
    x, y = xp.save("x", a), xp.save("y", b)
    xp.swap(x, "y")
    assert not x.numpy().any() and float(xp.sum(y)) == 3 and y.name == "y"
    xp.swap("x", "y")
    assert float(xp.sum(xp.array("x"))) == 3
    with pytest.raises(arrayd.Conflict):
        xp.swap(a, xp.zeros(4).compute())
    with pytest.raises(arrayd.NotFound):
        xp.swap(a, "nobody")


def test_resize(xp):  # noqa: F811
    a = np.arange(6.0)
    for shape in ((2, 3), 4, (3, 3), (0,), 0, (2, 2, 2), ()):
        x, mine, here = xp.asarray(a) + 0, xp.save("mine", a), a.copy()
        for y in (x, mine):
            number, later = y.id, y * 2
            y.resize(shape)
            here.resize(shape, refcheck=False)
            same(y, here)
            assert y.id == number and xp.metadata(y)["shape"] == list(here.shape)
            same(later, a * 2)
        same(xp.array("mine"), here)
        x += 1
        same(x, here + 1)
    x = xp.zeros(4)
    x.resize(2, 2)
    assert x.shape == (2, 2)
    view = x[0]
    with pytest.raises(ValueError, match="views"):
        x.resize(3)
    with pytest.raises(ValueError, match="negative"):
        x.resize(-3)
    del view
    x.resize(3)
    server = xp.request("POST", f"/v1/arrays/{x.id}/views", {})
    with pytest.raises(arrayd.Conflict):
        x.resize(2)
    xp.delete(server["id"])


def test_where_it_is(xp):  # noqa: F811
    x = xp.arange(1000.0) * 2
    assert x.location == "device"
    assert x.move_to("host") is x and x.location == x[1:].location == "host"
    assert float(x.numpy()[7]) == 14
    assert x[::2].move_to("device").shape == (500,) and x.location == "device"
    with pytest.raises(ValueError, match="location"):
        x.move_to("moon")


def test_names_and_writing(xp):  # noqa: F811
    x = xp.arange(3.0) + 0
    later = x + 1
    assert x.patch(name="called") is x and x.name == "called"
    x[0] = 9.0
    assert xp.array("called").numpy().tolist() == [9, 1, 2] and later.numpy().tolist() == [1, 2, 3]
    del x
    xp.release()
    held = xp.array("called").patch(read_only=True)
    for write in (lambda: held.__setitem__(0, 1.0), lambda: xp.delete("called"), lambda: held.write([0.0] * 3)):
        with pytest.raises(arrayd.Conflict):
            write()
    own = (xp.arange(3.0) + 1).patch(read_only=True)
    with pytest.raises(arrayd.Conflict):
        own += 1
    own.patch(read_only=False)
    own += 1
    assert own.numpy().tolist() == [2, 3, 4]
    held.patch(read_only=False)
    xp.delete("called")


def test_values_of_every_dtype(xp):  # noqa: F811
    for dtype in DTYPES + ["bfloat16"]:
        x = xp.astype(xp.asarray([[1, 0], [1, 1]]), dtype)
        assert x.read().tobytes() == x.numpy().tobytes() and x.read().dtype == x.dtype
        assert x.read(":, 1").shape == (2,)
        x.write(xp.astype(xp.asarray([1, 1]), dtype), "0")
        same(xp.astype(x, "complex128"), np.ones((2, 2), complex))
    with pytest.raises(TypeError, match="float64"):
        xp.ones(2, dtype="int32").write([0.5, 1])


# --- shares ---


@pytest.fixture
def two(daemon_with, accounts):
    tokens = [accounts.add(name) for name in ("ann", "b.o@b")]
    d = daemon_with("--accounts", accounts.path)
    clients = [arrayd.connect(f"http://127.0.0.1:{d.port}", token) for token in tokens]
    yield clients
    for client in clients:
        client.close()


def test_shares(two):
    ann, bob = two
    x = ann.zeros(3)
    later = x + 1
    assert x.shares() == []
    assert x.share("b.o@b") == {"principal": "b.o@b", "access": "read"}
    theirs = bob.array(x.id)
    assert theirs.numpy().tolist() == [0, 0, 0]
    x[0] = 5.0  # in place
    assert theirs.numpy().tolist() == [5, 0, 0] and later.numpy().tolist() == [1, 1, 1]
    with pytest.raises(arrayd.Denied):
        theirs[1] = 6.0
        bob.sync()
    assert [(m["id"], m["owner"], m["read_only"]) for m in bob.arrays(shared=True)] == [(x.id, "ann", True)]
    assert list(bob.arrays()) == list(ann.arrays(shared=True)) == []
    x.patch(units="K", dims="x")
    part = bob.save("part", theirs[1:])  # of others' arrays there are no views on the server, which would keep what is said of them
    assert part.tolist() == [0, 0] and part.units is None
    bob.delete("part")
    ann.share(x, "b.o@b", "write")
    theirs[1] = 6.0
    assert x.numpy().tolist() == [5, 6, 0]
    theirs += 1
    assert x.numpy().tolist() == [6, 7, 1] and ann.shares(x.id) == [{"principal": "b.o@b", "access": "write"}]
    x.unshare("b.o@b")
    with pytest.raises(arrayd.NotFound):
        theirs.numpy()
    ann.save("x", x)
    ann.share("x", "b.o@b")
    assert bob.array(ann.metadata("x")["id"]).shape == (3,)
    ann.unshare("x", "b.o@b")
    for wrong, error in ((lambda: ann.unshare("x", "b.o@b"), arrayd.NotFound), (lambda: ann.share("x", "nobody"), arrayd.NotFound),
                         (lambda: ann.share("x", "ann"), ValueError), (lambda: ann.share("x", "b.o@b", "all"), ValueError),
                         (lambda: ann.unshare("x", ""), ValueError), (lambda: ann.shares("nobody"), arrayd.NotFound)):
        with pytest.raises(error):
            wrong()
    ann.delete("x")


# --- what is there ---


def test_lists(xp):  # noqa: F811
    with xp.session(name="mine") as own:
        assert [s["name"] for s in xp.sessions()] == ["default", "mine"]
        job = own.program(["u += 1"], steps=3, u=own.zeros(3)).wait(60)
        assert [j["id"] for j in own.jobs()] == [job.id]
    assert [s["name"] for s in xp.sessions()] == ["default"]
    xp.define("twice", ["x"], "2*x")
    assert [f["name"] for f in xp.functions()] == ["twice"]
    xp.delete_function("twice")
    assert xp.functions() == []
    with pytest.raises(arrayd.NotFound):
        xp.delete_function("twice")


def test_explain(xp):  # noqa: F811
    u = xp.asarray(np.ones((3, 4)))
    explained = xp.explain("sum(u*k)", u=u, k=2)
    assert explained["result"]["shape"] == [] and explained["kernels"] and explained["bytes_read"] == 96
    with pytest.raises(arrayd.BadValue, match=r"nobody\n"):
        xp.explain("u + nobody", u=u)


# --- asynchronously ---


def test_awaited(api, daemon):
    async def steps():
        async with arrayd.aconnect(url(daemon)) as xp:  # noqa: F811
            u = await xp.grid(4, ghost=[1], boundary=["periodic"])
            assert isinstance(u, arrayd.AsyncArray)
            with pytest.raises(RuntimeError, match="await"):
                u[0] = 1.0
            await u.assign(..., [1.0, 2.0, 3.0, 4.0])
            assert await u.fill_ghost() is u and (await u.read(ghost=True)).tolist() == [4, 1, 2, 3, 4, 1]
            await u.write([7.0], "-1", ghost=True)
            assert await xp.shift(u, [-1], boundary="ghost").tolist() == [7, 1, 2, 3]
            v = await xp.grid(like=u)
            await asyncio.gather(xp.swap(u, v))
            assert await v.tolist() == [1, 2, 3, 4] and not (await u.numpy()).any()
            await v.resize(2)
            assert v.shape == (2,) and await v.tolist() == [1, 2]
            assert await (await v.move_to("host")).location == "host"
            await v.patch(name="v", spacing=[2])
            assert (await xp.metadata("v"))["spacing"] == [2]
            assert await v.shares() == [] == await xp.jobs() and len(await xp.sessions()) == 1 == len((await xp.layout([[3]]))["padded"])
            with pytest.raises(arrayd.NotFound):
                await v.share("nobody")
            with pytest.raises(arrayd.NotFound):
                await xp.unshare("v", "nobody")
            assert await xp.correlate(v, [1, 1], boundary="wrap").tolist() == [3, 3]
            assert (await xp.explain("v + 1"))["bytes_read"] == 16
            await xp.delete("v")

    run(steps())


def test_a_grid_in_a_pickle(xp):  # noqa: F811
    u = xp.grid(3, ghost=[1])
    again = pickle.loads(pickle.dumps(u))
    again[...] = 4.0
    assert u.numpy().tolist() == [4, 4, 4] and again.fill_ghost().read(ghost=True).tolist() == [0, 4, 4, 4, 0]
    xp.delete(u)


def test_looks_at_such_memory_are_not_foreseen(xp):  # noqa: F811
    """A loop whose operations are the same in each step, of memory that is not."""
    for u in (xp.grid(4000, ghost=[1]), xp.zeros(4000).compute()):
        total = xp.zeros(())
        for k in range(30):
            total = total + xp.max(u.write(np.full(4000, float(k))))
            assert float(total) == k * (k + 1) / 2
    a, b, total = xp.zeros(4000).compute(), xp.ones(4000).compute(), xp.zeros(())
    for k in range(30):
        xp.swap(a, b)
        total = total + xp.max(a)
        assert float(total) == k // 2 + 1


def test_a_session_that_there_is(daemon):
    """It is connected to by its id, and is there when the client has been closed."""
    c = daemon.client()
    other = c.expect(201, c.post("/v1/sessions", {})).json()["id"]
    inside = {"Arrayd-Session": other}
    c.expect(201, c.post("/v1/arrays", {"name": "u", "data": [1.0, 2.0]}, headers=inside))
    with arrayd.connect(url(daemon), session=other) as xp:  # noqa: F811
        assert xp.array("u").numpy().tolist() == [1, 2] and float(xp.evaluate("sum(u)")) == 3
    assert len(c.get("/v1/arrays", headers=inside).json()["arrays"]) == 1
    with pytest.raises(arrayd.NotFound):
        arrayd.connect(url(daemon), session="s-none")

    async def steps():
        async with arrayd.aconnect(url(daemon), session=other) as xp:  # noqa: F811
            assert (await (await xp.array("u")).numpy()).tolist() == [1, 2]
        with pytest.raises(arrayd.NotFound):
            await arrayd.aconnect(url(daemon), session="s-none")

    run(steps())
    c.expect(204, c.delete(f"/v1/sessions/{other}"))
    c.close()
