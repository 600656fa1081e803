"""What was given and is taken back ends what goes on by it: shares, tokens, accounts."""
import numpy as np
import pytest

from conftest import until
from test_programs import job, start
from test_sharing import give_back, share


@pytest.fixture
def two(two_with):
    ann, bob = two_with()
    yield ann, bob
    ann.close()
    bob.close()


def used(c):
    return c.info()["principal"]["quotas"]["device_memory"]["used"]


def ended(c, ref):
    until(lambda: job(c, ref)["state"] not in ("queued", "running"))
    return job(c, ref)


# --- shares ---

@pytest.mark.parametrize("fields", [
    {"body": ["acc = acc*0 + max(u)"]}, {"body": ["acc += 1"], "record": {"m": "max(u)"}, "record_every": 10**9},
    {"body": ["acc += 1"], "until": "max(u) < 0", "until_every": 10}])
def test_a_job_reads_no_longer_than_it_may(two, fields):
    """What the owner writes afterwards is not read, and what she deletes is on nobody's quota."""
    ann, bob = two
    u = ann.upload(np.full(1000, 5.0), "u")["id"]
    share(ann, "u", "read")
    bob.upload(np.zeros(10), "acc")
    ref = start(bob, **fields, bind={"u": u})
    until(lambda: job(bob, ref)["step"] > 0)
    give_back(ann, "u")
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "u*0 + 1111.0", "out": "u"}))
    r = ended(bob, ref)
    assert (r["state"], r["error"]["status"]) == ("failed", 404) and u in r["error"]["detail"]
    assert bob.download("acc").max() != 1111
    assert "not shared" in bob.fails(409, "conflict", bob.post(f"/v1/jobs/{ref}/resume"))["detail"]
    ann.expect(204, ann.delete("/v1/arrays/u"))
    until(lambda: used(ann) == 0)


def test_a_share_that_a_job_does_not_use_may_go(two):
    ann, bob = two
    u, v = (ann.upload(np.ones(1000), name)["id"] for name in "uv")
    for name in "uv":
        share(ann, name, "read")
    bob.upload(np.zeros(10), "acc")
    ref = start(bob, ["acc += max(u)"], bind={"u": u, "v": v})
    give_back(ann, "v")
    step = job(bob, ref)["step"]
    until(lambda: job(bob, ref)["step"] > step + 10)
    assert bob.expect(200, bob.delete(f"/v1/jobs/{ref}")).json()["state"] == "cancelled"


@pytest.mark.parametrize("body", [["acc = acc*0 + max(u)"], ["u += 1"]])
def test_a_job_that_was_stopped_keeps_nothing_that_was_taken_back(two, body):
    ann, bob = two
    u = ann.upload(np.ones(1000), "u")["id"]
    share(ann, "u", "write")
    bob.upload(np.zeros(10), "acc")
    ref = start(bob, body, bind={"u": u})
    until(lambda: job(bob, ref)["step"] > 0)
    assert bob.expect(200, bob.delete(f"/v1/jobs/{ref}")).json()["state"] == "cancelled"
    ann.expect(204, ann.delete("/v1/arrays/u"))
    until(lambda: used(ann) == 0)
    bob.fails(409, "conflict", bob.post(f"/v1/jobs/{ref}/resume"))


def test_a_job_that_only_reads_goes_on_where_writing_is_forbidden(two):
    ann, bob = two
    u = ann.upload(np.ones(1000), "u")["id"]
    share(ann, "u", "write")
    bob.upload(np.zeros(10), "acc")
    reads, writes = start(bob, ["acc += max(u)"], bind={"u": u}), start(bob, ["u += 1"], bind={"u": u})
    until(lambda: job(bob, writes)["step"] > 0)
    share(ann, "u", "read", status=200)
    before = ann.download("u")
    r = ended(bob, writes)
    assert (r["state"], r["error"]["status"]) == ("failed", 409)
    np.testing.assert_array_equal(ann.download("u"), before)
    step = job(bob, reads)["step"]
    until(lambda: job(bob, reads)["step"] > step)
    share(ann, "u", "write", status=200)
    bob.expect(202, bob.post(f"/v1/jobs/{writes}/resume"))
    until(lambda: ann.download("u").max() > before.max())


def test_a_job_reads_nothing_that_was_resized(two):
    """Its id means other memory: the old is nobody's but the job's, on its owner's quota."""
    ann, bob = two
    u = ann.upload(np.ones(1000), "u")["id"]
    share(ann, "u", "read")
    bob.upload(np.zeros(10), "acc")
    ref = start(bob, ["acc += max(u)"], bind={"u": u})
    until(lambda: job(bob, ref)["step"] > 0)
    ann.expect(200, ann.post("/v1/arrays/u/resize", {"shape": [10]}))
    r = ended(bob, ref)
    assert r["error"]["status"] == 409 and "resized" in r["error"]["detail"]
    until(lambda: used(ann) == ann.meta("u")["nbytes"])
