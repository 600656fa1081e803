"""Logins of browsers: the cookie, what it stands for and when that ends, and whose requests it does not count for."""
import re
import socket
import ssl
import threading

import numpy as np
import pytest

from client import JSON
from conftest import until
from test_tls import make_certificate

SAME = {"Sec-Fetch-Site": "same-origin"}
COOKIE = re.compile(r"(arrayd-[A-Za-z0-9_-]{12})=([A-Za-z0-9_-]{43}); Path=/; Max-Age=(\d+); HttpOnly; SameSite=Strict(; Secure)?")


def log_in(c, key, what="token"):
    """The pair name=value of a new login."""
    r = c.expect(200, c.post("/v1/login", {what: key}, headers=SAME))
    return COOKIE.fullmatch(r.headers["Set-Cookie"]).expand(r"\1=\2")


def browser(daemon, cookie, **kw):
    return daemon.client(always={"Cookie": cookie, **SAME}, **kw)


def watched(daemon, job, cookie):
    """The thread that reads a job's events until they end, and what it has read."""
    seen = []

    def watch():
        try:
            with socket.create_connection((daemon.host, daemon.port), timeout=20) as s:
                s.sendall(f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
                while piece := s.recv(65536):
                    seen.append(piece)
        except ConnectionError:
            pass

    t = threading.Thread(target=watch)
    t.start()
    until(lambda: seen)
    return t, seen


def long_job(c):
    c.expect(201, c.post("/v1/arrays", {"name": "u", "shape": [4]}))
    return c.expect(202, c.post("/v1/programs", {"body": ["u += 1"], "steps": 10**12})).json()["id"]


@pytest.fixture
def house(daemon_with, accounts):
    accounts.add("ann", role="operator")
    accounts.add("bob")
    return daemon_with("--accounts", accounts.path, "--log-json", "--log-requests")


@pytest.fixture
def stranger(house):
    c = house.client()
    yield c
    c.close()


def test_a_token_becomes_a_cookie(house, accounts, stranger):
    before = stranger.expect(200, stranger.get("/v1/login"))
    assert before.json() == {"required": True, "principal": None, "role": None, "expires": None, "arrays": None, "jobs": None}
    assert "WWW-Authenticate" not in before.headers
    r = stranger.expect(200, stranger.post("/v1/login", {"token": accounts.token["ann"]}, headers=SAME))
    name, key, age, secure = COOKIE.fullmatch(r.headers["Set-Cookie"]).groups()
    assert 43200 - 5 <= int(age) <= 43200 and secure is None
    assert accounts.token["ann"] not in str(r.headers.pairs) + r.body.decode()
    ann = browser(house, f"{name}={key}")
    who = ann.expect(200, ann.get("/v1/login")).json()
    assert who == r.json() and (who["principal"], who["role"]) == ("ann", "operator")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", who["expires"])
    assert ann.info()["principal"]["name"] == "ann"
    ann.upload(np.arange(3.), "u")
    ann.expect(200, ann.get("/metrics"))
    ann.expect(204, ann.delete("/v1/arrays/u"))
    assert accounts.token["ann"] not in house.log() and key not in house.log()
    until(lambda: '"principal":"ann"' in house.log())
    ann.close()


def test_by_a_token_in_the_header(house, accounts):
    """Nothing is needed then, and a cookie does not count."""
    c = accounts.client(house, "bob")
    who = c.expect(200, c.get("/v1/login")).json()
    assert (who["principal"], who["role"], who["expires"]) == ("bob", "user", None)
    ann = log_in(c, accounts.token["ann"])
    assert c.get("/v1/login", headers={"Cookie": ann}).json()["principal"] == "bob"
    c.expect(201, c.post("/v1/arrays", {"shape": [1]}, headers={"Cookie": ann}))  # no sign of an origin, but a token
    c.expect(204, c.post("/v1/logout", headers={"Cookie": ann}))
    assert browser(house, ann).get("/v1/login").json()["principal"] == "ann"  # which was not bob's to end
    wrong = house.client(always={"Authorization": "Bearer arrayd_" + "A" * 32, "Cookie": ann})
    wrong.fails(401, "unauthorized", wrong.get("/v1/login"))
    wrong.fails(401, "unauthorized", wrong.post("/v1/logout"))
    c.close()


def test_keys_are_random(house, accounts, stranger):
    pairs = {log_in(stranger, accounts.token["bob"]) for _ in range(20)}
    assert len(pairs) == 20 and len({p.split("=")[0] for p in pairs}) == 1
    keys = [p.split("=")[1] for p in pairs]
    assert min(len(set(column)) for column in zip(*keys)) > 5


def test_wrong_tokens(house, accounts, stranger):
    for body, status, code in (({"token": "arrayd_" + "A" * 32}, 401, "unauthorized"), ({"token": ""}, 401, "unauthorized"),
                               ({"link": "A" * 43}, 401, "unauthorized"), ({"link": ""}, 401, "unauthorized"),
                               ({}, 422, "bad_field"), ({"token": "x", "link": "y"}, 422, "bad_field"),
                               ({"token": 3}, 422, "bad_field"), ({"token": None}, 422, "bad_field"),
                               ({"token": "x", "user": "ann"}, 422, "unknown_field")):
        r = stranger.post("/v1/login", body, headers=SAME)
        stranger.fails(status, code, r)
        assert "Set-Cookie" not in r.headers
        assert (r.headers.get("Connection") == "close") is (status == 401)  # as for a wrong token in a header
    key = log_in(stranger, accounts.token["ann"]).split("=")[1]
    stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"link": key}, headers=SAME))
    stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"token": key}, headers=SAME))
    stranger.fails(401, "unauthorized", stranger.get("/v1/info", headers={"Authorization": f"Bearer {key}"}))
    stranger.fails(415, "unsupported_media_type", stranger.request("POST", "/v1/login", b'{"token":"x"}', content_type="text/plain"))


def test_wrong_tokens_are_in_the_audit_and_the_log_once(house, accounts, stranger):
    for _ in range(20):
        stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"token": "arrayd_" + "B" * 32}, headers=SAME))
    ann = accounts.client(house, "ann")
    entries = ann.get("/v1/admin/audit").json()["entries"]
    assert [e["action"] for e in entries].count("login") == 1 and "BBBB" not in str(entries)
    lines = [line for line in house.log().splitlines() if "tokens were refused" in line]
    assert len(lines) == 1 and "BBBB" not in house.log()
    ann.close()


def test_anybody_may_send_little(house, stranger):
    """The body of a login is read before it is known whose it is."""
    stranger.fails(413, "too_large", stranger.post("/v1/login", {"token": "A" * 5000}, headers=SAME))
    r = stranger.request("POST", "/v1/login", b'{"token":"' + b"A" * 5000 + b'"}', content_type=JSON, chunked=True)
    stranger.fails(413, "too_large", r)
    stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"token": "A" * 4000}, headers=SAME))


# --- the end ---

def test_logging_out(house, accounts, stranger):
    first, second = (log_in(stranger, accounts.token["bob"]) for _ in range(2))
    bob = browser(house, first)
    r = bob.expect(204, bob.post("/v1/logout"))
    name = first.split("=")[0]
    assert r.headers["Set-Cookie"] == f"{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
    bob.fails(401, "unauthorized", bob.get("/v1/info"))
    assert bob.get("/v1/login").json()["principal"] is None
    bob.expect(204, bob.post("/v1/logout"))  # once more
    other = browser(house, second)
    assert other.info()["principal"]["name"] == "bob"
    stranger.expect(204, stranger.post("/v1/logout"))
    bob.close()
    other.close()


def test_it_ends_by_itself(daemon_with, accounts):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--login-lifetime", "1")
    c = d.client()
    r = c.expect(200, c.post("/v1/login", {"token": accounts.token["ann"]}, headers=SAME))
    assert int(COOKIE.fullmatch(r.headers["Set-Cookie"])[3]) <= 1
    ann = browser(d, COOKIE.fullmatch(r.headers["Set-Cookie"]).expand(r"\1=\2"))
    ann.expect(200, ann.get("/v1/arrays"))
    until(lambda: ann.get("/v1/login").json()["principal"] is None)
    ann.fails(401, "unauthorized", ann.get("/v1/arrays"))
    assert accounts.client(d, "ann").info()["limits"]["login_lifetime"] == 1
    c.close()
    ann.close()


def test_it_ends_with_its_token(house, accounts, stranger):
    by_first = log_in(stranger, accounts.token["bob"])
    first = accounts.token["bob"]
    accounts.add("bob")
    accounts.reload(house)
    by_second = log_in(stranger, accounts.token["bob"])
    ids = [line.split()[2:] for line in accounts.command("list").splitlines() if line.startswith("bob")][0]
    accounts.command("remove", "bob", ids[1])  # a new token goes above the older one
    accounts.reload(house)
    stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"token": first}, headers=SAME))
    bob = browser(house, by_first)
    assert "over" in bob.fails(401, "unauthorized", bob.get("/v1/info"))["detail"]
    assert bob.get("/v1/login").json()["principal"] is None
    again = browser(house, by_second)
    again.expect(200, again.get("/v1/info"))
    text = accounts.path.read_text()
    for now in (re.sub(r"token = .*\n", "", text), text):  # a token that comes back brings back no login
        accounts.write(now)
        accounts.reload(house)
        again.fails(401, "unauthorized", again.get("/v1/info"))
    for c in (bob, again):
        c.close()


def test_it_ends_with_its_account(house, accounts, stranger):
    cookie = log_in(stranger, accounts.token["bob"])
    text = accounts.path.read_text()
    accounts.write(text[:text.index("[bob]")])
    accounts.reload(house)
    bob = browser(house, cookie)
    bob.fails(401, "unauthorized", bob.get("/v1/info"))
    accounts.write(text)
    accounts.reload(house)  # another account of that name, with the same token
    bob.fails(401, "unauthorized", bob.get("/v1/info"))
    assert bob.get("/v1/login").json()["principal"] is None
    bob.close()


def test_an_operator_ends_the_account(house, accounts, stranger):
    cookie = log_in(stranger, accounts.token["bob"])
    ann = accounts.client(house, "ann")
    ann.expect(204, ann.delete("/v1/admin/principals/bob"))
    bob = browser(house, cookie)
    bob.fails(401, "unauthorized", bob.get("/v1/arrays"))
    ann.close()
    bob.close()


def test_what_is_under_way_ends_with_it(house, accounts, stranger):
    """A stream of a job's events, by a login that logs out."""
    cookie = log_in(stranger, accounts.token["bob"])
    bob = browser(house, cookie)
    bob.upload(np.ones(10), "u")
    job = bob.post("/v1/programs", {"bind": {"u": "u"}, "body": ["u += 1"], "steps": 10**9}).json()["id"]
    t, seen = watched(house, job, cookie)
    bob.expect(204, bob.post("/v1/logout"))
    t.join(20)
    assert not t.is_alive() and b"\r\n0\r\n\r\n" not in b"".join(seen)
    c = accounts.client(house, "bob")
    c.expect(200, c.delete(f"/v1/jobs/{job}"))
    c.close()
    bob.close()


def test_not_more_than_so_many(daemon_with, accounts):
    accounts.add("ann")
    accounts.add("bob")
    d = daemon_with("--accounts", accounts.path, "--max-logins", "3")
    c = d.client()
    bobs = log_in(c, accounts.token["bob"])
    cookies = [log_in(c, accounts.token["ann"]) for _ in range(5)]
    names = [browser(d, x).get("/v1/login").json()["principal"] for x in cookies]
    assert names == [None, None, "ann", "ann", "ann"]
    assert browser(d, bobs).get("/v1/login").json()["principal"] == "bob"
    c.close()


def test_it_does_not_outlive_the_process(daemon_with, accounts, stranger, house):
    cookie = log_in(stranger, accounts.token["ann"])
    d = daemon_with("--accounts", accounts.path)
    other = browser(d, cookie)
    assert other.get("/v1/login").json()["principal"] is None
    other.close()


# --- whose request it is ---

def test_two_daemons_of_one_host(daemon_with, accounts, house, stranger):
    """Browsers send a host's cookies to all its ports: each daemon takes its own, and none overwrites another's."""
    d = daemon_with("--accounts", accounts.path)
    c = d.client()
    ann, bob = log_in(stranger, accounts.token["ann"]), log_in(c, accounts.token["bob"])
    assert ann.split("=")[0] != bob.split("=")[0]
    for jar in (f"{ann}; {bob}", f"{bob}; {ann}"):
        for daemon, name in ((house, "ann"), (d, "bob")):
            x = browser(daemon, jar)
            assert x.info()["principal"]["name"] == name
            x.close()
    x = browser(house, bob)
    x.fails(401, "unauthorized", x.get("/v1/info"))
    swapped = f"{ann.split('=')[0]}={bob.split('=')[1]}"
    x.fails(401, "unauthorized", x.get("/v1/info", headers={"Cookie": swapped}))
    x.close()
    c.close()


def test_a_page_is_one_users(house, accounts, stranger):
    """What it sends for one user is not done for another, who has logged in since."""
    for name in ("ann", "bob"):
        c = browser(house, log_in(stranger, accounts.token[name]))
        for method, path, body in (("GET", "/v1/arrays", None), ("GET", "/v1/login", None), ("POST", "/v1/arrays", {"shape": [2]})):
            for expected in ("ann", "bob", "an", ""):
                r = c.request(method, path, json_body=body, headers={"Arrayd-Principal": expected})
                if expected == name:
                    assert r.status in (200, 201), (path, expected)
                else:
                    c.fails(401, "unauthorized", r)
        assert len(c.get("/v1/arrays").json()["arrays"]) == 1
        c.close()
    c = accounts.client(house, "ann")
    c.expect(200, c.get("/v1/arrays", headers={"Arrayd-Principal": "bob"}))  # a token says itself whose it is
    c.close()


@pytest.fixture
def bob(house, accounts, stranger):
    c = browser(house, log_in(stranger, accounts.token["bob"]))
    c.always = {"Cookie": c.always["Cookie"]}
    yield c
    c.close()


UNSAFE = [("POST", "/v1/arrays", {"shape": [1]}), ("PUT", "/v1/arrays/x", {"shape": [1]}), ("PATCH", "/v1/arrays/u", {"read_only": False}),
          ("POST", "/v1/evaluate", {"expr": "1+1"}), ("POST", "/v1/explain", {"expr": "1+1"}), ("POST", "/v1/links", {"expires_s": 5}),
          ("POST", "/v1/sessions", {}), ("POST", "/v1/arrays/u/copy", None), ("DELETE", "/v1/arrays/nothing", None)]


@pytest.mark.parametrize("method,path,body", UNSAFE)
def test_other_sites_change_nothing(bob, method, path, body):
    bob.expect(201, bob.post("/v1/arrays", {"shape": [1], "name": "u"}, headers=SAME))
    here, port = f"127.0.0.1:{bob.port}", bob.port
    refused = [{}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": ""},
               {"Sec-Fetch-Site": "same-origin, cross-site"}, {"Sec-Fetch-Site": "cross-site", "Origin": f"http://{here}"},
               {"Origin": "null"}, {"Origin": "https://evil.example"}, {"Origin": f"http://127.0.0.1:{port + 1}"},
               {"Origin": f"http://localhost:{port}"}, {"Origin": f"http://127.0.0.1.evil.example:{port}"}, {"Origin": here},
               {"Origin": f"http://{here}/"}, {"Origin": f"http://evil.example/?http://{here}"}, {"Referer": f"http://{here}/"}]
    for headers in refused:
        bob.fails(403, "forbidden", bob.request(method, path, json_body=body, headers=headers))
    for headers in (SAME, {"Sec-Fetch-Site": "none"}, {"Origin": f"http://{here}"}, {"Origin": f"http://{here}", **SAME}):
        assert bob.request(method, path, json_body=body, headers=headers).status in (200, 201, 204, 404, 409), headers


def test_other_sites_read_nothing_that_says_so(bob):
    bob.expect(200, bob.get("/v1/info"))
    bob.expect(200, bob.get("/v1/info", headers={"Sec-Fetch-Site": "none"}))
    for site in ("cross-site", "same-site"):
        bob.fails(403, "forbidden", bob.get("/v1/info", headers={"Sec-Fetch-Site": site}))
        bob.fails(403, "forbidden", bob.get("/v1/login", headers={"Sec-Fetch-Site": site}))
    r = bob.get("/v1/info")
    assert not [name for name, _ in r.headers.pairs if name.lower().startswith("access-control-")]


def test_other_sites_log_nobody_in_or_out(house, accounts, bob, stranger):
    for site in ("cross-site", "same-site"):
        r = stranger.post("/v1/login", {"token": accounts.token["ann"]}, headers={"Sec-Fetch-Site": site})
        assert "Set-Cookie" not in r.headers
        stranger.fails(403, "forbidden", r)
        for c in (bob, stranger):
            r = c.post("/v1/logout", headers={"Sec-Fetch-Site": site})
            assert "Set-Cookie" not in r.headers
            c.fails(403, "forbidden", r)
    bob.fails(403, "forbidden", bob.post("/v1/logout"))
    assert bob.get("/v1/login").json()["principal"] == "bob"


def test_pages_of_cors_origins_need_a_token(daemon_with, accounts):
    app = "https://app.example:8443"
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--cors-origin", app)
    c = d.client()
    cookie = log_in(c, accounts.token["ann"])
    for headers in ({"Origin": app}, {"Origin": app, "Sec-Fetch-Site": "cross-site"}):
        r = c.post("/v1/arrays", {"shape": [1]}, headers={"Cookie": cookie, **headers})
        c.fails(403, "forbidden", r)
        assert "Access-Control-Allow-Credentials" not in r.headers
    c.expect(201, c.post("/v1/arrays", {"shape": [1]}, headers={"Authorization": f"Bearer {accounts.token['ann']}", "Origin": app}))
    c.close()


def test_reading_changes_nothing(house, accounts, contract, bob):
    """Every GET of the contract with a login: what bob has is afterwards as it was."""
    bob.expect(201, bob.post("/v1/arrays", {"shape": [3], "name": "u"}, headers=SAME))

    def state():
        arrays = bob.get("/v1/arrays").json()["arrays"]
        sessions = [s["id"] for s in bob.get("/v1/sessions").json()["sessions"]]
        return [{k: v for k, v in a.items() if k not in ("references",)} for a in arrays], sessions, bob.get("/v1/links").json()

    before = state()
    for method, path in sorted(contract.operations()):
        if method == "GET":
            bob.get(path.replace("{ref}", "u").replace("{file}", "page.js").replace("{id}", "x").replace("{name}", "f"))
    assert state() == before


# --- the header ---

def test_many_and_long_cookies(house, bob):
    mine = bob.always["Cookie"]
    name, key = mine.split("=")
    good = [mine, f"a=b; {mine}", f"{mine}; a=b", f"a=b;{mine};c=d", f" {mine} ", f";;{mine};", f"=; {mine}", f"x; {mine}", f"{mine}\t",
            f"a=\"q;r\"; {mine}", f"{name}=; {mine}", f"{name}={'A' * 43}; {mine}", f"{name}={'A' * 43}; {name}={key[::-1]}; {mine}",
            f"x{mine}; {mine}", "; ".join(f"c{i}={'v' * 30}" for i in range(300)) + f"; {mine}", f"a={'x' * 24000}; {mine}",
            "; ".join(f"{name}={'B' * 43}" for _ in range(300)) + f"; {mine}", "é=ü; " + mine, f"a={mine}; {mine}", f"a=b, {mine}", f"{name}=x, {mine}, c=d"]
    bad = ["", ";", name, f"{name}=", f"{name}={key[:-1]}", f"{name}={key}A", f"{name}=\"{key}\"", f"{name} = {key}", f"{name}= {key}", f"x{mine}",
           f"a={mine}", f"{name.upper()}={key}", f"{name[:-1]}={key}", f"{name}={key},", f"a=b,{mine}", f"{name}={key.swapcase()}", f"${mine}",
           f"{name}={'A' * 24000}"]
    for cookie in good:
        r = bob.get("/v1/login", headers={"Cookie": cookie.encode()})
        assert bob.expect(200, r).json()["principal"] == "bob", cookie[:100]
    for cookie in bad:
        r = bob.get("/v1/login", headers={"Cookie": cookie.encode()})
        assert bob.expect(200, r).json()["principal"] is None, cookie[:100]
    # libmicrohttpd copies this header into the connection's memory, so it may be half as long as all others
    assert bob.get("/v1/login", headers={"Cookie": f"a={'x' * 60000}; {mine}"}, check=False).status == 431


@pytest.mark.parametrize("inside", [b"\r\nSet-Cookie: a=b", b"\nX: y", b"\r", b"\0", b"; Domain=evil.example", b"\x1b[31m", b"\x7f"])
def test_nothing_of_a_request_comes_back_in_a_header(house, accounts, stranger, inside):
    """A key or a cookie with what would end a header: refused, and not sent back."""
    text = inside.decode("latin-1")
    for body in ({"token": accounts.token["bob"] + text}, {"link": "A" * 43 + text}):
        r = stranger.post("/v1/login", body, headers=SAME)
        assert r.status in (401, 422) and "Set-Cookie" not in r.headers and "X" not in r.headers
    with socket.create_connection((house.host, house.port), timeout=20) as s:
        s.sendall(b"POST /v1/logout HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: arrayd-x=" + inside + b"\r\nContent-Length: 0\r\n\r\n")
        head = b"".join(iter(lambda: s.recv(65536), b"")).split(b"\r\n\r\n")[0]
    assert head.split()[1] in (b"204", b"400") and b"evil" not in head and b"a=b" not in head


def test_over_tls_the_cookie_is_secure(daemon_with, accounts, tmp_path):
    cert, key = make_certificate(tmp_path, "cert")
    accounts.add("ann")
    unix = tmp_path / "s"
    d = daemon_with("--accounts", accounts.path, "--tls-cert", cert, "--tls-key", key, "--listen", "127.0.0.1:0", "--listen", f"unix:{unix}")
    c = d.client(tls=ssl.create_default_context(cafile=cert))
    r = c.expect(200, c.post("/v1/login", {"token": accounts.token["ann"]}, headers=SAME))
    assert COOKIE.fullmatch(r.headers["Set-Cookie"])[4] == "; Secure"
    ann = browser(d, COOKIE.fullmatch(r.headers["Set-Cookie"]).expand(r"\1=\2"), tls=ssl.create_default_context(cafile=cert))
    assert ann.info()["principal"]["name"] == "ann"
    plain = d.client(tls=ssl.create_default_context(cafile=cert), always={"Cookie": ann.always["Cookie"]})
    here = f"://{plain.host}:{plain.port}"  # who serves plain HTTP there may be anybody
    plain.fails(403, "forbidden", plain.post("/v1/arrays", {"shape": [1]}, headers={"Origin": "http" + here}))
    plain.expect(201, plain.post("/v1/arrays", {"shape": [1]}, headers={"Origin": "https" + here}))
    local = d.client(unix=str(unix))  # a proxy that ends TLS: the browser says that it was there
    for origin, secure in (("https://localhost", True), ("http://localhost", False)):
        r = local.expect(200, local.post("/v1/login", {"token": accounts.token["ann"]}, headers={"Origin": origin}))
        assert r.headers["Set-Cookie"].endswith("; Secure") is secure
    for x in (c, ann, plain, local):
        x.close()


def test_without_accounts_nobody_logs_in(daemon_with):
    d = daemon_with()
    c = d.client()
    assert c.expect(200, c.get("/v1/login")).json() == {"required": False, "principal": "local", "role": "operator", "expires": None,
                                                       "arrays": None, "jobs": None}
    c.fails(409, "conflict", c.post("/v1/login", {"token": "x"}, headers=SAME))
    c.expect(204, c.post("/v1/logout"))
    c.expect(201, c.post("/v1/arrays", {"shape": [1]}, headers={"Cookie": "arrayd-AAAAAAAAAAAA=" + "A" * 43}))
    c.close()


def test_the_limits_are_told(house, accounts):
    c = accounts.client(house, "bob")
    limits = c.info()["limits"]
    assert (limits["login_lifetime"], limits["max_logins"], limits["max_links"], limits["max_link_lifetime"], limits["max_link_refs"]) == (
        43200, 50, 100, 2592000, 64)
    c.close()


def test_all_of_ones_own_end_at_once(house, accounts, stranger):
    """By one of them, or by a token; those of others stay, as do links and tokens."""
    ends = {name: [browser(house, log_in(stranger, accounts.token[name])) for _ in range(3)] for name in ("ann", "bob")}
    bob = accounts.client(house, "bob")
    link = bob.expect(201, bob.post("/v1/links", {"expires_s": 60})).json()
    visitor = browser(house, log_in(stranger, link["url"].split("=")[1], "link"))
    for c in ends["bob"]:
        c.expect(200, c.get("/v1/info"))
    t, seen = watched(house, long_job(ends["bob"][1]), ends["bob"][1].always["Cookie"])
    visitor.fails(403, "forbidden", visitor.delete("/v1/logins"))
    ends["bob"][0].fails(400, "bad_query", ends["bob"][0].delete("/v1/logins?all=1"))
    r = ends["bob"][0].expect(200, ends["bob"][0].delete("/v1/logins"))
    assert r.json() == {"ended": 3} and "Max-Age=0" in r.headers["Set-Cookie"]
    t.join(20)
    assert not t.is_alive() and seen
    for c in ends["bob"]:
        c.fails(401, "unauthorized", c.get("/v1/info"))
    visitor.expect(200, visitor.get("/v1/info"))
    ends["ann"][0].expect(200, ends["ann"][0].get("/v1/info"))
    r = bob.expect(200, bob.delete("/v1/logins"))
    assert r.json() == {"ended": 0} and "Set-Cookie" not in r.headers
    log_in(stranger, accounts.token["bob"])
    assert bob.delete("/v1/logins").json() == {"ended": 1}
    bob.get("/v1/arrays")
    for c in (*ends["ann"], *ends["bob"], bob, visitor):
        c.close()


def test_an_operator_ends_all_of_a_users(house, accounts, stranger):
    ann = accounts.client(house, "ann")
    bob, mine = (browser(house, log_in(stranger, accounts.token[name])) for name in ("bob", "ann"))
    bob.fails(403, "forbidden", bob.delete("/v1/admin/principals/ann/logins"))
    ann.fails(404, "not_found", ann.delete("/v1/admin/principals/nobody/logins"))
    assert ann.expect(200, ann.delete("/v1/admin/principals/bob/logins")).json() == {"ended": 1}
    bob.fails(401, "unauthorized", bob.get("/v1/info"))
    mine.expect(200, mine.get("/v1/info"))
    said = [(x["who"], x["target"]) for x in ann.get("/v1/admin/audit").json()["entries"] if x["action"] == "end_logins"]
    assert said == [("ann", "bob: 1")]
    assert mine.expect(200, mine.delete("/v1/admin/principals/ann/logins")).json() == {"ended": 1}
    mine.fails(401, "unauthorized", mine.get("/v1/info"))
    for c in (ann, bob, mine):
        c.close()
