/* Every access that a kernel makes to memory, as its module tells (device_access.h): whether it
 * lies in a live allocation that its device has access to or in the block's shared memory as a
 * whole, and whether somebody has written what it reads. A GPU answers the first mistake with a
 * sticky error, and so does this; of the second it says nothing, so that is a violation
 * (fake_cuda.h).
 *
 * An allocation is found by its page, for no two have one in common; the table is of the whole
 * process and changes with fake.lock held, but is read without it: what a kernel may touch is there
 * before it is launched and until it has run. Of each byte of device memory a bit says whether it
 * was written: by a kernel, a copy, a filling. What other processes may write to is not followed
 * (vmm.c), nor is host memory.
 *
 * Called on fibers, so this is compiled without sanitizers, as fiber.c is. */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BITS = 12, LEAF_BITS = 19, ROOT_BITS = 48 - LEAF_BITS - PAGE_BITS };
static const size_t leaf_size = sizeof(void *) << LEAF_BITS;

static struct allocation **root[1 << ROOT_BITS];

static void enter_pages(const struct allocation *a, struct allocation *value)
{
    uintptr_t last = ((uintptr_t)a->start + a->size - 1) >> PAGE_BITS;
    for (uintptr_t page = (uintptr_t)a->start >> PAGE_BITS; page <= last; page++) {
        struct allocation ***leaf = &root[page >> LEAF_BITS];
        if (!*leaf) {
            void *p = mmap(NULL, leaf_size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (p == MAP_FAILED)
                abort();
            __atomic_store_n(leaf, p, __ATOMIC_RELEASE);
        }
        __atomic_store_n(&(*leaf)[page & ((1 << LEAF_BITS) - 1)], value, __ATOMIC_RELEASE);
    }
}

void access_add(struct allocation *a)
{
    enter_pages(a, a);
}

void access_drop(struct allocation *a)
{
    enter_pages(a, NULL);
}

/* --- what was written --- */

unsigned char *access_written_new(size_t n)
{
    void *p = mmap(NULL, n / 8 + 1, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void access_written_free(unsigned char *written, size_t n)
{
    if (written)
        munmap(written, n / 8 + 1);
}

/* Bits [at, at + n) of one byte, as far as they are in it. */
static inline unsigned char bits(size_t at, size_t n)
{
    return (unsigned char)((n >= 8 ? 0xffu : (1u << n) - 1) << (at & 7));
}

/* Launches that run at once write side by side. */
static inline void set(unsigned char *byte, unsigned char mask)
{
    if ((*byte & mask) != mask)
        __atomic_fetch_or(byte, mask, __ATOMIC_RELAXED);
}

static inline void mark(unsigned char *w, size_t at, size_t n)
{
    while (n) {
        size_t here = 8 - (at & 7);
        if (here == 8 && n >= 64) {
            memset(w + at / 8, 0xff, n / 8);
            here = n / 8 * 8;
        } else {
            set(w + at / 8, bits(at, n));
        }
        at += here;
        n = n > here ? n - here : 0;
    }
}

static inline bool is_marked(const unsigned char *w, size_t at, size_t n)
{
    while (n) {
        size_t here = 8 - (at & 7);
        uint64_t eight;
        if (here == 8 && n >= 64) {
            memcpy(&eight, w + at / 8, sizeof eight);
            if (eight != UINT64_MAX)
                return false;
            here = 64;
        } else {
            unsigned char mask = bits(at, n);
            if ((w[at / 8] & mask) != mask)
                return false;
        }
        at += here;
        n = n > here ? n - here : 0;
    }
    return true;
}

static void copy_bit(unsigned char *to, size_t at, const unsigned char *from, size_t i)
{
    unsigned char mask = (unsigned char)(1u << (at & 7));
    if (from[i / 8] >> (i & 7) & 1)
        __atomic_fetch_or(&to[at / 8], mask, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&to[at / 8], (unsigned char)~mask, __ATOMIC_RELAXED);
}

/* Whose memory p is, NULL for none's. Of n bytes there, *ret_n are its own, at *ret_at of it. */
static inline struct allocation *allocation_of(const char *p, size_t n, size_t *ret_at,
                                               size_t *ret_n)
{
    uintptr_t page = (uintptr_t)p >> PAGE_BITS;
    struct allocation **leaf = page >> LEAF_BITS < 1 << ROOT_BITS
                                   ? __atomic_load_n(&root[page >> LEAF_BITS], __ATOMIC_ACQUIRE)
                                   : NULL;
    struct allocation *a =
        leaf ? __atomic_load_n(&leaf[page & ((1 << LEAF_BITS) - 1)], __ATOMIC_ACQUIRE) : NULL;
    *ret_n = n;
    if (!a || (size_t)(p - a->start) >= a->size)
        return NULL;
    *ret_at = (size_t)(p - a->start);
    if (n > a->size - *ret_at)
        *ret_n = a->size - *ret_at;
    return a;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void access_copied(const void *to, const void *from, size_t n)
{
    for (size_t done = 0, here; done < n; done += here) {
        size_t at = 0, i = 0, n_from = n;
        const struct allocation *a = allocation_of((const char *)to + done, n - done, &at, &here);
        const struct allocation *b =
            from ? allocation_of((const char *)from + done, n - done, &i, &n_from) : NULL;
        here = least(here, n_from);
        if (!a || !a->written)
            continue;
        if (!b || !b->written || is_marked(b->written, i, here))
            mark(a->written, at, here);
        else
            for (size_t k = 0; k < here; k++)
                copy_bit(a->written, at + k, b->written, i + k);
    }
}

/* Where something was made to fail, or did not compile, what that would have written is read by
 * work that was asked for behind it, whose results are nobody's to see. */
static bool excused(void)
{
    return __atomic_load_n(&fake.excused, __ATOMIC_RELAXED) ||
           __atomic_load_n(&fake.failed, __ATOMIC_RELAXED) != NULL;
}

bool access_is_written(const void *p, size_t n)
{
    for (size_t done = 0, here; done < n; done += here) {
        size_t at = 0;
        const struct allocation *a = allocation_of((const char *)p + done, n - done, &at, &here);
        if (a && a->written && !is_marked(a->written, at, here))
            return excused();
    }
    return true;
}

/* Marks what is written. Whether all that is read was. */
static inline bool follow(unsigned char *w, size_t at, size_t n, int how)
{
    bool all = !(how & FAKE_READS) || is_marked(w, at, n);
    if (how & FAKE_WRITES)
        mark(w, at, n);
    return all;
}

/* --- a launch's --- */

static _Thread_local struct access *now;

void access_begin(struct access *a, const struct fake_module *m, const char *stack, size_t n_stack,
                  size_t shared)
{
    if (!a->written && !(a->written = access_written_new(FAKE_SHARED + 8 + FAKE_SHARED_ASKED)))
        abort();
    a->module = m;
    a->device = fake_current->device;
    a->stack = stack;
    a->n_stack = n_stack;
    a->n_static = m->shared ? (size_t)(m->shared_end - m->shared) : 0;
    a->n_dynamic = shared;
    a->dynamic_at = (a->n_static + 7) / 8 * 8;
    now = a;
}

void access_begin_block(struct access *a)
{
    memset(a->written, 0, (a->dynamic_at + a->n_dynamic) / 8 + 1);
}

static enum fault touch_device(int device, const char *p, size_t n, int how)
{
    size_t at = 0, here = 0;
    const struct allocation *a = allocation_of(p, n, &at, &here), *b = NULL;
    if (!a)
        return FAULT_OUTSIDE;
    if (!(__atomic_load_n(&a->access, __ATOMIC_RELAXED) >> device & 1))
        return FAULT_DENIED;
    if (here < n) { /* over a seam, if it is one */
        size_t unused = 0;
        if (a->range)
            b = allocation_of(p + here, n - here, &unused, &unused);
        enum fault fault = b && b->range == a->range ? touch_device(device, p + here, n - here, how)
                                                     : FAULT_OUTSIDE;
        if (fault != FAULT_NONE)
            return fault;
    }
    if (a->written && !follow(a->written, at, here, how) && !excused())
        return FAULT_UNWRITTEN;
    return FAULT_NONE;
}

static enum fault touch_shared(unsigned char *written, size_t at, size_t n, size_t size, int how)
{
    if (n > size || at > size - n)
        return FAULT_SHARED;
    return follow(written, at, n, how) ? FAULT_NONE : FAULT_SHARED_UNWRITTEN;
}

static bool is_index(const struct fake_module *m, const char *p)
{
    const struct fake_dim *const dims[] = {m->thread_idx, m->block_idx, m->block_dim, m->grid_dim};
    for (int i = 0; i < 4; i++)
        if ((size_t)(p - (const char *)dims[i]) < sizeof *dims[i])
            return true;
    return false;
}

/* Shared memory, tables and the indices; a kernel has no variables else. */
static enum fault touch_module(const struct access *a, const char *p, size_t n, int how)
{
    const struct fake_module *m = a->module;
    if (m->dynamic && (size_t)(p - m->dynamic) < FAKE_SHARED_ASKED)
        return touch_shared(a->written + a->dynamic_at / 8, (size_t)(p - m->dynamic), n,
                            a->n_dynamic, how);
    if ((size_t)(p - m->shared) < a->n_static)
        return touch_shared(a->written, (size_t)(p - m->shared), n, a->n_static, how);
    bool behind = a->n_static && p > m->shared; /* tables lie before */
    if (how == FAKE_READS && (!behind || is_index(m, p)))
        return FAULT_NONE;
    return behind ? FAULT_SHARED : FAULT_OUTSIDE;
}

void access_forget(const void *p, unsigned long n)
{
    const struct access *a = now;
    const struct fake_module *m = a->module;
    const char *at = p;
    unsigned char *w = a->written;
    size_t from = (size_t)(at - m->shared);
    if (m->dynamic && (size_t)(at - m->dynamic) < a->n_dynamic) {
        w += a->dynamic_at / 8;
        from = (size_t)(at - m->dynamic);
    } else if (from >= a->n_static) {
        return;
    }
    for (size_t i = from; i < from + n; i++)
        w[i / 8] &= (unsigned char)~(1u << (i & 7));
}

void access_check(const void *p, unsigned long n, int how, const void *from)
{
    struct access *a = now;
    const char *at = p;
    if ((size_t)(at - a->stack) < a->n_stack)
        return;
    bool own = at >= a->module->image && at < a->module->image_end;
    enum fault fault = own ? touch_module(a, at, n, how) : touch_device(a->device, at, n, how);
    if (fault == FAULT_NONE)
        return;
    a->at = at;
    a->n = n;
    a->how = how;
    a->from = from;
    fiber_fault(fault);
}
