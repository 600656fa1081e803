/* One expression gives all figures, so that they are of one moment: the range of the histogram is
 * computed on the device too. The language has no scatter, so that bins are counted by sums over
 * the elements' numbers of bins, which are written once, two bytes an element. A sum of int64
 * counts eight bins, each in a byte of its own: 1 shifted by eight times the bin, which is 0 for
 * the bins of other sums. A byte counts to 255, so these are sums of rows of 255 elements; the
 * bytes of all rows are summed as float64, exact up to 2^53, as many bins in one sum as fit into
 * that.
 *
 * Bins are those of numpy.histogram over float64: of equal width, each with its lower edge, the
 * last with both. A division finds the bin to within one, comparisons with its edges correct it. */
#include "server/look/summary.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/hash.h"
#include "compute/memory/export.h"
#include "protocol/json/json_writer.h"
#include "protocol/wire/media.h"
#include "server/body/condition.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/look/query.h"
#include "server/look/summary_int.h"
#include "server/server.h"

#define STATS 14
#define ROW   255 /* elements */
#define BYTES 8   /* bins of an int64 */

static void summary_free(void *state)
{
    struct summary *s = state;
    look_free(&s->look);
    array_unref(s->a);
    s->a = NULL;
    handle_clear(&s->handle);
}

/* --- the expression --- */

static bool has_halves(enum dtype t)
{
    return t == DT_I64 || t == DT_U64;
}

/* Integers of 64 bits come as two float64 of 32 bits each. */
static void define_extreme(struct look *l, enum dtype t, const char *name)
{
    char high[8] = {name[0], '1'}, low[8] = {name[0], '2'};
    if (has_halves(t)) {
        look_let(l, high, "astype(%s>>32,'float64')", name);
        look_let(l, low, "astype(%s&4294967295,'float64')", name);
    } else {
        look_let(l, high, "astype(%s,'float64')", name);
        look_let(l, low, "astype(0,'float64')");
    }
}

static void define_figures(struct summary *s)
{
    struct look *l = &s->look;
    const bool floats = dtype_is_real_float(s->dtype);
    look_let(l, "x",
             dtype_is_complex(s->a->dtype) ? "abs(a)"
             : s->a->dtype == DT_BOOL      ? "astype(a,'uint8')"
                                           : "a");
    look_let(l, "d", "astype(x,'float64')");
    if (floats) {
        look_let(l, "f", "isfinite(x)");
        look_let(l, "n", "sum(where(f,astype(1,'float64'),0))");
        look_let(l, "least", "min(where(f,x,inf))");
        look_let(l, "most", "max(where(f,x,-inf))");
        look_let(l, "bad",
                 "astype([count_nonzero(isnan(x)),count_nonzero(x==inf),"
                 "count_nonzero(x==-inf)],'float64')");
        look_let(l, "mean_", "stack([sum(where(f,d,0))/n])[0]"); /* not divided at each element */
        look_let(l, "std_", "sqrt(sum(where(f,(d-mean_)*(d-mean_),0))/n)");
    } else {
        look_let(l, "n", "astype(%.17g,'float64')", (double)view_size(&s->a->view));
        look_let(l, "least", "min(x)");
        look_let(l, "most", "max(x)");
        look_let(l, "bad", "astype([0,0,0],'float64')");
        look_let(l, "mean_", "mean(x)");
        look_let(l, "std_", "std(x)");
    }
    define_extreme(l, s->dtype, "least");
    define_extreme(l, s->dtype, "most");
}

/* The histogram's range; one that is too narrow for bins is made wider where it is not given. */
static void define_range(struct summary *s)
{
    struct look *l = &s->look;
    if (s->has_lo)
        look_let(l, "lo0", "astype(%.17g,'float64')", s->lo);
    else
        look_let(l, "lo0", "where(n>0,astype(least,'float64'),%s)", s->has_hi ? "inf" : "0");
    if (s->has_hi)
        look_let(l, "hi0", "astype(%.17g,'float64')", s->hi);
    else
        look_let(l, "hi0", "where(n>0,astype(most,'float64'),%s)", s->has_lo ? "-inf" : "1");
    look_let(l, "mid", "maximum(%s,%s)", s->has_hi && !s->has_lo ? "abs(hi0)" : "abs(lo0)", "1");
    look_let(l, "thin", "hi0-lo0<=mid*1e-15");
    if (s->has_lo == s->has_hi) {
        look_let(l, "lo1", s->has_lo ? "lo0" : "where(thin,lo0-mid*0.5,lo0)");
        look_let(l, "hi1", s->has_hi ? "hi0" : "where(thin,hi0+mid*0.5,hi0)");
    } else {
        look_let(l, "lo1", s->has_lo ? "lo0" : "where(thin,hi0-mid,lo0)");
        look_let(l, "hi1", s->has_hi ? "hi0" : "where(thin,lo0+mid,hi0)");
    }
}

static void define_bins(struct summary *s)
{
    struct look *l = &s->look;
    const long long n = s->bins;
    look_let(l, "step1", "where(isfinite(hi1-lo1),(hi1-lo1)/%lld,hi1/%lld-lo1/%lld)", n, n, n);
    /* Numbers that lie in memory are not computed at each element. */
    look_let(l, "range", "stack([lo1,hi1,step1,lo1*0.5,1/(step1*0.5)])");
    look_let(l, "lo", "range[0]");
    look_let(l, "hi", "range[1]");
    look_let(l, "step", "range[2]");
    look_let(l, "low", "range[3]"); /* halves, so that no difference is beyond float64 */
    look_let(l, "per", "range[4]");
    look_let(l, "k0", "clip(floor((d*0.5-low)*per),0,%lld)", n - 1);
    look_let(l, "k1", "k0-astype(d<k0*step+lo,'float64')");
    look_let(l, "k2", "k1+astype((k1<%lld)&(d>=(k1+1)*step+lo),'float64')", n - 1);
    /* The number of the bit that counts this element's bin. -8 counts nowhere: what is outside the
     * range, and the padding of the last row. */
    const int64_t size = view_size(&s->a->view), rows = (size + ROW - 1) / ROW;
    const int64_t rest = rows * ROW - size;
    look_let(l, "at", "reshape(astype(where((d>=lo)&(d<=hi),k2*8,-8),'int16'),[-1])");
    if (rest)
        look_let(l, "b", "reshape(concat([at,broadcast_to(astype(-8,'int16'),[%lld])]),[-1,%d])",
                 (long long)rest, ROW);
    else
        look_let(l, "b", "reshape(at,[-1,%d])", ROW);
    for (int64_t k = 0; k < n; k += BYTES) {
        char name[16];
        snprintf(name, sizeof name, "w%d", (int)(k / BYTES));
        look_let(l, name, "sum(astype(1,'int64')<<astype(b-%d,'int64'),axis=1)", (int)k * 8);
    }
    const bool floats = dtype_is_real_float(s->dtype), cut = s->has_lo || s->has_hi;
    look_let(l, "below",
             cut ? floats ? "sum(where(f&(d<lo),astype(1,'float64'),0))"
                          : "sum(where(d<lo,astype(1,'float64'),0))"
                 : "astype(0,'float64')");
    look_let(l, "above",
             cut ? floats ? "sum(where(f&(d>hi),astype(1,'float64'),0))"
                          : "sum(where(d>hi,astype(1,'float64'),0))"
                 : "astype(0,'float64')");
}

/* The sums that count the bins. */
static void add_counts(struct summary *s, struct strb *out)
{
    const int64_t n = view_size(&s->a->view);
    s->lane_bits = 1;
    while (s->lane_bits < 53 && n >> s->lane_bits)
        s->lane_bits++;
    s->lanes = 53 / s->lane_bits;
    for (int64_t k = 0; k < s->bins; k += s->lanes) {
        strb_add(out, k ? ",sum(" : "sum(");
        for (int64_t i = k; i < s->bins && i < k + s->lanes; i++)
            strb_addf(out, "%sastype(w%d>>%d&255,'float64')*%.17g", i > k ? "+" : "",
                      (int)(i / BYTES), (int)(i % BYTES) * 8,
                      ldexp(1, (int)(i - k) * s->lane_bits));
        strb_addc(out, ')');
    }
}

/* --- percentiles off the histogram --- */

/* Where the element of that rank lies: in one bin, or outside the range; *width: how far apart that
 * part's ends are. */
static double off_histogram(const struct summary *s, double rank, double *width)
{
    const double least = scalar_cast(s->least, DT_F64).v.f64,
                 most = scalar_cast(s->most, DT_F64).v.f64;
    const double step = isfinite(s->hi - s->lo) ? (s->hi - s->lo) / (double)s->bins
                                                : s->hi / (double)s->bins - s->lo / (double)s->bins;
    double before = 0, count = s->below, from = least, to = s->lo;
    for (int64_t k = 0; rank >= before + count && k <= s->bins; k++) {
        before += count;
        count = k < s->bins ? s->counts[k] : s->above;
        from = k < s->bins ? s->lo + (double)k * step : s->hi;
        to = k < s->bins - 1 ? s->lo + (double)(k + 1) * step : k < s->bins ? s->hi : most;
    }
    from = fmax(from, least);
    to = fmin(to, most);
    *width = fmax(to - from, 0);
    return from + *width * ((rank - before + 0.5) / fmax(count, 1));
}

static void percentiles(struct summary *s)
{
    for (size_t i = 0; i < s->n_percents; i++) {
        const double at = s->percents[i] / 100 * (s->finite - 1), k = floor(at), t = at - k;
        double w0, w1, v0, v1;
        if (s->finite < 1) {
            s->values[i] = s->errors[i] = NAN;
            continue;
        }
        v0 = off_histogram(s, k, &w0);
        v1 = off_histogram(s, fmin(k + 1, s->finite - 1), &w1);
        s->values[i] = v0 + t * (v1 - v0);
        s->errors[i] = (1 - t) * w0 + t * w1;
    }
}

/* --- the reply --- */

static void put_number(struct json_writer *w, const char *key, double v)
{
    json_put_key(w, key);
    if (isfinite(v))
        json_put_double(w, v);
    else
        json_put_null(w);
}

static void put_extreme(struct json_writer *w, const char *key, const struct summary *s,
                        const struct scalar *v)
{
    json_put_key(w, key);
    if (s->finite > 0)
        json_put_scalar(w, v);
    else
        json_put_null(w);
}

static void put_histogram(struct json_writer *w, const struct summary *s)
{
    json_put_key(w, "histogram");
    json_open_object(w);
    json_put_member_double(w, "lo", s->lo);
    json_put_member_double(w, "hi", s->hi);
    json_put_member_i64(w, "below", (int64_t)s->below);
    json_put_member_i64(w, "above", (int64_t)s->above);
    json_put_key(w, "counts");
    json_open_list(w);
    for (int64_t k = 0; k < s->bins; k++)
        json_put_i64(w, (int64_t)s->counts[k]);
    json_close_list(w);
    json_close_object(w);
}

static void put_percentiles(struct json_writer *w, const struct summary *s)
{
    json_put_key(w, "percentiles");
    json_open_list(w);
    for (size_t i = 0; i < s->n_percents; i++) {
        json_open_object(w);
        json_put_member_double(w, "percent", s->percents[i]);
        put_number(w, "value", s->values[i]);
        put_number(w, "error", s->errors[i]);
        json_close_object(w);
    }
    json_close_list(w);
}

static void add_tag(const struct summary *s)
{
    if (s->etag[0])
        http_add_header(s->look.req, "ETag", s->etag);
}

void summary_write(struct summary *s)
{
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_member_string(&w, "dtype", dtype_name(s->a->dtype));
    json_put_key(&w, "shape");
    json_put_i64_list(&w, (size_t)s->a->view.rank, s->a->view.shape);
    json_put_member_string(&w, "of", dtype_is_complex(s->a->dtype) ? "abs" : "elements");
    json_put_member_i64(&w, "count", view_size(&s->a->view));
    json_put_member_i64(&w, "finite", (int64_t)s->finite);
    json_put_member_i64(&w, "nan", (int64_t)s->nan);
    json_put_member_i64(&w, "inf", (int64_t)s->inf);
    json_put_member_i64(&w, "minus_inf", (int64_t)s->minus_inf);
    put_extreme(&w, "min", s, &s->least);
    put_extreme(&w, "max", s, &s->most);
    put_number(&w, "mean", s->mean);
    put_number(&w, "std", s->std);
    put_histogram(&w, s);
    put_percentiles(&w, s);
    json_close_object(&w);
    add_tag(s);
    http_reply_json(s->look.req, 200, &out);
}

/* A value of two float64, as define_extreme wrote it. */
static struct scalar extreme(enum dtype t, const double *halves)
{
    struct scalar v = {.dtype = DT_F64};
    if (has_halves(t)) {
        v.dtype = DT_I64;
        v.v.i64 = (int64_t)(((uint64_t)(int64_t)halves[0] << 32) | (uint64_t)halves[1]);
    } else {
        v.v.f64 = halves[0];
    }
    return scalar_cast(v, t);
}

static void computed(struct look *l)
{
    struct summary *s = (struct summary *)l;
    const double *v = (const double *)l->bytes;
    s->finite = v[0];
    s->nan = v[1];
    s->inf = v[2];
    s->minus_inf = v[3];
    s->least = extreme(s->dtype, v + 4);
    s->most = extreme(s->dtype, v + 6);
    s->mean = v[8];
    s->std = v[9];
    s->lo = v[10];
    s->hi = v[11];
    s->below = v[12];
    s->above = v[13];
    for (int64_t k = 0; k < s->bins; k++) {
        const uint64_t sum = (uint64_t)v[STATS + k / s->lanes];
        s->counts[k] =
            (double)(sum >> (k % s->lanes * s->lane_bits) & ((UINT64_C(1) << s->lane_bits) - 1));
    }
    percentiles(s);
    if (s->exact && s->finite > 0 && s->n_percents)
        summary_search(s);
    else
        summary_write(s);
}

/* The figures of no elements. */
static void nothing(struct summary *s)
{
    s->mean = s->std = NAN;
    s->lo = s->has_lo ? s->lo : s->has_hi ? s->hi - 1 : 0;
    s->hi = s->has_hi ? s->hi : s->lo + 1;
    percentiles(s);
    summary_write(s);
}

static void begin(struct request *req)
{
    struct summary *s = req->state;
    if (view_size(&s->a->view) == 0) {
        nothing(s);
        return;
    }
    _cleanup_strb_ struct strb text = {0};
    look_name(&s->look, "a", array_ref(s->a));
    define_figures(s);
    define_range(s);
    define_bins(s);
    strb_add(&text, "concat([stack([n]),bad,stack([l1,l2,m1,m2,mean_,std_,lo,hi,below,above]),"
                    "stack([");
    add_counts(s, &text);
    strb_add(&text, "])])");
    strb_addc(&text, '\0');
    look_run(&s->look, text.failed ? NULL : text.data, computed);
}

/* --- the request --- */

static enum err_code read_query(struct request *req, struct summary *s, struct err *e)
{
    static const char *const allowed[] = {"index", "ghost", "bins",        "lo",
                                          "hi",    "exact", "percentiles", NULL};
    static const double usual[] = {1, 5, 25, 50, 75, 95, 99};
    const struct config *c = req->server->config;
    const size_t most = (size_t)c->max_percentiles;
    TRY(http_query_only(req, allowed, e));
    TRY(request_accepts_json(req, e));
    s->bins = c->max_bins < 64 ? c->max_bins : 64;
    TRY(query_whole(req, "bins", 1, c->max_bins, &s->bins, e));
    TRY(query_range(req, &s->lo, &s->has_lo, &s->hi, &s->has_hi, e));
    const double step = s->hi / (double)s->bins - s->lo / (double)s->bins;
    if (s->has_lo && s->has_hi && (step < DBL_MIN || s->lo + step == s->lo))
        return err_set(e, ERR_BAD_FIELD, "lo and hi are too close together for %lld bins",
                       (long long)s->bins);
    TRY(query_flag(req, "exact", &s->exact, e));
    s->percents = arena_alloc_array(req->arena, most + 8, 3 * sizeof(double));
    s->counts = arena_alloc_array(req->arena, (size_t)s->bins, sizeof(double));
    if (!s->percents || !s->counts)
        return err_oom(e);
    s->values = s->percents + most + 8;
    s->errors = s->values + most + 8;
    s->n_percents = most < 7 ? 0 : 7;
    memcpy(s->percents, usual, sizeof usual);
    return query_list(req, "percentiles", 0, 100, most, s->percents, &s->n_percents, e);
}

/* True: the condition has ended the request. */
static enum err_code conditions(struct request *req, struct summary *s, bool *ret_ended,
                                struct err *e)
{
    const double query[] = {
        (double)s->bins, s->has_lo ? s->lo : 0, s->has_hi ? s->hi : 0, s->has_lo + 2 * s->has_hi,
        s->exact,        (double)s->n_percents};
    uint64_t parts[2] = {hash_bytes(HASH_SEED, query, sizeof query),
                         hash_bytes(HASH_SEED, s->percents, s->n_percents * sizeof *s->percents)};
    if (!array_written_outside(s->a))
        etag_derived(s->a->dtype, &s->a->view, s->version, parts, sizeof parts, 's', s->etag);
    return condition_read(req, s->etag, ret_ended, e);
}

static enum err_code prepare(struct request *req, struct summary *s, bool *ret_ended, struct err *e)
{
    struct session *session = NULL;
    struct view v;
    TRY(read_query(req, s, e));
    TRY(look_array(req, &session, &s->handle, e));
    look_init(&s->look, req, session);
    s->look.of = &s->handle;
    TRY(look_region(req, s->handle.array, &v, e));
    s->version = array_version(s->handle.array);
    s->a = array_view(s->handle.array, s->handle.array->dtype, &v);
    if (!s->a)
        return err_oom(e);
    s->dtype = dtype_is_complex(s->a->dtype) ? dtype_real(s->a->dtype) : s->a->dtype;
    return conditions(req, s, ret_ended, e);
}

void summary_reply(struct request *req)
{
    struct err e = ERR_INIT;
    bool ended = false;
    if (!look_turn(req, summary_reply))
        return;
    struct summary *s = request_begin(req, sizeof *s, summary_free);
    http_may_end(req, NULL);
    if (!s)
        return;
    if (prepare(req, s, &ended, &e) != ERR_OK) {
        http_reply_error(req, &e);
    } else if (ended) {
        add_tag(s);
        http_reply_empty(req, 304);
    } else {
        http_offload_long(req, begin); /* a plan of some hundred kernels */
    }
}
