/* One generated loop nest per element size. What matters is the axis along which memory is read or
 * written: always the one with the smaller stride, so that every cache line fetched is used up at
 * once; the packed side is in L1 either way. */
#include "compute/cpu/interp/rows.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

struct item16 {
    uint64_t lo, hi;
};

#define ROWS(T, NAME)                                                                              \
    static void gather_##NAME(T *dst, const char *src, int64_t np, int64_t sp, int64_t nq,         \
                              int64_t sq)                                                          \
    {                                                                                              \
        if (sp == 0) {                                                                             \
            for (int64_t q = 0; q < nq; q++, src += sq) {                                          \
                T v = *(const T *)(const void *)src;                                               \
                for (int64_t p = 0; p < np; p++)                                                   \
                    *dst++ = v;                                                                    \
            }                                                                                      \
        } else if (sp == (int64_t)sizeof(T)) {                                                     \
            for (int64_t q = 0; q < nq; q++, src += sq, dst += np)                                 \
                memcpy(dst, src, (size_t)np * sizeof(T));                                          \
        } else if (nq > 1 && (sq < 0 ? -sq : sq) < (sp < 0 ? -sp : sp)) {                          \
            for (int64_t p = 0; p < np; p++, src += sp, dst++)                                     \
                for (int64_t q = 0; q < nq; q++)                                                   \
                    dst[q * np] = *(const T *)(const void *)(src + q * sq);                        \
        } else {                                                                                   \
            for (int64_t q = 0; q < nq; q++, src += sq, dst += np)                                 \
                for (int64_t p = 0; p < np; p++)                                                   \
                    dst[p] = *(const T *)(const void *)(src + p * sp);                             \
        }                                                                                          \
    }                                                                                              \
    static void scatter_##NAME(char *dst, int64_t np, int64_t sp, int64_t nq, int64_t sq,          \
                               const T *src)                                                       \
    {                                                                                              \
        if (sp == (int64_t)sizeof(T)) {                                                            \
            for (int64_t q = 0; q < nq; q++, dst += sq, src += np)                                 \
                memcpy(dst, src, (size_t)np * sizeof(T));                                          \
        } else if (nq > 1 && (sq < 0 ? -sq : sq) < (sp < 0 ? -sp : sp)) {                          \
            for (int64_t p = 0; p < np; p++, dst += sp, src++)                                     \
                for (int64_t q = 0; q < nq; q++)                                                   \
                    *(T *)(void *)(dst + q * sq) = src[q * np];                                    \
        } else {                                                                                   \
            for (int64_t q = 0; q < nq; q++, dst += sq, src += np)                                 \
                for (int64_t p = 0; p < np; p++)                                                   \
                    *(T *)(void *)(dst + p * sp) = src[p];                                         \
        }                                                                                          \
    }

ROWS(uint8_t, 1)
ROWS(uint16_t, 2)
ROWS(uint32_t, 4)
ROWS(uint64_t, 8)
ROWS(struct item16, 16)

#ifdef __SSE2__
static __m128i half_row(const char *from)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)from);
}

static void put_halves(char *to, int64_t to_row, __m128i v)
{
    _mm_storel_epi64((__m128i *)(void *)to, v);
    _mm_storel_epi64((__m128i *)(void *)(to + to_row), _mm_unpackhi_epi64(v, v));
}

static void turn_1(char *to, int64_t to_row, const char *from, int64_t from_row)
{
    __m128i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm_unpacklo_epi8(half_row(from + 2 * i * from_row),
                                 half_row(from + (2 * i + 1) * from_row));
    const __m128i a = _mm_unpacklo_epi16(v[0], v[1]), b = _mm_unpackhi_epi16(v[0], v[1]);
    const __m128i c = _mm_unpacklo_epi16(v[2], v[3]), d = _mm_unpackhi_epi16(v[2], v[3]);
    put_halves(to, to_row, _mm_unpacklo_epi32(a, c));
    put_halves(to + 2 * to_row, to_row, _mm_unpackhi_epi32(a, c));
    put_halves(to + 4 * to_row, to_row, _mm_unpacklo_epi32(b, d));
    put_halves(to + 6 * to_row, to_row, _mm_unpackhi_epi32(b, d));
}

static void turn_2(char *to, int64_t to_row, const char *from, int64_t from_row)
{
    const __m128i a = _mm_unpacklo_epi16(half_row(from), half_row(from + from_row));
    const __m128i b =
        _mm_unpacklo_epi16(half_row(from + 2 * from_row), half_row(from + 3 * from_row));
    put_halves(to, to_row, _mm_unpacklo_epi32(a, b));
    put_halves(to + 2 * to_row, to_row, _mm_unpackhi_epi32(a, b));
}

static void turn_4(char *to, int64_t to_row, const char *from, int64_t from_row)
{
    __m128i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + i * from_row));
    const __m128i a = _mm_unpacklo_epi32(v[0], v[1]), b = _mm_unpackhi_epi32(v[0], v[1]);
    const __m128i c = _mm_unpacklo_epi32(v[2], v[3]), d = _mm_unpackhi_epi32(v[2], v[3]);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi64(a, c));
    _mm_storeu_si128((__m128i *)(void *)(to + to_row), _mm_unpackhi_epi64(a, c));
    _mm_storeu_si128((__m128i *)(void *)(to + 2 * to_row), _mm_unpacklo_epi64(b, d));
    _mm_storeu_si128((__m128i *)(void *)(to + 3 * to_row), _mm_unpackhi_epi64(b, d));
}

static void turn_8(char *to, int64_t to_row, const char *from, int64_t from_row)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + from_row));
    _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi64(a, b));
    _mm_storeu_si128((__m128i *)(void *)(to + to_row), _mm_unpackhi_epi64(a, b));
}

/* Where memory is contiguous along q (sq is an element): squares of SIDE × SIDE elements are turned
 * in registers, along the rows in memory. */
#define TURNED(T, NAME, SIDE)                                                                      \
    static void gather_turned_##NAME(T *dst, const char *src, int64_t np, int64_t sp, int64_t nq)  \
    {                                                                                              \
        const int64_t item = sizeof(T), whole_p = np - np % SIDE, whole_q = nq - nq % SIDE;        \
        for (int64_t p = 0; p < whole_p; p += SIDE)                                                \
            for (int64_t q = 0; q < whole_q; q += SIDE)                                            \
                turn_##NAME((char *)(dst + q * np + p), np *item, src + p * sp + q * item, sp);    \
        for (int64_t p = 0; p < np; p++)                                                           \
            for (int64_t q = p < whole_p ? whole_q : 0; q < nq; q++)                               \
                dst[q * np + p] = *(const T *)(const void *)(src + p * sp + q * item);             \
    }                                                                                              \
    static void scatter_turned_##NAME(char *dst, int64_t np, int64_t sp, int64_t nq, const T *src) \
    {                                                                                              \
        const int64_t item = sizeof(T), whole_p = np - np % SIDE, whole_q = nq - nq % SIDE;        \
        for (int64_t p = 0; p < whole_p; p += SIDE)                                                \
            for (int64_t q = 0; q < whole_q; q += SIDE)                                            \
                turn_##NAME(dst + p * sp + q * item, sp, (const char *)(src + q * np + p),         \
                            np * item);                                                            \
        for (int64_t p = 0; p < np; p++)                                                           \
            for (int64_t q = p < whole_p ? whole_q : 0; q < nq; q++)                               \
                *(T *)(void *)(dst + p * sp + q * item) = src[q * np + p];                         \
    }

TURNED(uint8_t, 1, 8)
TURNED(uint16_t, 2, 4)
TURNED(uint32_t, 4, 4)
TURNED(uint64_t, 8, 2)
#else
#define gather_turned_1(dst, src, np, sp, nq)  gather_1(dst, src, np, sp, nq, 1)
#define gather_turned_2(dst, src, np, sp, nq)  gather_2(dst, src, np, sp, nq, 2)
#define scatter_turned_1(dst, np, sp, nq, src) scatter_1(dst, np, sp, nq, 1, src)
#define scatter_turned_2(dst, np, sp, nq, src) scatter_2(dst, np, sp, nq, 2, src)
#define gather_turned_4(dst, src, np, sp, nq)  gather_4(dst, src, np, sp, nq, 4)
#define gather_turned_8(dst, src, np, sp, nq)  gather_8(dst, src, np, sp, nq, 8)
#define scatter_turned_4(dst, np, sp, nq, src) scatter_4(dst, np, sp, nq, 4, src)
#define scatter_turned_8(dst, np, sp, nq, src) scatter_8(dst, np, sp, nq, 8, src)
#endif

/* Whether rows of at least two elements along q lie in memory one after the other. */
static bool is_turned(int64_t item, int64_t sp, int64_t nq, int64_t sq)
{
    return sq == item && nq > 1 && (sp > item || -sp > item);
}

/* Copying functions are aligned to a cache line: whether their loops fit in one makes up to a
 * fourth of their speed, which must not change with whatever is linked before them. */
#define AT_A_LINE __attribute__((aligned(64)))

AT_A_LINE void rows_gather(void *dst, const char *src, size_t itemsize, int64_t np, int64_t sp,
                           int64_t nq, int64_t sq)
{
    if (sp == (int64_t)itemsize && sq == np * sp) {
        memcpy(dst, src, (size_t)(np * nq) * itemsize);
        return;
    }
    switch (itemsize) {
    case 1:
        if (is_turned(1, sp, nq, sq))
            gather_turned_1(dst, src, np, sp, nq);
        else
            gather_1(dst, src, np, sp, nq, sq);
        break;
    case 2:
        if (is_turned(2, sp, nq, sq))
            gather_turned_2(dst, src, np, sp, nq);
        else
            gather_2(dst, src, np, sp, nq, sq);
        break;
    case 4:
        if (is_turned(4, sp, nq, sq))
            gather_turned_4(dst, src, np, sp, nq);
        else
            gather_4(dst, src, np, sp, nq, sq);
        break;
    case 8:
        if (is_turned(8, sp, nq, sq))
            gather_turned_8(dst, src, np, sp, nq);
        else
            gather_8(dst, src, np, sp, nq, sq);
        break;
    default:
        gather_16(dst, src, np, sp, nq, sq);
        break;
    }
}

AT_A_LINE void rows_scatter(char *dst, size_t itemsize, int64_t np, int64_t sp, int64_t nq,
                            int64_t sq, const void *src)
{
    switch (itemsize) {
    case 1:
        if (is_turned(1, sp, nq, sq))
            scatter_turned_1(dst, np, sp, nq, src);
        else
            scatter_1(dst, np, sp, nq, sq, src);
        break;
    case 2:
        if (is_turned(2, sp, nq, sq))
            scatter_turned_2(dst, np, sp, nq, src);
        else
            scatter_2(dst, np, sp, nq, sq, src);
        break;
    case 4:
        if (is_turned(4, sp, nq, sq))
            scatter_turned_4(dst, np, sp, nq, src);
        else
            scatter_4(dst, np, sp, nq, sq, src);
        break;
    case 8:
        if (is_turned(8, sp, nq, sq))
            scatter_turned_8(dst, np, sp, nq, src);
        else
            scatter_8(dst, np, sp, nq, sq, src);
        break;
    default:
        scatter_16(dst, np, sp, nq, sq, src);
        break;
    }
}

#ifdef __SSE2__
void rows_stream(char *dst, const char *src, size_t bytes)
{
    size_t head = -(uintptr_t)dst & 63;
    if (head > bytes)
        head = bytes;
    memcpy(dst, src, head);
    dst += head;
    src += head;
    bytes -= head;
    for (; bytes >= 64; bytes -= 64, dst += 64, src += 64) {
        const __m128i *from = (const __m128i *)(const void *)src;
        __m128i *to = (__m128i *)(void *)dst;
        for (int i = 0; i < 4; i++)
            _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
    }
    memcpy(dst, src, bytes);
}

void rows_stream_end(void)
{
    _mm_sfence();
}
#else
void rows_stream(char *dst, const char *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void rows_stream_end(void) {}
#endif
