"""Accounts: who is let in, as what, what the file says and what a new one changes."""
import os
import re
import socket
import stat
import subprocess
import threading

import numpy as np
import pytest

from client import OCTETS, REPO
from conftest import find_binary, until

OPEN = {"/healthz", "/readyz", "/openapi.json", "/", "/page/{file}"}
GUESTS = {"/v1/login", "/v1/logout"}  # test_login.py


def with_token(daemon, token, **kw):
    return daemon.client(always={"Authorization": f"Bearer {token}"}, **kw)


@pytest.fixture
def house(daemon_with, accounts):
    """ann an operator, bob a user; the daemon."""
    accounts.add("ann", role="operator", weight=3)
    accounts.add("bob")
    return daemon_with("--accounts", accounts.path, "--log-level", "debug")


def test_every_route_wants_a_token(house, accounts, contract):
    c, wrong = house.client(), with_token(house, "arrayd_" + "A" * 32)
    for method, path in sorted(contract.operations()):
        if path in GUESTS:
            continue
        target = re.sub(r"\{\w+\}", "a-0123456789abcdefghijkl", path)
        body = b"{}" if method in ("POST", "PUT", "PATCH") else None
        for who, bearer in ((c, 'Bearer realm="arrayd"'), (wrong, 'Bearer realm="arrayd", error="invalid_token"')):
            r = who.request(method, target, body, content_type="application/json")
            if path in OPEN:
                assert r.status == (404 if path.endswith("{file}") else 200)
                continue
            e = who.fails(401, "unauthorized", r)
            assert r.headers["WWW-Authenticate"] == bearer and "arrayd_" not in e["detail"]
    c.close()
    wrong.close()


@pytest.mark.parametrize("header", [
    "{}", "Basic {}", "Bearer", "Bearer ", "Bearer {}x", "Bearer x{}", "Bearer {},", "Bearer {} {}", "Token {}", "Bearer  x"])
def test_what_is_no_bearer_token(house, accounts, header):
    c = house.client()
    token = accounts.token["ann"]
    c.fails(401, "unauthorized", c.get("/v1/info", headers={"Authorization": header.replace("{}", token)}))
    for cut in (token[:-1], token[:1], token.lower(), token[:-1] + chr(ord(token[-1]) ^ 1)):
        c.fails(401, "unauthorized", c.get("/v1/info", headers={"Authorization": f"Bearer {cut}"}))
    assert c.get("/v1/info", headers={"Authorization": f"bearer  {token}"}).status == 200
    c.close()


def test_nothing_was_done_for_who_is_refused(house, accounts):
    c, ann = house.client(), accounts.client(house, "ann")
    r = c.request("PUT", "/v1/arrays/u?dtype=uint8&shape=1000000", b"x" * 1000000, content_type=OCTETS)
    c.fails(401, "unauthorized", r)
    assert ann.get("/v1/arrays").json()["arrays"] == [] and ann.info()["bytes_in_use"] == 0
    c.close()
    ann.close()


def test_who_one_is(house, accounts):
    ann, bob = (accounts.client(house, name) for name in ("ann", "bob"))
    p = ann.info()["principal"]
    assert (p["name"], p["role"], p["weight"]) == ("ann", "operator", 3)
    assert p["quotas"]["requests"] == {"limit": None, "used": 1}
    assert p["quotas"]["arrays"] == {"limit": 100000, "used": 0}
    p = bob.info()["principal"]
    assert (p["name"], p["role"], p["weight"]) == ("bob", "user", 1)
    until(lambda: " principal=bob" in house.log())  # a line is written once the reply has gone
    ann.close()
    bob.close()


def test_metrics_are_for_operators(house, accounts):
    ann, bob = (accounts.client(house, name) for name in ("ann", "bob"))
    assert b"arrayd_sessions 1\n" in ann.get("/metrics").body
    assert "operators" in bob.fails(403, "forbidden", bob.get("/metrics"))["detail"]
    ann.close()
    bob.close()


def test_what_is_anothers_is_not_there(house, accounts):
    """Every route with an id of ann's, as bob: the reply is the one for an id that nobody has."""
    ann, bob = (accounts.client(house, name) for name in ("ann", "bob"))
    session = ann.post("/v1/sessions", {}).json()["id"]
    inside = ann.clone(session=session)
    array = inside.upload(np.ones(5), "u")["id"]
    job = ann.post("/v1/programs", {"bind": {"u": array}, "body": ["u += 1"], "steps": 1}).json()["id"]
    nobodys = {i: i[:2] + "0" * (len(i) - 2) for i in (array, session, job)}
    bodies = {"resize": {"shape": [3]}, "views": {}, "swap": {"with": "own"}, "lease": {"mode": "read"}, "copy": {},
              "shares": {"principal": "ann", "access": "read"}, "fill_ghost": {}, "resume": {}}
    bob.upload(np.ones(5), "own")
    asked = 0
    for method, path in sorted(bob.contract.operations()):
        if not re.search(r"\{(ref|id)\}", path) or path.startswith("/v1/admin/") or (method == "PUT" and path.endswith("{ref}")):
            continue
        i = session if "/sessions/" in path else job if "/jobs/" in path else array
        body = bodies.get(path.split("/")[-1], {"read_only": True}) if method in ("POST", "PATCH") else None
        if path.endswith("/sync"):
            body = None
        replies = []
        for ref in (i, nobodys[i]):
            target = path.replace("{ref}", ref).replace("{id}", ref).replace("{principal}", "bob")
            r = bob.request(method, target, np.ones(5).tobytes() if method == "PUT" else None, json_body=body,
                            content_type=OCTETS if method == "PUT" else None)
            bob.fails(404, "not_found", r)
            replies.append(r.body.replace(ref.encode(), b"ID"))
        assert replies[0] == replies[1], (method, path)
        asked += 1
    assert asked >= 15
    for ref in (array, nobodys[array]):
        for body in ({"expr": "u", "bind": {"u": ref}}, {"expr": "1", "out": ref}, {"tree": ref}):
            assert bob.post("/v1/evaluate", body).status in (404, 422)
    for body in ({"like": array}, {"shape": [5], "congruent_to": array}):
        bob.fails(404, "not_found", bob.post("/v1/arrays", body))
    bob.fails(404, "not_found", bob.get("/v1/arrays", headers={"Arrayd-Session": session}))
    assert [a["name"] for a in bob.get("/v1/arrays").json()["arrays"]] == ["own"]
    assert bob.get("/v1/jobs").json()["jobs"] == [] and len(bob.get("/v1/sessions").json()["sessions"]) == 1
    assert ann.get(f"/v1/jobs/{job}?wait=1").json()["state"] == "done"
    np.testing.assert_array_equal(inside.download("u"), np.full(5, 2.))
    for c in (ann, bob, inside):
        c.close()


# --- the command ---

def test_the_command(accounts):
    token = accounts.add("ann")
    assert re.fullmatch(r"arrayd_[A-Za-z0-9_-]{32}", token)
    assert stat.S_IMODE(os.stat(accounts.path).st_mode) == 0o600 and token not in accounts.path.read_text()
    second = accounts.command("add", "bob", "--role", "operator").strip()
    third = accounts.command("add", "bob").strip()
    assert len({token, second, third}) == 3
    listed = [line.split() for line in accounts.command("list").splitlines()]
    assert [line[:2] for line in listed] == [["ann", "user"], ["bob", "operator"]]
    assert [len(line) for line in listed] == [3, 4] and all(re.fullmatch("[0-9a-f]{12}", i) for i in listed[1][2:])
    accounts.command("remove", "bob", listed[1][2])
    assert accounts.command("list").splitlines()[1].split() == ["bob", "operator", listed[1][3]]
    accounts.command("remove", "bob")
    assert accounts.command("list").splitlines()[1].split() == ["bob", "operator"]
    assert sorted(os.listdir(accounts.path.parent)) == ["accounts"]


def test_the_command_keeps_what_was_written(accounts):
    accounts.write("# ours\n[ann] # she\n  weight = 7 ; much\n\n[bob]\nrole = operator\n")
    os.chmod(accounts.path, 0o644)
    accounts.command("add", "ann")
    text = accounts.path.read_text()
    assert re.fullmatch(r"# ours\n\[ann\] # she\ntoken = [0-9a-f]{64}\n  weight = 7 ; much\n\n\[bob\]\nrole = operator\n", text)
    accounts.command("remove", "ann")
    assert accounts.path.read_text() == re.sub("token.*\n", "", text)
    for mode, want in ((0o644, 0o644), (0o640, 0o640), (0o600, 0o600), (0o664, 0o644), (0o755, 0o644)):
        os.chmod(accounts.path, mode)
        accounts.command("add", "ann")
        assert stat.S_IMODE(os.stat(accounts.path).st_mode) == want


def test_a_link_to_the_file_stays_one(accounts, tmp_path):
    accounts.add("ann")
    accounts.path.rename(tmp_path / "real")
    accounts.path.symlink_to("real")
    accounts.command("add", "bob")
    assert accounts.path.is_symlink() and "[bob]" in (tmp_path / "real").read_text()


def test_an_account_is_ended_by_a_command(accounts):
    def command(*args):
        return subprocess.run([find_binary(), *args, "--accounts", str(accounts.path)], capture_output=True, text=True, timeout=60)

    accounts.add("ann")
    accounts.add("ann")
    accounts.write("# the house\n" + accounts.path.read_text() + "weight = 2 # hers\n\n# for bob\n[bob]\nweight = 3\n")
    ids = command("token", "list").stdout.split("\n")[0].split()[2:]
    assert not command("token", "remove", "ann", ids[0]).stderr  # she has another
    done = command("token", "remove", "ann")
    assert done.returncode == 0 and "'arrayd account remove ann' to remove it" in done.stderr, done
    assert "[ann]" in accounts.path.read_text()
    assert command("account", "remove", "ann").returncode == 0
    assert accounts.path.read_text() == "# the house\n\n# for bob\n[bob]\nweight = 3\n"
    done = command("account", "remove", "ann")
    assert done.returncode == 1 and done.stderr.startswith("arrayd account:") and "no account 'ann'" in done.stderr
    for args in ((), ("remove",), ("add", "ann"), ("remove", "ann", "x")):
        done = command("account", *args)
        assert done.returncode == 2 and "usage: arrayd account" in done.stderr, args
    done = command("account", "remove", "bob")
    assert done.returncode == 0 and "keeps the accounts it has" in done.stderr
    assert accounts.path.read_text() == "# the house\n\n# for bob\n"


def test_what_the_command_refuses(accounts, tmp_path):
    assert "letter" in accounts.command("add", "a b", status=1)
    assert "role" in accounts.command("add", "ann", "--role", "king", status=2)
    assert not accounts.path.exists()
    assert "No such file" in accounts.command("list", status=1)
    accounts.add("ann")
    assert "no account 'bob'" in accounts.command("remove", "bob", status=1)
    assert "already" in accounts.command("add", "ann", "--role", "operator", status=1)
    assert "12 digits" in accounts.command("remove", "ann", "0", status=1)
    assert "no token" in accounts.command("remove", "ann", "0" * 12, status=1)
    accounts.write("[ann]\nbad\n")
    assert "line 2" in accounts.command("add", "ann", status=1)
    assert accounts.path.read_text() == "[ann]\nbad\n"
    for args in (("token",), ("token", "make"), ("token", "list"), ("token", "add", "--accounts", "x"), ("token", "list", "--what")):
        done = subprocess.run([find_binary(), *args], capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert done.returncode == 2 and done.stderr, args
    assert "usage" in subprocess.run([find_binary(), "token", "help"], capture_output=True, text=True, check=True).stdout


def test_the_command_finds_the_daemons_file(accounts, tmp_path):
    (tmp_path / "conf").write_text(f"accounts = {accounts.path}\n")
    accounts.add("ann")
    done = subprocess.run([find_binary(), "token", "list", "--config", str(tmp_path / "conf")], capture_output=True, text=True)
    assert done.stdout.startswith("ann user ") and done.returncode == 0


# --- a new file ---

def test_tokens_come_and_go(house, accounts):
    ann, bob = (accounts.client(house, name) for name in ("ann", "bob"))
    bob.upload(np.arange(3.), "u")
    old = accounts.token["bob"]
    accounts.command("remove", "bob")
    eve = accounts.add("eve")
    assert bob.get("/v1/arrays").status == 200  # nothing happens before the signal
    accounts.reload(house)
    bob.fails(401, "unauthorized", bob.get("/v1/arrays"))
    with_token(house, eve).expect(200, with_token(house, eve).get("/v1/arrays"))
    accounts.add("bob")
    accounts.reload(house)
    again = accounts.client(house, "bob")  # another token, the same arrays
    np.testing.assert_array_equal(again.download("u"), np.arange(3.))
    bob.fails(401, "unauthorized", bob.get("/v1/arrays"))
    assert old != accounts.token["bob"]
    ann.expect(200, ann.get("/v1/info"))
    for c in (ann, bob, again):
        c.close()


def test_an_account_that_goes_takes_its_arrays_along(house, accounts):
    ann, bob = (accounts.client(house, name) for name in ("ann", "bob"))
    text = accounts.path.read_text()
    s = bob.post("/v1/sessions", {}).json()["id"]
    u = bob.upload(np.ones(1000), "u")["id"]
    bob.clone(session=s).upload(np.ones(1000), "v")
    bob.expect(201, bob.post(f"/v1/arrays/{u}/shares", {"principal": "ann", "access": "read"}))
    ann.expect(200, ann.get(f"/v1/arrays/{u}"))
    accounts.write(text[:text.index("[bob]")])
    accounts.reload(house)
    ann.fails(404, "not_found", ann.get(f"/v1/arrays/{u}"))
    ann.create(shape=[2], name="w")
    ann.fails(404, "not_found", ann.post("/v1/arrays/w/shares", {"principal": "bob", "access": "read"}))
    ann.expect(204, ann.delete("/v1/arrays/w"))
    assert ann.info()["bytes_in_use"] == 0
    bob.fails(401, "unauthorized", bob.get("/v1/info"))
    accounts.write(text)
    accounts.reload(house)
    assert bob.get("/v1/arrays").json()["arrays"] == [] and len(bob.get("/v1/sessions").json()["sessions"]) == 1
    for c in (ann, bob):
        c.close()


@pytest.mark.parametrize("text,told", [
    ("[ann]\n[ann]\n", "line 2"), ("[ann]\nrole = king\n", "line 2"), ("\n\n[bob\n", "line 3"),
    ("[ann]\ntoken = 12\n", "line 2"), ("x = 1\n", "line 1"), ("[ann]\nweight = 0\n", "line 2"), (None, "No such file"),
    ("", "no account"), ("# nobody\n", "no account")])
def test_a_file_with_a_mistake_changes_nothing(house, accounts, text, told):
    ann = accounts.client(house, "ann")
    if text is None:
        accounts.path.unlink()
    else:
        accounts.write(text)
    assert told in accounts.reload(house, said="accounts are unchanged")
    assert ann.info()["principal"]["weight"] == 3
    ann.close()


def test_a_hangup_without_accounts_ends_nothing(daemon_with, accounts):
    d = daemon_with()
    accounts.reload(d, said="no accounts")
    c = d.client()
    p = c.info()["principal"]
    assert (p["name"], p["role"], p["weight"]) == ("local", "operator", 1)
    c.close()


@pytest.mark.parametrize("text,told", [(None, "No such file"), ("[ann\n", "line 1")])
def test_a_wrong_start_says_why(accounts, text, told):
    if text:
        accounts.write(text)
    done = subprocess.run([find_binary(), "--listen", "127.0.0.1:0", "--accounts", str(accounts.path)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and told in done.stderr, done


def test_everybody_must_not_write(accounts):
    accounts.add("ann")
    os.chmod(accounts.path, 0o606)
    done = subprocess.run([find_binary(), "--listen", "127.0.0.1:0", "--accounts", str(accounts.path)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "any user may write" in done.stderr


def test_with_accounts_other_addresses_are_listened_on(accounts, daemon_with):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, listen="0.0.0.0:0")
    assert d.addresses[0].startswith("0.0.0.0:")


def test_the_local_socket_wants_a_token_too(accounts, daemon_with, tmp_path):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--listen", f"unix:{tmp_path}/s")
    c = d.client(unix=f"{tmp_path}/s")
    c.fails(401, "unauthorized", c.get("/v1/info"))
    c.close()


def test_the_documented_file_is_one(accounts, daemon_with):
    """Every key of docs/security.md's example is understood."""
    example, = re.findall(r"^```ini\n(.*?)^```$", (REPO / "docs/security.md").read_text(), re.M | re.S)
    accounts.write(example)
    d = daemon_with("--accounts", accounts.path)
    assert set(re.findall(r"^([a-z-]+) = ", example, re.M)) == {
        "role", "weight", "device-memory", "host-memory", "request-memory", "arrays", "sessions", "requests", "body", "token"}
    c = d.client()
    c.fails(401, "unauthorized", c.get("/v1/info"))
    c.close()


# --- several at once ---

def test_one_users_leases_and_shares_are_no_limit_for_others(two_with):
    ann, bob = two_with("--max-leases", "2", "--max-shares", "1")
    for c, other in ((ann, "bob"), (bob, "ann")):
        for name in ("u", "v", "w"):
            c.create(shape=[1], name=name)
        for name in ("u", "v"):
            c.expect(201, c.post(f"/v1/arrays/{name}/lease", {"mode": "read", "ttl_s": 60}))
        c.fails(429, "quota_exceeded", c.post("/v1/arrays/w/lease", {"mode": "read", "ttl_s": 60}))
        share = {"principal": other, "access": "read"}
        c.expect(201, c.post("/v1/arrays/u/shares", share))
        c.fails(429, "quota_exceeded", c.post("/v1/arrays/v/shares", share))
        c.expect(204, c.delete(f"/v1/arrays/u/shares/{other}"))
        c.expect(201, c.post("/v1/arrays/v/shares", share))
        c.close()


def test_who_comes_back_has_not_what_was_shared_with_him(house, accounts):
    """It may be somebody else of that name."""
    ann, bob = (accounts.client(house, name) for name in ("ann", "bob"))
    u = ann.upload(np.ones(3), "u")["id"]
    share = {"principal": "bob", "access": "read"}
    ann.expect(201, ann.post("/v1/arrays/u/shares", share))
    bob.expect(200, bob.get(f"/v1/arrays/{u}"))
    text = accounts.path.read_text()
    accounts.write(text[:text.index("[bob]")])
    accounts.reload(house)
    accounts.write(text)
    accounts.reload(house)
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{u}"))
    assert ann.get("/v1/arrays/u/shares").json() == {"shares": []}
    ann.expect(201, ann.post("/v1/arrays/u/shares", share))
    bob.expect(200, bob.get(f"/v1/arrays/{u}"))
    ann.close()
    bob.close()


def test_new_files_under_load(house, accounts):
    """Whoever has an account before and after is served all the while; one who comes and goes gets nothing else than that."""
    text = accounts.path.read_text()
    without = text[:text.index("[bob]")]
    stop, wrong, served = threading.Event(), [], {"ann": 0, "bob": 0}

    def work(name):
        c = accounts.client(house, name)
        while not stop.is_set():
            r = c.post("/v1/evaluate", {"expr": "1 + 1.0", "name": "x"} if served[name] % 2 else {"expr": "1 + 1"})
            served[name] += 1
            if r.status not in ((200, 201) if name == "ann" else (200, 201, 401, 404, 409)) and not (name == "ann" and r.status == 409):
                wrong.append(r)
        c.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob", "bob")]
    for t in threads:
        t.start()
    for k in range(40):
        accounts.write(text if k % 2 else without)
        accounts.reload(house)
    stop.set()
    for t in threads:
        t.join(60)
    assert not wrong and min(served.values()) > 20, (wrong[:3], served)
    ann = accounts.client(house, "ann")
    assert ann.info()["principal"]["quotas"]["requests"]["used"] == 1
    ann.close()


def test_who_hangs_up_has_no_request_in_flight(house, accounts):
    ann = accounts.client(house, "ann")
    head = f"Host: localhost\r\nAuthorization: Bearer {accounts.token['ann']}\r\n".encode()
    for begun in (b"PUT /v1/arrays/u HTTP/1.1\r\n" + head + b"Content-Length: 1000000\r\n\r\nabc",
                  b"POST /v1/evaluate HTTP/1.1\r\n" + head + b"Content-Length: 10\r\n\r\n{",
                  b"GET /v1/info HTTP/1.1\r\n" + head + b"\r\n", b"GET /v1/nothing HTTP/1.1\r\n" + head + b"\r\n"):
        for _ in range(10):
            s = socket.create_connection((house.host, house.port), timeout=20)
            s.sendall(begun)
            s.close()
    until(lambda: ann.info()["principal"]["quotas"]["requests"]["used"] == 1)
    ann.close()
