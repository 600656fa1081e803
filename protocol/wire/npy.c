/* The header is a Python dictionary literal, but only {'descr': '…', 'fortran_order': True|False,
 * 'shape': (…)} in any order is accepted; a small cursor reads it, nothing is evaluated. It is
 * collected whole first (it is short, and NPY_HEADER_MAX bounds it). */
#include "protocol/wire/npy.h"

#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"

struct cursor {
    const char *p, *end;
};

void npy_reader_free(struct npy_reader *r)
{
    mem_free(r->text);
    r->text = NULL;
}

bool npy_is_magic(const void *p, size_t n)
{
    return n > 0 && memcmp(p, NPY_MAGIC, n < NPY_MAGIC_LEN ? n : NPY_MAGIC_LEN) == 0;
}

static void skip_space(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

static bool take(struct cursor *c, char ch)
{
    skip_space(c);
    if (c->p >= c->end || *c->p != ch)
        return false;
    c->p++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return false;
    c->p += n;
    return true;
}

/* A quoted text without escapes. */
static bool take_text(struct cursor *c, const char **ret, size_t *ret_n)
{
    skip_space(c);
    if (c->p >= c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    char quote = *c->p++;
    *ret = c->p;
    while (c->p < c->end && *c->p != quote && *c->p != '\\')
        c->p++;
    if (c->p >= c->end || *c->p != quote)
        return false;
    *ret_n = (size_t)(c->p++ - *ret);
    return true;
}

static bool is_text(const char *p, size_t n, const char *s)
{
    return strlen(s) == n && memcmp(p, s, n) == 0;
}

static enum err_code bad(struct err *e, const char *why)
{
    return err_set(e, ERR_BAD_NPY, "the .npy header is malformed: %s", why);
}

static enum err_code read_descr(struct cursor *c, bool want_bfloat16, struct npy_header *h,
                                struct err *e)
{
    const char *p;
    size_t n;
    skip_space(c);
    if (c->p < c->end && *c->p == '[')
        return err_set(e, ERR_BAD_NPY,
                       "structured dtypes are not supported: save one field at a time");
    if (!take_text(c, &p, &n))
        return bad(e, "descr is not a string");
    const char *whole = p;
    size_t whole_n = n;
    if (n > 0 && strchr("<>=|", *p)) {
        h->big_endian = *p == '>';
        p++;
        n--;
    }
    if (is_text(p, n, "V2") || is_text(p, n, "bfloat16")) {
        if (n == 2 && !want_bfloat16)
            return err_set(e, ERR_BAD_NPY,
                           "the elements are two raw bytes each (|V2): use ?dtype=bfloat16 if they "
                           "are bfloat16");
        h->dtype = DT_BF16;
        return ERR_OK;
    }
    if (n > 0 && *p == 'O')
        return err_set(e, ERR_BAD_NPY,
                       "object arrays are not supported: convert to a numeric dtype");
    if (is_text(p, n, "?")) {
        h->dtype = DT_BOOL;
        return ERR_OK;
    }
    for (int t = 0; t < DT_COUNT; t++) {
        if (t != DT_BF16 && is_text(p, n, dtype_npy((enum dtype)t))) {
            h->dtype = (enum dtype)t;
            return ERR_OK;
        }
    }
    return err_set(e, ERR_BAD_NPY, "the .npy dtype '%.*s' is not supported",
                   (int)(whole_n > 40 ? 40 : whole_n), whole);
}

static enum err_code read_shape(struct cursor *c, struct npy_header *h, struct err *e)
{
    if (!take(c, '('))
        return bad(e, "shape is not a tuple");
    for (;;) {
        if (take(c, ')'))
            return ERR_OK;
        int64_t v = 0;
        skip_space(c);
        const char *start = c->p;
        for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++)
            if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
                __builtin_add_overflow(v, *c->p - '0', &v))
                return bad(e, "an extent is beyond 64 bits");
        if (c->p == start)
            return bad(e, "shape is not a tuple of integers");
        if (c->p < c->end && *c->p == 'L') /* written by Python 2 */
            c->p++;
        if (h->rank == MAX_RANK)
            return bad(e, "more than 32 axes");
        h->shape[h->rank++] = v;
        if (take(c, ','))
            continue;
        if (h->rank == 1 || !take(c, ')'))
            return bad(e, h->rank == 1 ? "shape is not a tuple"
                                       : "the closing bracket of shape is missing");
        return ERR_OK;
    }
}

static enum err_code read_dict(struct cursor *c, bool want_bfloat16, struct npy_header *h,
                               struct err *e)
{
    bool descr = false, order = false, shape = false;
    if (!take(c, '{'))
        return bad(e, "it is not a dictionary");
    while (!take(c, '}')) {
        const char *key;
        size_t n;
        if (!take_text(c, &key, &n) || !take(c, ':'))
            return bad(e, "a key is missing");
        enum err_code code = ERR_OK;
        if (is_text(key, n, "descr") && !descr) {
            descr = true;
            code = read_descr(c, want_bfloat16, h, e);
        } else if (is_text(key, n, "fortran_order") && !order) {
            order = true;
            h->fortran_order = take_word(c, "True");
            if (!h->fortran_order && !take_word(c, "False"))
                code = bad(e, "fortran_order is neither True nor False");
        } else if (is_text(key, n, "shape") && !shape) {
            shape = true;
            code = read_shape(c, h, e);
        } else {
            code = bad(e, "an unknown or repeated key");
        }
        if (code != ERR_OK)
            return code;
        if (take(c, ','))
            continue;
        if (!take(c, '}'))
            return bad(e, "',' or '}' is missing");
        break;
    }
    skip_space(c);
    if (c->p != c->end)
        return bad(e, "there is text after the dictionary");
    if (!descr || !order || !shape)
        return bad(e, "descr, fortran_order or shape is missing");
    return ERR_OK;
}

static enum err_code read_text(const struct npy_reader *r, struct npy_header *ret, struct err *e)
{
    struct npy_header h = {0};
    struct cursor c = {r->text, r->text + r->need};
    TRY(read_dict(&c, r->want_bfloat16, &h, e));
    /* an extent of 0 elsewhere does not excuse an overflow */
    int64_t nonzero = (int64_t)dtype_size(h.dtype);
    h.size = 1;
    for (int d = 0; d < h.rank; d++) {
        if (h.shape[d] && __builtin_mul_overflow(nonzero, h.shape[d], &nonzero))
            return err_set(e, ERR_BAD_NPY,
                           "the .npy shape is too large: its size in bytes, not counting "
                           "extents of 0, exceeds 64 bits");
        h.size = h.shape[d] ? h.size * h.shape[d] : 0;
    }
    h.nbytes = h.size * (int64_t)dtype_size(h.dtype);
    h.big_endian = h.big_endian && dtype_size(dtype_real(h.dtype)) > 1;
    *ret = h;
    return ERR_OK;
}

/* The fixed part is complete up to `have`: determines what to read next. */
static enum err_code plan_next(struct npy_reader *r, struct err *e)
{
    size_t lengths = r->fixed[6] == 1 ? 2 : 4;
    if (r->have == 8) {
        if (memcmp(r->fixed, NPY_MAGIC, NPY_MAGIC_LEN) != 0)
            return err_set(e, ERR_BAD_NPY, "the body is not a .npy file");
        if (r->fixed[6] < 1 || r->fixed[6] > 3 || r->fixed[7] != 0)
            return err_set(e, ERR_BAD_NPY, ".npy version %d.%d is not supported", r->fixed[6],
                           r->fixed[7]);
        r->need = 8 + lengths;
        return ERR_OK;
    }
    size_t n = 0;
    for (size_t i = lengths; i-- > 0;)
        n = n << 8 | r->fixed[8 + i];
    if (n > NPY_HEADER_MAX)
        return err_set(e, ERR_BAD_NPY, "the .npy header is longer than %d bytes", NPY_HEADER_MAX);
    r->text = mem_alloc(n);
    if (!r->text)
        return err_oom(e);
    r->have = 0;
    r->need = n;
    return ERR_OK;
}

enum err_code npy_feed(struct npy_reader *r, const void *p, size_t n, size_t *ret_used,
                       bool *ret_done, struct npy_header *ret_header, struct err *e)
{
    const unsigned char *bytes = p;
    size_t used = 0;
    if (r->need == 0 && !r->text)
        r->need = 8;
    while (!r->done) {
        size_t take_n = r->need - r->have < n - used ? r->need - r->have : n - used;
        if (take_n)
            memcpy((r->text ? (unsigned char *)r->text : r->fixed) + r->have, bytes + used, take_n);
        r->have += take_n;
        used += take_n;
        if (r->have < r->need)
            break;
        enum err_code code = ERR_OK;
        if (r->text) {
            code = read_text(r, ret_header, e);
            r->done = code == ERR_OK;
        } else {
            code = plan_next(r, e);
        }
        if (code != ERR_OK)
            return code;
    }
    *ret_used = used;
    *ret_done = r->done;
    return ERR_OK;
}

size_t npy_write_header(enum dtype dtype, int rank, const int64_t *shape, char *buf)
{
    char text[NPY_WRITE_MAX];
    size_t n = 0;
    const char *order = dtype == DT_BF16 || dtype_size(dtype) == 1 ? "|" : "<";
    n += (size_t)snprintf(text, sizeof text, "{'descr': '%s%s', 'fortran_order': False, 'shape': (",
                          order, dtype_npy(dtype));
    for (int d = 0; d < rank; d++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld%s", d ? " " : "",
                              (long long)shape[d], d + 1 < rank || rank == 1 ? "," : "");
    n += (size_t)snprintf(text + n, sizeof text - n, "), }");
    size_t total = (10 + n + 1 + 63) / 64 * 64, length = total - 10;
    memcpy(buf, NPY_MAGIC "\1\0", 8);
    buf[8] = (char)(length & 0xFF);
    buf[9] = (char)(length >> 8);
    memcpy(buf + 10, text, n);
    memset(buf + 10 + n, ' ', total - 11 - n);
    buf[total - 1] = '\n';
    return total;
}

void npy_swap(enum dtype dtype, void *p, size_t nbytes)
{
    unsigned char *b = p;
    switch (dtype_size(dtype_real(dtype))) {
    case 2:
        for (size_t i = 0; i + 2 <= nbytes; i += 2) {
            uint16_t v;
            memcpy(&v, b + i, 2);
            v = __builtin_bswap16(v);
            memcpy(b + i, &v, 2);
        }
        break;
    case 4:
        for (size_t i = 0; i + 4 <= nbytes; i += 4) {
            uint32_t v;
            memcpy(&v, b + i, 4);
            v = __builtin_bswap32(v);
            memcpy(b + i, &v, 4);
        }
        break;
    case 8:
        for (size_t i = 0; i + 8 <= nbytes; i += 8) {
            uint64_t v;
            memcpy(&v, b + i, 8);
            v = __builtin_bswap64(v);
            memcpy(b + i, &v, 8);
        }
        break;
    default:
        break;
    }
}
