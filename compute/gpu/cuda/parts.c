/* Which blocks, elements and bytes of a kernel are which member's. */
#include "compute/gpu/cuda/parts.h"

#include <stdlib.h>

#include "compute/gpu/cuda/prepare.h"
#include "compute/gpu/device/mesh.h"

/* Parts that are members' own begin at multiples of so many elements, however large a kernel's
 * blocks are: those of kernels in a row are the same. */
#define SEAM 65536

/* --- members that take part --- */

int parts_members(const struct cuda_device *d, const struct ir_kernel *k)
{
    int64_t bytes = 1;
    size_t size = 1;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        size = dtype_size(k->inputs[i].dtype) > size ? dtype_size(k->inputs[i].dtype) : size;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        size = dtype_size(k->outputs[i].dtype) > size ? dtype_size(k->outputs[i].dtype) : size;
    for (int a = 0; a < k->rank; a++)
        bytes *= k->shape[a];
    return bytes * (int64_t)size / d->n_members >= d->cuda->config.mesh_least ? d->n_members : 1;
}

void parts_divide(struct prepared *p, const struct ir_kernel *k, int members)
{
    const struct cuda_device *d = &p->cuda->devices[p->device];
    const struct form *f = p->emitted->form;
    const unsigned group = form_group(f);
    p->divided = members > 1 && !p->emitted->indirect &&
                 (f->joined || (group > 0 && f->grid[form_along(f)] / group > 1));
    p->own = p->divided && parts_are_own(k, f);
    p->remote = d->n_members > 1 ? parts_remote(d, k, f, p->divided) : 0;
}

const struct form *parts_form_of_program(const struct cuda_device *d, const struct prepared *p,
                                         const struct ir_kernel *k)
{
    if (!p->emitted->form->joined)
        return p->emitted->form;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        if (reduce_rounds(k->outputs[i].reduce, k->outputs[i].dtype))
            return NULL;
    return form_within(p->arena, k, SLOT_ALIGNMENT, d->shared, 1);
}

/* --- the division --- */

bool parts_is_single(const struct view *v)
{
    bool single = true;
    for (int a = 0; a < v->rank; a++)
        single &= v->strides[a] == 0 || v->shape[a] == 1;
    return single;
}

static bool is_by_number(const struct ir_kernel *k, const struct view *v)
{
    return parts_is_single(v) ||
           (v->rank == k->rank && view_is_contiguous(v) && v->shape[0] == k->shape[0]);
}

bool parts_are_own(const struct ir_kernel *k, const struct form *f)
{
    bool own = f->kind == FORM_FLAT && f->rank == 1 && !f->turned && !f->general;
    for (uint32_t i = 0; i < k->n_nodes && own; i++)
        own = k->nodes[i].kind != IR_LOAD || k->nodes[i].ctx == 0;
    for (uint32_t i = 0; i < k->n_inputs && own; i++)
        own = !k->inputs[i].gathered && is_by_number(k, &k->inputs[i].view);
    for (uint32_t i = 0; i < k->n_outputs && own; i++)
        own = k->outputs[i].kind == OUT_STORE && view_is_contiguous(&k->outputs[i].view);
    return own;
}

static int64_t per_block(const struct form *f)
{
    return (int64_t)f->elements * f->unroll * f->threads;
}

/* Where a member's groups of blocks begin. */
static int64_t begin(const struct form *f, bool own, int64_t groups, int member, int members)
{
    const int64_t each = per_block(f);
    if (member == members)
        return groups;
    if (own && SEAM % each == 0 && groups * each >= (int64_t)members * SEAM)
        return groups * each / SEAM * member / members * (SEAM / each);
    return groups * member / members;
}

struct part parts_of(const struct form *f, bool own, int member, int members)
{
    const int64_t group = form_group(f), groups = f->grid[form_along(f)] / group;
    const int64_t from = begin(f, own, groups, member, members);
    return (struct part){from * group, (begin(f, own, groups, member + 1, members) - from) * group};
}

struct part parts_elements(const struct form *f, struct part blocks)
{
    const int64_t each = per_block(f), all = f->chunks * f->elements + f->tail;
    const int64_t from = blocks.from * each, until = (blocks.from + blocks.n) * each;
    /* the last block computes the tail, too, which may be beyond its chunks */
    if (blocks.from + blocks.n == f->grid[form_along(f)])
        return (struct part){from, all > from ? all - from : 0};
    return (struct part){from, until - from};
}

/* --- what crosses --- */

/* Rows of an axis, and how many more come from its other end. */
struct rows {
    int64_t from, until, wrapped;
};

/* The kernel's axis along which the parts lie. */
static int along(const struct ir_kernel *k, const struct form *f)
{
    for (int a = 0; a < k->rank; a++)
        if (f->axis[a] == 0 && k->shape[a] > 1)
            return a;
    return 0;
}

/* Makes r, rows of the kernel's axis `of`, those of a context's axis that they are read at. False:
 * these do not follow from them. */
static bool follow(const struct ir_kernel *k, int of, uint32_t ctx, int axis, struct rows *r)
{
    const struct ir_ctx *x = &k->ctxs[ctx];
    if (ctx == 0)
        return axis == of;
    if (x->src[axis] < 0 || !follow(k, of, x->parent, x->src[axis], r))
        return false;
    const int64_t a = x->start[axis] + x->step[axis] * r->from;
    const int64_t b = x->start[axis] + x->step[axis] * (r->until - 1);
    const int64_t n = x->shape[axis], shift = x->offset[axis];
    int64_t from = (a < b ? a : b) + shift, until = (a < b ? b : a) + 1 + shift;
    if (x->mode == BOUNDARY_SELF && shift > 0)
        from -= shift;
    if (x->mode == BOUNDARY_SELF && shift < 0)
        until -= shift;
    if (x->mode == BOUNDARY_WRAP)
        r->wrapped += (from < 0 ? -from : 0) + (until > n ? until - n : 0);
    r->from = from < 0 ? 0 : from < n ? from : n - 1;
    r->until = until > n ? n : until > r->from ? until : r->from + 1;
    return true;
}

/* The axis with the largest step. */
static int slowest(const struct view *v)
{
    int best = -1;
    for (int a = 0; a < v->rank; a++)
        if (v->shape[a] > 1 && (best < 0 || llabs(v->strides[a]) > llabs(v->strides[best])))
            best = a;
    return best;
}

/* Elements that a view shows, each once. */
static int64_t elements(const struct view *v)
{
    int64_t n = 1;
    for (int a = 0; a < v->rank; a++)
        n *= v->strides[a] ? v->shape[a] : 1;
    return n;
}

/* Rows of input i's slowest axis that are read for `part`, by all its loads; false: any. */
static bool rows_read(const struct ir_kernel *k, int of, uint32_t i, int axis, struct rows part,
                      struct rows *ret)
{
    const int64_t again = k->steps > 1 ? k->steps - 1 : 0;
    bool any = false;
    for (uint32_t n = 0; n < k->n_nodes; n++) {
        struct rows r = part;
        if (k->nodes[n].kind != IR_LOAD || k->nodes[n].input != i)
            continue;
        if (!follow(k, of, k->nodes[n].ctx, axis, &r))
            return false;
        *ret = any ? (struct rows){r.from < ret->from ? r.from : ret->from,
                                   r.until > ret->until ? r.until : ret->until,
                                   r.wrapped > ret->wrapped ? r.wrapped : ret->wrapped}
                   : r;
        any = true;
    }
    const int64_t all = k->inputs[i].view.shape[axis];
    const int64_t below = part.from - ret->from, above = ret->until - part.until;
    if (any && below > 0)
        ret->from = ret->from > again * below ? ret->from - again * below : 0;
    if (any && above > 0)
        ret->until = ret->until + again * above < all ? ret->until + again * above : all;
    if (any)
        ret->wrapped += again * ret->wrapped;
    return any;
}

/* Rows of [0, all) that lie with a member; the part of them among r. */
static int64_t own_rows(const struct rows *r, int64_t all, int member, int members)
{
    const int64_t from = all * member / members, until = all * (member + 1) / members;
    const int64_t a = r->from > from ? r->from : from, b = r->until < until ? r->until : until;
    return b > a ? b - a : 0;
}

/* Elements of input i that its readers have to fetch. */
static int64_t fetched(const struct cuda_device *d, const struct ir_kernel *k, int of, bool follows,
                       uint32_t i)
{
    const struct ir_input *in = &k->inputs[i];
    const int members = d->n_members, axis = slowest(&in->view);
    const int64_t all = elements(&in->view), others = all / members * (members - 1);
    int64_t rows = 0;
    if (follows && in->view.rank == k->rank && k->shape[of] > 1 && in->view.strides[of] == 0)
        return all * (members - 1); /* each member reads all of it */
    if (!mesh_divides(d, all * (int64_t)dtype_size(in->dtype)) || in->gathered || axis < 0)
        return others;
    for (int m = 0; m < members && follows; m++) {
        const int64_t n = k->shape[of];
        const struct rows part = {n * m / members, n * (m + 1) / members, 0};
        struct rows r = part;
        if (!rows_read(k, of, i, axis, part, &r))
            return others;
        const int home = in->view.strides[axis] < 0 ? members - 1 - m : m;
        rows += r.until - r.from + r.wrapped - own_rows(&r, in->view.shape[axis], home, members);
    }
    return follows ? all / in->view.shape[axis] * rows : others;
}

int64_t parts_remote(const struct cuda_device *d, const struct ir_kernel *k, const struct form *f,
                     bool shared)
{
    const int members = d->n_members, of = along(k, f);
    int64_t bytes = 0;
    if (shared && f->joined) /* each reads its own, and leaves a few states */
        return 0;
    /* what is combined along that axis is divided along another */
    const bool follows = shared && !(ir_combined_axes(k) >> of & 1);
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        const int64_t size = (int64_t)dtype_size(k->inputs[i].dtype);
        if (shared || mesh_divides(d, elements(&k->inputs[i].view) * size))
            bytes += fetched(d, k, of, follows, i) * size;
    }
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        const int64_t all = elements(&o->view) * (int64_t)dtype_size(o->dtype);
        const bool divided = mesh_divides(d, all);
        if (shared ? !divided || !follows || slowest(&o->view) != of : divided)
            bytes += all / members * (members - 1);
    }
    return bytes;
}
