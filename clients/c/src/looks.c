/*
 * Figures and pictures of arrays.
 *
 * Each of the three questions for figures is the same request, GET .../summary, and reads what it
 * was asked for.
 */
#include "clients/c/src/looks.h"

#include <math.h>

#include "clients/c/src/dtype.h"
#include "clients/c/src/error.h"
#include "clients/c/src/json.h"

#define PNG_TYPE "image/png"

/* Numbers with commas between them, each `stride` bytes behind the other. */
static void query_reals(struct exchange *x, const char *key, const double *values, size_t count,
                        size_t stride)
{
    struct text list = {0};
    for (size_t i = 0; i < count; i++) {
        double value = *(const double *)((const char *)values + i * stride);
        if (i)
            text_puts(&list, ",");
        text_real(&list, value);
        if (!isfinite(value))
            x->refused = "a range and percentiles must be finite";
    }
    if (list.failed)
        x->target.failed = true;
    exchange_query(x, key, text_get(&list));
    text_free(&list);
}

static void query_range(struct exchange *x, const double *range)
{
    if (!range)
        return;
    query_reals(x, "lo", range, 1, 0);
    query_reals(x, "hi", range + 1, 1, 0);
}

static void query_integer(struct exchange *x, const char *key, int64_t value)
{
    if (!value)
        return;
    exchange_query(x, key, "");
    text_i64(&x->target, value);
}

/* --- figures --- */

static void ask_summary(struct exchange *x, const char *ref, const char *index)
{
    exchange_path(x, "/v1/arrays", ref, "/summary");
    exchange_query(x, "index", index);
}

/* The least or the greatest: null where no element is finite. */
static bool read_end(const struct cJSON *tree, const char *name, enum arrayd_dtype dtype,
                     struct arrayd_scalar *ret)
{
    const struct cJSON *value = json_get(tree, name);
    struct arrayd_scalar read = {.dtype = dtype};
    if (dtype < ARRAYD_FLOAT16 && json_value_i64(value, &read.integer)) {
        *ret = read;
        return json_value_real(value, &ret->re);
    }
    if (dtype >= ARRAYD_FLOAT16 && json_value_real(value, &read.re)) {
        *ret = read;
        return true;
    }
    *ret = (struct arrayd_scalar){.re = NAN};
    return value;
}

static double real_or_nan(const struct cJSON *tree, const char *name)
{
    double value;
    return json_real(tree, name, &value) ? value : NAN;
}

static bool read_summary(const struct cJSON *tree, struct arrayd_summary *ret)
{
    enum arrayd_dtype dtype = dtype_named(json_string(tree, "dtype"));
    const struct cJSON *histogram = json_get(tree, "histogram");
    ret->mean = real_or_nan(tree, "mean");
    ret->std = real_or_nan(tree, "std");
    return dtype && json_i64(tree, "count", &ret->count) &&
           json_i64(tree, "finite", &ret->finite) && json_i64(tree, "nan", &ret->nan) &&
           json_i64(tree, "inf", &ret->inf) && json_i64(tree, "minus_inf", &ret->minus_inf) &&
           read_end(tree, "min", dtype, &ret->min) && read_end(tree, "max", dtype, &ret->max) &&
           json_real(histogram, "lo", &ret->lo) && json_real(histogram, "hi", &ret->hi) &&
           json_i64(histogram, "below", &ret->below) && json_i64(histogram, "above", &ret->above);
}

int arrayd_summary(struct arrayd *client, const char *ref, const char *index,
                   struct arrayd_summary *ret_summary, struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct arrayd_summary summary;
    struct cJSON *tree;
    ask_summary(&x, ref, index);
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = read_summary(tree, &summary);
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply is no summary");
    *ret_summary = summary;
    return 0;
}

int arrayd_histogram(struct arrayd *client, const char *ref, const char *index, const double *range,
                     size_t bins, int64_t *ret_counts, struct arrayd_summary *ret_summary,
                     struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct arrayd_summary summary;
    struct cJSON *tree;
    ask_summary(&x, ref, index);
    if (!bins || bins > INT64_MAX)
        x.refused = "a histogram must have a bin";
    query_integer(&x, "bins", (int64_t)bins);
    query_range(&x, range);
    if (exchange_json(client, &x, &tree, err))
        return -1;
    const struct cJSON *counts = json_get(json_get(tree, "histogram"), "counts");
    bool ok = read_summary(tree, &summary) && json_is_list(counts) && json_count(counts) == bins;
    for (const struct cJSON *at = ok ? json_first(counts) : NULL; ok && at; at = json_next(at))
        ok = json_value_i64(at, ret_counts++);
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply is no summary with a histogram");
    if (ret_summary)
        *ret_summary = summary;
    return 0;
}

int arrayd_percentiles(struct arrayd *client, const char *ref, const char *index, bool exact,
                       struct arrayd_percentile *percentiles, size_t count,
                       struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct cJSON *tree;
    ask_summary(&x, ref, index);
    query_reals(&x, "percentiles", &percentiles->percent, count, sizeof(*percentiles));
    exchange_query(&x, "exact", exact ? "true" : NULL);
    if (!count)
        x.refused = "a percentile must be asked for";
    if (exchange_json(client, &x, &tree, err))
        return -1;
    const struct cJSON *list = json_get(tree, "percentiles");
    bool ok = json_is_list(list) && json_count(list) == count;
    const struct cJSON *at = ok ? json_first(list) : NULL;
    for (size_t i = 0; at; i++, at = json_next(at)) {
        percentiles[i].value = real_or_nan(at, "value");
        percentiles[i].error = real_or_nan(at, "error");
    }
    json_free(tree);
    return ok ? 0 : error_set(err, "bad_result", "the reply is no summary with these percentiles");
}

/* --- pictures --- */

void looks_query(struct exchange *x, const struct arrayd_picture *how)
{
    const struct arrayd_picture none = {0};
    if (!how)
        how = &none;
    exchange_query(x, "cmap", how->cmap);
    query_range(x, how->range);
    if (how->percents)
        query_reals(x, "percentiles", how->percents, 2, sizeof(double));
    query_integer(x, "width", how->width);
    query_integer(x, "height", how->height);
    exchange_query(x, "pool", how->pool);
    exchange_query(x, "bar", how->bar ? "true" : NULL);
}

void looks_ask(struct exchange *x, const struct arrayd_picture *how, FILE *file)
{
    x->accept = PNG_TYPE;
    x->to = file;
    if (!file)
        x->refused = "the file is missing";
    looks_query(x, how);
}

int looks_save(struct arrayd *client, struct exchange *x, FILE *file, struct arrayd_error *err)
{
    if (exchange_done(client, x, err))
        return -1;
    return fflush(file) ? error_set(err, "file", "the file could not be written") : 0;
}

int arrayd_save_png(struct arrayd *client, const char *ref, const struct arrayd_picture *how,
                    FILE *file, struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    exchange_path(&x, "/v1/arrays", ref, "/data");
    exchange_query(&x, "index", how ? how->index : NULL);
    looks_ask(&x, how, file);
    return looks_save(client, &x, file, err);
}
