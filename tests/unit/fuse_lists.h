/* Lists of kernels for test_ir_fuse.c: statements in text, lowered one by one into slots of one
 * numbering, run by the interpreter. Included once, hence all static.
 *
 * Arrays lie in slots of their own. What is assigned goes to a new slot (as a program's spare
 * arrays), or, where a statement reads nothing of it but the very elements that it writes, in place
 * if asked for. A name that no array has becomes a temporary. */
#ifndef ARRAYD_TESTS_FUSE_LISTS_H
#define ARRAYD_TESTS_FUSE_LISTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/check/check.h"
#include "compute/cpu/interp/interp.h"
#include "compute/ir/ir_fuse.h"
#include "compute/ir/lower.h"
#include "protocol/text/index.h"
#include "protocol/text/infix.h"

#define LIST_SLOTS   256
#define LIST_KERNELS 256
#define LIST_NAMES   24

struct list_name {
    char name[16];
    enum dtype dtype;
    int rank;
    int64_t shape[MAX_RANK];
    uint32_t slot; /* where it is now */
    bool temporary;
};

struct list {
    struct arena *arena;
    struct fuse_limits limits;
    struct list_name names[LIST_NAMES];
    int n_names;
    struct {
        enum dtype dtype;
        int64_t bytes;
        char *was; /* before the first kernel */
    } slots[LIST_SLOTS];
    bool dead[LIST_SLOTS];
    uint32_t n_slots;
    struct ir_kernel *kernels[LIST_KERNELS];
    uint32_t n_kernels;
    bool in_place; /* where that is possible */
    bool fast_math;
    bool knows_sizes; /* of the slots' memory */
};

static uint64_t list_state = 1;

static uint64_t list_rng(void)
{
    uint64_t z = list_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int list_below(int n)
{
    return (int)(list_rng() % (uint64_t)n);
}

static void list_begin(struct list *l)
{
    memset(l, 0, sizeof *l);
    l->arena = arena_new(0);
    l->limits = (struct fuse_limits){.max_nodes = 400, .max_inputs = 64, .recompute = 400};
    assert_non_null(l->arena);
}

static void list_end(struct list *l)
{
    for (uint32_t i = 0; i < l->n_slots; i++)
        mem_free(l->slots[i].was);
    arena_free(l->arena);
}

static uint32_t list_slot(struct list *l, enum dtype dtype, int64_t bytes)
{
    uint32_t s = l->n_slots++;
    const int64_t size = (int64_t)dtype_size(dtype);
    assert_true(s < LIST_SLOTS);
    if (bytes < 16)
        bytes = 16;
    l->slots[s].dtype = dtype;
    l->slots[s].bytes = bytes;
    l->slots[s].was = mem_calloc(1, (size_t)bytes);
    for (int64_t i = 0; i + size <= bytes; i += size) {
        union value v = scalar_cast((struct scalar){.dtype = DT_I64,
                                                    .v.i64 = dtype == DT_BOOL ? list_below(2)
                                                                              : list_below(13) - 6},
                                    dtype)
                            .v;
        memcpy(l->slots[s].was + i, &v, (size_t)size);
    }
    return s;
}

static struct list_name *list_find(struct list *l, const char *name)
{
    for (int i = 0; i < l->n_names; i++)
        if (!strcmp(l->names[i].name, name))
            return &l->names[i];
    return NULL;
}

static struct list_name *list_array(struct list *l, const char *name, enum dtype dtype, int rank,
                                    const int64_t *shape)
{
    struct list_name *a = list_find(l, name);
    if (!a)
        a = &l->names[l->n_names++];
    assert_true(l->n_names <= LIST_NAMES);
    *a = (struct list_name){.dtype = dtype, .rank = rank};
    snprintf(a->name, sizeof a->name, "%s", name);
    int64_t n = (int64_t)dtype_size(dtype);
    for (int k = 0; k < rank; k++)
        n *= a->shape[k] = shape[k];
    a->slot = list_slot(l, dtype, n);
    return a;
}

static enum err_code list_resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct list_name *a = list_find(user, name);
    *ret = (struct binding){.kind = a ? BINDING_ARRAY : BINDING_NONE, .array = (struct array *)a};
    if (!a)
        return ERR_OK;
    ret->dtype = a->dtype;
    return view_contiguous(a->rank, a->shape, dtype_size(a->dtype), &ret->view, e);
}

/* The text's typed graph; false where it says something that cannot be. */
static bool list_typed(struct list *l, const char *text, int dtype, struct typed *ret)
{
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source;
    struct check_env env = {.resolve = list_resolve, .user = l, .max_inputs = 64};
    memset(ret, 0, sizeof *ret);
    expr_init(&x, l->arena, 10000, 400);
    assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
    if (infix_parse(&x, source, text, strlen(text), &x.root, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.message);
    return check_expr(l->arena, &x, &env, dtype, ret, &e) == ERR_OK;
}

/* Whether the plan's kernels may write to the slot while they read it. */
static bool list_reads(const struct ir_plan *p, const uint32_t *slots, uint32_t slot,
                       const struct view *target)
{
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const struct ir_kernel *k = p->kernels[i];
        for (uint32_t j = 0; j < k->n_inputs; j++) {
            if (slots[k->inputs[j].slot] != slot)
                continue;
            bool same = i + 1 == p->n_kernels && k->outputs[0].kind == OUT_STORE &&
                        !k->inputs[j].gathered && k->inputs[j].view.offset == target->offset &&
                        k->inputs[j].dtype == k->outputs[0].dtype;
            for (int a = 0; a < k->rank && same; a++)
                same = k->shape[a] <= 1 ||
                       k->inputs[j].view.strides[a] == k->outputs[0].view.strides[a];
            for (uint32_t n = 0; n < k->n_nodes && same; n++)
                same =
                    k->nodes[n].kind != IR_LOAD || k->nodes[n].input != j || k->nodes[n].ctx == 0;
            if (!same)
                return true;
        }
    }
    return false;
}

/* Lowers the graph into `slot` (at `target`, NULL: whole) and adds its kernels. */
static bool list_lower(struct list *l, const struct typed *t, uint32_t slot,
                       const struct view *target, bool may_read)
{
    struct ir_plan *p = NULL;
    struct err e = ERR_INIT;
    struct lower_request req = {.typed = t,
                                .limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 400},
                                .fast_math = l->fast_math,
                                .target = target,
                                .target_bytes = l->slots[slot].bytes};
    uint32_t slots[64];
    assert_int_equal(lower(l->arena, &req, &p, &e), ERR_OK);
    assert_true(p->n_slots <= 64);
    for (uint32_t i = 0; i < p->n_slots; i++)
        switch (p->slots[i].kind) {
        case SLOT_INPUT:
            slots[i] = ((struct list_name *)t->inputs[p->slots[i].index].array)->slot;
            break;
        case SLOT_RESULT:
            slots[i] = slot;
            break;
        default:
            slots[i] = UINT32_MAX;
        }
    if (target && !may_read && list_reads(p, slots, slot, target))
        return false;
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (slots[i] == UINT32_MAX) {
            slots[i] = list_slot(l, DT_F64, p->slots[i].size);
            l->dead[slots[i]] = true;
        }
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        struct ir_kernel *k = p->kernels[i];
        for (uint32_t j = 0; j < k->n_inputs; j++)
            k->inputs[j].slot = slots[k->inputs[j].slot];
        for (uint32_t j = 0; j < k->n_outputs; j++)
            k->outputs[j].slot = slots[k->outputs[j].slot];
        assert_true(l->n_kernels < LIST_KERNELS);
        l->kernels[l->n_kernels++] = k;
    }
    return true;
}

/* name = expression; false, with nothing done, where it does not type. */
static bool list_assign(struct list *l, const char *name, const char *text)
{
    struct list_name *a = list_find(l, name);
    struct typed t;
    struct view whole;
    if (!list_typed(l, text, a && !a->temporary ? (int)a->dtype : -1, &t))
        return false;
    const struct typed_node *root = &t.nodes[t.root];
    if (!a || a->temporary) {
        int64_t n = (int64_t)dtype_size(root->dtype);
        for (int k = 0; k < root->rank; k++)
            n *= root->shape[k];
        const uint32_t to = list_slot(l, root->dtype, n);
        l->dead[to] = true;
        assert_true(list_lower(l, &t, to, NULL, true));
        if (!a)
            a = &l->names[l->n_names++];
        assert_true(l->n_names <= LIST_NAMES);
        memset(a, 0, sizeof *a);
        snprintf(a->name, sizeof a->name, "%s", name);
        a->dtype = root->dtype;
        a->rank = root->rank;
        for (int k = 0; k < root->rank; k++)
            a->shape[k] = root->shape[k];
        a->slot = to;
        a->temporary = true;
        return true;
    }
    struct view r = {.rank = root->rank};
    for (int k = 0; k < r.rank; k++)
        r.shape[k] = root->shape[k];
    if (view_contiguous(a->rank, a->shape, dtype_size(a->dtype), &whole, NULL) != ERR_OK ||
        view_broadcast_to(&r, a->rank, a->shape, &r, NULL) != ERR_OK)
        return false;
    if (l->in_place && list_lower(l, &t, a->slot, &whole, false))
        return true;
    /* read in the old slot, written to the new one */
    struct list_name before = *a;
    uint32_t to = list_slot(l, a->dtype, l->slots[a->slot].bytes);
    assert_true(list_lower(l, &t, to, &whole, true));
    l->dead[before.slot] = true;
    a->slot = to;
    return true;
}

/* name[index] = expression; the same. */
static bool list_assign_region(struct list *l, const char *name, const char *index,
                               const char *text)
{
    struct list_name *a = list_find(l, name);
    struct typed t, copy;
    struct view whole, region, r;
    struct index_spec spec;
    struct err e = ERR_INIT;
    if (!a || !list_typed(l, text, (int)a->dtype, &t))
        return false;
    assert_int_equal(view_contiguous(a->rank, a->shape, dtype_size(a->dtype), &whole, &e), ERR_OK);
    if (index_parse(index, strlen(index), &spec, &e) != ERR_OK ||
        view_index(&whole, &spec, &region, &e) != ERR_OK)
        return false;
    const struct typed_node *root = &t.nodes[t.root];
    r = (struct view){.rank = root->rank};
    for (int k = 0; k < r.rank; k++)
        r.shape[k] = root->shape[k];
    if (view_broadcast_to(&r, region.rank, region.shape, &r, NULL) != ERR_OK)
        return false;
    if (l->in_place && list_lower(l, &t, a->slot, &region, false))
        return true;
    uint32_t to = list_slot(l, a->dtype, l->slots[a->slot].bytes);
    assert_true(list_typed(l, name, -1, &copy));
    assert_true(list_lower(l, &copy, to, &whole, true));
    assert_true(list_lower(l, &t, to, &region, true));
    l->dead[a->slot] = true;
    a->slot = to;
    return true;
}

/* --- running --- */

static void list_run_kernel(const struct ir_kernel *k, void *const *slots)
{
    struct interp_run *r = interp_new(k, slots, 2);
    struct interp_scratch *s = interp_scratch_new(0);
    assert_non_null(r);
    assert_true(s && interp_fit(r, s));
    for (int64_t u = interp_units(r); u-- > 0;)
        interp_unit(r, u, s);
    while (interp_again(r, s))
        for (int64_t u = interp_units(r); u-- > 0;)
            interp_unit(r, u, s);
    interp_finish(r, s);
    interp_scratch_free(s);
    interp_free(r);
}

/* Runs kernels over copies of the slots; the caller frees. */
static void list_run(const struct list *l, struct ir_kernel *const *kernels, uint32_t n,
                     void **slots)
{
    for (uint32_t i = 0; i < l->n_slots; i++) {
        slots[i] = mem_alloc((size_t)l->slots[i].bytes);
        memcpy(slots[i], l->slots[i].was, (size_t)l->slots[i].bytes);
    }
    for (uint32_t i = 0; i < n; i++)
        list_run_kernel(kernels[i], slots);
}

static void list_free(const struct list *l, void **slots)
{
    for (uint32_t i = 0; i < l->n_slots; i++)
        mem_free(slots[i]);
}

static void list_print(struct ir_kernel *const *kernels, uint32_t n)
{
    struct strb text = {0};
    for (uint32_t i = 0; i < n; i++)
        ir_print(kernels[i], &text);
    print_message("%s", text.data ? text.data : "");
    strb_free(&text);
}

static void list_compare(const struct list *l, void *const *a, void *const *b,
                         struct ir_kernel *const *fused, uint32_t n, const char *what)
{
    for (uint32_t i = 0; i < l->n_slots; i++) {
        if (l->dead[i] || !memcmp(a[i], b[i], (size_t)l->slots[i].bytes))
            continue;
        print_message("--- the list\n");
        list_print(l->kernels, l->n_kernels);
        print_message("--- fused\n");
        list_print(fused, n);
        fail_msg("%s: slot %u differs", what, i);
    }
}

static void list_fuse(struct list *l, struct ir_kernel ***ret, uint32_t *ret_n)
{
    struct err e = ERR_INIT;
    int64_t bytes[LIST_SLOTS];
    struct ir_fuse_request req = {.kernels = l->kernels,
                                  .n_kernels = l->n_kernels,
                                  .dead = l->dead,
                                  .bytes = l->knows_sizes ? bytes : NULL,
                                  .n_slots = l->n_slots,
                                  .limits = l->limits};
    for (uint32_t i = 0; i < l->n_slots; i++)
        bytes[i] = l->slots[i].bytes;
    for (uint32_t i = 0; i < l->n_kernels; i++) {
        const char *bad = ir_verify(l->kernels[i], l->arena);
        if (bad)
            fail_msg("before: kernel %u: %s", i, bad);
    }
    assert_int_equal(ir_fuse(l->arena, &req, ret, ret_n, &e), ERR_OK);
    assert_true(*ret_n <= l->n_kernels);
    for (uint32_t i = 0; i < *ret_n; i++) {
        const char *bad = ir_verify((*ret)[i], l->arena);
        if (bad) {
            list_print(l->kernels, l->n_kernels);
            list_print(*ret, *ret_n);
            fail_msg("kernel %u: %s", i, bad);
        }
    }
}

/* Fuses and compares on the CPU; how many kernels come out. */
static uint32_t list_check(struct list *l, struct ir_kernel ***ret, const char *what)
{
    void *a[LIST_SLOTS], *b[LIST_SLOTS];
    uint32_t n;
    list_fuse(l, ret, &n);
    list_run(l, l->kernels, l->n_kernels, a);
    list_run(l, *ret, n, b);
    list_compare(l, a, b, *ret, n, what);
    list_free(l, a);
    list_free(l, b);
    return n;
}

#endif
