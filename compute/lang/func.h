/* The table of functions of the expression language that are more than one elementwise operation
 * (func.def). Called by the checker and by /v1/info. Constant data; thread-safe. */
#ifndef ARRAYD_FUNC_H
#define ARRAYD_FUNC_H

#include <stddef.h>

enum func {
#define FUNC(id, name, least, most, signature, rule) FUNC_##id,
#include "compute/lang/func.def"
#undef FUNC
    FUNC_COUNT
};

#define FUNC_MAX_PARAMS 6

struct func_info {
    const char *name;
    int least, most;       /* positional arguments */
    const char *signature; /* "clip(x, min=None, max=None)" */
    const char *rule;      /* the result's type, in words */
};

extern const struct func_info func_table[FUNC_COUNT];

/* The function called `name` (n bytes), or -1. */
int func_from_name(const char *name, size_t n);

/* The name of parameter i of a signature, its length in *ret_len; NULL past the last. */
const char *func_param(const char *signature, int i, size_t *ret_len);

#endif
