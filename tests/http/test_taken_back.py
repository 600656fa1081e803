"""What was given and is taken back ends what goes on by it: shares, tokens, accounts."""
import json
import re
import select
import socket

import numpy as np
import pytest

from client import JSON, NPY, OCTETS
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
    assert "no longer shared" in bob.fails(409, "conflict", bob.post(f"/v1/jobs/{ref}/resume"))["detail"]
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
    assert (r["state"], r["error"]["status"]) == ("failed", 403)
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


class Raw:
    """A request on a socket of its own, sent and read by hand."""

    def __init__(self, daemon, token, method, path, body=b"", sent=0, kind="application/json", **headers):
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(30)
        self.sock.connect((daemon.host, daemon.port))
        self.rest = body[sent:]
        lines = {"Host": "localhost", "Authorization": f"Bearer {token}", **headers}
        if body:
            lines |= {"Content-Type": kind, "Content-Length": len(body)}
        head = "".join(f"{k}: {v}\r\n" for k, v in lines.items())
        self.sock.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body[:sent])

    def read(self, n=65536):
        return self.sock.recv(n)

    def is_cut(self):
        """Without a byte being read."""
        p = select.poll()
        p.register(self.sock, select.POLLRDHUP)
        return bool(p.poll(0))

    def read_to_end(self):
        got = b""
        try:
            while more := self.read(1 << 20):
                got += more
        except ConnectionResetError:
            pass
        self.sock.close()
        return got

    def finish(self):
        """Sends the rest; the status and the head of the reply, which ends the connection or is whole."""
        try:
            self.sock.sendall(self.rest)
            got = b""
            while b"\r\n\r\n" not in got:
                got += self.read() or b"\r\n\r\n"
        except ConnectionError:
            got = b"none 0 \r\n\r\n"
        self.sock.close()
        return int(got.split()[1]), got.decode()


@pytest.mark.parametrize("kind", [OCTETS, NPY, JSON])
@pytest.mark.parametrize("reads", [False, True])
def test_a_download_ends_with_its_share(two_with, accounts, kind, reads):
    """At the next piece, and where nobody reads, too."""
    ann, bob = two_with()
    u = ann.upload(np.random.default_rng(0).random(2_000_000), "u")["id"]
    share(ann, "u", "read")
    d = Raw(ann, accounts.token["bob"], "GET", f"/v1/arrays/{u}/data", Accept=kind)
    got = d.read()
    length = int(re.search(rb"Content-Length: (\d+)", got)[1])
    give_back(ann, "u")
    if not reads:
        until(d.is_cut)
    assert len(got + d.read_to_end()) < length
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
    ann.expect(204, ann.delete("/v1/arrays/u"))
    until(lambda: used(ann) == 0)
    for c in (ann, bob):
        c.close()


def test_an_operator_who_is_none_any_more(daemon_with, accounts, tmp_path):
    """What is for operators is not done for one whose role was lowered before the request was whole."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    d = daemon_with("--accounts", accounts.path, "--state-dir", tmp_path / "state")
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    r = Raw(d, accounts.token["bob"], "POST", "/v1/snapshot", b"  {}", sent=1)
    until(lambda: bob.info()["principal"]["quotas"]["requests"]["used"] == 2)
    head, of_bob = accounts.path.read_text().split("[bob]")
    accounts.write(head + "[bob]" + of_bob.replace("operator", "user"))
    accounts.reload(d)
    status, text = r.finish()
    assert status == 403 and "forbidden" in text and not list(tmp_path.glob("state/snapshot-*"))
    ann.expect(200, ann.post("/v1/snapshot"))
    for c in (ann, bob):
        c.close()


def test_an_upload_ends_with_its_share(two_with, accounts):
    """What was sent to an array that may only be read any more leaves it as it was."""
    ann, bob = two_with()
    u = ann.upload(np.zeros(1000), "u")["id"]
    share(ann, "u", "write")
    data = np.ones(1000).tobytes()
    for access, status in (("read", 403), (None, 404)):
        up = Raw(ann, accounts.token["bob"], "PUT", f"/v1/arrays/{u}/data", data, sent=100, kind=OCTETS)
        until(lambda: bob.info()["principal"]["quotas"]["requests"]["used"] == 2)
        share(ann, "u", access, status=200) if access else give_back(ann, "u")
        assert up.finish()[0] == status
        share(ann, "u", "write", status=200 if access else 201)
    assert not ann.download("u").any()
    for c in (ann, bob):
        c.close()


# --- tokens and accounts ---

@pytest.fixture
def house(daemon_with, accounts):
    """ann an operator, bob a user; the daemon."""
    accounts.add("ann", role="operator")
    accounts.add("bob")
    return daemon_with("--accounts", accounts.path)


def rotate(house, accounts):
    """Another token for bob, in place of the one there was."""
    accounts.command("remove", "bob")
    accounts.add("bob")
    accounts.reload(house)


def remove(house, accounts):
    text = accounts.path.read_text()
    accounts.write(text[:text.index("[bob]")])
    accounts.reload(house)
    return text


def bring_back(house, accounts, text):
    """An account of the same name, with the same token: another one all the same."""
    accounts.write(text)
    accounts.reload(house)


def in_flight(c):
    m = c.expect(200, c.get("/metrics")).body.decode()
    return int(re.search(r"^arrayd_http_requests_in_flight (\d+)", m, re.M)[1])


@pytest.mark.parametrize("take", [rotate, remove])
def test_event_streams_end_with_the_token(house, accounts, take):
    bob, ann = (accounts.client(house, name) for name in ("bob", "ann"))
    bob.upload(np.zeros(3), "u")
    quiet, lively = start(bob, ["u += 1"]), start(bob, ["v = 1"], record={"v": "v"}, record_every=10**6)
    token = accounts.token["bob"]
    streams = [Raw(house, token, "GET", f"/v1/jobs/{ref}/events") for ref in (quiet, lively)]
    for s in streams:
        got = b""
        while b"event: progress" not in got:
            got += s.read()
    take(house, accounts)
    for s in streams:
        assert b"event: end" not in s.read_to_end()
    bob.close()
    until(lambda: in_flight(ann) == 1)
    if take is rotate:  # the jobs are the account's
        bob = accounts.client(house, "bob")
        step = job(bob, quiet)["step"]
        until(lambda: job(bob, quiet)["step"] > step)
        bob.close()
    ann.close()


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("take", [rotate, remove])
def test_downloads_end_with_the_token(house, accounts, take, reads):
    bob, ann = (accounts.client(house, name) for name in ("bob", "ann"))
    bob.upload(np.zeros(2_000_000), "u")
    d = Raw(house, accounts.token["bob"], "GET", "/v1/arrays/u/data")
    got = d.read()
    take(house, accounts)
    if not reads:
        until(d.is_cut)
    assert len(got + d.read_to_end()) < 16_000_000
    bob.close()
    until(lambda: in_flight(ann) == 1)
    ann.close()


def body(**fields):
    return json.dumps(fields).encode()


UPLOAD = np.ones(1_000_000).tobytes()
BODIES = [
    ("POST", "/v1/arrays", body(name="ghost", shape=[10], dtype="float64", fill=1), "application/json"),
    ("POST", "/v1/evaluate", body(expr="broadcast_to(1.5, [10])", name="ghost2"), "application/json"),
    ("POST", "/v1/evaluate", body(statements=["x = broadcast_to(1.5, [10])"]), "application/json"),
    ("POST", "/v1/programs", body(body=["v = 1"], steps=10**12), "application/json"),
    ("POST", "/v1/sessions", body(name="ghosts"), "application/json"),
    ("POST", "/v1/functions", body(name="ghost", params=["x"], expr="x*43"), "application/json"),
    ("POST", "/v1/arrays/kept/shares", body(principal="ann", access="write"), "application/json"),
    ("POST", "/v1/arrays/kept/lease", body(mode="write"), "application/json"),
    ("PUT", "/v1/arrays/up?dtype=float64&shape=1000000", UPLOAD, OCTETS),
    ("PUT", "/v1/arrays/kept/data", np.ones(3).tobytes(), OCTETS)]


@pytest.mark.parametrize("take", [rotate, remove])
@pytest.mark.parametrize("method,path,sent,kind", BODIES, ids=range(len(BODIES)))
def test_a_body_that_is_complete_after_the_token_went_does_nothing(house, accounts, take, method, path, sent, kind):
    bob, ann = (accounts.client(house, name) for name in ("bob", "ann"))
    bob.upload(np.zeros(3), "kept")
    bob.close()
    until(lambda: in_flight(ann) == 1)
    half = Raw(house, accounts.token["bob"], method, path, sent, sent=len(sent) // 2, kind=kind)
    until(lambda: in_flight(ann) == 2)
    text = take(house, accounts)
    status, head = half.finish()
    assert status == 401 and "WWW-Authenticate: Bearer" in head and "unauthorized" in head, head
    if text:
        bring_back(house, accounts, text)
    bob = accounts.client(house, "bob")
    assert [a["name"] for a in bob.get("/v1/arrays").json()["arrays"]] == ([] if text else ["kept"])
    for path, what in (("/v1/jobs", "jobs"), ("/v1/functions", "functions")):
        assert bob.get(path).json()[what] == []
    assert len(bob.get("/v1/sessions").json()["sessions"]) == 1
    if not text:
        assert not bob.download("kept").any()
        bob.expect(200, bob.post("/v1/evaluate", {"expr": "kept", "out": "kept"}))
    for c in (ann, bob):
        c.close()


def test_an_upload_ends_at_its_next_piece(house, accounts):
    """It need not be complete, and whole a reply comes before it is."""
    half = Raw(house, accounts.token["bob"], "PUT", "/v1/arrays/up?dtype=float64&shape=1000000", UPLOAD, sent=1000, kind=OCTETS)
    ann = accounts.client(house, "ann")
    until(lambda: in_flight(ann) == 2)
    rotate(house, accounts)
    half.rest = half.rest[:1_000]
    half.sock.sendall(half.rest)
    bob = accounts.client(house, "bob")
    until(lambda: ann.info()["bytes_in_use"] == 0)
    half.sock.close()
    bob.fails(404, "not_found", bob.get("/v1/arrays/up"))
    for c in (ann, bob):
        c.close()


@pytest.mark.parametrize("take", [rotate, remove])
@pytest.mark.parametrize("path,headers", [("?wait=1", {}), ("?wait=1", {"Prefer": "wait=100"})])
def test_who_waits_for_a_job_waits_no_longer_than_the_token_lasts(house, accounts, take, path, headers):
    bob, ann = (accounts.client(house, name) for name in ("bob", "ann"))
    bob.upload(np.zeros(3), "u")
    ref = start(bob, ["u += 1"])
    waits = Raw(house, accounts.token["bob"], "GET", f"/v1/jobs/{ref}{path}", **headers)
    until(lambda: in_flight(ann) == 2)
    text = take(house, accounts)
    status, head = waits.finish()
    assert status == 401 and "WWW-Authenticate: Bearer" in head and "Preference-Applied" not in head
    if text:
        bring_back(house, accounts, text)
    again = accounts.client(house, "bob")
    again.expect(200 if take is rotate else 404, again.get(f"/v1/jobs/{ref}"))
    for c in (ann, bob, again):
        c.close()


def test_a_new_account_of_the_name_has_nothing_of_the_old(house, accounts):
    """Neither while the old one's work goes on, nor what was shared with it, or by it."""
    bob, ann = (accounts.client(house, name) for name in ("bob", "ann"))
    u = bob.upload(np.zeros(3), "u")["id"]
    bob.expect(201, bob.post("/v1/functions", {"name": "f", "params": ["x"], "expr": "x + 1"}))
    bob.expect(201, bob.post("/v1/sessions", {"name": "s"}))
    bob.expect(201, bob.post("/v1/arrays/u/shares", {"principal": "ann", "access": "read"}))
    running, stopped = start(bob, ["u += 1"]), start(bob, ["u += 1"])
    bob.expect(200, bob.delete(f"/v1/jobs/{stopped}"))
    bring_back(house, accounts, remove(house, accounts))
    for path, what in (("arrays", "arrays"), ("jobs", "jobs"), ("functions", "functions")):
        assert bob.get(f"/v1/{path}").json()[what] == []
    assert [s["name"] for s in bob.get("/v1/sessions").json()["sessions"]] == ["default"]
    for ref in (running, stopped):
        bob.fails(404, "not_found", bob.get(f"/v1/jobs/{ref}"))
    ann.fails(404, "not_found", ann.get(f"/v1/arrays/{u}"))
    until(lambda: ann.info()["bytes_in_use"] == 0)
    metrics = ann.expect(200, ann.get("/metrics")).body.decode()
    assert len(re.findall(r'^arrayd_principal_arrays\{principal="bob"\}', metrics, re.M)) == 1
    for c in (ann, bob):
        c.close()
