/* A list of blocks, each twice the last up to 1 MiB. Bumping is 16-byte aligned. Large requests get
 * a block of their own behind the current one, so that they do not waste its rest. The first block
 * is not counted, so that small work touches no counter. */
#include "compute/base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/base/meter.h"

#define FIRST_BLOCK   8192u
#define LARGEST_BLOCK (1u << 20)
#define ALIGN         16u

struct block {
    struct block *next;
    size_t size, used;
    _Alignas(ALIGN) unsigned char data[];
};

struct arena {
    struct block *head;
    size_t cap, used, next_size;
    struct metered counted; /* except the first block */
    bool exempt;
};

struct arena *arena_new(size_t cap)
{
    struct arena *a = mem_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->cap = cap ? cap : SIZE_MAX;
    a->next_size = FIRST_BLOCK;
    return a;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    size_t bytes = 0;
    for (struct block *b = a->head, *next; b; b = next) {
        next = b->next;
        bytes += b->size;
        mem_free(b);
    }
    mem_gave_back(bytes);
    if (a->exempt)
        a->counted.bytes = 0;
    metered_end(&a->counted);
    mem_free(a);
}

bool arena_count(struct arena *a, size_t n)
{
    if (!a->exempt)
        return metered_set(&a->counted, a->counted.bytes + (int64_t)n);
    a->counted.bytes += a->counted.meter ? (int64_t)n : 0;
    return true;
}

void arena_exempt(struct arena *a, bool exempt)
{
    if (exempt && !a->exempt)
        meter_discharge(a->counted.meter, a->counted.bytes);
    else if (!exempt && a->exempt)
        meter_charge_anyway(a->counted.meter, a->counted.bytes);
    a->exempt = exempt;
}

static struct block *block_new(struct arena *a, size_t size)
{
    size_t bytes = sizeof(struct block) + size;
    if (size > FIRST_BLOCK && !arena_count(a, bytes))
        return NULL;
    struct block *b = mem_alloc(bytes);
    if (b)
        *b = (struct block){.size = size};
    return b; /* if the block failed, its count stays until the arena is freed */
}

size_t arena_bytes(const struct arena *a)
{
    size_t n = sizeof *a;
    for (const struct block *b = a->head; b; b = b->next)
        n += sizeof *b + b->size;
    return n;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (size > a->cap - a->used)
        return NULL;
    struct block *b = a->head;
    if (!b || b->size - b->used < size) {
        if (b && size > a->next_size / 4) {
            struct block *own = block_new(a, size);
            if (!own)
                return NULL;
            own->next = b->next;
            b->next = own;
            b = own;
        } else {
            b = block_new(a, size > a->next_size ? size : a->next_size);
            if (!b)
                return NULL;
            b->next = a->head;
            a->head = b;
            if (a->next_size < LARGEST_BLOCK)
                a->next_size *= 2;
        }
    }
    void *p = b->data + b->used;
    b->used += size;
    a->used += size;
    return memset(p, 0, size);
}

void *arena_alloc_array(struct arena *a, size_t n, size_t size)
{
    size_t total;
    return __builtin_mul_overflow(n, size, &total) ? NULL : arena_alloc(a, total);
}

void *arena_dup(struct arena *a, const void *p, size_t n)
{
    void *q = arena_alloc(a, n);
    if (q && n)
        memcpy(q, p, n);
    return q;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    n = strnlen(s, n);
    char *p = arena_alloc(a, n + 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

int arena_grow(struct arena *a, void **p, size_t *cap, size_t n, size_t elem_size)
{
    if (n < *cap)
        return 0;
    size_t want = *cap ? *cap * 2 : elem_size > 256 ? 1 : 16; /* zeroing is not free */
    while (want <= n)
        want *= 2;
    void *q = arena_alloc_array(a, want, elem_size);
    if (!q)
        return -1;
    if (*cap)
        memcpy(q, *p, *cap * elem_size);
    *p = q;
    *cap = want;
    return 0;
}
