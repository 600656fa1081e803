/* Grows by doubling; the terminating NUL is always kept so that `data` can be printed at any time.
 */
#include "compute/base/strb.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"

void strb_free(struct strb *b)
{
    mem_free(b->data);
    mem_gave_back(b->cap);
    metered_end(&b->counted);
    *b = (struct strb){0};
}

void strb_reset(struct strb *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

static char *grown(struct strb *b, size_t cap)
{
    if (cap > METERED_LEAST && !metered_set(&b->counted, (int64_t)cap))
        return NULL;
    return mem_realloc(b->data, cap); /* on failure the builder has failed; its caller frees it */
}

char *strb_reserve(struct strb *b, size_t n)
{
    if (b->failed)
        return NULL;
    if (b->cap - b->len <= n) { /* room for the NUL too */
        size_t want = b->cap ? b->cap : 128;
        while (want - b->len <= n) {
            if (__builtin_mul_overflow(want, (size_t)2, &want)) {
                b->failed = true;
                return NULL;
            }
        }
        char *p = grown(b, want);
        if (!p) {
            b->failed = true;
            return NULL;
        }
        b->data = p;
        b->cap = want;
    }
    return b->data + b->len;
}

void strb_addn(struct strb *b, const char *s, size_t n)
{
    char *p = strb_reserve(b, n);
    if (!p)
        return;
    if (n) /* with n = 0, s may be NULL */
        memcpy(p, s, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void strb_add(struct strb *b, const char *s)
{
    strb_addn(b, s, strlen(s));
}

void strb_addc(struct strb *b, char c)
{
    if (b->failed || b->cap - b->len < 2) {
        strb_addn(b, &c, 1);
        return;
    }
    b->data[b->len++] = c;
    b->data[b->len] = '\0';
}

void strb_addf(struct strb *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    char local[256];
    int n = vsnprintf(local, sizeof local, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof local) {
        strb_addn(b, local, (size_t)n);
    } else if (n >= 0) {
        char *p = strb_reserve(b, (size_t)n);
        if (p) {
            vsnprintf(p, (size_t)n + 1, fmt, again);
            b->len += (size_t)n;
        }
    } else {
        b->failed = true;
    }
    va_end(again);
}

void strb_add_u64(struct strb *b, uint64_t v)
{
    char tmp[20];
    size_t i = sizeof tmp;
    do {
        tmp[--i] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    strb_addn(b, tmp + i, sizeof tmp - i);
}

void strb_add_i64(struct strb *b, int64_t v)
{
    if (v < 0)
        strb_addc(b, '-');
    strb_add_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

char *strb_take(struct strb *b, size_t *ret_len)
{
    if (!b->data)
        strb_addn(b, "", 0);
    if (b->failed) {
        strb_free(b);
        return NULL;
    }
    char *p = b->data;
    if (ret_len)
        *ret_len = b->len;
    metered_end(&b->counted);
    *b = (struct strb){0};
    return p;
}
