"""What is said of arrays, in the Python client: attrs, dims, units, coords, and xarray's."""
import concurrent.futures
import gc
import json
import sys
import types

import numpy as np
import pytest

from test_client_python import arrayd, xp  # noqa: F401
from test_client_python_async import run, url

pytestmark = pytest.mark.release_only  # it is the client that is tested here


def said(x):
    return dict(x.attrs), x.dims, x.units, dict(x.coords)


NOTHING = ({}, None, None, {})


def test_set_and_read(xp):  # noqa: F811
    plain = xp.zeros((2, 3))
    assert said(plain) == NOTHING == said(plain + 1) == said(xp.asarray([1.0]))
    x = xp.asarray(np.arange(6.0).reshape(2, 3), dims=("y", None), units="K",
                   attrs={"f": np.float32(1.5), "i": 2**60, "l": np.arange(2), "n": float("nan"), "d": {"a": [None, True]}, 3: b"b"})
    assert x.dims == ("y", None) and x.units == "K" and not x.coords
    assert x.attrs == {"f": 1.5, "i": 2**60, "l": [0, 1], "n": "NaN", "d": {"a": [None, True]}, "3": "b"}
    with pytest.raises(TypeError, match="assignment"):
        x.attrs["f"] = 2
    assert x.patch(attrs={"f": None, "g": 1}) is x and set(x.attrs) == {"g", "i", "l", "n", "d", "3"}
    assert said(x.patch(attrs=None, units=None)) == ({}, ("y", None), None, {})
    assert said(x.patch(dims=None, units="")) == ({}, None, "", {})
    for wrong in (dict(dims=("y",)), dict(dims=("y", "y")), dict(units="\n"), dict(attrs={"a" * 300: 1}), dict(coords={"y": "nobody"})):
        with pytest.raises((arrayd.BadValue, arrayd.NotFound)):
            x.patch(**wrong)
    with pytest.raises(TypeError, match="attribute"):
        x.patch(attrs={"a": object()})
    with pytest.raises(TypeError, match=r"asarray\(\) got an unexpected keyword argument 'unit'"):
        xp.asarray([1.0], unit="K")
    one = xp.asarray([1.0, 2.0], dims="x")
    assert one.dims == ("x",)


def test_they_stay_with_what_is_written(xp):  # noqa: F811
    x = xp.asarray([1.0, 2.0], units="K", attrs={"a": 1})
    later = x * 2
    x += 1
    x[0] = 5.0
    assert said(x) == ({"a": 1}, None, "K", {}) and x.numpy().tolist() == [5, 3] and later.numpy().tolist() == [2, 4]
    assert said(x * 1) == NOTHING
    kept = xp.save("kept", x)
    assert said(kept) == said(x) and said(xp.array("kept")) == said(x)
    assert said(xp.save("kept", x + 1)) == NOTHING
    xp.delete("kept")


def test_slices(xp):  # noqa: F811
    x = xp.asarray(np.zeros((2, 3, 4)), dims=("t", "y", "x"), units="m", attrs={"a": 1}, coords={"t": xp.asarray([0.0, 1.0])})
    for part, dims in ((x[0], ("y", "x")), (x[:, 1:, None], ("t", "y", None, "x")), (x[..., 0], ("t", "y")), (x[1][0], ("x",)), (x[0, 0, :0], ("x",))):
        assert said(part) == ({"a": 1}, dims, "m", {})
    assert x.T.dims is None and x.T.units == "m"
    xp.delete(xp.array(x.coords["t"]["array"]))


def test_coordinates(xp):  # noqa: F811
    y, plane = xp.asarray([1.0, 2.0]), xp.ones((2, 3)) * 2
    x = xp.asarray(np.zeros((2, 3)), dims=("y", "x"), coords={"y": y, "h": (("y", "x"), plane)})
    ids = {name: c["array"] for name, c in x.coords.items()}
    assert x.coords["h"]["dims"] == ["y", "x"] and ids["y"] == y.id
    del y, plane
    xp.release()
    assert xp.array(ids["y"]).numpy().tolist() == [1, 2] and xp.array(ids["h"]).numpy().tolist() == [[2] * 3] * 2
    x.patch(coords={"y": ids["y"], "h": None})
    assert list(x.coords) == ["y"]
    with pytest.raises(ValueError, match="view"):
        x.patch(coords={"x": x[0]})
    xp.delete(ids["y"])
    assert ids["h"] not in there(xp)


@pytest.mark.parametrize("given, dims, values", [
    (np.array([1.0, 2.0]), ["y"], [1, 2]),
    (np.ones(2, "float32"), ["y"], [1, 1]),
    ([1, 2], ["y"], [1, 2]),
    ((1, 2), ["y"], [1, 2]),
    (range(2), ["y"], [0, 1]),
    (5.0, [], 5),
    (("y", np.array([1, 2])), ["y"], [1, 2]),
    (("y", [1, 2], {"units": "m", "n": 3}), ["y"], [1, 2]),
    (((), 5), [], 5),
    ({"array": np.array([1.0, 2.0]), "dims": ["y"]}, ["y"], [1, 2]),
    ({"array": [[1, 2, 3]] * 2, "dims": ("y", "x")}, ["y", "x"], [[1, 2, 3]] * 2),
])
def test_coordinates_of_values(xp, given, dims, values):  # noqa: F811
    x = xp.asarray(np.zeros((2, 3)), dims=("y", "x"), coords={"y": given})
    (c,) = x.coords.values()
    assert c["dims"] == dims and xp.array(c["array"]).numpy().tolist() == values
    if isinstance(given, tuple) and len(given) == 3:
        assert said(xp.array(c["array"]))[:3] == ({"n": 3}, None, "m")
        with pytest.raises(TypeError, match="the coordinate y: attributes"):
            x.patch(coords={"y": ("y", "some", {"units": "m"})})
        with pytest.raises(TypeError, match="the coordinate y: attributes"):
            x.patch(coords={"y": {"dims": ["y"], "attrs": {}}})
    xp.delete(xp.array(c["array"]))


def there(xp):  # noqa: F811
    return {a["id"] for a in xp.arrays()}


def test_coordinates_go_with_the_last_that_has_them(xp):  # noqa: F811
    """The program, or an array: whoever makes such arrays in a loop does not fill the daemon."""
    y = xp.asarray([0.0, 1.0])
    x = xp.asarray(np.zeros((2, 3)), dims=("y", "x"), coords={"y": y, "x": [1, 2, 3]})
    made = x.coords["x"]["array"]
    xp.release()
    other = xp.asarray(np.zeros(3), dims=("x",), coords={"x": made})
    x.patch(coords={"x": None, "y": None})
    assert {made, y.id} <= there(xp)  # the one is another's, the other this program's
    xp.delete(other)
    assert made not in there(xp)
    x.patch(coords={"x": [4, 5, 6], "y": y})
    name, kept = y.id, xp.array(x.coords["x"]["array"])
    del y
    gc.collect()
    xp.release()
    assert name in there(xp) and xp.array(name).tolist() == [0, 1]
    del x  # whoever has a coordinate keeps that whose coordinate it is
    gc.collect()
    xp.release()
    assert kept.numpy().tolist() == [4, 5, 6]
    del kept
    gc.collect()
    xp.release()
    assert name not in there(xp)


def test_coordinates_that_somebody_wants(xp):  # noqa: F811
    """One that has got a name, by whatever way, is not deleted when the program does not use it any more; nor is one meant by its id."""
    lat, lon = xp.asarray([0.0, 1.0]), xp.asarray([0.0, 1.0, 2.0])
    x = xp.asarray(np.zeros((2, 3)), dims=("lat", "lon"), coords={"lat": lat})
    x.patch(coords={"lon": lon.id})
    ids = lat.id, lon.id
    xp.array(lat.id).patch(name="lat")
    again = xp.array(lon.id)
    del lat, lon
    gc.collect()
    xp.release()
    assert set(ids) <= there(xp) and xp.array("lat").id == ids[0] and again.tolist() == [0, 1, 2]
    xp.array("lat").patch(name=None)
    gc.collect()
    xp.release()
    assert set(ids) <= there(xp)
    del x, again
    gc.collect()
    xp.release()
    assert not set(ids) & there(xp)


def test_xarray_s_coordinates_go_with_their_arrays(xp):  # noqa: F811
    xarray = pytest.importorskip("xarray")
    before = there(xp)
    for name in (None, "a", "a"):
        a = xarray.DataArray(np.zeros((2, 3)), {"x": [1, 2, 3], "h": (("y", "x"), np.ones((2, 3)))}, ("y", "x"))
        x = xp.from_xarray(a, name)
    del x
    xp.delete("a")
    gc.collect()
    xp.release()
    assert there(xp) == before


def test_what_is_saved_appears_at_once(xp):  # noqa: F811
    """With all that is said of it, but for coordinates that are gone."""
    x = xp.asarray(np.arange(6.0).reshape(2, 3), dims=("y", "x"), coords={"y": [0, 1], "x": [1, 2, 3], "a/b~": (("y", "x"), np.ones((2, 3)))})
    xp.delete(xp.array(x.coords["a/b~"]["array"]))
    for _ in range(2):
        xp.save("kept", x)
        kept = xp.array("kept")
        assert kept.dims == ("y", "x") and set(kept.coords) == {"y", "x"} and kept.tolist() == x.tolist()
    seen = []

    def look():
        while not seen:
            assert json.loads(xp._ask("GET", "/v1/arrays/kept").body)["dims"] == ["y", "x"]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            for _ in range(30):
                xp.save("kept", x)
        finally:
            seen.append(True)
        looking.result()
    kept = xp.array("kept").patch(name=None)
    with pytest.raises(arrayd.NotFound):
        xp.array("kept")
    id_ = kept.id
    del kept
    gc.collect()
    xp.release()
    assert id_ not in there(xp)  # it was the program's from then on
    a, b = xp.save("a", x), xp.save("b", x[0])
    with pytest.raises(arrayd.Conflict):
        b.patch(name="a")
    b.patch(name="a", replace=True)
    assert xp.array("a").shape == (3,) and a.id not in there(xp)
    xp.delete("a")


def test_coordinates_in_a_dictionary(xp):  # noqa: F811
    a, large = xp.asarray([[1.0, 2.0, 3.0]]) * 2, np.arange(300_000.0)
    x = xp.asarray(np.zeros((1, 3)), dims=("y", "x"), coords={"h": {"array": a, "dims": ["y", "x"]}})
    x.patch(coords={"g": {"array": a.id, "dims": ("y", "x")}})
    assert x.coords["h"] == x.coords["g"] == {"array": a.id, "dims": ["y", "x"]}
    wide = xp.asarray(large, dims="x", coords={"x": large})
    np.testing.assert_array_equal(xp.array(wide.coords["x"]["array"]).numpy(), large)
    xp.delete(xp.array(wide.coords["x"]["array"]))
    xp.delete(a)


def test_coordinates_that_are_none(xp):  # noqa: F811
    x = xp.asarray(np.zeros((2, 3)), dims=("y", "x"))
    n = len(list(xp.arrays()))
    for wrong, why in (({"y": np.array(["p", "q"])}, "the coordinate y: "), ({"y": object()}, "the coordinate y: an array is wanted, not object"),
                       ([1, 2], "coords: a dictionary of coordinates by name is wanted, not list")):
        with pytest.raises(TypeError, match=why):
            x.patch(coords=wrong)
    with pytest.raises(arrayd.BadValue):
        x.patch(coords={"y": np.arange(5.0)})
    with pytest.raises(ValueError, match="view"):
        x.patch(coords={"y": np.arange(2.0), "x": x[0]})
    gc.collect()
    xp.release()
    assert not x.coords and len(list(xp.arrays())) == n


def test_sample_at_numpy_s_points(xp):  # noqa: F811
    x = xp.asarray([[0.0, 1.0], [2.0, 3.0]])
    for points in (np.array([[0.5, 0.5], [1.0, 0.0]]), [[0.5, 0.5], [1.0, 0.0]]):
        assert xp.sample(x, points).numpy().tolist() == [1.5, 2]
    with pytest.raises(ValueError, match="points are"):
        xp.sample(x, np.zeros(2))


def test_asynchronously(daemon):
    async def steps():
        async with arrayd.aconnect(url(daemon)) as xp:  # noqa: F811
            y = await xp.asarray([1.0, 2.0]).patch(units="m")
            x = await xp.asarray([3.0, 4.0]).patch(dims=("y",), attrs={"a": 1}, coords={"y": y, "n": ("y", np.array([1, 2]))})
            assert await x.dims == ("y",) and await y.units == "m" and dict(await x.attrs) == {"a": 1}
            assert (await x.coords)["y"]["dims"] == ["y"] and await xp.asarray([1.0]).units is None
            assert await x[1:].dims == ("y",)
            with pytest.raises(RuntimeError, match="await"):
                xp.asarray([1.0], units="K")
            await xp.delete(y)
            await xp.delete((await x.coords)["n"]["array"])

    run(steps())


def test_xarray(xp):  # noqa: F811
    xarray = pytest.importorskip("xarray")
    a = xarray.DataArray(np.arange(6.0).reshape(2, 3), dims=("y", "x"), name="a", attrs={"units": "m", "n": 1},
                         coords={"x": ("x", [1, 2, 3], {"units": "s"}), "t": 5.0, "h": (("y", "x"), np.ones((2, 3))), "s": ("y", ["p", "q"])})
    with pytest.warns(UserWarning, match="the coordinate s is left out"):
        x = xp.from_xarray(a, "a")
    assert x.dims == ("y", "x") and x.units == "m" and dict(x.attrs) == {"n": 1} and set(x.coords) == {"x", "t", "h"}
    xarray.testing.assert_identical(x.to_xarray(), a.drop_vars("s"))
    xarray.testing.assert_identical(x[:1, ::2].to_xarray(), a.drop_vars("s")[:1, ::2].rename(None))
    xarray.testing.assert_identical(x[1].to_xarray(), a.drop_vars("s")[1].rename(None))
    assert x.T.to_xarray().attrs == {"units": "m", "n": 1}
    x.patch(attrs={"coordinates": "x h s"})  # of a file
    xarray.testing.assert_identical(x.to_xarray(), a.drop_vars("s"))
    x.patch(attrs={"coordinates": None})
    xp.delete(xp.array(x.coords["h"]["array"]))
    xarray.testing.assert_identical(x.to_xarray(), a.drop_vars(["s", "h"]))
    gc.collect()
    xp.release()
    xp._ask("POST", f"/v1/arrays/{x.coords['x']['array']}/resize", {"shape": [7]})
    xarray.testing.assert_identical(x.to_xarray(), a.drop_vars(["s", "h", "x"]))
    assert (xp.ones((2, 2)) * 2).to_xarray().dims == ("dim_0", "dim_1")
    for c in ("x", "t"):
        xp.delete(xp.array(x.coords[c]["array"]))
    xp.delete("a")


def test_times_of_xarray(xp):  # noqa: F811
    """Are numbers with a unit there, as in files, and times here again."""
    xarray = pytest.importorskip("xarray")
    when = np.array(["2026-01-01", "2026-01-02T06", "2026-01-05"], "M8[ns]")
    a = xarray.DataArray([1.0, 2.0, 3.0], dims=("time",), coords={"time": ("time", when, {"long_name": "when"}), "s": ("time", list("abc"))})
    a["time"].encoding["units"] = "hours since 2026-01-01"
    x = xp.from_xarray(a)
    time = xp.array(x.coords["time"]["array"])
    assert set(x.coords) == {"time"} and time.tolist() == [0, 30, 96] and time.units == "hours since 2026-01-01"
    assert set(time.attrs) == {"long_name", "calendar"}  # and no fill value, which whole numbers do not need, and others are NaN
    xarray.testing.assert_identical(x.to_xarray(), a.drop_vars("s"))
    time.patch(units="fortnights since then")
    assert x.to_xarray()["time"].values.tolist() == [0, 30, 96]
    xp.delete(time)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_durations_of_xarray(xp):  # noqa: F811
    """Come back as such, and days that are plain numbers do not; what is not known remains so."""
    xarray = pytest.importorskip("xarray")
    nat, hours = np.datetime64("NaT"), np.array([1, 2, 30], "m8[h]").astype("m8[ns]")
    a = xarray.DataArray([1.0, 2.0, 3.0], dims=("x",), coords={"wait": ("x", hours, {"long_name": "lag"}), "odd": ("x", np.array([1, 2, "NaT"], "m8[ns]")),
                                                               "days": ("x", [1, 2, 3], {"units": "days"}), "then": ("x", np.array(["2026-01-01", nat, "2026-01-05"], "M8[ns]"))})
    x = xp.from_xarray(a)
    xarray.testing.assert_identical(x.to_xarray(), a)
    for c in x.coords.values():
        assert "_FillValue" not in xp.array(c["array"]).attrs
        xp.delete(c["array"])


def test_results_of_xarray_stay_on_the_server(xp):  # noqa: F811
    xarray = pytest.importorskip("xarray")
    x = xp.asarray(np.arange(6.0).reshape(2, 3), dims=("y", "x"), units="K")
    a = xarray.DataArray(x, dims=x.dims, coords={"y": [1.0, 2.0]}, attrs={"units": "K"})
    with arrayd.config(transfers="forbid", above="0 B"):
        mean, same = xp.from_xarray(a.mean("x", keep_attrs=True)), xp.from_xarray(a)
    assert mean.dims == ("y",) and mean.units == "K" and list(mean.coords) == ["y"] and mean.tolist() == [1, 4]
    same[...] = 0.0
    same.patch(units="m")
    assert x.units == "K" and not x.coords and x.numpy()[1, 2] == 5  # it is a copy
    for y in (mean, same):
        xp.delete(y.coords["y"]["array"])
    for wrong, why in ((xarray.Dataset({"a": a}), r"one DataArray, not a Dataset: ds\[name\] is one"), (np.zeros(2), "one DataArray, not a ndarray")):
        with pytest.raises(TypeError, match=why):
            xp.from_xarray(wrong)


def test_coordinates_that_fit_no_more(xp, monkeypatch):  # noqa: F811
    """Coordinates may be resized, and are then no coordinates to xarray; what it is given is looked at, so it need not be there."""
    monkeypatch.setitem(sys.modules, "xarray", types.SimpleNamespace(DataArray=lambda data, coords, dims, **_: (dims, coords)))
    y, h = xp.asarray([1.0, 2.0]), xp.ones((2, 3)) * 2
    x = xp.asarray(np.zeros((2, 3)), dims=("y", "x"), coords={"y": y, "h": (("y", "x"), h), "t": ((), xp.asarray(5.0))})
    assert x.to_xarray()[0] == ("y", "x") and set(x.to_xarray()[1]) == {"y", "h", "t"}
    xp._ask("POST", f"/v1/arrays/{y.id}/resize", {"shape": [5]})
    assert set(x.to_xarray()[1]) == {"h", "t"}
    xp._ask("POST", f"/v1/arrays/{h.id}/resize", {"shape": [3, 2]})
    assert set(x.to_xarray()[1]) == {"t"}
    for c in x.coords.values():
        xp.delete(xp.array(c["array"]))
