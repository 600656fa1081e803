/* The table, generated from reduce.def. */
#include "compute/type/reduce.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/type/op.h"

#define KINDS__ 0
#define KINDS_W 16 /* 64-bit integers only */
const struct reduce_info reduce_table[REDUCE_COUNT] = {
#define ROUNDED true
#define EXACT   false
#define OWN     false
#define PAIR    true
#define REDUCE(id, name, b, i, f, c, identity, result, number, rounding, made, states, composed)   \
    [REDUCE_##id] = {#id,                                                                          \
                     name,                                                                         \
                     KINDS_##b | KINDS_##i | KINDS_##f | KINDS_##c,                                \
                     IDENTITY_##identity,                                                          \
                     REDUCE_##result,                                                              \
                     NUMBER_##number,                                                              \
                     rounding,                                                                     \
                     made,                                                                         \
                     REDUCE_##states,                                                              \
                     COMPOSED_##composed},
#include "compute/type/reduce.def"
};

#define OF_I    (-1 - KINDS_I)
#define OF_F    (-1 - KINDS_F)
#define OF_ANY  (-1 - 255)
#define OF_F32  DT_F32
#define OF_F64  DT_F64
#define OF_C64  DT_C64
#define OF_C128 DT_C128
static const struct reduce_state states[] = {
#define STATE(id, dtypes, type, size, header, seeds, begin, step, merge, finish)                   \
    {REDUCE_##id, OF_##dtypes, type, size, header, seeds, begin, step, merge, finish},
#include "compute/type/reduce.def"
};

/* Shared by all PAIR reductions. */
static const struct reduce_state pair = {.type = "struct ar_$I",
                                         .size = 32,
                                         .header = "scalar/reduce.h",
                                         .begin = "ar_$I_begin()",
                                         .step = "ar_$I_take(s, (ar_f64)x)",
                                         .merge = "ar_$I_merge(a, b)",
                                         .finish = "($R)ar_$I_end(s, $N)"};

static unsigned kinds_of(enum dtype t)
{
    static const unsigned char of_kind[] = {[KIND_BOOL] = KINDS_B,
                                            [KIND_INT] = KINDS_I,
                                            [KIND_UINT] = KINDS_I,
                                            [KIND_FLOAT] = KINDS_F,
                                            [KIND_COMPLEX] = KINDS_C};
    return of_kind[dtype_kind(t)] | (t == DT_I64 || t == DT_U64 ? KINDS_W : 0);
}

bool reduce_defined(enum reduce_op op, enum dtype t)
{
    return !dtype_is_half(t) && reduce_table[op].kinds & kinds_of(t);
}

static const struct {
    const char *name;
    unsigned char kinds;
    enum reduce_op op;
} scans[SCAN_COUNT] = {
#define SCAN(id, name, b, i, f, c, op)                                                             \
    [SCAN_##id] = {name, KINDS_##b | KINDS_##i | KINDS_##f | KINDS_##c, REDUCE_##op},
#include "compute/type/reduce.def"
};

enum scan_op reduce_scan(enum reduce_op op)
{
    enum scan_op scan = 0;
    while (scan < SCAN_COUNT && scans[scan].op != op)
        scan++;
    return scan;
}

bool scan_defined(enum reduce_op op, enum dtype t)
{
    const enum scan_op scan = reduce_scan(op);
    return scan != SCAN_COUNT && !dtype_is_half(t) && scans[scan].kinds & kinds_of(t);
}

const char *scan_name(enum reduce_op op)
{
    return scans[reduce_scan(op)].name;
}

const struct reduce_state *reduce_state(enum reduce_op op, enum dtype t)
{
    const struct reduce_state *s = states;
    assert(reduce_defined(op, t));
    if (reduce_table[op].pair)
        return &pair;
    while (s->op != reduce_table[op].states ||
           !(s->dtypes < 0 ? kinds_of(t) & (unsigned)(-1 - s->dtypes) : s->dtypes == (int)t))
        s++;
    return s;
}

static struct scalar extreme(enum dtype t, bool largest)
{
    struct scalar s = {.dtype = t};
    int bits = (int)dtype_size(t) * 8;
    switch (dtype_kind(t)) {
    case KIND_FLOAT:
        if (t == DT_F64)
            s.v.f64 = largest ? INFINITY : -INFINITY;
        else
            s.v.f32 = largest ? INFINITY : -INFINITY;
        break;
    case KIND_INT:
        s.v.u64 = (largest ? (1ull << (bits - 1)) - 1 : 1ull << (bits - 1)) &
                  (bits == 64 ? UINT64_MAX : (1ull << bits) - 1);
        break;
    case KIND_UINT:
        s.v.u64 = largest ? bits == 64 ? UINT64_MAX : (1ull << bits) - 1 : 0;
        break;
    case KIND_BOOL:
        s.v.b = largest;
        break;
    case KIND_COMPLEX:
        break;
    }
    return s;
}

struct scalar reduce_identity(enum reduce_op op, enum dtype t)
{
    struct scalar s = {.dtype = DT_F64};
    switch (reduce_table[op].identity) {
    case IDENTITY_LEAST:
        return extreme(t, false);
    case IDENTITY_GREATEST:
        return extreme(t, true);
    case IDENTITY_NAN:
        s.v.f64 = NAN;
        break;
    case IDENTITY_ONE:
        s.v.f64 = 1;
        break;
    default:
        break;
    }
    return scalar_cast(s, t);
}
