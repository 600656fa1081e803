/* The form steps: whether several steps of a kernel can be done in one pass over memory, how many
 * pay, and how the work is cut.
 *
 * A step may read elements of a field (an input that an output feeds) one away along each axis, in
 * three dimensions two: more rows and columns are computed than are stored, and the levels between
 * load and store stay in registers, or, of the first one, older planes in shared memory. Inputs
 * that do not change from step to step are read again by each. Regions may end anywhere. The axes
 * are the kernel's own.
 *
 * How many: more steps take fewer passes over memory, until arithmetic, which they do not save,
 * takes as long, or registers run out. */
#include "compute/gpu/text/form_kinds.h"

#include <stdlib.h>

#define MOST_STEPS 8
#define MOST_REACH 2 /* in three dimensions */
#define MOST_ROWS  5 /* per thread in three dimensions */
#define WARP       32
#define REGISTERS  245 /* that may be requested, of 255 */

/* An H200, in cycles: other GPUs are similar enough for choosing among a few options. */
#define PROCESSORS   FORM_PROCESSORS
#define MEMORY_RATE  1730.0 /* bytes per cycle, for many readers with a little overlap */
#define LAUNCH       3300.0
#define SHARED_BYTES 49152 /* per block, by default */

static const char not_all_fed[] = "the next step does not read every result",
                  other_layout[] = "a field and its next step have different layouts",
                  too_far[] = "a field is read at offsets beyond 1",
                  much_too_far[] = "a field is read too far away: at offsets beyond 2",
                  odd_edge[] = "a field is read beyond its edge with two boundaries",
                  ghosts[] = "a field's ghost cells are read",
                  chains[] = "a field or region is a shift of a shift, a slice or a permutation",
                  other_moves[] = "a constant array is read at an offset",
                  gathers[] = "a field is gathered from",
                  other_view[] = "a field is read in two layouts",
                  odd_rank[] = "arrays have more than 3 axes, or none",
                  diagonal[] = "a field is read diagonally",
                  small[] = "a mirrored axis is too short",
                  indices[] = "index() is used inside a shift",
                  too_dear[] = "arithmetic already takes longer than memory",
                  no_shared[] = "this GPU has too little shared memory for more",
                  most[] = "the most steps that one pass makes",
                  too_long[] = "the middle axis is too long for a grid of blocks",
                  no_registers[] = "more fields than registers can hold";

static struct form_field *field_of(const struct form *f, uint32_t input)
{
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        if (f->steps.fields[i].input == input)
            return &f->steps.fields[i];
    return NULL;
}

/* --- whether several steps are possible --- */

/* An input that shares a field's memory without being the field would not see the last step's
 * result. */
static const char *check_others(const struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        for (uint32_t j = 0; j < z->f->steps.n_fields && !field_of(z->f, i); j++)
            if (k->inputs[i].slot == k->inputs[z->f->steps.fields[j].input].slot)
                return k->inputs[i].gathered ? gathers : other_view;
    return NULL;
}

static const char *list_fields(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    struct form *f = z->f;
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        if (o->kind != OUT_STORE || o->feeds == 0 || field_of(f, o->feeds - 1))
            return not_all_fed;
        const struct ir_input *in = &k->inputs[o->feeds - 1];
        if (in->gathered || in->dtype != o->dtype || in->view.rank != k->rank ||
            dtype_size(in->dtype) > 8)
            return other_layout;
        for (int a = 0; a < k->rank; a++)
            if (in->view.strides[a] != o->view.strides[a] && k->shape[a] > 1)
                return other_layout;
        if (o->view.strides[k->rank - 1] != 1)
            return other_layout;
        f->steps.fields[f->steps.n_fields++] =
            (struct form_field){.input = o->feeds - 1, .output = i};
    }
    return NULL;
}

/* A shift of the kernel's own points. */
static const char *check_shift(const struct ir_kernel *k, const struct ir_ctx *c)
{
    if (c->parent != 0 || c->rank != k->rank)
        return chains;
    if (c->mode == BOUNDARY_GHOST)
        return ghosts;
    for (int a = 0; a < k->rank; a++) {
        if (c->shape[a] != k->shape[a] || c->start[a] != 0)
            return chains;
        if (k->shape[a] > 1 && (c->src[a] != a || c->step[a] != 1))
            return chains;
    }
    return NULL;
}

/* One by which a field is read. */
static const char *check_read(const struct ir_kernel *k, const struct ir_ctx *c)
{
    const char *why = check_shift(k, c);
    for (int a = 0; !why && a < k->rank; a++)
        if (llabs(c->offset[a]) > (k->rank == 3 ? MOST_REACH : 1))
            why = k->rank == 3 ? much_too_far : too_far;
    return why;
}

/* Joins a field's modes at an edge: they must agree; where the value is replaced, any mode that
 * does not wrap will do. */
static bool join_mode(struct form_edge *e, enum boundary_mode mode, int far)
{
    bool any = mode == BOUNDARY_CONSTANT || mode == BOUNDARY_SELF;
    int before = e->reach;
    e->reach = far > before ? far : before;
    if (mode == BOUNDARY_SYMMETRIC && far == 1 && e->mode != BOUNDARY_SYMMETRIC)
        mode = BOUNDARY_CLAMP;
    if (mode == BOUNDARY_SYMMETRIC && before == 1 && !e->any && e->mode == BOUNDARY_CLAMP)
        e->mode = BOUNDARY_SYMMETRIC;
    if (mode == BOUNDARY_CLAMP && far == 1 && e->mode == BOUNDARY_SYMMETRIC)
        mode = BOUNDARY_SYMMETRIC;
    if (!before || (e->any && e->mode != BOUNDARY_WRAP && mode != BOUNDARY_WRAP)) {
        e->mode = any ? BOUNDARY_CLAMP : mode;
        e->any = any;
        return true;
    }
    return e->mode == mode || (any && e->mode != BOUNDARY_WRAP);
}

static const char *add_load(struct analysis *z, struct form_load *l)
{
    const struct ir_kernel *k = z->k;
    struct form_field *field = field_of(z->f, l->input);
    const struct ir_ctx *c = &k->ctxs[l->ctx];
    if (!field && l->ctx != 0)
        return other_moves;
    if (!field)
        return NULL;
    l->kind = LOAD_NEAR;
    l->near = (uint32_t)(field - z->f->steps.fields);
    const char *why = l->ctx ? check_read(k, c) : NULL;
    if (why || !l->ctx)
        return why;
    int moved = 0;
    for (int a = 0; a < k->rank; a++)
        moved += c->offset[a] != 0;
    if (moved > 1 && k->rank == 3)
        return diagonal;
    for (int a = 0; a < k->rank; a++) {
        int place = a + 3 - k->rank;
        if (c->offset[a] == 0)
            continue;
        l->step[place] = (int8_t)c->offset[a];
        int far = (int)llabs(c->offset[a]);
        if ((c->mode == BOUNDARY_REFLECT && k->shape[a] <= far) ||
            (c->mode == BOUNDARY_SYMMETRIC && k->shape[a] < far))
            return small;
        bool self = c->mode == BOUNDARY_SELF && (moved > 1 || far > 1);
        l->self |= self;
        enum boundary_mode mode = c->mode == BOUNDARY_SELF && !self ? BOUNDARY_CLAMP : c->mode;
        if (!join_mode(&field->edge[place], mode, far))
            return odd_edge;
    }
    return NULL;
}

/* An axis wraps for everything read along it, or for nothing. */
static const char *join_axes(struct analysis *z)
{
    struct form *f = z->f;
    for (int place = 0; place < 3; place++)
        for (int wraps = 1; wraps >= 0; wraps--)
            for (uint32_t i = 0; i < f->steps.n_fields; i++) {
                const struct form_edge *e = &f->steps.fields[i].edge[place];
                if (!e->reach || (e->mode == BOUNDARY_WRAP) != wraps)
                    continue;
                if (wraps)
                    f->steps.wraps[place] = true;
                else if (f->steps.wraps[place])
                    return odd_edge;
            }
    return NULL;
}

/* The furthest that a field is read along an axis, at least 1; 0 along one that wraps. */
static void set_near(struct form *f)
{
    for (int place = 0; place < 3; place++) {
        int *near = &f->steps.near[place];
        *near = !f->steps.wraps[place];
        for (uint32_t i = 0; *near && i < f->steps.n_fields; i++)
            if (f->steps.fields[i].edge[place].reach > *near)
                *near = f->steps.fields[i].edge[place].reach;
    }
}

/* A region may end anywhere, along the kernel's own axes. */
static const char *check_nodes(const struct ir_kernel *k)
{
    const char *why = NULL;
    for (uint32_t i = 0; !why && i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        if (n->kind == IR_INDEX && n->axis >= 0 && n->ctx != 0)
            why = indices;
        else if (n->kind == IR_INSIDE)
            why = check_shift(k, &k->ctxs[n->ctx]);
    }
    return why;
}

static const char *refusal(struct analysis *z)
{
    struct form *f = z->f;
    if (z->k->rank < 1 || z->k->rank > 3)
        return odd_rank;
    const char *why = list_fields(z);
    if (!why)
        why = check_others(z);
    for (uint32_t i = 0; !why && i < f->n_loads; i++)
        why = add_load(z, &f->loads[i]);
    if (!why)
        why = join_axes(z);
    set_near(f);
    return why ? why : check_nodes(z->k);
}

/* --- how many steps, how wide a patch --- */

/* Approximate instructions per point and step; bytes per pass. */
struct weight {
    double work, bytes;
};

static struct weight weigh(const struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    struct weight w = {.work = 1};
    for (uint32_t i = 0; i < k->n_nodes && k->rank != 2; i++) {
        const struct ir_node *n = &k->nodes[i];
        if (n->kind == IR_OP)
            w.work += op_cost((enum op)n->op, (enum dtype)n->src) *
                      (dtype_size((enum dtype)n->src) > 4 ? 2 : 1);
        else if (n->kind == IR_CAST || n->kind == IR_SELECT)
            w.work += 1;
        else if (n->kind == IR_RANDOM || n->kind == IR_GATHER || n->kind == IR_TABLE)
            w.work += 16;
        else if (n->kind == IR_LOAD && !field_of(z->f, n->input))
            w.work += 2;
        else if (n->kind == IR_INSIDE)
            w.work += form_pass_asking(z->f, k, n->ctx);
    }
    if (k->rank == 2)
        w.work = form_pass2d_work(z);
    for (uint32_t i = 0; i < z->f->steps.n_fields; i++)
        w.bytes += 2 * (double)dtype_size(k->inputs[z->f->steps.fields[i].input].dtype);
    for (int a = 0; a < k->rank; a++)
        w.bytes *= (double)k->shape[a];
    w.bytes /= z->f->members;
    return w;
}

/* Registers of a thread with that many elements: measured. */
static int registers(const struct analysis *z, int steps, int elements)
{
    const struct form *f = z->f;
    int n = 20;
    if (f->rank == 2)
        return form_pass2d_registers(z, steps, elements);
    if (f->rank == 1)
        steps = 2; /* one level, and the next computed from it */
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        const struct form_field *d = &f->steps.fields[i];
        int words = ((int)dtype_size(z->k->inputs[d->input].dtype) + 3) / 4;
        int kept = d->edge[3 - f->rank].reach ? 2 : 1;
        int own = steps * ((kept + 1) * elements + (d->edge[2].reach ? 3 : 0));
        n += words * own + (words > 1 ? 10 : 0);
    }
    return n;
}

int64_t form_steps_spans(int64_t n, bool wraps, int width, int halo)
{
    int64_t own = width - 2 * halo;
    if (wraps)
        return (n + own - 1) / own;
    return n <= width ? 1 : 1 + (n - width + own - 1) / own;
}

/* Elements copied at once: rows begin at multiples of them in all fields, and a copy's bytes, 16 at
 * most, at multiples of these. */
int form_steps_piece(const struct analysis *z, int elements)
{
    const struct ir_kernel *k = z->k;
    int piece = elements;
    for (; piece > 1; piece /= 2) {
        bool fits = k->shape[k->rank - 1] % piece == 0;
        for (uint32_t i = 0; i < z->f->steps.n_fields && fits; i++) {
            const struct form_field *d = &z->f->steps.fields[i];
            int64_t bytes = (int64_t)dtype_size(k->inputs[d->input].dtype) * piece;
            const struct view *in = &k->inputs[d->input].view, *out = &k->outputs[d->output].view;
            fits = bytes <= 16 && z->alignment % bytes == 0 && in->offset % piece == 0 &&
                   out->offset % piece == 0;
            for (int a = 0; a < k->rank - 1 && fits; a++)
                fits = in->strides[a] % piece == 0 || k->shape[a] == 1;
        }
        if (fits)
            break;
    }
    return piece;
}

static int64_t shared_bytes(const struct analysis *z)
{
    const struct form *f = z->f;
    int64_t width = (int64_t)f->lanes * f->elements, bytes = 0;
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        int64_t size = (int64_t)dtype_size(z->k->inputs[f->steps.fields[i].input].dtype);
        bytes += (f->steps.ahead + 1) * width * size * (f->threads / WARP);
    }
    return bytes;
}

/* A thread's instructions for one level of a round: the computation, and the loads and stores
 * beside a row. */
static double level_of(const struct form *f, double work)
{
    return 1.08 * f->elements * work + 8.0 * f->steps.n_fields + 4;
}

/* Sets a thread's patch and what follows from it; false if it does not fit. If an axis does not
 * wrap, its edge must also be a thread's: the axis is at least as wide as a block, or a multiple of
 * a thread's width. */
static bool set_patch(struct analysis *z, int steps, int elements, int rows)
{
    struct form *f = z->f;
    if (f->rank == 3)
        return form_pass3d_patch(z, steps, elements, rows);
    bool row = f->rank == 1;
    int64_t nx = f->shape[f->rank - 1];
    f->steps.n = steps;
    f->elements = elements;
    f->rows = rows;
    f->threads = row ? 4 * WARP : WARP;
    f->lanes = WARP;
    f->steps.piece = form_steps_piece(z, elements);
    f->steps.ahead = row ? 1 : form_pass2d_ahead(z);
    f->steps.halo = (steps + f->steps.piece - 1) / f->steps.piece * f->steps.piece;
    f->unroll = 3;
    int width = f->lanes * elements, taken = registers(z, steps, elements);
    f->steps.at_once = taken > 172 ? 8 : taken > 126 ? 12 : 16; /* 4 schedulers */
    if (row)
        f->steps.at_once = 4;
    if (taken > REGISTERS || 4 * f->steps.halo > width)
        return false;
    if (nx % elements && nx < width && !f->steps.wraps[2])
        return false;
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        if (dtype_size(z->k->inputs[f->steps.fields[i].input].dtype) * (size_t)elements > 32)
            return false;
    f->shared = shared_bytes(z);
    return f->shared <= SHARED_BYTES;
}

/* The extent of the axis along which a warp advances, on a GPU. */
static int64_t slow_extent(const struct form *f)
{
    return f->rank > 1 ? form_steps_rows(f) : 1;
}

/* Approximate cycles of a pass over parts of `part` rows or planes. */
static double part_cost(const struct form *f, double work, int64_t part)
{
    int64_t room = (int64_t)PROCESSORS * f->steps.at_once;
    int64_t blocks = (int64_t)f->grid[0] * f->grid[1] * ((slow_extent(f) + part - 1) / part);
    int64_t waves = (blocks + room - 1) / room, each = (blocks + PROCESSORS - 1) / PROCESSORS;
    each = each < f->steps.at_once ? each : f->steps.at_once;
    int64_t warps = (each * f->threads / WARP + 3) / 4; /* per scheduler */
    double level = level_of(f, work);
    double alone = level + 15, together = (double)warps * level * 1.1;
    if (warps < 4 && f->steps.n_fields > 1)
        together *= 1.2; /* measured */
    double round = f->steps.n * (alone > together ? alone : together) + 40;
    return (double)waves * (double)(f->rank == 1 ? 1 : part + 2 * f->steps.n) * round;
}

/* Chooses the rows of a warp, in three dimensions the planes of a block: as many of these as run
 * at once, in a few waves. Returns the cycles, in two dimensions with what memory takes. */
static double choose_part(struct analysis *z, const struct weight *w)
{
    struct form *f = z->f;
    if (f->rank == 3)
        return form_pass3d_part(f, w->work);
    int64_t n = slow_extent(f), room = (int64_t)PROCESSORS * f->steps.at_once;
    double least = -1;
    f->grid[0] = (unsigned)form_steps_spans(f->shape[f->rank - 1], f->steps.wraps[2],
                                            f->lanes * f->elements, f->steps.halo);
    if (f->rank == 1)
        f->grid[0] = form_blocks(f->grid[0], f->threads / WARP);
    f->grid[1] = 1;
    int64_t across = (int64_t)f->grid[0] * f->grid[1];
    if (f->rank == 2)
        least = form_pass2d_part(z, w->work, w->bytes);
    for (int64_t waves = 1; waves <= 8 && f->rank != 2; waves++) {
        /* a warp or two per scheduler, then as many as fit, then more than that */
        int64_t parts = (waves < 5 ? room * waves / 4 : room * (waves - 3)) / across;
        int64_t part = parts > 1 ? (n + parts - 1) / parts : n;
        if (part < 4)
            part = 4;
        while ((n + part - 1) / part > FORM_GRID)
            part *= 2;
        double cost = part_cost(f, w->work, part);
        if (least < 0 || cost < least * 0.98) {
            least = cost;
            f->steps.part = part;
        }
    }
    if (f->rank > 1)
        f->grid[1] = (unsigned)((f->shape[0] + f->steps.part - 1) / f->steps.part);
    f->grid[2] = 1;
    return least;
}

/* Why no patch fits. */
static const char *no_patch(const struct analysis *z, int steps)
{
    const struct form *f = z->f;
    const int tallest = FORM_BLOCK / (WARP / 2) * MOST_ROWS;
    bool too_many = f->rank == 3 && 4 * steps <= tallest &&
                    form_steps_spans(f->shape[1], f->steps.wraps[1], tallest, steps) > FORM_GRID;
    return too_many ? too_long : no_registers;
}

/* Finds the patch that takes the fewest cycles, and returns them; < 0 if none fits. */
static double choose_patch(struct analysis *z, int steps, const struct weight *w)
{
    struct form *f = z->f;
    double least = -1;
    int elements = 0, rows = 0;
    for (int e = 8; e >= 1; e /= 2)
        for (int r = f->rank == 3 ? MOST_ROWS : 1; r >= 1; r--) {
            if ((f->rank == 3 && e > 4) || !set_patch(z, steps, e, r))
                continue;
            double cost = choose_part(z, w);
            if (least < 0 || cost < least * 0.97) {
                least = cost;
                elements = e;
                rows = r;
            }
        }
    if (least < 0 || !set_patch(z, steps, elements, rows))
        return -1;
    return choose_part(z, w);
}

/* --- the form --- */

/* Takes the kernel's own axes; inputs that are not fields are read in place. */
static const char *begin(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    struct form *f = z->f;
    f->steps.fields = arena_alloc_array(z->arena, k->n_outputs + 1, sizeof *f->steps.fields);
    if (!f->steps.fields)
        return "";
    f->kind = FORM_STEPS;
    f->rank = k->rank;
    for (int a = 0; a < k->rank; a++) {
        f->shape[a] = k->shape[a];
        f->axis[a] = a;
    }
    for (uint32_t i = 0; i < k->n_inputs; i++)
        for (int a = 0; a < k->inputs[i].view.rank && !k->inputs[i].gathered; a++)
            f->strides[i][a] = k->inputs[i].view.strides[a];
    return refusal(z);
}

/* Sets how a step reads inputs that are not fields. */
static void classify(struct analysis *z)
{
    struct form *f = z->f;
    int x = f->rank - 1;
    for (uint32_t i = 0; i < f->n_loads; i++) {
        struct form_load *l = &f->loads[i];
        if (l->kind == LOAD_NEAR)
            continue;
        l->kind = f->strides[l->input][x] == 0 ? LOAD_ONCE : LOAD_EACH;
        if (l->kind == LOAD_EACH && f->shape[x] % f->elements == 0 &&
            f->steps.halo % f->elements == 0 && form_input_aligned(z, l->input, f->elements))
            l->kind = LOAD_VECTOR;
    }
}

const char *form_make_steps(struct analysis *z)
{
    struct form *f = z->f;
    const char *why = begin(z);
    if (why)
        return why;
    const struct weight w = weigh(z);
    if (choose_patch(z, (int)z->k->steps, &w) < 0)
        return no_patch(z, (int)z->k->steps);
    if (f->rank < 3)
        f->shared = 0; /* declared in the text */
    classify(z);
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
    return NULL;
}

uint32_t form_steps(struct arena *arena, const struct ir_kernel *k, int slot_alignment,
                    int64_t shared, int members, const char **ret_why)
{
    struct analysis z = {.arena = arena, .k = k, .alignment = slot_alignment, .shared = shared};
    *ret_why = "";
    if (!form_begin(&z))
        return 1;
    z.f->members = members;
    *ret_why = begin(&z);
    if (*ret_why)
        return 1;
    const struct form *f = z.f;
    struct weight w = weigh(&z);
    double least = 0;
    uint32_t best = 1;
    *ret_why = too_dear;
    for (int steps = 1; steps <= MOST_STEPS; steps++) {
        double cost = choose_patch(&z, steps, &w);
        if (cost < 0) {
            if (steps == 1 || best + 1 == (uint32_t)steps)
                *ret_why = no_patch(&z, steps);
            break;
        }
        if (f->shared > shared) {
            *ret_why = no_shared;
            break;
        }
        double memory = w.bytes / (w.bytes > FORM_CACHE_BYTES ? MEMORY_RATE : FORM_CACHE_RATE);
        if (f->rank != 2)
            cost += memory - 0.9 * (cost < memory ? cost : memory);
        cost = (LAUNCH + cost) / steps;
        if (steps == 1 || cost < least * (best == 1 ? 0.93 : 0.998)) {
            least = cost;
            best = (uint32_t)steps;
        }
    }
    if (best == MOST_STEPS)
        *ret_why = most;
    return best;
}
