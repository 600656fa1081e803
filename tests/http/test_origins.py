"""Host, Origin and CORS: what a browser can be used for by a page from elsewhere, and what by one that was named."""
import subprocess

import pytest

from conftest import find_binary

APP, OTHER = "https://app.example:8443", "https://evil.example"
ASKED = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,content-type"}


def cors(reply):
    return [name for name in ("Origin", "Methods", "Headers", "Credentials", "Private-Network")
            if reply.headers.get(f"Access-Control-Allow-{name}") is not None]


@pytest.fixture
def app(daemon_with, accounts):
    accounts.add("ann")
    d = daemon_with("--cors-origin", APP, "--cors-origin", "http://localhost:3000", "--accounts", accounts.path)
    c = accounts.client(d, "ann")
    yield c
    c.close()


def test_a_page_that_was_named(app):
    for origin in (APP, "http://localhost:3000"):
        r = app.expect(200, app.get("/v1/info", headers={"Origin": origin}))
        assert r.headers["Access-Control-Allow-Origin"] == origin and "Origin" in r.headers["Vary"]
        assert "ETag" in r.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in r.headers
        r = app.expect(404, app.get("/v1/arrays/nothing", headers={"Origin": origin}))  # errors can be read too
        assert r.headers["Access-Control-Allow-Origin"] == origin
    c = app.clone(always={})
    r = c.get("/v1/info", headers={"Origin": APP})
    c.fails(401, "unauthorized", r)
    assert r.headers["Access-Control-Allow-Origin"] == APP
    c.close()


def test_it_may_ask_beforehand(app):
    c = app.clone(always={})  # a browser asks without credentials
    r = c.expect(204, c.request("OPTIONS", "/v1/arrays/u/data", headers={"Origin": APP, **ASKED}))
    assert r.headers["Access-Control-Allow-Origin"] == APP and r.headers["Access-Control-Max-Age"] == "600"
    assert "PUT" in r.headers["Access-Control-Allow-Methods"]
    assert {"Authorization", "Content-Type", "Arrayd-Session"} <= set(r.headers["Access-Control-Allow-Headers"].split(", "))
    r = c.expect(204, c.request("OPTIONS", "/v1/arrays/u/data", headers={"Origin": APP}))
    assert "Access-Control-Allow-Methods" not in r.headers  # nothing was asked
    for target in ("/v1/nothing", "*"):
        r = c.request("OPTIONS", target, headers={"Origin": APP, **ASKED}, check=False)
        assert "Access-Control-Allow-Methods" not in r.headers
    c.close()


@pytest.mark.parametrize("origin", [OTHER, "null", "*", APP + "0", APP + "/", "http://app.example:8443", "https://app.example",
                                    "https://sub.app.example:8443", f"{APP}, {OTHER}", "https://localhost:3000"])
def test_others_may_not(app, origin):
    for method, extra in (("GET", {}), ("OPTIONS", ASKED)):
        r = app.request(method, "/v1/info", headers={"Origin": origin, **extra}, check=method == "GET")
        assert r.status == 403 and not cors(r), r
    r = app.expect(200, app.get("/v1/info"))
    assert not cors(r) and "Origin" in r.headers["Vary"]


def test_nobody_may_without_being_named(daemon):
    c = daemon.client()
    r = c.get("/v1/info", headers={"Origin": APP})
    c.fails(403, "forbidden", r)
    assert not cors(r)
    r = c.expect(200, c.get("/v1/info", headers={"Origin": f"http://{daemon.host}:{daemon.port}"}))
    assert not cors(r) and "Vary" not in r.headers
    c.close()


@pytest.mark.parametrize("origin,told", [("*", "one by one"), ("app.example", "not an origin"), ("https://", "not an origin"),
                                         ("https://app.example/", "not an origin"), ("null", "not an origin"),
                                         ("ftp://app.example", "not an origin"), ("https://a@b", "not an origin")])
def test_what_is_no_origin(origin, told):
    done = subprocess.run([find_binary(), "--backend", "cpu", "--listen", "127.0.0.1:0", "--cors-origin", origin],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and told in done.stderr, done


def host(c, name, origin=None):
    return c.get("/healthz", headers={"Host": name, **({"Origin": origin} if origin else {})})


def test_names_and_addresses(daemon_with, accounts):
    """A name must be known; on an address that others reach any address of ours will do, since no page can fake one."""
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--allowed-host", "arrays.example", listen="0.0.0.0:0")
    c = d.client()
    c.host = "127.0.0.1"
    for name in ("localhost", "arrays.example", "arrays.example:1234", "ARRAYS.example", "10.1.2.3", "10.1.2.3:7411", "[fd00::1]:7411"):
        assert host(c, name).status == 200, name
    for name in ("evil.example", "arrays.example.evil.example", "10.1.2.3.evil.example", "10.1.2", "1"):
        c.fails(403, "forbidden", host(c, name))
    assert host(c, "10.1.2.3:7411", "http://10.1.2.3:7411").status == 200
    for origin in ("http://10.1.2.4:7411", "http://10.1.2.3:80", "http://evil.example", "http://10.1.2.3"):
        c.fails(403, "forbidden", host(c, "10.1.2.3:7411", origin))
    c.close()


def test_on_loopback_addresses_are_not_enough(daemon):
    c = daemon.client()
    c.fails(403, "forbidden", host(c, "10.1.2.3"))
    c.close()
