/* Elements are converted by the library into this machine's order, but for two kinds. Enums that
 * lie in it already, as a whole type, are read as what they are, for the library's conversion of
 * enums is slow. And halves are read in a type of their own layout, because the library has no
 * native one. */
#include <stdio.h>
#include <string.h>

#include "server/reader/hdf5/hdf5_int.h"
#include "server/reader/link.h"

static const char *order_of(hid_t type, size_t size)
{
    return size > 1 && H5Tget_order(type) == H5T_ORDER_BE ? " big-endian" : "";
}

static int integer_type(hid_t type, hid_t *ret_memory)
{
    size_t size = H5Tget_size(type);
    bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
    hid_t memory[] = {H5T_NATIVE_INT8,  H5T_NATIVE_INT16,  H5T_NATIVE_INT32,  H5T_NATIVE_INT64,
                      H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32, H5T_NATIVE_UINT64};
    if (size == 0 || size > 8)
        return UNREAD;
    int log = size == 1 ? 0 : size == 2 ? 1 : size <= 4 ? 2 : 3;
    *ret_memory = H5Tcopy(memory[log + (is_signed ? 0 : 4)]);
    return (is_signed ? DT_I8 : DT_U8) + log;
}

/* A half as it lies in memory: of the fields of IEEE 754 or of bfloat16. */
static hid_t half_type(bool brain)
{
    hid_t t = H5Tcopy(H5T_IEEE_F32LE);
    size_t mantissa = brain ? 7 : 10, exponent = 15 - mantissa;
    if (H5Tset_fields(t, 15, mantissa, exponent, 0, mantissa) < 0 || H5Tset_size(t, 2) < 0 ||
        H5Tset_ebias(t, brain ? 127 : 15) < 0)
        stop_oom();
    return t;
}

static int float_type(hid_t type, hid_t *ret_memory)
{
    size_t size = H5Tget_size(type), sign, exponent_at, exponent, mantissa_at, mantissa;
    if (size > 8 ||
        H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0)
        return UNREAD;
    if (size == 2) {
        *ret_memory = half_type(exponent == 8);
        return exponent == 8 ? DT_BF16 : DT_F16;
    }
    bool narrow = exponent <= 8 && mantissa <= 23;
    *ret_memory = H5Tcopy(narrow ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE);
    return narrow ? DT_F32 : DT_F64;
}

/* Whether a member of an enum or a compound type has one of two names. */
static bool member_is(hid_t type, unsigned i, const char *a, const char *b)
{
    char *name = H5Tget_member_name(type, i);
    bool is = name && (strcmp(name, a) == 0 || strcmp(name, b) == 0);
    H5free_memory(name);
    return is;
}

static int enum_type(struct content *c, hid_t type, hid_t *ret_memory, const char **ret_stored)
{
    hid_t base = H5Tget_super(type);
    int dtype = base < 0 ? UNREAD : integer_type(base, ret_memory);
    if (dtype == UNREAD)
        return UNREAD;
    *ret_stored =
        content_printf(c, "enum of %s%s", dtype_name(dtype), order_of(base, H5Tget_size(base)));
    size_t size = H5Tget_size(base);
    if (size == dtype_size(dtype) && H5Tget_precision(base) == 8 * size &&
        (H5Tget_order(base) != H5T_ORDER_BE || size == 1)) {
        H5Tclose(*ret_memory);
        *ret_memory = H5Tcopy(type);
    }
    H5Tclose(base);
    unsigned char values[2] = {0};
    if (dtype_size(dtype) == 1 && H5Tget_nmembers(type) == 2 &&
        member_is(type, 0, "FALSE", "false") && member_is(type, 1, "TRUE", "true") &&
        H5Tget_member_value(type, 0, &values[0]) >= 0 &&
        H5Tget_member_value(type, 1, &values[1]) >= 0 && values[0] == 0 && values[1] == 1)
        return DT_BOOL;
    return dtype;
}

/* Unsigned integers, as h5py has them. */
static int bits_type(struct content *c, hid_t type, hid_t *ret_memory, const char **ret_stored)
{
    size_t size = H5Tget_size(type);
    hid_t memory[] = {H5T_NATIVE_B8, H5T_NATIVE_B16, H5T_NATIVE_B32, H5T_NATIVE_B64};
    if (size == 0 || size > 8)
        return UNREAD;
    int log = size == 1 ? 0 : size == 2 ? 1 : size <= 4 ? 2 : 3;
    *ret_memory = H5Tcopy(memory[log]);
    *ret_stored =
        content_printf(c, "bit field of %zu bits%s", H5Tget_precision(type), order_of(type, size));
    return DT_U8 + log;
}

static int complex_type(struct content *c, hid_t type, hid_t *ret_memory, const char **ret_stored)
{
    if (H5Tget_nmembers(type) != 2 || !member_is(type, 0, "r", "real") ||
        !member_is(type, 1, "i", "imag"))
        return UNREAD;
    hid_t part = H5Tget_member_type(type, 0), other = H5Tget_member_type(type, 1), memory;
    int dtype = UNREAD;
    if (part >= 0 && other >= 0 && H5Tget_class(part) == H5T_FLOAT && H5Tequal(part, other) > 0)
        dtype = float_type(part, &memory);
    if (dtype == DT_F32 || dtype == DT_F64) {
        char *re = H5Tget_member_name(type, 0), *im = H5Tget_member_name(type, 1);
        size_t size = dtype_size(dtype);
        *ret_memory = H5Tcreate(H5T_COMPOUND, 2 * size);
        H5Tinsert(*ret_memory, re, 0, memory);
        H5Tinsert(*ret_memory, im, size, memory);
        H5free_memory(re);
        H5free_memory(im);
        dtype = dtype == DT_F32 ? DT_C64 : DT_C128;
        *ret_stored = content_printf(c, "%s%s", dtype_name(dtype), order_of(part, size));
    } else {
        dtype = UNREAD;
    }
    H5Tclose(part);
    H5Tclose(other);
    return dtype;
}

int hdf5_type(struct content *c, hid_t type, hid_t *ret_memory, const char **ret_stored,
              const char **ret_why)
{
    static const char *const kinds[] = {
        [H5T_TIME] = "times of HDF5",
        [H5T_STRING] = "texts",
        [H5T_BITFIELD] = "bit fields past 64 bits",
        [H5T_OPAQUE] = "opaque types",
        [H5T_COMPOUND] = "compound types",
        [H5T_REFERENCE] = "references",
        [H5T_VLEN] = "lists of any length",
        [H5T_ARRAY] = "arrays as elements",
        [H5T_INTEGER] = "integers past 64 bits",
        [H5T_FLOAT] = "floats past 64 bits",
        [H5T_ENUM] = "enums past 64 bits",
    };
    int class = (int)H5Tget_class(type), dtype = UNREAD;
    *ret_stored = NULL;
    if (class == H5T_INTEGER)
        dtype = integer_type(type, ret_memory);
    else if (class == H5T_FLOAT)
        dtype = float_type(type, ret_memory);
    else if (class == H5T_ENUM)
        dtype = enum_type(c, type, ret_memory, ret_stored);
    else if (class == H5T_BITFIELD)
        dtype = bits_type(c, type, ret_memory, ret_stored);
    else if (class == H5T_COMPOUND)
        dtype = complex_type(c, type, ret_memory, ret_stored);
    const char *kind = class >= 0 && class <= H5T_ARRAY ? kinds[class] : "unknown types";
    *ret_why = dtype == UNREAD ? content_printf(c, "%s are not read", kind) : NULL;
    if (!*ret_stored)
        *ret_stored = dtype == UNREAD ? kind
                                      : content_printf(c, "%s%s", dtype_name(dtype),
                                                       order_of(type, H5Tget_size(type)));
    return dtype;
}

hid_t hdf5_type_of(enum dtype t)
{
    switch (t) {
    case DT_BOOL: {
        hid_t type = H5Tenum_create(H5T_STD_I8LE);
        signed char no = 0, yes = 1;
        H5Tenum_insert(type, "FALSE", &no);
        H5Tenum_insert(type, "TRUE", &yes);
        return type;
    }
    case DT_I8:
        return H5Tcopy(H5T_STD_I8LE);
    case DT_I16:
        return H5Tcopy(H5T_STD_I16LE);
    case DT_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case DT_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case DT_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case DT_U16:
        return H5Tcopy(H5T_STD_U16LE);
    case DT_U32:
        return H5Tcopy(H5T_STD_U32LE);
    case DT_U64:
        return H5Tcopy(H5T_STD_U64LE);
    case DT_F16:
    case DT_BF16:
        return half_type(t == DT_BF16);
    case DT_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case DT_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    default: {
        hid_t part = t == DT_C64 ? H5T_IEEE_F32LE : H5T_IEEE_F64LE;
        hid_t type = H5Tcreate(H5T_COMPOUND, dtype_size(t));
        H5Tinsert(type, "r", 0, part);
        H5Tinsert(type, "i", dtype_size(t) / 2, part);
        return type;
    }
    }
}
