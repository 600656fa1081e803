"""TIFF and PNG, as GDAL wrote them and as GDAL reads what becomes of them."""
import struct
import zlib

import numpy as np
import pytest
from osgeo import gdal, gdal_array, osr

from reader import Reader, Refused
from stand_in import exported, imported
from test_files_read import same, values

gdal.UseExceptions()


TIFFS = {"strips": [], "tiles": ["TILED=YES", "BLOCKXSIZE=32", "BLOCKYSIZE=16"], "lzw": ["COMPRESS=LZW", "PREDICTOR=2"],
         "deflate": ["COMPRESS=DEFLATE", "TILED=YES", "BLOCKXSIZE=16", "BLOCKYSIZE=16"], "planes": ["INTERLEAVE=BAND", "COMPRESS=DEFLATE"],
         "big": ["BIGTIFF=YES", "ENDIANNESS=BIG"], "packbits": ["COMPRESS=PACKBITS", "BLOCKYSIZE=7"]}


@pytest.mark.parametrize("options", TIFFS)
def test_gdal_tiff(tmp_path, options):
    for t in ("u1", "u2", "i2", "u4", "i4", "f4", "f8", "c8", "c16"):
        for bands in (1, 3):
            if "PREDICTOR=2" in TIFFS[options] and t[0] in "cf":
                continue
            array = values((bands, 37, 53), t)
            kind = gdal_array.NumericTypeCodeToGDALTypeCode(array.dtype.type)
            f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "f"), 53, 37, bands, kind, TIFFS[options])
            f.SetGeoTransform([100, 2, 0, 50, 0, -2])
            for b in range(bands):
                f.GetRasterBand(b + 1).WriteArray(array[b])
                if t in ("i2", "f4"):
                    f.GetRasterBand(b + 1).SetNoDataValue(float(array[b, 0, 0]) if bands == 1 else 77)
            del f
            pixels = bands > 1 and "INTERLEAVE=BAND" not in TIFFS[options]
            expected = array[0] if bands == 1 else np.moveaxis(array, 0, 2) if pixels else array
            with Reader(tmp_path / "f") as r:
                v = r.variables()["image"]
                assert v["dims"] == (["y", "x"] if bands == 1 else ["y", "x", "band"] if pixels else ["band", "y", "x"])
                assert v["attrs"]["ModelPixelScale"] == [2.0, 2.0, 0.0]
                assert v["attrs"]["ModelTiepoint"] == [0.0, 0.0, 0.0, 100.0, 50.0, 0.0]
                same(r, "image", expected, decode=False)
                if t in ("i2", "f4") and bands == 1:
                    assert np.isnan(r.read("image")[0, 0])


@pytest.mark.parametrize("options", ["strips", "tiles", "lzw", "planes", "big", "packbits"])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_samples_of_a_few_bits(tmp_path, bits, options):
    """One bit is a bool."""
    for bands in (1, 3):
        array = np.random.default_rng(bits).integers(0, 1 << bits, (bands, 37, 53), "u1")
        more = [x for x in TIFFS[options] if "PREDICTOR" not in x]
        f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "f"), 53, 37, bands, gdal.GDT_Byte, [f"NBITS={bits}", *more])
        for b in range(bands):
            f.GetRasterBand(b + 1).WriteArray(array[b])
        del f
        pixels = bands > 1 and "INTERLEAVE=BAND" not in more
        with Reader(tmp_path / "f") as r:
            same(r, "image", (array[0] if bands == 1 else np.moveaxis(array, 0, 2) if pixels else array).astype("b1" if bits == 1 else "u1"))


@pytest.mark.parametrize("t, nodata, decoded", [("u1", 255, "float32"), ("u1", -9999, None), ("i2", 0.5, None), ("f4", -9999, "float32"), ("i4", -9999, "float64")])
def test_no_data_that_there_cannot_be(tmp_path, t, nodata, decoded):
    kind = gdal_array.NumericTypeCodeToGDALTypeCode(np.dtype(t).type)
    f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "f"), 5, 3, 1, kind)
    f.GetRasterBand(1).SetNoDataValue(nodata)
    del f
    with Reader(tmp_path / "f") as r:
        v = r.variables()["image"]
    assert v.get("decoded", {}).get("dtype") == decoded and ("_FillValue" in v["attrs"]) == bool(decoded)


def pages_of(path):
    """A TIFF of three pictures: its bytes, and where the numbers are that say where each directory lies."""
    for page in range(3):
        f = gdal.GetDriverByName("GTiff").Create(str(path), 9, 7, 1, gdal.GDT_Byte, ["APPEND_SUBDATASET=YES"] if page else [])
        f.GetRasterBand(1).WriteArray(np.full((7, 9), page, "u1"))
        del f
    data, at, links = bytearray(path.read_bytes()), 4, []
    while number := int.from_bytes(data[at:at + 4], "little"):
        links.append(at)
        at = number + 2 + 12 * int.from_bytes(data[number:number + 2], "little")
    assert len(links) == 3
    return data, links


@pytest.mark.parametrize("how", ["behind the end", "cut off", "many entries", "a loop"])
def test_pages_that_cannot_be_found(tmp_path, how):
    """They are not left out: a file would seem to have fewer."""
    data, links = pages_of(tmp_path / "f")
    second = int.from_bytes(data[links[1]:links[1] + 4], "little")
    if how == "behind the end":
        data[links[1]:links[1] + 4] = (len(data) + 1000).to_bytes(4, "little")
    elif how == "cut off":
        data = data[:second + 20]
    elif how == "many entries":
        data[second:second + 2] = (60000).to_bytes(2, "little")
    else:
        data[links[2]:links[2] + 4] = data[links[1]:links[1] + 4]
    (tmp_path / "f").write_bytes(data)
    with Reader(tmp_path / "f") as r, pytest.raises(Refused) as refused:
        r.describe()
    assert refused.value.code == "bad_file"


def test_a_tiff_that_is_cut_off(tmp_path):
    f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "f"), 500, 300, 1, gdal.GDT_Byte)
    f.GetRasterBand(1).WriteArray(np.ones((300, 500), "u1"))
    del f
    (tmp_path / "f").write_bytes((tmp_path / "f").read_bytes()[:100000])
    with Reader(tmp_path / "f") as r, pytest.raises(Refused) as refused:
        r.read("image")
    assert refused.value.code == "bad_file" and "cut off" in refused.value.detail


def test_gdal_overviews_and_pages(tmp_path):
    array = values((64, 64), "u2")
    f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "f"), 64, 64, 1, gdal.GDT_UInt16)
    f.GetRasterBand(1).WriteArray(array)
    f.BuildOverviews("NEAREST", [2, 4])
    del f
    with Reader(tmp_path / "f") as r:
        assert list(r.variables()) == ["image"]
        same(r, "image", array)


@pytest.mark.parametrize("bands", [1, 2, 3, 4])
@pytest.mark.parametrize("t", ["u1", "u2"])
def test_gdal_png(tmp_path, bands, t):
    array = values((bands, 31, 43), t)
    memory = gdal.GetDriverByName("MEM").Create("", 43, 31, bands, gdal_array.NumericTypeCodeToGDALTypeCode(array.dtype.type))
    for b in range(bands):
        memory.GetRasterBand(b + 1).WriteArray(array[b])
    gdal.GetDriverByName("PNG").CreateCopy(str(tmp_path / "f"), memory)
    with Reader(tmp_path / "f") as r:
        same(r, "image", array[0] if bands == 1 else np.moveaxis(array, 0, 2))


@pytest.mark.in_turn
def test_png_rows_larger_than_slabs(tmp_path):
    """A row is decoded once, not all rows before it again for each slab."""
    picture = np.random.default_rng(1).integers(0, 255, (400, 40000), "u2")
    memory = gdal.GetDriverByName("MEM").Create("", 40000, 400, 1, gdal.GDT_UInt16)
    memory.GetRasterBand(1).WriteArray(picture)
    gdal.GetDriverByName("PNG").CreateCopy(str(tmp_path / "f.png"), memory, options=["ZLEVEL=1"])
    with Reader(tmp_path / "f.png", slab=64 << 10, seconds=15) as r:
        assert np.array_equal(r.read("image"), picture)


UTM = osr.SpatialReference()
UTM.ImportFromEPSG(32633)
PLACES = {"scale": [100, 2, 0, 50, 0, -3], "turned": [100, 2, 0.5, 50, -0.25, -3], "south up": [100, 2, 0, 50, 0, 3]}


def centres(path, shape):
    """Where GDAL says that each pixel's centre lies."""
    a, b, c, d, e, f = gdal.Open(str(path)).GetGeoTransform(can_return_null=True)
    y, x = np.mgrid[:shape[0], :shape[1]] + 0.5
    return np.stack([a + b * x + c * y, d + e * x + f * y])


@pytest.mark.parametrize("options", [[], ["INTERLEAVE=BAND"]])
@pytest.mark.parametrize("kind", ["Area", "Point"])
@pytest.mark.parametrize("place", PLACES)
def test_parts_lie_where_they_lay(daemon_with, tmp_path, place, kind, options):
    c = daemon_with("--files", f"data={tmp_path}").client()
    f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "all.tif"), 53, 37, 3, gdal.GDT_Byte, options)
    f.SetMetadataItem("AREA_OR_POINT", kind)
    f.SetSpatialRef(UTM)
    f.SetGeoTransform(PLACES[place])
    del f
    where = centres(tmp_path / "all.tif", (37, 53))
    for y, x in (":, :", np.s_[:, :]), ("5:20, 7:", np.s_[5:20, 7:]), ("3::4, 1:50:7", np.s_[3::4, 1:50:7]), ("::-1, :", np.s_[::-1, :]), (
            "30:2:-3, 40::-2", np.s_[30:2:-3, 40::-2]), ("4:5, 6:7:100", np.s_[4:5, 6:7]), ("9:8:-5, 2::50", np.s_[9:8:-5, 2::50]):
        for band in (":", "1"):
            index = f"{band}, {y}" if options else f"{y}, {band}"
            imported(c, "all.tif", variables=[{"variable": "image", "name": "part", "index": index}], overwrite=True)
            exported(c, "part.tif", ["part"], overwrite=True)
            expected = where[(slice(None), *x)]
            np.testing.assert_allclose(centres(tmp_path / "part.tif", expected.shape[1:]), expected, rtol=1e-13)
            assert gdal.Open(str(tmp_path / "part.tif")).GetMetadataItem("AREA_OR_POINT") == kind
    imported(c, "all.tif", variables=[{"variable": "image", "name": "row", "index": "1" if not options else ":, 1"}])
    assert not [a for a in c.meta("row")["attrs"] if a.startswith("Model")]
    imported(c, "all.tif", variables=[{"variable": "image", "name": "all"}], overwrite=True)
    for path, view, keeps in (("views", {"index": "...", "name": "same"}, True), ("views", {"index": "1:", "name": "less"}, False), ("views", {"permute": [1, 0, 2], "name": "turned"}, False)):
        attrs = c.expect(201, c.post(f"/v1/arrays/all/{path}", view)).json().get("attrs") or c.meta(view["name"])["attrs"]
        assert bool([a for a in attrs if a.startswith("Model")]) == keeps and "GeoKeyDirectory" in attrs


def test_names_of_bands(daemon_with, tmp_path):
    """They are numbered, so that they are true of all bands alone."""
    c = daemon_with("--files", f"data={tmp_path}").client()
    f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "all.tif"), 6, 5, 3, gdal.GDT_Byte)
    for k, name in enumerate(["red", "green", "blue"]):
        f.GetRasterBand(k + 1).SetDescription(name)
    del f
    for index, kept in (":, 1:", True), (":, :, 1:", False), (":, :, ::-1", False), (":, :, 2", False):
        imported(c, "all.tif", variables=[{"variable": "image", "name": "a", "index": index}], overwrite=True)
        assert ("red" in c.meta("a").get("attrs", {}).get("GDAL_METADATA", "")) == kept, index


def test_tie_points_of_parts(daemon_with, tmp_path):
    c = daemon_with("--files", f"data={tmp_path}").client()
    f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "all.tif"), 53, 37, 1, gdal.GDT_Byte)
    f.SetGCPs([gdal.GCP(100. + x, 50. - y * 2, 7, x, y) for x, y in [(0, 0), (53, 0), (20.5, 30.5), (0, 37)]], UTM)
    del f
    imported(c, "all.tif", variables=[{"variable": "image", "name": "part", "index": "30::-2, 5:"}])
    exported(c, "part.tif", ["part"])
    got = [(p.GCPX, p.GCPY, p.GCPZ, p.GCPPixel, p.GCPLine) for p in gdal.Open(str(tmp_path / "part.tif")).GetGCPs()]
    # the part's first row is the 31st, whose middle is 30.5
    assert got == [(100 + x, 50 - y * 2, 7, x - 5, (30.5 - y) / 2 + 0.5) for x, y in [(0, 0), (53, 0), (20.5, 30.5), (0, 37)]]


@pytest.mark.parametrize("t, nodata", [("u1", None), ("u1", 7), ("i2", -9999), ("f4", float("nan")), ("c8", None)])
@pytest.mark.parametrize("options", ["strips", "deflate", "planes", "big"])
def test_blocks_that_are_not_there(tmp_path, options, t, nodata):
    """GDAL's sparse files."""
    kind = gdal_array.NumericTypeCodeToGDALTypeCode(np.dtype(t).type)
    for some in (False, True):
        f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "f"), 53, 37, 3, kind, [*TIFFS[options], "SPARSE_OK=TRUE"])
        for b in range(3):
            if nodata is not None:
                f.GetRasterBand(b + 1).SetNoDataValue(nodata)
            if some:
                f.GetRasterBand(b + 1).WriteArray(values((5, 9), t, b), 20, 17)
        del f
        expected = gdal.Open(str(tmp_path / "f")).ReadAsArray()
        with Reader(tmp_path / "f") as r:
            same(r, "image", expected if options == "planes" else np.moveaxis(expected, 0, 2), decode=False)


def test_blocks_of_bits_that_are_not_there(tmp_path):
    f = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "f"), 53, 37, 1, gdal.GDT_Byte, ["NBITS=1", "SPARSE_OK=TRUE", "BLOCKYSIZE=8"])
    f.GetRasterBand(1).WriteArray(np.ones((3, 53), "u1"), 0, 8)
    del f
    expected = gdal.Open(str(tmp_path / "f")).ReadAsArray()
    assert expected.sum() == 3 * 53
    with Reader(tmp_path / "f") as r:
        same(r, "image", expected.astype(bool))


def png(path, bits, row, transparent=None, kind=0):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    width = len(row) * 8 // bits // (3 if kind == 2 else 1)
    head, clear = struct.pack(">IIBBBBB", width, 2, bits, kind, 0, 0, 0), chunk(b"tRNS", transparent) if transparent else b""
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + clear + chunk(b"IDAT", zlib.compress(2 * (b"\0" + row))) + chunk(b"IEND", b""))


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_png_with_a_transparent_grey(tmp_path, bits):
    """A fill value, as in GDAL. Samples of a few bits are widened, and that with them."""
    png(tmp_path / "f", bits, bytes(range(0, 256, 17)), struct.pack(">H", 1))
    f = gdal.Open(str(tmp_path / "f"))
    widened, clear = 255 // ((1 << bits) - 1) if bits < 8 else 1, f.GetRasterBand(1).GetNoDataValue()
    raw = f.ReadAsArray()
    with Reader(tmp_path / "f") as r:
        assert clear == 1 and r.variables()["image"]["attrs"] == {"_FillValue": widened}
        same(r, "image", raw * raw.dtype.type(widened), decode=False)
        same(r, "image", np.where(raw == clear, np.nan, raw * float(widened)).astype("f4"))


def test_png_with_a_transparent_colour(tmp_path):
    """It makes a channel."""
    png(tmp_path / "f", 8, bytes([1, 2, 3, 4, 5, 6]), struct.pack(">HHH", 4, 5, 6), kind=2)
    with Reader(tmp_path / "f") as r:
        same(r, "image", np.array([[[1, 2, 3, 255], [4, 5, 6, 0]]] * 2, "u1"))
