/* The form steps on the fake driver: so many steps in one launch leave the same bits as so many
 * launches of one step each, made by the other forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <string.h>

#include "compute/backend.h"
#include "compute/gpu/text/emit.h"
#include "tests/unit/cuda_arrays.h"
#include "tests/unit/slice.h"
#include "tests/unit/steps_kernels.h"

#define SLOTS (STEPS_OPERANDS + STEPS_FIELDS)

static struct backend *b;
static struct backend_stream *s;

static void job_done(struct job *job)
{
    atomic_store((_Atomic bool *)job->user, true);
}

static void run(struct job *job)
{
    _Atomic bool told = false;
    int tries = 0;
    job->done = job_done;
    job->user = &told;
    b->ops->submit(s, job);
    while (!atomic_load(&told))
        pause_a_little(&tries);
    assert_int_equal(job->result, ERR_OK);
}

/* Memory on the device, of the size of the whole array for every slot. */
struct memory {
    void *slots[SLOTS];
    char *host;
    int64_t bytes;
};

static void memory_new(struct memory *m, int64_t bytes)
{
    struct err e = ERR_INIT;
    void *host;
    m->bytes = bytes;
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(b->ops->alloc(b, 0, bytes, false, &m->slots[i], &e), ERR_OK);
    assert_int_equal(b->ops->host_alloc(b, bytes, NULL, &host, &e), ERR_OK);
    m->host = host;
}

static void memory_free(struct memory *m)
{
    for (int i = 0; i < SLOTS; i++)
        b->ops->free(b, 0, m->slots[i], m->bytes);
    b->ops->host_free(b, m->host, m->bytes, false);
}

static void copy(struct memory *m, int slot, bool to_host)
{
    struct job_copy c = {.to = to_host ? m->host : m->slots[slot],
                         .from = to_host ? m->slots[slot] : m->host,
                         .n = m->bytes,
                         .way = to_host ? COPY_OUT : COPY_IN};
    struct job job = {.copies = &c, .n_copies = 1, .slots = m->slots};
    run(&job);
}

/* Operand i's values: the same each time, none of them 0. */
static void fill(struct memory *m, int i, enum dtype t)
{
    unsigned h = 12345u + (unsigned)i;
    for (int64_t n = 0; n < m->bytes / (int64_t)dtype_size(t); n++) {
        h = h * 1664525u + 1013904223u;
        double v = (double)(h >> 8) / (1 << 24) + 0.01;
        if (t == DT_F64)
            ((double *)m->host)[n] = v;
        else if (t == DT_F32)
            ((float *)m->host)[n] = (float)v;
        else if (t == DT_U8)
            ((uint8_t *)m->host)[n] = (uint8_t)(h >> 24 & 1);
        else
            ((int16_t *)m->host)[n] = (int16_t)(h >> 16);
    }
    copy(m, i, false);
}

static void release(struct ir_kernel *k)
{
    if (k)
        b->ops->release(b, k);
}

/* The fields after so many steps, one launch each, in m's results. */
static void step_by_step(struct memory *m, const struct steps_case *c, uint32_t steps)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct ir_kernel *singles[STEPS_FIELDS] = {NULL};
    uint32_t n = 0;
    for (; n < STEPS_FIELDS && c->text[n]; n++)
        assert_non_null(singles[n] = steps_single(arena, c, (int)n));
    for (uint32_t i = 0; i < steps; i++) {
        struct job job = {.kernels = singles, .n_kernels = n, .slots = m->slots};
        run(&job);
        for (uint32_t k = 0; k < n && i + 1 < steps; k++) {
            void *p = m->slots[k];
            m->slots[k] = m->slots[STEPS_OPERANDS + k];
            m->slots[STEPS_OPERANDS + k] = p;
        }
    }
    for (uint32_t k = 0; k < n; k++)
        release(singles[k]);
}

static int compare(const struct steps_case *c, uint32_t steps, struct memory *one,
                   struct memory *all)
{
    int wrong = 0;
    for (int k = 0; k < STEPS_FIELDS && c->text[k]; k++) {
        copy(one, STEPS_OPERANDS + k, true);
        copy(all, STEPS_OPERANDS + k, true);
        size_t size = dtype_size(c->dtype);
        for (int64_t n = 0; n < one->bytes && !wrong; n += (int64_t)size)
            if (memcmp(one->host + n, all->host + n, size) != 0) {
                print_message("%s, %u steps, field %d: element %lld differs\n", c->name, steps, k,
                              (long long)(n / (int64_t)size));
                wrong = 1;
            }
    }
    return wrong;
}

static int64_t bytes_of(const struct steps_case *c)
{
    int64_t n = (int64_t)dtype_size(c->dtype);
    for (int a = 0; a < c->rank; a++)
        n *= c->shape[a];
    return n;
}

/* Elements of a thread that were met, and rows in three dimensions, a bit each. */
static unsigned met_elements[4], met_rows;

static int try_steps(const struct steps_case *c, uint32_t steps)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct memory one, all;
    struct ir_kernel *k = steps_kernel(arena, c, steps);
    assert_non_null(k);
    memory_new(&one, bytes_of(c));
    memory_new(&all, bytes_of(c));
    for (int i = 0; i < STEPS_OPERANDS; i++) {
        fill(&one, i, c->dtype);
        fill(&all, i, c->dtype);
    }
    const struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 1);
    assert_non_null(m);
    met_elements[m->form->rank] |= (unsigned)m->form->elements;
    met_rows |= 1u << m->form->rows;
    step_by_step(&one, c, steps);
    struct job job = {.kernels = &k, .n_kernels = 1, .slots = all.slots};
    run(&job);
    release(k);
    int wrong = compare(c, steps, &one, &all);
    memory_free(&one);
    memory_free(&all);
    return wrong;
}

#define HEAT(mode) "u + 0.1*laplacian(u, boundary='" mode "')"
#define GRAY_SCOTT                                                                                 \
    "u + 0.16*laplacian(u, boundary='wrap') - u*v*v + 0.06*(1-u)",                                 \
        "v + 0.08*laplacian(v, boundary='wrap') + u*v*v - 0.122*v"
#define LIFE(mode)                                                                                 \
    "shift(u, (1, 0), '" mode "') + shift(u, (-1, 0), '" mode "') + shift(u, (0, 1), '" mode       \
    "') + shift(u, (0, -1), '" mode "') + shift(u, (1, 1), '" mode                                 \
    "') + 3*shift(u, (1, -1), '" mode "') + shift(u, (-1, 1), '" mode                              \
    "') + 5*shift(u, (-1, -1), '" mode "')"

#define FAR(mode)                                                                                  \
    "shift(u, (2, 0, 0), '" mode "') + shift(u, (-2, 0, 0), '" mode                                \
    "') + shift(u, (0, 2, 0), '" mode "') + shift(u, (0, -2, 0), '" mode                           \
    "') + shift(u, (0, 0, 2), '" mode "') + shift(u, (0, 0, -2), '" mode "')"
#define WAVE         "2*u - v + 0.25*laplacian(u, boundary='clamp')"
#define FOURTH(mode) "u + 0.1*laplacian(u, boundary='" mode "') - 0.01*(" FAR(mode) ")"

static const struct {
    struct steps_case c;
    uint32_t steps;
} cases[] = {
    {{"heat clamp", DT_F32, 2, {70, 300}, {HEAT("clamp")}}, 4},
    {{"heat clamp", DT_F32, 2, {70, 300}, {HEAT("clamp")}}, 8},
    {{"heat clamp, odd", DT_F32, 2, {33, 301}, {HEAT("clamp")}}, 8},
    {{"heat clamp, narrow", DT_F32, 2, {40, 17}, {HEAT("clamp")}}, 6},
    {{"heat clamp, one column", DT_F32, 2, {40, 1}, {HEAT("clamp")}}, 3},
    {{"heat clamp, one row", DT_F32, 2, {1, 400}, {HEAT("clamp")}}, 5},
    {{"heat clamp, wide", DT_F32, 2, {24, 60000}, {HEAT("clamp")}}, 6},
    {{"heat reflect, wide", DT_F32, 2, {20, 60001}, {HEAT("reflect")}}, 5},
    {{"heat wrap, wide", DT_F32, 2, {17, 60000}, {HEAT("wrap")}}, 7},
    {{"heat wrap, wide, odd", DT_F32, 2, {17, 60001}, {HEAT("wrap")}}, 7},
    {{"heat constant, wide", DT_F64, 2, {17, 30000}, {HEAT("constant")}}, 4},
    {{"heat self, even", DT_F32, 2, {300, 602}, {HEAT("self")}}, 4},
    {{"heat clamp, middling", DT_F32, 2, {512, 512}, {HEAT("clamp")}}, 6},
    {{"heat clamp, high", DT_F32, 2, {150, 20000}, {HEAT("clamp")}}, 5},
    {{"heat wrap, high", DT_F32, 2, {149, 20001}, {HEAT("wrap")}}, 4},
    {{"heat wrap", DT_F32, 2, {70, 300}, {HEAT("wrap")}}, 8},
    {{"heat wrap, odd", DT_F32, 2, {33, 301}, {HEAT("wrap")}}, 5},
    {{"heat wrap, tiny", DT_F32, 2, {3, 5}, {HEAT("wrap")}}, 8},
    {{"heat self", DT_F32, 2, {50, 200}, {HEAT("self")}}, 7},
    {{"heat reflect", DT_F32, 2, {50, 201}, {HEAT("reflect")}}, 4},
    {{"heat reflect, narrow", DT_F32, 2, {5, 3}, {HEAT("reflect")}}, 4},
    {{"heat symmetric", DT_F32, 2, {50, 200}, {HEAT("symmetric")}}, 3},
    {{"heat constant", DT_F32, 2, {50, 200}, {HEAT("constant")}}, 4},
    {{"heat float64", DT_F64, 2, {60, 200}, {HEAT("clamp")}}, 6},
    {{"nine points self", DT_I16, 2, {40, 90}, {LIFE("self")}}, 4},
    {{"nine points clamp", DT_F32, 2, {40, 90}, {LIFE("clamp")}}, 4},
    {{"nine points reflect", DT_I16, 2, {40, 90}, {LIFE("reflect")}}, 2},
    {{"nine points constant", DT_U8, 2, {40, 90}, {LIFE("constant")}}, 5},
    {{"nine points wrap", DT_U8, 2, {40, 333}, {LIFE("wrap")}}, 4},
    {{"nine points reflect, wide", DT_F32, 2, {30, 30001}, {LIFE("reflect")}}, 4},
    {{"wave", DT_F32, 2, {60, 260}, {"2*u - v + 0.25*laplacian(u, boundary='clamp')", "u"}}, 5},
    {{"Gray-Scott", DT_F32, 2, {60, 260}, {GRAY_SCOTT}}, 4},
    {{"three fields",
      DT_F64,
      2,
      {30, 61},
      {"u + 0.1*laplacian(v, boundary='clamp')", "w - 0.1*central_diff(u, 0, boundary='reflect')",
       "w + 0.5*u*v"}},
     3},
    {{"coefficients", DT_F32, 2, {40, 264}, {"u + 0.1*k*laplacian(u, boundary='clamp') + kt*row"}},
     4},
    {{"coefficients, wrapped",
      DT_F32,
      2,
      {40, 133},
      {"u + 0.1*k*laplacian(u, boundary='wrap') + kt*row"}},
     3},
    {{"index", DT_F32, 2, {40, 133}, {"u*0.5 + shift(u, (0, 1), 'wrap') + index(0) - 3*index(1)"}},
     4},
    {{"index, clamp",
      DT_F32,
      2,
      {40, 264},
      {"where(index(0) == 7, u, 0.5*shift(u, (-1, 0), 'clamp') + index(1))"}},
     4},
    {{"coefficients, wide", DT_F32, 2, {20, 60000}, {"u + 0.1*k*laplacian(u, boundary='wrap')"}},
     3},
    {{"1-D clamp", DT_F32, 1, {5000}, {HEAT("clamp")}}, 8},
    {{"1-D clamp, odd", DT_F64, 1, {4999}, {HEAT("clamp")}}, 5},
    {{"1-D clamp, short", DT_F32, 1, {7}, {HEAT("clamp")}}, 8},
    {{"1-D wrap", DT_F32, 1, {100000}, {HEAT("wrap")}}, 8},
    {{"1-D wrap, tiny", DT_F32, 1, {3}, {HEAT("wrap")}}, 4},
    {{"1-D constant", DT_F32, 1, {513}, {HEAT("constant") " + k*index(0)"}}, 4},
    {{"1-D wave", DT_F32, 1, {1000}, {"2*u - v + 0.25*laplacian(u, boundary='reflect')", "u"}}, 6},
    {{"3-D clamp", DT_F32, 3, {20, 70, 130}, {HEAT("clamp")}}, 3},
    {{"3-D clamp, four steps", DT_F32, 3, {9, 100, 68}, {HEAT("clamp")}}, 4},
    {{"3-D clamp, odd", DT_F32, 3, {11, 37, 67}, {HEAT("clamp")}}, 2},
    {{"3-D clamp, even", DT_F32, 3, {12, 300, 62}, {HEAT("clamp")}}, 3},
    {{"3-D clamp, broad", DT_F32, 3, {4, 1000, 500}, {HEAT("clamp")}}, 3},
    {{"3-D wrap, broad", DT_F32, 3, {4, 1000, 500}, {HEAT("wrap")}}, 4},
    {{"3-D reflect, broad", DT_F32, 3, {8, 1000, 124}, {HEAT("reflect")}}, 2},
    {{"3-D constant, broad", DT_F32, 3, {6, 1000, 250}, {HEAT("constant")}}, 2},
    {{"3-D self, broad", DT_F32, 3, {24, 300, 128}, {HEAT("self")}}, 3},
    {{"3-D clamp, wide", DT_F32, 3, {6, 81, 65}, {HEAT("clamp")}}, 3},
    {{"3-D clamp, flat", DT_F32, 3, {1, 24, 40}, {HEAT("clamp")}}, 3},
    {{"3-D clamp, thin", DT_F32, 3, {24, 1, 40}, {HEAT("clamp")}}, 3},
    {{"3-D clamp, long", DT_F32, 3, {24, 30, 1}, {HEAT("clamp")}}, 3},
    {{"3-D wrap", DT_F32, 3, {12, 90, 130}, {HEAT("wrap")}}, 3},
    {{"3-D wrap, four rows", DT_F32, 3, {5, 600, 500}, {HEAT("wrap")}}, 3},
    {{"3-D clamp, four rows", DT_F32, 3, {8, 400, 448}, {HEAT("clamp")}}, 4},
    {{"3-D wrap, tiny", DT_F32, 3, {2, 3, 5}, {HEAT("wrap")}}, 4},
    {{"3-D self", DT_F32, 3, {10, 40, 72}, {HEAT("self")}}, 3},
    {{"3-D reflect", DT_F32, 3, {10, 40, 72}, {HEAT("reflect")}}, 3},
    {{"3-D reflect, odd", DT_F32, 3, {5, 7, 9}, {HEAT("reflect")}}, 2},
    {{"3-D symmetric", DT_F64, 3, {10, 40, 72}, {HEAT("symmetric")}}, 2},
    {{"3-D constant", DT_F32, 3, {10, 41, 72}, {HEAT("constant")}}, 3},
    {{"3-D uint8", DT_U8, 3, {10, 41, 72}, {"u + shift(u, (1, 0, 0)) + shift(u, (0, -1, 0))"}}, 3},
    {{"3-D wave", DT_F32, 3, {12, 40, 72}, {"2*u - v + 0.25*laplacian(u, boundary='clamp')", "u"}},
     2},
    {{"3-D Gray-Scott", DT_F32, 3, {12, 40, 72}, {GRAY_SCOTT}}, 2},
    {{"3-D coefficients",
      DT_F32,
      3,
      {8, 30, 72},
      {"u + 0.1*k*laplacian(u, boundary='clamp') + kt*row + index(0) - 2*index(1) + index(2)"}},
     3},
    {{"3-D coefficients, wrapped",
      DT_F32,
      3,
      {8, 31, 37},
      {"u + 0.1*k*laplacian(u, boundary='wrap') + kt*row + index(0) - 2*index(1) + index(2)"}},
     3},
    {{"3-D coefficient, broad",
      DT_F32,
      3,
      {4, 1000, 500},
      {"u + 0.1*k*laplacian(u, boundary='wrap')"}},
     2},
    {{"3-D coefficient, edges",
      DT_F32,
      3,
      {8, 400, 448},
      {"u + 0.1*k*laplacian(u, boundary='clamp')"}},
     3},
    {{"3-D rows",
      DT_F32,
      3,
      {8, 30, 72},
      {"u + 0.1*shift(u, (0, 1, 0), 'wrap') - 0.2*shift(u, (0, 0, -1), 'clamp')"}},
     3},
    {{"3-D wave, broad", DT_F32, 3, {11, 512, 512}, {WAVE, "u"}}, 4},
    {{"3-D far clamp", DT_F32, 3, {12, 70, 130}, {FOURTH("clamp")}}, 2},
    {{"3-D far clamp, odd", DT_F32, 3, {9, 41, 67}, {FOURTH("clamp")}}, 3},
    {{"3-D far clamp, flat", DT_F32, 3, {1, 24, 40}, {FOURTH("clamp")}}, 2},
    {{"3-D far clamp, thin", DT_F32, 3, {24, 1, 40}, {FOURTH("clamp")}}, 2},
    {{"3-D far clamp, long", DT_F32, 3, {24, 30, 2}, {FOURTH("clamp")}}, 2},
    {{"3-D far reflect", DT_F32, 3, {10, 40, 72}, {FOURTH("reflect")}}, 2},
    {{"3-D far reflect, small", DT_F32, 3, {5, 8, 12}, {FOURTH("reflect")}}, 2},
    {{"3-D far symmetric", DT_F32, 3, {10, 40, 72}, {FOURTH("symmetric")}}, 2},
    {{"3-D far symmetric, small", DT_F64, 3, {2, 8, 12}, {FOURTH("symmetric")}}, 2},
    {{"3-D far wrap", DT_F32, 3, {12, 90, 130}, {FOURTH("wrap")}}, 2},
    {{"3-D far wrap, tiny", DT_F32, 3, {2, 3, 5}, {FOURTH("wrap")}}, 3},
    {{"3-D far constant", DT_F32, 3, {10, 41, 72}, {FOURTH("constant")}}, 2},
    {{"3-D far self", DT_F32, 3, {10, 40, 72}, {FOURTH("self")}}, 3},
    {{"3-D far self, odd", DT_F32, 3, {7, 45, 75}, {FOURTH("self")}}, 2},
    {{"3-D far along one axis",
      DT_F64,
      3,
      {10, 40, 72},
      {"u + shift(u, (0, 0, 2), 'reflect') - 0.5*shift(u, (0, -2, 0), 'clamp')"}},
     2},
    {{"3-D far wave", DT_F32, 3, {12, 90, 140}, {WAVE " - 0.01*(" FAR("clamp") ")", "u"}}, 2},
    {{"3-D far uint8", DT_U8, 3, {10, 41, 72}, {"u + shift(u, (2, 0, 0)) + shift(u, (0, -2, 0))"}},
     3},
    {{"pointwise", DT_F32, 2, {40, 264}, {"u*1.5 + v", "v - 0.5"}}, 6},
};

/* Checked code runs slowly: it takes one case in so many, all of them in the long run. So does a
 * check (slice.h). */
#ifdef __SANITIZE_ADDRESS__
#define EVERY 5
#else
#define EVERY 1
#endif

static void the_bits_are_those_of_single_steps(void **state)
{
    (void)state;
    int wrong = 0;
    const char *only = getenv("STEPS_CASE");
    const int checked = EVERY > 1 && !getenv("ARRAYD_LONG") ? EVERY : 1;
    const size_t every = (size_t)(only ? 1 : checked > 1 ? checked : slice_step(5));
    for (size_t i = (size_t)slice_from((int)every); i < sizeof cases / sizeof *cases; i += every)
        if (!only || strstr(cases[i].c.name, only))
            wrong += try_steps(&cases[i].c, cases[i].steps);
    assert_int_equal(wrong, 0);
    if (only || every > 1)
        return;
    assert_int_equal(met_elements[2], 1 | 2 | 4 | 8);
    assert_int_equal(met_elements[3], 1 | 2 | 4);
    assert_int_equal(met_rows, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5);
}

static const struct {
    struct steps_case c;
    const char *why;
} declined[] = {
    {{"", DT_F32, 2, {40, 50}, {"shift(u, (2, 0))"}}, "at offsets beyond 1"},
    {{"", DT_F32, 3, {40, 50, 60}, {"shift(u, (3, 0, 0))"}}, "read too far away"},
    {{"", DT_F32, 2, {40, 50}, {"shift(shift(u, (1, 0)), (0, 1))"}}, "a shift of a shift"},
    {{"", DT_F32, 2, {40, 50}, {"shift(u, (1, 0), 'wrap') + shift(u, (-1, 0), 'clamp')"}},
     "beyond its edge with two boundaries"},
    {{"", DT_F32, 2, {40, 50}, {"shift(u, (1, 0), 'wrap')", "shift(v, (1, 0), 'self')"}},
     "beyond its edge with two boundaries"},
    {{"", DT_F32, 2, {40, 50}, {"u + shift(k, (1, 0))"}}, "is read at an offset"},
    {{"", DT_F32, 2, {40, 50}, {"u + u[::-1]"}}, "two layouts"},
    {{"", DT_F32, 2, {40, 3}, {"u + take(u, [1, 0, 0], axis=1)"}}, "gathered"},
    {{"", DT_F32, 2, {40, 50}, {"shift(u + index(0), (1, 0))"}}, "inside a shift"},
    {{"", DT_F32, 2, {40, 50}, {"v + 1"}}, "does not read every result"},
    {{"", DT_F32, 4, {4, 5, 6, 7}, {"u + 1"}}, "axes"},
    {{"", DT_F32, 3, {40, 40, 40}, {"shift(u, (1, 1, 0))"}}, "diagonally"},
    {{"", DT_F32, 2, {8192, 8192}, {"gamma(gamma(gamma(u))) + lgamma(u)"}},
     "arithmetic already takes longer"},
    {{"", DT_C128, 2, {40, 50}, {"u + 1"}}, "different layouts"},
    {{"", DT_F32, 3, {4, 6000000, 64}, {HEAT("clamp")}}, "too long"},
};

static void what_cannot_be_is_declined_with_a_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof declined / sizeof *declined; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const char *why = "";
        struct ir_kernel *k = steps_kernel(arena, &declined[i].c, 0);
        assert_non_null(k);
        assert_int_equal(b->ops->steps(b, 0, k, &why), 1);
        if (!strstr(why, declined[i].why))
            fail_msg("%s: %s, not %s", declined[i].c.text[0], why, declined[i].why);
    }
}

static void so_many_steps_pay_as_arithmetic_allows(void **state)
{
    (void)state;
    static const struct {
        struct steps_case c;
        uint32_t least, most;
    } expected[] = {
        {{"", DT_F32, 2, {8192, 8192}, {HEAT("clamp")}}, 5, 8},
        {{"", DT_F32, 2, {8192, 8192}, {GRAY_SCOTT}}, 4, 5},
        {{"", DT_F32, 2, {8192, 8192}, {LIFE("clamp")}}, 4, 6},
        {{"", DT_F32, 2, {8192, 8192}, {WAVE, "u"}}, 7, 8},
        {{"", DT_F32, 3, {512, 512, 512}, {HEAT("clamp")}}, 3, 4},
        {{"", DT_F32, 3, {512, 512, 512}, {HEAT("wrap")}}, 4, 4},
        {{"", DT_F32, 3, {512, 512, 512}, {WAVE, "u"}}, 4, 5},
        {{"", DT_F32, 3, {512, 512, 512}, {WAVE " - 0.01*(" FAR("clamp") ")", "u"}}, 2, 3},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const char *why = "";
        struct ir_kernel *k = steps_kernel(arena, &expected[i].c, 0);
        assert_non_null(k);
        assert_in_range(b->ops->steps(b, 0, k, &why), expected[i].least, expected[i].most);
        assert_true(*why);
    }
}

/* In two dimensions: one warp a scheduler waits for itself, and three are in each other's way in
 * memory. */
static void schedulers_have_two_warps(void **state)
{
    (void)state;
    static const struct {
        struct steps_case c;
        uint32_t steps;
        int elements;
    } expected[] = {
        {{"", DT_F32, 2, {8192, 8192}, {HEAT("clamp")}}, 8, 8},
        {{"", DT_F32, 2, {8192, 8192}, {LIFE("clamp")}}, 4, 8},
        {{"", DT_F32, 2, {8192, 8192}, {WAVE, "u"}}, 8, 4},
        {{"", DT_F32, 2, {8192, 8192}, {GRAY_SCOTT}}, 4, 4},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct ir_kernel *k = steps_kernel(arena, &expected[i].c, expected[i].steps);
        assert_non_null(k);
        const struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 1);
        assert_non_null(m);
        assert_int_equal(m->form->elements, expected[i].elements);
        assert_in_range(m->form->grid[0] * m->form->grid[1], 132 * 7, 132 * 8); /* of an H200 */
    }
}

/* In three dimensions: a box of the copy engine that begins elsewhere faults on a real device. */
static void boxes_begin_at_multiples_of_16_bytes(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_U8, DT_F16, DT_F32, DT_F64};
    static const char *const steps_of[] = {HEAT("clamp"), "u + 0.5*shift(u, (0, 1, 0), 'clamp')",
                                           "u + 0.5*shift(u, (1, 0, 0), 'symmetric')",
                                           "u + 0.5*shift(u, (0, 0, -1), 'reflect')"};
    int mapped = 0, others = 0;
    for (int i = 0; i < 4 * 4 * 6 * 3; i++) {
        const int64_t nx = (int64_t[]){64, 100, 128, 256, 300, 512}[i / 16 % 6];
        const struct steps_case c = {"", types[i % 4], 3, {2, 200, nx}, {steps_of[i / 4 % 4]}};
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct ir_kernel *k = steps_kernel(arena, &c, 2 + i / 96);
        const struct emitted *m = k ? emit_within(arena, k, 256, FORM_SHARED, 1) : NULL;
        if (!m || m->form->kind != FORM_STEPS)
            continue;
        const struct form *f = m->form;
        const int64_t width = (int64_t)f->lanes * f->elements, size = (int64_t)dtype_size(c.dtype);
        mapped += f->steps.mapped;
        others += !f->steps.mapped;
        for (int64_t x = 0; f->steps.mapped && x < f->grid[0]; x++) {
            int64_t begin = x * (width - 2 * f->steps.halo);
            begin = begin + width < nx ? begin : nx > width ? nx - width : 0;
            assert_int_equal(begin * size % 16, 0);
        }
    }
    assert_true(mapped > 0 && others > 0);
}

/* In three dimensions, where the instructions' cache is not too small. */
static void four_rounds_are_a_loop_where_they_fit(void **state)
{
    (void)state;
    static const struct {
        struct steps_case c;
        uint32_t steps;
        int unroll;
    } expected[] = {
        {{"", DT_F32, 3, {512, 512, 512}, {HEAT("wrap")}}, 2, 4},
        {{"", DT_F32, 3, {512, 512, 512}, {HEAT("clamp")}}, 4, 2},
        {{"", DT_F32, 3, {512, 512, 512}, {"exp(exp(exp(exp(exp(exp(" HEAT("wrap") "))))))"}},
         4,
         2},
        {{"", DT_F32, 3, {512, 512, 512}, {WAVE, "u"}}, 4, 2},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct ir_kernel *k = steps_kernel(arena, &expected[i].c, expected[i].steps);
        assert_non_null(k);
        const struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 1);
        assert_non_null(m);
        assert_int_equal(m->form->unroll, expected[i].unroll);
    }
}

static int open_backend(void **state)
{
    (void)state;
    struct backend_config config = {.slab_memory = 8 << 20};
    struct err e = ERR_INIT;
    return backend_open("cuda", &config, &b, NULL, 0, &e) != ERR_OK ||
           b->ops->stream_new(b, 0, false, &s, &e) != ERR_OK;
}

static int close_backend(void **state)
{
    (void)state;
    b->ops->stream_free(s);
    backend_close(b);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_single_steps),
        cmocka_unit_test(so_many_steps_pay_as_arithmetic_allows),
        cmocka_unit_test(schedulers_have_two_warps),
        cmocka_unit_test(boxes_begin_at_multiples_of_16_bytes),
        cmocka_unit_test(four_rounds_are_a_loop_where_they_fit),
        cmocka_unit_test(what_cannot_be_is_declined_with_a_reason),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
