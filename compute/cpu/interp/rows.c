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
        gather_1(dst, src, np, sp, nq, sq);
        break;
    case 2:
        gather_2(dst, src, np, sp, nq, sq);
        break;
    case 4:
        gather_4(dst, src, np, sp, nq, sq);
        break;
    case 8:
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
        scatter_1(dst, np, sp, nq, sq, src);
        break;
    case 2:
        scatter_2(dst, np, sp, nq, sq, src);
        break;
    case 4:
        scatter_4(dst, np, sp, nq, sq, src);
        break;
    case 8:
        scatter_8(dst, np, sp, nq, sq, src);
        break;
    default:
        scatter_16(dst, np, sp, nq, sq, src);
        break;
    }
}

void rows_prefetch(const char *at, size_t itemsize, int64_t np, int64_t sp, int64_t nq, int64_t sq,
                   bool write)
{
    if ((sq < 0 ? -sq : sq) < (sp < 0 ? -sp : sp)) {
        int64_t n = np, s = sp;
        np = nq;
        sp = sq;
        nq = n;
        sq = s;
    }
    int64_t bytes = (np - 1) * sp, lo = bytes < 0 ? bytes : 0, hi = bytes < 0 ? 0 : bytes;
    for (int64_t q = 0; q < nq; q++, at += sq) {
        const char *end = at + hi + itemsize;
        for (const char *line = at + lo - ((uintptr_t)(at + lo) & 63); line < end; line += 64) {
            if (write)
                __builtin_prefetch(line, 1);
            else
                __builtin_prefetch(line);
        }
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
