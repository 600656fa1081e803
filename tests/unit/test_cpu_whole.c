/* compute/ir/ir_stages and compute/cpu/interp/interp_whole: reductions of rows and what is made of
 * them, a few rows at a time, leave the bits that the kernels leave one after the other, compute
 * once what several need, and are declined where rows do not lie that way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "compute/check/check.h"
#include "compute/cpu/interp/interp.h"
#include "compute/ir/ir_stages.h"
#include "compute/ir/lower.h"
#include "protocol/text/infix.h"

#define OPERANDS 6
#define ROUNDS   60
#define PAD      24 /* elements behind a row of `p` */

struct whole_case {
    const char *text;
    enum dtype dtype;
    int64_t shape[3]; /* the last extents; 0: fewer axes */
    bool runs;        /* as a whole */
};

static const struct whole_case cases[] = {
    {"exp(a - max(a, -1, keepdims=True)) / sum(exp(a - max(a, -1, keepdims=True)), -1, "
     "keepdims=True)",
     DT_F32,
     {100, 1000},
     true},
    {"exp(a - max(a, -1, keepdims=True)) / sum(exp(a - max(a, -1, keepdims=True)), -1, "
     "keepdims=True)",
     DT_F64,
     {37, 5000},
     true},
    {"(a - mean(a, -1, keepdims=True)) / sqrt(var(a, -1, keepdims=True) + 1e-5)",
     DT_F32,
     {300, 1024},
     true},
    {"(a - mean(a, -1, keepdims=True)) / std(a, -1, keepdims=True) * v + c",
     DT_F32,
     {50, 7, 811},
     true},
    {"a / norm(a, -1, keepdims=True)", DT_F64, {201, 1023}, true},
    {"(a - min(a, -1, keepdims=True)) / (max(a, -1, keepdims=True) - min(a, -1, keepdims=True))",
     DT_F32,
     {70, 4097},
     true},
    {"(a - mean(a, (1, 2), keepdims=True)) * exp(b - max(b, (1, 2), keepdims=True))",
     DT_F32,
     {40, 30, 200},
     true},
    {"(p - mean(p, -1, keepdims=True)) / std(p, -1, keepdims=True)", DT_F32, {300, 777}, true},
    {"a - sum(a, -1, keepdims=True)", DT_I32, {400, 700}, true},
    {"a * sum(exp(b - max(b, -1, keepdims=True)), -1, keepdims=True) + max(a, -1, keepdims=True)",
     DT_F32,
     {600, 192},
     true},
    /* short rows, which blocks hold several of */
    {"exp(a - max(a, -1, keepdims=True)) / sum(exp(a - max(a, -1, keepdims=True)), -1, "
     "keepdims=True)",
     DT_F32,
     {3000, 40},
     true},
    /* columns, few rows, long rows, little work */
    {"a / norm(a, 0, keepdims=True)", DT_F32, {800, 600}, false},
    {"a / norm(a, -1, keepdims=True)", DT_F32, {3, 90000}, false},
    {"a * b / norm(a, -1, keepdims=True)", DT_F64, {5, 131071}, false},
    {"a / norm(a, -1, keepdims=True)", DT_F32, {8, 200}, false},
};

static const struct whole_case *now;
static char here[OPERANDS];
static const char names[OPERANDS][2] = {"a", "b", "p", "c", "v", "z"};

static int rank_of(const struct whole_case *c)
{
    return c->shape[2] ? 3 : 2;
}

/* a, b: the whole shape; p: with longer rows in memory; c: one for each row; v: a row. */
static struct view view_of(int operand)
{
    const int rank = rank_of(now);
    struct view v = {.rank = rank};
    int64_t stride = 1;
    for (int a = rank - 1; a >= 0; a--) {
        const bool last = a == rank - 1;
        v.shape[a] = (operand == 3 && last) || (operand == 4 && !last) ? 1 : now->shape[a];
        v.strides[a] = v.shape[a] > 1 ? stride : 0;
        stride *= v.shape[a] + (operand == 2 && last ? PAD : 0);
    }
    return v;
}

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    (void)user, (void)e;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (int i = 0; i < OPERANDS; i++)
        if (strcmp(names[i], name) == 0)
            *ret = (struct binding){.kind = BINDING_ARRAY,
                                    .array = (struct array *)&here[i],
                                    .dtype = now->dtype,
                                    .view = view_of(i)};
    return ERR_OK;
}

static struct ir_plan *plan_of(struct arena *arena, const struct typed **ret)
{
    const struct fuse_limits limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 32};
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source;
    struct ir_plan *plan = NULL;
    struct check_env env = {.resolve = resolve, .max_inputs = 64};
    struct typed *t = arena_alloc(arena, sizeof *t);
    expr_init(&x, arena, 10000, 400);
    assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
    if (infix_parse(&x, source, now->text, strlen(now->text), &x.root, &e) != ERR_OK ||
        check_expr(arena, &x, &env, -1, t, &e) != ERR_OK)
        fail_msg("%s: %s", now->text, e.message);
    struct lower_request req = {.typed = t, .limits = limits};
    assert_int_equal(lower(arena, &req, &plan, &e), ERR_OK);
    assert_true(ir_find_wholes(arena, plan, &limits));
    *ret = t;
    return plan;
}

static int64_t bytes_of(const struct ir_slot *s)
{
    int64_t n = 1;
    for (int a = 0; a < rank_of(now); a++)
        n *= now->shape[a] + PAD;
    return s->kind == SLOT_INPUT ? n * (int64_t)dtype_size(now->dtype) : s->size;
}

static void fill(void *p, int64_t bytes)
{
    unsigned h = 12345u + (unsigned)(bytes & 0xffff);
    for (int64_t i = 0; i < bytes / (int64_t)dtype_size(now->dtype); i++) {
        h = h * 1664525u + 1013904223u;
        const double v = (double)(h >> 8) / (1 << 24) * 6 - 3;
        if (now->dtype == DT_F64)
            ((double *)p)[i] = v;
        else if (now->dtype == DT_F32)
            ((float *)p)[i] = (float)v;
        else
            ((int32_t *)p)[i] = (int32_t)(h >> 20);
    }
}

static void **slots_new(struct arena *arena, const struct ir_plan *p)
{
    void **slots = arena_alloc_array(arena, p->n_slots, sizeof *slots);
    for (uint32_t i = 0; i < p->n_slots; i++) {
        slots[i] = arena_alloc(arena, (size_t)bytes_of(&p->slots[i]));
        assert_non_null(slots[i]);
        if (p->slots[i].kind == SLOT_INPUT)
            fill(slots[i], bytes_of(&p->slots[i]));
    }
    return slots;
}

/* The units in an order that no single thread has, by two threads' scratches. */
static void run(struct interp_run *r)
{
    struct interp_scratch *s[2] = {interp_scratch_new(0), interp_scratch_new(1)};
    const int64_t n = interp_units(r);
    interp_keep(r, 2);
    for (int pass = 0; pass < 2; pass++) { /* the second with kept programs */
        for (int i = 0; i < 2; i++)
            assert_true(interp_fit(r, s[i]));
        for (int64_t u = 0; u < n; u++)
            interp_unit(r, u % 2 ? u / 2 : n - 1 - u / 2, s[u % 3 == 0]);
        interp_finish(r, s[0]);
        interp_rewind(r);
    }
    interp_free(r);
    interp_scratch_free(s[0]);
    interp_scratch_free(s[1]);
}

/* Runs the case's parts and, if it does, its whole. What comes out must be the same. */
static bool same_bits(const char *what)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct typed *t;
    const struct ir_plan *p = plan_of(arena, &t);
    bool any = false, never;
    void **apart = slots_new(arena, p), **together = slots_new(arena, p);
    for (uint32_t at = 0; at < p->n_kernels;) {
        const struct ir_whole *w = p->kernels[at]->whole;
        struct interp_run *r = NULL;
        if (w) {
            assert_true(ir_whole_fits(w, p->kernels, p->n_kernels, at, together));
            assert_true(interp_whole_new(w, together, 2, &r, &never));
            assert_int_equal(never, !r);
        }
        const uint32_t n = r ? w->n_parts : 1;
        for (uint32_t k = 0; k < n; k++)
            run(interp_new(p->kernels[at + k], apart, 2));
        if (r)
            assert_string_equal(interp_shape(r), "fold");
        any |= r != NULL;
        run(r ? r : interp_new(p->kernels[at], together, 2));
        at += n;
    }
    if (memcmp(apart[p->result_slot], together[p->result_slot],
               (size_t)p->slots[p->result_slot].size) != 0)
        fail_msg("%s, %s: other bits", what, now->text);
    return any;
}

static void the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        now = &cases[i];
        if (same_bits(what) != now->runs)
            fail_msg("%s, %s: %s", what, now->text, now->runs ? "does not run" : "runs");
    }
}

/* ---- expressions made at random ---- */

static unsigned seed;

static unsigned below(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void random_text(struct strb *out, int depth)
{
    static const char *const leaves[] = {"a", "b", "p", "c", "v", "0.25"};
    static const char *const folds[] = {"max", "min", "sum", "mean", "var"};
    static const char *const calls[] = {"exp", "abs", "sqrt", "sin", "sign"};
    static const char operators[] = "+-*/";
    const unsigned kind = depth > 0 ? below(8) : 7;
    if (kind < 2) {
        strb_addf(out, "%s(", folds[below(5)]);
        random_text(out, depth - 1);
        strb_addf(out, " + 0*a, %s, keepdims=True)", rank_of(now) == 3 ? "(1, 2)" : "-1");
    } else if (kind < 4) {
        strb_addf(out, "%s(", calls[below(5)]);
        random_text(out, depth - 1);
        strb_addc(out, ')');
    } else if (kind < 7) {
        strb_addc(out, '(');
        random_text(out, depth - 1);
        strb_addf(out, " %c ", operators[below(4)]);
        random_text(out, depth - 1);
        strb_addc(out, ')');
    } else {
        strb_add(out, leaves[below(6)]);
    }
}

static void random_expressions_too(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {41, 2500}, {700, 193}, {90, 1024}, {2000, 50}, {60, 9, 210}};
    struct whole_case c;
    int ran = 0;
    for (int i = 0; i < ROUNDS; i++) {
        _cleanup_strb_ struct strb text = {0};
        char what[32];
        seed = (unsigned)i * 7919u + 1;
        c = (struct whole_case){.dtype = below(3) ? DT_F32 : DT_F64};
        memcpy(c.shape, shapes[below(5)], sizeof c.shape);
        now = &c;
        strb_add(&text, "a - max(a, -1, keepdims=True) + ");
        random_text(&text, 5);
        strb_addc(&text, '\0');
        assert_false(text.failed);
        c.text = text.data;
        snprintf(what, sizeof what, "seed %d", i);
        ran += same_bits(what);
    }
    assert_true(ran > ROUNDS / 3);
}

static unsigned count(const struct ir_stages *s, enum op op, bool rows)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < s->n_stages; i++)
        for (uint32_t j = 0; j < s->stages[i].kernel->n_nodes; j++) {
            const struct ir_node *node = &s->stages[i].kernel->nodes[j];
            n += s->stages[i].rows == rows && node->kind == IR_OP && node->op == op;
        }
    return n;
}

static const struct ir_stages *stages_of(struct arena *arena, const char *text)
{
    static struct whole_case c;
    const struct typed *t;
    struct ir_stages *s;
    c = (struct whole_case){text, DT_F32, {100, 1000}, true};
    now = &c;
    const struct ir_plan *p = plan_of(arena, &t);
    assert_non_null(p->kernels[0]->whole);
    assert_true(ir_make_stages(arena, p->kernels[0]->whole, &s));
    assert_non_null(s);
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const char *bad = ir_verify(s->stages[i].kernel, arena);
        if (bad)
            fail_msg("%s, stage %u: %s", text, (unsigned)i, bad);
    }
    return s;
}

static void what_several_need_is_computed_once(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct ir_stages *s = stages_of(arena, cases[0].text);
    assert_int_equal(count(s, OP_EXP, false), 1);
    assert_int_equal(count(s, OP_EXP, true), 0);
    assert_int_equal(s->n_temps, 3); /* max, exp, sum */

    /* a subtraction is as cheap as to keep it */
    s = stages_of(arena, cases[2].text);
    assert_int_equal(count(s, OP_SQRT, true), 1); /* for each row, not each point */
    assert_int_equal(count(s, OP_SQRT, false), 0);
    assert_int_equal(s->n_temps, 3); /* mean, var, the root */

    s = stages_of(arena, "sin(a)*cos(b) - max(sin(a)*cos(b), -1, keepdims=True)");
    assert_int_equal(count(s, OP_SIN, false), 1);
    assert_int_equal(count(s, OP_COS, false), 1);
    assert_int_equal(s->n_temps, 2);
}

/* In place: nothing of a row is written before all of it has been read. */
static void in_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct typed *t;
        now = &cases[i];
        const struct ir_plan *p = plan_of(arena, &t);
        const struct ir_whole *w = p->kernels[0]->whole;
        void **apart = slots_new(arena, p), **together = slots_new(arena, p);
        struct interp_run *r = NULL;
        bool never;
        for (uint32_t k = 0; k < w->n_parts; k++)
            run(interp_new(w->parts[k], apart, 2));
        for (uint32_t s = 0; s < p->n_slots; s++)
            if (p->slots[s].kind == SLOT_INPUT &&
                t->inputs[p->slots[s].index].array == (struct array *)&here[0])
                together[p->result_slot] = together[s];
        assert_true(ir_whole_fits(w, p->kernels, p->n_kernels, 0, together));
        assert_true(interp_whole_new(w, together, 2, &r, &never));
        assert_non_null(r);
        struct interp_scratch *s = interp_scratch_new(0);
        assert_true(interp_fit(r, s));
        for (int64_t u = 0; u < interp_units(r); u++)
            interp_unit(r, u, s);
        interp_free(r);
        interp_scratch_free(s);
        assert_memory_equal(apart[p->result_slot], together[p->result_slot],
                            (size_t)p->slots[p->result_slot].size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(random_expressions_too),
        cmocka_unit_test(what_several_need_is_computed_once),
        cmocka_unit_test(in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
