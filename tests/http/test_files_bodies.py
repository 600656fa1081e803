"""Files up and down: PUT and GET of arrays as npz, NetCDF and HDF5, and several arrays in one file."""
import io

import numpy as np
import pytest

from conftest import find_binary, until
from stand_in import READER, descriptors, no_reader, write

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
NPZ, NETCDF, HDF5 = "application/x-npz", "application/x-netcdf", "application/x-hdf5"


@pytest.fixture
def nc(tmp_path):
    """A function: variables as a file of the stand-in's, as bytes."""
    def make(**kw):
        lie = kw.pop("lie", None)
        write(tmp_path / "f", {k: v for k, v in kw.items()}, lie=lie)
        return (tmp_path / "f").read_bytes()
    return make


@pytest.fixture
def c(daemon_with, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    d = daemon_with("--file-reader", READER, "--file-spool", spool, "--request-memory", "20MiB", "--max-request-memory", "16MiB")
    c = d.client()
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
    c.fails(507, "out_of_memory", put(c, "/v1/arrays/u", b"x" * (17 << 20)))
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
    assert c.expect(200, c.request("GET", "/v1/arrays/u/data", accept="*/*")).headers["Content-Type"] == "application/octet-stream"


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
    c.fails(507, "out_of_memory", c.post("/v1/files/bundle", {"arrays": ["large"], "format": "npz"}))


def test_without_the_program(daemon_with, tmp_path):
    c = daemon_with("--file-reader", tmp_path / "none").client()
    c.upload(A, "u")
    c.fails(501, "library_missing", put(c, "/v1/arrays/v", b"x"))
    c.fails(501, "library_missing", c.request("GET", "/v1/arrays/u/data", accept=HDF5))
    c.fails(501, "library_missing", c.post("/v1/files/bundle", {"arrays": ["u"], "format": "npz"}))


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
