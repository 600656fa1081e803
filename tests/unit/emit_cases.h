/* The expressions that kernels are made of for the tests of compute/gpu/text's emitter, and the
 * arrays they are about: a kind of each, of every dtype, whose elements nobody reads. Included by
 * emit_plans.h; constant. */
#ifndef ARRAYD_TESTS_EMIT_CASES_H
#define ARRAYD_TESTS_EMIT_CASES_H

#include <stddef.h>

#include "compute/type/dtype.h"
#include "compute/type/grid.h"
#include "compute/type/layout.h"

struct emit_operand {
    const char *name;
    enum dtype dtype;
    struct view view;
    const struct grid *grid;
};

/* One ghost cell around, in padded memory; a face of each type. */
static const struct grid emit_grid = {.rank = 3,
                                      .ghost = {1, 1, 1},
                                      .spacing = {1, 0.5, 1},
                                      .has_boundary = true,
                                      .face = {{{FACE_DIRICHLET, 2, 0}, {FACE_NONE}},
                                               {{FACE_NEUMANN, 3, 0}, {FACE_DIRICHLET, 1, 0}},
                                               {{FACE_PERIODIC}, {FACE_PERIODIC}}}};

/* clang-format off */
static const struct emit_operand emit_operands[] = {
    {"a", DT_F32, {3, {64, 64, 64}, {4096, 64, 1}, 0}},
    {"b", DT_F32, {3, {64, 64, 64}, {4096, 64, 1}, 0}},
    {"turned", DT_F32, {3, {64, 64, 64}, {1, 64, 4096}, 0}},
    {"off", DT_F32, {3, {64, 64, 64}, {4096, 64, 1}, 1}},
    {"odd", DT_F32, {3, {7, 9, 11}, {99, 11, 1}, 0}},
    {"odd2", DT_F32, {3, {17, 19, 109}, {2071, 109, 1}, 0}},
    {"row", DT_F32, {1, {64}, {1}, 0}},
    {"col", DT_F32, {2, {64, 1}, {1, 1}, 0}},
    {"col2", DT_F32, {2, {64, 1}, {1, 1}, 0}},
    {"line", DT_F32, {1, {1003}, {1}, 0}},
    {"deep", DT_F32, {3, {512, 512, 512}, {262144, 512, 1}, 0}},
    {"sq", DT_F32, {2, {256, 512}, {512, 1}, 0}},
    {"every", DT_F32, {1, {100}, {3}, 0}},
    {"back", DT_F32, {1, {100}, {-1}, 99}},
    {"d", DT_F64, {3, {64, 64, 64}, {4096, 64, 1}, 0}},
    {"h", DT_F16, {2, {64, 64}, {64, 1}, 0}},
    {"bf", DT_BF16, {2, {64, 64}, {64, 1}, 0}},
    {"z", DT_C64, {2, {64, 64}, {64, 1}, 0}},
    {"zz", DT_C128, {2, {64, 64}, {64, 1}, 0}},
    {"i", DT_I32, {2, {64, 64}, {64, 1}, 0}},
    {"l", DT_I64, {2, {64, 64}, {64, 1}, 0}},
    {"u", DT_U8, {2, {64, 64}, {64, 1}, 0}},
    {"m", DT_BOOL, {2, {64, 64}, {64, 1}, 0}},
    {"big", DT_F32, {2, {65536, 65536}, {65536, 1}, 0}},
    {"long_row", DT_F32, {1, {1000000}, {1}, 0}},
    {"long_rows", DT_F32, {2, {500, 16384}, {16384, 1}, 0}},
    {"rows", DT_F32, {2, {500, 4096}, {4096, 1}, 0}},
    {"long_h", DT_F16, {2, {500, 16384}, {16384, 1}, 0}},
    {"longer", DT_F32, {2, {1000, 65536}, {65536, 1}, 0}},
    {"longer_h", DT_F16, {2, {1000, 65536}, {65536, 1}, 0}},
    {"widest", DT_F32, {2, {1000, 88064}, {88064, 1}, 0}},
    {"longest", DT_F32, {2, {1000, 90000}, {90000, 1}, 0}},
    {"tall", DT_F32, {2, {100000, 3}, {3, 1}, 0}},
    {"tall2", DT_F32, {3, {100000, 2, 8}, {16, 8, 1}, 0}},
    {"tall40", DT_F32, {2, {100000, 40}, {40, 1}, 0}},
    {"g", DT_F32, {3, {64, 64, 64}, {5280, 80, 1}, 5376}, &emit_grid},
    {"gd", DT_F64, {3, {64, 64, 64}, {5280, 80, 1}, 5376}, &emit_grid},
    {"godd", DT_F32, {3, {17, 19, 109}, {2352, 112, 1}, 2480}, &emit_grid},
    {"five", DT_F32, {5, {3, 4, 6, 5, 8}, {960, 240, 40, 8, 1}, 0}},
    {"points", DT_F64, {2, {1000, 3}, {3, 1}, 0}},
    {"six", DT_F32, {6, {8, 10, 12, 14, 6, 4}, {40320, 4032, 336, 24, 4, 1}, 0}},
};
#define WEIGHTS_5(n)   "[" #n ", " #n "1, " #n "2, " #n "3, " #n "4]"
#define WEIGHTS_5x5 \
    "[" WEIGHTS_5(1) ", " WEIGHTS_5(2) ", " WEIGHTS_5(3) ", " WEIGHTS_5(4) ", " WEIGHTS_5(5) "]"
#define WEIGHTS_5x5_(n) \
    "[" WEIGHTS_5(n##1) ", " WEIGHTS_5(n##2) ", " WEIGHTS_5(n##3) ", " WEIGHTS_5(n##4) ", " \
    WEIGHTS_5(n##5) "]"
#define WEIGHTS_5x5x5 \
    "[" WEIGHTS_5x5_(1) ", " WEIGHTS_5x5_(2) ", " WEIGHTS_5x5_(3) ", " WEIGHTS_5x5_(4) ", " \
    WEIGHTS_5x5_(5) "]"
#define WEIGHTS_3x4 "[[1, 2, 3, 4], [5, 6, 7, 8], [9, 8, 7, 6]]"
#define WEIGHTS_3x3x3 \
    "[[[1, 2, 1], [3, 4, 5], [6, 7, 6]], [[2, 3, 2], [8, 9, 8], [3, 1, 3]]," \
    " [[4, 1, 4], [2, 7, 2], [5, 0, 5]]]"
/* Outer products of 1, 4, 6, 4, 1. */
#define BINOMIAL_5(a, b, c) "[" #a ", " #b ", " #c ", " #b ", " #a "]"
#define BINOMIAL_5x5 \
    "[" BINOMIAL_5(1, 4, 6) ", " BINOMIAL_5(4, 16, 24) ", " BINOMIAL_5(6, 24, 36) ", " \
    BINOMIAL_5(4, 16, 24) ", " BINOMIAL_5(1, 4, 6) "]"
#define BINOMIAL_5x5_4 \
    "[" BINOMIAL_5(4, 16, 24) ", " BINOMIAL_5(16, 64, 96) ", " BINOMIAL_5(24, 96, 144) ", " \
    BINOMIAL_5(16, 64, 96) ", " BINOMIAL_5(4, 16, 24) "]"
#define BINOMIAL_5x5_6 \
    "[" BINOMIAL_5(6, 24, 36) ", " BINOMIAL_5(24, 96, 144) ", " BINOMIAL_5(36, 144, 216) ", " \
    BINOMIAL_5(24, 96, 144) ", " BINOMIAL_5(6, 24, 36) "]"
#define BINOMIAL_5x5x5 \
    "[" BINOMIAL_5x5 ", " BINOMIAL_5x5_4 ", " BINOMIAL_5x5_6 ", " BINOMIAL_5x5_4 ", " \
    BINOMIAL_5x5 "]"
/* An expression over them and the form that it takes. */
static const struct { const char *text, *form; } emit_cases[] = {
    {"a*2 + 1", "flat"}, {"a + b", "flat"}, {"where(a > b, a - b, b - a)", "flat"},
    {"exp(-a*a)*sin(b) + sqrt(abs(a))", "flat"}, {"line + 1", "flat"}, {"a + off", "flat"},
    {"off*2", "flat"}, {"odd + 1", "flat"}, {"every + 1", "flat"}, {"back*2", "flat"},
    {"a + row", "rows"}, {"row + col", "rows"}, {"a + turned", "tile"}, {"turned*turned", "tile"},
    {"sq[::2, 1:] + 1", "rows"}, {"a[1:-1, 1:-1, 1:-1]*2", "rows"}, {"big + 1", "flat"},
    {"big + row[0]", "flat"}, {"h + 1", "flat"}, {"bf*h", "flat"}, {"z*zz", "flat"},
    {"z/(z + 1)", "flat"}, {"i//3 + l", "flat"}, {"u + u", "flat"}, {"m & (u > 3)", "flat"},
    {"d + a", "flat"}, {"five[:, :, ::-1]*2", "rows"}, {"a + index(0)", "rows"},
    {"sin(index(2)*0.5) + a", "rows"}, {"laplacian(a)", "stencil"},
    {"a + 0.1*laplacian(a, boundary='wrap')", "stencil"}, {"laplacian(d)", "stencil"},
    {"laplacian(odd)", "rows"}, {"laplacian(odd2)", "stencil"},
    {"shift(odd2, (0, 2, -3), 'wrap') - odd2", "stencil"}, {"laplacian(sq)", "stencil"},
    {"shift(a, (1, 0, 0)) - a", "stencil"}, {"shift(a, (0, 0, 1), 'reflect') - a", "stencil"},
    {"shift(sq, (0, 3), 'symmetric') + sq", "stencil"}, {"shift(a, (0, 0, 9)) - a", "rows"},
    {"shift(a, (1, 1, 1)) - a", "rows"}, {"shift(a, (1, 1, 1), 'clamp') - a", "stencil"},
    {"shift(exp(a), (1, 0, 0), 'constant', 0) + a", "stencil"}, {"shift(row, (1,)) + a", "rows"},
    {"shift(shift(a, (1, 0, 0)), (0, 1, 0)) - a", "rows"},
    {"central_diff(sq, 0)**2 + central_diff(sq, 1)**2", "stencil"},
    {"shift(a[1:], (1, 0, 0)) + 1", "stencil"},
    {"laplacian(g, boundary='ghost')", "stencil"}, {"laplacian(gd, boundary='ghost')", "stencil"},
    {"laplacian(godd, boundary='ghost')", "stencil"},
    {"laplacian(g, boundary='array')", "stencil"}, {"laplacian(gd, boundary='array')", "stencil"},
    {"shift(g, (1, 1, -1), 'array')", "rows"},
    {"shift(g, (1, 1, 1), 'ghost') - a", "stencil"},
    {"shift(shift(g, (1, 0, 0), 'ghost'), (0, 0, 1)) - a", "rows"},
    {"sum(shift(g*a[0], (0, 0, 0), 'ghost') - shift(g, (0, 1, 0), 'ghost'))", "reduce-all"},
    {"shift(five, (0, 0, 1, 0, 1), 'wrap') - five", "stencil"}, {"sum(a)", "reduce-all"},
    {"sum(a, axis=0)", "reduce-outer"}, {"sum(a, axis=2)", "reduce-inner"},
    {"sum((a - b)**2)", "reduce-all"}, {"max(a, axis=1)", "reduce-outer"}, {"min(h)", "reduce-all"},
    {"sum(d)", "reduce-all"}, {"sum(z, axis=1)", "reduce-inner"}, {"sum(zz)", "reduce-all"},
    {"mean(bf)", "reduce-all"}, {"any(m)", "reduce-all"}, {"all(u > 3, axis=0)", "reduce-outer"},
    {"sum(l)", "reduce-all"}, {"max(i, axis=(0, 1))", "reduce-all"},
    {"sum(five, axis=(0, 2, 4))", "reduce-inner"}, {"sum(laplacian(a))", "reduce-all"},
    {"max(every)", "reduce-all"}, {"mean(u, axis=0)", "reduce-outer"},
    {"mean(m, axis=0)", "reduce-outer"}, {"var(a)", "reduce-all"},
    {"var(h)", "reduce-all"}, {"var(d, axis=2, correction=1)", "reduce-inner"},
    {"var(a, axis=0)", "reduce-outer"},
    {"sum(astype(u, 'complex128'), axis=0)", "reduce-outer"},
    {"sum(u)", "reduce-all"}, {"sum(turned, axis=0)", "reduce-inner"},
    {"argmax(a)", "reduce-all"}, {"argmax(a, axis=1)", "reduce-outer"},
    {"argmin(d, axis=2)", "reduce-inner"}, {"argmax(turned, axis=(0, 1))", "reduce-inner"},
    {"argmin(h)", "reduce-all"}, {"argmax(m, axis=0)", "reduce-outer"},
    {"argmin(u)", "reduce-all"}, {"argmax(l)", "reduce-all"},
    {"argmax(laplacian(a))", "reduce-all"}, {"argmax(big)", "reduce-all"},
    {"argmax(five, axis=(1, 3))", "reduce-outer"},
    {"prod(a)", "reduce-all"}, {"prod(d, axis=0)", "reduce-outer"}, {"prod(i)", "reduce-all"},
    {"prod(u, axis=1)", "reduce-inner"}, {"prod(z)", "reduce-all"},
    {"prod(zz, axis=0)", "reduce-outer"}, {"mean(zz)", "reduce-all"},
    {"mean(z, axis=0)", "reduce-outer"}, {"mean(d)", "reduce-all"},
    {"nansum(d)", "reduce-all"},
    {"nanmean(a, axis=2)", "reduce-inner"}, {"nanmean(d)", "reduce-all"},
    {"nanmin(h, axis=0)", "reduce-outer"},
    {"nanmax(d, axis=2)", "reduce-inner"},
    {"nanvar(a, axis=(0, 2), correction=1)", "reduce-inner"},
    {"logsumexp(a)", "reduce-all"}, {"logsumexp(d, axis=0)", "reduce-outer"},
    {"cumulative_sum(a, 2)", "scan-rows"}, {"cumulative_sum(a, 1)", "scan-outer"},
    {"cumulative_sum((a - b)**2, 0)", "scan-outer"}, {"cumulative_sum(line)", "scan-rows"},
    {"cumulative_sum(odd, 2)", "scan-rows"}, {"cumulative_sum(d, 2)", "scan-rows"},
    {"cumulative_sum(d, 0)", "scan-outer"}, {"cumulative_sum(z, 0)", "scan-outer"},
    {"cumulative_sum(zz, 1)", "scan-rows"}, {"cumulative_sum(u, 1)", "scan-rows"},
    {"cumulative_sum(big, 1)", "scan-inner"}, {"cumulative_sum(big, 0)", "scan-outer"},
    {"cumulative_sum(long_row)", "scan-inner"}, {"cumulative_sum(tall, 0)", "scan-outer"},
    {"cumulative_sum(astype(long_row, 'complex128'))", "scan-inner"},
    {"cumulative_sum(astype(tall, 'float64'), 0)", "scan-outer"},
    {"cumulative_sum(tall40, 0)", "scan-outer"},
    {"cumulative_sum(astype(tall40, 'complex128'), 0)", "scan-outer"},
    {"cumulative_prod(tall[1:, :2], 0)", "scan-outer"},
    {"cumulative_prod(a, 2)", "scan-rows"}, {"cumulative_prod(d, 1)", "scan-outer"},
    {"cumulative_prod(z, 1)", "scan-rows"}, {"cumulative_prod(zz, 0)", "scan-outer"},
    {"cumulative_prod(i, 0)", "scan-outer"},
    {"cumulative_prod(astype(u, 'uint64'), 1)", "scan-rows"},
    {"cumulative_sum(turned, 0)", "scan-outer"}, {"cumulative_sum(laplacian(sq), 1)", "scan-rows"},
    {"cumulative_sum(shift(shift(a, (1, 0, 0)), (0, 1, 0)), 2)", "scan-rows"},
    {"cumulative_sum(shift(shift(a, (1, 0, 0)), (0, 1, 0)), 0)", "scan-outer"},
    {"cumulative_sum(points, 1)", "scan-rows"}, {"cumulative_sum(a + row, 2)", "scan-rows"},
    {"cumulative_sum(a*index(2), 2)", "scan-rows"}, {"cumulative_sum(h, 1)", "scan-rows"},
    {"cumulative_sum(five[..., ::-1], 4)", "scan-rows"},
    {"cumulative_sum(sq[:, 1:], 1)", "scan-rows"},
    {"cumulative_sum(long_row[:5001])", "scan-rows"},
    {"cumulative_sum(long_row[:65536])", "scan-inner"},
    {"cumulative_sum(long_row[1:65536])", "scan-rows"},
    {"cumulative_sum(astype(long_row[:30000], 'complex128'))", "scan-rows"},
    {"cumulative_sum(col, 1)", "flat"}, {"cumulative_sum(five, 3)", "scan-outer"},
    {"take(line, l, mode='clip') + 1", "flat"}, {"take(sq, l, axis=1, mode='wrap')", "flat"},
    {"take(sq[:64], [3, 1, 0, 2], 1)", "rows"}, {"take(zz[0], i, mode='clip')", "flat"},
    {"sum(take(h[1], i, mode='clip'))", "reduce-all"}, {"sample(a, points)", "flat"},
    {"sample(h, points[:, 1:], 'nearest', 'reflect')", "flat"},
    {"sample(a, points, boundary='constant', value=2)", "flat"},
    {"laplacian(sample(line, points[:, :1], boundary='wrap'))", "flat"},
    {"concat([a, a])", "flat"}, {"tile(row, [4, 2])", "rows"}, {"tril(i)", "rows"},
    {"gradient(a, 0)", "stencil"},
    {"correlate(sq, [[1, 2, 1], [2, 4, 2], [1, 2, 1]], 'clamp')", "stencil"},
    {"correlate(sq, [[1, 2, 1], [2, 4, 2], [1, 2, 1]], 'constant', 1)", "window"},
    {"correlate(sq, " WEIGHTS_5x5 ", 'clamp')", "window"},
    {"correlate(sq, " WEIGHTS_5x5 ")", "window"},
    {"correlate(deep, " WEIGHTS_5x5x5 ", 'clamp')", "window"},
    {"correlate(deep, " WEIGHTS_5x5x5 ", 'wrap')", "window"},
    {"correlate(deep, " WEIGHTS_5x5x5 ", 'reflect')", "window"},
    {"correlate(deep, " WEIGHTS_5x5x5 ", 'constant', 2)", "window"},
    {"correlate(deep, " WEIGHTS_5x5x5 ")", "window"},
    {"a + correlate(b*2, " WEIGHTS_3x3x3 ", 'constant', 3)", "window"},
    {"correlate(d, " WEIGHTS_5x5x5 ")", "window"},
    {"correlate(h, " WEIGHTS_5x5 ", 'reflect')", "window"},
    {"correlate(bf, " WEIGHTS_5x5 ")", "window"}, {"correlate(u, " WEIGHTS_5x5 ")", "window"},
    {"correlate(l, " WEIGHTS_5x5 ", 'wrap')", "window"},
    {"correlate(z, " WEIGHTS_5x5 ")", "window"}, {"correlate(zz, " WEIGHTS_5x5 ")", "window"},
    {"correlate(line, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], 'symmetric')", "window"},
    {"correlate(big, " WEIGHTS_5x5 ", 'clamp')", "window"},
    {"correlate(tall2, [" WEIGHTS_3x4 "])", "window"},
    {"correlate(turned, " WEIGHTS_3x3x3 ", 'clamp')", "window"},
    {"correlate(sq[::2, ::-1], " WEIGHTS_5x5 ", 'clamp')", "window"},
    {"correlate(five, [[" WEIGHTS_3x3x3 "]])", "window"},
    {"sum(correlate(sq, " WEIGHTS_5x5 "))", "reduce-all"},
    {"laplacian(laplacian(a), boundary='wrap')", "rows"},
};
/* Wholes: reductions of rows and what is made of them; `why` not, or NULL. Those with names are
 * golden. */
#define ROWS(F, X) F "(" X ", axis=-1, keepdims=True)"
#define RISEN(X)   "exp(" X " - " ROWS("max", X) ")"
#define SOFTMAX(X) RISEN(X) "/" ROWS("sum", RISEN(X))
#define COUNTED    "exp(-abs(broadcast_to(longer[:, :1], [1000, 65536]) - index(1)))"
#define TWO(X, A)  ROWS("max", X "*" A "1") "+" ROWS("max", X "*" A "2")
#define FOUR(X, A) TWO(X, A "7") "+" TWO(X, A "8")
#define TWELVE(X, A) FOUR(X, A "2") "+" FOUR(X, A "3") "+" FOUR(X, A "4")
#define NORMAL(X)  "(" X " - " ROWS("mean", X) ")/" ROWS("std", X)
static const struct { const char *name, *text, *why; } emit_wholes[] = {
    {"fold", SOFTMAX("sq"), NULL}, {"fold-block", SOFTMAX("long_rows"), NULL},
    {NULL, SOFTMAX("rows"), NULL}, {NULL, SOFTMAX("long_h"), NULL}, {NULL, SOFTMAX("d"), NULL},
    {"fold-odd", SOFTMAX("odd2"), NULL}, {NULL, SOFTMAX("h"), NULL},
    {"fold-levels", NORMAL("sq") "*sq[0] + sq[1]", NULL},
    {NULL, NORMAL("rows") "*rows[0]", NULL}, {NULL, NORMAL("long_rows"), NULL},
    {NULL, "long_rows/" ROWS("norm", "long_rows"), NULL},
    {"fold-arg", "sq - " ROWS("argmax", "sq"), NULL},
    {NULL, "five - sum(five, axis=(3, 4), keepdims=True)", NULL},
    {NULL, "z - " ROWS("mean", "z"), NULL}, {NULL, "zz - " ROWS("sum", "zz"), NULL},
    {NULL, "d - " ROWS("prod", "d") " + " ROWS("nanvar", "d"), NULL},
    {NULL, "i - " ROWS("max", "i"), NULL}, {NULL, "line - logsumexp(line)", NULL},
    {NULL, "sum((sq - " ROWS("mean", "sq") ")**2*sq[0], axis=1)", NULL},
    {"fold-held", SOFTMAX("longer"), NULL}, {NULL, NORMAL("longer_h") "*longer_h[0]", NULL},
    {NULL, "longer - " ROWS("argmax", "longer"), NULL},
    {NULL, "longer/(" TWELVE("longer", "") ")", NULL}, {NULL, SOFTMAX("widest"), NULL},
    {NULL, "widest/(" TWELVE("widest", "") ")", "a row is too long for a block"},
    {NULL, "long_rows/(" TWELVE("long_rows", "5") "+" TWELVE("long_rows", "6") "+"
           TWELVE("long_rows", "7") "+" TWELVE("long_rows", "8") ")", NULL},
    {NULL, "long_rows/(" TWELVE("long_rows", "5") "+" TWELVE("long_rows", "6") "+"
           TWELVE("long_rows", "7") "+" TWELVE("long_rows", "8") "+" TWELVE("long_rows", "9") ")",
     "it has too many reductions"},
    {NULL, COUNTED "/" ROWS("sum", COUNTED), NULL}, /* nothing to hold */
    {NULL, SOFTMAX("longest"), "a row is too long for a block"},
    {NULL, "turned - " ROWS("max", "turned"), "its reductions go over the rows in different ways"},
    {NULL, "a - mean(a, axis=(0, 2), keepdims=True)", "a row is not the fastest axes"},
};
/* Siblings, and the form that they take: the first kernels of what is no fold. */
static const struct { const char *name, *text, *form; } emit_siblings[] = {
    {"siblings", "(longer - mean(longer))/std(longer)", "reduce-all"},
    {"siblings-outer", "(a - min(a, axis=0))/(max(a, axis=0) - min(a, axis=0))", "reduce-outer"},
    {NULL, "(a - mean(a, axis=0))/std(a, axis=0)", "reduce-outer"},
    {NULL, "(longest - " ROWS("mean", "longest") ")/" ROWS("var", "longest"), "reduce-inner"},
    {"siblings-arg", "argmax(longer) + argmin(longer)", "reduce-all"},
    {NULL, "longer*min(longer) + max(longer) + sum(longer)", "reduce-all"},
    {NULL, "d - mean(d) + max(d)*var(d)", "reduce-all"},
};
/* Those whose text is committed: tests/golden/cuda/NAME.cu. Of two expressions one kernel is made.
 * No expression has the last. */
static const struct { const char *name, *text; } emit_golden[] = {
    {"flat", "a*2 + 1"}, {"flat-tail", "line + 1"}, {"flat-select", "where(a > b, a - b, b - a)"},
    {"flat-unaligned", "a + off"}, {"flat-strided", "every + 1"}, {"flat-wide", "big + row[0]"},
    {"halves", "bf*h"},
    {"halves-alone", "where(signbit(-h), exp(h - 2)/h, copysign(h, 1))"},
    {"complex", "z/(z + 1)"}, {"bools", "m & (u > 3)"},
    {"integers", "i//3 + l"}, {"rows", "a + row"}, {"rows-sliced", "sq[::2, 1:] + 1"},
    {"index", "sin(index(2)*0.5) + a"}, {"general", "shift(shift(a, (1, 0, 0)), (0, 1, 0)) - a"},
    {"tile", "a + turned"}, {"stencil-self", "laplacian(a)"},
    {"stencil-wrap", "a + 0.1*laplacian(a, boundary='wrap')"},
    {"stencil-clamp", "shift(a, (1, 1, 1), 'clamp') - a"},
    {"stencil-reflect", "shift(a, (0, 0, 1), 'reflect') - a"},
    {"stencil-symmetric", "shift(sq, (0, 3), 'symmetric') + sq"},
    {"stencil-constant", "shift(exp(a), (1, 0, 0), 'constant', 0) + a"},
    {"stencil-step", "laplacian(odd2)"}, {"stencil-ghost", "laplacian(g, boundary='ghost')"},
    {"stencil-array", "laplacian(g, boundary='array')"},
    {"stencil-batch", "shift(five, (0, 0, 1, 0, 1), 'wrap') - five"},
    {"reduce-all", "sum((a - b)**2)"}, {"reduce-inner", "sum(z, axis=1)"},
    {"reduce-outer", "max(a, axis=1)"}, {"scan-inner", "cumulative_sum(big*row[0], 1)"},
    {"scan-rows", "cumulative_sum(a*b, 2)"},
    {"scan-rows-apart", "cumulative_sum(sq[:, 1:], 1)"},
    {"scan-rows-split", "cumulative_sum(astype(long_row[:9000], 'complex64'))"},
    {"scan-outer", "cumulative_prod(z, 0)"}, {"scan-split", "cumulative_sum(tall, 0)"},
    {"scan-split-row", "cumulative_sum(astype(long_row, 'float64'))"},
    {"scan-split-columns", "cumulative_prod(tall40, 0)"},
    {"reduce-arg", "argmax(a[:, ::2], axis=(0, 2))"}, {"reduce-var", "var(a[:, ::2], axis=(0, 2))"},
    {"reduce-pair", "nanmean(a, axis=1)"},
    {"gather", "take_along_axis(sq[:64], i)"},
    {"table", "take(sq[:64], [3, 1, -2, 0, 5], 1)"},
    {"sample", "sample(sq, points[:, 1:])"},
    {"window", "correlate(sq, " WEIGHTS_3x4 ", 'clamp')"},
    {"window-self", "correlate(h, " WEIGHTS_3x4 ")"},
    {"window-deep", "a + correlate(b*2, " WEIGHTS_3x3x3 ", 'constant', 3)"},
    {"window-factored", "fast correlate(sq, " BINOMIAL_5x5 ", 'clamp')"},
    {"window-two", "correlate(sq[:, 1:], " WEIGHTS_3x4 ", 'wrap'); sq[:, 1:] + 1"},
    {"flat-two", "line*2 > 1; line + 1"}, {"rows-two", "a + row; astype(a - row, 'float64')"},
    {"tile-two", "a + turned; a*turned"}, {"stencil-two", "a + laplacian(a); a - b"},
    {"stencil-step-two", "laplacian(odd2); odd2*2"},
    {"general-two", "shift(shift(a, (1, 0, 0)), (0, 1, 0)) - a; a + 1"},
    {"sample-narrow", "sample(sq, astype(points[:, 1:], 'float32'))"}, {"random", NULL},
};
/* clang-format on */

#endif
