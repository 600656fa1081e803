/* Keeps bound programs: in a thread's scratch, and with a run.
 *
 * Binding costs some tens of nanoseconds per node. A scratch holds its last few programs (units of
 * one box follow each other), each with its own registers.
 *
 * In a loop of small kernels binding would cost more than running them. There the run keeps the
 * programs of each scratch, and a pass only reloads the pinned registers filled from memory. The
 * other registers hold nothing from one block to the next and share one piece of the scratch, which
 * therefore stays in L1 whichever program runs. It may move as it grows; programs are updated then.
 */
#include <string.h>

#include "compute/base/mem.h"
#include "compute/cpu/interp/interp_bind.h"

/* What a scratch may keep for a run: a few dozen boxes, or fewer with long blocks. */
#define KEPT_PROGRAMS 512
#define KEPT_BYTES    (INT64_C(256) << 10)

/* Grows *p to at least `size` bytes; contents are lost. */
static bool reserve(void *pp, size_t *have, size_t size)
{
    void **p = pp;
    if (*have >= size)
        return true;
    /* mem.h has no aligned allocation: ALIGNED finds the aligned start again. */
    void *q = mem_alloc(size + size / 2 + 64);
    if (!q)
        return false;
    mem_free(*p);
    *p = q;
    *have = size + size / 2;
    return true;
}

/* With known contents: what a step computes for no use it computes of anything. */
static bool reserve_tiles(struct interp_scratch *s, size_t size)
{
    const bool grows = s->tiles_size < size;
    if (!reserve(&s->tiles, &s->tiles_size, size))
        return false;
    if (grows)
        memset(s->tiles, 0, s->tiles_size);
    return true;
}

struct interp_scratch *interp_scratch_new(int number)
{
    struct interp_scratch *s = mem_calloc(1, sizeof *s);
    if (s)
        s->number = number;
    return s;
}

void interp_scratch_free(struct interp_scratch *s)
{
    if (!s)
        return;
    for (int i = 0; i < BOUND_SLOTS; i++) {
        mem_free(s->slots[i].memory);
        mem_free(s->slots[i].registers);
    }
    mem_free(s->registers);
    mem_free(s->reduce);
    mem_free(s->staging);
    mem_free(s->tiles);
    mem_free(s);
}

/* How many programs a unit may have bound at a time, each in its own slot. */
static int programs(const struct interp_run *r)
{
    if (r->mode == MODE_GROUPED) {
        const int32_t n = r->n_cuts[r->order[r->n_order - 1]] + 1;
        return n < BOUND_SLOTS ? n : BOUND_SLOTS;
    }
    if (r->split || r->boxes_per_group < 2)
        return 1;
    return r->boxes_per_group < BOUND_SLOTS ? (int)r->boxes_per_group : BOUND_SLOTS;
}

bool interp_fit(const struct interp_run *r, struct interp_scratch *s)
{
    for (int i = 0; i < programs(r); i++) {
        struct bound *b = &s->slots[i];
        if (b->memory_size >= r->needs.carved && b->registers_size >= r->needs.registers)
            continue;
        b->run_id = 0; /* it lies in the memory freed here */
        if (!reserve(&b->memory, &b->memory_size, r->needs.carved) ||
            !reserve(&b->registers, &b->registers_size, r->needs.registers))
            return false;
    }
    for (uint32_t i = 0; i < r->stages.n; i++)
        if (!interp_fit(r->stages.runs[i], s))
            return false;
    if (r->stages.n)
        return reserve_tiles(s, r->needs.tiles);
    if ((r->kept.at || r->steps.n) &&
        !reserve(&s->registers, &s->registers_size, r->needs.registers))
        return false;
    return reserve(&s->reduce, &s->reduce_size, r->needs.accumulators) &&
           reserve(&s->staging, &s->staging_size, r->needs.staging) &&
           reserve_tiles(s, r->needs.tiles) && (!r->beside || interp_fit(r->beside, s));
}

/* Sets which run and box the program belongs to. */
static void address(struct bound *b, const struct interp_run *r, int64_t box, bool overrun)
{
    b->run = r;
    b->pass = r->kept.pass;
    b->box = box * 2 + overrun;
    b->overrun = overrun;
    if (r->mode == MODE_GROUPED) {
        int fast = r->order[r->n_order - 1];
        int64_t c = box % r->n_cuts[fast];
        interp_box(r, box / r->n_cuts[fast], b->lo, b->box_ext);
        b->lo[fast] = r->cuts[fast][c];
        b->box_ext[fast] = r->cuts[fast][c + 1] - b->lo[fast];
    } else {
        interp_box(r, box, b->lo, b->box_ext);
    }
}

/* ---- kept programs ---- */

void interp_keep(struct interp_run *r, int n)
{
    for (int i = 0; i < 2 && r->steps.n; i++)
        interp_keep(r->steps.levels[i], n);
    for (uint32_t i = 0; i < r->stages.n; i++)
        interp_keep(r->stages.runs[i], n);
    if (r->stages.n)
        return;
    r->kept.n = 2 * r->n_boxes;
    if (r->mode == MODE_GROUPED)
        r->kept.n *= r->n_cuts[r->order[r->n_order - 1]];
    if (r->kept.n > KEPT_PROGRAMS)
        return;
    r->kept.left = arena_alloc_array(r->arena, (size_t)n, sizeof *r->kept.left);
    struct bound **kept =
        arena_alloc_array(r->arena, (size_t)(n * r->kept.n) + 1, sizeof(struct bound *));
    if (!r->kept.left || !kept)
        return;
    for (int i = 0; i < n; i++)
        r->kept.left[i] = KEPT_BYTES;
    r->kept.at = kept;
    r->kept.n_keepers = n;
}

bool interp_binds_often(const struct interp_run *r)
{
    return r->steps.n || r->stages.n;
}

static void forget(struct bound *b)
{
    if (b)
        mem_free(b->registers);
    mem_free(b);
}

void interp_forget(struct interp_run *r)
{
    for (int i = 0; i < 2 && r->steps.n; i++)
        if (r->steps.levels[i])
            interp_forget(r->steps.levels[i]);
    for (int64_t i = 0; r->kept.at && i < r->kept.n_keepers * r->kept.n; i++)
        forget(r->kept.at[i]);
}

/* A program in memory of its own; NULL without memory. */
static struct bound *keep(const struct interp_run *r, int64_t box, bool overrun,
                          struct interp_scratch *s)
{
    int64_t *left = &r->kept.left[s->number];
    if (*left < (int64_t)r->needs.carved)
        return NULL;
    struct bound *b = mem_calloc(1, sizeof *b + r->needs.carved);
    if (!b)
        return NULL;
    b->memory = b + 1;
    b->memory_size = r->needs.carved;
    address(b, r, box, overrun);
    interp_write_program(b);
    b->registers_size = b->n_pinned * b->stride + 64;
    const int64_t size = (int64_t)(sizeof *b + r->needs.carved + b->registers_size);
    if (size <= *left)
        b->registers = mem_alloc(b->registers_size);
    if (!b->registers) {
        forget(b);
        return NULL;
    }
    *left -= size;
    return b;
}

static struct bound *kept_program(const struct interp_run *r, int64_t box, bool overrun,
                                  struct interp_scratch *s)
{
    struct bound **at = &r->kept.at[s->number * r->kept.n + box * 2 + overrun], *b = *at;
    char *shared = (char *)ALIGNED((uintptr_t)s->registers);
    if (!b) {
        b = keep(r, box, overrun, s);
        if (!b)
            return NULL;
        interp_place_registers(b, shared);
        interp_fill_pinned(b, false);
        return *at = b;
    }
    if (b->shared != shared)
        interp_place_registers(b, shared);
    return b;
}

/* Reloads what the pinned registers took from memory in the pass before. */
static void reread(struct bound *b)
{
    b->pass = b->run->kept.pass;
    if (!b->reloads)
        return;
    memset(b->filled_n, 0, b->run->n_operands * sizeof *b->filled_n);
    interp_fill_pinned(b, true);
}

/* Moves the operands. What lies there may be new. */
static void move(struct bound *b, const int64_t *moves)
{
    for (uint32_t i = 0; i < b->run->n_operands; i++) {
        b->g.at[i] += moves[i] - b->moved[i];
        b->moved[i] = moves[i];
    }
    reread(b);
}

struct bound *interp_bind(const struct interp_run *r, int64_t box, bool overrun, int slot,
                          struct interp_scratch *s)
{
    struct bound *b = r->kept.at ? kept_program(r, box, overrun, s) : NULL;
    if (!b) {
        b = &s->slots[slot];
        if (b->run_id != r->id || b->box != box * 2 + overrun) {
            b->run_id = 0;
            address(b, r, box, overrun);
            interp_write_program(b);
            interp_place_registers(b, (char *)ALIGNED((uintptr_t)b->registers) +
                                          b->n_pinned * b->stride);
            interp_fill_pinned(b, false);
            b->run_id = r->id;
        }
    }
    b->fetch = r->fetches ? &s->fetch : NULL;
    if (s->moves)
        move(b, s->moves);
    else if (b->pass != r->kept.pass)
        reread(b);
    return b;
}
