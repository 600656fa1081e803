/* The golden tables of expressions (arrays.bin, made by make_arrays.py) through the whole engine,
 * on a named backend, from their text: array_suite BACKEND [EVERY [TEXT]]. Each result goes into a
 * new array and into every other element of an existing one. EVERY takes only one expression in so
 * many, for slow checkers, TEXT only those that contain it. Exit 77 when the backend is not
 * available.
 *
 * As in golden_suite.c a batch is submitted before the results of the batch before it are fetched,
 * on a stream each. Operands are made when an expression that is taken names them.
 *
 * The tables must have every operation and function of every dtype, as a result or as an error: the
 * names in the texts are counted, and what is missing fails the suite. An expression is of the
 * dtype of the first array in it. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/check/check.h"
#include "compute/engine/engine.h"
#include "compute/lang/func.h"
#include "compute/memory/memory_int.h"
#include "compute/type/op.h"
#include "protocol/text/infix.h"
#include "tests/backend/suite.h"
#include "tests/golden/golden.h"

#define MAX_NAMES 64
#define BATCH     64
#define WORD      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

struct operand {
    char name[16];
    enum dtype dtype;
    struct view shape;
    bool has_grid;
    struct grid grid;
    struct operand *all_of; /* interior and ghosts of that one */
    const void *bytes;      /* in the file's memory */
    struct array *array;    /* NULL until it is used */
};

struct run {
    struct golden_record record; /* args, expected: in the file's memory */
    struct view shape;           /* of the result */
    struct array *ret, *spread;
    char refused[32]; /* it is to be: the error's code */
    char why[1400];   /* it failed */
};

struct suite {
    struct engine *g;
    struct engine_stream *streams[2], *s; /* s: of the batch in hand */
    struct account *account;
    struct operand names[MAX_NAMES];
    size_t n_names, tested, failed;
    uint16_t op_seen[OP_COUNT], func_seen[FUNC_COUNT]; /* a bit a dtype */
    char *text;                                        /* the file */
    size_t size, at;
};

static const void *next_bytes(struct suite *t, size_t n)
{
    assert(t->at + n <= t->size);
    t->at += n;
    return t->text + t->at - n;
}

/* "<dtype> … <rank> <extents…>" from `p` on; returns what is behind it. */
static char *parse_shape(char *p, enum dtype dtype, struct view *ret)
{
    int64_t shape[MAX_RANK];
    int rank = (int)strtol(p, &p, 10);
    for (int k = 0; k < rank; k++)
        shape[k] = strtoll(p, &p, 10);
    enum err_code code = view_contiguous(rank, shape, dtype_size(dtype), ret, NULL);
    assert(code == ERR_OK);
    (void)code;
    return p + (*p == ' ');
}

static enum dtype parse_dtype(char **p)
{
    size_t n = strcspn(*p, " ");
    int t = dtype_from_name(*p, n);
    assert(t >= 0);
    *p += n + 1;
    return (enum dtype)t;
}

static struct array *put(struct suite *t, enum dtype dtype, const struct view *v, const void *bytes)
{
    struct upload *u = NULL;
    struct array *a = NULL;
    size_t n = (size_t)view_size(v) * dtype_size(dtype);
    enum err_code code = upload_new(t->s, t->account, (int64_t)n, NULL, NULL, &u, NULL);
    assert(code == ERR_OK);
    for (size_t at = 0, took; at < n; at += took)
        if (!(took = upload_push(u, (const char *)bytes + at, n - at)))
            usleep(20);
    code = upload_finish_new(u, dtype, v->rank, v->shape, false, &a, NULL);
    assert(code == ERR_OK);
    (void)code;
    return a;
}

/* The operand called name (n bytes), or a new one. */
static struct operand *operand_called(struct suite *t, const char *name, size_t n)
{
    size_t i = 0;
    while (i < t->n_names &&
           (strlen(t->names[i].name) != n || memcmp(t->names[i].name, name, n) != 0))
        i++;
    assert(i < MAX_NAMES && n < sizeof t->names[i].name);
    t->n_names += i == t->n_names;
    array_unref(t->names[i].array);
    t->names[i] = (struct operand){0};
    memcpy(t->names[i].name, name, n);
    return &t->names[i];
}

static double next_number(char **p)
{
    char *end;
    double v = strtod(*p, &end);
    assert(end != *p);
    *p = end + (*end == ' ');
    return v;
}

/* "<ghosts…> <spacings…> <type re im of each face…>" */
static void parse_grid(char *p, int rank, struct grid *ret)
{
    static const char *const types[] = {"none", "dirichlet", "neumann", "periodic"};
    grid_init(ret, rank);
    ret->has_boundary = true;
    for (int k = 0; k < rank; k++)
        ret->ghost[k] = (int64_t)next_number(&p);
    for (int k = 0; k < rank; k++)
        ret->spacing[k] = next_number(&p);
    for (int k = 0; k < 2 * rank; k++) {
        struct face *f = &ret->face[k / 2][k % 2];
        size_t n = strcspn(p, " ");
        int type = 0;
        while (strlen(types[type]) != n || memcmp(types[type], p, n) != 0)
            type++;
        p += n + 1;
        f->type = (enum face_type)type;
        f->re = next_number(&p);
        f->im = next_number(&p);
    }
}

/* An operand, in the place of one of its name: what an "array" or "grid" line says. */
static void take_operand(struct suite *t, char *p, bool has_grid)
{
    size_t n = strcspn(p, " ");
    struct operand *o = operand_called(t, p, n);
    p += n + 1;
    o->dtype = parse_dtype(&p);
    p = parse_shape(p, o->dtype, &o->shape);
    o->has_grid = has_grid;
    if (has_grid) {
        char name[sizeof o->name + 4];
        snprintf(name, sizeof name, "%s_all", o->name);
        struct operand *all = operand_called(t, name, strlen(name));
        all->dtype = o->dtype;
        all->all_of = o;
        parse_grid(p, o->shape.rank, &o->grid);
    }
    o->bytes = next_bytes(t, (size_t)view_size(&o->shape) * dtype_size(o->dtype));
}

/* Puts it onto the backend. */
static void make_operand(struct suite *t, struct operand *o)
{
    if (o->array)
        return;
    if (o->all_of) {
        struct view v;
        make_operand(t, o->all_of);
        struct array *a = o->all_of->array;
        grid_whole(a->grid, &a->view, &v);
        o->array = array_view(a, a->dtype, &v);
        return;
    }
    o->array = put(t, o->dtype, &o->shape, o->bytes);
    if (!o->has_grid)
        return;
    struct array *plain = o->array;
    enum err_code code = engine_embed(t->s, t->account, plain, &o->grid, &o->array, NULL);
    assert(code == ERR_OK);
    code = engine_fill_ghost(t->s, t->account, o->array, NULL, NULL, NULL);
    assert(code == ERR_OK);
    (void)code;
    array_unref(plain);
}

static struct operand *find_operand(struct suite *t, const char *name, size_t n)
{
    for (size_t i = 0; i < t->n_names; i++)
        if (strlen(t->names[i].name) == n && memcmp(t->names[i].name, name, n) == 0)
            return &t->names[i];
    return NULL;
}
/* The next word of a text, quoted ones left out; NULL at its end. */
static const char *next_word(const char *p, size_t *ret_n)
{
    while (*p && !strspn(p, WORD))
        p += *p == '\'' ? strcspn(p + 1, "'") + 2 : 1;
    *ret_n = strspn(p, WORD);
    return *p ? p : NULL;
}

static void make_operands(struct suite *t, const char *text)
{
    size_t n;
    for (const char *p = text; (p = next_word(p, &n)); p += n) {
        struct operand *o = find_operand(t, p, n);
        if (o)
            make_operand(t, o);
    }
}

/* Counts the operations and functions of an expression. */
static void count_names(struct suite *t, const char *text)
{
    const struct operand *first = NULL;
    size_t n;
    for (const char *p = text; !first && (p = next_word(p, &n)); p += n)
        first = find_operand(t, p, n);
    assert(first);
    for (const char *p = text; (p = next_word(p, &n)); p += n) {
        int op = op_from_name(p, n), func = func_from_name(p, n);
        if (op >= 0)
            t->op_seen[op] |= (uint16_t)(1 << first->dtype);
        if (func >= 0)
            t->func_seen[func] |= (uint16_t)(1 << first->dtype);
    }
}

static void demand(struct suite *t, const char *name, uint16_t seen)
{
    for (int d = 0; d < DT_COUNT; d++)
        if (!(seen & 1 << d)) {
            fprintf(stderr, "the tables have no %s of %s\n", name, dtype_name((enum dtype)d));
            t->failed++;
        }
}

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    const struct suite *t = user;
    (void)e;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (size_t i = 0; i < t->n_names; i++)
        if (!strcmp(t->names[i].name, name) && t->names[i].array)
            *ret = (struct binding){.kind = BINDING_ARRAY,
                                    .array = t->names[i].array,
                                    .dtype = t->names[i].dtype,
                                    .view = t->names[i].array->view,
                                    .grid = t->names[i].array->grid};
    return ERR_OK;
}

/* An array of twice the last extent, seen at every other element. */
static struct array *spread_out(struct suite *t, const struct run *r)
{
    struct view wide, v = r->shape;
    int64_t shape[MAX_RANK];
    memcpy(shape, v.shape, sizeof shape);
    if (v.rank)
        shape[v.rank - 1] *= 2;
    enum err_code code = view_contiguous(v.rank, shape, dtype_size(r->record.to), &wide, NULL);
    assert(code == ERR_OK);
    struct array *all = NULL;
    code = engine_zeros(t->s, t->account, r->record.to, v.rank, shape, &all, NULL);
    assert(code == ERR_OK);
    (void)code;
    for (int k = 0; k < v.rank; k++)
        v.strides[k] = wide.strides[k];
    if (v.rank)
        v.strides[v.rank - 1] = 2;
    struct array *a = array_view(all, r->record.to, &v);
    array_unref(all);
    return a;
}

static enum err_code parse(struct arena *arena, const char *text, struct expr *ret, struct err *e)
{
    uint32_t source;
    expr_init(ret, arena, 10000, 400);
    enum err_code code = expr_add_source(ret, "/expr", &source, e);
    return code == ERR_OK ? infix_parse(ret, source, text, strlen(text), &ret->root, e) : code;
}

static void submit(struct suite *t, struct run *r, const char *text)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct expr x;
    struct err e = ERR_INIT;
    struct check_env env = {.resolve = resolve, .user = t, .max_inputs = 64};
    struct eval_request req = {.expr = &x, .env = &env, .dtype = -1};
    make_operands(t, text);
    enum err_code code = parse(arena, text, &x, &e);
    if (code == ERR_OK)
        code = engine_evaluate(t->s, t->account, &req, &r->ret, NULL, NULL, NULL, &e);
    if (r->refused[0]) {
        if (strcmp(err_name(code), r->refused) != 0)
            snprintf(r->why, sizeof r->why, "%s: %s, not %s", text, err_name(code), r->refused);
        return;
    }
    if (code == ERR_OK &&
        (r->ret->dtype != r->record.to || !view_same_shape(&r->ret->view, &r->shape)))
        code = err_set(&e, ERR_INTERNAL, "another dtype or shape than NumPy's");
    if (code == ERR_OK) {
        req.out = r->spread = spread_out(t, r);
        struct array *same = NULL;
        code = engine_evaluate(t->s, t->account, &req, &same, NULL, NULL, NULL, &e);
        array_unref(same);
    }
    if (code != ERR_OK)
        snprintf(r->why, sizeof r->why, "%s: %s", text, e.message);
}

static void compare(struct suite *t, struct run *r, struct array *a)
{
    struct download *d = NULL;
    char *got = malloc((size_t)array_nbytes(a) + 16);
    enum err_code code = download_new(t->s, a, NULL, NULL, &d, NULL);
    assert(code == ERR_OK);
    for (int64_t n = array_nbytes(a), at = 0, some; at < n && code == ERR_OK; at += some) {
        some = download_pull(d, at, got + at, (size_t)(n - at));
        if (some == 0)
            usleep(20);
        if (some < 0)
            code = download_result(d);
    }
    download_free(d);
    if (code != ERR_OK)
        snprintf(r->why, sizeof r->why, "%s: %s", r->record.text, err_name(code));
    else
        (void)golden_compare(&r->record, got, r->why, sizeof r->why);
    free(got);
}

static void finish(struct suite *t, struct run *r)
{
    if (!r->why[0] && !r->refused[0])
        compare(t, r, r->ret);
    if (!r->why[0] && !r->refused[0])
        compare(t, r, r->spread);
    t->tested++;
    if (r->why[0]) {
        t->failed++;
        fprintf(stderr, "%s\n", r->why);
    }
    array_unref(r->ret);
    array_unref(r->spread);
}

static void finish_batch(struct suite *t, struct run *runs, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        finish(t, &runs[i]);
    *n = 0;
}

/* What an "expr" line says, and the result behind it. */
static const char *take_expr(struct suite *t, char *p, struct run *r)
{
    *r = (struct run){0};
    enum dtype to = parse_dtype(&p);
    int units = (int)strtol(p, &p, 10);
    const char *text = parse_shape(p, to, &r->shape);
    size_t n = (size_t)view_size(&r->shape);
    r->record = (struct golden_record){.from = to,
                                       .to = to,
                                       .n = n,
                                       .n_args = 1,
                                       .units = units,
                                       .tolerance = units == 0             ? GOLDEN_EXACT
                                                    : dtype_is_complex(to) ? GOLDEN_COMPLEX
                                                                           : GOLDEN_ULP};
    r->record.expected = r->record.args[0] = next_bytes(t, n * dtype_size(to));
    snprintf(r->record.text, sizeof r->record.text, "%s %s", dtype_name(to), text);
    return text;
}

/* What an "error" line says. */
static const char *take_error(char *p, struct run *r)
{
    size_t n = strcspn(p, " ");
    *r = (struct run){0};
    assert(n < sizeof r->refused);
    memcpy(r->refused, p, n);
    return p + n + 1;
}

static void run_all(struct suite *t, size_t every, const char *wanted)
{
    static struct run runs[2][BATCH];
    size_t n[2] = {0}, at = 0, number = 0;
    char line[512];
    for (;;) {
        const char *end = memchr(t->text + t->at, '\n', t->size - t->at);
        assert(end && end - t->text - (long)t->at < (long)sizeof line);
        size_t len = (size_t)(end - t->text) - t->at;
        memcpy(line, t->text + t->at, len);
        line[len] = '\0';
        t->at += len + 1;
        if (strcmp(line, "end") == 0 || t->failed >= 50)
            break;
        if (strncmp(line, "array ", 6) == 0)
            take_operand(t, line + 6, false);
        if (strncmp(line, "grid ", 5) == 0)
            take_operand(t, line + 5, true);
        bool refused = strncmp(line, "error ", 6) == 0;
        if (!refused && strncmp(line, "expr ", 5) != 0)
            continue;
        struct run *r = &runs[at][n[at]];
        const char *text = refused ? take_error(line + 6, r) : take_expr(t, line + 5, r);
        count_names(t, text);
        if (number++ % every || !strstr(text, wanted))
            continue;
        t->s = t->streams[at];
        submit(t, r, text);
        if (++n[at] < BATCH)
            continue;
        at = !at;
        t->s = t->streams[at];
        finish_batch(t, runs[at], &n[at]);
    }
    for (int k = 0; k < 2; k++) {
        t->s = t->streams[k];
        finish_batch(t, runs[k], &n[k]);
    }
    for (int k = 0; k < OP_COUNT && t->failed < 50; k++)
        demand(t, op_table[k].name, t->op_seen[k]);
    for (int k = 0; k < FUNC_COUNT && t->failed < 50; k++)
        demand(t, func_table[k].name, t->func_seen[k]);
}

static bool read_file(struct suite *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    fseek(f, 0, SEEK_END);
    t->size = (size_t)ftell(f);
    rewind(f);
    t->text = malloc(t->size);
    bool good = t->text && fread(t->text, 1, t->size, f) == t->size && t->size > 9 &&
                memcmp(t->text, "arrays 2\n", 9) == 0;
    t->at = 9;
    fclose(f);
    return good;
}

int main(int argc, char **argv)
{
    static struct suite t;
    struct engine_config config = suite_config(argc > 1 ? argv[1] : "cpu");
    int every = argc > 2 ? atoi(argv[2]) : 1;
    struct err e = ERR_INIT;
    if (engine_open(&config, &t.g, &e) != ERR_OK) {
        fprintf(stderr, "skipped: %s\n", e.message);
        return 77;
    }
    t.account = account_new(0);
    if (!read_file(&t, ARRAYS_FILE) || !t.account ||
        engine_stream_new(t.g, suite_device(t.g), &t.streams[0], &e) != ERR_OK ||
        engine_stream_new(t.g, suite_device(t.g), &t.streams[1], &e) != ERR_OK) {
        fprintf(stderr, "cannot begin (" ARRAYS_FILE ")\n");
        return 1;
    }
    run_all(&t, every > 0 ? (size_t)every : 1, argc > 3 ? argv[3] : "");
    for (size_t i = 0; i < t.n_names; i++)
        array_unref(t.names[i].array);
    engine_stream_unref(t.streams[0]);
    engine_stream_unref(t.streams[1]);
    account_unref(t.account);
    for (int i = 0; i < 5000 && engine_jobs_in_flight(t.g) > 0; i++)
        usleep(1000); /* what was fetched is let go a moment later */
    if (engine_bytes_in_use(t.g) != 0) {
        fprintf(stderr, "%" PRId64 " bytes still in use\n", engine_bytes_in_use(t.g));
        t.failed++;
    }
    engine_close(t.g);
    free(t.text);
    printf("arrays %s: %zu expressions, %zu failed\n", config.backend, t.tested, t.failed);
    return t.failed != 0;
}
