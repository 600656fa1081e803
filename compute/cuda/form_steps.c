/* The form steps: whether several steps of a kernel can be made in one pass over memory, how many
 * pay, and how the work is cut.
 *
 * What a step reads of a field (an input that an output feeds) may be one element away along each
 * axis: a warp computes a few rows and columns more than it stores, and the levels between memory
 * and memory stay in registers. What does not change from step to step is read again by each. The
 * axes are the kernel's own.
 *
 * How many: more steps take fewer passes over memory until arithmetic, which they do not save,
 * takes as long, or registers end. */
#include "compute/cuda/form_int.h"

#include <stdlib.h>

#define MOST_STEPS     8
#define WARP           32
#define QUEUE          4   /* rows of a field on their way, at least one */
#define REGISTERS      232 /* that may be asked for, of 255 */
#define OTHER_REGS     40  /* addresses, counters, what an expression needs on its way */
#define PROCESSORS     132
#define PROCESSOR_REGS 65536
#define SHARED_BYTES   49152

static const char not_all_fed[] = "not every result is read back by the next step",
                  other_layout[] = "a field does not lie as its next step does",
                  too_far[] = "a field is read more than 1 element away",
                  odd_edge[] = "a field is read beyond its edge in two ways",
                  ghosts[] = "a field is read beyond its edge, where its ghosts are",
                  chains[] = "a field is read through a shift of a shift, a slice or a permutation",
                  other_moves[] = "an array that does not change is read beside its place",
                  gathers[] = "a field is gathered from",
                  other_view[] = "a field is read in two layouts",
                  odd_rank[] = "arrays have no 2 axes",
                  small[] = "an axis along which is mirrored has 1 element",
                  indices[] = "the index is asked for behind a shift",
                  too_dear[] = "arithmetic takes longer than memory already",
                  no_registers[] = "so many fields do not fit registers";

static struct form_field *field_of(const struct form *f, uint32_t input)
{
    for (uint32_t i = 0; i < f->n_fields; i++)
        if (f->fields[i].input == input)
            return &f->fields[i];
    return NULL;
}

/* --- whether --- */

/* What is no field, but the memory of one, would not be what the last step made. */
static const char *check_others(const struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        for (uint32_t j = 0; j < z->f->n_fields && !field_of(z->f, i); j++)
            if (k->inputs[i].slot == k->inputs[z->f->fields[j].input].slot)
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
        f->fields[f->n_fields++] = (struct form_field){.input = o->feeds - 1, .output = i};
    }
    return NULL;
}

static const char *check_ctx(const struct ir_kernel *k, const struct ir_ctx *c)
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
        if (llabs(c->offset[a]) > 1)
            return too_far;
    }
    return NULL;
}

/* One way at an edge for all of a field; what is replaced afterwards is content with any. */
static bool join_mode(struct form_edge *e, enum boundary_mode mode)
{
    bool any = mode == BOUNDARY_CONSTANT || mode == BOUNDARY_SELF;
    if (mode == BOUNDARY_SYMMETRIC)
        mode = BOUNDARY_CLAMP;
    if (!e->reach || (e->any && e->mode != BOUNDARY_WRAP && mode != BOUNDARY_WRAP)) {
        e->mode = any ? BOUNDARY_CLAMP : mode;
        e->any = any;
        e->reach = 1;
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
    l->near = (uint32_t)(field - z->f->fields);
    const char *why = l->ctx ? check_ctx(k, c) : NULL;
    if (why || !l->ctx)
        return why;
    int moved = 0;
    for (int a = 0; a < k->rank; a++)
        moved += c->offset[a] != 0;
    l->self = c->mode == BOUNDARY_SELF && moved > 1;
    for (int a = 0; a < k->rank; a++) {
        int place = a + 3 - k->rank;
        if (c->offset[a] == 0)
            continue;
        l->step[place] = (int8_t)c->offset[a];
        if (c->mode == BOUNDARY_REFLECT && k->shape[a] == 1)
            return small;
        enum boundary_mode mode = c->mode == BOUNDARY_SELF && moved == 1 ? BOUNDARY_CLAMP : c->mode;
        if (!join_mode(&field->edge[place], mode))
            return odd_edge;
    }
    return NULL;
}

/* An axis wraps for all that is read along it, or for nothing. */
static const char *join_axes(struct analysis *z)
{
    struct form *f = z->f;
    for (int place = 0; place < 3; place++)
        for (int wraps = 1; wraps >= 0; wraps--)
            for (uint32_t i = 0; i < f->n_fields; i++) {
                const struct form_edge *e = &f->fields[i].edge[place];
                if (!e->reach || (e->mode == BOUNDARY_WRAP) != wraps)
                    continue;
                if (wraps)
                    f->wraps[place] = true;
                else if (f->wraps[place])
                    return odd_edge;
            }
    return NULL;
}

static const char *check_nodes(const struct ir_kernel *k, const struct form *f)
{
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        if (n->kind == IR_INDEX && n->axis >= 0 && n->ctx != 0)
            return indices;
        const char *why = n->kind == IR_INSIDE ? check_ctx(k, &k->ctxs[n->ctx]) : NULL;
        if (why)
            return why;
        for (int a = 0; n->kind == IR_INSIDE && a < k->rank; a++)
            if (k->ctxs[n->ctx].offset[a] && f->wraps[a + 3 - k->rank])
                return odd_edge;
    }
    return NULL;
}

static const char *refusal(struct analysis *z)
{
    struct form *f = z->f;
    if (z->k->rank != 2)
        return odd_rank;
    const char *why = list_fields(z);
    if (!why)
        why = check_others(z);
    for (uint32_t i = 0; !why && i < f->n_loads; i++)
        why = add_load(z, &f->loads[i]);
    if (!why)
        why = join_axes(z);
    return why ? why : check_nodes(z->k, f);
}

/* --- how many, how wide --- */

/* Registers of a lane with so many elements. */
static int registers(const struct analysis *z, int steps, int elements)
{
    const struct form *f = z->f;
    int n = OTHER_REGS;
    for (uint32_t i = 0; i < f->n_fields; i++) {
        const struct form_field *d = &f->fields[i];
        int words = ((int)dtype_size(z->k->inputs[d->input].dtype) + 3) / 4;
        int rows = d->edge[1].reach ? 2 : 1, sides = d->edge[2].reach ? 2 : 0;
        n += words * (steps * (rows * elements + sides) + 2 * elements);
    }
    return n;
}

/* Instructions a point and step, nearly; and bytes a point and pass. */
static void weigh(const struct analysis *z, int *ret_work, int *ret_bytes)
{
    const struct ir_kernel *k = z->k;
    int work = 1, bytes = 0;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        if (n->kind == IR_OP)
            work += (int)op_cost((enum op)n->op, (enum dtype)n->src) *
                    (dtype_size((enum dtype)n->src) > 4 ? 2 : 1);
        else if (n->kind == IR_CAST || n->kind == IR_SELECT)
            work++;
        else if (n->kind == IR_RANDOM || n->kind == IR_GATHER || n->kind == IR_TABLE)
            work += 16;
        else if (n->kind == IR_LOAD && !field_of(z->f, n->input))
            work += 2;
    }
    for (uint32_t i = 0; i < z->f->n_fields; i++)
        bytes += 2 * (int)dtype_size(k->inputs[z->f->fields[i].input].dtype);
    *ret_work = work;
    *ret_bytes = bytes;
}

static int64_t strips(const struct form *f, int elements, int halo)
{
    int64_t nx = f->shape[f->rank - 1], width = (int64_t)WARP * elements, own = width - 2 * halo;
    if (f->wraps[2])
        return (nx + own - 1) / own;
    return nx <= width ? 1 : 1 + (nx - width + own - 1) / own;
}

/* Elements that are copied at once: rows begin at multiples of them, in all fields. */
static int piece_of(const struct analysis *z, int elements)
{
    const struct ir_kernel *k = z->k;
    int piece = elements;
    for (; piece > 1; piece /= 2) {
        bool fits = k->shape[k->rank - 1] % piece == 0;
        for (uint32_t i = 0; i < z->f->n_fields && fits; i++) {
            const struct form_field *d = &z->f->fields[i];
            int64_t size = (int64_t)dtype_size(k->inputs[d->input].dtype), bytes = size * piece;
            const struct view *in = &k->inputs[d->input].view, *out = &k->outputs[d->output].view;
            fits = bytes <= 16 && in->offset % piece == 0 && out->offset % piece == 0;
            for (int a = 0; a < k->rank - 1 && fits; a++)
                fits = in->strides[a] % piece == 0 || k->shape[a] == 1;
        }
        if (fits)
            break;
    }
    return piece;
}

/* A lane's elements and what follows from them; false where they do not do. */
static bool set_elements(struct analysis *z, int steps, int elements)
{
    struct form *f = z->f;
    int64_t nx = f->shape[f->rank - 1];
    int size = 1;
    for (uint32_t i = 0; i < f->n_fields; i++) {
        int bytes = (int)dtype_size(z->k->inputs[f->fields[i].input].dtype);
        size = bytes > size ? bytes : size;
    }
    if (elements * size > 32 || (nx % elements && nx < (int64_t)WARP * elements && !f->wraps[2]))
        return false;
    f->piece = piece_of(z, elements);
    f->halo = (steps + f->piece - 1) / f->piece * f->piece;
    f->elements = elements;
    return 2 * f->halo <= WARP * elements / 2 && registers(z, steps, elements) <= REGISTERS;
}

static bool choose_elements(struct analysis *z, int steps)
{
    const struct form *f = z->f;
    int64_t rows = f->shape[f->rank - 2], parts = (rows + 2 * steps - 1) / (2 * steps);
    int best = 0;
    for (int e = 8; e >= 1; e /= 2) {
        if (!set_elements(z, steps, e))
            continue;
        best = e;
        if (strips(f, e, f->halo) * parts >= (int64_t)4 * PROCESSORS)
            break;
    }
    return best && set_elements(z, steps, best);
}

/* Rows of a warp: as many warps as run at once, in a few waves. */
static void choose_part(struct form *f, int registers_)
{
    int64_t ny = f->shape[f->rank - 2], across = strips(f, f->elements, f->halo), best = 0;
    f->at_once = registers_ > 160 ? 8 : registers_ > 120 ? 12 : 16;
    int64_t room = (int64_t)PROCESSORS * f->at_once;
    double most = -1;
    for (int64_t waves = 1; waves <= 4; waves++) {
        int64_t parts = waves * room / across;
        if (parts < 1)
            parts = 1;
        int64_t rows = (ny + parts - 1) / parts;
        if (rows < 4)
            rows = 4;
        parts = (ny + rows - 1) / rows;
        int64_t full = (parts * across + room - 1) / room;
        double useful = (double)parts * (double)across / (double)(full * room) * (double)rows /
                        (double)(rows + 2 * f->steps);
        if (useful > most * 1.02) {
            most = useful;
            best = rows;
        }
    }
    f->part = best;
    while ((ny + f->part - 1) / f->part > 65535)
        f->part *= 2;
    f->grid[0] = (unsigned)across;
    f->grid[1] = (unsigned)((ny + f->part - 1) / f->part);
    f->grid[2] = 1;
}

/* --- the form --- */

/* The kernel's own axes; what is not a field is read in place. */
static const char *begin(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    struct form *f = z->f;
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
            form_input_aligned(z, l->input, f->elements))
            l->kind = LOAD_VECTOR;
    }
}

const char *form_make_steps(struct analysis *z)
{
    struct form *f = z->f;
    f->fields = arena_alloc_array(z->arena, z->k->n_outputs + 1, sizeof *f->fields);
    if (!f->fields)
        return "";
    const char *why = begin(z);
    if (why)
        return why;
    f->steps = (int)z->k->steps;
    if (!choose_elements(z, f->steps))
        return no_registers;
    classify(z);
    choose_part(f, registers(z, f->steps, f->elements));
    f->unroll = 1;
    f->ahead = QUEUE;
    f->threads = WARP;
    f->block[0] = WARP;
    f->block[1] = 1;
    return NULL;
}

uint32_t form_best_steps(struct analysis *z, const char **ret_why)
{
    struct form *f = z->f;
    *ret_why = "";
    f->fields = arena_alloc_array(z->arena, z->k->n_outputs + 1, sizeof *f->fields);
    if (!f->fields || (*ret_why = begin(z)) != NULL)
        return 1;
    int work, bytes;
    weigh(z, &work, &bytes);
    /* measured (H200): where arithmetic takes about as long as moving the bytes */
    int steps = 8 * bytes / work;
    *ret_why = too_dear;
    if (steps > MOST_STEPS)
        steps = MOST_STEPS;
    while (steps > 1 && !choose_elements(z, steps)) {
        steps--;
        *ret_why = no_registers;
    }
    return steps > 1 ? (uint32_t)steps : 1;
}
