/* The contiguous innermost axes form one piece; a loop with a fixed piece size, which the compiler
 * unrolls for element sizes, copies the pieces along the next axis. */
#include "compute/type/pack.h"

#include <string.h>

/* Bytes of the contiguous run at the end of the view's axes; *ret_outer axes lie outside it. */
static int64_t innermost_run(const struct view *v, size_t itemsize, int *ret_outer)
{
    int64_t run = 1;
    int i = v->rank - 1;
    for (; i >= 0 && (v->shape[i] == 1 || v->strides[i] == run); i--)
        run *= v->shape[i];
    *ret_outer = i + 1;
    return run * (int64_t)itemsize;
}

struct packing packing_of(const struct view *v, size_t itemsize)
{
    struct packing p = {.view = *v, .itemsize = itemsize};
    p.run = innermost_run(v, itemsize, &p.outer);
    return p;
}

/* Copies n pieces of `size` bytes, `stride` bytes apart, to consecutive addresses. */
static void pack(char *to, const char *from, int64_t stride, int64_t size, int64_t n)
{
#define PACK(bytes)                                                                                \
    case bytes:                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                            \
            memcpy(to + i * bytes, from + i * stride, bytes);                                      \
        return
    switch (size) {
        PACK(1);
        PACK(2);
        PACK(4);
        PACK(8);
        PACK(16);
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * size, from + i * stride, (size_t)size);
    }
#undef PACK
}

int64_t packing_copy(const struct packing *p, const char *bytes, int64_t at, char *to, int64_t n)
{
    int64_t within = at % p->run, piece = at / p->run, element = p->view.offset;
    int64_t stride = 0, pieces = 1;
    for (int i = p->outer - 1; i >= 0; i--) {
        int64_t x = piece % p->view.shape[i];
        piece /= p->view.shape[i];
        element += x * p->view.strides[i];
        if (i == p->outer - 1) {
            stride = p->view.strides[i] * (int64_t)p->itemsize;
            pieces = p->view.shape[i] - x;
        }
    }
    const char *from = bytes + element * (int64_t)p->itemsize;
    if (within > 0 || n < p->run) {
        int64_t part = p->run - within < n ? p->run - within : n;
        memcpy(to, from + within, (size_t)part);
        return part;
    }
    if (pieces > n / p->run)
        pieces = n / p->run;
    pack(to, from, stride, p->run, pieces);
    return pieces * p->run;
}
