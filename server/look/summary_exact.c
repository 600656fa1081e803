/* Percentiles that are elements, or lie between two neighbours, exactly: a search by halves over
 * the keys of the values, which are integers in the values' order. A pass counts the elements that
 * are no greater than the middles of all searches; float32 takes at most 33 passes, float64 and
 * 64-bit integers 65. Each has a turn of its own, so that others' work goes between them. */
#include <math.h>
#include <string.h>

#include "protocol/number/numtext.h"
#include "server/look/summary_int.h"
#include "server/work/device_turn.h"

#define TOP32 UINT32_C(0x80000000)
#define TOP64 UINT64_C(0x8000000000000000)

/* Halves are searched as float32. */
static enum dtype searched(enum dtype t)
{
    return t == DT_F64 || t == DT_U64 ? t : dtype_is_real_float(t) ? DT_F32 : DT_I64;
}

static uint64_t key_of(struct scalar v)
{
    const enum dtype t = searched(v.dtype);
    const struct scalar x = scalar_cast(v, t);
    uint32_t bits32;
    uint64_t bits;
    memcpy(&bits32, &x.v, sizeof bits32);
    memcpy(&bits, &x.v, sizeof bits);
    switch (t) {
    case DT_F32:
        return bits32 & TOP32 ? ~bits32 : bits32 | TOP32;
    case DT_F64:
        return bits & TOP64 ? ~bits : bits | TOP64;
    case DT_I64:
        return bits ^ TOP64;
    default:
        return bits;
    }
}

static struct scalar value_of(enum dtype of, uint64_t key)
{
    struct scalar v = {.dtype = searched(of)};
    const uint32_t bits32 = (uint32_t)key & TOP32 ? (uint32_t)key ^ TOP32 : ~(uint32_t)key;
    const uint64_t bits = v.dtype == DT_F64   ? key & TOP64 ? key ^ TOP64 : ~key
                          : v.dtype == DT_I64 ? key ^ TOP64
                                              : key;
    if (v.dtype == DT_F32)
        memcpy(&v.v, &bits32, sizeof bits32);
    else
        memcpy(&v.v, &bits, sizeof bits);
    return v;
}

static double number(const struct summary *s, uint64_t key)
{
    return scalar_cast(value_of(s->dtype, key), DT_F64).v.f64;
}

static void finish(struct summary *s)
{
    for (size_t i = 0; i < s->n_percents; i++) {
        const double at = s->percents[i] / 100 * (s->finite - 1), t = at - floor(at);
        const double a = number(s, s->searches[2 * i].least),
                     b = number(s, s->searches[2 * i + 1].least);
        /* the difference of float64's extremes is infinite */
        s->values[i] = isfinite(b - a) ? a + t * (b - a) : a * (1 - t) + b * t;
        s->errors[i] = 0;
    }
    summary_write(s);
}

static uint64_t middle(const struct summary_search *x)
{
    return x->least + (x->most - x->least) / 2;
}

static void pass(struct summary *s);

static void counted(struct look *l)
{
    struct summary *s = (struct summary *)l;
    const int64_t *counts = (const int64_t *)l->bytes;
    for (size_t i = 0; i < s->n_searches; i++) {
        struct summary_search *x = &s->searches[i];
        const uint64_t at = middle(x);
        size_t k = 0;
        if (x->least == x->most)
            continue;
        while (s->asked[k] != at)
            k++;
        if ((double)counts[k] - s->minus_inf > x->rank)
            x->most = at;
        else
            x->least = at + 1;
    }
    pass(s);
}

static void ask(struct summary *s, uint64_t key)
{
    size_t k = 0;
    while (k < s->n_asked && s->asked[k] != key)
        k++;
    s->asked[k] = key;
    s->n_asked += k == s->n_asked;
}

static void count(struct request *req)
{
    struct summary *s = req->state;
    struct look *l = &s->look;
    const enum dtype t = searched(s->dtype);
    _cleanup_strb_ struct strb text = {0};
    look_clear(l);
    look_let(l, "x", "astype(%s,'%s')", dtype_is_complex(s->a->dtype) ? "abs(a)" : "a",
             dtype_name(t));
    for (size_t i = 0; i < s->n_asked; i++) {
        char number[NUMTEXT_ELEM_MAX];
        const struct scalar v = value_of(s->dtype, s->asked[i]);
        strb_add(&text, i ? ",count_nonzero(x<=" : "stack([count_nonzero(x<=");
        strb_addn(&text, number, numtext_elem(t, &v.v, number));
        strb_addc(&text, ')');
    }
    strb_add(&text, "])");
    strb_addc(&text, '\0');
    look_run(l, text.failed ? NULL : text.data, counted);
}

static void turn_came(struct request *req)
{
    http_may_end(req, NULL);       /* the wait for the turn has ended that */
    http_offload_long(req, count); /* a plan with two kernels for each percentile */
}

static void pass(struct summary *s)
{
    struct request *req = s->look.req;
    struct err e = ERR_INIT;
    if (array_version(s->a) != s->version) {
        err_set(&e, ERR_CONFLICT,
                "the array was written to while its exact percentiles were searched for");
        http_reply_error(req, &e);
        return;
    }
    s->n_asked = 0;
    for (size_t i = 0; i < s->n_searches; i++)
        if (s->searches[i].least != s->searches[i].most)
            ask(s, middle(&s->searches[i]));
    if (!s->n_asked)
        finish(s);
    else if (device_turn_renew(req, turn_came))
        turn_came(req);
}

void summary_search(struct summary *s)
{
    struct arena *arena = s->look.req->arena;
    struct err e = ERR_INIT;
    s->n_searches = 2 * s->n_percents;
    s->searches = arena_alloc_array(arena, s->n_searches, sizeof *s->searches);
    s->asked = arena_alloc_array(arena, s->n_searches + 1, sizeof *s->asked);
    if (!s->searches || !s->asked) {
        err_oom(&e);
        http_reply_error(s->look.req, &e);
        return;
    }
    for (size_t i = 0; i < s->n_searches; i++) {
        const double at = floor(s->percents[i / 2] / 100 * (s->finite - 1)) + (double)(i % 2);
        s->searches[i] = (struct summary_search){
            .rank = fmin(at, s->finite - 1), .least = key_of(s->least), .most = key_of(s->most)};
    }
    pass(s);
}
