"""What clients say of arrays: attrs, dims, units and coords; server/labels, docs/arrays.md."""
import json
import os
import random
import signal
import threading
import urllib.parse

import numpy as np
import pytest

from client import NPY, OCTETS, npy_bytes
from conftest import until

LABELS = ("attrs", "coords", "dims", "units")
HOSTILE = ["<script>alert(1)</script>", "\"},{\"", "'; DROP TABLE arrays; --", "\u202egnp.exe", "a/b~c", "💩" * 50, "\\u0041\\", "${HOME}`id`"]


def said(m):
    return {k: m[k] for k in LABELS if k in m}


def make_view(c, ref, **body):
    return c.expect(201, c.post(f"/v1/arrays/{ref}/views", body)).json()


def patched(c, ref, **body):
    return said(c.expect(200, c.patch(f"/v1/arrays/{ref}", body)).json())


def refused(c, code, pointer, **body):
    """The same at creation and by PATCH, and nothing has changed."""
    before = c.meta("u")
    for reply in (c.post("/v1/arrays", {"shape": before["shape"], **body}), c.patch("/v1/arrays/u", body)):
        status = 404 if code == "not_found" else 422
        c.fails(status, code, reply)
        assert reply.json().get("pointer") == pointer, reply.json()
    assert c.meta("u") == before


@pytest.fixture
def field(api):
    """u, of (y, x) = (3, 4), with coordinates along both axes and on the plane."""
    ids = {name: api.create(name=name, shape=shape)["id"] for name, shape in (("y", [3]), ("x", [4]), ("plane", [3, 4]), ("t", []))}
    api.create(name="u", shape=[3, 4], dims=["y", "x"], units="K", attrs={"long_name": "temperature"},
               coords={"y": "y", "x": ids["x"], "height": {"array": "plane", "dims": ["y", "x"]}, "t": "t"})
    return api, ids


def test_metadata_without_them_is_as_it_was(api):
    u = api.create(shape=[2], name="u")
    assert not said(u) and not said(api.meta("u")) and not said(make_view(api, "u"))
    assert not any(said(a) for a in api.list_all("/v1/arrays", "arrays"))
    for nothing in (dict(attrs=None, dims=None, units=None, coords=None), dict(attrs={}, coords={}, dims=[None]), dict(attrs={"a": None})):
        assert not said(api.create(shape=[2], **nothing))
        assert patched(api, "u", **nothing) == {}


def test_created_with(field):
    c, ids = field
    want = {"dims": ["y", "x"], "units": "K", "attrs": {"long_name": "temperature"},
            "coords": {"y": {"array": ids["y"], "dims": ["y"]}, "x": {"array": ids["x"], "dims": ["x"]},
                       "height": {"array": ids["plane"], "dims": ["y", "x"]}, "t": {"array": ids["t"], "dims": []}}}
    assert said(c.meta("u")) == want
    # lists leave out what may be long
    listed = {a["name"]: a for a in c.list_all("/v1/arrays", "arrays")}["u"]
    assert said(listed) == {"dims": ["y", "x"], "units": "K"}
    for creator in (dict(data=[[1, 2], [3, 4]]), dict(eye={"n": 2}), dict(shape=[2, 2], fill=1), dict(shape=[2, 2], location="host"),
                    dict(shape=[2, 2], ghost=[1, 1]), dict(shape=[2, 2], random={"distribution": "uniform", "seed": 1})):
        assert said(c.create(dims=["a", None], attrs={"n": 1}, **creator)) == {"dims": ["a", None], "attrs": {"n": 1}}
    assert said(c.create(arange={"stop": 3}, dims=["i"])) == {"dims": ["i"]}
    assert not said(c.create(like="u"))
    c.fails(422, "shape_mismatch", c.post("/v1/arrays", {"arange": {"stop": 3}, "dims": ["i", "j"]}))
    replaced = c.expect(200, c.put("/v1/arrays/u", {"shape": [2], "units": "m"})).json()
    assert said(replaced) == {"units": "m"}


def query(**labels):
    return "&".join(f"{k}={urllib.parse.quote(v, safe='')}" for k, v in labels.items())


def test_created_with_bytes(field):
    c, ids = field
    a = np.arange(12, dtype="int16").reshape(3, 4)
    labels = query(dims="y,x", units="m s-1", attrs=json.dumps({"ä": [1, {"b": None}]}), coords=json.dumps({"y": "y"}))
    want = {"dims": ["y", "x"], "units": "m s-1", "attrs": {"ä": [1, {"b": None}]}, "coords": {"y": {"array": ids["y"], "dims": ["y"]}}}
    raw = c.expect(201, c.request("POST", f"/v1/arrays?dtype=int16&shape=3,4&{labels}", a.tobytes(), content_type=OCTETS)).json()
    npy = c.expect(201, c.request("PUT", f"/v1/arrays/n?{labels}", npy_bytes(a), content_type=NPY)).json()
    assert said(raw) == said(npy) == want
    # data into an array that exists change nothing else
    c.expect(204, c.request("PUT", "/v1/arrays/n/data", npy_bytes(a + 1), content_type=NPY))
    assert said(c.meta("n")) == want
    unnamed = c.expect(201, c.request("POST", "/v1/arrays?dtype=int16&shape=3,4&dims=,x", a.tobytes(), content_type=OCTETS)).json()
    assert said(unnamed) == {"dims": [None, "x"]}
    number = c.expect(201, c.request("POST", "/v1/arrays?dtype=int16&shape=&dims=&units=1", b"\0\0", content_type=OCTETS)).json()
    assert said(number) == {"units": "1"}
    post = lambda **kw: c.request("POST", f"/v1/arrays?dtype=int16&shape=3,4&{query(**kw)}", a.tobytes(), content_type=OCTETS)
    before = len(c.list_all("/v1/arrays", "arrays"))
    for status, code, labels in ((422, "shape_mismatch", dict(dims="y")), (422, "bad_field", dict(dims="y,y")), (400, "bad_query", dict(attrs="{")),
                                 (400, "bad_query", dict(attrs='{},"units":"x"')), (422, "bad_field", dict(attrs="[]")),
                                 (404, "not_found", dict(coords='{"y":"nope"}')), (422, "bad_name", dict(dims="y,\t"))):
        reply = post(**labels)
        c.fails(status, code, reply)
        assert "pointer" not in reply.json()
    c.fails(400, "bad_query", c.request("PUT", "/v1/arrays/n/data?dims=a,b", a.tobytes(), content_type=OCTETS))
    c.fails(400, "bad_query", c.request("POST", "/v1/arrays?dims=a", json_body={"shape": [1]}))
    assert len(c.list_all("/v1/arrays", "arrays")) == before


def test_changed(field):
    c, ids = field
    before = said(c.meta("u"))
    assert patched(c, "u", attrs={"long_name": None, "a": 1, "b": {"c": [None, True]}}) == {**before, "attrs": {"a": 1, "b": {"c": [None, True]}}}
    assert patched(c, "u", attrs={"b": 2})["attrs"] == {"a": 1, "b": 2}
    assert "attrs" not in patched(c, "u", attrs=None)
    assert "units" not in patched(c, "u", units=None)
    assert patched(c, "u", units="")["units"] == ""
    assert set(patched(c, "u", coords={"height": None, "x": None})["coords"]) == {"y", "t"}
    assert patched(c, "u", dims=["y", "lon"], coords={"lon": {"array": ids["x"], "dims": ["lon"]}})["dims"] == ["y", "lon"]
    c.fails(422, "shape_mismatch", c.patch("/v1/arrays/u", {"dims": ["lat", "lon"]}))
    c.fails(422, "shape_mismatch", c.patch("/v1/arrays/u", {"dims": None}))
    assert patched(c, "u", dims=None, coords=None) == {"units": ""}
    # with everything else that a PATCH changes, or not at all
    m = c.expect(200, c.patch("/v1/arrays/u", {"name": "v", "units": "m", "spacing": [1, 2], "location": "host"})).json()
    assert (m["name"], m["units"], m["spacing"], m["location"]) == ("v", "m", [1, 2], "host")
    c.fails(409, "conflict", c.patch("/v1/arrays/v", {"name": "x", "units": "s"}))
    c.fails(422, "bad_field", c.patch("/v1/arrays/v", {"name": "w", "units": 3, "location": "device"}))
    assert c.meta("v")["units"] == "m" and c.meta("v")["location"] == "host"


def test_numbers_come_back_as_they_were_sent(api):
    api.create(shape=[1], name="u")
    text = '{"attrs":{"big":123456789012345678901234567890,"small":1e-400,"one":1.50,"minus":-0}}'
    api.expect(200, api.request("PATCH", "/v1/arrays/u", text.encode(), content_type="application/json"))
    body = api.get("/v1/arrays/u").body.decode()
    assert text[1:-1] in body.replace(" ", "")


def test_mistakes(field):
    c, ids = field
    for bad in (3, "yx", {"y": "x"}, True):
        refused(c, "bad_field", "/dims", dims=bad)
    refused(c, "bad_field", "/dims/1", dims=["y", 3])
    refused(c, "shape_mismatch", "/dims", dims=["y"])
    refused(c, "shape_mismatch", "/dims", dims=["a", "b", "c"])
    refused(c, "shape_mismatch", "/dims", dims=[None] * 40)
    refused(c, "bad_field", "/dims/1", dims=["a", "a"])
    for name in ("", "a\tb", "\x1b[31m", "\x7f", "\x85", "n" * 257):
        refused(c, "bad_name", "/dims/0", dims=[name, "x"])
        there = f"/{name}" if len(name) <= 256 else ""  # a place that is too long to tell is left out
        refused(c, "bad_name", f"/attrs{there}", attrs={name: 1})
        refused(c, "bad_name", f"/coords{there}", dims=["y", "x"], coords={name: "t"})
    for bad in (3, ["m"], {}, False):
        refused(c, "bad_field", "/units", units=bad)
    refused(c, "bad_field", "/units", units="m\x1b[2J")
    refused(c, "bad_field", "/units", units="m" * 257)
    refused(c, "bad_field", "/attrs/n", attrs={"n": int("9" * 1001)})
    for bad in (3, "a", [1], True):
        refused(c, "bad_field", "/attrs", attrs=bad)
        if bad != "a":
            refused(c, "bad_field", "/coords/y", dims=["y", "x"], coords={"y": bad})
        refused(c, "bad_field", "/coords", coords=bad)
    refused(c, "not_found", "/coords/y", dims=["y", "x"], coords={"y": "nobody"})
    refused(c, "not_found", "/coords/y/array", dims=["y", "x"], coords={"y": {"array": "a-0000000000000000000000", "dims": ["y"]}})
    refused(c, "bad_field", "/coords/y/dims", dims=["y", "x"], coords={"y": {"array": "y"}})
    refused(c, "unknown_field", "/coords/y/index", dims=["y", "x"], coords={"y": {"array": "y", "dims": ["y"], "index": "1:"}})
    refused(c, "shape_mismatch", "/coords/y/dims", dims=["y", "x"], coords={"y": {"array": "y", "dims": ["y", "x"]}})
    refused(c, "bad_field", "/coords/y/dims/0", dims=["y", "x"], coords={"y": {"array": "y", "dims": [None]}})
    refused(c, "bad_field", "/coords/p/dims/1", dims=["y", "x"], coords={"p": {"array": "plane", "dims": ["y", "y"]}})
    refused(c, "shape_mismatch", "/coords/y", dims=["y", "x"], coords={"y": {"array": "y", "dims": ["z"]}})
    refused(c, "shape_mismatch", "/coords/y", dims=["y", "x"], coords={"y": {"array": "x", "dims": ["y"]}})
    refused(c, "shape_mismatch", "/coords/z", dims=["y", "x"], coords={"z": "y"})
    refused(c, "shape_mismatch", "/coords/p", dims=["y", "x"], coords={"p": "plane"})
    c.fails(422, "unknown_field", c.post("/v1/evaluate", {"expr": "u + 1", "dims": ["y", "x"]}))


def test_hostile_text_comes_back_as_it_is(api):
    for k, text in enumerate(HOSTILE):
        api.create(name=f"u{k}", shape=[2], dims=[text], units=text, attrs={text: text, "deep": [{text: [text, ""]}]})
        api.create(name=f"x{k}", shape=[2])
        api.expect(200, api.patch(f"/v1/arrays/u{k}", {"coords": {text: {"array": f"x{k}", "dims": [text]}}}))
        m = api.meta(f"u{k}")
        assert m["dims"] == [text] and m["units"] == text and m["attrs"] == {text: text, "deep": [{text: [text, ""]}]}
        assert list(m["coords"]) == [text]
        assert said(make_view(api, f"u{k}", index=":, None"))["dims"] == [text, None]


def in_use(c):
    """As its owner sees it, which is what operators see and what the metrics say."""
    used = c.info()["principal"]["quotas"]["attrs_memory"]
    assert c.get("/v1/admin/principals").json()["principals"][0]["quotas"]["attrs_memory"] == used
    assert f'arrayd_principal_attrs_bytes{{principal="local"}} {used["used"]}\n' in c.get("/metrics").body.decode()
    return used


def test_bounds(daemon_with):
    c = daemon_with("--max-attrs", 400, "--attrs-memory", 1000).client()
    limits = c.info()["limits"]
    assert limits["max_attrs"] == 400 and limits["attrs_memory"] == 1000
    size = lambda m: len(json.dumps(said(m), separators=(",", ":"), ensure_ascii=False).encode()) - 1
    c.create(name="u", shape=[2], attrs={"a": "b" * 380})
    assert 390 <= size(c.meta("u")) <= 400
    c.fails(422, "too_large", c.patch("/v1/arrays/u", {"units": "m" * 20}))
    c.fails(422, "too_large", c.post("/v1/arrays", {"shape": [2], "attrs": {"a": "b" * 400}}))
    reply = c.patch("/v1/arrays/u", {"attrs": {"c": "d" * 50}})
    assert reply.json()["pointer"] == "/attrs"
    assert in_use(c) == {"limit": 1000, "used": size(c.meta("u"))}
    # all arrays together; copies and views count, what is deleted or replaced does not
    c.expect(201, c.post("/v1/arrays/u/copy", {"name": "v"}))
    for more in (lambda: c.post("/v1/arrays/u/copy"), lambda: c.post("/v1/arrays/u/views", {}), lambda: c.post("/v1/arrays", {"shape": [2], "attrs": {"a": "b" * 300}})):
        c.fails(429, "quota_exceeded", more())
    c.create(name="w", shape=[2], units="m")
    c.fails(429, "quota_exceeded", c.patch("/v1/arrays/w", {"attrs": {"a": "b" * 300}}))
    c.expect(200, c.put("/v1/arrays/v", {"shape": [2], "attrs": {"a": "e" * 380}}))
    c.expect(204, c.delete("/v1/arrays/u"))
    patched(c, "w", attrs={"a": "b" * 300})
    patched(c, "w", attrs=None)
    make_view(c, "v")
    s = c.expect(201, c.post("/v1/sessions", {})).json()["id"]
    inside = c.clone(session=s)
    inside.create(shape=[2], attrs={"a": "b" * 100})
    c.fails(429, "quota_exceeded", c.patch("/v1/arrays/w", {"attrs": {"a": "b" * 120}}))
    c.expect(204, c.delete(f"/v1/sessions/{s}"))
    patched(c, "w", attrs={"a": "b" * 120})
    assert in_use(c)["used"] == sum(size(c.meta(a["id"])) for a in c.list_all("/v1/arrays", "arrays"))
    # a program goes on where there is no room for what is said of its snapshots
    c = daemon_with("--attrs-memory", 100).client()
    c.create(name="u", shape=[2], attrs={"a": "b" * 60})
    job = c.expect(202, c.post("/v1/programs", {"body": ["u += 1"], "steps": 2, "snapshot": {"u": 1}})).json()["id"]
    job = c.expect(200, c.get(f"/v1/jobs/{job}?wait=1")).json()
    assert job["state"] == "done" and not any(said(c.meta(s["id"])) for s in job["snapshots"])
    # with a default daemon's
    c = daemon_with().client()
    c.create(name="u", shape=[2], attrs={"a": "b" * 65000})
    assert c.meta("u")["attrs"]["a"] == "b" * 65000
    c.fails(422, "too_large", c.post("/v1/arrays", {"shape": [2], "attrs": {"a": "b" * 66000}}))
    c.fails(422, "too_large", c.post("/v1/arrays", {"shape": [2], "attrs": {f"a{k}": 1 for k in range(1001)}}))
    c.create(name="many", shape=[2], attrs={f"a{k}": k for k in range(1000)})
    c.fails(422, "too_large", c.patch("/v1/arrays/many", {"attrs": {"b": 1}}))
    assert patched(c, "many", attrs={"b": 1, "a0": None})["attrs"]["b"] == 1
    nested = lambda n: json.loads("[" * n + "]" * n)
    c.create(name="deep", shape=[2], attrs={"a": nested(64)})
    c.fails(422, "bad_field", c.patch("/v1/arrays/deep", {"attrs": {"a": nested(65)}}))


def test_views(field):
    c, ids = field
    everything = said(c.meta("u"))

    def of(dims, coords, **steps):
        m = said(make_view(c, "u", **steps))
        assert m.get("dims") == dims and set(m.get("coords", ())) == set(coords), (steps, m)
        assert m["units"] == "K" and m["attrs"] == everything["attrs"]

    of(["y", "x"], ["y", "x", "height", "t"])
    of(["y", "x"], ["y", "x", "height", "t"], index="0:3, :")
    of(["x"], ["x", "t"], index="1")
    of(["y"], ["y", "t"], index="..., -1")
    of(["y", "x"], ["x", "t"], index="1:")
    of(["y", "x"], ["y", "t"], index=":, ::-1")
    of(["y", "x"], ["y", "t"], index=":, ::2")
    of([None, "y", None, "x"], ["y", "x", "height", "t"], index="None, :, None")
    of(["x", "y"], ["y", "x", "height", "t"], permute=[1, 0])
    of(["x", "y"], ["y", "x", "height", "t"], permute=[-1, 0])
    of([None, "x", "y"], ["y", "x", "height", "t"], index="None", permute=[0, 2, 1])
    of(None, ["t"], reshape=[12])
    of(["y", "x"], ["y", "x", "height", "t"], reshape=[3, -1])
    of([None, "y", "x"], ["y", "x", "height", "t"], broadcast_to=[5, 3, 4])
    of(["y", "x"], ["x", "t"], index="0:1", broadcast_to=[3, 4])
    of(["y", "x"], ["y", "t"], dtype="float32")
    of(["y", "x"], ["y", "x", "height", "t"], dtype="int64")
    of(None, ["t"], index="1, 2")
    # a view has its own from then on
    make_view(c, "u", index="1", name="row")
    patched(c, "row", units="degC", attrs={"row": 1})
    assert said(c.meta("u")) == everything
    patched(c, "u", units=None)
    assert c.meta("row")["units"] == "degC"
    # ghosts
    c.create(name="g", shape=[4], ghost=[1], dims=["x"], coords={"x": "x"})
    assert said(make_view(c, "g"))["coords"] and said(make_view(c, "g", ghost=True)) == {"dims": ["x"]}


@pytest.mark.parametrize("seed", range(20))
def test_names_follow_axes(api, seed):
    """Along random steps: the extent of each axis tells which one it is."""
    rng = random.Random(seed)
    shape = rng.sample(range(2, 9), 4)
    names = {n: f"axis of {n}" for n in shape}
    ref = api.create(shape=shape, dims=list(names.values()))["id"]
    for _ in range(5):
        m = api.meta(ref)
        order = rng.sample(range(len(m["shape"])), len(m["shape"]))
        index = [":"] * len(order)
        if len(index) > 1:
            index[rng.randrange(len(index))] = rng.choice([":", "0", "::-1"])
        index.insert(rng.randrange(len(index) + 1), rng.choice(["None", "..."]))
        if len(order) != len([i for i in index if i not in ("None", "0", "...")]):
            order = order[:0]
        body = {"index": ", ".join(index)}
        rank = len(m["shape"]) + index.count("None") - index.count("0")
        body["permute"] = rng.sample(range(rank), rank)
        m = make_view(api, ref, **body)
        assert m.get("dims", [None] * rank) == [names.get(n) for n in m["shape"]]
        ref = m["id"]


def test_copies_resize_and_swap(field):
    c, ids = field
    everything = said(c.meta("u"))
    copy = c.expect(201, c.post("/v1/arrays/u/copy", {"name": "v"})).json()
    assert said(copy) == everything
    patched(c, "v", units="m", attrs={"of": "v"})
    mine = said(c.meta("v"))
    c.expect(200, c.post("/v1/arrays/u/swap", {"with": "v"}))
    assert said(c.meta("u")) == everything and said(c.meta("v")) == mine
    m = said(c.expect(200, c.post("/v1/arrays/u/resize", {"shape": [3, 7]})).json())
    assert m["dims"] == ["y", "x"] and set(m["coords"]) == {"y", "t"} and m["units"] == "K"
    m = said(c.expect(200, c.post("/v1/arrays/u/resize", {"shape": [21]})).json())
    assert "dims" not in m and set(m["coords"]) == {"t"} and m["attrs"] == everything["attrs"]


def test_results_have_none(field):
    c, ids = field
    everything = said(c.meta("u"))
    assert not said(c.expect(201, c.post("/v1/evaluate", {"expr": "u + 1", "name": "w"})).json())
    assert said(c.expect(200, c.post("/v1/evaluate", {"expr": "u + 1", "out": "u"})).json()) == everything
    job = c.expect(202, c.post("/v1/programs", {"body": ["u += 1"], "steps": 3, "snapshot": {"u": 3}})).json()["id"]
    job = c.expect(200, c.get(f"/v1/jobs/{job}?wait=1")).json()
    assert job["state"] == "done" and said(c.meta("u")) == everything
    assert said(c.meta(job["snapshots"][0]["id"])) == everything
    assert not said(c.expect(201, c.post("/v1/evaluate", {"expr": "u", "name": "u"})).json())


def test_a_coordinate_that_goes_with_others(field):
    c, ids = field
    assert c.fails(409, "conflict", c.patch("/v1/arrays/x", {"coordinate": True}))["pointer"] == "/coordinate"  # it has a name
    patched(c, "x", name=None, coordinate=True)
    assert c.meta(ids["x"])["coordinate"] is True
    patched(c, ids["x"], coordinate=False)
    assert "coordinate" not in c.meta(ids["x"])
    patched(c, ids["x"], coordinate=True)
    assert c.fails(422, "bad_field", c.patch(f"/v1/arrays/{ids['x']}", {"coordinate": 1}, check=False))["pointer"] == "/coordinate"
    c.create(name="far", shape=[3])
    assert c.fails(409, "conflict", c.patch("/v1/arrays/far", {"coordinate": True, "location": "host"}))["pointer"] == "/coordinate"
    assert c.meta("far")["location"] == "device"  # it has not moved
    none = c.create(shape=[3])["id"]
    assert c.fails(409, "conflict", c.patch(f"/v1/arrays/{none}", {"coordinate": True}))["pointer"] == "/coordinate"  # of nothing: it would go at once
    patched(c, none, coordinate=False)
    patched(c, "u", coords={"x": None})
    c.fails(404, "not_found", c.get(f"/v1/arrays/{ids['x']}"))
    own = c.create(shape=[3], dims=["y"])["id"]
    patched(c, own, coords={"y": own})
    c.fails(409, "conflict", c.patch(f"/v1/arrays/{own}", {"coords": {"y": None}, "coordinate": True}))
    assert list(c.meta(own)["coords"]) == ["y"]
    patched(c, "y", name=None, coordinate=True)
    patched(c, ids["y"], name="y")
    assert "coordinate" not in c.meta("y")
    c.expect(204, c.delete("/v1/arrays/u"))
    assert c.meta("y")["id"] == ids["y"]


def test_a_name_is_taken_over(field):
    """At one moment, with all that is said; not of what is read-only or leased."""
    c, ids = field
    new = c.create(shape=[3, 4])["id"]
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": True}))
    c.fails(409, "read_only", c.patch(f"/v1/arrays/{new}", {"name": "u", "replace": True, "dims": ["a", "b"]}))
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": False}))
    token = c.expect(201, c.post("/v1/arrays/u/lease", {"mode": "read", "ttl_s": 30})).json()["token"]
    assert c.fails(409, "locked", c.patch(f"/v1/arrays/{new}", {"name": "u", "replace": True, "location": "host"}))["pointer"] == "/name"
    assert c.meta(new)["location"] == "device"
    c.expect(204, c.delete("/v1/arrays/u/lease", headers={"Arrayd-Lease": token}))
    assert c.meta("u")["id"] != new and c.meta(new)["name"] is None and "dims" not in c.meta(new)
    old = c.meta("u")["id"]
    c.expect(200, c.patch(f"/v1/arrays/{new}", {"name": "first"}))
    patched(c, "first", name="u", replace=True, dims=["y", "x"], coords={"y": "y"})
    assert c.meta("u")["id"] == new and list(c.meta("u")["coords"]) == ["y"]
    c.fails(404, "not_found", c.get(f"/v1/arrays/{old}"))
    c.fails(404, "not_found", c.get("/v1/arrays/first"))
    patched(c, "u", name="u", replace=True)
    patched(c, new, name="other", replace=True)  # of nobody
    patched(c, "y", name=None, coordinate=True)
    patched(c, ids["y"], name="other", replace=True)  # its last user
    assert c.meta("other")["id"] == ids["y"] and "coordinate" not in c.meta("other")


def test_deleted_or_kept_as_a_coordinate(field):
    c, ids = field
    c.expect(204, c.delete(f"/v1/arrays/{ids['x']}?coordinate=keep"))  # it has a name
    assert c.meta(ids["x"])["name"] == "x" and "coordinate" not in c.meta("x")
    c.expect(204, c.delete("/v1/arrays/x?coordinate=keep"))
    c.fails(404, "not_found", c.get(f"/v1/arrays/{ids['x']}"))
    own = c.create(shape=[3], dims=["y"])["id"]
    patched(c, own, coords={"y": own})
    c.expect(204, c.delete(f"/v1/arrays/{own}?coordinate=keep"))  # nobody else has it
    c.fails(404, "not_found", c.get(f"/v1/arrays/{own}"))
    c.fails(400, "bad_query", c.delete("/v1/arrays/y?coordinate=true", check=False))
    patched(c, "y", name=None)
    c.expect(204, c.delete(f"/v1/arrays/{ids['y']}?coordinate=keep"))
    assert c.meta(ids["y"])["coordinate"] is True
    c.expect(204, c.delete("/v1/arrays/u"))
    c.fails(404, "not_found", c.get(f"/v1/arrays/{ids['y']}"))
    none = c.create(shape=[3])["id"]
    c.expect(204, c.delete(f"/v1/arrays/{none}?coordinate=keep"))
    c.fails(404, "not_found", c.get(f"/v1/arrays/{none}"))


def test_a_coordinate_keeps_nothing_alive(field):
    c, ids = field
    c.expect(204, c.delete("/v1/arrays/x"))
    assert c.meta("u")["coords"]["x"]["array"] == ids["x"]
    c.fails(404, "not_found", c.get(f"/v1/arrays/{ids['x']}"))
    patched(c, "u", coords={"x": None})
    # its own coordinate, and one of another session
    s = c.expect(201, c.post("/v1/sessions", {})).json()["id"]
    inside = c.clone(session=s)
    inside.fails(404, "not_found", inside.post("/v1/arrays", {"shape": [3], "dims": ["y"], "coords": {"y": "y"}}))
    inside.create(name="v", shape=[3], dims=["y"], coords={"y": ids["y"]})
    patched(inside, "v", coords={"y": "v"})
    assert inside.meta("v")["coords"]["y"]["array"] == inside.meta("v")["id"]
    c.expect(204, c.delete(f"/v1/sessions/{s}"))


def test_read_only_leased_and_conditional(field):
    c, ids = field
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": True}))
    assert patched(c, "u", units="m")["units"] == "m"  # as boundary and spacing: the contents are what is protected
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": False}))
    other = c.clone()
    token = c.expect(201, c.post("/v1/arrays/u/lease", {"mode": "write"})).json()["token"]
    other.fails(409, "locked", other.patch("/v1/arrays/u", {"units": "s"}))
    c.expect(200, c.patch("/v1/arrays/u", {"units": "s"}, headers={"Arrayd-Lease": token}))
    c.expect(204, c.delete("/v1/arrays/u/lease", headers={"Arrayd-Lease": token}))
    c.fails(412, "precondition_failed", c.patch("/v1/arrays/u", {"units": "h"}, headers={"If-Match": '"other"'}))
    assert c.meta("u")["units"] == "s"
    other.close()


def test_changes_at_once_are_all_made(api):
    api.create(name="u", shape=[1])

    def change(k):
        mine = api.clone()
        for i in range(20):
            mine.expect(200, mine.patch("/v1/arrays/u", {"attrs": {f"a{k}_{i}": i}}))
        mine.close()

    threads = [threading.Thread(target=change, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert api.meta("u")["attrs"] == {f"a{k}_{i}": i for k in range(6) for i in range(20)}


def test_others(two_with):
    ann, bob = two_with()
    ann.create(name="y", shape=[3])
    u = ann.create(name="u", shape=[3], dims=["y"], units="K", attrs={"secret": 1}, coords={"y": "y"})
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{u['id']}"))
    bob.fails(404, "not_found", bob.patch(f"/v1/arrays/{u['id']}", {"units": "m"}))
    bob.fails(404, "not_found", bob.post("/v1/arrays", {"shape": [3], "dims": ["y"], "coords": {"y": u["coords"]["y"]["array"]}}))
    ann.expect(201, ann.post("/v1/arrays/u/shares", {"principal": "bob", "access": "write"}))
    assert said(bob.expect(200, bob.get(f"/v1/arrays/{u['id']}")).json()) == said(u)
    bob.fails(403, "forbidden", bob.patch(f"/v1/arrays/{u['id']}", {"units": "m"}))
    # what is shared can be a coordinate; what it refers to is not shared with it
    bob.create(name="v", shape=[3], dims=["u"], coords={"u": u["id"]})
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{u['coords']['y']['array']}"))
    assert said(bob.expect(201, bob.post(f"/v1/arrays/{u['id']}/copy")).json()) == said(u)
    assert ann.meta("u")["units"] == "K"


def fill(c):
    """Arrays with labels of every kind, and one without; what is said of them by name."""
    c.create(name="y", shape=[3], dims=["y"], units="m")
    c.create(name="u", shape=[3, 4], dims=["y", None], units="K", coords={"y": "y"},
             attrs={t: [t, {"deep": 12345678901234567890123}] for t in HOSTILE} | {"long": "b" * 20000})
    make_view(c, "u", index="1", name="row")
    c.create(name="plain", shape=[3])
    return {name: said(c.meta(name)) for name in ("y", "u", "row", "plain")}


@pytest.mark.parametrize("end", ("stop", "snapshot"))
def test_state_on_disk(daemon_with, tmp_path, end):
    d = daemon_with("--state-dir", tmp_path / "state")
    c = d.client()
    want = fill(c)
    assert all(want[k] for k in ("y", "u", "row")) and not want["plain"]
    if end == "snapshot":
        c.expect(200, c.post("/v1/snapshot"))
        patched(c, "u", units="lost", attrs=None)
        c.close()
        d.kill()
    else:
        c.close()
        d.stop()
    assert [json.loads(p.read_text())["arrayd_state"] for p in (tmp_path / "state").glob("snapshot-*/manifest.json")] == [2]
    d = daemon_with("--state-dir", tmp_path / "state", "--max-attrs", 100, "--attrs-memory", 100)
    c = d.client()
    assert {name: said(c.meta(name)) for name in want} == want
    # what was there may stay and shrink, but not grow, where the limits are lower now
    c.fails(422, "too_large", c.patch("/v1/arrays/u", {"attrs": {"more": "b" * 100}}))
    assert "long" not in patched(c, "u", attrs={"long": None})["attrs"]
    assert patched(c, "u", attrs=None, coords=None) == {"dims": ["y", None], "units": "K"}


def test_old_state_is_read(daemon_with, tmp_path):
    """One without any labels is what an older version wrote: byte for byte in the members it has."""
    d = daemon_with("--state-dir", tmp_path / "state")
    c = d.client()
    c.create(name="plain", shape=[3], fill=2)
    c.close()
    d.stop()
    manifest = json.loads(next((tmp_path / "state").glob("snapshot-*/manifest.json")).read_text())
    assert manifest["arrayd_state"] == 1
    array = manifest["principals"][0]["arrays"][0]
    assert list(array) == ["id", "name", "session", "view_of", "base", "read_only", "created_us", "seq", "memory", "dtype", "shape", "strides", "offset"]
    c = daemon_with("--state-dir", tmp_path / "state").client()
    assert not said(c.meta("plain")) and c.download("plain").tolist() == [2, 2, 2]


def test_kill_9(daemon_with):
    d = daemon_with("--keep-arrays", "--restart-limit", 1000, "--restart-rate", 0, "--restart-wait", 0)
    c = d.client()
    want = fill(c)
    for k in range(3):
        c.expect(200, c.post("/v1/sessions/default/sync"))
        before = d.pid
        os.kill(before, signal.SIGKILL)
        until(lambda: d.pid not in (before, d.proc.pid))
        c.close()
        assert {name: said(c.meta(name)) for name in want} == want
        want["u"] = patched(c, "u", attrs={f"life {k}": k}, units=None if k else "J")
        want["plain"] = patched(c, "plain", dims=["i"] if k % 2 else None, attrs={"life": k})
        want["row"] = said(make_view(c, "u", index="1", name=f"row{k}"))
        c.expect(204, c.delete("/v1/arrays/row"))
        c.expect(200, c.patch(f"/v1/arrays/row{k}", {"name": "row"}))
    assert c.info()["process"]["restarts"] == 3


def test_a_program_goes_on_where_the_journal_is_full(daemon_with):
    """There is room for its copy, but not for what is said of the array."""
    c = daemon_with("--keep-arrays", "--journal-size", "4MiB", "--attrs-memory", 0).client()
    c.create(name="u", shape=[2], attrs={"a": "b" * 60000})
    made = 0
    while c.post("/v1/arrays", {"name": f"u{made}", "shape": [2], "attrs": {"a": "b" * 20000}}).status == 201:
        made += 1
    c.expect(204, c.delete("/v1/arrays/u0"))
    c.fails(507, "out_of_memory", c.post("/v1/arrays/u/copy"))
    job = c.expect(200, c.post("/v1/programs?wait=1", {"body": ["u += 1"], "steps": 1, "snapshot": {"u": 1}})).json()
    assert job["state"] == "done", job
    [copy] = job["snapshots"]
    assert not said(c.meta(copy["id"])) and c.download(copy["id"]).tolist() == [1, 1]


def test_the_journal_is_full(daemon_with):
    """What cannot be written down is refused, and changes nothing."""
    c = daemon_with("--keep-arrays", "--journal-size", "4MiB", "--attrs-memory", 0).client()
    c.create(name="u", shape=[2])
    made = 0
    while made < 200:
        reply = c.post("/v1/arrays", {"name": f"u{made}", "shape": [2], "attrs": {"a": "b" * 60000}})
        if reply.status == 507:
            break
        c.expect(201, reply)
        made += 1
    assert 10 < made < 100
    c.fails(507, "out_of_memory", c.patch("/v1/arrays/u", {"attrs": {"a": "b" * 60000}}))
    assert not said(c.meta("u"))
    filled = 0
    while c.post("/v1/arrays", {"shape": [2]}).status == 201:
        filled += 1
    assert filled
    # what becomes smaller, or stays as large, has room even where there is none for a new array
    assert len(patched(c, "u0", attrs={"a": "b" * 30000})["attrs"]["a"]) == 30000
    patched(c, "u0", attrs={"a": "c" * 30000})
    c.expect(200, c.patch("/v1/arrays/u0", {"name": "u0"}))
    for k in range(made):
        patched(c, f"u{k}", attrs=None)
    assert patched(c, "u", attrs={"a": "b" * 60000})
