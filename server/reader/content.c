/* Lists are linked in the order of the file, so that a description says things in that order. */
#include "server/reader/content.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/cf.h"
#include "server/reader/link.h"

#define DIMS_MAX  16384
#define ATTRS_MAX 4096 /* of one object */

struct content *content_new(void)
{
    struct arena *arena = must(arena_new(0));
    struct content *c = must(arena_alloc(arena, sizeof *c));
    c->arena = arena;
    c->dims_end = &c->dims;
    c->attrs.end = &c->attrs.first;
    return c;
}

const char *content_name(struct content *c, const char *s)
{
    size_t n = strlen(s), at = 0;
    if (utf8_valid(s, n))
        return content_text(c, s, n);
    char *name = must(arena_alloc(c->arena, 3 * n + 1)), *to = name;
    while (at < n) {
        size_t length = utf8_length(s + at, n - at);
        memcpy(to, length ? s + at : "\xEF\xBF\xBD", length ? length : 3);
        to += length ? length : 3;
        at += length ? length : 1;
    }
    return name;
}

struct variable *content_add(struct content *c, const char *name)
{
    if (c->n_variables == VARIABLES_MAX)
        stop(WIRE_TOO_LARGE, "the file has more than %d variables", VARIABLES_MAX);
    if (arena_grow(c->arena, (void **)&c->variables, &c->room, c->n_variables,
                   sizeof *c->variables) != 0)
        stop_oom();
    struct variable *v = must(arena_alloc(c->arena, sizeof *v));
    v->name = content_name(c, name);
    v->attrs.end = &v->attrs.first;
    c->variables[c->n_variables++] = v;
    return v;
}

void variable_unread(struct content *c, struct variable *v, const char *fmt, ...)
{
    v->dtype = UNREAD;
    v->nbytes = -1;
    if (v->why)
        return;
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    v->why = content_text(c, text, strlen(text));
}

#define SIZE_MOST (1ll << 53) /* numbers of JSON; no array is as large */

void variable_shape(struct content *c, struct variable *v, int64_t rank, const int64_t *shape)
{
    if (rank > MAX_RANK) {
        variable_unread(c, v, "it has %lld axes, more than %d", (long long)rank, MAX_RANK);
        return;
    }
    /* an extent of 0 elsewhere does not excuse an overflow */
    int64_t bytes = v->dtype == UNREAD ? 1 : (int64_t)dtype_size((enum dtype)v->dtype);
    bool empty = false;
    v->rank = (int)rank;
    for (int d = 0; d < v->rank; d++) {
        if (shape[d] < 0 || shape[d] > SIZE_MOST) {
            variable_unread(c, v, "its shape is out of range");
            v->rank = 0;
            return;
        }
        if (shape[d] && (__builtin_mul_overflow(bytes, shape[d], &bytes) || bytes > SIZE_MOST)) {
            variable_unread(c, v, "it has more than 2^53 bytes");
            bytes = SIZE_MOST;
        }
        empty = empty || shape[d] == 0;
        v->shape[d] = shape[d];
    }
    v->nbytes = v->dtype == UNREAD ? -1 : empty ? 0 : bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct variable *const *)a)->name, (*(struct variable *const *)b)->name);
}

void content_check_names(struct content *c)
{
    struct variable **sorted = must_array(c->n_variables + 1, sizeof *sorted);
    for (size_t i = 0; i < c->n_variables; i++)
        sorted[i] = c->variables[i];
    qsort(sorted, c->n_variables, sizeof *sorted, by_name);
    for (size_t i = 1; i < c->n_variables; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            for (size_t k = i - 1; k <= i; k++)
                variable_unread(c, sorted[k], "the file has two variables of this name");
    mem_free(sorted);
}

struct variable *content_find(const struct content *c, const char *name)
{
    for (size_t i = 0; i < c->n_variables; i++)
        if (strcmp(c->variables[i]->name, name) == 0)
            return c->variables[i];
    return NULL;
}

void content_add_dim(struct content *c, const char *name, int64_t length, bool unlimited)
{
    if (++c->n_dims > DIMS_MAX)
        stop(WIRE_TOO_LARGE, "the file has more than %d dimensions", DIMS_MAX);
    struct dim *d = must(arena_alloc(c->arena, sizeof *d));
    *d = (struct dim){content_name(c, name), length, unlimited, NULL};
    *c->dims_end = d;
    c->dims_end = &d->next;
}

struct dim *content_find_dim(const struct content *c, const char *name)
{
    for (struct dim *d = c->dims; d; d = d->next)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

char *content_text(struct content *c, const char *s, size_t n)
{
    return must(arena_strndup(c->arena, s, n));
}

char *content_printf(struct content *c, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return content_text(c, text, strlen(text));
}

static struct attr *attr_add(struct content *c, struct attrs *list, const char *name)
{
    if (++list->n > ATTRS_MAX)
        stop(WIRE_TOO_LARGE, "the file has an object with more than %d attributes", ATTRS_MAX);
    struct attr *a = must(arena_alloc(c->arena, sizeof *a));
    a->name = content_text(c, name, strlen(name));
    *list->end = a;
    list->end = &a->next;
    return a;
}

void attr_add_numbers(struct content *c, struct attrs *list, const char *name, enum dtype dtype,
                      bool is_list, int64_t n, const void *data)
{
    if (n < 0 || n > ATTR_BYTES_MAX / (int64_t)dtype_size(dtype))
        return;
    struct attr *a = attr_add(c, list, name);
    a->dtype = (int)dtype;
    a->list = is_list;
    a->n = n;
    a->data = must(arena_alloc(c->arena, (size_t)n * dtype_size(dtype) + 1));
    memcpy(a->data, data, (size_t)n * dtype_size(dtype));
}

void attr_add_text(struct content *c, struct attrs *list, const char *name, const char *s, size_t n)
{
    if (n > ATTR_BYTES_MAX)
        return;
    const char *text = content_text(c, s, strnlen(s, n));
    attr_add_texts(c, list, name, false, 1, &text);
}

void attr_add_texts(struct content *c, struct attrs *list, const char *name, bool is_list,
                    int64_t n, const char *const *texts)
{
    if (n < 0 || n > ATTR_BYTES_MAX / 16)
        return;
    struct attr *a = attr_add(c, list, name);
    a->dtype = UNREAD;
    a->list = is_list;
    a->n = n;
    a->texts = must(arena_alloc_array(c->arena, (size_t)n + 1, sizeof *a->texts));
    for (int64_t i = 0; i < n; i++)
        a->texts[i] = texts[i] ? content_text(c, texts[i], strnlen(texts[i], ATTR_BYTES_MAX)) : "";
}

const struct attr *attr_find(const struct attrs *list, const char *name)
{
    for (const struct attr *a = list->first; a; a = a->next)
        if (strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

struct scalar attr_scalar(const struct attr *a, int64_t i)
{
    struct scalar s = {.dtype = (enum dtype)a->dtype};
    size_t size = dtype_size(s.dtype);
    memcpy(s.v.raw, (const char *)a->data + (size_t)i * size, size);
    return s;
}

bool attr_double(const struct attr *a, int64_t i, double *ret)
{
    if (!a || a->dtype == UNREAD || i >= a->n)
        return false;
    *ret = scalar_cast(attr_scalar(a, i), DT_F64).v.f64;
    return true;
}

void attr_put(struct json_writer *w, const struct attr *a)
{
    bool list = a->list || a->n != 1;
    if (list)
        json_open_list(w);
    for (int64_t i = 0; i < a->n; i++) {
        if (a->dtype == UNREAD) {
            json_put_string(w, a->texts[i]);
        } else {
            struct scalar s = attr_scalar(a, i);
            json_put_scalar(w, &s);
        }
    }
    if (list)
        json_close_list(w);
}

void attrs_write(struct json_writer *w, const struct attrs *list)
{
    json_put_key(w, "attrs");
    json_open_object(w);
    for (const struct attr *a = list->first; a; a = a->next)
        if (attr_find(list, a->name) == a && utf8_valid(a->name, strlen(a->name))) {
            json_put_key(w, a->name);
            attr_put(w, a);
        }
    json_close_object(w);
}

/* A number of an attribute; false for anything else. An integer of more than 64 bits becomes a
 * float. */
static bool attr_number(struct json v, struct literal *ret)
{
    struct err e = ERR_INIT;
    if (json_get_exact(v, ret, &e) != ERR_OK || ret->kind == LIT_COMPLEX)
        return false;
    if (ret->kind == LIT_INT && (ret->i < INT64_MIN || ret->i > UINT64_MAX))
        *ret = (struct literal){.kind = LIT_FLOAT, .re = (double)ret->i};
    return true;
}

/* Numbers of one kind: all integers, or all as float64. */
static void parse_numbers(struct content *c, struct attrs *ret, const char *name, struct json value,
                          size_t n)
{
    bool list = json_kind(value) == JSON_LIST;
    struct literal *each = must_array(n + 1, sizeof *each);
    bool integers = true, negative = false, large = false;
    size_t i = 0;
    struct err e = ERR_INIT;
    for (struct json v = list ? json_first(value) : value; i < n;
         v = list ? json_next(v) : v, i++) {
        if (!attr_number(v, &each[i]))
            stop(WIRE_BAD_REQUEST, "the attribute '%s' is neither numbers nor texts", name);
        integers = integers && each[i].kind != LIT_FLOAT;
        negative = negative || (integers && each[i].i < 0);
        large = large || (integers && each[i].i > INT64_MAX);
    }
    enum dtype dtype = !integers || (negative && large) ? DT_F64 : large ? DT_U64 : DT_I64;
    unsigned char *data = must_array(n + 1, 8);
    for (i = 0; i < n; i++) {
        struct scalar s;
        if (scalar_from_literal(dtype, &each[i], &s, &e) != ERR_OK)
            stop(WIRE_BAD_REQUEST, "the attribute '%s': %s", name, e.message);
        memcpy(data + 8 * i, s.v.raw, 8);
    }
    attr_add_numbers(c, ret, name, dtype, list, (int64_t)n, data);
    mem_free(each);
    mem_free(data);
}

bool attr_is_like_elements(const char *name)
{
    static const char *const names[] = {"_FillValue",  "missing_value", "valid_min",
                                        "valid_max",   "valid_range",   "actual_range",
                                        "flag_values", "flag_masks"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Whether a text, or all texts of a list, are meant as numbers: in JSON "NaN" is both. It is one
 * beside numbers, and where the conventions want one. */
static bool means_numbers(const char *name, struct json value)
{
    struct literal l;
    if (json_kind(value) != JSON_LIST)
        return json_kind(value) != JSON_STRING ||
               (attr_is_like_elements(name) && attr_number(value, &l));
    bool any = false, all = json_count(value) > 0;
    for (struct json v = json_first(value); json_present(v); v = json_next(v)) {
        any = any || json_kind(v) != JSON_STRING;
        all = all && attr_number(v, &l);
    }
    return any || (all && attr_is_like_elements(name));
}

void attrs_parse(struct content *c, struct json object, struct attrs *ret)
{
    ret->first = NULL;
    ret->end = &ret->first;
    for (struct json v = json_first(object); json_present(v); v = json_next(v)) {
        const char *name = json_key(v);
        if (!name)
            stop(WIRE_BAD_REQUEST, "attributes are no object");
        bool list = json_kind(v) == JSON_LIST;
        size_t n = list ? json_count(v) : 1;
        struct json first = list ? json_first(v) : v;
        struct err e = ERR_INIT;
        if (means_numbers(name, v)) {
            parse_numbers(c, ret, name, v, n);
            continue;
        }
        const char **texts = must_array(n + 1, sizeof *texts);
        for (size_t i = 0; i < n; i++, first = list ? json_next(first) : first)
            if (json_get_string(first, &texts[i], NULL, &e) != ERR_OK)
                stop(WIRE_BAD_REQUEST, "the attribute '%s' is neither numbers nor texts", name);
        attr_add_texts(c, ret, name, list, (int64_t)n, texts);
        mem_free(texts);
    }
}

static void describe_variable(struct json_writer *w, const struct variable *v)
{
    json_open_object(w);
    json_put_member_string(w, "name", v->name);
    json_put_member_string(w, "dtype", v->dtype == UNREAD ? NULL : dtype_name(v->dtype));
    if (v->stored)
        json_put_member_string(w, "stored", v->stored);
    if (v->why)
        json_put_member_string(w, "why", v->why);
    json_put_key(w, "shape");
    json_put_i64_list(w, (size_t)v->rank, v->shape);
    json_put_key(w, "dims");
    bool named = v->rank == 0;
    for (int d = 0; d < v->rank; d++)
        named = named || v->dims[d];
    if (!named) {
        json_put_null(w);
    } else {
        json_open_list(w);
        for (int d = 0; d < v->rank; d++)
            json_put_string(w, v->dims[d]);
        json_close_list(w);
    }
    json_put_key(w, "chunks");
    if (v->chunked)
        json_put_i64_list(w, (size_t)v->rank, v->chunks);
    else
        json_put_null(w);
    json_put_key(w, "filters");
    json_open_list(w);
    for (int i = 0; i < v->n_filters; i++)
        json_put_string(w, v->filters[i]);
    json_close_list(w);
    attrs_write(w, &v->attrs);
    struct cf cf;
    if (cf_plan(v, &cf))
        cf_describe(w, v, &cf);
    json_put_member_i64(w, "nbytes", v->nbytes);
    if (v->at && v->dtype != UNREAD)
        json_put_member_i64(w, "at", v->at);
    json_close_object(w);
}

void content_describe(const struct content *c, struct strb *out)
{
    struct json_writer w = JSON_WRITER(out);
    json_open_object(&w);
    json_put_member_string(&w, "format", c->format);
    attrs_write(&w, &c->attrs);
    json_put_key(&w, "dims");
    json_open_object(&w);
    for (const struct dim *d = c->dims; d; d = d->next) {
        if (content_find_dim(c, d->name) != d)
            continue;
        json_put_key(&w, d->name);
        json_open_object(&w);
        json_put_member_i64(&w, "length", d->length);
        json_put_member_bool(&w, "unlimited", d->unlimited);
        json_close_object(&w);
    }
    json_close_object(&w);
    json_put_key(&w, "variables");
    json_open_list(&w);
    for (size_t i = 0; i < c->n_variables; i++) {
        describe_variable(&w, c->variables[i]);
        if (out->len > WIRE_LINE_MAX)
            break; /* refused when it is sent */
    }
    json_close_list(&w);
    json_close_object(&w);
}
