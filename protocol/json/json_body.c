/* The splitter parses just enough JSON to find where a member of the outermost object begins:
 * strings, escapes and nesting depth. The text it passes on is checked by json_parse at the end,
 * with `null` in place of the streamed value (so a second "data" is found as a duplicate), and
 * positions in messages are corrected for the removed bytes. */
#include "protocol/json/json_body.h"

#include <string.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "protocol/json/json_doc.h"
#include "protocol/json/json_lex.h"

#define TEXT_MAX ((size_t)16 << 20)

struct json_body {
    struct json_body_limits limits;
    struct strb text;
    uint64_t position; /* bytes taken so far */
    int64_t depth;
    bool object; /* the outermost value is an object */
    bool in_string, escaped, streaming;
    size_t name_at, name_len; /* the last string read at depth 1: its position in text */
    struct json_array *data;
    uint64_t data_at;
    size_t hole_at, hole_len;
};

struct json_body *json_body_new(const struct json_body_limits *limits)
{
    struct json_body *b = mem_calloc(1, sizeof *b);
    if (!b)
        return NULL;
    if (limits)
        b->limits = *limits;
    if (!b->limits.max_text)
        b->limits.max_text = TEXT_MAX;
    if (!b->limits.json.max_depth)
        b->limits.json.max_depth = JSON_MAX_DEPTH;
    if (!b->limits.json.max_nodes)
        b->limits.json.max_nodes = JSON_MAX_NODES;
    b->hole_at = SIZE_MAX;
    return b;
}

void json_body_free(struct json_body *b)
{
    if (!b)
        return;
    json_array_free(b->data);
    strb_free(&b->text);
    mem_free(b);
}

static enum err_code add_text(struct json_body *b, const char *p, size_t n, struct err *e)
{
    if (n > b->limits.max_text - b->text.len)
        return err_set(e, ERR_TOO_LARGE,
                       "the JSON text (not counting array data) exceeds %zu bytes: send large data "
                       "as application/octet-stream or application/x-npy",
                       b->limits.max_text);
    strb_addn(&b->text, p, n);
    return b->text.failed ? err_oom(e) : ERR_OK;
}

/* Whether the last string at depth 1 is "data", with or without escapes. */
static bool names_data(const struct json_body *b)
{
    char name[32];
    size_t used, len;
    const char *why;
    if (b->name_len + 1 > sizeof name)
        return false;
    memcpy(name, b->text.data + b->name_at, b->name_len);
    name[b->name_len] = '"';
    return json_lex_string(name, b->name_len + 1, &used, &len, &why) == JSON_LEX_OK &&
           strcmp(name, "data") == 0;
}

/* The dtype if its member came before `data`, else -1. */
static enum err_code dtype_so_far(struct json_body *b, int *ret, struct err *e)
{
    size_t n = b->name_at - 1; /* up to the quote */
    while (n > 0 && json_lex_space(b->text.data[n - 1]))
        n--;
    if (n > 0 && b->text.data[n - 1] == ',')
        n--;
    _cleanup_strb_ struct strb text = {0};
    strb_addn(&text, b->text.data, n);
    strb_addc(&text, '}');
    _cleanup_arena_ struct arena *arena = arena_new(0);
    if (text.failed || !arena)
        return err_oom(e);
    struct json doc;
    TRY(json_parse(arena, text.data, text.len, &b->limits.json, &doc, e));
    struct json v = json_member(doc, "dtype");
    enum dtype t;
    *ret = -1;
    if (!json_given(v))
        return ERR_OK;
    enum err_code code = json_get_dtype(v, &t, e);
    if (code == ERR_OK)
        *ret = (int)t;
    return code;
}

/* After the colon of `data`. */
static enum err_code begin_data(struct json_body *b, struct err *e)
{
    int dtype = -1;
    TRY(dtype_so_far(b, &dtype, e));
    b->data = json_array_new(dtype, b->limits.max_data_bytes);
    if (!b->data)
        return err_oom(e);
    json_array_start_at(b->data, b->position);
    b->data_at = b->position;
    b->streaming = true;
    return ERR_OK;
}

static enum err_code end_data(struct json_body *b, struct err *e)
{
    b->streaming = false;
    enum err_code code = add_text(b, "null", 4, e);
    b->hole_at = b->text.len;
    b->hole_len = (size_t)(b->position - b->data_at) - 4;
    return code;
}

/* Text outside `data`: up to the end or to the colon after its name. */
static enum err_code split(struct json_body *b, const char *p, size_t n, size_t *ret_used,
                           struct err *e)
{
    size_t i = 0, base = b->text.len;
    bool found = false;
    while (i < n && !found) {
        char c = p[i++];
        if (b->in_string) {
            if (b->escaped) {
                b->escaped = false;
            } else if (c == '\\') {
                b->escaped = true;
            } else if (c == '"') {
                b->in_string = false;
                if (b->depth == 1)
                    b->name_len = base + i - 1 - b->name_at;
            }
        } else if (c == '"') {
            b->in_string = true;
            if (b->depth == 1)
                b->name_at = base + i;
        } else if (c == '{' || c == '[') {
            if (b->depth++ == 0)
                b->object = c == '{';
        } else if (c == '}' || c == ']') {
            b->depth--;
        } else if (c == ':' && b->depth == 1 && b->object && !b->data && b->name_at > 0) {
            size_t have = b->text.len;
            TRY(add_text(b, p + (have - base), i - (have - base), e));
            found = names_data(b);
        }
    }
    size_t have = b->text.len - base; /* added above, at a colon */
    *ret_used = i;
    b->position += i;
    enum err_code code = add_text(b, p + have, i - have, e);
    return code || !found ? code : begin_data(b, e);
}

enum err_code json_body_feed(struct json_body *b, const char *p, size_t n, struct err *e)
{
    enum err_code code = ERR_OK;
    for (size_t i = 0, used; i < n && code == ERR_OK; i += used) {
        if (!b->streaming) {
            code = split(b, p + i, n - i, &used, e);
            continue;
        }
        bool done;
        code = json_array_feed(b->data, p + i, n - i, &used, &done, e);
        b->position += used;
        if (code != ERR_OK && e && code != ERR_BAD_JSON && code != ERR_OUT_OF_MEMORY)
            err_prefix(e, "/data");
        if (code == ERR_OK && done)
            code = end_data(b, e);
    }
    return code;
}

enum err_code json_body_finish(struct json_body *b, struct arena *arena, struct json *ret,
                               struct json_array **ret_data, struct err *e)
{
    if (b->streaming) /* the array or, after a number, the object does not end */
        return err_set(e, ERR_BAD_JSON, "malformed JSON at byte %llu: the text ends too early",
                       (unsigned long long)b->position);
    enum err_code code = json_parse_around(arena, b->text.data ? b->text.data : "", b->text.len,
                                           b->hole_at, b->hole_len, &b->limits.json, ret, e);
    if (code == ERR_OK)
        *ret_data = b->data;
    return code;
}
