/* Element types, typed scalars, weak literals, and how they convert and promote.
 *
 * Called by every room. Pure functions over values; no memory, no global state; thread-safe.
 * Promotion follows the Python Array API standard 2024.12 and, where that is silent (int64 with
 * float32, uint64 with int64), NumPy 2 (NEP 50). */
#ifndef ARRAYD_DTYPE_H
#define ARRAYD_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

enum dtype {
#define DTYPE(id, name, size, kind, ctype, npy) DT_##id,
#include "compute/type/dtype.def"
#undef DTYPE
    DT_COUNT
};

enum dtype_kind { KIND_BOOL, KIND_INT, KIND_UINT, KIND_FLOAT, KIND_COMPLEX };

/* One element of any type, as it lies in memory (little-endian hosts only). f16 and bf16 are their
 * raw bits in u16. */
union value {
    uint8_t b; /* bool: 0 or 1 */
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    float f32;
    double f64;
    float c64[2];   /* re, im */
    double c128[2]; /* re, im */
    unsigned char raw[16];
};

struct scalar {
    enum dtype dtype;
    union value v; /* bytes beyond the type's size are 0 */
};

/* A weak (untyped) number: a literal, a bound JSON scalar or literal arithmetic before it meets an
 * array (NEP 50). Integers are exact to 127 bits. */
enum literal_kind { LIT_BOOL, LIT_INT, LIT_FLOAT, LIT_COMPLEX };
struct literal {
    enum literal_kind kind;
    __int128 i;    /* LIT_BOOL (0, 1) and LIT_INT */
    double re, im; /* LIT_FLOAT: re; LIT_COMPLEX: both */
};

const char *dtype_name(enum dtype t);
size_t dtype_size(enum dtype t); /* bytes per element */
enum dtype_kind dtype_kind(enum dtype t);
const char *dtype_npy(enum dtype t); /* .npy descr without byte order, "f4" */
static inline bool dtype_is_integer(enum dtype t)
{
    return t >= DT_I8 && t <= DT_U64;
}
static inline bool dtype_is_real_float(enum dtype t)
{
    return t >= DT_F16 && t <= DT_F64;
}
static inline bool dtype_is_complex(enum dtype t)
{
    return t >= DT_C64;
}
static inline bool dtype_is_half(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16;
}

/* The type called `name` (n bytes long), or -1. */
int dtype_from_name(const char *name, size_t n);
/* The same; ERR_BAD_DTYPE lists the valid names, and suggests one for a NumPy name. */
enum err_code dtype_read(const char *name, size_t n, enum dtype *ret, struct err *e) must_check;

/* The type both convert to. bfloat16 with float16 is float32 (ml_dtypes). Never fails. */
enum dtype dtype_promote(enum dtype a, enum dtype b);

/* The float type of the parts of a complex type; a real type is returned as it is. */
enum dtype dtype_real(enum dtype t);

/* The dtype a weak literal and an array of type `t` compute in: t when the literal's kind is not
 * above t's, else float64 / complex64 / complex128 / int64 as NumPy 2 has it (int array + 0.5 is
 * float64, float32 + 1j is complex64, bool array + 1 is int64). */
enum dtype dtype_promote_literal(enum dtype t, const struct literal *l);

/* The dtype of an expression of literals alone: bool, int64 (uint64 where only that holds it),
 * float64, complex128. ERR_LITERAL_RANGE beyond uint64. */
enum err_code dtype_of_literal(const struct literal *l, enum dtype *ret, struct err *e) must_check;

/* NumPy's can_cast(from, to, casting="same_kind"). */
bool dtype_can_cast_same_kind(enum dtype from, enum dtype to);

/* A literal as a value of `t`. ERR_LITERAL_RANGE when an integer does not fit an integer type (300
 * for uint8), or when a float or complex literal meets a lower kind that cannot hold its value (0.5
 * for int32; 2.0 is an integer there). Floats beyond the range become inf; NaN stays. */
enum err_code scalar_from_literal(enum dtype t, const struct literal *l, struct scalar *ret,
                                  struct err *e) must_check;

/* `s` as type `t` with astype's rules: float to integer truncates, saturates, NaN is 0; integers
 * wrap; anything to bool is x != 0 (NaN is true); complex to real drops the imaginary part (the
 * caller refuses it where the contract does). */
struct scalar scalar_cast(struct scalar s, enum dtype t);

/* The value as a weak literal (uint64 and int64 exactly). */
struct literal literal_from_scalar(struct scalar s);

#endif
