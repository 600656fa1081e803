"""Views in depth: chains of random steps beside NumPy's, refused steps, lifetimes, overlaps."""
import random

import numpy as np
import pytest

DTYPES = ["bool", "int8", "uint16", "int32", "float64", "complex128"]


def make_view(api, ref, **body):
    return api.expect(201, api.post(f"/v1/arrays/{ref}/views", body)).json()


def random_index(rng, shape):
    """An index string and the same as Python text."""
    parts = []
    for n in shape[:rng.randint(0, len(shape))]:
        kind = rng.random()
        if kind < 0.2 and n:
            parts.append(str(rng.randint(-n, n - 1)))
        elif kind < 0.9:
            start, stop = (rng.choice(["", str(rng.randint(-n - 1, n + 1))]) for _ in range(2))
            step = rng.choice(["", "1", "2", "-1", "-2", "3"])
            parts.append(f"{start}:{stop}" + (f":{step}" if step else ""))
        else:
            parts.append(":")
        if rng.random() < 0.15:
            parts.append("None")
    if rng.random() < 0.3:
        parts.append("...")
    return ", ".join(parts) or "..."


def random_shape_of(rng, size):
    shape = []
    while size > 1 and rng.random() < 0.8:
        d = rng.choice([d for d in range(1, size + 1) if size % d == 0])
        shape.append(d)
        size //= d
    return shape + [size]


def is_view(a, of):
    return a.size == 0 or np.shares_memory(a, of)


@pytest.mark.parametrize("seed", range(60))
def test_random_chains(api, seed):
    """What NumPy can do without a copy is a view here; what it must copy is not_a_view."""
    rng = random.Random(seed)
    shape = [rng.randint(0 if rng.random() < 0.1 else 1, 6) for _ in range(rng.randint(0, 4))]
    dtype = rng.choice(DTYPES)
    base = (np.arange(int(np.prod(shape))) % 251).reshape(shape).astype(dtype)
    ref, want = api.upload(base)["id"], base
    for _ in range(6):
        body, new = {}, want
        index = random_index(rng, want.shape) if rng.random() < 0.6 else None
        if index is not None:
            body["index"] = index
            new = np.asarray(eval(f"a[{index}]", {"a": new})) if new.ndim or index != "..." else new
        if rng.random() < 0.4:
            axes = list(range(new.ndim))
            rng.shuffle(axes)
            body["permute"] = [x - new.ndim if rng.random() < 0.3 else x for x in axes]
            new = new.transpose(axes)
        if rng.random() < 0.4 and new.size:
            body["reshape"] = random_shape_of(rng, new.size)
            reshaped = new.reshape(body["reshape"])
            if not is_view(reshaped, new):
                api.fails(422, "not_a_view", api.post(f"/v1/arrays/{ref}/views", body))
                continue
            new = reshaped
        if rng.random() < 0.2 and new.ndim < 5:
            body["broadcast_to"] = [2] + list(new.shape)
            new = np.broadcast_to(new, body["broadcast_to"])
        if new.ndim > 8 or new.size > 20000:
            break
        m = make_view(api, ref, **body)
        assert m["shape"] == list(new.shape), body
        np.testing.assert_array_equal(api.download(m["id"]), new, str(body))
        ref, want = m["id"], new


@pytest.mark.parametrize("seed", range(20))
def test_random_bit_views(api, seed):
    rng = random.Random(seed)
    names = ["int8", "uint16", "int32", "float64", "complex64", "complex128", "uint64"]
    a = np.arange(rng.choice([16, 32, 48])).astype(rng.choice(names)).reshape(2, -1)
    if rng.random() < 0.5:
        a = a[:, ::rng.choice([1, -1, 2])]
    ref = api.upload(np.ascontiguousarray(a.base if a.base is not None else a).reshape(2, -1))["id"]
    step = (a.strides[1] // a.itemsize) if a.base is not None else 1
    m = make_view(api, ref, index=f":, ::{step}")
    to = rng.choice(names)
    try:
        want = api.download(m["id"]).view(to) if step == 1 else a.view(to)
    except ValueError:
        r = api.post(f"/v1/arrays/{m['id']}/views", {"dtype": to})
        assert api.fails(422, "not_a_view", r)["pointer"] == "/dtype"
        return
    got = make_view(api, m["id"], dtype=to)
    assert (got["shape"], got["dtype"]) == (list(want.shape), to)


@pytest.mark.parametrize("body,code,pointer", [
    ({"index": 3}, "bad_field", "/index"),
    ({"index": "9"}, "bad_index", "/index"), ({"permute": [0]}, "bad_axis", "/permute"),
    ({"permute": [0, 0]}, "bad_axis", "/permute"), ({"permute": [0, 2]}, "bad_axis", "/permute"),
    ({"reshape": [5]}, "shape_mismatch", "/reshape"), ({"reshape": [-2, 3]}, "bad_shape", "/reshape/0"),
    ({"reshape": 6}, "bad_shape", "/reshape"), ({"broadcast_to": [3]}, "shape_mismatch", "/broadcast_to"),
    ({"broadcast_to": [-1, 3]}, "bad_shape", "/broadcast_to/0"),
    ({"broadcast_to": [2**50, 2**50, 2, 3]}, "bad_shape", "/broadcast_to"),
    ({"dtype": "float128"}, "bad_dtype", "/dtype"), ({"name": "9"}, "bad_name", "/name"),
    ({"name": "u"}, "conflict", "/name"), ({"ghost": "yes"}, "bad_field", "/ghost"),
    ({"ghost": 1}, "bad_field", "/ghost"), ({"order": "F"}, "unknown_field", "/order")])
def test_refusals_have_a_place(api, body, code, pointer):
    api.create(name="u", data=[[1, 2, 3], [4, 5, 6]])
    r = api.post("/v1/arrays/u/views", body)
    assert (r.code, r.json().get("pointer")) == (code, pointer), r
    assert len(api.list_all("/v1/arrays", "arrays")) == 1


def test_a_huge_broadcast_costs_nothing(api):
    before = api.info()["bytes_in_use"]
    api.create(name="u", shape=[1], dtype="uint8", fill=3)
    m = make_view(api, "u", broadcast_to=[2**40])
    assert m["size"] == m["nbytes"] == 2**40 and m["strides"] == [0]
    assert api.info()["bytes_in_use"] - before <= 64
    r = api.get(f"/v1/arrays/{m['id']}/data?index=1000000000000:1000000000003")
    assert r.body == b"\3\3\3"


def test_views_keep_the_memory_of_a_replaced_array(api):
    api.create(name="u", data=[1, 2, 3])
    make_view(api, "u", index="1:", name="v")
    api.expect(200, api.put("/v1/arrays/u", {"data": [7, 8, 9]}))
    assert api.download("v").tolist() == [2, 3]
    assert api.meta("v")["references"] == 1 and "view_of" not in api.meta("v")
    api.expect(200, api.post("/v1/evaluate", {"expr": "v * 10", "out": "v"}))
    assert api.download("v").tolist() == [20, 30] and api.download("u").tolist() == [7, 8, 9]


def test_references_are_counted(api):
    api.create(name="u", data=[1, 2, 3])
    made = [make_view(api, "u")["id"] for _ in range(5)]
    assert api.meta("u")["references"] == 6
    for i, ref in enumerate(made):
        assert api.meta(ref)["references"] == 6 - i
        api.expect(204, api.delete(f"/v1/arrays/{ref}"))
    assert api.meta("u")["references"] == 1
    api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [5]}))


def test_writing_through_overlapping_views(api):
    """The right side is read before anything is written, however the views lie."""
    for source, target in (("1:", ":-1"), (":-1", "1:"), ("::-1", "..."), ("...", "::-1")):
        a = np.arange(1000, dtype="int64")
        api.expect(201 if source == "1:" else 200,
                   api.put("/v1/arrays/u", {"arange": {"stop": 1000}}))
        for name in ("s", "t"):
            api.delete(f"/v1/arrays/{name}")
        make_view(api, "u", index=source, name="s")
        make_view(api, "u", index=target, name="t")
        api.expect(200, api.post("/v1/evaluate", {"expr": "s", "out": "t"}))
        right = eval(f"a[{source}]", {"a": a}).copy()
        exec(f"a[{target}] = right", {"a": a, "right": right})
        np.testing.assert_array_equal(api.download("u"), a)
