/* What a job computes, for those who look at it: its program as it was sent, cut where it is long.
 * An ended job has no program any more, and a job of another process may never have had one: the
 * words are made from the request's body at the beginning, and are as long as the job is there. */
#include <string.h>

#include "compute/base/arena.h"
#include "server/jobs/jobs_int.h"

#define WHOLE 4096 /* bytes of JSON that are told of a program, */
#define BRIEF 120  /* and of its statements in lists */
#define CUT   "…"
/* What is there in any case, or is not counted below. */
#define FRAME "{\"body\":[\"" CUT "\",],\"bind\":{},\"record\":{},\"arrays\":[],\"cut\":true}"

struct telling {
    struct json_writer *w;
    size_t left; /* bytes */
    bool cut;
};

/* How many bytes of the text take at most so many in JSON, whole characters of it. */
static size_t fitting(const char *text, size_t n, size_t room)
{
    size_t k = 0;
    for (size_t c = utf8_length(text, n); c; c = utf8_length(text + k, n - k)) {
        const bool plain = (unsigned char)text[k] >= ' ' && text[k] != 0x7F;
        const bool two = memchr("\"\\\n\t", text[k], 4);
        const size_t takes = two ? 2 : plain ? c : sizeof "\\u0000" - 1;
        if (takes > room)
            break;
        room -= takes;
        k += c;
    }
    return k;
}

static void put_statement(struct telling *t, const char *text, size_t n)
{
    const size_t around = sizeof "\"\"," - 1, start = t->w->out->len;
    const size_t k = fitting(text, n, t->left > around ? t->left - around : 0);
    if (k == n && t->left >= around) {
        json_put_stringn(t->w, text, n);
        t->left -= t->w->out->len - start;
        return;
    }
    _cleanup_strb_ struct strb some = {0};
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

/* A member, or an element (key NULL): whole or not at all. */
static void put_value(struct telling *t, const char *key, struct json v)
{
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    if (key)
        json_put_key(&w, key);
    json_put_value(&w, v);
    if (text.failed || text.len + 1 > t->left) { /* and a comma */
        t->cut = true;
        return;
    }
    json_put_raw(t->w, text.data, text.len);
    t->left -= text.len + 1;
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

static void put(struct strb *out, struct json body, struct json arrays, bool brief)
{
    struct json_writer w = JSON_WRITER(out);
    struct telling t = {&w, brief ? BRIEF : WHOLE - sizeof FRAME, false};
    const struct json until = json_member(body, "until");
    json_open_object(&w);
    put_statements(&t, json_member(body, "body"));
    if (!brief) {
        put_members(&t, "bind", json_member(body, "bind"));
        put_members(&t, "record", json_member(body, "record"));
        if (json_present(until))
            put_value(&t, "until", until);
        json_put_key(&w, "arrays");
        json_open_list(&w);
        for (struct json v = json_first(arrays); json_present(v); v = json_next(v))
            put_value(&t, NULL, v);
        json_close_list(&w);
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
    struct json body, targets;
    if (!arena)
        return err_oom(e);
    enum err_code code = json_parse(arena, text, n, &limits, &body, &unread);
    if (code == ERR_OK)
        code = json_parse(arena, arrays, n_arrays, &limits, &targets, &unread);
    if (code == ERR_OUT_OF_MEMORY)
        return err_oom(e);
    if (code != ERR_OK)
        return ERR_OK;
    put(&ret->whole, body, targets, false);
    put(&ret->brief, body, targets, true);
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
    json_put_key(w, words->kind ? words->kind : "program");
    json_put_raw(w, text->data, text->len);
}
