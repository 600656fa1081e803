/* A chain of counters. A charge is added from the innermost meter to the outermost and taken back
 * where one refuses. Threads that charge at once may refuse each other what one of them alone would
 * have got, but together never get more than the limit. */
#include "compute/base/meter.h"

#include <stdatomic.h>

#include "compute/base/mem.h"

struct meter {
    _Atomic uint32_t refs;
    _Atomic int64_t used, limit;
    const char *name;
    enum err_code past;
    struct meter *within;
};

static _Thread_local struct cause *current;
static _Thread_local struct {
    enum err_code code; /* ERR_OK: nothing was refused */
    const char *name;
    int64_t asked, limit, used;
} refused;

struct meter *meter_new(struct meter *within, const char *name, int64_t limit, enum err_code past)
{
    struct meter *m = mem_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    atomic_init(&m->refs, 1);
    atomic_init(&m->limit, limit);
    m->name = name;
    m->past = past;
    m->within = meter_ref(within);
    return m;
}

struct meter *meter_ref(struct meter *m)
{
    if (m)
        atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void meter_unref(struct meter *m)
{
    while (m && atomic_fetch_sub(&m->refs, 1) == 1) {
        struct meter *within = m->within;
        mem_free(m);
        m = within;
    }
}

void meter_set_limit(struct meter *m, int64_t limit)
{
    atomic_store(&m->limit, limit);
}

int64_t meter_used(const struct meter *m)
{
    return m ? atomic_load(&m->used) : 0;
}

int64_t meter_limit(const struct meter *m)
{
    return m ? atomic_load(&m->limit) : 0;
}

void meter_discharge(struct meter *m, int64_t n)
{
    for (; m; m = m->within)
        atomic_fetch_sub_explicit(&m->used, n, memory_order_relaxed);
}

void meter_charge_anyway(struct meter *m, int64_t n)
{
    for (; m; m = m->within)
        atomic_fetch_add_explicit(&m->used, n, memory_order_relaxed);
}

bool meter_charge(struct meter *m, int64_t n)
{
    for (struct meter *at = m; at; at = at->within) {
        int64_t limit = atomic_load_explicit(&at->limit, memory_order_relaxed);
        int64_t used = atomic_fetch_add_explicit(&at->used, n, memory_order_relaxed);
        if (!limit || n <= limit - used)
            continue;
        atomic_fetch_sub_explicit(&at->used, n, memory_order_relaxed);
        for (struct meter *back = m; back != at; back = back->within)
            atomic_fetch_sub_explicit(&back->used, n, memory_order_relaxed);
        refused.code = meter_used(m) + n <= limit ? at->past : ERR_OUT_OF_MEMORY;
        refused.name = at->name;
        refused.asked = n;
        refused.limit = limit;
        refused.used = used;
        return false;
    }
    return true;
}

struct meter *meter_current(void)
{
    struct cause *c = current;
    if (c && !c->meter && c->within)
        c->meter = meter_new(c->within, c->name, c->limit, ERR_OUT_OF_MEMORY);
    return c ? c->meter : NULL;
}

bool metered_set(struct metered *c, int64_t bytes)
{
    struct meter *m = c->meter ? c->meter : meter_current();
    if (!m)
        return true;
    if (bytes < c->bytes)
        meter_discharge(m, c->bytes - bytes);
    else if (!meter_charge(m, bytes - c->bytes))
        return false;
    if (!c->meter)
        c->meter = meter_ref(m);
    c->bytes = bytes;
    return true;
}

void metered_let_go(struct metered *c)
{
    meter_discharge(c->meter, c->bytes);
    meter_unref(c->meter);
    *c = (struct metered){0};
}

void meter_enter(struct cause *cause)
{
    current = cause;
    refused.code = ERR_OK;
}

bool meter_refusal(struct err *e)
{
    if (refused.code == ERR_OK)
        return false;
    err_set(e, refused.code, "%lld bytes more would exceed %s of %lld bytes (%lld in use)",
            (long long)refused.asked, refused.name, (long long)refused.limit,
            (long long)refused.used);
    refused.code = ERR_OK;
    return true;
}
