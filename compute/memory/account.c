/* Accounts: bytes in use against limits, a session's and, behind it, its owner's. Atomic counters
 * only: charges and discharges happen on any thread, including completion callbacks. */

#include "compute/base/mem.h"

#include "compute/memory/storage.h"
#include <assert.h>

#define MEMORY_LIMIT  "the session's memory_limit"
#define DEVICE_MEMORY "the quota device_memory"

struct account {
    _Atomic uint32_t refs;
    _Atomic int64_t used, limit;
    _Atomic int64_t host, host_limit;  /* of an owner: its bytes in host memory */
    _Atomic int64_t kept[KEEP_LIMITS]; /* of an owner */
    _Atomic uint64_t device_ns;
    struct account *owner; /* NULL: it is an owner itself, or has none */
};

struct account *account_new(int64_t limit)
{
    return account_new_of(NULL, limit);
}

struct account *account_new_of(struct account *owner, int64_t limit)
{
    struct account *a = mem_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    atomic_init(&a->refs, 1);
    atomic_init(&a->limit, limit);
    if (owner)
        account_ref(owner);
    a->owner = owner;
    return a;
}

void account_set_limits(struct account *a, int64_t limit, int64_t host_limit)
{
    atomic_store(&a->limit, limit);
    atomic_store(&a->host_limit, host_limit);
}

void account_ref(struct account *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
}

void account_unref(struct account *a)
{
    if (!a)
        return;
    const uint32_t refs = atomic_fetch_sub(&a->refs, 1);
    assert(refs > 0);
    if (refs > 1)
        return;
    assert(atomic_load(&a->used) == 0 && atomic_load(&a->host) == 0);
    account_unref(a->owner); /* the owner has no owner: one level of recursion */
    mem_free(a);
}

int64_t account_used(const struct account *a)
{
    return atomic_load(&a->used);
}

int64_t account_limit(const struct account *a)
{
    return atomic_load(&a->limit);
}

uint64_t account_device_ns(const struct account *a)
{
    return atomic_load_explicit(&a->device_ns, memory_order_relaxed);
}

void account_worked(struct account *a, double device_ms)
{
    for (; a && device_ms > 0; a = a->owner)
        atomic_fetch_add_explicit(&a->device_ns, (uint64_t)(device_ms * 1e6), memory_order_relaxed);
}

int64_t account_host_used(const struct account *a)
{
    return atomic_load(&a->host);
}

/* Adds to a count unless the sum would exceed `most`. */
static enum err_code book(_Atomic int64_t *count, int64_t most, int64_t size, const char *what,
                          struct err *e)
{
    int64_t limit = most ? most : INT64_MAX, used = atomic_load(count);
    do {
        if (size > limit - used)
            return err_set(e, ERR_QUOTA,
                           "%lld bytes more would exceed %s of %lld bytes (%lld in use)",
                           (long long)size, what, (long long)limit, (long long)used);
    } while (!atomic_compare_exchange_weak(count, &used, used + size));
    return ERR_OK;
}

enum err_code account_charge(struct account *a, int64_t size, struct err *e)
{
    enum err_code code = book(&a->used, a->limit, size, MEMORY_LIMIT, e);
    if (code != ERR_OK || !a->owner)
        return code;
    code = book(&a->owner->used, a->owner->limit, size, DEVICE_MEMORY, e);
    if (code != ERR_OK)
        atomic_fetch_sub(&a->used, size);
    return code;
}

void account_charge_anyway(struct account *a, int64_t size)
{
    for (; a; a = a->owner)
        atomic_fetch_add(&a->used, size);
}

enum err_code account_check(const struct account *a, struct err *e)
{
    for (; a; a = a->owner) {
        int64_t limit = atomic_load(&a->limit), used = atomic_load(&a->used);
        if (limit && used > limit)
            return err_set(e, ERR_QUOTA,
                           "%lld bytes are in use, more than %s of %lld bytes: unfinished "
                           "downloads of other users' arrays still hold their earlier contents",
                           (long long)used, a->owner ? MEMORY_LIMIT : DEVICE_MEMORY,
                           (long long)limit);
    }
    return ERR_OK;
}

/* Subtracts what book added; never more. */
static void unbook(_Atomic int64_t *count, int64_t size)
{
    const int64_t used = atomic_fetch_sub(count, size);
    assert(size >= 0 && used >= size);
    (void)used;
}

void account_discharge(struct account *a, int64_t size)
{
    for (; a; a = a->owner)
        unbook(&a->used, size);
}

enum err_code account_charge_host(struct account *owner, int64_t size, struct err *e)
{
    return book(&owner->host, owner->host_limit, size, "the quota host_memory", e);
}

void account_discharge_host(struct account *owner, int64_t size)
{
    unbook(&owner->host, size);
}

struct account *account_owner(const struct account *a)
{
    return a->owner;
}

struct account *account_principal(struct account *a)
{
    return a->owner ? a->owner : a;
}

void account_keep(struct account *owner, enum keep_limit which, int64_t n)
{
    const int64_t had = atomic_fetch_add(&owner->kept[which], n);
    assert(had + n >= 0);
    (void)had;
}

int64_t account_kept(const struct account *a, enum keep_limit which)
{
    return atomic_load(&a->kept[which]);
}
