"""Files up and down: PUT and GET of arrays as npz, NetCDF and HDF5, and several arrays in one file."""
import concurrent.futures
import io
import json
import socket
import time

import numpy as np
import pytest

from conftest import find_binary, settle, until
from stand_in import READER, children, descriptors, no_reader, write

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
Y = np.array([0.5, 1, 4])
NPZ, NETCDF, HDF5 = "application/x-npz", "application/x-netcdf", "application/x-hdf5"


@pytest.fixture
def nc(tmp_path):
    """A function: variables as a file of the stand-in's, as bytes."""
    def make(**kw):
        lie, format, dims = kw.pop("lie", None), kw.pop("format", "netcdf4"), kw.pop("dims", None)
        write(tmp_path / "f", kw, lie=lie, format=format, **({} if dims is None else {"dims": dims}))
        return (tmp_path / "f").read_bytes()
    return make


@pytest.fixture
def c(daemon_with, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    d = daemon_with("--file-reader", READER, "--file-spool", spool, "--request-memory", "20MiB", "--max-request-memory", "16MiB")
    c = d.client()
    c.daemon = d
    c.expect(200, c.get("/v1/arrays"))
    before = descriptors(d)
    yield c
    until(lambda: no_reader(d) and descriptors(d) <= before + 2)
    assert list(spool.iterdir()) == []


def put(c, path, body, kind=NETCDF, **kw):
    return c.request("PUT", path, body, content_type=kind, **kw)


def test_up(c, nc):
    body = nc(a=(A, ["t", "y", "x"], {"units": "K", "long_name": "air"}))
    meta = c.expect(201, put(c, "/v1/arrays/u", body)).json()
    assert meta["dims"] == ["t", "y", "x"] and meta["units"] == "K" and meta["attrs"] == {"long_name": "air"}
    assert (c.download("u") == A).all()
    meta = c.expect(200, put(c, "/v1/arrays/u?units=m", body)).json()
    assert meta["units"] == "m" and meta["dims"] == ["t", "y", "x"]
    c.expect(201, c.request("POST", "/v1/arrays?name=v", body, content_type=NETCDF))
    assert (c.download("v") == A).all()


@pytest.fixture
def labelled(nc):
    return nc(a=(A, ["t", "y", "x"], {"coordinates": "area twice nowhere", "grid_mapping": "crs", "units": "K"}), y=(Y, ["y"], {"units": "m"}),
              area=(A[0], ["y", "x"], {}), twice=(np.eye(3), ["y", "y"], {}), crs=(np.array(7, np.int8), [], {"epsg": 4326}), dims={"t": {"length": 2}, "y": {"length": 3}, "x": {"length": 4}})


def there(c):
    return {a["id"] for a in c.expect(200, c.get("/v1/arrays")).json()["arrays"]}


@pytest.mark.parametrize("location", ["device", "host"])
def test_coordinates_come_along(c, labelled, location):
    """As an import's: as arrays that go with the last one that has them."""
    meta = c.expect(201, put(c, f"/v1/arrays/u?variable=a&location={location}", labelled)).json()
    assert meta["units"] == "K" and meta["location"] == location and meta["attrs"] == {"coordinates": "twice nowhere", "grid_mapping": "crs"}
    assert {k: v["dims"] for k, v in meta["coords"].items()} == {"y": ["y"], "area": ["y", "x"], "crs": []}
    ids = {k: v["array"] for k, v in meta["coords"].items()}
    assert there(c) == {meta["id"], *ids.values()} and all(c.meta(x)["coordinate"] for x in ids.values())
    assert (c.download(ids["y"]) == Y).all() and (c.download(ids["area"]) == A[0]).all() and c.meta(ids["crs"])["attrs"] == {"epsg": 4326}
    again = c.expect(200, put(c, "/v1/arrays/u?variable=a&units=m", labelled)).json()  # it replaces the first one and what went with it
    assert again["units"] == "m" and len(again["coords"]) == 3
    assert there(c) == {again["id"], *(x["array"] for x in again["coords"].values())} and not there(c) & set(ids.values())
    c.expect(204, c.delete("/v1/arrays/u"))
    assert there(c) == set()


@pytest.mark.parametrize("query", ["labels=false", "dims=t,lat,lon", "coords={}"])
def test_coordinates_that_are_not_wanted(c, labelled, query):
    meta = c.expect(201, put(c, f"/v1/arrays/u?variable=a&{query}", labelled)).json()
    assert "coords" not in meta and "attrs" not in meta and there(c) == {meta["id"]}
    assert meta.get("dims") == {"labels=false": None, "dims=t,lat,lon": ["t", "lat", "lon"], "coords={}": ["t", "y", "x"]}[query]


@pytest.mark.parametrize("quota", [["--max-arrays", 3], ["--attrs-memory", "1KiB"]])
def test_coordinates_within_quotas(daemon_with, nc, quota):
    body = nc(a=(A, ["t", "y", "x"], {}), y=(Y, ["y"], {"of": "x" * 700}), z=A, x=(np.zeros(4), ["x"], {"of": "x" * 700}),
              dims={"t": {"length": 2}, "y": {"length": 3}, "x": {"length": 4}})
    c = daemon_with("--file-reader", READER, *quota).client()
    c.upload(A, "u")
    c.upload(A, "held")
    before, used = c.meta("u"), settle(c, 0, 5)
    for name in ("v", "u"):
        c.fails(429, "quota_exceeded", put(c, f"/v1/arrays/{name}?variable=a", body))
    assert there(c) == {before["id"], c.meta("held")["id"]} and settle(c, used) == used
    c.expect(201, put(c, "/v1/arrays/v?variable=z", body))


def test_the_same_again(daemon_with, labelled):
    """What goes with the array that is replaced makes room for what comes."""
    c = daemon_with("--file-reader", READER, "--max-arrays", 4).client()
    for status in (201, 200, 200):
        c.expect(status, put(c, "/v1/arrays/u?variable=a", labelled))
        assert len(there(c)) == 4
    held = c.meta("u")["coords"]["y"]["array"]
    c.expect(200, c.patch(f"/v1/arrays/{held}", {"read_only": True}))  # it would stay
    before = there(c)
    c.fails(429, "quota_exceeded", put(c, "/v1/arrays/u?variable=a", labelled))
    assert there(c) == before


def test_coordinates_of_what_is_refused(c, labelled):
    c.expect(201, put(c, "/v1/arrays/u?variable=a", labelled))
    before = there(c)
    c.fails(412, "precondition_failed", put(c, "/v1/arrays/u?variable=a", labelled, headers={"If-None-Match": "*"}))
    c.fails(409, "conflict", c.request("POST", "/v1/arrays?name=u&variable=a", labelled, content_type=NETCDF))
    token = c.expect(201, c.post("/v1/arrays/u/lease", {"mode": "read", "ttl_s": 30})).json()["token"]
    c.fails(409, "locked", put(c, "/v1/arrays/u?variable=a", labelled))
    c.expect(204, c.delete("/v1/arrays/u/lease", headers={"Arrayd-Lease": token}))
    c.fails(422, "shape_mismatch", put(c, "/v1/arrays/u?variable=a&coords=" + '{"q":"u"}', labelled))
    assert there(c) == before and (c.download("u") == A).all()


@pytest.mark.parametrize("kind, taken", [(NETCDF, ["netcdf3", "netcdf4", "hdf5"]), (HDF5, ["hdf5", "netcdf4"]), (NPZ, ["npz"])])
def test_what_the_body_is(c, nc, kind, taken):
    """Any HDF5 file may be a NetCDF-4 one: before 2016 they did not say so."""
    for format in ("netcdf3", "netcdf4", "hdf5", "npz", "tiff"):
        reply = put(c, "/v1/arrays/u", nc(a=A, format=format), kind)
        if format in taken:
            assert reply.status in (200, 201)
        else:
            c.fails(422, "bad_file", reply)


def test_into(c, nc):
    c.upload(np.zeros((3, 3, 4), np.float32), "u")
    c.expect(204, put(c, "/v1/arrays/u/data?index=1:", nc(a=A)))
    assert (c.download("u") == np.concatenate([np.zeros((1, 3, 4)), A])).all()
    c.fails(422, "shape_mismatch", put(c, "/v1/arrays/u/data", nc(a=A)))
    c.fails(422, "dtype_mismatch", put(c, "/v1/arrays/u/data?index=1:", nc(a=A.astype(np.float64))))
    tag = c.expect(200, c.get("/v1/arrays/u/data")).headers["ETag"]
    c.expect(204, put(c, "/v1/arrays/u/data?index=1:", nc(a=A + 1), headers={"If-Match": tag}))
    c.fails(412, "precondition_failed", put(c, "/v1/arrays/u/data?index=1:", nc(a=A), headers={"If-Match": tag}))
    c.fails(404, "not_found", put(c, "/v1/arrays/none/data", nc(a=A)))


def test_which_variable(c, nc):
    body = nc(a=A, b=A + 1)
    reply = put(c, "/v1/arrays/u", body)
    c.fails(422, "unknown_name", reply)
    assert "a, b" in reply.json()["detail"]
    c.expect(201, put(c, "/v1/arrays/u?variable=b", body))
    assert (c.download("u") == A + 1).all()
    c.fails(422, "unknown_name", put(c, "/v1/arrays/u?variable=c", body))
    c.fails(400, "bad_query", put(c, "/v1/arrays/u?decode=maybe", body, check=False))
    c.fails(400, "bad_query", put(c, "/v1/arrays/u?dtype=int8", body, check=False))


def test_bodies_that_are_none(c, nc):
    c.fails(422, "bad_file", put(c, "/v1/arrays/u", b"no file"))
    c.fails(422, "bad_file", put(c, "/v1/arrays/u", nc(a=A), kind=NPZ))
    c.fails(422, "bad_file", put(c, "/v1/arrays/u", b""))
    reply = put(c, "/v1/arrays/u", b"x" * (17 << 20))
    c.fails(507, "out_of_memory", reply)
    assert "max_request_memory" in reply.json()["detail"] and "GET /v1/files" in reply.json()["detail"]
    for deed in ("die", "kill", "garbage"):
        for at in ("ready", "describe", "slab"):
            c.fails(500, "file_reader_failed", put(c, "/v1/arrays/u", nc(a=A, lie={"at": at, "deed": deed})))
    assert c.expect(200, c.get("/v1/arrays")).json()["arrays"] == []


@pytest.mark.parametrize("kind", [NPZ, NETCDF, HDF5])
def test_down(c, kind):
    c.upload(A, "u")
    reply = c.expect(200, c.request("GET", "/v1/arrays/u/data", accept=kind))
    assert reply.headers["Content-Type"] == kind and reply.body.endswith(A.tobytes()) and b'"name": "u"' in reply.body
    part = c.expect(200, c.request("GET", "/v1/arrays/u/data?index=1", accept=kind)).body
    assert part.endswith(A[1].tobytes())
    c.fails(404, "not_found", c.request("GET", "/v1/arrays/none/data", accept=kind))
    c.create(name="line", shape=[3], dtype="float32")  # of which there is no picture
    assert c.expect(200, c.request("GET", "/v1/arrays/line/data", accept=f"image/png, {kind};q=0.5")).headers["Content-Type"] == kind
    assert c.expect(200, c.request("GET", "/v1/arrays/u/data", accept="*/*")).headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("kind", [NPZ, NETCDF, HDF5])
def test_tags(c, kind):
    """A file has a tag as bytes have: of the contents, and of all that is said of them in it."""
    def get(query="", **headers):
        return c.request("GET", f"/v1/arrays/u/data{query}", accept=kind, headers=headers)

    c.expect(201, c.post("/v1/arrays", {"name": "u", "shape": [2, 3, 4], "dtype": "float32", "ghost": [1, 1, 1]}))
    reply = c.expect(200, get())
    tag = reply.headers["ETag"]
    assert reply.headers["X-Content-Type-Options"] == "nosniff" and reply.headers["Vary"] == "Accept"
    assert c.expect(304, get(**{"If-None-Match": tag})).headers["ETag"] == tag
    c.expect(200, get(**{"If-Match": tag}))
    c.fails(412, "precondition_failed", get(**{"If-Match": '"other"'}))
    others = {tag, c.expect(200, c.get("/v1/arrays/u/data")).headers["ETag"], *(get(q).headers["ETag"] for q in ("?index=1", "?ghosts=keep"))}
    for members in ({"units": "K"}, {"dims": ["t", "y", "x"]}, {"spacing": [1, 1, 0.5]}):
        c.expect(200, c.request("PATCH", "/v1/arrays/u", json.dumps(members).encode(), content_type="application/json"))
        new = c.expect(200, get(**{"If-None-Match": ", ".join(others)})).headers["ETag"]
        assert new not in others
        others.add(new)
    c.expect(204, c.request("PUT", "/v1/arrays/u/data", A.tobytes(), content_type="application/octet-stream", headers={"If-Match": new}))
    c.fails(412, "precondition_failed", get(**{"If-Match": new}))
    c.fails(412, "precondition_failed", c.request("PUT", "/v1/arrays/u/data", A.tobytes(), content_type="application/octet-stream", headers={"If-Match": new}))


def test_what_is_taken_and_given_is_named(c):
    c.upload(A, "u")
    for reply in (c.request("GET", "/v1/arrays/u/data", accept="text/html"), put(c, "/v1/arrays/u/data", b"x", "image/tiff", check=False)):
        assert reply.status in (406, 415) and all(kind in reply.json()["detail"] for kind in (NPZ, NETCDF, HDF5)), reply.json()


def test_bundles_are_what_is_accepted(c):
    c.upload(A, "u")
    body = {"arrays": ["u"], "format": "netcdf4"}
    for accept in (None, "*/*", NETCDF, f"text/html, {NETCDF};q=0.1"):
        reply = c.expect(200, c.post("/v1/files/bundle", body, accept=accept))
        assert reply.headers["Content-Type"] == NETCDF and reply.headers["X-Content-Type-Options"] == "nosniff"
    c.fails(406, "not_acceptable", c.post("/v1/files/bundle", body, accept="application/json"))
    del body["format"]
    reply = c.post("/v1/files/bundle", body, check=False)
    c.fails(422, "bad_field", reply)
    assert reply.json()["detail"] == "format is netcdf4, netcdf3, hdf5, npz, npy, tiff or png"


def test_several(c):
    c.upload(A, "u")
    c.upload(A[0], "v")
    body = c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u", {"array": "v", "name": "w"}], "format": "netcdf4", "attrs": {"x": 1}})).body
    assert body.endswith(A.tobytes() + A[0].tobytes()) and b'"name": "w"' in body
    c.fails(422, "bad_field", c.post("/v1/files/bundle", {"arrays": ["u"]}, check=False))
    c.fails(422, "bad_field", c.post("/v1/files/bundle", {"arrays": ["u"], "format": "zip"}, check=False))
    c.fails(422, "unknown_field", c.post("/v1/files/bundle", {"arrays": ["u"], "format": "npz", "path": "x"}, check=False))
    c.fails(404, "not_found", c.post("/v1/files/bundle", {"arrays": ["none"], "format": "npz"}))
    c.fails(500, "file_reader_failed", c.post("/v1/files/bundle", {"arrays": ["u"], "format": "npz", "attrs": {"lie": '{"at": "free", "deed": "die"}'}}))
    c.upload(np.zeros(3 << 20), "large")
    reply = c.post("/v1/files/bundle", {"arrays": ["large"], "format": "npz"})
    c.fails(507, "out_of_memory", reply)
    assert "GET /v1/files" in reply.json()["detail"]


def test_bundles_that_do_not_agree(c):
    """Nobody's mistake is the daemon's: a place in the request, or a text where a file has no such value."""
    def bundle(arrays, **kw):
        return c.post("/v1/files/bundle", {"arrays": arrays, "format": "netcdf4", **kw})

    def fails(code, status, place, reply):
        c.fails(status, code, reply)
        assert reply.json()["pointer"] == place
    c.upload(np.zeros(3), "u")
    c.upload(np.zeros(4), "v")
    for name in "uv":
        c.expect(200, c.request("PATCH", f"/v1/arrays/{name}", b'{"dims": ["x"]}', content_type="application/json"))
    fails("shape_mismatch", 422, "/arrays/1", bundle(["u", "v"]))
    c.expect(200, bundle(["u", "v"], labels=False))
    for value in ({"b": 1}, None, [1, "x"], ["NaN", "x"], [[1]], 2 ** 64, [-1, 2 ** 64 - 1]):
        fails("bad_field", 422, "/attrs/a", bundle(["u"], attrs={"a": value}))
        c.expect(200, c.request("PATCH", "/v1/arrays/u", json.dumps({"attrs": {"a": value, "b": [1.5, "NaN"], "c": True}}).encode(), content_type="application/json"))
        head = json.loads(c.expect(200, bundle(["u"])).body.split(b"\n")[0])["variables"][0]["attrs"]
        assert {k: v for k, v in head.items() if k != "a"} == {"b": [1.5, "NaN"], "c": True}
        assert json.loads(head["a"]) == value if value is not None else "a" not in head
    for name in ("", "a/b", "a\x7fb"):
        fails("bad_name", 422, "/attrs/" + name.replace("/", "~1"), bundle(["u"], attrs={name: 1}))


def test_coordinates_that_do_not_agree(c):
    ids = {name: c.upload(np.arange(3.) + k, name)["id"] for k, name in enumerate(("u", "v", "x1", "x2"))}
    for name, x in (("u", "x1"), ("v", "x2")):
        c.expect(200, c.request("PATCH", f"/v1/arrays/{name}", json.dumps({"dims": ["x"], "coords": {"x": ids[x]}}).encode(), content_type="application/json"))
    reply = c.post("/v1/files/bundle", {"arrays": ["u", "v"], "format": "netcdf4"})
    c.fails(409, "conflict", reply)
    assert reply.json()["pointer"] == "/arrays/1" and "'x'" in reply.json()["detail"]
    c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u", "v"], "format": "netcdf4", "coords": False}))
    c.fails(409, "conflict", c.post("/v1/files/bundle", {"arrays": ["u", {"array": "x2", "name": "x"}], "format": "netcdf4"}))
    head = json.loads(c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u", {"array": "x1", "name": "x"}], "format": "netcdf4"})).body.split(b"\n")[0])
    assert [(v["name"], v["dims"]) for v in head["variables"]] == [("u", ["x"]), ("x", ["x"])]
    assert len(c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u"], "format": "npy"})).body.split(b"\n")[1]) == 24


def test_coordinates_go_along(c):
    """One array as a file has the coordinates that an export of it has; what cannot be in its file is no reason to refuse it."""
    ids = {name: c.upload(a, name)["id"] for name, a in (("u", A[0]), ("area", A[1]), ("x1", np.arange(4.)), ("y1", np.arange(3.)))}

    def label(coords):
        c.expect(200, c.request("PATCH", "/v1/arrays/u", json.dumps({"dims": ["y", "x"], "coords": coords}).encode(), content_type="application/json"))

    def got(query="", kind=NETCDF):
        body = c.expect(200, c.request("GET", f"/v1/arrays/u/data{query}", accept=kind)).body
        return [(v["name"], v["dims"], v["attrs"].get("coordinates")) for v in json.loads(body.split(b"\n")[0])["variables"]], body
    label({"x": ids["x1"], "y": ids["y1"], "area": {"array": ids["area"], "dims": ["y", "x"]}})
    all_ = [("u", ["y", "x"], "area"), ("x", ["x"], None), ("y", ["y"], None), ("area", ["y", "x"], None)]
    for kind, format in ((NETCDF, "netcdf4"), (HDF5, "hdf5")):
        names, body = got(kind=kind)
        assert sorted(names) == sorted(all_) and body == c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u"], "format": format})).body
    assert got(kind=NPZ)[0] == [("u", ["y", "x"], None)]
    assert got("?index=1")[0] == [("u", ["x"], None), ("x", ["x"], None)]
    tag = c.expect(200, c.request("GET", "/v1/arrays/u/data", accept=NETCDF)).headers["ETag"]
    c.expect(204, c.request("PUT", "/v1/arrays/y1/data", np.ones(3).tobytes(), content_type="application/octet-stream"))
    c.expect(200, c.request("GET", "/v1/arrays/u/data", accept=NETCDF, headers={"If-None-Match": tag}))
    label({"u": {"array": ids["area"], "dims": ["y", "x"]}})
    assert got()[0] == [("u", ["y", "x"], None)]


def test_labels_of_a_part(c):
    c.upload(A, "u")
    c.expect(200, c.request("PATCH", "/v1/arrays/u", b'{"dims": ["t", "y", "x"], "units": "K", "attrs": {"a": 1}}', content_type="application/json"))
    for index, dims in (("", ["t", "y", "x"]), ("?index=1", ["y", "x"]), ("?index=:,0,1:", ["t", "x"]), ("?index=None,0", [None, "y", "x"]), ("?ghost=1", ["t", "y", "x"])):
        head = json.loads(c.expect(200, c.request("GET", f"/v1/arrays/u/data{index}", accept=NETCDF)).body.split(b"\n")[0])["variables"][0]
        assert head["dims"] == dims and head["attrs"] == {"a": 1, "units": "K"}


def test_labels_that_do_not_fit(c, nc):
    body = nc(a=(A, ["t", "y", "x"], {"units": "K" * 300, "long_name": "air"}))
    reply = put(c, "/v1/arrays/u", body)
    c.fails(422, "bad_field", reply)
    assert "?labels=false" in reply.json()["detail"]
    assert "units" not in c.expect(201, put(c, "/v1/arrays/u?labels=false", body)).json()
    c.fails(400, "bad_query", put(c, "/v1/arrays/u?labels=no", body, check=False))


def test_a_bundle_is_counted_as_it_may_become(daemon_with, tmp_path):
    """Before it is made, what it may take; then what it takes."""
    c = daemon_with("--file-reader", READER, "--file-spool", tmp_path, "--request-memory", "24MiB", "--max-request-memory", "16MiB").client()
    c.upload(np.zeros(1 << 20), "u")
    c.fails(507, "out_of_memory", c.post("/v1/files/bundle", {"arrays": ["u"], "format": "npz"}))
    c.upload(np.zeros(3 << 18), "v")
    c.expect(200, c.post("/v1/files/bundle", {"arrays": ["v"], "format": "npz"}))
    lie = json.dumps({"at": "done", "deed": "grow", "bytes": 15 << 20})
    reply = c.post("/v1/files/bundle", {"arrays": ["v"], "format": "npz", "attrs": {"lie": lie}})
    c.fails(500, "file_reader_failed", reply)


@pytest.mark.in_turn
def test_ghosts_there_and_back(c, nc):
    """Left out, unless they are to be kept; spacing and boundary go along."""
    spec = {"name": "g", "shape": [4, 6], "dtype": "float32", "ghost": [1, 2], "spacing": [0.5, 1], "boundary": ["periodic", [{"type": "dirichlet", "value": 20}, {"type": "none"}]]}
    c.expect(201, c.post("/v1/arrays", spec))
    a = np.arange(60, dtype=np.float32).reshape(6, 10)
    c.expect(204, c.request("PUT", "/v1/arrays/g/data?ghost=1", a.tobytes(), content_type="application/octet-stream"))
    told = {k: c.meta("g")[k] for k in ("spacing", "boundary")}
    left = c.expect(200, c.request("GET", "/v1/arrays/g/data", accept=NETCDF)).body
    kept = c.expect(200, c.request("GET", "/v1/arrays/g/data?ghosts=keep", accept=NETCDF)).body
    assert kept == c.expect(200, c.post("/v1/files/bundle", {"arrays": ["g"], "format": "netcdf4", "ghosts": "keep"})).body
    assert left == c.expect(200, c.post("/v1/files/bundle", {"arrays": ["g"], "format": "netcdf4"})).body
    head = json.loads(kept.split(b"\n")[0])["variables"][0]
    assert head["shape"] == [6, 10] and head["attrs"]["ghost"] == [1, 2] and head["attrs"]["spacing"] == [0.5, 1]
    assert json.loads(left.split(b"\n")[0])["variables"][0]["shape"] == [4, 6]
    for body, query, ghost in ((left, "", [0, 0]), (left, "?ghosts=keep", [0, 0]), (kept, "", [0, 0]), (kept, "?ghosts=keep", [1, 2])):
        meta = put(c, f"/v1/arrays/h{query}", body).json()
        assert meta["ghost"] == ghost and {k: meta[k] for k in told} == told and "attrs" not in meta
        whole = c.expect(200, c.request("GET", "/v1/arrays/h/data?ghost=1")).body
        assert whole == (a if ghost[0] else a[1:-1, 2:-2]).tobytes()
    c.expect(204, put(c, "/v1/arrays/h/data?ghost=1&ghosts=keep", kept))
    c.expect(204, put(c, "/v1/arrays/h/data", kept))
    c.expect(200, put(c, "/v1/arrays/h?labels=false", kept))
    assert c.meta("h")["shape"] == [6, 10]
    for query in ("?ghosts=yes", "?ghosts=keep&index=1", "?ghosts=keep&ghost=1"):
        c.fails(400, "bad_query", c.request("GET", f"/v1/arrays/g/data{query}", accept=NETCDF, check=False))
    for attrs in ({"ghost": [1]}, {"ghost": [3, 0]}, {"ghost": "1"}, {"ghost": -1}, {"spacing": 2}, {"spacing": [0, 1]}, {"boundary": "periodic"}):  # of something else
        meta = c.expect(200, put(c, "/v1/arrays/h", nc(a=(a, None, attrs)))).json()
        assert meta["shape"] == [6, 10] and meta["attrs"] == attrs and meta["spacing"] == [1, 1]


def test_without_the_program(daemon_with, tmp_path):
    c = daemon_with("--file-reader", tmp_path / "none").client()
    c.upload(A, "u")
    c.fails(501, "library_missing", put(c, "/v1/arrays/v", b"x"))
    c.fails(501, "library_missing", c.request("GET", "/v1/arrays/u/data", accept=HDF5))
    c.fails(501, "library_missing", c.post("/v1/files/bundle", {"arrays": ["u"], "format": "npz"}))


@pytest.mark.in_turn
def test_the_spool_has_no_names(daemon_with, nc, tmp_path):
    """A daemon that is killed leaves nothing there, whatever was under way."""
    spool = tmp_path / "own"
    spool.mkdir()
    d = daemon_with("--file-reader", READER, "--file-spool", spool)
    c = d.client()
    c.upload(A, "u")
    slow = nc(a=A, lie={"at": "describe", "deed": "wait", "seconds": 2})
    made = {"arrays": ["u"], "format": "npz", "attrs": {"lie": '{"at": "write", "deed": "wait", "seconds": 2}'}}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(put, c.clone(), "/v1/arrays/v", slow), pool.submit(c.clone().post, "/v1/files/bundle", made)]
        until(lambda: len(children(d)) == 2)
        assert list(spool.iterdir()) == []
        assert [r.result().status for r in under_way] == [201, 200]


def test_with_the_program(daemon_with):
    """The true one, where it was built."""
    import pathlib
    if not (pathlib.Path(find_binary()).parent / "arrayd-file").exists():
        pytest.skip("arrayd-file was not built")
    c = daemon_with().client()
    out = io.BytesIO()
    np.savez_compressed(out, u=A, v=A[0] > 3)
    for name, a in (("u", A), ("v", A[0] > 3)):
        c.expect(201, put(c, f"/v1/arrays/{name}?variable={name}", out.getvalue(), kind=NPZ))
        assert (c.download(name) == a).all()
    body = c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u", "v"], "format": "npz"})).body
    got = np.load(io.BytesIO(body))
    assert sorted(got.files) == ["u", "v"] and (got["u"] == A).all() and (got["v"] == (A[0] > 3)).all()
    for kind in (NETCDF, HDF5, NPZ):
        body = c.expect(200, c.request("GET", "/v1/arrays/u/data", accept=kind)).body
        c.expect(200, put(c, "/v1/arrays/u", body, kind=kind))
        assert (c.download("u") == A).all()


def test_labels_and_grids_with_the_program(daemon_with, tmp_path):
    """What xarray sees of coordinates on two axes and none, and a grid's way through the true formats."""
    import pathlib

    import xarray as xr
    if not (pathlib.Path(find_binary()).parent / "arrayd-file").exists():
        pytest.skip("arrayd-file was not built")
    c = daemon_with().client()
    ids = {name: c.upload(a, name)["id"] for name, a in (("u", A), ("lat", A[0, :, 0].astype(float)), ("yy", A[0].astype(float)), ("top", np.array(7.)))}
    labels = {"dims": ["t", "lat", "x"], "units": "K", "attrs": {"odd": {"a": [1, None]}, "flag": True}, "coords": {
        "lat": ids["lat"], "yy": {"array": ids["yy"], "dims": ["lat", "x"]}, "top": {"array": ids["top"], "dims": []}}}
    c.expect(200, c.request("PATCH", "/v1/arrays/u", json.dumps(labels).encode(), content_type="application/json"))
    for format in ("netcdf4", "netcdf3"):
        (tmp_path / "f.nc").write_bytes(c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u"], "format": format})).body)
        with xr.open_dataset(tmp_path / "f.nc") as f:
            assert set(f.coords) == {"lat", "yy", "top"} and f["yy"].dims == ("lat", "x") and f["top"] == 7
            assert (f["u"] == A).all() and json.loads(f["u"].attrs["odd"]) == {"a": [1, None]} and f["u"].attrs["units"] == "K"
    for kind in (NETCDF, HDF5):  # and back: as it was
        body = c.expect(200, c.request("GET", "/v1/arrays/u/data", accept=kind)).body
        meta = c.expect(201 if kind == NETCDF else 200, put(c, "/v1/arrays/v", body, kind=kind)).json()
        assert {k: v["dims"] for k, v in meta["coords"].items()} == {"lat": ["lat"], "yy": ["lat", "x"], "top": []}
        assert all((c.download(v["array"]) == c.download(ids[k])).all() for k, v in meta["coords"].items())
    c.expect(201, c.post("/v1/arrays", {"name": "g", "shape": [4, 6], "dtype": "float32", "ghost": [1, 2], "spacing": [0.5, 1], "boundary": ["periodic", [{"type": "none"}, {"type": "none"}]]}))
    a = np.arange(60, dtype=np.float32).reshape(6, 10)
    c.expect(204, c.request("PUT", "/v1/arrays/g/data?ghost=1", a.tobytes(), content_type="application/octet-stream"))
    for kind in (NETCDF, HDF5):
        body = c.expect(200, c.request("GET", "/v1/arrays/g/data?ghosts=keep", accept=kind)).body
        put(c, "/v1/arrays/h?ghosts=keep", body, kind=kind)
        assert {k: c.meta("h")[k] for k in ("ghost", "spacing", "boundary")} == {k: c.meta("g")[k] for k in ("ghost", "spacing", "boundary")}
        assert c.expect(200, c.request("GET", "/v1/arrays/h/data?ghost=1")).body == a.tobytes()
        c.expect(200, put(c, "/v1/arrays/h", body, kind=kind))
        assert (c.download("h") == a[1:-1, 2:-2]).all()


@pytest.mark.parametrize("what", ["a body", "a body that waits", "a bundle"])
def test_nobody_waits_for_it(c, nc, what):
    """The client has gone: its file's process ends, and the next one's turn comes."""
    hang = nc(a=A, lie={"at": "read", "deed": "hang"})
    c.upload(A, "held")
    clients = [socket.create_connection((c.daemon.host, c.daemon.port)) for _ in range(9 if what == "a body that waits" else 4)]
    for i, s in enumerate(clients):
        if what == "a bundle":
            body = json.dumps({"format": "netcdf4", "arrays": ["held"], "attrs": {"lie": '{"at": "free", "deed": "hang"}'}}).encode()
            head = "POST /v1/files/bundle HTTP/1.1\r\nContent-Type: application/json"
        else:
            body, head = hang, f"PUT /v1/arrays/u{i} HTTP/1.1\r\nContent-Type: {NETCDF}"
        s.sendall(f"{head}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    until(lambda: len(children(c.daemon)) == 4)
    for s in clients:
        s.close()
    began = time.monotonic()
    c.expect(201, put(c, "/v1/arrays/u", nc(a=A)))
    until(lambda: no_reader(c.daemon))
    assert time.monotonic() - began < 10
    assert [a["name"] for a in c.expect(200, c.get("/v1/arrays")).json()["arrays"]] == ["held", "u"]


def test_a_client_that_sends_no_more(c, nc):
    """Whether it waits cannot be told; the reply, if there is still one, does not blame the daemon."""
    body = nc(a=A, lie={"at": "read", "deed": "hang"})
    s = socket.create_connection((c.daemon.host, c.daemon.port))
    s.sendall(f"PUT /v1/arrays/u HTTP/1.1\r\nContent-Type: {NETCDF}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    s.shutdown(socket.SHUT_WR)
    until(lambda: no_reader(c.daemon))
    s.settimeout(10)
    assert b"shutting down" not in s.recv(10000)
    s.close()
