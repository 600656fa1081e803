/* What a job computes, for those who look at it: its program as it was sent, cut where it is long.
 * An ended job has no program any more, and a job of another process may never have had one: the
 * words are made from the request's body at the beginning, and are as long as the job is there. */
#include "compute/base/arena.h"
#include "server/jobs/jobs_int.h"

#define WHOLE 4096 /* bytes of a program that are told, */
#define BRIEF 120  /* and in lists */
#define CUT   "…"

struct telling {
    struct json_writer *w;
    size_t left; /* bytes */
    bool cut;
};

static void put_statement(struct telling *t, const char *text, size_t n)
{
    if (n <= t->left) {
        json_put_stringn(t->w, text, n);
        t->left -= n;
        return;
    }
    _cleanup_strb_ struct strb some = {0};
    size_t k = 0;
    for (size_t c = utf8_length(text, n); c && k + c <= t->left; c = utf8_length(text + k, n - k))
        k += c;
    strb_addn(&some, text, k);
    strb_add(&some, CUT);
    json_put_stringn(t->w, some.failed ? "" : some.data, some.failed ? 0 : some.len);
    t->left = 0;
    t->cut = true;
}

static void put_statements(struct telling *t, struct json list)
{
    json_put_key(t->w, "body");
    json_open_list(t->w);
    for (struct json v = json_first(list); json_present(v) && !t->cut; v = json_next(v)) {
        size_t n;
        const char *text = json_text(v, &n);
        put_statement(t, text, n);
    }
    json_close_list(t->w);
}

/* Whole or not at all. */
static void put_value(struct telling *t, const char *key, struct json v)
{
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    json_put_value(&w, v);
    if (text.failed || text.len > t->left) {
        t->cut = true;
        return;
    }
    json_put_key(t->w, key);
    json_put_raw(t->w, text.data, text.len);
    t->left -= text.len;
}

static void put_members(struct telling *t, const char *key, struct json object)
{
    if (json_count(object) == 0)
        return;
    json_put_key(t->w, key);
    json_open_object(t->w);
    for (struct json v = json_first(object); json_present(v); v = json_next(v))
        put_value(t, json_key(v), v);
    json_close_object(t->w);
}

static void put(struct strb *out, struct json body, const char *arrays, size_t n, bool brief)
{
    struct json_writer w = JSON_WRITER(out);
    struct telling t = {&w, brief ? BRIEF : WHOLE, false};
    const struct json until = json_member(body, "until");
    json_open_object(&w);
    put_statements(&t, json_member(body, "body"));
    if (!brief) {
        put_members(&t, "bind", json_member(body, "bind"));
        put_members(&t, "record", json_member(body, "record"));
        if (json_present(until))
            put_value(&t, "until", until);
        json_put_key(&w, "arrays");
        json_put_raw(&w, arrays, n);
    }
    if (t.cut)
        json_put_member_bool(&w, "cut", true);
    json_close_object(&w);
}

enum err_code job_words_make(struct job_words *ret, const char *text, size_t n, const char *arrays,
                             size_t n_arrays, struct err *e)
{
    static const struct json_limits limits = {.max_depth = JSON_MAX_DEPTH, .max_nodes = UINT32_MAX};
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct err unread = ERR_INIT; /* such a program cannot be made again either */
    struct json body;
    if (!arena)
        return err_oom(e);
    const enum err_code code = json_parse(arena, text, n, &limits, &body, &unread);
    if (code == ERR_OUT_OF_MEMORY)
        return err_oom(e);
    if (code != ERR_OK)
        return ERR_OK;
    put(&ret->whole, body, arrays, n_arrays, false);
    put(&ret->brief, body, arrays, n_arrays, true);
    return ret->whole.failed || ret->brief.failed ? err_oom(e) : ERR_OK;
}

void job_words_clear(struct job_words *w)
{
    strb_free(&w->whole);
    strb_free(&w->brief);
}

void job_words_put(const struct job_words *words, enum job_telling telling, struct json_writer *w)
{
    const struct strb *text = telling == JOB_TELL_BRIEF ? &words->brief : &words->whole;
    if (telling == JOB_TELL_NOTHING || !text->len)
        return;
    json_put_key(w, "program");
    json_put_raw(w, text->data, text->len);
}
