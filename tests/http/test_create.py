"""Creators in depth: every dtype, literals at the edges, streamed JSON, places of mistakes."""
import itertools
import json

import numpy as np
import pytest

from client import JSON

NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
         "float32", "float64", "complex64", "complex128"]
INTEGERS = [d for d in NUMPY if "int" in d]


def fetch(api, ref, dtype, shape):
    return api.get(f"/v1/arrays/{ref}/data").array(dtype, shape)


def made(api, **body):
    m = api.create(**body)
    return fetch(api, m["id"], m["dtype"], m["shape"])


def refused(api, body, code, pointer, status=422):
    r = api.post("/v1/arrays", body)
    assert (r.status, r.code, r.json().get("pointer")) == (status, code, pointer), r
    assert api.list_all("/v1/arrays", "arrays") == []


# --- fill ---


@pytest.mark.parametrize("fill,dtype", [
    (True, "bool"), (0, "int64"), (-7, "int64"), (2**53, "int64"), ("9223372036854775807", "int64"),
    ("9223372036854775808", "uint64"), ("18446744073709551615", "uint64"), (1.0, "float64"), (1e300, "float64"),
    (-0.5, "float64"), ("NaN", "float64"), ("-Infinity", "float64")])
def test_dtype_of_fill(api, fill, dtype):
    m = api.create(shape=[2], fill=fill)
    assert m["dtype"] == dtype
    value = float(fill) if dtype == "float64" else int(fill)
    want = np.array([value] * 2, dtype)
    np.testing.assert_array_equal(fetch(api, m["id"], dtype, [2]), want)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_fill_at_the_edges_of_integers(api, dtype):
    info = np.iinfo(dtype)
    for v in (int(info.min), int(info.max)):
        got = made(api, shape=[1], dtype=dtype, fill=str(v))
        assert int(got[0]) == v
        api.delete(f"/v1/arrays/{api.get('/v1/arrays').json()['arrays'][0]['id']}")
    for v in (int(info.min) - 1, int(info.max) + 1):
        refused(api, {"shape": [1], "dtype": dtype, "fill": str(v)}, "literal_range", "/fill")
    refused(api, {"shape": [1], "dtype": dtype, "fill": 0.5}, "literal_range", "/fill")
    refused(api, {"shape": [1], "dtype": dtype, "fill": "NaN"}, "literal_range", "/fill")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_fill_of_floats(api, dtype):
    m = api.create(shape=[3], dtype=dtype, fill=0.1)
    text = api.get(f"/v1/arrays/{m['id']}/data", accept=JSON).json()
    got = text[0][0] if "complex" in dtype else text[0]
    assert abs(got - 0.1) < {"float16": 1e-4, "bfloat16": 1e-3}.get(dtype, 1e-8)
    m = api.create(shape=[1], dtype=dtype, fill=1e300)
    text = api.get(f"/v1/arrays/{m['id']}/data", accept=JSON).json()
    big = text[0][0] if "complex" in dtype else text[0]
    assert big == (1e300 if dtype in ("float64", "complex128") else "Infinity")


@pytest.mark.parametrize("body,code,pointer", [
    ({"shape": [1], "fill": None}, "bad_field", "/fill"), ({"shape": [1], "fill": "1.5x"}, "bad_field", "/fill"),
    ({"shape": [1], "fill": {}}, "bad_field", "/fill"), ({"shape": [1], "fill": [1, 2]}, "bad_field", "/fill"),
    ({"shape": [1], "fill": [1, 2, 3], "dtype": "complex64"}, "bad_field", "/fill"),
    ({"shape": [1], "fill": [1, 2], "dtype": "float64"}, "literal_range", "/fill"),
    ({"shape": [1], "fill": 2**53 + 2}, "inexact_number", "/fill"),
    ({"shape": [1], "fill": "18446744073709551616"}, "literal_range", "/fill"),
    ({"shape": [1], "fill": 2, "dtype": "bool"}, "literal_range", "/fill"),
    ({"fill": 1}, "bad_field", "/shape")])
def test_refused_fills(api, body, code, pointer):
    refused(api, body, code, pointer)


# --- shapes ---


@pytest.mark.parametrize("shape,code,pointer", [
    ([-1], "bad_shape", "/shape/0"), ([1, 2, -3], "bad_shape", "/shape/2"), ([1] * 33, "bad_shape", "/shape"),
    ("3", "bad_shape", "/shape"), (3, "bad_shape", "/shape"), ([1.5], "bad_shape", "/shape/0"),
    ([True], "bad_shape", "/shape/0"), ([None], "bad_shape", "/shape/0"), ({}, "bad_shape", "/shape"),
    ([2**40, 2**40], "bad_shape", "/shape"), ([0, 2**40, 2**40], "bad_shape", "/shape")])
def test_bad_shapes(api, shape, code, pointer):
    r = api.post("/v1/arrays", {"shape": shape})
    assert r.status == 422 and r.json()["pointer"].startswith(pointer[:6]), r
    assert r.code in (code, "bad_field"), r


def test_more_than_there_is(daemon_with):
    api = daemon_with("--memory-limit", "1MiB").client()
    for body in ({}, {"fill": 1, "dtype": "float64"}):
        r = api.post("/v1/arrays", {"shape": [1 << 20], **body})
        assert r.status in (429, 507), r
    r = api.request("POST", "/v1/arrays", json.dumps({"data": [0.5] * 200000}).encode(), content_type=JSON)
    assert r.status in (429, 507), r
    assert api.info()["bytes_in_use"] == 0
    api.create(shape=[1 << 16], dtype="float64")
    api.close()


# --- data ---


@pytest.mark.parametrize("dtype", NUMPY)
def test_data_of_every_dtype(api, dtype):
    rng = np.random.default_rng(5)
    a = (rng.standard_normal((3, 4)) * 50)
    a = (a > 0) if dtype == "bool" else np.abs(a).astype(dtype) if dtype[0] == "u" else a.astype(dtype)
    pairs = [[[float(x.real), float(x.imag)] for x in row] for row in a] if "complex" in dtype else a.tolist()
    for keys in itertools.permutations(["dtype", "data", "shape"]):
        body = {k: {"dtype": dtype, "data": pairs, "shape": [3, 4]}[k] for k in keys}
        np.testing.assert_array_equal(made(api, **body), a)


CHUNKS = [1, 2, 3, 7, 64, 1000]


@pytest.mark.parametrize("n", CHUNKS)
def test_data_cut_anywhere(api, n):
    data = [[1, -2.5e-3, 1e22], ["NaN", "-Infinity", 18446744073709551615.0]]
    text = json.dumps({"name": "u", "data": data, "alignment": 64}).encode()
    r = api.request("POST", "/v1/arrays", [text[i:i + n] for i in range(0, len(text), n)], content_type=JSON,
                    chunked=True)
    m = api.expect(201, r).json()
    assert (m["name"], m["dtype"]) == ("u", "float64")
    np.testing.assert_array_equal(fetch(api, "u", "float64", [2, 3]), np.array(data, "float64"))


def test_a_large_list(api):
    a = np.random.default_rng(6).standard_normal((500, 700))
    before = api.info()["bytes_in_use"]
    api.create(shape=[500, 700])
    one = api.info()["bytes_in_use"] - before  # of a GPU's memory, whole pages
    np.testing.assert_array_equal(made(api, data=a.tolist()), a)
    assert a.nbytes <= one and api.info()["bytes_in_use"] - before < 2 * one + 4096
    b = np.random.default_rng(7).integers(-2**63, 2**63 - 1, 100000)
    np.testing.assert_array_equal(made(api, data=b.tolist()), b)


def test_integers_turn_late(api):
    """A kind that shows only at the end loses nothing of what came before."""
    big = [9007199254740993, 2**63 - 1, -(2**63)]
    assert made(api, data=big).tolist() == big
    assert made(api, data=[1, 2**63, 2**64 - 1]).tolist() == [1, 2**63, 2**64 - 1]
    got = made(api, data=[9007199254740993, 0.5])
    assert got.dtype == np.float64 and got.tolist() == [9007199254740992.0, 0.5]
    r = api.post("/v1/arrays", {"data": [9007199254740993], "dtype": "int64"})
    assert fetch(api, r.json()["id"], "int64", [1]).tolist() == [9007199254740993]
    text = b'{"data": [9007199254740993, 1], "dtype": "int64"}'  # dtype behind the data
    m = api.expect(201, api.request("POST", "/v1/arrays", text, content_type=JSON)).json()
    assert fetch(api, m["id"], "int64", [2]).tolist() == [9007199254740993, 1]


@pytest.mark.parametrize("data,shape", [(5, []), ([], [0]), ([[], []], [2, 0]), ([[[1]]], [1, 1, 1]), (True, [])])
def test_shapes_of_data(api, data, shape):
    assert api.create(data=data)["shape"] == shape


@pytest.mark.parametrize("body,code,pointer", [
    ({"data": [[1, 2], [3]]}, "bad_shape", "/data/1"), ({"data": [1, [2]]}, "bad_shape", "/data/1"),
    ({"data": [[1], 2]}, "bad_shape", "/data/1"), ({"data": [1, None]}, "bad_field", "/data/1"),
    ({"data": None}, "bad_field", "/data"), ({"data": [1, "x"]}, "bad_field", "/data/1"),
    ({"data": [1, {}]}, "bad_field", "/data/1"), ({"data": {}}, "bad_field", "/data"),
    ({"data": [1, 300], "dtype": "uint8"}, "literal_range", "/data/1"),
    ({"dtype": "uint8", "data": [[1, 2], [3, -1]]}, "literal_range", "/data/1/1"),
    ({"dtype": "int32", "data": [1, 0.5]}, "literal_range", "/data/1"),
    ({"dtype": "bool", "data": [True, 2]}, "literal_range", "/data/1"),
    ({"data": [1, 2], "shape": [3]}, "shape_mismatch", "/shape"),
    ({"data": [1, 2], "shape": [2, 1]}, "shape_mismatch", "/shape"),
    ({"data": [1, 2], "fill": 1}, "bad_field", None), ({"data": [1], "colour": 1}, "unknown_field", "/colour"),
    ({"data": [1], "name": "9"}, "bad_name", "/name"), ({"data": [1], "name": 9}, "bad_field", "/name"),
    ({"data": [1], "dtype": "x"}, "bad_dtype", "/dtype"), ({"data": [1], "alignment": 48}, "bad_field", "/alignment")])
def test_refused_data(api, body, code, pointer):
    r = api.post("/v1/arrays", body)
    assert (r.status, r.code) == (422, code), r
    assert pointer is None or r.json()["pointer"] == pointer, r
    assert api.list_all("/v1/arrays", "arrays") == []


@pytest.mark.parametrize("text", [
    b"", b"{", b'{"data":[1,2', b'{"data":[1,2]', b'{"data":[1,,2]}', b'{"data":[1,2]}}', b'{"data":[1,2]} x',
    b'{"data":[1],"data":[2]}', b'{"shape":[1],"shape":[1]}', b'{"data":[01]}', b'{"data":[1.]}', b'{"data":[NaN]}',
    b'\xef\xbb\xbf{"data":[1]}', b'{"data":[1\xff]}', b"{'data':[1]}", b'{"data" [1]}', b'{data:[1]}',
    b'{"name":"\xff","data":[1]}', b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}"])
def test_malformed_bodies(api, text):
    for method, path in (("POST", "/v1/arrays"), ("PUT", "/v1/arrays/u")):
        for chunked in (False, True):
            r = api.request(method, path, text, content_type=JSON, chunked=chunked)
            api.fails(400, "bad_json", r)
    assert api.list_all("/v1/arrays", "arrays") == []


@pytest.mark.parametrize("text", [b"[1,2]", b"3", b'"x"', b"null", b"true"])
def test_bodies_that_are_no_object(api, text):
    api.fails(422, "bad_field", api.request("POST", "/v1/arrays", text, content_type=JSON))


def test_small_members_are_limited(daemon_with):
    api = daemon_with("--max-json-body", 10000).client()
    big = {"shape": [1], "name": "x" * 20000}
    api.fails(413, "too_large", api.post("/v1/arrays", big))
    api.create(data=[1.5] * 20000)  # array data is not
    api.close()


# --- arange, linspace, eye, random, like ---


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "float32", "float64", "complex64"])
@pytest.mark.parametrize("start,stop,step", [(0, 10, 1), (100, -3, -7), (5, 5, 1), (0, 1, 3)])
def test_arange_of_dtypes(api, dtype, start, stop, step):
    if dtype == "uint64" and stop < 0:
        start, stop, step = 100, 3, -7
    got = made(api, arange={"start": start, "stop": stop, "step": step}, dtype=dtype)
    np.testing.assert_array_equal(got, np.arange(start, stop, step).astype(dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool", "float64"])
def test_arange_far_away(api, dtype):
    """Of what is not in the array nothing need fit."""
    assert made(api, arange={"start": 1e300, "stop": 5}, dtype=dtype).tolist() == []
    assert made(api, arange={"start": 0, "stop": 1, "step": 1e300}, dtype=dtype).tolist() == [0]
    assert made(api, arange={"start": 0, "stop": 1, "step": 0.5}, dtype="bool").tolist() == [False, True]


@pytest.mark.parametrize("body,code,pointer", [
    ({"arange": {"stop": 5, "step": 0}}, "bad_field", "/arange/step"),
    ({"arange": {"start": 1}}, "bad_field", "/arange/stop"), ({"arange": [1]}, "bad_field", "/arange"),
    ({"arange": {"stop": True}}, "bad_field", "/arange/stop"), ({"arange": {"stop": [1, 2]}}, "bad_field", "/arange/stop"),
    ({"arange": {"stop": "five"}}, "bad_field", "/arange/stop"), ({"arange": {"stop": 3, "end": 1}}, "unknown_field", "/arange/end"),
    ({"arange": {"stop": 300}, "dtype": "int8"}, "literal_range", "/arange"),
    ({"arange": {"stop": "Infinity"}}, "bad_shape", "/arange"), ({"arange": {"stop": 3}, "shape": [4]}, "shape_mismatch", "/shape"),
    ({"linspace": {"stop": 1}}, "bad_field", "/linspace/start"),
    ({"linspace": {"start": 0, "stop": 1, "num": 2.5}}, "bad_field", "/linspace/num"),
    ({"linspace": {"start": 0, "stop": 1, "endpoint": 1}}, "bad_field", "/linspace/endpoint"),
    ({"eye": {"n": -1}}, "bad_field", "/eye/n"), ({"eye": {"m": 3}}, "bad_field", "/eye/n"), ({"eye": 3}, "bad_field", "/eye"),
    ({"shape": [1], "random": {"seed": 1}}, "bad_field", "/random/distribution"),
    ({"shape": [1], "random": {"distribution": "uniform"}}, "bad_field", "/random/seed"),
    ({"shape": [1], "random": {"distribution": "uniform", "seed": -1}}, "bad_field", "/random/seed"),
    ({"shape": [1], "random": {"distribution": "integers", "seed": 1}}, "bad_field", "/random/high"),
    ({"shape": [1], "random": {"distribution": "integers", "seed": 1, "low": 3, "high": 3}}, "bad_field", "/random/high"),
    ({"shape": [1], "random": {"distribution": "normal", "seed": 1, "low": 3}}, "bad_field", "/random/low"),
    ({"shape": [1], "dtype": "int8", "random": {"distribution": "normal", "seed": 1}}, "bad_dtype", "/dtype"),
    ({"shape": [1], "dtype": "float32", "random": {"distribution": "integers", "seed": 1, "high": 3}}, "bad_dtype", "/dtype"),
    ({"random": {"distribution": "normal", "seed": 1}}, "bad_field", "/shape"), ({"like": 3}, "bad_field", "/like")])
def test_refused_creators(api, body, code, pointer):
    refused(api, body, code, pointer)


def test_linspace_of_dtypes(api):
    np.testing.assert_array_equal(made(api, linspace={"start": 0, "stop": 10}, dtype="int32"),
                                  np.linspace(0, 10, dtype="int32"))
    got = made(api, linspace={"start": [0, 1], "stop": [1, 0], "num": 5}, dtype="complex128")
    np.testing.assert_allclose(got, np.linspace(1j, 1, 5), rtol=1e-15)
    assert api.create(linspace={"start": 0, "stop": 10})["shape"] == [50]


@pytest.mark.parametrize("k", [-3, -1, 0, 2, 5])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "complex64"])
def test_eye_of_dtypes(api, k, dtype):
    np.testing.assert_array_equal(made(api, eye={"n": 3, "m": 4, "k": k}, dtype=dtype), np.eye(3, 4, k, dtype=dtype))


def test_random_is_the_same_in_every_shape_and_session(api):
    spec = {"distribution": "uniform", "seed": "18446744073709551615"}
    a = made(api, shape=[60], random=spec)
    b = made(api, shape=[3, 4, 5], random=spec)
    np.testing.assert_array_equal(a, b.ravel())
    assert (a >= 0).all() and (a < 1).all() and len(set(a.tolist())) == 60
    c = made(api, shape=[1000], random={"distribution": "uniform", "seed": 1, "low": -2, "high": 3.5}, dtype="float32")
    assert (c >= -2).all() and (c < 3.5001).all() and c.min() < -1.9 and c.max() > 3.4
    d = made(api, shape=[1000], random={"distribution": "integers", "seed": 1, "high": 256}, dtype="uint8")
    assert d.min() < 5 and d.max() > 250


def test_like_takes_overrides(api):
    api.create(name="u", shape=[2, 3], dtype="int16", fill=1)
    v = api.expect(201, api.post("/v1/arrays/u/views", {"index": "::-1, 1:"})).json()
    m = api.create(like=v["id"])
    assert (m["shape"], m["dtype"], m["strides"], m["offset"]) == ([2, 2], "int16", [2, 1], 0)
    assert "view_of" not in m and m["references"] == 1
    assert api.create(like="u", dtype="float32")["dtype"] == "float32"
    r = api.post("/v1/arrays", {"like": "nothing"})
    assert api.fails(404, "not_found", r)["pointer"] == "/like"


def test_memory_is_zeroed(api):
    """What another array held is never seen in a new one."""
    for _ in range(5):
        m = api.create(shape=[100000], dtype="uint8", fill=0xAB)
        api.expect(204, api.delete(f"/v1/arrays/{m['id']}"))
        m = api.create(shape=[100000], dtype="uint8")
        assert not any(api.get(f"/v1/arrays/{m['id']}/data").body)
        api.expect(204, api.delete(f"/v1/arrays/{m['id']}"))


@pytest.mark.parametrize("alignment", [1, 64, 256, 4096])
def test_alignment_is_told_and_kept(api, alignment):
    """Of padded arrays and of others: of what is made like them, copied, resized."""
    for name, more in (("plain", {}), ("padded", {"ghost": [1, 2]})):
        m = api.expect(201, api.post("/v1/arrays", {"name": name, "shape": [6, 5], "dtype": "float32", "alignment": alignment, **more})).json()
        assert m["alignment"] == alignment and 4 * m["offset"] % alignment == 0
        made = [api.expect(201, api.post("/v1/arrays", {"like": name})).json(), api.expect(201, api.post(f"/v1/arrays/{name}/copy")).json(),
                api.expect(201, api.post(f"/v1/arrays/{name}/views", {})).json(), api.meta(name)]
        assert [x["alignment"] for x in made] == [alignment] * 4
        api.delete(f"/v1/arrays/{made[2]['id']}")
        assert api.expect(200, api.post(f"/v1/arrays/{name}/resize", {"shape": [8, 9]})).json()["alignment"] == alignment
        part = api.expect(201, api.post(f"/v1/arrays/{name}/views", {"index": "1:, 1:"})).json()
        assert part["alignment"] <= 64 and 4 * part["offset"] % part["alignment"] == 0


def test_alignment_unless_given(api):
    assert api.create(shape=[3])["alignment"] == 64
    api.create(name="u", data=[1.0, 2.0, 3.0])
    assert api.expect(201, api.post("/v1/arrays/u/views", {"index": "1:"})).json()["alignment"] == 8
    assert api.expect(201, api.post("/v1/evaluate", {"expr": "u*2"})).json()["alignment"] == 64
