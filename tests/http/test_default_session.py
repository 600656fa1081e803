"""The default session: clients that know nothing of sessions share it, and do not wait for each other's work."""
import threading

import numpy as np
import pytest

LONG = "lgamma(big) + lgamma(big + 0.5)"


@pytest.fixture
def daemon_at_work(daemon_with):
    """One whose only thread has work for a second or more: of one client, who has had its reply."""
    d = daemon_with("--backend", "cpu", "--threads", "1")
    a = d.client()
    a.create(name="big", shape=[8_000_000], fill=0.5)
    a.create(name="small", data=[1.0, 2.0, 3.0])
    a.quiet()
    a.post("/v1/sessions/default/sync")

    def work():
        a.expect(201, a.post("/v1/evaluate", {"expr": LONG, "name": "long"}))
        return a

    d.work = work
    return d


def is_at_work(c):
    """The session's work so far is not done."""
    return c.post("/v1/sessions/default/sync", headers={"Prefer": "wait=0"}).status == 504


@pytest.mark.parametrize("ask", [
    lambda c: c.evaluate("1 + 1"), lambda c: c.evaluate("sum(small)"), lambda c: c.download("small"),
    lambda c: c.expect(200, c.post("/v1/evaluate", {"expr": "small*2", "inline": True})),
    lambda c: c.expect(200, c.post("/v1/evaluate", {"statements": ["small += 1", "s = sum(small)"]})),
    lambda c: c.expect(204, c.put("/v1/arrays/small/data", [4, 5, 6])),
    lambda c: c.upload(np.arange(3.0), "other")])
def test_others_do_not_wait(daemon_at_work, ask):
    daemon_at_work.work()
    b = daemon_at_work.client()
    ask(b)
    assert is_at_work(b)
    b.expect(200, b.post("/v1/sessions/default/sync"))


def test_what_depends_waits(daemon_at_work):
    """Of another connection, too: arrays are what they would be if all went in order."""
    a = daemon_at_work.work()
    b = daemon_at_work.client()
    assert b.evaluate("max(long)") == pytest.approx(a.evaluate("max(long)"))
    a.expect(200, a.post("/v1/evaluate", {"expr": LONG, "out": "big"}))
    b.expect(200, b.post("/v1/evaluate", {"expr": "big*0 + 7", "out": "big"}))
    c = daemon_at_work.client()
    assert c.evaluate("min(big)") == 7 and a.evaluate("max(big)") == 7


def test_sync_is_of_all(daemon_at_work):
    """Work of several connections is done when it says so; then nobody waits for what they made."""
    clients = []
    for k in range(6):
        c = daemon_at_work.client()
        c.expect(201, c.post("/v1/evaluate", {"expr": f"big[:{10**6 * (k + 1)}]*2 + lgamma(big[0])", "name": f"r{k}"}))
        clients.append(c)
    clients[0].expect(200, clients[0].post("/v1/sessions/default/sync"))
    for k in range(6):
        r = clients[0].get(f"/v1/arrays/r{k}/data?index=0", headers={"Prefer": "wait=0"})
        assert r.status == 200, (k, r)


def test_one_client_goes_on_in_order(daemon_at_work):
    """What a connection sends is one after the other, as it always was."""
    a = daemon_at_work.work()
    assert a.evaluate("1 + 1") == 2 and not is_at_work(a)


def test_a_session_is_one_stream(daemon_at_work):
    """One that a client has made is in order whoever sends to it."""
    a = daemon_at_work.client()
    big = a.meta("big")["id"]
    s = a.expect(201, a.post("/v1/sessions", {})).json()["id"]
    a, b = a.clone(session=s), daemon_at_work.client().clone(session=s)
    a.expect(201, a.post("/v1/evaluate", {"expr": LONG, "bind": {"big": big}, "name": "long"}))
    assert b.evaluate("1 + 1") == 2
    assert b.expect(200, b.post(f"/v1/sessions/{s}/sync", headers={"Prefer": "wait=0"}))


def test_many_clients_at_once(daemon_at_work):
    """More than there are streams, all writing and reading the same arrays: nothing is lost."""

    d = daemon_at_work
    failed = []

    def add(n):
        c = d.client()
        try:
            for _ in range(n):
                c.expect(200, c.post("/v1/evaluate", {"expr": "small + 1", "out": "small"}))
        except BaseException as e:  # noqa: B036
            failed.append(e)
        c.close()

    threads = [threading.Thread(target=add, args=(40,)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and d.client().download("small").tolist() == [321, 322, 323]
