/* The element types: their names on the wire and their sizes. */
#include "clients/c/src/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [ARRAYD_NONE] = {"", 0},
    [ARRAYD_BOOL] = {"bool", 1},
    [ARRAYD_INT8] = {"int8", 1},
    [ARRAYD_INT16] = {"int16", 2},
    [ARRAYD_INT32] = {"int32", 4},
    [ARRAYD_INT64] = {"int64", 8},
    [ARRAYD_UINT8] = {"uint8", 1},
    [ARRAYD_UINT16] = {"uint16", 2},
    [ARRAYD_UINT32] = {"uint32", 4},
    [ARRAYD_UINT64] = {"uint64", 8},
    [ARRAYD_FLOAT16] = {"float16", 2},
    [ARRAYD_BFLOAT16] = {"bfloat16", 2},
    [ARRAYD_FLOAT32] = {"float32", 4},
    [ARRAYD_FLOAT64] = {"float64", 8},
    [ARRAYD_COMPLEX64] = {"complex64", 8},
    [ARRAYD_COMPLEX128] = {"complex128", 16},
};

#define COUNT (sizeof(types) / sizeof(types[0]))

const char *arrayd_dtype_name(enum arrayd_dtype dtype)
{
    return (size_t)dtype < COUNT ? types[dtype].name : "";
}

size_t arrayd_itemsize(enum arrayd_dtype dtype)
{
    return (size_t)dtype < COUNT ? types[dtype].size : 0;
}

enum arrayd_dtype dtype_named(const char *name)
{
    for (size_t i = 1; name && i < COUNT; i++)
        if (!strcmp(name, types[i].name))
            return (enum arrayd_dtype)i;
    return ARRAYD_NONE;
}
