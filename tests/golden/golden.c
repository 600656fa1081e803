/* The file is lines of text with raw values between them; each line says how many bytes follow. It
 * is read once into memory, and values are copied out so that they are aligned. */
#include "tests/golden/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/kernels/scalar/scalar.h"

struct golden_input {
    char name[64];
    enum dtype dtype;
    size_t n;
    void *data;
};

struct reader {
    char *text;
    size_t size, at;
    char line[160];
};

static _Noreturn void broken(const char *what, const char *line)
{
    fprintf(stderr, "golden tables: %s: %s\n", what, line);
    exit(1);
}

static void *take(size_t n)
{
    void *p = mem_alloc(n ? n : 1);
    if (p == NULL)
        broken("out of memory", "");
    return p;
}

static int next_line(struct reader *r)
{
    const char *start = r->text + r->at;
    const char *end = memchr(start, '\n', r->size - r->at);
    if (end == NULL || (size_t)(end - start) >= sizeof r->line)
        broken("cut off", "");
    memcpy(r->line, start, end - start);
    r->line[end - start] = '\0';
    r->at += end - start + 1;
    return strcmp(r->line, "end") != 0;
}

static void *next_values(struct reader *r, enum dtype t, size_t n)
{
    size_t bytes = n * dtype_size(t);
    if (bytes > r->size - r->at)
        broken("cut off", r->line);
    void *p = take(bytes);
    memcpy(p, r->text + r->at, bytes);
    r->at += bytes;
    return p;
}

static enum dtype type_of(const char *name, const char *line)
{
    int t = dtype_from_name(name, strlen(name));
    if (t < 0)
        broken("no such dtype", line);
    return (enum dtype)t;
}

static const struct golden_input *input_of(const struct golden *g, const char *name, size_t n,
                                           enum dtype t, const char *line)
{
    for (size_t i = 0; i < g->n_inputs; i++)
        if (strcmp(g->inputs[i].name, name) == 0) {
            if (g->inputs[i].n != n || g->inputs[i].dtype != t)
                broken("input does not fit", line);
            return g->inputs + i;
        }
    broken("no such input", line);
}

static void parse_tolerance(struct golden_record *r, const char *text)
{
    static const char *const names[] = {"exact", "ulp:", "scaled:", "complex:"};
    for (int i = 0; i < 4; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0) {
            r->tolerance = (enum golden_tolerance)i;
            r->units = atoi(text + strlen(names[i]));
            return;
        }
    broken("tolerance", r->text);
}

static void set_scalar(struct scalar *s, enum dtype t, const char *text)
{
    *s = (struct scalar){.dtype = t};
    if (t == DT_U64)
        s->v.u64 = strtoull(text, NULL, 10);
    else
        s->v.i64 = strtoll(text, NULL, 10);
}

static void parse_record(struct golden *g, struct reader *rd)
{
    struct golden_record r = {0};
    char *f[12];
    size_t n = 0;
    strcpy(r.text, rd->line);
    char copy[160];
    strcpy(copy, rd->line);
    for (char *save, *p = strtok_r(copy, " ", &save); p != NULL && n < 12;
         p = strtok_r(NULL, " ", &save))
        f[n++] = p;
    if (n == 4 && strcmp(f[0], "input") == 0) {
        struct golden_input *in = g->inputs + g->n_inputs;
        snprintf(in->name, sizeof in->name, "%s", f[1]);
        in->dtype = type_of(f[2], r.text);
        in->n = strtoull(f[3], NULL, 10);
        in->data = next_values(rd, in->dtype, in->n);
        g->n_inputs++;
        return;
    }
    if ((n == 7 || n == 8) && strcmp(f[0], "op") == 0) {
        int op = op_from_name(f[1], strlen(f[1]));
        if (op < 0)
            broken("no such operation", r.text);
        r.op = (enum op)op;
        r.from = type_of(f[2], r.text);
        r.n_args = n == 8 ? 2 : 1;
        r.n = strtoull(f[n - 2], NULL, 10);
        r.to = type_of(f[n - 3], r.text);
        for (int i = 0; i < r.n_args; i++)
            r.args[i] = input_of(g, f[3 + i], r.n, r.from, r.text)->data;
    } else if (n == 6 && strcmp(f[0], "cast") == 0) {
        r.kind = GOLDEN_CAST;
        r.from = type_of(f[1], r.text);
        r.to = type_of(f[2], r.text);
        r.n_args = 1;
        r.n = strtoull(f[4], NULL, 10);
        r.args[0] = input_of(g, f[3], r.n, r.from, r.text)->data;
    } else if (n == 9 && strcmp(f[0], "random") == 0) {
        r.kind = GOLDEN_RANDOM;
        r.from = DT_I64;
        r.to = type_of(f[2], r.text);
        r.random.dist = f[1][0] == 'u'   ? RANDOM_UNIFORM
                        : f[1][0] == 'n' ? RANDOM_NORMAL
                                         : RANDOM_INTEGERS;
        r.random.seed = strtoull(f[3], NULL, 10);
        set_scalar(&r.random.low, r.to, f[4]);
        set_scalar(&r.random.high, r.to, f[5]);
        r.n_args = 1;
        r.n = strtoull(f[7], NULL, 10);
        r.args[0] = input_of(g, f[6], r.n, r.from, r.text)->data;
    } else {
        broken("unknown record", r.text);
    }
    parse_tolerance(&r, f[n - 1]);
    r.expected = next_values(rd, r.to, r.n);
    g->records[g->n_records++] = r;
}

struct golden *golden_load(void)
{
    const char *path = getenv("ARRAYD_GOLDEN");
    FILE *file = fopen(path ? path : GOLDEN_FILE, "rb");
    if (file == NULL)
        broken("cannot open", path ? path : GOLDEN_FILE);
    struct reader rd = {0};
    fseek(file, 0, SEEK_END);
    rd.size = (size_t)ftell(file);
    rewind(file);
    rd.text = take(rd.size);
    if (fread(rd.text, 1, rd.size, file) != rd.size)
        broken("cannot read", "");
    fclose(file);
    size_t lines = 0; /* at least as many newlines as records */
    for (size_t i = 0; i < rd.size; i++)
        lines += rd.text[i] == '\n';
    struct golden *g = take(sizeof *g);
    *g = (struct golden){.records = take(lines * sizeof *g->records),
                         .inputs = take(lines * sizeof *g->inputs)};
    next_line(&rd);
    if (strcmp(rd.line, "golden 1") != 0)
        broken("not a golden table", rd.line);
    while (next_line(&rd))
        parse_record(g, &rd);
    mem_free(rd.text);
    return g;
}

void golden_free(struct golden *g)
{
    for (size_t i = 0; i < g->n_records; i++)
        mem_free((void *)g->records[i].expected);
    for (size_t i = 0; i < g->n_inputs; i++)
        mem_free(g->inputs[i].data);
    mem_free(g->records);
    mem_free(g->inputs);
    mem_free(g);
}

/* Any real float as float64 (exactly). */
static double as_double(enum dtype t, const void *p)
{
    union value v = {0};
    memcpy(v.raw, p, dtype_size(t));
    switch (t) {
    case DT_F16:
        return ar_f16_to_f32(v.u16);
    case DT_BF16:
        return ar_bf16_to_f32(v.u16);
    case DT_F32:
        return v.f32;
    default:
        return v.f64;
    }
}

/* The bits as a number that grows with the value, so that neighbours differ by one. */
static double ordinal(enum dtype t, const void *p)
{
    union value v = {0};
    memcpy(v.raw, p, dtype_size(t));
    int bits = (int)dtype_size(t) * 8;
    uint64_t sign = v.u64 >> (bits - 1), magnitude = v.u64 & (((uint64_t)1 << (bits - 1)) - 1);
    return sign ? -(double)(int64_t)magnitude : (double)(int64_t)magnitude;
}

double golden_ulps(enum dtype t, const void *a, const void *b)
{
    double x = as_double(t, a), y = as_double(t, b);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y) ? 0 : 1e30;
    if (t != DT_F64 || fabs(ordinal(t, a) - ordinal(t, b)) > 1e15)
        return fabs(ordinal(t, a) - ordinal(t, b));
    int64_t i, j; /* float64 ordinals do not fit float64 exactly; their difference does */
    memcpy(&i, a, 8);
    memcpy(&j, b, 8);
    i = i < 0 ? INT64_MIN - i : i;
    j = j < 0 ? INT64_MIN - j : j;
    return fabs((double)(i - j));
}

/* One unit in the last place of a magnitude. */
static double unit(enum dtype t, double x)
{
    int digits = t == DT_F64 ? 53 : t == DT_F32 ? 24 : t == DT_F16 ? 11 : 8;
    int least = t == DT_F64 ? -1074 : t == DT_F32 ? -149 : t == DT_F16 ? -24 : -133;
    int e;
    frexp(x, &e);
    return ldexp(1, e - digits > least ? e - digits : least);
}

static int same_exact(enum dtype t, const void *a, const void *b)
{
    enum dtype part = dtype_real(t);
    size_t size = dtype_size(part);
    for (size_t i = 0; i < dtype_size(t); i += size) {
        const char *x = (const char *)a + i, *y = (const char *)b + i;
        int nans =
            dtype_is_real_float(part) && isnan(as_double(part, x)) && isnan(as_double(part, y));
        if (!nans && memcmp(x, y, size) != 0)
            return 0;
    }
    return 1;
}

static int same_number(double x, double y)
{
    return x == y || (isnan(x) && isnan(y));
}

static int close_enough(const struct golden_record *r, size_t i, const char *got, const char *want)
{
    if (r->tolerance == GOLDEN_EXACT || same_exact(r->to, got, want))
        return same_exact(r->to, got, want);
    if (r->tolerance == GOLDEN_COMPLEX) {
        enum dtype part = dtype_real(r->to);
        size_t size = dtype_size(part);
        double a = as_double(part, got), b = as_double(part, got + size);
        double c = as_double(part, want), d = as_double(part, want + size);
        /* a result that is NaN or infinite somewhere must be so in the same way */
        if (!isfinite(c) || !isfinite(d) || !isfinite(a) || !isfinite(b))
            return same_number(a, c) && same_number(b, d);
        double scale = hypot(c, d);
        double slack = r->units * unit(part, isinf(scale) ? fmax(fabs(c), fabs(d)) : scale);
        return fabs(a - c) <= slack && fabs(b - d) <= slack;
    }
    double x = as_double(r->to, got), y = as_double(r->to, want);
    if (x == 0 && y == 0) /* the sign of zero counts */
        return 0;
    if (golden_ulps(r->to, got, want) <= r->units)
        return 1;
    if (r->tolerance != GOLDEN_SCALED || !isfinite(x) || !isfinite(y))
        return 0;
    double scale = fabs(y);
    for (int k = 0; k < r->n_args; k++)
        scale = fmax(scale,
                     fabs(as_double(r->from, (const char *)r->args[k] + i * dtype_size(r->from))));
    return fabs(x - y) <= r->units * unit(r->to, scale);
}

static void value_text(enum dtype t, const char *p, char *s, size_t n)
{
    union value v = {0};
    memcpy(v.raw, p, dtype_size(t));
    if (dtype_is_complex(t)) {
        enum dtype part = dtype_real(t);
        snprintf(s, n, "(%.17g, %.17g)", as_double(part, p), as_double(part, p + dtype_size(part)));
    } else if (dtype_is_real_float(t)) {
        snprintf(s, n, "%.17g (%#llx)", as_double(t, p), (unsigned long long)v.u64);
    } else {
        snprintf(s, n, "%#llx", (unsigned long long)v.u64);
    }
}

long golden_compare(const struct golden_record *r, const void *got, char *why, size_t m)
{
    size_t size = dtype_size(r->to), in = dtype_size(r->from);
    for (size_t i = 0; i < r->n; i++) {
        const char *x = (const char *)got + i * size;
        const char *y = (const char *)r->expected + i * size;
        if (close_enough(r, i, x, y))
            continue;
        char a[96], b[96], c[96], d[96] = "";
        value_text(r->to, x, a, sizeof a);
        value_text(r->to, y, b, sizeof b);
        value_text(r->from, (const char *)r->args[0] + i * in, c, sizeof c);
        if (r->n_args == 2)
            value_text(r->from, (const char *)r->args[1] + i * in, d, sizeof d);
        snprintf(why, m, "%s [%zu]: got %s, want %s, of %s %s", r->text, i, a, b, c, d);
        return (long)i;
    }
    return -1;
}
