"""What a start cannot restore does not keep the rest from coming back, and is not lost: it stays in the state."""
import hashlib

import numpy as np
import pytest

from test_survive import kill


@pytest.fixture
def start(daemon_with, tmp_path):
    """again(d, c, *options) ends a daemon and starts the next one on the same state; None: the first."""

    def again(d, c, *args, **kw):
        if d:
            c.close()
            d.stop()
        d = daemon_with("--state-dir", tmp_path / "state", *args, **kw)
        return d, d.client()

    return again


def names(c, what="arrays"):
    return [x["name"] for x in c.list_all(f"/v1/{what}", what)]


def change_manifest(tmp_path, old, new):
    """As an older version would have written it."""
    path, = tmp_path.glob("state/snapshot-*/manifest.json")
    text = path.read_text()
    assert old in text
    text = text.replace(old, new)
    path.write_text(text)
    pointer = tmp_path / "state" / "current"
    words = pointer.read_text().split()
    pointer.write_text(" ".join(words[:3] + [hashlib.sha256(text.encode()).hexdigest()]) + "\n")


def test_limits_of_functions_lowered(start):
    """They hold for what comes later and for what is computed, not for what has been defined."""
    d, c = start(None, None)
    define = lambda name, expr: c.post("/v1/functions", {"name": name, "params": ["x"], "expr": expr})
    c.expect(201, define("wide", "+".join(["x"] * 200)))
    c.expect(201, define("deep", "(" * 100 + "x" + ")" * 100))
    c.expect(201, define("plain", "x + 1"))
    c.upload(np.arange(3.0), "a")
    before = c.list_all("/v1/functions", "functions")
    for option in (("--max-function-size", "64"), ("--max-nodes", "100"), ("--max-nesting", "20")):
        d, c = start(d, c, *option)
        assert c.list_all("/v1/functions", "functions") == before and c.evaluate("plain(a)").tolist() == [1, 2, 3]
        which = "deep" if option[0] == "--max-nesting" else "wide"
        c.fails(422, "expression_too_large", c.put(f"/v1/functions/{which}", {"params": ["x"], "expr": before[which == "deep"]["expr"]}))
    d, c = start(d, c)
    assert c.evaluate("wide(deep(a))").tolist() == [0, 200, 400]
    c.close()


def test_a_function_named_like_an_operation(start, tmp_path):
    """A later version may have an operation of that name: the function stays in the state, for one that has none."""
    d, c = start(None, None)
    for name, expr in (("f", "x*2"), ("mine", "x + 1"), ("g", "mine(x)*3")):
        c.expect(201, c.post("/v1/functions", {"name": name, "params": ["x"], "expr": expr}))
    c.upload(np.arange(3.0), "a")
    c.close()
    d.stop()
    change_manifest(tmp_path, '"mine"', '"sin"')
    d, c = start(None, None)
    assert names(c) == ["a"] and names(c, "functions") == ["f", "g"]
    assert any("a function was not restored" in line and "name=sin" in line and "operation" in line for line in d.log().splitlines())
    c.expect(200, c.post("/v1/snapshot"))
    for _ in range(2):
        d, c = start(d, c)
        assert names(c, "functions") == ["f", "g"]
    c.expect(201, c.post("/v1/functions", {"name": "later", "params": ["x"], "expr": "x"}))
    c.close()
    d.stop()
    change_manifest(tmp_path, '"sin"', '"mine"')
    d, c = start(None, None)
    assert names(c, "functions") == ["f", "g", "later", "mine"] and "not restored" not in d.log()
    assert c.evaluate("g(a)").tolist() == [3, 6, 9]
    c.close()


def test_no_room(start, tmp_path):
    """Arrays that do not fit the device any more stay in the state, through snapshots and ends, until they do."""
    d, c = start(None, None)
    c.upload(np.arange(100.0), "small")
    large = c.upload(np.arange(float(1 << 17)), "large")["id"]
    c.expect(201, c.post("/v1/arrays/large/views", {"index": "::2", "name": "half"}))
    middle = c.upload(np.full(10000, 3.0), "middle")["id"]
    s = c.expect(201, c.post("/v1/sessions", {"name": "gone"})).json()["id"]
    mine = c.clone(session=s)
    mine.upload(np.ones(20000), "of_a_session")
    mine.close()
    tight = "--memory-limit", "20KiB"
    d, c = start(d, c, *tight)
    assert names(c) == ["small"] and 800 <= c.info()["bytes_in_use"] <= 4096  # on the CPU a page of its own
    assert sum("no memory for an array" in line for line in d.log().splitlines()) == 4
    c.fails(404, "not_found", c.get(f"/v1/arrays/{large}"))
    c.upload(np.ones(3), "large")  # another one takes the name
    for _ in range(2):
        c.expect(200, c.post("/v1/snapshot"))
    c.expect(204, c.delete(f"/v1/sessions/{s}"))
    d, c = start(d, c, *tight)
    assert names(c) == ["small", "large"]
    assert sum("no memory for an array" in line for line in d.log().splitlines()) == 3
    d, c = start(d, c)
    assert [a["name"] for a in c.list_all("/v1/arrays", "arrays") if "name" in a and a["name"]] == ["small", "large", "half", "middle"]
    assert (c.download(large) == np.arange(float(1 << 17))).all() and (c.download("half") == np.arange(0, 1 << 17, 2)).all()
    assert (c.download(middle) == 3).all() and (c.download("large") == 1).all()
    assert c.meta("half")["view_of"] == large and "no memory for an array" not in d.log()
    assert c.expect(200, c.post("/v1/snapshot")).json()["arrays"] == 5
    assert len(list(tmp_path.glob("state/snapshot-*"))) == 1
    c.close()


def test_coordinates_of_what_found_no_room(start):
    """They wait for it, also where an array that has them, too, is deleted meanwhile."""
    d, c = start(None, None)
    y = c.upload(np.arange(100.0), None)["id"]
    for name, shape in (("large", (100, 1000)), ("small", (100,))):
        c.upload(np.ones(shape), name)
        c.expect(200, c.patch(f"/v1/arrays/{name}", {"dims": ["y", "x"][:len(shape)], "coords": {"y": y}}))
    assert c.expect(200, c.patch(f"/v1/arrays/{y}", {"coordinate": True})).json()["coordinate"]
    d, c = start(d, c, "--memory-limit", "20KiB")
    assert names(c) == [None, "small"]
    c.expect(204, c.delete("/v1/arrays/small"))
    c.expect(200, c.get(f"/v1/arrays/{y}"))
    c.expect(200, c.post("/v1/snapshot"))
    d, c = start(d, c)
    assert c.meta("large")["coords"]["y"]["array"] == y and (c.download(y) == np.arange(100.0)).all()
    c.expect(204, c.delete("/v1/arrays/large"))
    c.fails(404, "not_found", c.get(f"/v1/arrays/{y}"))
    c.close()


def test_no_room_in_one_piece(start):
    """What the device is told to have free would do, and yet it has no block for it."""
    d, c = start(None, None)
    n = 300001
    large = c.upload(np.arange(float(n)), "large")["id"]
    c.upload(np.arange(3.0), "small")
    d, c = start(d, c, "--memory-limit", str(8 * n))  # blocks are rounded up
    assert names(c) == ["small"] and sum("no memory for an array" in line for line in d.log().splitlines()) == 1
    c.expect(200, c.post("/v1/snapshot"))
    d, c = start(d, c)
    assert (c.download(large) == np.arange(float(n))).all() and "no memory for an array" not in d.log()
    c.close()


def test_whose_account_has_gone(daemon_with, accounts, tmp_path):
    """What an account had in the state goes with it, as what it had in memory does."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    run = lambda *args: daemon_with("--state-dir", tmp_path / "state", "--accounts", accounts.path, *args)
    d = run()
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    ann.upload(np.ones(5000), "a")
    bob.upload(np.ones(5000), "b")
    ann.close(), bob.close()
    d.stop()
    d = run("--memory-limit", "1KiB")
    text = accounts.path.read_text()
    accounts.write(text.replace("[bob]", "[other]"))
    accounts.reload(d)
    accounts.write(text)
    accounts.reload(d)
    d.stop()
    d = run()
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    assert names(ann) == ["a"] and names(bob) == []
    ann.close(), bob.close()


def test_through_deaths(start, tmp_path):
    """What a start passed over is still in the state when a daemon after it has taken everything else from the journal."""
    d, c = start(None, None)
    large = c.upload(np.arange(float(1 << 21)), "large")["id"]
    c.upload(np.arange(100.0), "small")
    for name, expr in (("mine", "x + 1"), ("other", "x + 2")):
        c.expect(201, c.post("/v1/functions", {"name": name, "params": ["x"], "expr": expr}))
    c.close()
    d.stop()
    change_manifest(tmp_path, '"mine"', '"sin"')
    large_in_state = lambda: next(tmp_path.glob("state/snapshot-*/manifest.json")).read_text().count(large)
    d, c = start(None, None, "--memory-limit", str(8 << 20), "--keep-arrays", "--restart-limit", 100)
    lost = [line for line in d.log().splitlines() if "stays in the state" in line]
    assert len(lost) == 2, d.log()
    assert names(c) == ["small"] and names(c, "functions") == ["other"]
    for k in range(4):
        c.expect(204, c.delete("/v1/functions/other")) if k == 0 else None  # that stays deleted
        if k == 2:
            c.expect(200, c.post("/v1/snapshot"))
            assert large_in_state()
        c.close()
        kill(d)
        assert names(c) == ["small"] and names(c, "functions") == []
    c.close()
    d.stop()
    change_manifest(tmp_path, '"sin"', '"mine"')
    d, c = start(None, None)
    assert sorted(names(c)) == ["large", "small"] and names(c, "functions") == ["mine"]
    assert (c.download(large) == np.arange(float(1 << 21))).all()
    c.close()
