"""A journal without room: what is acknowledged outlives the daemon all the same, and others have their part of it. And one of another version."""
import os
import pathlib
import re

import numpy as np

from conftest import until
from test_survive import idle, keeping, kill, same

SIZE = 4 << 20  # of the journal, the smallest
VALUE = -1.2345678901234567e-300
LONG = {"shape": [1] * 32, "dtype": "int8", "spacing": [-VALUE] * 32,
        "boundary": [[{"type": "dirichlet", "value": VALUE}] * 2] * 32}


def fill(api):
    """Functions, until the least one finds no room."""
    size, k = 60_000, 0
    while size:
        r = api.put(f"/v1/functions/f{k}", {"params": ["x"], "expr": "x" + " " * size})
        k += 1
        if r.status != 201:
            assert "journal-size" in api.fails(507, "out_of_memory", r)["detail"]
            size //= 4


def refused(api):
    return int(re.search(r"^arrayd_journal_refused_total (\d+)$", api.get("/metrics").body.decode(), re.M)[1])


def test_what_may_grow_is_refused_and_what_moves_is_not(daemon_with):
    d = keeping(daemon_with, "--journal-size", SIZE)
    api = d.client()
    for k in range(300):
        api.create(name=f"b{k}", shape=[1], dtype="int8")
    for k in range(8):
        api.create(name=f"u{k}", shape=[400_000 if k % 2 else 10], dtype="float64", fill=1)
    fill(api)
    for k in range(300):
        for r in (api.put(f"/v1/arrays/b{k}", LONG), api.patch(f"/v1/arrays/b{k}", {"name": "n" * 60 + str(k)}),
                  api.patch(f"/v1/arrays/b{k}", {"spacing": [-VALUE]})):
            assert "journal-size" in api.fails(507, "out_of_memory", r)["detail"]
        api.expect(200, api.patch(f"/v1/arrays/b{k}", {"read_only": True}))
    for k in range(8):
        for _ in range(3):
            api.expect(200, api.post("/v1/evaluate", {"expr": f"u{k}+1", "out": f"u{k}"}))
    idle(api)
    assert refused(api) == 0 and "could not be written" not in d.log()
    api.close()
    kill(d)
    api = d.client()
    for k in range(8):
        assert np.all(api.download(f"u{k}") == 4.0)
    assert len(list(api.list_all("/v1/arrays", "arrays"))) == 308
    api.close()


def test_nobody_takes_the_room_of_all(daemon_with, accounts):
    """One user's functions and jobs leave half of it to the next, and what is there is restored whatever the shares are by
    then."""
    for name in ("ann", "bob", "cid"):
        accounts.add(name, role="operator")
    d = keeping(daemon_with, "--accounts", accounts.path, "--journal-size", SIZE)
    everyone = [accounts.client(d, name) for name in ("ann", "bob", "cid")]
    for api in everyone:
        fill(api)
        for r in (api.put("/v1/functions/more", {"params": ["x"], "expr": "x" + " " * 20_000}),
                  api.post("/v1/programs", {"body": ["t = 1" + " " * 20_000]})):
            assert "journal-size" in api.fails(507, "out_of_memory", r)["detail"]
    counts = [len(list(api.list_all("/v1/functions", "functions"))) for api in everyone]
    assert all(n > 2 for n in counts)
    for api in everyone:
        api.close()
    kill(d)
    assert counts == [len(list(api.list_all("/v1/functions", "functions"))) for api in everyone]
    for api in everyone:
        api.close()


def used(api):
    return api.info()["principal"]["quotas"]["request_memory"]["used"]


def test_a_jobs_text_counts_as_long_as_the_job_exists(daemon_with, accounts):
    accounts.add("bob", request_memory="8MiB")
    d = keeping(daemon_with, "--accounts", accounts.path)
    api = accounts.client(d, "bob")
    text, before, ids = {"body": ["t = 1" + " " * 60_000] * 10}, used(api), []
    for _ in range(20):
        r = api.post("/v1/programs?wait=1", text)
        if r.status != 200:
            break
        ids.append(r.json()["id"])
    assert "request_memory" in api.fails(429, "quota_exceeded", r)["detail"] and len(ids) > 3
    until(lambda: used(api) - before < len(ids) * 700_000)
    assert used(api) - before > len(ids) * 600_000
    api.close()
    kill(d)
    assert used(api) > len(ids) * 600_000
    for ref in ids:
        api.expect(204, api.delete(f"/v1/jobs/{ref}"))
    until(lambda: used(api) - before < 100_000)
    api.close()


def test_attributes_raise_its_version(daemon_with):
    """An older program would lose them: it must not take the journal over. Without any it may."""
    d = keeping(daemon_with)
    c = d.client()

    def version():
        folder = pathlib.Path(f"/proc/{d.proc.pid}/fd")
        with open(next(x for x in folder.iterdir() if "journal" in os.readlink(x)), "rb") as f:
            return int.from_bytes(f.read(12)[8:], "little")

    c.create(name="a", shape=[2])
    assert version() == 3
    c.expect(200, c.patch("/v1/arrays/a", {"units": "K"}))
    assert version() == 4
    c.close()
    kill(d)
    assert c.meta("a")["units"] == "K"
    until(lambda: version() == 4)
    c.expect(200, c.patch("/v1/arrays/a", {"units": None}))
    c.close()
    kill(d)
    assert "units" not in c.meta("a")
    until(lambda: version() == 3)
    c.close()


def test_another_version_loses_nothing(daemon_with):
    """A program that does not know the journal's version does not start over it: the one that does finds everything."""
    d = keeping(daemon_with)
    c = d.client()
    c.upload(np.arange(1000.0), "a")
    idle(c)
    c.close()
    folder = pathlib.Path(f"/proc/{d.proc.pid}/fd")
    journal = next(x for x in folder.iterdir() if "journal" in os.readlink(x))

    def be(version):
        with open(journal, "r+b") as f:
            for mark in (0, 32):
                f.seek(mark + 8)
                f.write(version.to_bytes(4, "little") * 2)

    with open(journal, "rb") as f:
        opening = f.read(64)
    assert opening[:8] == opening[32:40] == b"arrayd-J"
    was = int.from_bytes(opening[8:12], "little")
    later = was + 100
    be(later)
    kill(d)
    until(lambda: d.log().count(f"the journal is of version {later}, this program knows ") >= 2)
    assert d.log().count(": start a version that knows it") >= 2
    be(was)
    until(lambda: d.log().count(" ready ") == 2)
    same(c, "a", np.arange(1000.0))
