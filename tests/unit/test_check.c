/* compute/check: expressions as text, typed; their types, graphs and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "tests/unit/check_graphs.h"
#include "tests/unit/check_text.h"

/* The root's dtype and shape; a constant's value too. */
static const struct {
    const char *text, *want;
} types[] = {
    /* weak literals (NEP 50) */
    {"2.0*f32", "float32 (4, 5)"},
    {"2*u8", "uint8 (4, 5)"},
    {"i32 + 0.5", "float64 (4, 5)"},
    {"b + 1", "int64 (4, 5)"},
    {"b + True", "bool (4, 5)"},
    {"f32 + 1j", "complex64 (4, 5)"},
    {"f16*3", "float16 (4, 5)"},
    {"i8 + -128", "int8 (4, 5)"},
    {"dt*f32", "float32 (4, 5)"},
    {"t64*f32", "float64 (4, 5)"},
    {"s*f64", "float64 (4, 5)"},
    {"s64*f32", "float64 (4, 5)"}, /* a 0-d array is no literal */
    {"sqrt(2)*f32", "float32 (4, 5)"},
    {"pi*f16", "float16 (4, 5)"},
    {"e*2", "float32 (3,)"}, /* the user's array hides the constant */
    {"(1/3)*i8", "float64 (4, 5)"},
    {"f32*1e300", "float32 (4, 5)"},
    /* promotion */
    {"i32 + f32", "float64 (4, 5)"},
    {"i16 + f32", "float32 (4, 5)"},
    {"i64 + u64", "float64 (4, 5)"},
    {"i8 + u8", "int16 (4, 5)"},
    {"f16 + bf16", "float32 (4, 5)"},
    {"c64 + f64", "complex128 (4, 5)"},
    {"i32 / 2", "float64 (4, 5)"},
    {"u8 / u8", "float64 (4, 5)"},
    {"sqrt(i8)", "float64 (4, 5)"},
    {"sin(f16)", "float16 (4, 5)"},
    {"b // b", "int8 (4, 5)"},
    {"b & b", "bool (4, 5)"},
    {"~b", "bool (4, 5)"},
    {"b << b", "int8 (4, 5)"},
    {"abs(c64)", "float32 (4, 5)"},
    {"real(c128)", "float64 (4, 5)"},
    {"u < v", "bool (4, 5)"},
    {"c64 == c64", "bool (4, 5)"},
    {"logical_and(u, i8)", "bool (4, 5)"},
    {"isnan(u)", "bool (4, 5)"},
    {"where(b, 1, 0)", "int64 (4, 5)"},
    {"where(b, True, 0.5)", "float64 (4, 5)"},
    {"where(u, u8, 1)", "uint8 (4, 5)"},
    {"where(b, f32, 2j)", "complex64 (4, 5)"},
    {"astype(u, 'int8')", "int8 (4, 5)"},
    {"astype(u, int8)", "int8 (4, 5)"},
    {"astype(c64, 'bool')", "bool (4, 5)"},
    {"clip(i8, -5, 5)", "int8 (4, 5)"},
    {"clip(u, max=f64)", "float64 (4, 5)"},
    {"lerp(i8, u8, 0.5)", "float64 (4, 5)"},
    {"addcmul(u8, 2, u8, u8)", "uint8 (4, 5)"},
    {"addcdiv(u8, 2, u8, u8)", "float64 (4, 5)"},
    /* broadcasting and indexing */
    {"row + col", "float32 (4, 5)"},
    {"row + s", "float32 (5,)"},
    {"none + row", "float32 (0, 5)"},
    {"cube + 1", "float32 (2, 3, 4)"},
    {"u[1:-1, ::2]", "float32 (2, 3)"},
    {"u[..., None]", "float32 (4, 5, 1)"},
    {"(u + v)[0]", "float32 (5,)"},
    {"(u + v)[-1, -1]", "float32 ()"},
    {"s[None]", "float32 (1,)"},
    {"u[9:]", "float32 (0, 5)"},
    {"u[::-9223372036854775808]", "float32 (1, 5)"},
    /* reductions */
    {"sum(b)", "int64 ()"},
    {"sum(i8)", "int64 ()"},
    {"sum(u32)", "uint64 ()"},
    {"sum(f16)", "float16 ()"},
    {"sum(u, axis=0)", "float32 (5,)"},
    {"sum(u, axis=-1, keepdims=True)", "float32 (4, 1)"},
    {"sum(cube, axis=[0, -1])", "float32 (3,)"},
    {"sum(u, axis=())", "float32 (4, 5)"},
    {"sum(u8, axis=())", "uint64 (4, 5)"},
    {"sum(u, k)", "float32 (4,)"},
    {"sum(5)", "int64 ()"},
    {"mean(i8)", "float64 ()"},
    {"mean(bf16)", "bfloat16 ()"},
    {"mean(c64)", "complex64 ()"},
    {"mean(none)", "float32 ()"},
    {"max(none, axis=1)", "float32 (0,)"},
    {"max(b)", "bool ()"},
    {"min(f16, axis=1)", "float16 (4,)"},
    {"any(u)", "bool ()"},
    {"all(c64, axis=0)", "bool (5,)"},
    {"(u - mean(u))/max(abs(u))", "float32 (4, 5)"},
    /* stencils */
    {"shift(u, [1, 0])", "float32 (4, 5)"},
    {"shift(row, 1)", "float32 (5,)"},
    {"shift(u + v, (0, -1), 'wrap')", "float32 (4, 5)"},
    {"shift(u8, [1, 0], boundary='constant', value=255)", "uint8 (4, 5)"},
    {"forward_diff(i8, 0)", "int8 (4, 5)"},
    {"back_diff(u8, axis=-1, boundary='edge')", "uint8 (4, 5)"},
    {"central_diff(i32, 1)", "float64 (4, 5)"},
    {"central_diff(b, 1)", "float64 (4, 5)"},
    {"central_diff(f16, 0, 0.1)", "float16 (4, 5)"},
    {"laplacian(i32)", "float64 (4, 5)"},
    {"laplacian(cube, [1, 2, 0.5], boundary='mirror')", "float32 (2, 3, 4)"},
    {"laplacian(u, spacing='array')", "float32 (4, 5)"},
    {"laplacian(c64)", "complex64 (4, 5)"},
    {"laplacian(g, 'array', 'ghost')", "float32 (4, 5)"},
    {"central_diff(gi, 1, boundary='ghost')", "float64 (4, 5)"},
    {"shift(gi, [-1, 2], 'array')", "int16 (4, 5)"},
    {"laplacian(u, t64)", "float64 (4, 5)"},
    /* scopes */
    {"where(index(0) > 1, u, 0)", "float32 (4, 5)"},
    {"astype(index(-1), 'float32') + u", "float32 (4, 5)"},
    {"sum(where(index(0) < index(1), u, 0), axis=0)", "float32 (5,)"},
    {"i=index(0); row[1:] + i", "float64 (4,)"},
    {"unravel_index(i64, 1)", "int64 (4, 5)"},
    {"u8 + unravel_index(3, 0)", "int64 (4, 5)"},
    /* lets */
    {"m=mean(u);d=u - m; sum(d*d)", "float32 ()"},
    {"u=i8*2; u + 1", "int8 (4, 5)"},
    {"x=2;y=x*3; u8 + y", "uint8 (4, 5)"},
};

static const struct {
    const char *text, *want;
} constants[] = {
    /* literal arithmetic is Python's */
    {"1 + 2", "int64 3"},
    {"True + True", "int64 2"},
    {"True & False", "bool False"},
    {"~True", "int64 -2"},
    {"7 // -2", "int64 -4"},
    {"7 % -2", "int64 -1"},
    {"-7 // 2", "int64 -4"},
    {"fmod(-7, 2)", "int64 -1"},
    {"7.5 // -2", "float64 -4"},
    {"7.5 % -2", "float64 -0.5"},
    {"-1e-20 % 3", "float64 3"},
    {"1 / 2", "float64 0.5"},
    {"4 / 2", "float64 2"},
    {"2 ** 10", "int64 1024"},
    {"2 ** -1", "float64 0.5"},
    {"2 ** 63", "uint64 9223372036854775808"},
    {"-2 ** 63", "int64 -9223372036854775808"},
    {"2 ** 100 // 2 ** 90", "int64 1024"},
    {"(-1) ** 1000000000000", "int64 1"},
    {"0 ** 0", "int64 1"},
    {"18446744073709551615", "uint64 18446744073709551615"},
    {"1 << 62", "int64 4611686018427387904"},
    {"-1 >> 200", "int64 -1"},
    {"6 & 3 | 8 ^ 1", "int64 11"},
    {"3 > 2.5", "bool True"},
    {"9007199254740993 == 9007199254740992.0", "bool False"},
    {"9007199254740993 > 9007199254740992.0", "bool True"},
    {"nan == nan", "bool False"},
    {"nan != nan", "bool True"},
    {"1 < inf", "bool True"},
    {"1j * 1j", "complex128 -1+0j"},
    {"(1 + 2j) / (1 - 1j)", "complex128 -0.5+1.5j"},
    {"(1j) ** 2", "complex128 -1+0j"},
    {"abs(3 + 4j)", "float64 5"},
    {"abs(-3)", "int64 3"},
    {"conj(1 + 2j)", "complex128 1-2j"},
    {"imag(2.5)", "float64 0"},
    /* functions are NumPy's */
    {"sqrt(4)", "float64 2"},
    {"sqrt(-1) == sqrt(-1)", "bool False"},
    {"log(0) == -inf", "bool True"},
    {"exp(0)", "float64 1"},
    {"hypot(3, 4)", "float64 5"},
    {"floor(2.5)", "float64 2"},
    {"floor(3)", "int64 3"},
    {"round(2.5)", "float64 2"},
    {"sign(-7)", "int64 -1"},
    {"maximum(1, 2.5)", "float64 2.5"},
    {"minimum(3, 2)", "int64 2"},
    {"isnan(nan)", "bool True"},
    {"signbit(-1)", "bool True"},
    {"logical_xor(2, 0)", "bool True"},
    {"where(True, 1, 2)", "int64 1"},
    {"where(0.0, 1, 2.5)", "float64 2.5"},
    {"clip(7, 0, 5)", "int64 5"},
    {"lerp(0, 10, 0.25)", "float64 2.5"},
    {"addcmul(1, 2, 3, 4)", "int64 25"},
    {"square(5)", "int64 25"},
    {"reciprocal(4)", "float64 0.25"},
    {"astype(300, 'uint8')", "uint8 44"},
    {"astype(-1.5, int32)", "int32 -1"},
    {"k + dt", "float64 1.5"},
    {"t64", "float64 0.25"},
};

static const struct {
    const char *text;
    enum err_code code;
    long offset;
    const char *message; /* part of it, or NULL */
} errors[] = {
    {"1/0", ERR_BAD_EXPRESSION, 1, "zero"},
    {"u + 1.0 % 0", ERR_BAD_EXPRESSION, 8, "zero"},
    {"0 ** -1", ERR_BAD_EXPRESSION, 2, "zero"},
    {"0.0 ** -1", ERR_BAD_EXPRESSION, 4, "zero"},
    {"1j / 0", ERR_BAD_EXPRESSION, 3, "zero"},
    {"2j ** 10**20", ERR_BAD_EXPRESSION, 3, "overflows"},
    {"2**10**9", ERR_BAD_EXPRESSION, 1, "127 bits"},
    {"2.0**10**9", ERR_BAD_EXPRESSION, 3, "overflows"},
    {"1 << 200", ERR_BAD_EXPRESSION, 2, "127 bits"},
    {"1 << -1", ERR_BAD_EXPRESSION, 2, "shift count"},
    {"2**100", ERR_LITERAL_RANGE, 1, "1267650600228229401496703205376"},
    {"-9223372036854775809", ERR_LITERAL_RANGE, 0, "int64"},
    {"1 & 1.5", ERR_DTYPE_MISMATCH, 2, NULL},
    {"1j < 2", ERR_DTYPE_MISMATCH, 3, NULL},
    {"1j // 2", ERR_DTYPE_MISMATCH, 3, NULL},
    {"u8 + 300", ERR_LITERAL_RANGE, 5, "300 does not fit uint8"},
    {"u8 == -1", ERR_LITERAL_RANGE, 6, "uint8"},
    {"where(b, i8, 128)", ERR_LITERAL_RANGE, 13, "int8"},
    {"clip(i8, None, 500)", ERR_LITERAL_RANGE, 15, "int8"},
    {"i8 ** -1", ERR_LITERAL_RANGE, 6, "negative integer power"},
    {"b - b", ERR_DTYPE_MISMATCH, 2, "logical_xor"},
    {"b - True", ERR_DTYPE_MISMATCH, 2, NULL},
    {"-b", ERR_DTYPE_MISMATCH, 0, "logical_not"},
    {"forward_diff(b, 0)", ERR_DTYPE_MISMATCH, 0, NULL},
    {"c64 < c64", ERR_DTYPE_MISMATCH, 4, "complex64"},
    {"maximum(c64, 1)", ERR_DTYPE_MISMATCH, 0, NULL},
    {"u // 2j", ERR_DTYPE_MISMATCH, 2, NULL},
    {"clip(c64, 0)", ERR_DTYPE_MISMATCH, 0, NULL},
    {"clip(c64)", ERR_DTYPE_MISMATCH, 0, NULL},
    {"max(c64)", ERR_DTYPE_MISMATCH, 0, NULL},
    {"astype(c64, 'float32')", ERR_DTYPE_MISMATCH, 0, "real(x)"},
    {"u & 1", ERR_DTYPE_MISMATCH, 2, "integers"},
    {"u << 1", ERR_DTYPE_MISMATCH, 2, "integers"},
    {"erf(c64)", ERR_DTYPE_MISMATCH, 0, NULL},
    {"u + nope", ERR_UNKNOWN_NAME, 4, "'nope'"},
    {"sin + 1", ERR_UNKNOWN_NAME, 0, "function"},
    {"x=y;y=1; x", ERR_UNKNOWN_NAME, 0, "'y'"},
    {"theirs", ERR_FORBIDDEN, 0, "not yours"},
    {"sqr(u)", ERR_UNKNOWN_OPERATION, 0, "'sqrt'"},
    {"arcsin(u)", ERR_UNKNOWN_OPERATION, 0, "'asin'"},
    {"quux(u)", ERR_UNKNOWN_OPERATION, 0, NULL},
    {"sin()", ERR_BAD_ARITY, 0, "sin(x)"},
    {"sin(u, v)", ERR_BAD_ARITY, 0, "at most 1"},
    {"subtract(u, v, u)", ERR_BAD_ARITY, 0, NULL},
    {"where(b, u)", ERR_BAD_ARITY, 0, "'y'"},
    {"sum(u, 0, axis=1)", ERR_BAD_ARITY, 15, "twice"},
    {"sum(u, dims=1)", ERR_UNKNOWN_FIELD, 12, "'dims'"},
    {"atan2(u, b=v)", ERR_UNKNOWN_FIELD, 11, NULL},
    {"astype(u, 'int9')", ERR_BAD_DTYPE, 10, "int9"},
    {"astype(u, 3)", ERR_BAD_DTYPE, 10, NULL},
    {"u + cube", ERR_SHAPE_MISMATCH, 2, "(4, 5) and (2, 3, 4)"},
    {"where(row, u, cube)", ERR_SHAPE_MISMATCH, 0, NULL},
    {"u[4]", ERR_BAD_INDEX, 1, "out of range"},
    {"u[0, 0, 0]", ERR_BAD_INDEX, 1, "too many"},
    {"2[0]", ERR_BAD_INDEX, 1, "literal"},
    {"sum(u, axis=2)", ERR_BAD_AXIS, 12, "rank 2"},
    {"sum(u, axis=[0, -2])", ERR_BAD_AXIS, 16, "twice"},
    {"sum(u, axis=0.0)", ERR_BAD_AXIS, 12, "integer"},
    {"sum(u, axis='x')", ERR_BAD_AXIS, 12, "integer"},
    {"sum(u, axis=u)", ERR_BAD_AXIS, 12, "integer"},
    {"sum(u, keepdims=2)", ERR_BAD_EXPRESSION, 16, "keepdims"},
    {"max(none)", ERR_EMPTY_REDUCTION, 0, "(0, 5)"},
    {"min(none, axis=0)", ERR_EMPTY_REDUCTION, 0, NULL},
    {"shift(u, [1])", ERR_SHAPE_MISMATCH, 9, "rank 2"},
    {"shift(u, [1, 0.5])", ERR_BAD_EXPRESSION, 13, "integer"},
    {"shift(u, [1, 0], 'round')", ERR_BAD_BOUNDARY, 17, "'round'"},
    {"shift(u, [1, 0], 'ghost')", ERR_GHOST_WIDTH, 6, "'u' has 0"},
    {"v + shift(g, [2, 0], 'ghost')", ERR_GHOST_WIDTH, 10, "'g' has 1"},
    {"shift(g*v, [0, -1], 'ghost')", ERR_GHOST_WIDTH, 8, "'v' has 0"},
    {"shift(shift(g, [1, 0], 'ghost'), [1, 0], 'ghost')", ERR_GHOST_WIDTH, 12, "offset of 2"},
    {"shift(g[1:], [1, 0], 'ghost')", ERR_GHOST_WIDTH, 7, "indexed"},
    {"shift(shift(g, [1, 0]), [1, 0], 'ghost')", ERR_GHOST_WIDTH, 6, "another boundary"},
    {"shift(g + max(v, axis=0), [0, 1], 'ghost')", ERR_GHOST_WIDTH, 10, "reduction"},
    {"shift(g, [9223372036854775807, 0], 'ghost')", ERR_GHOST_WIDTH, 6, NULL},
    {"shift(g, [5, 0], 'array')", ERR_BAD_BOUNDARY, 0, "cannot exceed"},
    {"shift(-g, [1, 0], 'array')", ERR_BAD_BOUNDARY, 18, "an expression"},
    {"laplacian(g*2, 'array')", ERR_BAD_EXPRESSION, 15, "an expression"},
    {"shift(u, [1, 0], 'array')", ERR_BAD_BOUNDARY, 17, "own boundary"},
    {"shift(u8, [1, 0], 'constant', 300)", ERR_LITERAL_RANGE, 30, "uint8"},
    {"shift(u, [1, 0], 'constant', 1j)", ERR_LITERAL_RANGE, 29, "complex"},
    {"shift(u, [1, 0], 'constant', v)", ERR_BAD_BOUNDARY, 29, "number"},
    {"laplacian(s)", ERR_SHAPE_MISMATCH, 10, NULL},
    {"laplacian(u, [1, 2, 3])", ERR_SHAPE_MISMATCH, 13, "3 for rank 2"},
    {"laplacian(u, 0)", ERR_BAD_EXPRESSION, 13, "0"},
    {"central_diff(u, 0, v)", ERR_BAD_EXPRESSION, 19, "number"},
    {"central_diff(u, 2)", ERR_BAD_AXIS, 16, NULL},
    {"reshape(u, [3, -1])", ERR_SHAPE_MISMATCH, 11, "(3, -1)"},
    {"reshape(u, [-2, 10])", ERR_BAD_SHAPE, 12, "-1"},
    {"squeeze(u, 0)", ERR_SHAPE_MISMATCH, 11, "extent 1"},
    {"concatenate(u)", ERR_UNKNOWN_OPERATION, 0, "'concat'"},
    {"concat([u, row])", ERR_SHAPE_MISMATCH, 11, "(5,)"},
    {"take(u, 4, 0)", ERR_BAD_INDEX, 8, "axis 0 of extent 4"},
    {"take(u, [1, -5], 0)", ERR_BAD_INDEX, 12, "-5"},
    {"take(u, i8)", ERR_BAD_AXIS, 0, "rank 2"},
    {"take(row, u)", ERR_DTYPE_MISMATCH, 10, "float32"},
    {"take(none, i8, 0)", ERR_BAD_INDEX, 11, "empty"},
    {"row + take(index(0), i8)", ERR_BAD_EXPRESSION, 11, "shape"},
    {"take_along_axis(u, i8[0])", ERR_SHAPE_MISMATCH, 21, "(5,)"},
    {"sample(u, cube)", ERR_SHAPE_MISMATCH, 10, "(m, 2)"},
    {"sample(row, col, boundary='ghost')", ERR_BAD_BOUNDARY, 26, NULL},
    {"correlate(u, [[1], [2, 3]])", ERR_SHAPE_MISMATCH, 19, "same length"},
    {"gradient(cube[:1], 0)", ERR_SHAPE_MISMATCH, 13, "two elements"},
    {"index(0)", ERR_BAD_EXPRESSION, 0, "shape"},
    {"index(0)*2 + t64", ERR_BAD_EXPRESSION, 11, "shape"},
    {"sum(index(0)) + u", ERR_BAD_EXPRESSION, 4, "shape"},
    {"index(0)[1:] + u", ERR_BAD_EXPRESSION, 0, "shape"},
    {"u + index(2)", ERR_BAD_AXIS, 4, "(4, 5)"},
    {"u + index(-3)", ERR_BAD_AXIS, 4, "(4, 5)"},
    {"u + index(99999999999)", ERR_BAD_AXIS, 4, NULL},
    {"unravel_index(u, 0)", ERR_DTYPE_MISMATCH, 14, "float32"},
    {"u + 'x'", ERR_BAD_EXPRESSION, 4, "'x'"},
    {"[1, 2] + u", ERR_SHAPE_MISMATCH, 7, "(2,)"},
    {"[1, [2]] + u", ERR_SHAPE_MISMATCH, 4, "a list as a value"},
    {"sum([])", ERR_BAD_EXPRESSION, 4, "at least one array"},
    {"None", ERR_BAD_EXPRESSION, 0, "None"},
    {"add(u, None)", ERR_BAD_EXPRESSION, 7, "None"},
};

static void types_and_shapes(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        _cleanup_arena_ struct arena *a = arena_new(0);
        struct typed t;
        struct err e = ERR_INIT;
        if (check_text(a, types[k].text, -1, 64, &t, &e))
            fail_msg("%s: %s", types[k].text, e.message);
        const struct typed_node *n = &t.nodes[t.root];
        char got[SHAPE_TEXT_MAX + 32], shape[SHAPE_TEXT_MAX];
        snprintf(got, sizeof got, "%s %s", dtype_name(n->dtype),
                 shape_text(n->rank, n->shape, shape, sizeof shape));
        if (strcmp(got, types[k].want) != 0)
            fail_msg("%s: %s, wanted %s", types[k].text, got, types[k].want);
        if (check_sound(&t))
            fail_msg("%s: %s", types[k].text, check_sound(&t));
    }
}

static void literal_arithmetic(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof constants / sizeof constants[0]; k++) {
        _cleanup_arena_ struct arena *a = arena_new(0);
        _cleanup_strb_ struct strb b = {0};
        struct typed t;
        struct err e = ERR_INIT;
        if (check_text(a, constants[k].text, -1, 64, &t, &e))
            fail_msg("%s: %s", constants[k].text, e.message);
        assert_int_equal(t.n_nodes, 1);
        typed_print(&t, &b);
        char dtype[16], want[128];
        const char *value = strchr(constants[k].want, ' ') + 1;
        snprintf(dtype, sizeof dtype, "%.*s", (int)(value - 1 - constants[k].want),
                 constants[k].want);
        snprintf(want, sizeof want, "%%0 = const %s () %s\nreturn %%0\n", dtype, value);
        if (strcmp(b.data, want) != 0)
            fail_msg("%s: %s, wanted %s", constants[k].text, b.data, want);
    }
}

static void graphs_expand(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof graphs / sizeof graphs[0]; k++) {
        _cleanup_arena_ struct arena *a = arena_new(0);
        _cleanup_strb_ struct strb b = {0};
        struct typed t;
        struct err e = ERR_INIT;
        if (check_text(a, graphs[k].text, -1, 64, &t, &e))
            fail_msg("%s: %s", graphs[k].text, e.message);
        typed_print(&t, &b);
        if (strcmp(b.data, graphs[k].want) != 0)
            fail_msg("%s:\n%s\nwanted\n%s", graphs[k].text, b.data, graphs[k].want);
    }
}

static void errors_have_code_and_place(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof errors / sizeof errors[0]; k++) {
        _cleanup_arena_ struct arena *a = arena_new(0);
        struct typed t;
        struct err e = ERR_INIT;
        enum err_code rc = check_text(a, errors[k].text, -1, 64, &t, &e);
        if (rc != errors[k].code || e.code != rc || e.offset != errors[k].offset ||
            (errors[k].message && !strstr(e.message, errors[k].message)))
            fail_msg("%s: %s at %ld: %s", errors[k].text, err_name(rc), e.offset, e.message);
        assert_string_equal(e.pointer, strchr(errors[k].text, ';') ? "/let/0/1" : "/expr");
        assert_int_equal(check_text(a, errors[k].text, -1, 64, &t, NULL), rc);
    }
}

/* Guards are kept for what the result needs, each once, with its place. */
static void guards_are_for_what_is_needed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t n;
        const char *graph; /* its end */
    } cases[] = {
        {"u*2", 0, NULL},
        {"take(row, [4, 0, 1])", 0, NULL},
        {"take(row, i8, mode='clip')", 0, NULL},
        {"t=take(u, i8, 0); row", 0, NULL},
        {"take(row, i64) + take(row, i64)", 1,
         "%10 = less bool (4, 5) %1 %9\n%11 = greater_equal bool (4, 5) %1 %4\n"
         "%12 = logical_or bool (4, 5) %10 %11\n%13 = any bool () %12 axes [0, 1]\n"
         "%14 = add float32 (4, 5) %8 %8\n%15 = guarded float32 (4, 5) %14 %13\nreturn %15\n"},
        {"take(row, i64) + take_along_axis(u, u8, 1)", 2, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        _cleanup_strb_ struct strb text = {0};
        struct typed t;
        struct err e = ERR_INIT;
        if (check_text(arena, cases[i].text, -1, 64, &t, &e) != ERR_OK)
            fail_msg("%s: %s", cases[i].text, e.message);
        const struct typed_guards *g = t.guards;
        if ((g ? g->n : 0) != cases[i].n)
            fail_msg("%s: %u guards", cases[i].text, g ? g->n : 0);
        assert_int_equal(t.nodes[t.root].kind == T_GUARDED, g != NULL);
        typed_print(&t, &text);
        if (cases[i].graph && !strstr(text.data, cases[i].graph))
            fail_msg("%s", text.data);
    }
}

static void result_dtype(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    struct typed t;
    struct err e = ERR_INIT;
    assert_int_equal(check_text(a, "u + 1", DT_I16, 64, &t, &e), ERR_OK);
    assert_int_equal(t.nodes[t.root].dtype, DT_I16);
    assert_int_equal(t.nodes[t.root].kind, T_CAST);
    assert_int_equal(check_text(a, "1000", DT_U8, 64, &t, &e), ERR_OK); /* as astype: wraps */
    assert_int_equal(t.nodes[t.root].value.v.u8, 1000 - 768);
    assert_int_equal(check_text(a, "c64", DT_F32, 64, &t, &e), ERR_DTYPE_MISMATCH);
    assert_int_equal(e.offset, 0);
}

static void input_limit(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    struct typed t;
    struct err e = ERR_INIT;
    assert_int_equal(check_text(a, "u + v + u + u[0] + v", -1, 2, &t, &e), ERR_OK);
    assert_int_equal(t.n_inputs, 2);
    assert_string_equal(t.inputs[1].name, "v");
    assert_int_equal(check_text(a, "u + v + row", -1, 2, &t, &e), ERR_EXPRESSION_TOO_LARGE);
    assert_int_equal(e.offset, 8);
}

/* 10,000 nodes in one chain, and names by the thousand, in loops and in linear time. */
static void long_chains(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    _cleanup_strb_ struct strb text = {0};
    struct typed t;
    struct err e = ERR_INIT;
    strb_add(&text, "u");
    for (int i = 0; i < 4999; i++)
        strb_addf(&text, i % 3 ? "+v" : "*%d.5", i);
    assert_int_equal(check_text(a, text.data, -1, 64, &t, &e), ERR_OK);
    assert_in_range(t.n_nodes, 5000, 10000);
    strb_reset(&text);
    strb_add(&text, "x0=index(0);");
    for (int i = 1; i < 1500; i++)
        strb_addf(&text, "x%d=x%d+x%d;", i, i - 1, i / 2);
    strb_add(&text, "i64*x1499");
    assert_int_equal(check_text(a, text.data, -1, 64, &t, &e), ERR_OK);
    assert_in_range(t.n_nodes, 1400, 1600);
}

/* The other spelling: trees give names for strings, attributes for parameters, and many operands.
 */
static void trees(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    struct typed t;
    struct err e = ERR_INIT;
    struct expr x;
    struct check_env env = {.resolve = check_resolve, .max_inputs = 64};
    uint32_t source, u, v, two, axis, sum;
    expr_init(&x, a, 100, 10);
    assert_int_equal(expr_add_source(&x, "/tree", &source, &e), ERR_OK);
    struct expr_node name = {.kind = EXPR_NAME, .name = "u", .offset = -1, .step = "args/0"};
    struct expr_node str = {.kind = EXPR_STRING, .name = "v", .offset = -1, .step = "x2"};
    struct expr_node lit = {
        .kind = EXPR_LITERAL, .offset = -1, .step = "args/1", .lit = {.kind = LIT_INT, .i = 2}};
    struct expr_node call = {.kind = EXPR_CALL, .name = "subtract", .offset = -1};
    assert_int_equal(expr_add(&x, &name, NULL, 0, 0, &u, &e), ERR_OK);
    assert_int_equal(expr_add(&x, &str, NULL, 0, 0, &v, &e), ERR_OK);
    struct expr_link sub[] = {{u, NULL}, {v, "x2"}};
    assert_int_equal(expr_add(&x, &call, sub, 2, 1, &x.root, &e), ERR_OK);
    assert_int_equal(check_expr(a, &x, &env, -1, &t, &e), ERR_OK);
    assert_int_equal(t.n_inputs, 2);

    assert_int_equal(expr_add(&x, &name, NULL, 0, 0, &u, &e), ERR_OK);
    assert_int_equal(expr_add(&x, &name, NULL, 0, 0, &v, &e), ERR_OK);
    assert_int_equal(expr_add(&x, &lit, NULL, 0, 0, &two, &e), ERR_OK);
    struct expr_link three[] = {{u, NULL}, {two, NULL}, {v, NULL}};
    call.name = "add";
    assert_int_equal(expr_add(&x, &call, three, 3, 0, &sum, &e), ERR_OK);
    lit.step = "axis";
    assert_int_equal(expr_add(&x, &lit, NULL, 0, 0, &axis, &e), ERR_OK);
    struct expr_link reduced[] = {{sum, NULL}, {axis, "axis"}};
    x.nodes[sum].step = "args/0";
    call.name = "sum";
    assert_int_equal(expr_add(&x, &call, reduced, 2, 1, &x.root, &e), ERR_OK);
    assert_int_equal(check_expr(a, &x, &env, -1, &t, &e), ERR_BAD_AXIS);
    assert_string_equal(e.pointer, "/tree/axis");
    x.nodes[two].lit = (struct literal){.kind = LIT_INT, .i = 1};
    x.nodes[axis].lit = (struct literal){.kind = LIT_INT, .i = 1};
    assert_int_equal(check_expr(a, &x, &env, -1, &t, &e), ERR_OK);
    assert_int_equal(t.nodes[t.root].rank, 1);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] =
        "m=mean(u);i=index(0); laplacian(u + i, [0.5, 2], 'wrap') + "
        "where(i > m, u[::-1], shift(v, [1, 1], 'constant', 2)) + i8 + "
        "clip(i16, -3, 3)*u16 - f16/3 + max(bf16, axis=0) + t64 + "
        "concat([take(u, i8[0], 1), take(row, [[3, 0, 1, 1, 2]])*m])[1:] + "
        "repeat(sample(row, col, 'linear', 'wrap'), [2, 0, 1, 2]) + "
        "reshape(tile(tril(f32), 2), [2, 4, 5])[1] + sum([[1, 2.5], [m, 3]])";
    for (int nth = 1;; nth++) {
        mem_fail_after(nth, false);
        struct arena *a = arena_new(0);
        struct typed t;
        struct err e = ERR_INIT;
        enum err_code rc = a ? check_text(a, text, DT_F32, 64, &t, &e) : ERR_OUT_OF_MEMORY;
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        arena_free(a);
        assert_int_equal(mem_live(), 0);
        if (rc != (failed ? ERR_OUT_OF_MEMORY : ERR_OK))
            fail_msg("%d: %s", nth, e.message);
        if (!failed)
            break;
    }
    for (size_t cap = 100;; cap += 900) { /* the arena's own limit */
        struct arena *a = arena_new(cap);
        struct typed t;
        struct err e = ERR_INIT;
        enum err_code rc = check_text(a, text, DT_F32, 64, &t, &e);
        arena_free(a);
        if (!rc)
            break;
        assert_int_equal(rc, ERR_OUT_OF_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_shapes),
        cmocka_unit_test(literal_arithmetic),
        cmocka_unit_test(graphs_expand),
        cmocka_unit_test(errors_have_code_and_place),
        cmocka_unit_test(guards_are_for_what_is_needed),
        cmocka_unit_test(result_dtype),
        cmocka_unit_test(input_limit),
        cmocka_unit_test(long_chains),
        cmocka_unit_test(trees),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
