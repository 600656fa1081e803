"""A journal without room: what is acknowledged outlives the daemon all the same."""
import re

import numpy as np

from test_survive import idle, keeping, kill

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
