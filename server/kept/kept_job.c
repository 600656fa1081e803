/* A program is kept as it was sent, with what it found: the arrays that its names meant and the
 * functions that it called. The first of these are described as arrays are elsewhere, but for their
 * handles: a program continues with an array whose handle is gone. */
#include "server/kept/kept_job.h"

#include <math.h>
#include <string.h>

#include "server/kept/kept.h"
#include "server/kept/member.h"
#include "server/store/auth.h"

#define BLOCK_BYTES 4096

int64_t kept_block(size_t row)
{
    return row && row < BLOCK_BYTES ? (int64_t)(BLOCK_BYTES / row) : 1;
}

/* --- writing --- */

static void put_name(struct json_writer *w, const char *name, const char *id, bool shared,
                     const struct array *a)
{
    json_open_object(w);
    json_put_member_string(w, "name", name);
    json_put_member_string(w, "id", id);
    json_put_member_bool(w, "shared", shared);
    kept_put_elements(w, a, (int64_t)array_memory_id(a), true);
    json_close_object(w);
}

static const struct body_read *read_of(const struct program_body *b, uint32_t input)
{
    uint32_t i = 0;
    while (i < b->n_reads && b->reads[i].input != input)
        i++;
    return i < b->n_reads ? &b->reads[i] : NULL;
}

static void put_names(struct json_writer *w, const struct program_body *b)
{
    struct array *home;
    json_put_key(w, "names");
    json_open_list(w);
    for (uint32_t i = 0; i < program_targets(b->program); i++) {
        const char *name = program_target(b->program, i, &home);
        put_name(w, name, b->targets[i].id, b->targets[i].shared, home);
    }
    for (uint32_t i = 0; i < program_inputs(b->program); i++) {
        const struct array *a = program_input(b->program, i);
        const struct body_read *shared = read_of(b, i);
        if (a)
            put_name(w, program_input_name(b->program, i), shared ? shared->id : "", shared, a);
    }
    json_close_list(w);
}

void kept_put_targets(struct json_writer *w, const struct program_body *b)
{
    struct array *home;
    json_open_list(w);
    for (uint32_t i = 0; i < program_targets(b->program); i++) {
        json_open_object(w);
        json_put_member_string(w, "name", program_target(b->program, i, &home));
        json_put_member_string(w, "id", b->targets[i].id);
        json_close_object(w);
    }
    json_close_list(w);
}

static bool is_earlier(const struct program_body *b, size_t set, size_t item)
{
    const struct function *f = b->functions[set].items[item];
    for (size_t i = 0; i < set; i++)
        for (size_t k = 0; k < b->functions[i].n; k++)
            if (b->functions[i].items[k] == f)
                return true;
    return false;
}

static void put_functions(struct json_writer *w, const struct program_body *b)
{
    json_put_key(w, "functions");
    json_open_list(w);
    for (size_t i = 0; i < b->n_functions; i++)
        for (size_t k = 0; k < b->functions[i].n; k++)
            if (!is_earlier(b, i, k))
                kept_put_function(w, definition_of(b->functions[i].items[k]));
    json_close_list(w);
}

void kept_put_job(struct json_writer *w, const struct program_body *b, uint64_t seq,
                  int64_t created_us)
{
    enum dtype dtype;
    json_open_object(w);
    json_put_member_i64(w, "seq", (int64_t)seq);
    json_put_member_string(w, "session", b->session->id);
    json_put_member_i64(w, "created_us", created_us);
    json_put_member_i64(w, "steps", b->steps);
    json_put_member_i64(w, "record_every", b->record_every);
    json_put_member_bool(w, "takes_snapshots", b->n_snapshots > 0);
    json_put_key(w, "series");
    json_open_list(w);
    for (uint32_t i = 0; i < b->n_series; i++) {
        (void)program_values(b->program, i, &dtype);
        json_open_object(w);
        json_put_member_string(w, "name", b->series[i]);
        json_put_member_string(w, "dtype", dtype_name(dtype));
        json_close_object(w);
    }
    json_close_list(w);
    json_put_key(w, "body");
    json_put_stringn(w, b->text, b->text_len);
    json_put_key(w, "targets");
    kept_put_targets(w, b);
    json_put_member_string(w, "lease", b->claim.tokens ? b->claim.tokens : "");
    put_names(w, b);
    put_functions(w, b);
    json_close_object(w);
}

static void put_error(struct json_writer *w, const struct kept_progress *at)
{
    json_put_key(w, "error");
    json_open_object(w);
    json_put_member_string(w, "code", err_name(at->err.code));
    json_put_member_i64(w, "status", err_status(at->err.code));
    json_put_member_string(w, "message", at->err.message);
    json_put_member_string(w, "pointer", at->err.pointer);
    if (at->err.offset >= 0)
        json_put_member_i64(w, "offset", at->err.offset);
    json_close_object(w);
    json_put_member_i64(w, "failed_in", at->failed_in);
    if (at->statement >= 0)
        json_put_member_i64(w, "statement", at->statement);
}

void kept_put_progress(struct json_writer *w, const struct kept_progress *at)
{
    json_open_object(w);
    json_put_member_string(w, "state", at->state);
    json_put_member_i64(w, "step", at->step);
    json_put_member_i64(w, "values", at->values);
    json_put_member_i64(w, "snapshots", at->snapshots);
    json_put_member_i64(w, "ends", at->ends);
    json_put_member_i64(w, "crashes", at->crashes);
    json_put_member_i64(w, "ended_us", at->ended_us);
    json_put_member_i64(w, "ran_us", llround(at->ran_ms * 1e3));
    json_put_member_i64(w, "device_us", llround(at->device_ms * 1e3));
    json_put_member_i64(w, "bytes", at->bytes);
    json_put_member_bool(w, "until", at->until);
    json_put_member_bool(w, "copies", at->copies);
    json_put_member_bool(w, "behind", at->behind);
    if (at->err.code != ERR_OK)
        put_error(w, at);
    json_close_object(w);
}

void kept_put_snapshot(struct json_writer *w, const struct kept_snapshot *s)
{
    json_open_object(w);
    json_put_member_string(w, "name", s->name);
    json_put_member_i64(w, "step", s->step);
    json_put_member_string(w, "id", s->id);
    json_close_object(w);
}

/* --- reading --- */

static enum err_code read_series(struct json list, struct arena *arena, struct kept_job *ret,
                                 struct err *e)
{
    struct json dtype;
    ret->series = arena_alloc_array(arena, json_count(list) + 1, sizeof *ret->series);
    if (!ret->series)
        return err_oom(e);
    for (struct json v = json_first(list); json_present(v); v = json_next(v)) {
        struct kept_series *s = &ret->series[ret->n_series++];
        *s = (struct kept_series){0};
        TRY(member_text(v, "name", s->name, NAME_SIZE, e));
        TRY(json_require(v, "dtype", &dtype, e));
        TRY(json_get_dtype(dtype, &s->dtype, e));
    }
    return ERR_OK;
}

static enum err_code read_text(struct json v, const char *name, struct arena *arena,
                               const char **ret, size_t *ret_n, struct err *e)
{
    struct json x;
    const char *text;
    TRY(json_require(v, name, &x, e));
    TRY(json_get_string(x, &text, ret_n, e));
    *ret = arena_strndup(arena, text, *ret_n);
    return *ret ? ERR_OK : err_oom(e);
}

static enum err_code read_targets(struct json v, struct arena *arena, struct kept_job *ret,
                                  struct err *e)
{
    const struct json list = json_member(v, "targets");
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    if (json_kind(list) == JSON_LIST)
        json_put_value(&w, list);
    else
        strb_add(&text, "[]");
    ret->targets = text.failed ? NULL : arena_strndup(arena, text.data, text.len);
    ret->targets_len = text.len;
    return ret->targets ? ERR_OK : err_oom(e);
}

enum err_code kept_read_job(struct json v, struct arena *arena, struct kept_job *ret, struct err *e)
{
    struct json series;
    int64_t seq;
    size_t n;
    TRY(member_i64(v, "seq", &seq, e));
    TRY(member_id(v, "session", 's', false, ret->session_id, e));
    TRY(member_i64(v, "created_us", &ret->created_us, e));
    TRY(member_i64(v, "steps", &ret->steps, e));
    TRY(member_i64(v, "record_every", &ret->record_every, e));
    TRY(member_bool(v, "takes_snapshots", &ret->takes_snapshots, e));
    TRY(member_list(v, "series", &series, e));
    TRY(read_series(series, arena, ret, e));
    TRY(read_text(v, "body", arena, &ret->text, &ret->text_len, e));
    TRY(read_targets(v, arena, ret, e));
    TRY(read_text(v, "lease", arena, &ret->past.lease, &n, e));
    if (!n)
        ret->past.lease = NULL;
    ret->seq = (uint64_t)seq;
    return ERR_OK;
}

/* The name of a code is not always its own: those that share one differ in their status. */
static enum err_code read_error(struct json v, struct err *ret, struct err *e)
{
    char name[64];
    int64_t status, offset = -1;
    TRY(member_text(v, "code", name, sizeof name, e));
    TRY(member_i64(v, "status", &status, e));
    TRY(member_text(v, "message", ret->message, sizeof ret->message, e));
    TRY(member_text(v, "pointer", ret->pointer, sizeof ret->pointer, e));
    TRY(member_i64_given(v, "offset", &offset, e));
    ret->offset = (long)offset;
    for (int code = ERR_OK + 1; code < ERR_COUNT && ret->code == ERR_OK; code++)
        if (!strcmp(err_name((enum err_code)code), name) &&
            err_status((enum err_code)code) == status)
            ret->code = (enum err_code)code;
    if (ret->code == ERR_OK)
        ret->code = ERR_INTERNAL;
    return ERR_OK;
}

enum err_code kept_read_progress(struct json v, struct kept_progress *ret, struct err *e)
{
    int64_t ran, device, statement = -1;
    struct json error = json_member(v, "error");
    *ret = (struct kept_progress){.err = ERR_INIT};
    TRY(member_text(v, "state", ret->state, sizeof ret->state, e));
    TRY(member_i64(v, "step", &ret->step, e));
    TRY(member_i64(v, "values", &ret->values, e));
    TRY(member_i64(v, "snapshots", &ret->snapshots, e));
    TRY(member_i64(v, "ends", &ret->ends, e));
    TRY(member_i64(v, "crashes", &ret->crashes, e));
    TRY(member_i64(v, "ended_us", &ret->ended_us, e));
    TRY(member_i64(v, "ran_us", &ran, e));
    TRY(member_i64(v, "device_us", &device, e));
    ret->bytes = 0; /* older versions do not count it */
    TRY(member_i64_given(v, "bytes", &ret->bytes, e));
    TRY(member_bool(v, "until", &ret->until, e));
    TRY(member_bool(v, "copies", &ret->copies, e));
    TRY(member_bool(v, "behind", &ret->behind, e));
    if (json_present(error)) {
        TRY(read_error(error, &ret->err, e));
        TRY(member_i64(v, "failed_in", &ret->failed_in, e));
        TRY(member_i64_given(v, "statement", &statement, e));
    }
    ret->statement = (int32_t)statement;
    ret->ran_ms = (double)ran / 1e3;
    ret->device_ms = (double)device / 1e3;
    return ERR_OK;
}

enum err_code kept_read_snapshot(struct json v, struct kept_snapshot *ret, struct err *e)
{
    TRY(member_text(v, "name", ret->name, NAME_SIZE, e));
    TRY(member_i64(v, "step", &ret->step, e));
    return member_id(v, "id", 'a', false, ret->id, e);
}

enum err_code kept_read_name(struct json v, struct past_name *ret, int64_t *ret_memory,
                             int64_t *ret_buffer, struct err *e)
{
    struct json name;
    TRY(json_require(v, "name", &name, e));
    TRY(json_get_string(name, &ret->name, NULL, e));
    TRY(member_id(v, "id", 'a', true, ret->id, e));
    TRY(member_bool(v, "shared", &ret->shared, e));
    TRY(member_i64(v, "memory", ret_memory, e));
    *ret_buffer = *ret_memory;
    return member_i64_given(v, "buffer", ret_buffer, e);
}
