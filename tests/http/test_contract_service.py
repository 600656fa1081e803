"""The contract's sections 2 and 3 (service, sessions), rule by rule."""
import json
import re
import time

import numpy as np
import pytest

from client import DTYPES, NPY, OCTETS, REPO, npy_bytes
from conftest import settle, until
from test_contract import ALLOWED


# --- 2. service ---


def test_healthz_and_readyz(api):
    api.expect(200, api.get("/healthz"))
    api.expect(200, api.get("/readyz"))


@pytest.mark.parametrize("path", ["/healthz", "/v1/info", "/metrics", "/v1/arrays", "/openapi.json"])
def test_head(api, path):
    get, head = api.get(path), api.request("HEAD", path)
    assert head.status == 200 and head.body == b""
    assert head.type == get.type
    assert "Content-Length" in head.headers


@pytest.mark.parametrize("path", ALLOWED)
def test_options(api, path):
    r = api.expect(204, api.request("OPTIONS", path))
    assert ALLOWED[path] <= set(re.split(r",\s*", r.headers["Allow"]))


def test_metrics_are_prometheus_text(api):
    r = api.expect(200, api.get("/metrics"))
    assert "version=0.0.4" in r.headers["Content-Type"]
    text = r.body.decode()
    assert text.endswith("\n")
    sample = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="([^"\\\n]|\\.)*",?)*\})? '
                        r'(-?[0-9.]+([eE][-+]?[0-9]+)?|[+-]Inf|NaN)( [0-9]+)?')
    values, typed = {}, set()
    for line in text.splitlines():
        if line.startswith("#"):
            kind, name = re.match(r"# (HELP|TYPE) (\S+)", line).groups()
            if kind == "TYPE":
                assert name not in typed, f"{name} has two TYPE lines"
                typed.add(name)
        else:
            assert sample.fullmatch(line), line
            key, value = line.rsplit(" ", 1)
            assert key not in values, f"{key} occurs twice"
            values[key] = float(value)
            base = re.sub(r"_(bucket|sum|count)$", "", key.split("{")[0])
            assert base in typed or key.split("{")[0] in typed, f"{key} has no TYPE"
    assert values["arrayd_bytes_in_use"] == api.info()["bytes_in_use"]


def test_bytes_in_use(api):
    before = api.info()["bytes_in_use"]
    api.create(name="u", shape=[1024, 1024], dtype="float32")
    grown = api.info()["bytes_in_use"] - before
    assert 4 << 20 <= grown < (4 << 20) + 65536
    api.expect(204, api.delete("/v1/arrays/u"))
    assert api.info()["bytes_in_use"] == before


OPERATIONS = """
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert
bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1
floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p
log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply
negative nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh
square sqrt subtract tan tanh trunc where astype fmod lerp addcmul addcdiv sigmoid frac erf gamma
lgamma cbrt rsqrt index unravel_index shift forward_diff back_diff central_diff laplacian sum mean
min max any all""".split()


def test_info(api):
    info = api.info()
    assert re.match(r"\d+\.\d+", info["version"])
    assert info["backend"] in ("cpu", "cuda")
    assert info["devices"][0]["index"] == 0 and info["devices"][0]["memory"] > 0
    assert sorted(info["dtypes"]) == sorted(DTYPES)
    by_name = {o["name"]: o for o in info["operations"]}
    assert not set(OPERATIONS) - set(by_name)
    assert by_name["sin"]["arity"] == 1 and by_name["atan2"]["arity"] == 2
    assert {10000, 400, 64, 16 << 20, 65536} <= set(info["limits"].values())


def test_generators_can_read_the_contract(api):
    """Some take no boolean where a schema stands, and check what goes into a path by its pattern."""
    doc = api.get("/openapi.json").json()

    def schemas(x, place):
        if isinstance(x, dict):
            for k, v in x.items():
                assert not (isinstance(v, bool) and place and place[-1] == "properties"), (*place, k)
                schemas(v, (*place, k))
        elif isinstance(x, list):
            for k, v in enumerate(x):
                schemas(v, (*place, k))

    schemas(doc["components"]["schemas"], ())
    for name, p in doc["components"]["parameters"].items():
        if p["in"] == "path" and name not in ("principal", "faultOf"):  # an operator's file says what names there are
            assert p["schema"]["pattern"], name


def test_openapi_is_the_file(api):
    r = api.expect(200, api.get("/openapi.json"))
    assert r.json() == json.loads((REPO / "protocol" / "openapi.yaml").read_text())


# --- 3. sessions ---


def test_the_default_session_needs_no_header(api):
    meta = api.create(name="u", shape=[1])
    session = api.expect(200, api.get(f"/v1/sessions/{meta['session']}")).json()
    assert session["id"] in [s["id"] for s in api.list_all("/v1/sessions", "sessions")]
    assert api.clone(session=meta["session"]).meta("u")["id"] == meta["id"]


def test_the_default_session_goes_by_its_name(api):
    api.create(name="u", shape=[1])
    session = api.expect(200, api.get("/v1/sessions/default")).json()
    assert session["default"] is True and session["name"] == "default" and session["arrays"] == 1
    assert api.clone(session="default").meta("u")["session"] == session["id"]
    api.expect(200, api.post("/v1/sessions/default/sync"))
    api.expect(204, api.delete("/v1/sessions/default"))
    api.fails(404, "not_found", api.get("/v1/arrays/u"))
    assert api.get("/v1/sessions/default").json()["arrays"] == 0
    api.create(name="u", shape=[1])


def test_session_lifecycle(api):
    r = api.expect(201, api.post("/v1/sessions", {"name": "batch", "ttl_s": 600, "memory_limit": 1 << 20,
                                                  "device": 0}))
    s = r.json()
    assert re.fullmatch(r"s-[0-9A-Za-z_-]{22,}", s["id"])
    assert r.headers["Location"] == f"/v1/sessions/{s['id']}"
    assert (s["name"], s["ttl_s"], s["memory_limit"], s["device"]) == ("batch", 600, 1 << 20, 0)
    assert api.get(f"/v1/sessions/{s['id']}").json()["id"] == s["id"]
    other = api.clone(session=s["id"])
    before = api.info()["bytes_in_use"]
    meta = other.create(name="u", shape=[1000])
    assert meta["session"] == s["id"]
    assert api.info()["bytes_in_use"] > before
    api.expect(204, api.delete(f"/v1/sessions/{s['id']}"))
    assert api.info()["bytes_in_use"] == before
    api.fails(404, "not_found", api.get(f"/v1/sessions/{s['id']}"))
    api.fails(404, "not_found", api.get(f"/v1/arrays/{meta['id']}"))
    api.fails(404, "not_found", other.get("/v1/arrays"))
    api.fails(404, "not_found", api.delete(f"/v1/sessions/{s['id']}"))
    other.close()


def test_an_empty_session_request(api):
    api.expect(201, api.post("/v1/sessions"))
    api.expect(201, api.post("/v1/sessions", {}))


@pytest.mark.parametrize("field,value", [
    ("ttl_s", -1), ("ttl_s", "long"), ("ttl_s", 0), ("memory_limit", -5), ("memory_limit", 1.5),
    ("device", 99), ("device", -1), ("device", "gpu"), ("name", 7)])
def test_bad_session_fields(api, field, value):
    r = api.post("/v1/sessions", {field: value})
    assert r.status == 422 and r.code in ("bad_field", "bad_name"), r
    assert r.json()["pointer"] == f"/{field}"


def test_sessions_expire(api):
    before = api.info()["bytes_in_use"]

    def kept_alive(ttl):
        """A session that requests have kept alive for twice its time, or None where they came too late themselves."""
        asked = time.monotonic()
        other = api.clone(session=api.expect(201, api.post("/v1/sessions", {"ttl_s": ttl})).json()["id"])
        for k in range(5):
            last, asked = asked, time.monotonic()
            r = other.get("/v1/arrays/u") if k else other.post("/v1/arrays", {"name": "u", "shape": [1000]})
            if r.status == 404:
                assert time.monotonic() - last >= ttl, r
                return None
            other.expect(200 if k else 201, r)
            time.sleep(ttl / 2)
        return other

    other = kept_alive(0.3) or kept_alive(1) or kept_alive(3)
    until(lambda: api.get(f"/v1/sessions/{other.session}").status != 200)
    api.fails(404, "not_found", other.get("/v1/arrays/u"))
    assert settle(api, before) == before
    assert other.session not in [x["id"] for x in api.list_all("/v1/sessions", "sessions")]
    other.close()


def test_memory_limit(api):
    s = api.expect(201, api.post("/v1/sessions", {"memory_limit": 1 << 20})).json()
    c = api.clone(session=s["id"])
    c.create(name="u", shape=[1 << 19], dtype="uint8")
    r = c.post("/v1/arrays", {"shape": [1 << 20], "dtype": "uint8"})
    c.fails(429, "quota_exceeded", r)
    assert int(r.headers["Retry-After"]) >= 0
    c.fails(429, "quota_exceeded", c.post("/v1/evaluate", {"expr": "astype(u, 'float64')", "name": "w"}))
    c.fails(429, "quota_exceeded", c.request("POST", f"/v1/arrays?dtype=uint8&shape={1 << 20}",
                                             bytes(1 << 20), content_type=OCTETS))
    c.expect(204, c.delete("/v1/arrays/u"))
    c.create(shape=[1 << 19], dtype="uint8")
    c.close()


@pytest.mark.parametrize("name", ["s-" + "0" * 22, "nothing", "s-"])
def test_unknown_sessions(api, name):
    c = api.clone(session=name)
    c.fails(404, "not_found", c.get("/v1/arrays"))
    c.fails(404, "not_found", c.post("/v1/evaluate", {"expr": "1"}))
    c.fails(404, "not_found", c.request("POST", "/v1/arrays", npy_bytes(np.zeros(3)), content_type=NPY))
    c.fails(404, "not_found", api.get(f"/v1/sessions/{name}"))
    c.fails(404, "not_found", api.post(f"/v1/sessions/{name}/sync"))
    c.close()


def test_sync(api):
    s = api.expect(201, api.post("/v1/sessions")).json()
    c = api.clone(session=s["id"])
    c.create(name="u", shape=[100000])
    for _ in range(5):
        c.expect(200, c.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
    c.expect(200, c.post(f"/v1/sessions/{s['id']}/sync"))
    assert c.evaluate("max(u)") == 5
    c.close()


def test_session_lists_page(api):
    made = [api.expect(201, api.post("/v1/sessions")).json()["id"] for _ in range(5)]
    seen, after = [], ""
    while True:
        page = api.expect(200, api.get("/v1/sessions?limit=2" + after)).json()
        assert len(page["sessions"]) <= 2
        seen += [s["id"] for s in page["sessions"]]
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert [i for i in seen if i in made] == made and len(seen) == len(set(seen))
