/* compute/base/meter: limits within limits, what counts there, and what an error says of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/arena.h"
#include "compute/base/mem.h"
#include "compute/base/meter.h"
#include "compute/base/strb.h"
#include "compute/engine/plan_cache.h"

#define MIB (1 << 20)

struct fixture {
    struct meter *all, *user, *request;
    struct cause cause;
    int64_t live;
};

static void open_fixture(struct fixture *f, int64_t all, int64_t user, int64_t request)
{
    f->live = mem_live();
    f->all = meter_new(NULL, "all", all, ERR_OVERLOADED);
    f->user = meter_new(f->all, "the user's", user, ERR_QUOTA);
    f->cause = (struct cause){.within = f->user, .limit = request, .name = "the request's"};
    meter_enter(&f->cause);
    f->request = meter_current();
}

static void close_fixture(struct fixture *f)
{
    assert_ptr_equal(meter_current(), f->request);
    meter_enter(NULL);
    assert_null(meter_current());
    assert_int_equal(meter_used(f->all), 0);
    assert_int_equal(meter_used(f->request), 0);
    meter_unref(f->all);
    meter_unref(f->user);
    meter_unref(f->request);
    assert_int_equal(mem_live(), f->live);
}

static void refused(enum err_code code, const char *name)
{
    struct err e = ERR_INIT;
    assert_int_equal(err_oom(&e), code);
    assert_non_null(strstr(e.message, name));
    assert_int_equal(err_oom(&e), ERR_OUT_OF_MEMORY); /* told once */
    assert_non_null(strstr(e.message, "out of memory"));
}

static void each_limit_holds_and_says_so(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 100, 80, 60);
    assert_true(meter_charge(f.request, 60));
    assert_false(meter_charge(f.request, 1));
    refused(ERR_OUT_OF_MEMORY, "the request's of 60 bytes (60 in use)");
    struct meter *other = meter_new(f.user, "the request's", 60, ERR_OUT_OF_MEMORY);
    assert_false(meter_charge(other, 21));
    refused(ERR_QUOTA, "the user's of 80 bytes (60 in use)");
    assert_int_equal(meter_used(other), 0);
    meter_set_limit(f.user, 0); /* none */
    assert_true(meter_charge(other, 40));
    assert_false(meter_charge(other, 1));
    refused(ERR_OVERLOADED, "all of 100 bytes (100 in use)");
    meter_discharge(other, 40);
    meter_discharge(f.request, 60);
    meter_set_limit(f.user, 50); /* more than it can ever have: another try is no use */
    assert_true(meter_charge(f.request, 40));
    assert_false(meter_charge(f.request, 11));
    refused(ERR_OUT_OF_MEMORY, "the user's");
    meter_discharge(f.request, 40);
    meter_unref(other);
    close_fixture(&f);
}

static void arenas_count_what_is_not_little(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0, 4 * MIB, 2 * MIB);
    struct arena *little = arena_new(0), *much = arena_new(0);
    assert_non_null(arena_alloc(little, 1000));
    assert_int_equal(meter_used(f.all), 0);
    while (arena_alloc(much, 1000))
        ;
    refused(ERR_OUT_OF_MEMORY, "the request's");
    assert_in_range(meter_used(f.all), MIB, 2 * MIB);
    assert_null(arena_alloc(little, 2 * MIB));
    meter_enter(NULL); /* what is there counts where it did, whoever lets it go */
    arena_free(little);
    arena_free(much);
    assert_int_equal(meter_used(f.all), 0);
    struct arena *nobodys = arena_new(0);
    assert_non_null(arena_alloc(nobodys, 8 * MIB));
    arena_free(nobodys);
    meter_enter(&f.cause);
    close_fixture(&f);
}

static void an_exempt_arena_counts_again_afterwards(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0, 0, 3 * MIB);
    struct arena *a = arena_new(0);
    assert_non_null(arena_alloc(a, MIB));
    assert_true(arena_count(a, MIB));
    assert_false(arena_count(a, MIB));
    int64_t used = meter_used(f.request);
    arena_exempt(a, true);
    arena_exempt(a, true);
    assert_int_equal(meter_used(f.request), 0);
    assert_true(arena_count(a, 4 * MIB));
    arena_exempt(a, false); /* whatever the limits say */
    assert_int_equal(meter_used(f.request), used + 4 * MIB);
    arena_exempt(a, true);
    arena_free(a);
    close_fixture(&f);
}

static void texts_count_from_some_length_on(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0, 0, MIB);
    struct strb b = {0}, moved;
    while (b.len < 10000)
        strb_add(&b, "0123456789");
    assert_int_equal(meter_used(f.request), 0);
    while (!b.failed)
        strb_add(&b, "0123456789");
    assert_int_equal(meter_used(f.request), MIB);
    refused(ERR_OUT_OF_MEMORY, "the request's");
    moved = b; /* a builder is handed on by copying it */
    strb_free(&moved);
    assert_int_equal(meter_used(f.request), 0);
    b = (struct strb){0};
    while (b.len < MIB / 4)
        strb_add(&b, "0123456789");
    mem_free(strb_take(&b, NULL)); /* whose it is now counts it, or does not */
    assert_int_equal(meter_used(f.request), 0);
    close_fixture(&f);
}

/* What the cache and others keep counts there, and for nobody else until the last lets go. */
static void kept_plans_count_for_no_request(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0, 0, 0);
    struct plan_cache_config config = {.capacity = 4, .bytes = 2 * MIB};
    struct plan_cache *cache = plan_cache_new(&config);
    struct plan_names names = {.complete = true};
    struct plan_entry *en = plan_entry_new(cache), *next = plan_entry_new(cache);
    assert_non_null(arena_alloc(en->arena, MIB));
    int64_t used = meter_used(f.request);
    assert_in_range(used, MIB, 2 * MIB);
    assert_true(plan_cache_add(en, &names, "one", 3));
    assert_int_equal(meter_used(f.request), 0);
    assert_int_equal(plan_entry_keep(en), en->bytes);
    assert_int_equal(plan_entry_keep(en), 0); /* again */
    assert_non_null(arena_alloc(next->arena, MIB + MIB / 2));
    assert_true(plan_cache_add(next, &names, "two", 3)); /* it gives way */
    assert_null(plan_cache_find(cache, "one", 3));
    assert_int_equal(meter_used(f.request), 0);
    assert_int_equal(plan_entry_unkeep(en), 0);
    assert_int_equal(plan_entry_unkeep(en), en->bytes);
    assert_int_equal(meter_used(f.request), used);
    plan_entry_unref(en);
    assert_int_equal(meter_used(f.request), 0);
    struct plan_entry *large = plan_entry_new(cache); /* which leaves the others where they are */
    assert_non_null(arena_alloc(large->arena, 3 * MIB));
    assert_true(plan_cache_add(large, &names, "three", 5));
    assert_in_range(meter_used(f.request), 3 * MIB, 4 * MIB);
    struct plan_entry *found = plan_cache_find(cache, "two", 3);
    assert_ptr_equal(found, next);
    struct arena *own = arena_new(0); /* with a plan for other memory it is too large, too */
    struct ir_plan *p = arena_alloc(own, sizeof *p);
    assert_non_null(arena_alloc(own, MIB));
    plan_entry_unref(large);
    assert_ptr_equal(plan_entry_stage(next, own, p), p);
    assert_null(plan_cache_find(cache, "two", 3));
    assert_in_range(meter_used(f.request), 5 * MIB / 2, 3 * MIB);
    plan_entry_unref(found);
    plan_entry_unref(next);
    plan_cache_free(cache);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_limit_holds_and_says_so),
        cmocka_unit_test(arenas_count_what_is_not_little),
        cmocka_unit_test(an_exempt_arena_counts_again_afterwards),
        cmocka_unit_test(texts_count_from_some_length_on),
        cmocka_unit_test(kept_plans_count_for_no_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
