/* Several steps in a pass over memory, by tiles whose fields stay in a core's cache from one step
 * to the next. A tile is cut along the slowest axis, and the next if there are three or more. For
 * each step but the last a tile computes as many more rows on either side as the steps after it
 * read, into scratch memory laid out like the array. Of a point each step computes what a single
 * step does: the same bits.
 *
 * The programs are those of single steps. Where a field's rows lie, in the array or in the scratch
 * memory, differs by a distance that is the same for all points of a piece: it is added to the
 * operands' addresses (interp_scratch.moves). */
#include <stdlib.h>

#include "compute/cpu/interp/interp_units.h"
#include "compute/cpu/interp/rows.h"

#define TILE_BYTES (INT64_C(3) << 18)  /* of a tile's fields: they share a core's cache */
#define CACHED     (INT64_C(24) << 20) /* fields of fewer bytes stay in the machine's caches */
#define MOST_STEPS 8
#define REACH_MOST 8
/* Time that a byte to or from memory costs, in units of op_cost: what single steps wait for it. */
#define BYTE_COST 2.0
/* Of the time of a step that several of them must save. */
#define WORTH 0.9

static const char other_work[] = "a step is not elementwise",
                  other_layout[] = "a field and its next step have different layouts",
                  across[] = "an operand is read across its rows",
                  chains[] = "a field is read through a shift of a shift, a slice or a permutation",
                  ghosts[] = "a field's ghost cells are read",
                  diagonal[] = "a field is read diagonally with the boundary 'self'",
                  too_far[] = "a field is read too far away",
                  gathers[] = "a field is gathered from, or read in two layouts",
                  too_many[] = "there are too many boundary cases",
                  cached[] = "the arrays stay in the processor's caches",
                  too_wide[] = "a row of the arrays is too long for a core's cache",
                  too_dear[] = "arithmetic takes longer than memory",
                  most[] = "more would compute too much twice";

/* --- whether it is possible --- */

/* Which output's field a load reads or a store writes; -1: none. */
static int field_of(const struct interp_run *r, const struct operand *o)
{
    const struct ir_kernel *k = r->k;
    if (o->kind == OPERAND_STORE)
        return (int)o->node;
    for (uint32_t j = 0; j < k->n_outputs && o->kind == OPERAND_LOAD; j++)
        if (k->outputs[j].feeds == k->nodes[o->node].input + 1)
            return (int)j;
    return -1;
}

/* A field's load: adds to how far the tiled axes are read. */
static const char *check_load(struct interp_run *r, const struct operand *o)
{
    const struct ir_kernel *k = r->k;
    const struct ir_ctx *c = &k->ctxs[o->ctx];
    int shifted = 0;
    if (!interp_is_dense(r, o))
        return other_layout;
    if (o->ctx == 0)
        return NULL;
    if (c->parent != 0 || c->rank != k->rank)
        return chains;
    if (c->mode == BOUNDARY_GHOST)
        return ghosts;
    for (int a = 0; a < k->rank; a++)
        if (c->shape[a] != k->shape[a] || c->start[a] != 0 ||
            (k->shape[a] > 1 && (c->src[a] != a || c->step[a] != 1)))
            return chains;
    for (int a = 0; a < k->rank; a++)
        shifted += c->offset[a] != 0;
    if (c->mode == BOUNDARY_SELF && shifted > 1)
        return diagonal; /* which row is read depends on the other axes */
    for (int t = 0; t < r->steps.n_axes; t++) {
        struct steps_axis *x = &r->steps.axes[t];
        const int64_t far = llabs(c->offset[x->axis]);
        if (far > REACH_MOST || 2 * far >= x->n)
            return too_far;
        x->reach = far > x->reach ? far : x->reach;
        x->wraps |= far > 0 && c->mode == BOUNDARY_WRAP;
    }
    return NULL;
}

static const char *check(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    if (r->reduces || r->scan || r->n_order == 0 || r->points == 0)
        return other_work;
    if (r->pointwise)
        return too_many;
    if (r->mode == MODE_TILE)
        return across;
    r->steps.n_axes = r->n_order > 2 ? 2 : 1;
    for (int t = 0; t < r->steps.n_axes; t++)
        r->steps.axes[t] =
            (struct steps_axis){.axis = r->order[t], .n = k->shape[r->order[t]], .tiles = 1};
    for (uint32_t i = 0; i < k->n_inputs; i++)
        for (uint32_t j = 0; j < k->n_outputs; j++)
            if (k->outputs[j].feeds != i + 1 &&
                (k->outputs[j].feeds == 0 ||
                 k->inputs[i].slot == k->inputs[k->outputs[j].feeds - 1].slot))
                return gathers;
    for (uint32_t i = 0; i < r->n_operands; i++) {
        const struct operand *o = &r->operands[i];
        const char *why = field_of(r, o) < 0         ? NULL
                          : o->kind == OPERAND_STORE ? (interp_is_dense(r, o) ? NULL : other_layout)
                                                     : check_load(r, o);
        if (why)
            return why;
    }
    return NULL;
}

/* --- how the work is cut --- */

/* Rows along the axis that a tile computes for a step which `after` steps follow. */
static int64_t rows_of(const struct steps_axis *x, int64_t after)
{
    return x->tile == x->n ? x->n : x->tile + 2 * x->reach * after;
}

/* Cuts the axis into tiles of at most `rows`, all about as long. */
static void cut(struct steps_axis *x, int64_t rows)
{
    x->tiles = ceil_div(x->n, rows < 1 ? 1 : rows);
    x->tile = ceil_div(x->n, x->tiles);
    x->tiles = ceil_div(x->n, x->tile);
}

/* Points computed for each that is stored, per step. */
static double repeated(const struct interp_run *r, uint32_t steps)
{
    double all = 0, tile = 1;
    for (uint32_t after = 0; after < steps; after++) {
        double points = 1;
        for (int t = 0; t < r->steps.n_axes; t++)
            points *= (double)rows_of(&r->steps.axes[t], after);
        all += points;
    }
    for (int t = 0; t < r->steps.n_axes; t++)
        tile *= (double)r->steps.axes[t].tile;
    return all / tile / steps;
}

/* The tiles for so many steps that compute the least twice; there are some for each thread. */
static double choose_tiles(struct interp_run *r, uint32_t steps, int threads)
{
    struct steps_axis *slow = &r->steps.axes[0], *next = &r->steps.axes[1];
    const int n_axes = r->steps.n_axes;
    const int64_t inner = product(r, r->k->shape, n_axes, r->n_order), want = 3 * (int64_t)threads;
    const int64_t room = TILE_BYTES / (interp_item_bytes(r) * (steps > 2 ? 2 : 1) * inner);
    double best = 0;
    struct steps_axis found[2] = {*slow, *next};
    int64_t pieces = 1;
    do {
        int64_t wide = 1;
        if (n_axes > 1) {
            cut(next, ceil_div(next->n, pieces));
            wide = rows_of(next, steps - 1);
        }
        const int64_t share = ceil_div(slow->n * pieces, want);
        const int64_t fits = room / wide - 2 * slow->reach * (steps - 1);
        cut(slow, fits < share ? fits : share);
        const double now = repeated(r, steps);
        if (best == 0 || now < best) {
            best = now;
            found[0] = *slow;
            found[1] = *next;
        }
        pieces *= 2;
    } while (n_axes > 1 && pieces <= next->n);
    *slow = found[0];
    *next = found[1];
    return best;
}

/* Points of a tile that are kept between its steps. */
static int64_t kept_points(const struct interp_run *r, uint32_t steps)
{
    int64_t points = product(r, r->k->shape, r->steps.n_axes, r->n_order);
    for (int t = 0; t < r->steps.n_axes; t++)
        points *= rows_of(&r->steps.axes[t], steps - 1);
    return points;
}

uint32_t interp_best_steps(const struct ir_kernel *k, void *const *slots, int threads,
                           const char **ret_why)
{
    struct interp_run *r = interp_new(k, slots, threads);
    uint32_t steps = 1;
    *ret_why = r ? check(r) : other_work;
    if (*ret_why || r->points * interp_item_bytes(r) < CACHED / 2) {
        *ret_why = *ret_why ? *ret_why : cached;
        interp_free(r);
        return 1;
    }
    const double cost = (double)r->point_cost;
    const double moved =
        BYTE_COST * (double)(ir_bytes_read(k) + ir_bytes_written(k)) / (double)r->points;
    double best = WORTH * (cost + moved);
    *ret_why = too_dear;
    for (uint32_t n = 2; n <= MOST_STEPS; n++) {
        const double now = cost * choose_tiles(r, n, threads) + moved / n;
        if (kept_points(r, n) > 2 * TILE_BYTES / (interp_item_bytes(r) * (n > 2 ? 2 : 1))) {
            *ret_why = steps == 1 ? too_wide : *ret_why; /* a tile has a row at least */
            break;
        }
        if (now >= best)
            continue;
        best = now;
        steps = n;
        *ret_why = most;
    }
    interp_free(r);
    return steps;
}

/* --- planning --- */

/* Where operand i of a box is read: at its corner, and how that moves with the axis. */
struct steps_place {
    int64_t at, step;
};

static struct steps_place *place_of(const struct run_steps *s, uint32_t n_operands, int64_t box,
                                    uint32_t i)
{
    return &s->places[(box * n_operands + i) * 2];
}

static bool find_places(struct interp_run *r)
{
    const size_t n = (size_t)r->n_boxes * r->n_operands * 2, coords = r->ctx.coords;
    r->steps.places = arena_alloc_array(r->arena, n, sizeof *r->steps.places);
    int64_t *here = arena_alloc_array(r->arena, 2 * coords, sizeof *here);
    if (!r->steps.places || !here)
        return false;
    for (int64_t box = 0; box < r->n_boxes; box++) {
        int64_t lo[MAX_RANK], ext[MAX_RANK];
        interp_box(r, box, lo, ext);
        interp_coords(r, lo, here, NULL);
        for (int t = 0; t < r->steps.n_axes; t++) {
            const int a = r->steps.axes[t].axis;
            lo[a] += ext[a] > 1;
            interp_coords(r, lo, here + coords, NULL);
            lo[a] -= ext[a] > 1;
            for (uint32_t i = 0; i < r->n_operands; i++) {
                const size_t at = r->ctx.at[r->operands[i].ctx] + (size_t)a;
                if (r->steps.field[i] >= 0)
                    place_of(&r->steps, r->n_operands, box, i)[t] =
                        (struct steps_place){here[at], here[coords + at] - here[at]};
            }
        }
    }
    return true;
}

bool interp_steps_plan(struct interp_run *r, int threads)
{
    struct run_steps *x = &r->steps;
    x->n = r->k->steps;
    if (check(r))
        return false; /* not what interp_best_steps allows */
    (void)choose_tiles(r, x->n, threads);
    x->field = arena_alloc_array(r->arena, r->n_operands, sizeof *x->field);
    x->buffers = arena_alloc_array(r->arena, r->k->n_outputs, sizeof *x->buffers);
    if (!x->field || !x->buffers)
        return false;
    for (uint32_t i = 0; i < r->n_operands; i++)
        x->field[i] = field_of(r, &r->operands[i]);
    x->inner = product(r, r->k->shape, x->n_axes, r->n_order);
    const int64_t points = kept_points(r, x->n);
    r->n_units = 1;
    for (int t = 0; t < x->n_axes; t++)
        r->n_units *= x->axes[t].tiles;
    for (uint32_t j = 0; j < r->k->n_outputs; j++) {
        x->buffers[j] = x->bytes;
        x->bytes += ALIGNED((size_t)points * dtype_size(r->k->outputs[j].dtype));
    }
    x->moves = (r->n_operands * sizeof(int64_t) + 63) & ~(size_t)63;
    r->needs.tiles = x->moves + x->bytes * (x->n > 2 ? 2 : 1) + 64;
    if (!find_places(r))
        return false;
    /* The first step reads from memory, the last writes to it. */
    for (int i = 0; i < 2; i++) {
        struct interp_run *level = arena_dup(r->arena, r, sizeof *r);
        if (!level)
            return false;
        level->steps.n = 0;
        level->id = interp_next_id();
        level->stream = false;
        level->large = r->large && i == 0;
        x->levels[i] = level;
    }
    r->large = false;
    return true;
}

/* --- running --- */

/* A tile at work. */
struct tile {
    const struct run_steps *steps;
    struct interp_run *run; /* the program of the current step */
    struct interp_scratch *scratch;
    uint32_t step;
    int64_t origin[2]; /* the first row in the scratch memory */
    int64_t *moves;
    char *buffers;
};

/* A range of rows of an axis, all within the array; they lie `turn` rows further in the scratch
 * memory, where the array goes on beyond its ends. */
struct stretch {
    int64_t from, to, turn;
};

/* Rows `at` of the array as seen from row `here`, `turn` further: the next of all that mean them.
 */
static int64_t unturned(const struct steps_axis *x, int64_t at, int64_t here, int64_t turn)
{
    if (x->tile == x->n || !x->wraps)
        return at;
    const int64_t apart = at - here;
    return at + turn + (2 * apart > x->n ? -x->n : 2 * apart < -x->n ? x->n : 0);
}

static void set_moves(const struct tile *t, int64_t box, const int64_t *lo,
                      const struct stretch *at)
{
    const struct interp_run *r = t->run;
    const struct run_steps *s = t->steps;
    for (uint32_t i = 0; i < r->n_operands; i++) {
        const int field = s->field[i];
        const struct operand *o = &r->operands[i];
        const bool stores = o->kind == OPERAND_STORE;
        t->moves[i] = 0;
        if (field < 0 || (stores ? t->step + 1 == s->n : t->step == 0))
            continue;
        char *base = t->buffers + s->buffers[field] + ((t->step + !stores) & 1 ? s->bytes : 0);
        int64_t elements = 0;
        for (int a = 0; a < s->n_axes; a++) {
            const struct steps_axis *x = &s->axes[a];
            const struct steps_place p = place_of(s, r->n_operands, box, i)[a];
            const int64_t here = at[a].from, c = p.at + p.step * (here - lo[x->axis]);
            const int64_t row = unturned(x, c, here, at[a].turn) - t->origin[a];
            elements = elements * (a ? rows_of(x, s->n - 1) : 1) + row;
            base -= c * o->strides[x->axis] * o->itemsize;
        }
        t->moves[i] = base - o->base + elements * s->inner * o->itemsize;
    }
}

/* The points of a box in such rows of the tiled axes. */
static void run_box(struct tile *t, int64_t box, const int64_t *lo, const int64_t *ext,
                    const struct stretch *at)
{
    struct interp_run *r = t->run;
    const struct run_steps *s = t->steps;
    const struct steps_axis *slow = &s->axes[0], *next = &s->axes[1];
    const int end = r->n_order - (r->mode == MODE_GROUPED);
    struct stretch part[2];
    for (int a = 0; a < s->n_axes; a++) {
        const int64_t from = lo[s->axes[a].axis], to = from + ext[s->axes[a].axis];
        part[a] = at[a];
        part[a].from = at[a].from > from ? at[a].from : from;
        part[a].to = at[a].to < to ? at[a].to : to;
        if (part[a].from >= part[a].to)
            return;
    }
    const int64_t z = part[0].from - lo[slow->axis], rows = product(r, ext, 1, end);
    if (s->n_axes < 2 || next->tile == next->n) {
        set_moves(t, box, lo, part);
        interp_store_rows(r, box, z * rows, (part[0].to - lo[slow->axis]) * rows, t->scratch);
        return;
    }
    /* Neighbouring planes are as far apart as in the array there, and nearer here. */
    const int64_t inner = product(r, ext, 2, end), y = part[1].from - lo[next->axis];
    const int64_t n = (part[1].to - part[1].from) * inner;
    for (int64_t i = z; part[0].from < part[0].to; part[0].from++, i++) {
        set_moves(t, box, lo, part);
        interp_store_rows(r, box, i * rows + y * inner, i * rows + y * inner + n, t->scratch);
    }
}

static void run_boxes(struct tile *t, const struct stretch *at)
{
    for (int64_t box = 0; box < t->run->n_boxes; box++) {
        int64_t lo[MAX_RANK], ext[MAX_RANK];
        interp_box(t->run, box, lo, ext);
        run_box(t, box, lo, ext, at);
    }
}

/* Rows [from, to), which may lie beyond the array's ends: first those of one turn, then the next.
 */
static struct stretch stretch_from(const struct steps_axis *x, int64_t from, int64_t to)
{
    const int64_t turn = (from < 0 ? -ceil_div(-from, x->n) : from / x->n) * x->n;
    const int64_t end = to < turn + x->n ? to : turn + x->n;
    return (struct stretch){from - turn, end - turn, turn};
}

void interp_steps_unit(struct interp_run *r, int64_t unit, struct interp_scratch *scratch)
{
    const struct run_steps *s = &r->steps;
    struct tile t = {.steps = s, .scratch = scratch};
    int64_t from[2] = {0, 0}, to[2] = {1, 1}; /* of the last step */
    t.moves = (int64_t *)(void *)ALIGNED((uintptr_t)scratch->tiles);
    t.buffers = (char *)t.moves + s->moves;
    scratch->moves = t.moves;
    for (int a = s->n_axes - 1; a >= 0; a--) {
        const struct steps_axis *x = &s->axes[a];
        from[a] = unit % x->tiles * x->tile;
        to[a] = from[a] + x->tile < x->n ? from[a] + x->tile : x->n;
        unit /= x->tiles;
        t.origin[a] = x->tile == x->n ? 0 : from[a] - x->reach * (s->n - 1);
    }
    for (t.step = 0; t.step < s->n && !interp_given_up(r); t.step++) {
        int64_t lo[2] = {0, 0}, hi[2] = {1, 1};
        t.run = t.step + 1 == s->n ? r : s->levels[t.step > 0];
        for (int a = 0; a < s->n_axes; a++) {
            const struct steps_axis *x = &s->axes[a];
            const int64_t more = x->tile == x->n ? 0 : x->reach * (s->n - 1 - t.step);
            lo[a] = x->wraps || from[a] > more ? from[a] - more : 0;
            hi[a] = x->wraps || x->n - to[a] > more ? to[a] + more : x->n;
        }
        struct stretch at[2] = {{0, 0, 0}, {0, 1, 0}};
        for (int64_t z = lo[0]; z < hi[0]; z = at[0].turn + at[0].to) {
            at[0] = stretch_from(&s->axes[0], z, hi[0]);
            for (int64_t y = lo[1]; y < hi[1]; y = at[1].turn + at[1].to) {
                if (s->n_axes > 1)
                    at[1] = stretch_from(&s->axes[1], y, hi[1]);
                run_boxes(&t, at);
            }
        }
    }
    if (r->stream)
        rows_stream_end();
    scratch->moves = NULL;
}

void interp_steps_describe(const struct interp_run *r, struct strb *out)
{
    const struct run_steps *s = &r->steps;
    strb_addf(out, "# %u steps in each tile of", (unsigned)s->n);
    for (int a = 0; a < s->n_axes; a++)
        strb_addf(out, "%s %lld along axis %d", a ? " and" : "", (long long)s->axes[a].tile,
                  s->axes[a].axis);
    strb_addf(out, ", %.2f points computed for each\n", repeated(r, s->n));
}
