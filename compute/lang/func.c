/* The table, generated from func.def. Parameter names are taken from the signature that messages
 * show, so that the two cannot disagree. */
#include "compute/lang/func.h"

#include <string.h>

const struct func_info func_table[FUNC_COUNT] = {
#define FUNC(id, name, least, most, signature, rule)                                               \
    [FUNC_##id] = {name, least, most, signature, rule},
#include "compute/lang/func.def"
#undef FUNC
};

int func_from_name(const char *name, size_t n)
{
    for (int i = 0; i < FUNC_COUNT; i++)
        if (strlen(func_table[i].name) == n && memcmp(func_table[i].name, name, n) == 0)
            return i;
    return -1;
}

const char *func_param(const char *signature, int i, size_t *ret_len)
{
    const char *p = strchr(signature, '(');
    for (p = p ? p + 1 : ""; *p && *p != ')'; i--) {
        size_t name = strcspn(p, "=,)");
        if (i == 0) {
            *ret_len = name;
            return p;
        }
        p += strcspn(p, ",)");
        p += strspn(p, ", ");
    }
    return NULL;
}
