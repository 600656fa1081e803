/* A buddy system over all chunks: free blocks are powers of two, aligned to their size, in lists by
 * order, and two halves become a whole again. What is taken need not be a power of two: the rest of
 * the block that it is cut from is free at once, as smaller blocks, so that hardly more is taken
 * than was asked for. Blocks are named by a number, chunk × grains + first grain; lists are links
 * between such numbers, in a table beside each chunk. */
#include "compute/memory/pieces.h"

#include <assert.h>

#include "compute/base/mem.h"

#define ORDERS 21
#define NONE   UINT32_MAX

/* Of a grain. */
struct node {
    uint32_t next, previous; /* of the free block that begins here */
    uint8_t order;           /* + 1; 0: no free block begins here */
};

struct slot {
    void *chunk; /* NULL: the slot is free */
    struct node *nodes;
};

struct pieces {
    uint32_t grains;
    int highest; /* order: a whole chunk */
    struct slot *slots;
    uint32_t n_slots, cap_slots;
    uint32_t filled;        /* lists that are not empty, a bit each */
    uint32_t heads[ORDERS]; /* by order */
};

static struct node *node_of(const struct pieces *p, uint32_t block)
{
    return &p->slots[block >> p->highest].nodes[block & (p->grains - 1)];
}

static void push(struct pieces *p, uint32_t block, int order)
{
    struct node *n = node_of(p, block);
    *n = (struct node){p->heads[order], NONE, (uint8_t)(order + 1)};
    if (n->next != NONE)
        node_of(p, n->next)->previous = block;
    p->heads[order] = block;
    p->filled |= 1u << order;
}

static void unlink_block(struct pieces *p, uint32_t block)
{
    struct node *n = node_of(p, block);
    const int order = n->order - 1;
    if (n->next != NONE)
        node_of(p, n->next)->previous = n->previous;
    if (n->previous != NONE)
        node_of(p, n->previous)->next = n->next;
    else
        p->heads[order] = n->next;
    if (p->heads[order] == NONE)
        p->filled &= ~(1u << order);
    n->order = 0;
}

static int log2_down(uint32_t n)
{
    return 31 - __builtin_clz(n);
}

static int log2_up(uint32_t n)
{
    return n > 1 ? log2_down(n - 1) + 1 : 0;
}

/* The largest block that begins at `first`, within n grains. */
static int largest(const struct pieces *p, uint32_t first, uint32_t n)
{
    const int fits = log2_down(n), aligned = first ? __builtin_ctz(first) : p->highest;
    return fits < aligned ? fits : aligned;
}

/* Frees grains of one chunk. */
static void release(struct pieces *p, uint32_t block, uint32_t n)
{
    while (n) {
        int order = largest(p, block & (p->grains - 1), n);
        const uint32_t size = 1u << order;
        uint32_t whole = block;
        while (order < p->highest && node_of(p, whole ^ 1u << order)->order == order + 1) {
            unlink_block(p, whole ^ 1u << order);
            whole &= ~(1u << order);
            order++;
        }
        push(p, whole, order);
        block += size;
        n -= size;
    }
}

struct pieces *pieces_new(uint32_t grains)
{
    assert(grains && grains < 1u << ORDERS && (grains & (grains - 1)) == 0);
    struct pieces *p = mem_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->grains = grains;
    p->highest = log2_down(grains);
    for (int i = 0; i < ORDERS; i++)
        p->heads[i] = NONE;
    return p;
}

void pieces_free(struct pieces *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_slots; i++)
        mem_free(p->slots[i].nodes);
    mem_free(p->slots);
    mem_free(p);
}

static struct slot *free_slot(struct pieces *p)
{
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (!p->slots[i].chunk)
            return &p->slots[i];
    if (p->n_slots == p->cap_slots) {
        const uint32_t cap = p->cap_slots ? 2 * p->cap_slots : 8;
        struct slot *more =
            cap <= NONE >> p->highest ? mem_reallocarray(p->slots, cap, sizeof *more) : NULL;
        if (!more)
            return NULL;
        p->slots = more;
        p->cap_slots = cap;
    }
    p->slots[p->n_slots] = (struct slot){0};
    return &p->slots[p->n_slots++];
}

bool pieces_add(struct pieces *p, void *chunk, uint32_t *ret_slot)
{
    struct slot *s = free_slot(p);
    struct node *nodes = s ? mem_calloc(p->grains, sizeof *nodes) : NULL;
    if (!nodes)
        return false;
    *s = (struct slot){chunk, nodes};
    *ret_slot = (uint32_t)(s - p->slots);
    push(p, *ret_slot << p->highest, p->highest);
    return true;
}

void *pieces_next(const struct pieces *p, uint32_t *at)
{
    while (*at < p->n_slots && !p->slots[*at].chunk)
        ++*at;
    return *at < p->n_slots ? p->slots[(*at)++].chunk : NULL;
}

void *pieces_take(struct pieces *p, uint32_t n, uint32_t *ret_first)
{
    const uint32_t lists = p->filled & ~0u << log2_up(n);
    if (!lists)
        return NULL;
    const int order = __builtin_ctz(lists);
    const uint32_t block = p->heads[order];
    unlink_block(p, block);
    release(p, block + n, (1u << order) - n);
    *ret_first = block & (p->grains - 1);
    return p->slots[block >> p->highest].chunk;
}

/* The free block that holds the grain, or NONE. */
static uint32_t holding(const struct pieces *p, uint32_t block)
{
    for (int order = 0; order <= p->highest; order++) {
        const uint32_t start = block & ~0u << order;
        if (node_of(p, start)->order == order + 1)
            return start;
    }
    return NONE;
}

bool pieces_take_at(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n)
{
    if (slot >= p->n_slots || !p->slots[slot].chunk || n == 0 || first >= p->grains ||
        n > p->grains - first)
        return false;
    const uint32_t from = (slot << p->highest) + first;
    uint32_t start;
    for (uint32_t at = from; at < from + n; at = start + (1u << (node_of(p, start)->order - 1))) {
        start = holding(p, at);
        if (start == NONE)
            return false;
    }
    for (uint32_t at = from, size; at < from + n; at = start + size) {
        start = holding(p, at);
        size = 1u << (node_of(p, start)->order - 1);
        unlink_block(p, start);
        if (start < from)
            release(p, start, from - start);
        if (start + size > from + n)
            release(p, from + n, start + size - (from + n));
    }
    return true;
}

bool pieces_give(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n)
{
    const uint32_t block = slot << p->highest;
    release(p, block + first, n);
    if (node_of(p, block)->order != p->highest + 1)
        return false;
    unlink_block(p, block);
    mem_free(p->slots[slot].nodes);
    p->slots[slot] = (struct slot){0};
    return true;
}
