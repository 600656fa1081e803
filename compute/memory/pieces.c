/* Segregated fit over all chunks: what is free of a chunk lies in runs, as long as can be, in lists
 * by length, four of them for each power of two. A piece is cut from the beginning of a run, and
 * the rest is free at once; what is given back becomes one run with its neighbours. Runs are named
 * by a number, chunk × grains + first grain; lists are links between such numbers, in a table
 * beside each chunk. The runs of a closed chunk are in no list. */
#include "compute/memory/pieces.h"

#include <assert.h>

#include "compute/base/mem.h"

#define ORDERS 21
#define LISTS  (4 * ORDERS)
#define LOOKED 16 /* runs of the list that has longer and shorter ones than are wanted */
#define NONE   UINT32_MAX

/* Of a grain. */
struct node {
    uint32_t next, previous; /* of the free run that begins here */
    uint32_t begins, ends;   /* length of the free run that does here; 0: none */
};

struct slot {
    void *chunk; /* NULL: the slot is free */
    struct node *nodes;
    uint32_t free; /* grains */
    bool closed;
};

struct pieces {
    uint32_t grains;
    int highest; /* log2 of that */
    struct slot *slots;
    uint32_t n_slots, cap_slots;
    uint64_t free;      /* grains of the chunks that are not closed */
    uint64_t filled[2]; /* lists that are not empty, a bit each */
    uint32_t heads[LISTS];
};

static struct slot *slot_of(const struct pieces *p, uint32_t run)
{
    return &p->slots[run >> p->highest];
}

static struct node *node_of(const struct pieces *p, uint32_t run)
{
    return &slot_of(p, run)->nodes[run & (p->grains - 1)];
}

/* --- lists --- */

static int list_of(uint32_t n)
{
    const int order = 31 - __builtin_clz(n);
    return order < 2 ? (int)n : 4 * order + (int)(n >> (order - 2) & 3);
}

/* The first list of which every run has n grains. */
static int list_above(uint32_t n)
{
    return n > 1 ? list_of(n - 1) + 1 : list_of(n);
}

static void link_run(struct pieces *p, uint32_t run)
{
    struct node *n = node_of(p, run);
    const int list = list_of(n->begins);
    n->next = p->heads[list];
    n->previous = NONE;
    if (n->next != NONE)
        node_of(p, n->next)->previous = run;
    p->heads[list] = run;
    p->filled[list / 64] |= UINT64_C(1) << list % 64;
}

static void unlink_run(struct pieces *p, uint32_t run)
{
    const struct node *n = node_of(p, run);
    const int list = list_of(n->begins);
    if (n->next != NONE)
        node_of(p, n->next)->previous = n->previous;
    if (n->previous != NONE)
        node_of(p, n->previous)->next = n->next;
    else
        p->heads[list] = n->next;
    if (p->heads[list] == NONE)
        p->filled[list / 64] &= ~(UINT64_C(1) << list % 64);
}

/* --- runs --- */

static void add_run(struct pieces *p, uint32_t run, uint32_t n)
{
    if (n == 0)
        return;
    node_of(p, run)->begins = n;
    node_of(p, run + n - 1)->ends = n;
    if (!slot_of(p, run)->closed)
        link_run(p, run);
}

/* Returns its length. */
static uint32_t remove_run(struct pieces *p, uint32_t run)
{
    const uint32_t n = node_of(p, run)->begins;
    if (!slot_of(p, run)->closed)
        unlink_run(p, run);
    node_of(p, run)->begins = 0;
    node_of(p, run + n - 1)->ends = 0;
    return n;
}

static void count(struct pieces *p, struct slot *s, int64_t grains)
{
    s->free = (uint32_t)(s->free + grains);
    if (!s->closed)
        p->free = (uint64_t)((int64_t)p->free + grains);
}

/* Takes n grains from `at` on out of the run that has them. */
static void cut(struct pieces *p, uint32_t run, uint32_t at, uint32_t n)
{
    const uint32_t end = run + remove_run(p, run);
    assert(run <= at && n <= end - at);
    add_run(p, run, at - run);
    add_run(p, at + n, end - (at + n));
    count(p, slot_of(p, run), -(int64_t)n);
}

/* The next run of the slot from *at on; NONE: there is no more. */
static uint32_t next_run(const struct pieces *p, uint32_t slot, uint32_t *at)
{
    const struct node *nodes = p->slots[slot].nodes;
    while (*at < p->grains && nodes[*at].begins == 0)
        ++*at;
    if (*at == p->grains)
        return NONE;
    const uint32_t run = (slot << p->highest) + *at;
    *at += nodes[*at].begins;
    return run;
}

struct pieces *pieces_new(uint32_t grains)
{
    assert(grains && grains < 1u << ORDERS && (grains & (grains - 1)) == 0);
    struct pieces *p = mem_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->grains = grains;
    p->highest = 31 - __builtin_clz(grains);
    for (int i = 0; i < LISTS; i++)
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
    *s = (struct slot){.chunk = chunk, .nodes = nodes};
    *ret_slot = (uint32_t)(s - p->slots);
    add_run(p, *ret_slot << p->highest, p->grains);
    count(p, s, p->grains);
    return true;
}

void *pieces_next(const struct pieces *p, uint32_t *at)
{
    while (*at < p->n_slots && !p->slots[*at].chunk)
        ++*at;
    return *at < p->n_slots ? p->slots[(*at)++].chunk : NULL;
}

/* The shortest of the first runs in n's own list that have n grains; NONE: none has. */
static uint32_t look(const struct pieces *p, uint32_t n)
{
    uint32_t best = NONE, run = p->heads[list_of(n)];
    for (int i = 0; run != NONE && i < LOOKED; i++, run = node_of(p, run)->next) {
        const uint32_t has = node_of(p, run)->begins;
        if (has >= n && (best == NONE || has < node_of(p, best)->begins))
            best = run;
    }
    return best;
}

static uint32_t head_from(const struct pieces *p, int list)
{
    uint64_t lists = list < 64 ? p->filled[0] & ~UINT64_C(0) << list : 0;
    if (lists)
        return p->heads[__builtin_ctzll(lists)];
    lists = p->filled[1] & ~UINT64_C(0) << (list < 64 ? 0 : list - 64);
    return lists ? p->heads[64 + __builtin_ctzll(lists)] : NONE;
}

void *pieces_take(struct pieces *p, uint32_t n, uint32_t *ret_first)
{
    uint32_t run = look(p, n);
    if (run == NONE)
        run = head_from(p, list_above(n));
    if (run == NONE)
        return NULL;
    cut(p, run, run, n);
    *ret_first = run & (p->grains - 1);
    return slot_of(p, run)->chunk;
}

bool pieces_take_at(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n)
{
    if (slot >= p->n_slots || !p->slots[slot].chunk || n == 0 || first >= p->grains ||
        n > p->grains - first)
        return false;
    const struct node *nodes = p->slots[slot].nodes;
    uint32_t begin = first;
    while (begin > 0 && nodes[begin].begins == 0)
        begin--;
    if (nodes[begin].begins < first - begin + n)
        return false;
    const uint32_t block = slot << p->highest;
    cut(p, block + begin, block + first, n);
    return true;
}

bool pieces_give(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n)
{
    const uint32_t block = slot << p->highest;
    struct slot *s = &p->slots[slot];
    uint32_t begin = first, end = first + n;
    count(p, s, n);
    if (begin > 0 && s->nodes[begin - 1].ends) {
        begin -= s->nodes[begin - 1].ends;
        (void)remove_run(p, block + begin);
    }
    if (end < p->grains && s->nodes[end].begins)
        end += remove_run(p, block + end);
    if (s->free < p->grains) {
        add_run(p, block + begin, end - begin);
        return false;
    }
    count(p, s, -(int64_t)p->grains);
    mem_free(s->nodes);
    *s = (struct slot){0};
    return true;
}

/* --- closed chunks --- */

uint32_t pieces_left(const struct pieces *p, uint32_t slot)
{
    return p->slots[slot].free;
}

uint64_t pieces_left_open(const struct pieces *p)
{
    return p->free;
}

bool pieces_is_closed(const struct pieces *p, uint32_t slot)
{
    return p->slots[slot].closed;
}

void pieces_close(struct pieces *p, uint32_t slot, bool closed)
{
    struct slot *s = &p->slots[slot];
    uint32_t at = 0;
    if (s->closed == closed)
        return;
    for (uint32_t run = next_run(p, slot, &at); run != NONE; run = next_run(p, slot, &at))
        (closed ? unlink_run : link_run)(p, run);
    p->free = closed ? p->free - s->free : p->free + s->free;
    s->closed = closed;
}
