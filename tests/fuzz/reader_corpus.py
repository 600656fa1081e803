#!/usr/bin/python3
"""Makes tests/fuzz/corpus/reader: small files of each format and kind that arrayd-file reads, by the programs that people have.

Run by hand when a kind is added; files that are there stay as they are.
"""
import pathlib
import sys
import zlib

import h5py
import netCDF4
import numpy as np
from osgeo import gdal

gdal.UseExceptions()
FOLDER = pathlib.Path(__file__).with_name("corpus") / "reader"
A = np.arange(600.).reshape(20, 30)


def hdf5(path):
    with h5py.File(path, "w") as f:
        f.attrs["text"], f.attrs["list"], f.attrs["texts"] = "hello", [1.5, 2.5], ["a", "bc"]
        f.create_dataset("g/deflated", data=A[:, :9], chunks=(7, 9), compression="gzip", shuffle=True, fletcher32=True)
        f.create_dataset("g/crew", data=np.arange(4096.).reshape(64, 64) // 9, chunks=(32, 32), compression="gzip", shuffle=True)
        f["plain"], f["bool"], f["complex"] = np.arange(20, dtype=">i4"), np.array([True, False]), np.arange(3) + 1j
        f["link"] = h5py.SoftLink("/plain")
        f["plain"].make_scale("plain")
        f["on"] = np.zeros(20, "i1")
        f["on"].dims[0].attach_scale(f["plain"])
        f["on"].dims[0].label = "x"


def hdf5_types(path):
    with h5py.File(path, "w") as f:
        for t in ("<f2", ">f2", ">f4", ">f8", "<u8", ">i2", "i1"):
            f["t" + t[-2:] + str(ord(t[0]))] = np.arange(5).astype(t)
        f["enum"] = np.zeros(4, h5py.enum_dtype({"RED": 1, "GREEN": 2}, "i2"))
        f["record"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
        f["reference"] = np.array([f["enum"].ref], h5py.ref_dtype)
        f.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2]
        f["texts"] = ["a", "bc"]
        f["empty"] = h5py.Empty("f4")
        f["outside"] = h5py.ExternalLink("other.h5", "/x")


def hdf5_filters(path):
    with h5py.File(path, "w") as f:
        f.create_dataset("scaled", data=np.arange(60).reshape(6, 10), chunks=(3, 10), scaleoffset=0)
        f.create_dataset("lzf", data=A[:4], chunks=(2, 30), compression="lzf")
        f.create_dataset("unwritten", (9, 9), "f4", chunks=(4, 4), compression="gzip", fillvalue=3)
        f.create_dataset("compact", data=np.arange(6))


def hdf5_latest(path):
    with h5py.File(path, "w", libver="latest", track_order=True) as f:
        for k in range(9):
            f.attrs[f"a{k}"] = np.arange(k)
        for k in range(3):
            f.create_dataset(f"g{k}/v", data=A[:, :10], chunks=(5, 5), maxshape=(None, 20), compression="gzip")


def hdf5_meaning(path):
    """Enums in the other order, bit fields, characters, sizes past 64 bits, scales on some axes."""
    with h5py.File(path, "w") as f:
        f["enum"] = np.zeros(4, h5py.enum_dtype({"a b": 1, "grün": 2 ** 31, "c": 0}, ">u4"))
        for k, t in enumerate((h5py.h5t.STD_B8LE, h5py.h5t.STD_B16BE, h5py.h5t.STD_B64LE)):
            h5py.h5d.create(f.id, b"bits%d" % k, t, h5py.h5s.create_simple((3,)))
        f["crs"] = np.bytes_("x")
        f.create_dataset("large", (2 ** 40, 2 ** 22), "f8", chunks=(2, 2))
        f["lat"], f["v"] = np.arange(3.), np.zeros((3, 4), "f2")
        f["lat"].make_scale("lat")
        f["v"].dims[0].attach_scale(f["lat"])
        f["v"].dims[1].label = "column"
        f["v"].attrs.update({"scale_factor": np.float32(0.1), "missing_value": [np.nan, 1e20], "grid_mapping": "crs: lat"})


def netcdf4(path):
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("t", None)
        f.createDimension("x", 9)
        v = f.createVariable("g/packed", "i2", ("t", "x"), zlib=True, fill_value=-1)
        v.scale_factor, v.add_offset, v.coordinates = 0.5, 3.0, "lat height"
        v[:5] = np.arange(45).reshape(5, 9)
        f.createVariable("x", "f8", ("x",))[:] = range(9)
        f.createVariable("lat", "f4", ("t", "x"))
        f.createVariable("height", "f4")[...] = 2
        f.title = "a title"


def netcdf3(path, format="NETCDF3_64BIT_OFFSET"):
    with netCDF4.Dataset(path, "w", format=format) as f:
        f.createDimension("t", None)
        f.createDimension("x", 9)
        for t in ("i1", "i2", "f4", "f8", "S1"):
            f.createVariable("v" + t, t, ("t", "x"))[:4] = np.arange(36).reshape(4, 9).astype(t)
            f.createVariable("w" + t, t, ("x",))[:] = np.arange(9).astype(t)
        f.createVariable("crs", "c").grid_mapping_name = "sphere"
        f.title, f["vi2"].scale_factor, f["vi2"].missing_value = "a title", 0.5, np.int16([1, 2])


def netcdf3_classic(path):
    netcdf3(path, "NETCDF3_CLASSIC")


def netcdf3_cdf5(path):
    netcdf3(path, "NETCDF3_64BIT_DATA")


def npz(path):
    with open(path, "wb") as f:
        np.savez_compressed(f, a=A, b=np.asfortranarray(np.arange(60, dtype=">i2").reshape(3, 20)), s=np.array(["x"]), z=np.float64(3))


def npz_stored(path):
    with open(path, "wb") as f:
        np.savez(f, a=A[:3], c=np.arange(3) * 1j, t=np.array([True, False]))


def npy(path):
    with open(path, "wb") as f:
        np.save(f, np.arange(600, dtype=">i4").reshape(20, 30))


def npy_fortran(path):
    with open(path, "wb") as f:
        np.save(f, np.asfortranarray(A[:, :7]))


def picture(path, type=gdal.GDT_Byte, bands=3, driver="GTiff", size=(40, 50), **options):
    memory = gdal.GetDriverByName("MEM").Create("", *size, bands, type)
    memory.SetGeoTransform([100, 2, 0, 50, 0, -2])
    for b in range(bands):
        memory.GetRasterBand(b + 1).WriteArray(np.arange(size[0] * size[1]).reshape(size[1], size[0]) * (b + 1) % 250)
    if type != gdal.GDT_Byte:
        memory.GetRasterBand(1).SetNoDataValue(7)
    if options.pop("colours", False):
        table = gdal.ColorTable()
        for k in range(256):
            table.SetColorEntry(k, (k, 255 - k, k // 2, 255))
        memory.GetRasterBand(1).SetColorTable(table)
    gdal.GetDriverByName(driver).CreateCopy(str(path), memory, options=[f"{k}={v}" for k, v in options.items()])


TIFFS = {
    "plain": {}, "big_endian": dict(ENDIANNESS="BIG", size=(20, 25), type=gdal.GDT_Float32), "bigtiff_big": dict(size=(20, 25), BIGTIFF="YES", ENDIANNESS="BIG", type=gdal.GDT_Int16),
    "tiled": dict(TILED="YES", BLOCKXSIZE=16, BLOCKYSIZE=16, COMPRESS="DEFLATE", PREDICTOR=2, type=gdal.GDT_UInt16),
    "lzw_planes": dict(size=(20, 25), COMPRESS="LZW", INTERLEAVE="BAND", BLOCKYSIZE=7, BIGTIFF="YES", type=gdal.GDT_UInt16),
    "packbits": dict(COMPRESS="PACKBITS"), "deflate_float": dict(COMPRESS="DEFLATE", PREDICTOR=3, type=gdal.GDT_Float64, bands=1),
    "jpeg": dict(COMPRESS="JPEG"), "jpeg_ycbcr": dict(COMPRESS="JPEG", PHOTOMETRIC="YCBCR"),
    "jpeg_tiled": dict(COMPRESS="JPEG", PHOTOMETRIC="YCBCR", TILED="YES", BLOCKXSIZE=16, BLOCKYSIZE=16),
    "palette": dict(bands=1, colours=True), "bits": dict(bands=1, NBITS=1), "bits12": dict(bands=1, NBITS=12, type=gdal.GDT_UInt16),
    "complex": dict(bands=1, size=(20, 25), type=gdal.GDT_CFloat32), "fax": dict(bands=1, NBITS=1, COMPRESS="CCITTFAX4"), "lzma": dict(COMPRESS="LZMA"),
    "zstd": dict(COMPRESS="ZSTD"), "lerc": dict(COMPRESS="LERC", size=(20, 25), type=gdal.GDT_Float32), "webp": dict(COMPRESS="WEBP", WEBP_LOSSLESS="YES"),
    "five_bands": dict(size=(20, 25), bands=5), "cmyk": dict(size=(20, 25), bands=4, PHOTOMETRIC="CMYK"),
}


def tiff_pages(path):
    picture(path, COMPRESS="JPEG", PHOTOMETRIC="YCBCR")
    gdal.GetDriverByName("GTiff").Create(str(path), 8, 9, 1, gdal.GDT_Byte, ["APPEND_SUBDATASET=YES"])
    gdal.Open(str(path), gdal.GA_Update).BuildOverviews("NEAREST", [2])


def tiff_ycbcr(path):
    """Without compression, with halved colours: six bytes a block of four pixels."""
    import struct
    tags = [(256, 3, 1, 16), (257, 3, 1, 16), (258, 3, 3, None), (259, 3, 1, 1), (262, 3, 1, 6), (273, 4, 1, None), (277, 3, 1, 3), (278, 3, 1, 16),
            (279, 4, 1, 384), (530, 3, 2, 2 | 2 << 16)]
    after = 8 + 2 + 12 * len(tags) + 4
    values = {258: after, 273: after + 6}
    out = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags))
    for tag, kind, n, value in tags:
        out += struct.pack("<HHII", tag, kind, n, values.get(tag, value))
    path.write_bytes(out + bytes(4) + struct.pack("<3H", 8, 8, 8) + bytes(k % 251 for k in range(384)))


def png(path):
    picture(path, gdal.GDT_UInt16, driver="PNG")


def png_palette(path):
    picture(path, bands=1, driver="PNG", colours=True)


def chunk(name, data):
    return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")


def png_interlaced(path):
    """Adam7 of 8 × 8 grey pixels of four bits, with a text."""
    head = b"\0\0\0\x08\0\0\0\x08\x04\0\0\0\x01"
    rows = [(1, 1), (1, 1), (1, 2), (2, 2), (2, 4), (4, 4), (4, 8)]
    data = b"".join(b"\0" + bytes(range(16 * k, 16 * k + (width + 1) // 2)) for k, (n, width) in enumerate(rows) for _ in range(n))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"tEXt", b"Title\0hello") + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def png_grey(path):
    """Two bits, of which one value is transparent."""
    head = b"\0\0\0\x08\0\0\0\x02\x02\0\0\0\0"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"tRNS", b"\0\1") + chunk(b"IDAT", zlib.compress(2 * b"\0\x1b\xe4")) + chunk(b"IEND", b""))


def tiff_sparse(path):
    f = gdal.GetDriverByName("GTiff").Create(str(path), 40, 50, 2, gdal.GDT_Int16, ["SPARSE_OK=TRUE", "TILED=YES", "BLOCKXSIZE=16", "BLOCKYSIZE=16", "COMPRESS=DEFLATE"])
    for b in (1, 2):
        f.GetRasterBand(b).SetNoDataValue(-7)
    f.GetRasterBand(1).WriteArray(np.ones((3, 4), "i2"), 20, 20)


def make(name, how):
    path = FOLDER / name
    if path.exists():
        return
    try:
        how(path)
    except RuntimeError as e:  # GDAL was built without it
        print(name, e, file=sys.stderr)
        path.unlink(missing_ok=True)
    path.with_name(name + ".aux.xml").unlink(missing_ok=True)
    if path.exists() and path.stat().st_size > 16384:
        print(name, "is too large", file=sys.stderr)


FOLDER.mkdir(exist_ok=True)
for how in (hdf5, hdf5_types, hdf5_filters, hdf5_latest, hdf5_meaning, netcdf4, netcdf3, netcdf3_classic, netcdf3_cdf5, npz, npz_stored, npy, npy_fortran, png, png_palette,
            png_interlaced, png_grey, tiff_pages, tiff_sparse, tiff_ycbcr):
    make(how.__name__, how)
for name, options in TIFFS.items():
    make("tiff_" + name, lambda path, options=options: picture(path, **options))
