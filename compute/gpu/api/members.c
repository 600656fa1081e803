/* One reading of the option, and one likeness, for the doctor and the daemon: what the one calls
 * good the other starts with. */
#include "compute/gpu/api/members.h"

#include <stdlib.h>
#include <string.h>

static enum err_code add(struct members *m, const char *list, long number, int n_gpus,
                         struct err *e)
{
    if (number >= n_gpus)
        return err_set(e, ERR_BAD_FIELD,
                       "\"%.60s\" names GPU %ld, which is not there: their numbers are below %d",
                       list, number, n_gpus);
    for (int k = 0; k < m->n; k++)
        if (m->number[k] == number)
            return err_set(e, ERR_BAD_FIELD, "GPU %ld is named twice", number);
    if (m->n == BACKEND_PARTS)
        return err_set(e, ERR_BAD_FIELD, "more than %d GPUs", BACKEND_PARTS);
    m->number[m->n++] = (int)number;
    return ERR_OK;
}

enum err_code members_read(const char *list, int n_gpus, struct members *ret, struct err *e)
{
    char *end;
    const bool all = strcmp(list, "all") == 0;
    *ret = (struct members){0};
    for (int i = 0; all && i < n_gpus; i++)
        TRY(add(ret, list, i, n_gpus, e));
    for (const char *at = list; !all; at = end + 1) {
        const long number = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end && *end != ','))
            return err_set(e, ERR_BAD_FIELD,
                           "\"%.60s\" is neither \"all\" nor numbers of GPUs (\"0,1\")", list);
        TRY(add(ret, list, number, n_gpus, e));
        if (!*end)
            break;
    }
    if (ret->n > 1)
        return ERR_OK;
    return all ? err_set(e, ERR_BAD_FIELD, "it takes two GPUs or more; there is %s",
                         n_gpus ? "one" : "none")
               : err_set(e, ERR_BAD_FIELD, "it takes two GPUs or more; \"%.60s\" names one", list);
}

bool members_are_alike(const struct driver *v, CUdevice a, CUdevice b)
{
    static const int what[] = {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                               CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                               CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN};
    bool alike = true;
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        int of_a = 0, of_b = 0;
        (void)v->cuDeviceGetAttribute(&of_a, what[i], a);
        (void)v->cuDeviceGetAttribute(&of_b, what[i], b);
        alike &= of_a == of_b;
    }
    return alike;
}

bool members_are_linked(const struct driver *v, CUdevice a, CUdevice b)
{
    int atomics = 0; /* what NVLink has, and PCIe has not */
    (void)v->cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a,
                                     b);
    return atomics;
}
