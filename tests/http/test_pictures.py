"""Accept: image/png of GET …/data and of evaluate, beside NumPy and, where it is installed, matplotlib."""
import pathlib
import re
import struct
import threading
import zlib

import numpy as np
import pytest

from client import JSON, NUMPY_DTYPES, OCTETS, REPO
from conftest import until

PNG = "image/png"
MAPS = ["gray", "viridis", "plasma", "inferno", "magma", "cividis", "turbo", "coolwarm", "twilight", "RdBu_r"]
POOLS = {"mean": np.mean, "max": np.max, "min": np.min}
rng = np.random.default_rng(23)


@pytest.fixture(autouse=True)
def seeded():
    """The same numbers, whatever other tests have run."""
    global rng
    rng = np.random.default_rng(23)


def tables():
    """The colours that are compiled in."""
    text = (REPO / "server/look/maps.c").read_text()
    values = [int(v, 16) for v in re.findall(r"0x([0-9a-f]{6})", text)]
    colours = np.array(values, np.uint32).reshape(len(MAPS), 256)
    return {name: np.stack([t >> 16, t >> 8 & 255, t & 255], -1).astype(np.uint8) for name, t in zip(MAPS, colours)}


TABLES = tables()


def read_png(data):
    """RGBA (height, width, 4): a reader of its own, for what the daemon writes."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        assert struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + body)
        chunks[kind] = chunks.get(kind, b"") + body
        at += 12 + n
    width, height, bits, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert bits == 8 and rest == [0, 0, 0] and at == len(data)
    channels = {2: 3, 3: 1, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert set(rows[:, 0]) <= {0, 1}  # unfiltered, or differences to the left
    pixels = rows[:, 1:].reshape(height, width, channels).copy()
    left = rows[:, 0] == 1
    pixels[left] = np.cumsum(pixels[left], axis=1, dtype=np.uint8)
    if colour != 3:
        return np.concatenate([pixels, np.full((height, width, 4 - channels), 255, np.uint8)], -1)
    alpha = np.full(256, 255, np.uint8)
    clear = np.frombuffer(chunks.get(b"tRNS", b""), np.uint8)
    alpha[:clear.size] = clear
    palette = np.concatenate([np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(256, 3), alpha[:, None]], -1)
    return palette[pixels[..., 0]]


def picture(api, query="", ref="u"):
    r = api.expect(200, api.get(f"/v1/arrays/{ref}/data{query}", accept=PNG))
    assert r.type == PNG and r.headers["Vary"] == "Accept" and r.headers["ETag"]
    return read_png(r.body), [float(v) for v in r.headers["Arrayd-Range"].split()]


def pooled(a, height, width, pool):
    """Pixel i of m has the elements from floor(i·n/m) on."""
    x = np.abs(a) if a.dtype.kind == "c" else a
    x = x.astype("f8" if x.dtype.itemsize > (4 if x.dtype.kind == "f" else 2) else "f4")
    ys, xs = ([(i * n // m, max((i + 1) * n // m, i * n // m + 1)) for i in range(m)] for n, m in ((a.shape[0], height), (a.shape[1], width)))
    if pool == "nearest":
        ys, xs = ([((2 * i + 1) * n // (2 * m),) * 2 for i in range(m)] for n, m in ((a.shape[0], height), (a.shape[1], width)))
        return np.array([[x[y, z] for z, _ in xs] for y, _ in ys])
    return np.array([[POOLS[pool](x[y:v, z:w].astype("f8"), (0, 1)) for z, w in xs] for y, v in ys]).astype(x.dtype)


def coloured(p, lo, hi, cmap):
    """As matplotlib: the index is floor(256·t), the ends' colours go on beyond them; NaN is clear."""
    p = p.astype("f8")
    with np.errstate(all="ignore"):
        t = (p - lo) / (hi - lo) if hi > lo else np.where(p > lo, 1.0, 0.0)
        k = np.clip(np.floor(np.nan_to_num(t, nan=0, posinf=1e9, neginf=-1e9) * 256), 0, 255).astype(int)
    rgba = np.concatenate([TABLES[cmap][k], np.full((*p.shape, 1), 255, np.uint8)], -1)
    rgba[np.isnan(p)] = 0
    return rgba


def same(got, want):
    """Within 1 of 255, but for the colour of what is clear."""
    assert got.shape == want.shape
    seen = want[..., 3] > 0
    assert ((got[..., 3] > 0) == seen).all()
    return np.abs(got[seen].astype(int) - want[seen]).max(initial=0) <= 1


def beside(api, a, query, height, width, pool="mean", cmap="gray"):
    got, (lo, hi) = picture(api, f"?{query}&cmap={cmap}&pool={pool}&width={width}&height={height}")
    p = pooled(a, height, width, pool)
    finite = p[np.isfinite(p)]
    assert np.allclose([lo, hi], [finite.min(), finite.max()], rtol=1e-6, atol=1e-6 * np.abs(finite).max())
    return same(got, coloured(p, lo, hi, cmap))


def some(dtype, shape):
    t = np.dtype(dtype)
    if t == bool:
        return rng.random(shape) < 0.3
    if t.kind in "iu":
        return rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, dtype=t, endpoint=True)
    return (rng.normal(size=shape) + (1j * rng.normal(size=shape) if t.kind == "c" else 0)).astype(t)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_dtypes_and_pools(api, dtype):
    """With windows of one size, of several, and more pixels than elements."""
    a = some(dtype, (24, 36))
    api.upload(a, name="u")
    for pool in (*POOLS, "nearest"):
        for height, width in ((24, 36), (12, 9), (7, 11), (30, 50)):
            assert beside(api, a, "", height, width, pool, "viridis"), (pool, height, width)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (1, 1000), (1000, 1), (3, 300), (300, 3), (101, 37)])
def test_shapes(api, shape):
    """Each axis reduced, enlarged or as it is, beside the other."""
    a = some("float32", shape)
    api.upload(a, name="u")
    for pool in (*POOLS, "nearest"):
        for height, width in ((1, 1), (1, 64), (64, 1), (7, 11), (64, 90), (101, 20), (30, 37)):
            assert beside(api, a, "", height, width, pool), (pool, height, width)


def test_shapes_in_colours(api):
    for shape in ((2, 50, 4), (50, 2, 3), (3, 5, 3), (40, 50, 4)):
        a = some("uint8", shape)
        api.upload(a, name="u")
        for pool in (*POOLS, "nearest"):
            for height, width in ((7, 11), (11, 7), (60, 20), (2, 60)):
                got, _ = picture(api, f"?pool={pool}&height={height}&width={width}")
                want = np.stack([pooled(a[..., k], height, width, pool) for k in range(shape[2])], -1)
                assert np.abs(got[..., :shape[2]] - want.astype("f8")).max() <= 1, (shape, pool, height, width)
        api.delete("/v1/arrays/u")


def test_enlarging_takes_a_picture_s_memory(daemon_with):
    """Not that of all elements for each row of pixels: here 128 MB."""
    api = daemon_with("--memory-limit", "16MiB").client()
    for shape in ((1, 1000003), (1000003, 1)):
        a = np.arange(1000003, dtype="f4").reshape(shape)
        api.upload(a, name="u")
        for pool in (*POOLS, "nearest"):
            for height, width in ((32, 31), (31, 32)):
                assert beside(api, a, "", height, width, pool), (shape, pool, height, width)
        api.delete("/v1/arrays/u")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "bool", "complex64"])
def test_reducing_keeps_no_converted_copy(daemon_with, dtype):
    """With windows of several sizes, and of one."""
    a = some(dtype, (2000, 1000))
    api = daemon_with("--memory-limit", str(a.nbytes + (3 << 20))).client()
    api.upload(a, name="u")
    for pool in (*POOLS, "nearest"):
        for height, width in ((61, 67), (50, 40)):
            assert beside(api, a, "", height, width, pool), (pool, height, width)


@pytest.mark.parametrize("cmap", MAPS)
def test_maps(api, cmap):
    """All colours, and all of them beside what is clear."""
    a = np.linspace(-3, 5, 512).reshape(16, 32).astype("float32")
    api.upload(a, name="u")
    assert beside(api, a, "", 16, 32, cmap=cmap)
    a[3, 3] = np.nan
    api.upload(a[:, ::-1], name="v")
    got, (lo, hi) = picture(api, f"?cmap={cmap}", "v")
    assert same(got, coloured(a[:, ::-1], lo, hi, cmap)) and got[3, 28, 3] == 0


def test_tables_are_matplotlib_s():
    maps = pytest.importorskip("matplotlib").colormaps
    for name in MAPS:
        assert (maps[name]((np.arange(256) + 0.5) / 256, bytes=True)[:, :3] == TABLES[name]).all(), name


def test_a_cyclic_map_ends_where_it_begins():
    ends = TABLES["twilight"][[0, -1]].astype(int)
    assert abs(ends[0] - ends[1]).max() < 8


@pytest.mark.release_only
def test_on_a_gpu(gpu_with):
    api = gpu_with().client()
    a = some("float32", (24, 36))
    a[3, 4] = np.nan
    api.upload(a, name="u")
    for height, width, pool in ((12, 9, "mean"), (7, 11, "mean"), (24, 36, "nearest")):
        assert beside(api, a, "", height, width, pool, "turbo")
    assert picture(api, "?percentiles=5,95")[0].shape == (24, 36, 4)
    api.close()


def test_ranges(api):
    a = rng.normal(size=(20, 30))
    api.upload(a, name="u")
    for query, lo, hi in (("lo=-1&hi=0.5", -1, 0.5), ("lo=0", 0, a.max()), ("hi=0", a.min(), 0), ("lo=99", 99, a.max())):
        got, ends = picture(api, f"?{query}&cmap=turbo")
        assert ends == [lo, hi] and same(got, coloured(a, lo, hi, "turbo"))
    got, (lo, hi) = picture(api, "?percentiles=10,75")
    assert np.allclose([lo, hi], np.percentile(a, [10, 75], method="lower"), atol=(a.max() - a.min()) / 4000) and same(got, coloured(a, lo, hi, "gray"))
    got, (lo, hi) = picture(api, "?percentiles=10,75&lo=-2")
    assert lo == -2 and hi == pytest.approx(np.percentile(a, 75, method="lower"), abs=(a.max() - a.min()) / 4000)


def test_files_by_what_is_in_them(api):
    """Noise is not compressed, runs become short, and all are the pixels."""
    n = 256
    i = np.arange(n)
    smooth = np.sin(i * 0.05)[:, None] * np.cos(i * 0.07)
    holes = np.where(rng.random((n, n)) < 0.05, np.nan, smooth)
    holes[:, :n // 2] = np.nan
    for a, stored, most in ((rng.random((n, n)), True, 1.03), (smooth, False, 0.6), (holes, False, 0.5), ((smooth > 0).astype("f8"), False, 0.1), (np.ones((n, n)), False, 0.03)):
        api.upload(a, name="u")
        r = api.expect(200, api.get("/v1/arrays/u/data?lo=-1&hi=1", accept=PNG))
        assert same(read_png(r.body), coloured(a, -1, 1, "gray"))
        at = r.body.index(b"IDAT") + 4
        assert (r.body[at + 2] & 6 == 0) == stored and len(r.body) < most * n * n
        api.delete("/v1/arrays/u")
    colours = np.concatenate([rng.integers(0, 256, (n, n, 3)), np.full((n, n, 1), 255)], -1).astype("uint8")
    for a in (colours, colours[..., :3], np.broadcast_to(colours[:, :1], colours.shape).copy()):
        api.upload(a, name="u")
        got, _ = picture(api)
        assert (got[..., :a.shape[2]] == a).all()
        api.delete("/v1/arrays/u")


def test_values_that_are_no_numbers(api):
    a = np.arange(600.0).reshape(20, 30)
    a[2, 3], a[4, 5], a[6, 7] = np.nan, np.inf, -np.inf
    api.upload(a, name="u")
    got, (lo, hi) = picture(api, "?cmap=viridis")
    assert (lo, hi) == (0, 599) and same(got, coloured(a, 0, 599, "viridis"))
    assert got[2, 3, 3] == 0 and (got[4, 5, :3] == TABLES["viridis"][255]).all() and (got[6, 7, :3] == TABLES["viridis"][0]).all()
    got, _ = picture(api, "?index=:,:9")  # some colours are not used: a palette
    assert got[2, 3, 3] == 0
    for fill, clear in ((np.nan, True), (np.inf, False), (7.0, False)):
        api.upload(np.full((3, 4), fill), name="v")
        got, _ = picture(api, ref="v")
        assert (got[..., 3] == (0 if clear else 255)).all()
        api.delete("/v1/arrays/v")


def test_extremes(api):
    a = np.array([[-1.7e308, 0, 1.7e308], [-5e-324, 5e-324, 1e300]])
    api.upload(a, name="u")
    got, (lo, hi) = picture(api)
    assert (lo, hi) == (-1.7e308, 1.7e308) and got[0, :, 0].tolist() == [0, 128, 255]


def test_colours(api):
    for a, scale in ((rng.random((6, 8, 3)), 255), (rng.integers(0, 256, (6, 8, 4)).astype("uint8"), 1), (rng.random((6, 8, 4)).astype("float16"), 255)):
        api.upload(a, name="u")
        got, ends = picture(api)
        want = np.floor(a.astype("f8") * scale + 0.5).astype(int)
        assert (got[..., :a.shape[2]] == want).all() and ends == [0, 255 / scale]
        got, _ = picture(api, "?width=4&height=3")
        assert np.abs(got[..., :3].astype(int) - want[..., :3].reshape(3, 2, 4, 2, 3).mean((1, 3))).max() <= 1
        got, _ = picture(api, "?width=5&height=4&pool=max")
        assert got.shape == (4, 5, 4)
        for key in ("cmap=gray", "bar=true", "percentiles=1,2"):
            api.fails(422, "bad_field", api.get(f"/v1/arrays/u/data?{key}", accept=PNG))
        api.delete("/v1/arrays/u")


@pytest.mark.parametrize("dtype, full", [("uint8", 255), ("float32", 1), ("bool", 1)])
def test_a_range_of_colours_has_a_width(api, dtype, full):
    """Also where one end of it is not given."""
    a = np.full((4, 5, 3), full).astype(dtype)
    api.upload(a, name="u")
    for query in (f"lo={full}", f"lo={full + 45}", "hi=-1", "hi=0"):
        for r in (api.get(f"/v1/arrays/u/data?{query}", accept=PNG), api.post(f"/v1/evaluate?{query}", {"expr": "u"}, accept=PNG)):
            assert f"lo must be less than hi: of these colours they are 0 and {full} " in api.fails(422, "bad_field", r)["detail"]
    for query, lo, hi, value in ((f"lo={full * 0.75}", full * 0.75, full, 255), (f"hi={full * 2}", 0, full * 2, 128), (f"lo={full}&hi={full + 1}", full, full + 1, 0)):
        got, ends = picture(api, f"?{query}")
        assert ends == [lo, hi] and (got[..., :3] == value).all()


def test_the_bar(api):
    a = rng.random((40, 50))
    api.upload(a, name="u")
    got, _ = picture(api, "?bar=true&cmap=plasma")
    assert got.shape == (40, 74, 4) and (got[:, 50:58, 3] == 0).all() and (got[:, :50, 3] == 255).all()
    assert np.abs(got[:, 58:, :3].astype(int) - TABLES["plasma"][255 - np.arange(40) * 256 // 40][:, None]).max() <= 1


def test_sizes(api):
    api.create(name="u", shape=[3000, 1500], dtype="float32")
    api.create(name="v", shape=[30, 10])
    for ref, query, shape in (("u", "", (1024, 512)), ("u", "?width=100", (200, 100)), ("u", "?height=100", (100, 50)), ("v", "", (30, 10)), ("v", "?width=1", (3, 1)),
                              ("v", "?height=4&width=7", (4, 7)), ("u", "?index=:,:1", (1024, 1)), ("u", "?index=::-3,::5", (1000, 300))):
        got, _ = picture(api, query, ref)
        assert got.shape[:2] == shape, (ref, query)


def test_a_region(api):
    a = rng.normal(size=(5, 20, 30)).astype("float32")
    api.upload(a, name="u")
    got, (lo, hi) = picture(api, "?index=2,::-1,5:25:2")
    want = a[2, ::-1, 5:25:2]
    assert (lo, hi) == (want.min(), want.max()) and same(got, coloured(want, lo, hi, "gray"))
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/data", accept=PNG))
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/data?index=0,0", accept=PNG))
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/data?index=0,:0", accept=PNG))
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/data?index=0,0,0", accept=PNG))


def test_negotiation(api):
    api.create(name="u", shape=[3, 4], fill=1)
    for accept, kind in ((None, OCTETS), ("*/*", OCTETS), ("image/*", PNG), ("image/png", PNG), ("image/png, */*;q=0.1", PNG), ("image/webp, */*", OCTETS),
                         ("application/json;q=0.9, image/png;q=0.5", JSON)):
        assert api.get("/v1/arrays/u/data", accept=accept).type == kind, accept
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/data", accept="image/webp"))
    for query in ("cmap=gray", "lo=1", "hi=1", "percentiles=1,2", "width=3", "height=3", "pool=max", "bar=true"):
        api.fails(422, "bad_field", api.get(f"/v1/arrays/u/data?{query}"))
        api.fails(422, "bad_field", api.post(f"/v1/evaluate?{query}", {"expr": "u"}))
        api.fails(422, "bad_field", api.post(f"/v1/evaluate?{query}", {"statements": ["s = sum(u)"]}))


@pytest.mark.parametrize("query", ["cmap=jet2", "cmap=", "pool=median", "width=0", "width=4097", "width=-1", "height=1e3", "lo=nan", "lo=2&hi=1", "lo=1&hi=1",
                                   "percentiles=5", "percentiles=5,5", "percentiles=1,2,3", "percentiles=-1,50", "bar=yes"])
def test_bad_parameters(api, query):
    api.create(name="u", shape=[3, 4], fill=1)
    api.fails(422, "bad_field", api.get(f"/v1/arrays/u/data?{query}", accept=PNG, check=False))
    api.fails(422, "bad_field", api.post(f"/v1/evaluate?{query}", {"expr": "u"}, accept=PNG, check=False))


def test_conditions(api):
    api.create(name="u", shape=[3, 4], fill=1)
    tags = [api.get(f"/v1/arrays/u/data{q}", accept=kind).headers["ETag"] for q, kind in (("", OCTETS), ("", PNG), ("?cmap=turbo", PNG), ("?width=2", PNG))]
    assert len(set(tags)) == 4
    r = api.expect(304, api.get("/v1/arrays/u/data", accept=PNG, headers={"If-None-Match": tags[1]}))
    assert r.headers["Vary"] == "Accept" and r.headers["ETag"] == tags[1]
    api.expect(200, api.get("/v1/arrays/u/data", accept=PNG, headers={"If-None-Match": tags[0]}))
    api.expect(412, api.get("/v1/arrays/u/data", accept=PNG, headers={"If-Match": tags[2]}))
    api.expect(200, api.post("/v1/evaluate", {"expr": "u+1", "out": "u"}))
    api.expect(200, api.get("/v1/arrays/u/data", accept=PNG, headers={"If-None-Match": tags[1]}))


def test_of_an_expression(api):
    a = rng.normal(size=(12, 18)).astype("float32")
    api.upload(a, name="u")
    r = api.expect(200, api.post("/v1/evaluate?cmap=magma&pool=max&width=9&height=6", {"expr": "u*2"}, accept=PNG))
    p = pooled(a * 2, 6, 9, "max")
    assert same(read_png(r.body), coloured(p, p.min(), p.max(), "magma"))
    assert not [x for x in api.list_all("/v1/arrays", "arrays") if x["name"] != "u"]
    api.fails(406, "not_acceptable", api.post("/v1/evaluate", {"expr": "sum(u)"}, accept=PNG))
    api.expect(201, api.post("/v1/evaluate", {"expr": "u", "name": "w"}, accept=PNG))  # metadata, as with other types


WAVES = "sin(0.03*index(0) + 0*u)*cos(0.04*index(1)) + 0.05*u"


@pytest.mark.release_only  # with a sanitizer the parts are others
def test_files_are_written_without_a_turn(daemon_with):
    """Two turns are out at once here, and one worker writes large files: what waits for it holds no turn."""
    api = daemon_with("--workers", "2", "--device-window", "0").client()
    api.session = api.expect(201, api.post("/v1/sessions")).json()["id"]
    api.create(name="u", shape=[2048, 2048], dtype="float32", random={"distribution": "uniform", "seed": 1})
    api.expect(200, api.post("/v1/evaluate", {"expr": WAVES, "out": "u"}))
    clients, seen = [api.clone() for _ in range(8)], threading.Event()

    def look(c):
        while not seen.is_set():
            c.expect(200, c.get("/v1/arrays/u/data?width=2048", accept=PNG))

    threads = [threading.Thread(target=look, args=(c,)) for c in clients]
    for t in threads:
        t.start()

    def several_wait():
        text = api.get("/metrics").body.decode()
        queued, turns = (int(re.search(rf"^{name} (\d+)$", text, re.M)[1]) for name in ("arrayd_http_worker_queue", "arrayd_device_turns_waiting"))
        return queued >= 3 and turns == 0

    try:
        until(several_wait)
    finally:
        seen.set()
        for t in threads:
            t.join()
        for c in clients:
            c.close()


@pytest.mark.release_only  # with a sanitizer the parts are others
def test_a_worker_makes_a_picture(daemon_with):
    """The thread that serves all requests has little to do with it."""
    d = daemon_with()
    api = d.client()
    api.create(name="u", shape=[1024, 1024], dtype="float32", random={"distribution": "uniform", "seed": 1})
    api.expect(200, api.post("/v1/evaluate", {"expr": WAVES, "out": "u"}))

    def spent(name):
        tasks = pathlib.Path(f"/proc/{d.pid}/task").iterdir()
        return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks if (t / "comm").read_text().strip() == name)

    begun = [spent("arrayd-http"), spent("arrayd-worker")]
    for query in ("", "?lo=-1&hi=1") * 10:
        api.expect(200, api.get("/v1/arrays/u/data" + query, accept=PNG))
    http, worker = (spent(name) - b for name, b in zip(("arrayd-http", "arrayd-worker"), begun))
    assert http < worker / 9, (http, worker)


def test_limits_are_options(daemon_with):
    api = daemon_with("--max-picture", "20").client()
    assert api.info()["limits"]["max_picture"] == 20
    api.create(name="u", shape=[30, 60])
    assert picture(api)[0].shape == (10, 20, 4)
    api.fails(422, "bad_field", api.get("/v1/arrays/u/data?width=21", accept=PNG))


def test_without_the_memory_for_it(daemon_with):
    """The error has no tag, and nothing stays behind."""
    api = daemon_with("--max-request-memory", "1MiB", "--request-memory", "16MiB").client()
    api.create(name="u", shape=[30, 60])
    used = api.info()["bytes_in_use"]
    r = api.get("/v1/arrays/u/data?width=2000&height=1000", accept=PNG)
    api.fails(507, "out_of_memory", r)
    assert "ETag" not in r.headers and picture(api)[0].shape == (30, 60, 4)
    until(lambda: api.info()["bytes_in_use"] == used)


def test_others_arrays(two_with):
    ann, bob = two_with()
    m = ann.create(name="u", shape=[3, 4])
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{m['id']}/data", accept=PNG))
    ann.expect(201, ann.post("/v1/arrays/u/shares", {"principal": "bob", "access": "read"}))
    assert picture(bob, ref=m["id"])[0].shape == (3, 4, 4)
    ann.expect(201, ann.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 60}))
    bob.fails(409, "locked", bob.get(f"/v1/arrays/{m['id']}/data", accept=PNG))
