/* compute/plan_cache: what is found again, what is not, and that a plan found again computes with
 * the arrays of now. Through the engine on the CPU backend. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/memory/memory_int.h"
#include "protocol/text/infix.h"

struct named {
    const char *name;
    struct binding b;
};

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    struct named names[4];
    size_t n_names;
};

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    (void)e;
    struct fixture *f = user;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (size_t i = 0; i < f->n_names; i++)
        if (!strcmp(f->names[i].name, name))
            *ret = f->names[i].b;
    return ERR_OK;
}

static void open_limited(struct fixture *f, uint32_t capacity, int64_t bytes)
{
    memset(f, 0, sizeof *f);
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.plan_cache = capacity;
    config.plan_cache_bytes = bytes;
    assert_int_equal(engine_open(&config, &f->g, NULL), ERR_OK);
    assert_int_equal(engine_stream_new(f->g, 0, &f->s, NULL), ERR_OK);
    f->account = account_new(0);
    assert_non_null(f->account);
}

static void open_fixture(struct fixture *f, uint32_t capacity)
{
    open_limited(f, capacity, 32 << 20);
}

static void close_fixture(struct fixture *f)
{
    while (engine_jobs_in_flight(f->g))
        ;
    assert_int_equal(engine_bytes_in_use(f->g), 0); /* kept plans keep no array */
    engine_stream_unref(f->s);
    account_unref(f->account);
    engine_close(f->g);
}

static struct array *filled(struct fixture *f, enum dtype t, int64_t n, double value)
{
    struct literal l = {.kind = LIT_FLOAT, .re = value};
    struct scalar s;
    struct array *a;
    assert_int_equal(scalar_from_literal(t, &l, &s, NULL), ERR_OK);
    assert_int_equal(engine_full(f->s, f->account, s, 1, &n, &a, NULL), ERR_OK);
    return a;
}

static void bind(struct fixture *f, size_t at, const char *name, struct array *a)
{
    f->names[at] = (struct named){
        name, {.kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view}};
    if (at >= f->n_names)
        f->n_names = at + 1;
}

/* most_nodes: see struct eval_request. */
static enum err_code evaluate_of(struct fixture *f, const char *text, struct array *out,
                                 size_t most_nodes, struct array **ret)
{
    struct arena *arena = arena_new(0);
    assert_non_null(arena);
    struct expr x;
    uint32_t source;
    expr_init(&x, arena, 10000, 400);
    assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
    assert_int_equal(infix_parse(&x, source, text, strlen(text), &x.root, NULL), ERR_OK);
    struct check_env env = {.resolve = resolve, .user = f, .max_inputs = 64};
    struct eval_request req = {
        .expr = &x, .env = &env, .dtype = -1, .out = out, .most_nodes = most_nodes};
    enum err_code code = engine_evaluate(f->s, f->account, &req, ret, NULL, NULL, NULL, NULL);
    arena_free(arena);
    return code;
}

static enum err_code evaluate(struct fixture *f, const char *text, struct array *out,
                              struct array **ret)
{
    return evaluate_of(f, text, out, 0, ret);
}

/* False where the work on it failed. */
static bool read_first(struct fixture *f, struct array *a, double *ret)
{
    struct download *d = NULL;
    union value v;
    assert_int_equal(download_new(f->s, a, NULL, NULL, &d, NULL), ERR_OK);
    int64_t got;
    do
        got = download_pull(d, 0, &v, dtype_size(a->dtype));
    while (got == 0);
    assert_true(got < 0 ? download_result(d) == ERR_OUT_OF_MEMORY : got == dtype_size(a->dtype));
    download_free(d);
    *ret = a->dtype == DT_F64 ? v.f64 : a->dtype == DT_F32 ? v.f32 : (double)v.i64;
    return got > 0;
}

static double first(struct fixture *f, struct array *a)
{
    double v;
    assert_true(read_first(f, a, &v));
    return v;
}

/* The expression's first element, and whether the plan was there. */
static double value(struct fixture *f, const char *text, bool *ret_hit)
{
    struct plan_counts before, after;
    struct array *a = NULL;
    plan_cache_counts(f->g->plans, &before);
    assert_int_equal(evaluate(f, text, NULL, &a), ERR_OK);
    plan_cache_counts(f->g->plans, &after);
    assert_int_equal(after.hits + after.misses, before.hits + before.misses + 1);
    *ret_hit = after.hits > before.hits;
    double v = first(f, a);
    array_unref(a);
    return v;
}

static void a_repeated_expression_computes_with_the_arrays_of_now(void **state)
{
    (void)state;
    struct fixture f;
    bool hit;
    open_fixture(&f, 8);
    struct array *one = filled(&f, DT_F32, 100, 1), *two = filled(&f, DT_F32, 100, 2);
    bind(&f, 0, "a", one);
    bind(&f, 1, "b", two);
    assert_true(value(&f, "a + 10*b + pi*0", &hit) == 21 && !hit);
    assert_true(value(&f, "a + 10*b + pi*0", &hit) == 21 && hit);
    bind(&f, 0, "a", two);
    bind(&f, 1, "b", one);
    assert_true(value(&f, "a + 10*b + pi*0", &hit) == 12 && hit);
    /* another text, another literal */
    assert_true(value(&f, "a + 20*b + pi*0", &hit) == 22 && !hit);
    array_unref(one);
    array_unref(two);
    close_fixture(&f);
}

static void other_meanings_of_the_names_are_other_plans(void **state)
{
    (void)state;
    struct fixture f;
    bool hit;
    open_fixture(&f, 8);
    struct array *one = filled(&f, DT_F32, 100, 1), *two = filled(&f, DT_F32, 100, 2);
    struct array *wide = filled(&f, DT_F64, 100, 3), *longer = filled(&f, DT_F32, 200, 4);
    bind(&f, 0, "a", one);
    bind(&f, 1, "b", two);
    assert_true(value(&f, "a - b", &hit) == -1 && !hit);
    bind(&f, 1, "b", one); /* one array twice: one operand */
    assert_true(value(&f, "a - b", &hit) == 0 && !hit);
    assert_true(value(&f, "a - b", &hit) == 0 && hit);
    bind(&f, 1, "b", wide);
    assert_true(value(&f, "a - b", &hit) == -2 && !hit);
    bind(&f, 0, "a", longer);
    bind(&f, 1, "b", longer);
    assert_true(value(&f, "a - b", &hit) == 0 && !hit);
    bind(&f, 0, "a", one);
    f.names[1].b = (struct binding){.kind = BINDING_LITERAL, .lit = {.kind = LIT_INT, .i = 5}};
    assert_true(value(&f, "a - b", &hit) == -4 && !hit);
    f.names[1].b.lit.i = 6;
    assert_true(value(&f, "a - b", &hit) == -5 && !hit);
    f.names[1].b =
        (struct binding){.kind = BINDING_SCALAR, .scalar = {.dtype = DT_F64, .v.f64 = 0.5}};
    assert_true(value(&f, "a - b", &hit) == 0.5 && !hit);
    assert_true(value(&f, "a - b", &hit) == 0.5 && hit);
    /* a constant's name becomes an array's */
    assert_true(value(&f, "a*0 + e*0", &hit) == 0 && !hit);
    bind(&f, 2, "e", two);
    assert_true(value(&f, "a*0 + e*1", &hit) == 2 && !hit);
    f.names[2].name = "other";
    struct array *a = NULL;
    f.names[1].name = "gone";
    assert_int_equal(evaluate(&f, "a - b", NULL, &a), ERR_UNKNOWN_NAME);
    array_unref(one);
    array_unref(two);
    array_unref(wide);
    array_unref(longer);
    close_fixture(&f);
}

static void targets_are_part_of_the_plan(void **state)
{
    (void)state;
    struct fixture f;
    bool hit;
    open_fixture(&f, 8);
    struct array *a = filled(&f, DT_F64, 10, 1), *same = NULL;
    struct index_spec ix = {.n = 1,
                            .items = {{.kind = INDEX_SLICE, .has_start = true, .start = 1}}};
    struct view v;
    assert_int_equal(view_index(&a->view, &ix, &v, NULL), ERR_OK);
    struct array *tail = array_view(a, DT_F64, &v);
    bind(&f, 0, "a", a);
    bind(&f, 1, "t", tail);
    /* u[1:] = u[:-1] + 1 three times: each through a temporary, because it reads what it writes */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(evaluate(&f, "a[:-1] + 1", tail, &same), ERR_OK);
        array_unref(same);
    }
    struct plan_counts c;
    plan_cache_counts(f.g->plans, &c);
    assert_int_equal(c.hits, 2);
    assert_int_equal(c.entries, 1);
    assert_true(value(&f, "a[0]", &hit) == 1);
    assert_true(value(&f, "a[1]", &hit) == 2);
    assert_true(value(&f, "a[2]", &hit) == 3);
    assert_true(value(&f, "a[3]", &hit) == 4);
    assert_true(value(&f, "a[9]", &hit) == 4);
    /* the same text into nothing is another plan */
    assert_true(value(&f, "a[:-1] + 1", &hit) == 2 && !hit);
    array_unref(tail);
    array_unref(a);
    close_fixture(&f);
}

static void the_oldest_go_first(void **state)
{
    (void)state;
    struct fixture f;
    bool hit;
    open_fixture(&f, 2);
    struct array *a = filled(&f, DT_F64, 10, 1);
    bind(&f, 0, "a", a);
    value(&f, "a+1", &hit);
    value(&f, "a+2", &hit);
    assert_true(value(&f, "a+1", &hit) == 2 && hit);
    value(&f, "a+3", &hit); /* a+2 goes */
    assert_true(value(&f, "a+1", &hit) == 2 && hit);
    assert_true(value(&f, "a+2", &hit) == 3 && !hit);
    struct plan_counts c;
    plan_cache_counts(f.g->plans, &c);
    assert_int_equal(c.entries, 2);
    array_unref(a);
    close_fixture(&f);
    open_fixture(&f, 0);
    a = filled(&f, DT_F64, 10, 1);
    bind(&f, 0, "a", a);
    assert_true(value(&f, "a+1", &hit) == 2 && !hit);
    assert_true(value(&f, "a+1", &hit) == 2 && !hit);
    array_unref(a);
    close_fixture(&f);
}

static void one_text_may_have_very_many_meanings(void **state)
{
    (void)state;
    enum { MANY = 200 };
    struct fixture f;
    struct array *a[MANY];
    bool hit;
    open_fixture(&f, 512);
    for (int i = 0; i < MANY; i++)
        a[i] = filled(&f, DT_F64, i + 1, i);
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < MANY; i++) {
            bind(&f, 0, "a", a[i]);
            assert_true(value(&f, "a*2", &hit) == 2 * i && hit == again);
        }
    for (int i = 0; i < MANY; i++)
        array_unref(a[i]);
    close_fixture(&f);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    enum { LIMIT = 100 << 10 };
    struct fixture f;
    struct plan_counts c;
    bool hit;
    open_limited(&f, 512, LIMIT);
    struct array *a = filled(&f, DT_F64, 10, 1), *same = NULL;
    bind(&f, 0, "a", a);
    struct view v = a->view;
    v.shape[0] = 9;
    v.offset = 1;
    struct array *tail = array_view(a, DT_F64, &v);
    for (int i = 0; i < 40; i++) {
        char text[32];
        snprintf(text, sizeof text, "a[:-1]*0 + %d", i);
        assert_true(value(&f, text, &hit) == i && !hit);
        /* a plan that gets a second one, through a temporary */
        assert_int_equal(evaluate(&f, text, tail, &same), ERR_OK);
        array_unref(same);
        plan_cache_counts(f.g->plans, &c);
        assert_in_range(c.bytes, 1, LIMIT);
        assert_true(value(&f, text, &hit) == i && hit);
    }
    assert_in_range(c.entries, 2, 12);
    /* one that is larger than all of it */
    struct strb text = {0};
    strb_add(&text, "a");
    for (int i = 0; i < 100; i++)
        strb_addf(&text, "+sin(a*1.%03d)", i);
    assert_int_equal(evaluate(&f, text.data, NULL, &same), ERR_OK);
    array_unref(same);
    strb_free(&text);
    uint32_t before = c.entries;
    plan_cache_counts(f.g->plans, &c);
    assert_int_equal(c.entries, before);
    array_unref(tail);
    array_unref(a);
    close_fixture(&f);
}

/* Two who missed at once, and two who staged at once. */
static void what_is_there_already_stays(void **state)
{
    (void)state;
    struct plan_cache_config config = {.capacity = 4, .bytes = 1 << 20};
    struct plan_cache *cache = plan_cache_new(&config);
    struct plan_names names = {.complete = true};
    struct plan_entry *first = plan_entry_new(cache), *second = plan_entry_new(cache);
    assert_true(plan_cache_add(first, &names, "key", 3));
    assert_true(plan_cache_add(second, &names, "key", 3));
    struct plan_counts c;
    plan_cache_counts(cache, &c);
    assert_int_equal(c.entries, 1);
    struct plan_entry *found = plan_cache_find(cache, "key", 3);
    assert_ptr_equal(found, first);
    assert_null(plan_entry_staged(found));
    struct arena *one = arena_new(0), *two = arena_new(0);
    struct ir_plan *p = arena_alloc(one, sizeof *p), *q = arena_alloc(two, sizeof *q);
    assert_ptr_equal(plan_entry_stage(first, one, p), p);
    assert_ptr_equal(plan_entry_stage(found, two, q), p);
    assert_ptr_equal(plan_entry_staged(first), p);
    size_t bytes = c.bytes;
    plan_cache_counts(cache, &c);
    assert_true(c.bytes > bytes);
    plan_entry_unref(found);
    plan_entry_unref(first);
    plan_entry_unref(second);
    plan_cache_free(cache);
}

/* In a tree a string may be a name; in a text it never is. */
static void strings_of_trees_are_other_keys(void **state)
{
    (void)state;
    struct strb keys[2] = {0};
    struct arena *arena = arena_new(0);
    for (int i = 0; i < 2; i++) {
        struct expr x;
        struct expr_node n = {.kind = EXPR_STRING, .name = "u", .offset = i - 1};
        uint32_t source;
        expr_init(&x, arena, 10, 10);
        assert_int_equal(expr_add_source(&x, "", &source, NULL), ERR_OK);
        assert_int_equal(expr_add(&x, &n, NULL, 0, 0, &x.root, NULL), ERR_OK);
        assert_true(plan_key_expr(&keys[i], &x));
    }
    assert_int_equal(keys[0].len, keys[1].len);
    assert_memory_not_equal(keys[0].data, keys[1].data, keys[0].len);
    strb_free(&keys[0]);
    strb_free(&keys[1]);
    arena_free(arena);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct fixture f;
    bool hit;
    open_fixture(&f, 4);
    struct array *a = filled(&f, DT_F64, 10, 1), *got = NULL;
    bind(&f, 0, "a", a);
    for (int again = 0; again < 2; again++)
        for (int64_t nth = 4;; nth++) { /* the test's own allocations come first */
            struct arena *arena = arena_new(0);
            struct expr x;
            uint32_t source;
            expr_init(&x, arena, 100, 100);
            assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
            assert_int_equal(infix_parse(&x, source, "a*a + 2", 7, &x.root, NULL), ERR_OK);
            struct check_env env = {.resolve = resolve, .user = &f, .max_inputs = 64};
            struct eval_request req = {.expr = &x, .env = &env, .dtype = -1};
            mem_fail_after(nth - 3, false);
            enum err_code code =
                engine_evaluate(f.s, f.account, &req, &got, NULL, NULL, NULL, NULL);
            int64_t failed = mem_failed();
            mem_fail_after(0, false);
            arena_free(arena);
            if (code == ERR_OK) {
                double v;
                if (read_first(&f, got, &v))
                    assert_true(v == 3);
                else
                    assert_true(failed);
                array_unref(got);
            } else {
                assert_int_equal(code, ERR_OUT_OF_MEMORY);
            }
            if (!failed)
                break;
        }
    assert_true(value(&f, "a*a + 2", &hit) == 3 && hit);
    array_unref(a);
    close_fixture(&f);
}

static void *many(void *arg)
{
    struct fixture *f = arg;
    static const char *const texts[] = {"a+1", "a+2", "a+3", "a+4", "a+5", "a*a"};
    for (int i = 0; i < 300; i++) {
        struct array *r = NULL;
        int k = (i * 7 + (int)(uintptr_t)pthread_self() / 4096) % 6;
        if (k < 0)
            k += 6;
        if (evaluate(f, texts[k], NULL, &r) != ERR_OK)
            return (void *)1;
        double want = k == 5 ? 1 : k + 2;
        if (first(f, r) != want)
            return (void *)1;
        array_unref(r);
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 3);
    struct array *a = filled(&f, DT_F64, 10, 1);
    bind(&f, 0, "a", a);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, many, &f), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    array_unref(a);
    close_fixture(&f);
}

/* Of more nodes than may be planned: only where the plan is there. Putting off changes and counts
 * nothing. */
static void large_ones_are_put_off(void **state)
{
    (void)state;
    struct fixture fix, *f = &fix;
    struct plan_counts before, after;
    open_fixture(f, 8);
    struct array *u = filled(f, DT_F64, 8, 3), *r = u;
    bind(f, 0, "u", u);
    uint64_t version = array_version(u);
    plan_cache_counts(f->g->plans, &before);
    assert_int_equal(evaluate_of(f, "u*2 + 77", NULL, 4, &r), ERR_OK);
    assert_null(r);
    r = u;
    assert_int_equal(evaluate_of(f, "u*2 + 77", u, 4, &r), ERR_OK);
    assert_null(r);
    plan_cache_counts(f->g->plans, &after);
    assert_int_equal(after.hits + after.misses, before.hits + before.misses);
    assert_int_equal(array_version(u), version);
    assert_true(first(f, u) == 3);

    assert_int_equal(evaluate_of(f, "u*2 + 77", NULL, 5, &r), ERR_OK); /* as many as may be */
    assert_true(first(f, r) == 83);
    array_unref(r);
    assert_int_equal(evaluate_of(f, "u*2 + 77", NULL, 4, &r), ERR_OK); /* it is there by now */
    assert_true(first(f, r) == 83);
    array_unref(r);
    array_unref(u);
    close_fixture(f);
}

/* Such as a loop's statements become, each written out in the next. */
static void long_ones_are_kept(void **state)
{
    (void)state;
    struct fixture f;
    char text[2048] = "u";
    bool hit;
    open_fixture(&f, 8);
    struct array *u = filled(&f, DT_F64, 16, 1);
    bind(&f, 0, "u", u);
    for (int i = 0; i < 300; i++)
        strcat(text, "+2*u");
    for (int again = 0; again < 2; again++) {
        assert_true(value(&f, text, &hit) == 601);
        assert_int_equal(hit, again);
    }
    array_unref(u);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_expression_computes_with_the_arrays_of_now),
        cmocka_unit_test(other_meanings_of_the_names_are_other_plans),
        cmocka_unit_test(targets_are_part_of_the_plan),
        cmocka_unit_test(the_oldest_go_first),
        cmocka_unit_test(one_text_may_have_very_many_meanings),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(what_is_there_already_stays),
        cmocka_unit_test(strings_of_trees_are_other_keys),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(large_ones_are_put_off),
        cmocka_unit_test(long_ones_are_kept),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
