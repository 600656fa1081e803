/* A thread's copies into shared memory that go on while it does (cp.async): each is made when it is
 * waited for, the latest that the GPU may make it. Until then its place counts as not written, so
 * that who reads too soon is found out.
 *
 * Called on fibers, so this is compiled without sanitizers, as fiber.c is. */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

void copies_add(struct copies *c, void *to, const void *from, unsigned n, const void *code)
{
    if (c->n == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 16;
        c->list = realloc(c->list, c->capacity * sizeof *c->list);
        if (!c->list)
            abort();
    }
    access_check(to, n, FAKE_WRITES, code);
    access_forget(to, n);
    c->list[c->n++] = (struct copy){to, from, n, c->batch, code};
}

void copies_arrived(struct copies *c, unsigned left)
{
    unsigned made = 0;
    for (; made < c->n && c->list[made].batch + left < c->batch; made++) {
        const struct copy *k = &c->list[made];
        access_check(k->from, k->n, FAKE_READS, k->code);
        access_check(k->to, k->n, FAKE_WRITES, k->code);
        memcpy(k->to, k->from, k->n);
    }
    c->n -= made;
    memmove(c->list, c->list + made, c->n * sizeof *c->list);
}
