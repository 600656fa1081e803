/* Several steps in a pass on the CPU: tiles of every kind leave the same bits as so many single
 * steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <string.h>

#include "compute/backend.h"
#include "compute/base/mem.h"
#include "compute/cpu/interp/interp.h"
#include "tests/unit/slice.h"
#include "tests/unit/steps_kernels.h"

#define SLOTS (STEPS_OPERANDS + STEPS_FIELDS)

static struct interp_scratch *scratch;
static unsigned seed = 1;
static unsigned tiles_met[2], passes_met; /* cut along the axis; all */

static unsigned below(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static int64_t bytes_of(const struct steps_case *c)
{
    int64_t n = (int64_t)dtype_size(c->dtype);
    for (int a = 0; a < c->rank; a++)
        n *= c->shape[a];
    return n;
}

static void memory_new(void *slots[SLOTS], const struct steps_case *c)
{
    for (int i = 0; i < SLOTS; i++) {
        unsigned h = 12345u + (unsigned)i;
        const int n = i - STEPS_OPERANDS;
        bool used = false;
        for (int k = 0; k < STEPS_FIELDS && c->text[k]; k++)
            used |= n < 0 ? strstr(c->text[k], steps_names[i]) != NULL || k == i : k == n;
        slots[i] = NULL;
        if (!used)
            continue;
        slots[i] = mem_calloc(1, (size_t)bytes_of(c));
        assert_non_null(slots[i]);
        for (int64_t e = 0; n < 0 && e < bytes_of(c) / (int64_t)dtype_size(c->dtype); e++) {
            h = h * 1664525u + 1013904223u;
            const double v = (double)(h >> 8) / (1 << 24) + 0.01;
            if (c->dtype == DT_F64)
                ((double *)slots[i])[e] = v;
            else if (c->dtype == DT_F32)
                ((float *)slots[i])[e] = (float)v;
            else if (c->dtype == DT_U8)
                ((uint8_t *)slots[i])[e] = (uint8_t)(h >> 24);
            else
                ((int16_t *)slots[i])[e] = (int16_t)(h >> 16);
        }
    }
}

static void memory_free(void *slots[SLOTS])
{
    for (int i = 0; i < SLOTS; i++)
        mem_free(slots[i]);
}

static void run(struct interp_run *r)
{
    assert_true(interp_fit(r, scratch));
    for (int64_t i = interp_units(r); i-- > 0;) /* in any order */
        interp_unit(r, i, scratch);
    interp_finish(r, scratch);
}

static void step_by_step(void *slots[SLOTS], const struct steps_case *c, uint32_t steps)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    uint32_t n = 0;
    while (n < STEPS_FIELDS && c->text[n])
        n++;
    for (uint32_t i = 0; i < steps; i++) {
        for (uint32_t k = 0; k < n; k++) {
            struct interp_run *r = interp_new(steps_single(arena, c, (int)k), slots, 1);
            assert_non_null(r);
            run(r);
            interp_free(r);
        }
        for (uint32_t k = 0; k < n && i + 1 < steps; k++) {
            void *p = slots[k];
            slots[k] = slots[STEPS_OPERANDS + k];
            slots[STEPS_OPERANDS + k] = p;
        }
    }
}

static void note_tiles(const struct interp_run *r, const struct steps_case *c)
{
    _cleanup_strb_ struct strb text = {0};
    long long tile[2] = {0};
    unsigned steps;
    int axis[2];
    interp_describe(r, &text);
    const char *at = strstr(text.data, " steps in each tile");
    assert_non_null(at);
    while (at[-1] != '#')
        at--;
    const int n = sscanf(at, " %u steps in each tile of %lld along axis %d and %lld along axis %d",
                         &steps, &tile[0], &axis[0], &tile[1], &axis[1]);
    for (int i = 0; i < (n - 1) / 2; i++)
        tiles_met[i] += tile[i] < c->shape[axis[i]];
    passes_met++;
}

static void check(const struct steps_case *c, uint32_t steps, int threads, bool must)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    void *one[SLOTS], *all[SLOTS];
    struct ir_kernel *k = steps_kernel(arena, c, steps);
    assert_non_null(k);
    memory_new(one, c);
    memory_new(all, c);
    struct interp_run *r = interp_new(k, all, threads);
    assert_true(r || !must);
    if (r) {
        if (below(2))
            interp_keep(r, 1);
        note_tiles(r, c);
        for (int i = 0; i < 2; i++) { /* as in a loop of passes */
            run(r);
            interp_rewind(r);
        }
        step_by_step(one, c, steps);
    }
    for (int i = 0; r && i < STEPS_FIELDS && c->text[i]; i++)
        if (memcmp(one[STEPS_OPERANDS + i], all[STEPS_OPERANDS + i], (size_t)bytes_of(c)) != 0)
            fail_msg("%s: %lld × %lld × %lld, %u steps, %d threads: field %d differs", c->text[0],
                     (long long)c->shape[0], (long long)c->shape[1], (long long)c->shape[2], steps,
                     threads, i);
    interp_free(r);
    memory_free(one);
    memory_free(all);
}

#define HEAT(mode) "u + 0.1*laplacian(u, boundary='" mode "')"
#define GRAY_SCOTT                                                                                 \
    "u + 0.16*laplacian(u, boundary='wrap') - u*v*v + 0.06*(1-u)",                                 \
        "v + 0.08*laplacian(v, boundary='wrap') + u*v*v - 0.122*v"
#define FAR(mode)                                                                                  \
    "shift(u, (2, 0), '" mode "') + shift(u, (-2, 0), '" mode "') + 3*shift(u, (0, 2), '" mode     \
    "') - shift(u, (0, -2), '" mode "') + shift(u, (1, 0), '" mode "')"
#define NINE(mode)                                                                                 \
    "shift(u, (1, 1), '" mode "') + 3*shift(u, (1, -1), '" mode "') + shift(u, (-1, 1), '" mode    \
    "') + 5*shift(u, (-1, -1), '" mode "') - u"

static const struct {
    struct steps_case c;
    uint32_t steps;
} cases[] = {
    {{"", DT_F32, 2, {70, 300}, {HEAT("clamp")}}, 4},
    {{"", DT_F32, 2, {70, 300}, {HEAT("clamp")}}, 23},
    {{"", DT_F32, 2, {24, 60000}, {HEAT("clamp")}}, 6},
    {{"", DT_F32, 2, {20, 60001}, {HEAT("reflect")}}, 5},
    {{"", DT_F32, 2, {17, 60000}, {HEAT("wrap")}}, 7},
    {{"", DT_F64, 2, {17, 30000}, {HEAT("constant")}}, 4},
    {{"", DT_F32, 2, {300, 602}, {HEAT("self")}}, 4},
    {{"", DT_F32, 2, {1200, 900}, {HEAT("wrap")}}, 8},
    {{"", DT_F32, 2, {60, 260}, {"2*u - v + 0.25*laplacian(u, boundary='clamp')", "u"}}, 5},
    {{"", DT_F32, 2, {60, 260}, {GRAY_SCOTT}}, 4},
    {{"",
      DT_F64,
      2,
      {30, 61},
      {"u + 0.1*laplacian(v, boundary='clamp')", "w - 0.1*central_diff(u, 0, boundary='reflect')",
       "w + 0.5*u*v"}},
     3},
    {{"", DT_F32, 2, {40, 264}, {"u + 0.1*k*laplacian(u, boundary='wrap') + kt*row"}}, 4},
    {{"", DT_F32, 2, {40, 133}, {"u*0.5 + shift(u, (0, 1), 'wrap') + index(0) - 3*index(1)"}}, 4},
    {{"", DT_F32, 2, {2050, 4100}, {HEAT("wrap")}}, 2}, /* past the caches */
    {{"", DT_F32, 3, {100, 300, 290}, {HEAT("clamp")}}, 3},
    {{"", DT_F32, 1, {100000}, {HEAT("wrap")}}, 8},
    {{"", DT_F64, 1, {4999}, {HEAT("clamp")}}, 5},
    {{"", DT_F32, 3, {4, 1000, 500}, {HEAT("wrap")}}, 3},
    {{"", DT_F32, 3, {40, 300, 256}, {HEAT("clamp")}}, 3},
    {{"", DT_F32, 3, {2, 700, 256}, {HEAT("reflect")}}, 4},
    {{"", DT_F32, 3, {12, 40, 72}, {GRAY_SCOTT}}, 2},
    {{"",
      DT_F32,
      3,
      {8, 31, 37},
      {"u + 0.1*k*laplacian(u, boundary='wrap') + kt*row + index(0) - 2*index(1) + index(2)"}},
     3},
    {{"",
      DT_F32,
      3,
      {8, 30, 72},
      {"u + 0.1*shift(u, (0, 1, 0), 'wrap') - 0.2*shift(u, (0, 0, -1), 'clamp')"}},
     3},
    {{"", DT_U8, 4, {5, 6, 7, 8}, {"u + shift(u, (1, 0, 0, 1)) + shift(u, (0, -1, 1, 0))"}}, 3},
};

static void tiles_leave_the_bits_of_single_steps(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 7};
    const int step = slice_step(3);
    for (size_t i = (size_t)slice_from(step); i < sizeof cases / sizeof *cases; i += (size_t)step)
        for (size_t t = 0; t < (bytes_of(&cases[i].c) > 1 << 24 ? 1 : 3); t++)
            check(&cases[i].c, cases[i].steps, threads[t], false);
}

#define MODES(of)                                                                                  \
    of("clamp"), of("wrap"), of("reflect"), of("symmetric"), of("constant"), of("self")

static const char *const flat_texts[] = {MODES(HEAT), MODES(FAR), MODES(NINE)};
static const char *const other_texts[] = {MODES(HEAT)};

static void so_do_tiles_of_any_size(void **state)
{
    (void)state;
    const int rounds = (getenv("ARRAYD_LONG") ? 20000 : 1500) / slice_step(3);
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F64, DT_U8, DT_I16};
    passes_met = tiles_met[0] = tiles_met[1] = 0;
    seed = 1 + (unsigned)slice_from(1000000);
    for (int i = 0; i < rounds; i++) {
        struct steps_case c = {.name = "", .rank = 1 + (int)below(3)};
        c.dtype = types[below(5)];
        for (int a = 0; a < c.rank; a++)
            c.shape[a] = 1 + below(below(3) ? 70 : 12);
        if (c.rank == 3) /* not to take long */
            c.shape[below(3)] = 1 + below(9);
        const bool flat = c.rank == 2;
        const unsigned n = sizeof flat_texts / sizeof *flat_texts;
        c.text[0] = flat ? flat_texts[below(n)] : other_texts[below(6)];
        if (c.dtype == DT_U8 || c.dtype == DT_I16)
            c.text[0] = flat ? flat_texts[6 + below(n - 6)] : "u*3 - k";
        else if (below(3) == 0)
            c.text[1] = below(2) ? "u + 0.5*v" : "v - 0.1*k*u";
        check(&c, 2 + below(22), 1 + (int)below(9), false);
    }
    assert_true(passes_met > (unsigned)rounds / 3);
    assert_true(tiles_met[0] > (unsigned)rounds / 5);
    assert_true(tiles_met[1] > (unsigned)rounds / 100);
}

static void what_cannot_be_tiled_is_declined(void **state)
{
    (void)state;
    static const struct {
        struct steps_case c;
        const char *why;
        uint32_t most;
    } of[] = {
        {{"", DT_F32, 2, {3000, 3000}, {HEAT("clamp")}}, "twice", 8},
        {{"", DT_F32, 2, {100, 100}, {HEAT("clamp")}}, "caches", 1},
        {{"", DT_F32, 2, {3000, 3000}, {"u + permute_dims(u, (1, 0))"}}, "across", 1},
        {{"", DT_F32, 2, {3000, 3000}, {"u + shift(u, (9, 0), 'wrap')"}}, "too far", 1},
        {{"", DT_F32, 2, {3000, 3000}, {"u + shift(u, (1, 1), 'self')"}}, "diagonally", 1},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct ir_kernel *k = steps_kernel(arena, &of[i].c, 0);
        void *slots[SLOTS];
        const char *why = NULL;
        assert_non_null(k);
        for (int s = 0; s < SLOTS; s++)
            slots[s] = (void *)((uintptr_t)(s + 1) << 32);
        const uint32_t steps = interp_best_steps(k, slots, 2, &why);
        assert_in_range(steps, of[i].most > 1 ? 2 : 1, of[i].most);
        if (!strstr(why, of[i].why))
            fail_msg("%s: %s", of[i].c.text[0], why);
    }
}

static bool never_wanted(void *user)
{
    ++*(int *)user;
    return true;
}

static void a_pass_that_nobody_wants_ends(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct steps_case c = {"", DT_F32, 2, {1200, 900}, {HEAT("wrap")}};
    struct ir_kernel *k = steps_kernel(arena, &c, 8);
    void *slots[SLOTS];
    int asked = 0;
    struct interp_watch watch = {.ask = never_wanted, .user = &asked};
    memory_new(slots, &c);
    struct interp_run *r = interp_new(k, slots, 2);
    assert_non_null(r);
    interp_set_watch(r, &watch);
    run(r);
    assert_int_equal(asked, 1);
    interp_free(r);
    memory_free(slots);
}

int main(void)
{
    scratch = interp_scratch_new(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_leave_the_bits_of_single_steps),
        cmocka_unit_test(so_do_tiles_of_any_size),
        cmocka_unit_test(what_cannot_be_tiled_is_declined),
        cmocka_unit_test(a_pass_that_nobody_wants_ends),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    interp_scratch_free(scratch);
    return failed;
}
