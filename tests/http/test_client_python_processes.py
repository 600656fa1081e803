"""clients/python: what forks, the end of a process and the end of a client do to connections and arrays."""
import asyncio
import gc
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import time
import traceback
import weakref

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
SOURCE = REPO / "clients" / "python" / "src"
sys.path.insert(0, str(SOURCE))
import arrayd  # noqa: E402
from arrayd import _client  # noqa: E402
from arrayd._transport import Transport  # noqa: E402

from conftest import until  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here


def url(daemon):
    return f"http://127.0.0.1:{daemon.port}"


@pytest.fixture
def xp(api, daemon):
    with arrayd.connect(url(daemon), timeout=15) as client:
        yield client


def ids(api, session=None):
    return {m["id"] for m in api.get("/v1/arrays?limit=1000", headers={"Arrayd-Session": session} if session else {}).json()["arrays"]}


def forked(work):
    """A child that does it; its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.alarm(30)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def well(*pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)


# --- forks ---


def test_forked_children_have_connections_of_their_own(xp):
    mine = [xp.full((k,), k) for k in range(1, 5)]
    names = [x.id for x in mine]

    def look(k):
        for _ in range(150):
            got = xp.metadata(names[k])
            assert got["id"] == names[k] and got["shape"] == [k + 1], (k, got)

    children = [forked(lambda k=k: look(k)) for k in range(3)]
    look(3)
    assert well(*children)
    look(3)


def test_a_forked_child_releases_its_own_alone(xp, api):
    parents = xp.arange(5).compute()

    def work():
        nonlocal parents
        (parents + 1).compute()  # nobody refers to it
        until(lambda: ids(api) == {before})  # what the child has dropped does not stay
        del parents
        own = xp.ones(7).compute()
        assert len(ids(api)) == 2
        xp.close()
        assert ids(api) == {before}
        with pytest.raises(arrayd.ConnectionLost, match="is closed"):
            own.numpy()

    before = parents.id
    assert well(forked(work))
    time.sleep(0.15)
    assert ids(api) == {before} and parents.numpy().tolist() == [0, 1, 2, 3, 4]
    del parents
    until(lambda: not ids(api))


def test_a_session_is_not_its_owners_childs(xp, api):
    with xp.session() as own:
        x = own.ones(3).compute()
        assert well(forked(own.close))
        assert x.numpy().tolist() == [1, 1, 1]


def test_a_connection_in_use_is_not_a_childs_either():
    """The daemon sees the end of a request that is given up, although a child was forked meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = Transport(f"http://127.0.0.1:{server.getsockname()[1]}")
        wires = [transport._connect() for _ in range(2)]
        ours = [server.accept()[0] for _ in wires]
        transport.give(wires.pop())
        r, w = os.pipe()
        child = forked(lambda: os.read(r, 1))
        wires[0].close()
        transport.close()
        for c in ours:
            c.settimeout(10)
            assert c.recv(1) == b""
            c.close()
        os.write(w, b".")
        assert well(child)


def test_an_asynchronous_client_after_a_fork(api, daemon):
    """The child has a loop of its own, and connections of its own."""
    async def ask(xp, id_, n):
        for _ in range(n):
            assert (await asyncio.gather(*(xp.metadata(id_) for _ in range(4))))[3]["id"] == id_

    loop = asyncio.new_event_loop()
    xp = loop.run_until_complete(arrayd.aconnect(url(daemon)).__aenter__())
    first, second = (loop.run_until_complete(xp.full((k,), 1.0).compute()) for k in (2, 3))
    one, two = (loop.run_until_complete(xp.metadata(x))["id"] for x in (first, second))

    async def child():
        await ask(xp, two, 40)
        x = await xp.ones(9).compute()
        assert len(ids(api)) == 3
        del x
        await asyncio.sleep(0.3)
        assert ids(api) == {one, two}
        await xp.close()

    def work():
        nonlocal first, second
        first = second = None
        asyncio.run(child())

    pid = forked(work)
    loop.run_until_complete(ask(xp, one, 40))
    assert well(pid) and ids(api) == {one, two}
    loop.run_until_complete(xp.close())
    loop.close()
    assert not ids(api)


# --- the end of a process, and of a client ---

SCRIPT = """
import pickle, sys, numpy as np, arrayd
xp = arrayd.connect(sys.argv[1])
x = xp.ones(1000).compute()
kept = [xp.save("named", x + 1), xp.array("named"), xp.full((5,), 5.0), xp.full((6,), 6.0)]
by_id = xp.array(sys.argv[2])
pickle.dumps(kept[2])
print(kept[2].id)
s = xp.session(name="left")
y = s.ones(10).compute()
"""

ASYNC = """
import asyncio, sys, arrayd
async def main():
    global xp, x
    xp = await arrayd.aconnect(sys.argv[1])
    x = await xp.ones(1000).compute()
    {end}
asyncio.run(main())
"""


def script(text, *args, ok=True):
    r = subprocess.run([sys.executable, "-c", text, *args], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert (r.returncode == 0 and not r.stderr) == ok, r.stderr
    return r.stdout


@pytest.mark.in_turn
def test_the_end_of_a_script(xp, api, daemon):
    others = xp.arange(4).compute()
    pickled = script(SCRIPT, url(daemon), others.id).strip()
    named = xp.array("named")
    assert ids(api) == {others.id, named.id, pickled}, "what nobody can find any more has been left"
    left, = [s for s in api.get("/v1/sessions").json()["sessions"] if s["name"] == "left"]
    assert not ids(api, left["id"])
    xp.delete("named"), xp.delete(pickled), api.request("DELETE", f"/v1/sessions/{left['id']}")
    assert "ZeroDivisionError" in subprocess.run([sys.executable, "-c", SCRIPT.split("kept")[0] + "1/0", url(daemon)], capture_output=True, text=True,
                                                env={**os.environ, "PYTHONPATH": str(SOURCE)}).stderr
    for end in ("pass", "await xp.close()"):
        script(ASYNC.format(end=end), url(daemon))
        assert ids(api) == {others.id}, end


def test_the_end_of_a_client(xp, api, daemon):
    others = xp.arange(4).compute()
    with arrayd.connect(url(daemon)) as client:
        held = [(client.ones(3) * k).compute() for k in range(150)]
        named = client.save("stays", held[0])
        assert len(ids(api)) == 152
    assert ids(api) == {others.id, named.id} and len(held) == 150
    xp.delete("stays")
    for k in range(60):  # what the thread is told of just then
        with arrayd.connect(url(daemon)) as client:
            held = client.ones(3).compute()
            if k % 2:
                del held
        assert ids(api) == {others.id}, k


def test_a_daemon_that_has_gone(daemon_with):
    """Nothing is said, nor waited for."""
    d = daemon_with("--no-keeper")
    d.expected = -signal.SIGKILL
    text = "import sys, os, signal, arrayd\nxp = arrayd.connect(sys.argv[1])\nx = xp.ones(3).compute()\nos.kill(int(sys.argv[2]), signal.SIGKILL)\n"
    begun = time.monotonic()
    assert script(text, url(d), str(d.pid)) == "" and time.monotonic() - begun < 8


def test_a_session_that_has_expired(xp, api, daemon):
    with xp.session() as own:
        api.request("DELETE", f"/v1/sessions/{own._engine.session}")

    async def steps():
        async with arrayd.aconnect(url(daemon)) as client:
            async with client.session() as own:
                api.request("DELETE", f"/v1/sessions/{own._engine.session}")

    asyncio.run(steps())


def test_a_closed_client(api, daemon):
    """Asks for nothing more, and says why; what is known here is known still."""
    before, sessions = ids(api), len(api.get("/v1/sessions").json()["sessions"])

    def closed(ask):
        with pytest.raises(arrayd.ConnectionLost, match="the client of http.* is closed") as e:
            ask()
        assert e.value.code == "client_closed"

    xp = arrayd.connect(url(daemon))
    known, x, own = xp.ones(3) + 1, xp.zeros(100_000).compute(), xp.session()
    y = own.zeros(100_000).compute()
    assert known.numpy().tolist() == [2, 2, 2]
    endless = own.program(["y += 1"], steps=10**9, y=y)
    for _ in range(2):
        xp.close()
    for ask in (x.numpy, (x + 1).compute, y.numpy, lambda: xp.ones(300_000).compute(), xp.info,
                lambda: next(xp.arrays()), lambda: list(endless.events()), endless.cancel, lambda: xp.evaluate("1"), xp.session):
        closed(ask)
    assert known.numpy().tolist() == [2, 2, 2] and repr(x) == "arrayd.array(…, shape=(100000,), dtype=float64)"
    own.close()  # it can go still
    assert ids(api) == before and len(api.get("/v1/sessions").json()["sessions"]) == sessions

    async def steps():
        xp = await arrayd.aconnect(url(daemon))
        x, own = await xp.zeros(100_000).compute(), await xp.session()
        await xp.close()
        for asked in (x.numpy(), (x + 1).compute(), xp.info(), own.ones(300_000).compute(), xp.evaluate("1")):
            with pytest.raises(arrayd.ConnectionLost, match="is closed"):
                await asked
        await own.close()

    asyncio.run(steps())
    assert ids(api) == before and len(api.get("/v1/sessions").json()["sessions"]) == sessions


def test_a_mistake_inside_is_not_masked(daemon_with):
    def gone():
        d.kill()
        1 / 0

    async def steps():
        async with arrayd.aconnect(url(d)) as client, client.session():
            gone()

    d = daemon_with()
    xp = arrayd.connect(url(d))
    with pytest.raises(ZeroDivisionError), xp.session():
        gone()
    d = daemon_with()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(steps())


# --- references to clients ---


def test_a_pickled_client_is_the_same(daemon_with, accounts):
    """Its token, its session and its timeout, of several clients of one URL."""
    accounts.add("ann"), accounts.add("bob")
    d = daemon_with("--accounts", accounts.path)
    ann, bob = (arrayd.connect(url(d), accounts.token[n], timeout=5 + k) for k, n in enumerate(("ann", "bob")))
    x = ann.arange(3).compute()
    assert pickle.loads(pickle.dumps(ann)) is ann and pickle.loads(pickle.dumps(bob)) is bob
    assert pickle.loads(pickle.dumps(x)).numpy().tolist() == [0, 1, 2]
    with ann.session() as own:
        assert pickle.loads(pickle.dumps(own)) is own
        y = pickle.dumps(own.ones(2))
        del own
        again = pickle.loads(y)
        assert again.numpy().tolist() == [1, 1] and again._client._transport is ann._transport
    theirs = pickle.dumps(x)
    ann.close()
    later = pickle.loads(theirs)._client
    assert (later._transport.token, later._transport.timeout) == (accounts.token["ann"], 5)
    elsewhere = theirs.replace(ann._transport.key.encode(), b"another process.")  # this process' last one of the URL
    assert pickle.loads(elsewhere)._client is later
    later.close()
    assert pickle.loads(elsewhere)._client is bob
    bob.close()

    async def steps():
        async with arrayd.aconnect(url(d), accounts.token["ann"]) as xp:
            return pickle.loads(pickle.dumps(xp))

    assert asyncio.run(steps())._transport.token == accounts.token["ann"]


def test_clients_go_with_their_last_user(daemon):
    xp = arrayd.connect(url(daemon))
    key = xp._transport.key, None
    assert key in _client._clients
    xp.ones(3).compute()
    xp.close()
    gone = weakref.ref(xp)
    del xp
    gc.collect()
    until(lambda: gone() is None)
    assert key not in _client._clients
