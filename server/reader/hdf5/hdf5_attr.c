/* Attributes of HDF5: numbers of the types that variables have, and texts, each or in lists. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/fit.h"
#include "server/reader/hdf5/hdf5_int.h"
#include "server/reader/link.h"

static void add_texts(struct content *c, hid_t a, hid_t type, hid_t space, const char *name,
                      bool list, int64_t n, struct attrs *ret)
{
    bool any_length = H5Tis_variable_str(type) > 0;
    size_t size = any_length ? sizeof(char *) : H5Tget_size(type);
    hid_t memory = H5Tcopy(type);
    _cleanup_free_ char *data = must_array((size_t)n + 1, size);
    if (size > 0 && H5Aread(a, memory, data) >= 0) {
        const char **texts = must(arena_alloc_array(c->arena, (size_t)n + 1, sizeof *texts));
        for (int64_t i = 0; i < n; i++) {
            const char *p = data + (size_t)i * size;
            size_t length = any_length ? 0 : strnlen(p, size);
            if (any_length) {
                memcpy(&p, data + (size_t)i * size, sizeof p);
            } else if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) {
                while (length > 0 && p[length - 1] == ' ')
                    length--;
            }
            texts[i] = !p ? "" : any_length ? p : content_text(c, p, length);
        }
        attr_add_texts(c, ret, name, list, n, texts);
        if (any_length)
            H5Dvlen_reclaim(memory, space, H5P_DEFAULT, data);
    }
    H5Tclose(memory);
}

struct adding {
    struct content *c;
    struct attrs *ret;
    bool scale;
};

static herr_t add(hid_t object, const char *name, const H5A_info_t *info, void *data)
{
    struct adding *to = data;
    (void)info;
    if (fit_is_taken(name, to->scale ? FIT_LIBRARY | FIT_SCALE : FIT_LIBRARY))
        return 0;
    hid_t a = H5Aopen(object, name, H5P_DEFAULT);
    if (a < 0)
        return 0;
    hid_t type = H5Aget_type(a), space = H5Aget_space(a), memory = -1;
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    H5S_class_t shape = space < 0 ? H5S_NO_CLASS : H5Sget_simple_extent_type(space);
    size_t size = type < 0 ? 0 : H5Tget_size(type);
    if (shape == H5S_NULL && type >= 0 && H5Tget_class(type) == H5T_STRING)
        attr_add_text(to->c, to->ret, name, "", 0); /* NetCDF-4's empty text */
    if (n >= 0 && size > 0 && (shape == H5S_SCALAR || shape == H5S_SIMPLE) &&
        (size_t)n <= ATTR_BYTES_MAX / (size < 16 ? 16 : size)) {
        const char *stored, *why;
        bool list = shape == H5S_SIMPLE && n != 1;
        int dtype = UNREAD;
        if (H5Tget_class(type) == H5T_STRING)
            add_texts(to->c, a, type, space, name, list, n, to->ret);
        else
            dtype = hdf5_type(to->c, type, &memory, &stored, &why);
        if (dtype != UNREAD) {
            _cleanup_free_ unsigned char *values = must_array((size_t)n + 1, 16);
            if (H5Aread(a, memory, values) >= 0)
                attr_add_numbers(to->c, to->ret, name, dtype, list, n, values);
            H5Tclose(memory);
        }
    }
    H5Tclose(type);
    H5Sclose(space);
    H5Aclose(a);
    return 0;
}

void hdf5_attrs(struct content *c, hid_t object, struct attrs *ret)
{
    char class[32] = "";
    struct adding to = {c, ret,
                        hdf5_attr_text(object, "CLASS", class, sizeof class) &&
                            strcmp(class, "DIMENSION_SCALE") == 0};
    hsize_t at = 0;
    if (H5Aiterate2(object, H5_INDEX_CRT_ORDER, H5_ITER_INC, &at, add, &to) < 0) {
        ret->first = NULL;
        ret->end = &ret->first;
        at = 0;
        H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &at, add, &to);
    }
}

void hdf5_flags(struct content *c, hid_t type, enum dtype dtype, struct attrs *ret)
{
    int n = H5Tget_nmembers(type);
    if (n < 1 || attr_find(ret, "flag_values") || attr_find(ret, "flag_meanings"))
        return;
    hid_t base = H5Tget_super(type), memory = hdf5_type_of(dtype);
    size_t size = base < 0 ? 0 : H5Tget_size(base);
    _cleanup_free_ unsigned char *values = must_array((size_t)n + 1, 8);
    _cleanup_strb_ struct strb words = {0};
    bool ok = size > 0 && size <= 8;
    for (int i = 0; i < n && ok; i++) {
        char *name = H5Tget_member_name(type, (unsigned)i);
        ok = name && H5Tget_member_value(type, (unsigned)i, values + (size_t)i * size) >= 0;
        for (char *p = name; ok && *p; p++)
            *p = *p == ' ' ? '_' : *p; /* blanks are between the words */
        if (ok)
            strb_addf(&words, "%s%s", i ? " " : "", content_name(c, name));
        H5free_memory(name);
    }
    if (words.failed)
        stop_oom();
    if (ok && words.len <= ATTR_BYTES_MAX &&
        H5Tconvert(base, memory, (size_t)n, values, NULL, H5P_DEFAULT) >= 0) {
        attr_add_numbers(c, ret, "flag_values", dtype, true, n, values);
        attr_add_text(c, ret, "flag_meanings", words.data, words.len);
    }
    H5Tclose(base);
    H5Tclose(memory);
}

bool hdf5_attr_text(hid_t object, const char *name, char *ret, size_t n)
{
    if (H5Aexists(object, name) <= 0)
        return false;
    hid_t a = H5Aopen(object, name, H5P_DEFAULT);
    hid_t type = a < 0 ? -1 : H5Aget_type(a);
    hid_t space = a < 0 ? -1 : H5Aget_space(a);
    bool ok = false;
    if (type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
        H5Tis_variable_str(type) == 0 && H5Sget_simple_extent_npoints(space) == 1) {
        size_t size = H5Tget_size(type);
        _cleanup_free_ char *text = size > ATTR_BYTES_MAX ? NULL : must_array(size + 1, 1);
        ok = text && H5Aread(a, type, text) >= 0;
        if (ok) {
            size_t take = size < n - 1 ? size : n - 1;
            memcpy(ret, text, take);
            ret[take] = '\0';
        }
    }
    H5Tclose(type);
    H5Sclose(space);
    H5Aclose(a);
    return ok;
}
