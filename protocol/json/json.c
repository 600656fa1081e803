/* One pass over the text: the grammar is checked, nodes are appended, strings decoded in place in
 * the document's own copy. Open containers are kept on an explicit stack, so nesting costs no C
 * stack. Members are looked up linearly (request objects have a dozen) but duplicates are found by
 * sorting in large objects, so that hostile ones cost n log n. */
#include "protocol/json/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/json/json_doc.h"
#include "protocol/json/json_lex.h"

struct frame {
    uint32_t node, last_child;
};

struct scan {
    struct arena *arena;
    struct json_doc *doc;
    char *s;
    size_t i, n;
    struct json_limits limits;
    struct frame *stack;
    uint32_t depth;
    size_t hole_at, hole_len; /* bytes sent by the client but left out of the text */
    struct err *e;
};

/* A position in the text as sent by the client. */
static size_t shown(const struct scan *c, size_t at)
{
    return at >= c->hole_at ? at + c->hole_len : at;
}

static enum err_code malformed(struct scan *c, size_t at, const char *why)
{
    return err_set(c->e, ERR_BAD_JSON, "malformed JSON at byte %zu: %s", shown(c, at), why);
}

static enum err_code add(struct scan *c, enum json_kind kind, size_t pos, size_t len, int flags)
{
    struct json_doc *d = c->doc;
    if (d->n_nodes >= c->limits.max_nodes)
        return err_set(c->e, ERR_TOO_LARGE, "the JSON text has more than %u values",
                       c->limits.max_nodes);
    void *nodes = d->nodes;
    if (arena_grow(c->arena, &nodes, &d->cap_nodes, d->n_nodes, sizeof *d->nodes))
        return err_oom(c->e);
    d->nodes = nodes;
    bool open = kind == JSON_LIST || kind == JSON_OBJECT;
    d->nodes[d->n_nodes] = (struct json_node){
        .pos = (uint32_t)pos,
        .len = (uint32_t)len,
        .next = open ? UINT32_MAX : (uint32_t)d->n_nodes + 1,
        .kind = (uint8_t)kind,
        .flags = (uint8_t)flags,
    };
    if (c->depth > 0 && !(flags & JSON_IS_KEY)) {
        struct frame *f = &c->stack[c->depth - 1];
        f->last_child = (uint32_t)d->n_nodes;
        d->nodes[f->node].len++;
    }
    d->n_nodes++;
    return ERR_OK;
}

static void skip_space(struct scan *c)
{
    while (c->i < c->n && json_lex_space(c->s[c->i]))
        c->i++;
}

static char peek(const struct scan *c)
{
    return c->i < c->n ? c->s[c->i] : '\0';
}

/* At an opening quote. */
static enum err_code scan_string(struct scan *c, int flags)
{
    size_t start = c->i + 1, used, len = 0;
    const char *why;
    enum json_lex l = json_lex_string(c->s + start, c->n - start, &used, &len, &why);
    if (l == JSON_LEX_MALFORMED)
        return malformed(c, start + used, why);
    if (l == JSON_LEX_UNUSABLE) {
        char at[JSON_POINTER_MAX];
        TRY(add(c, JSON_STRING, start, 0, flags));
        json_pointer(c->doc, (uint32_t)c->doc->n_nodes - 1, at);
        return err_field(c->e, ERR_BAD_FIELD, at, "%s at byte %zu", why, shown(c, start + used));
    }
    c->i = start + used;
    return add(c, JSON_STRING, start, len, flags);
}

static enum err_code scan_word(struct scan *c, int flags)
{
    static const struct {
        const char *text;
        enum json_kind kind;
        uint32_t value;
    } words[] = {{"true", JSON_BOOL, 1}, {"false", JSON_BOOL, 0}, {"null", JSON_NULL, 0}};
    for (size_t k = 0; k < 3; k++) {
        size_t len = strlen(words[k].text);
        if (c->n - c->i >= len && memcmp(c->s + c->i, words[k].text, len) == 0) {
            size_t pos = c->i;
            c->i += len;
            return add(c, words[k].kind, pos, words[k].value, flags);
        }
    }
    return malformed(c, c->i, c->i >= c->n ? "the text ends too early" : "a value was expected");
}

static enum err_code push(struct scan *c, enum json_kind kind, int flags)
{
    if (c->depth >= c->limits.max_depth)
        return malformed(c, c->i, "nested too deeply");
    TRY(add(c, kind, c->i, 0, flags));
    c->stack[c->depth++] = (struct frame){(uint32_t)c->doc->n_nodes - 1, UINT32_MAX};
    c->i++;
    return ERR_OK;
}

static int compare_names(const struct json_doc *d, uint32_t a, uint32_t b)
{
    const struct json_node *x = &d->nodes[a], *y = &d->nodes[b];
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(d->text + x->pos, d->text + y->pos, x->len);
}

static int compare_for_sort(const void *pa, const void *pb, void *user)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    int c = compare_names(user, a, b);
    return c ? c : (a > b) - (a < b);
}

static enum err_code duplicate(struct scan *c, uint32_t key)
{
    const struct json_node *k = &c->doc->nodes[key];
    return err_set(c->e, ERR_BAD_JSON, "the member \"%.*s\" at byte %zu is given twice",
                   (int)(k->len > 100 ? 100 : k->len), c->doc->text + k->pos, shown(c, k->pos - 1));
}

static enum err_code check_duplicates(struct scan *c, uint32_t object)
{
    const struct json_doc *d = c->doc;
    uint32_t count = d->nodes[object].len, few[16];
    if (count < 2)
        return ERR_OK;
    _cleanup_free_ uint32_t *many = NULL;
    uint32_t *keys = few;
    if (count > 16) {
        keys = many = mem_reallocarray(NULL, count, sizeof *many);
        if (!many)
            return err_oom(c->e);
    }
    uint32_t n = 0;
    for (uint32_t k = object + 1; n < count; k = d->nodes[k + 1].next)
        keys[n++] = k;
    if (count <= 16) {
        for (uint32_t a = 1; a < count; a++)
            for (uint32_t b = 0; b < a; b++)
                if (compare_names(d, keys[a], keys[b]) == 0)
                    return duplicate(c, keys[a]);
        return ERR_OK;
    }
    qsort_r(keys, count, sizeof *keys, compare_for_sort, c->doc);
    for (uint32_t a = 1; a < count; a++)
        if (compare_names(d, keys[a], keys[a - 1]) == 0)
            return duplicate(c, keys[a]);
    return ERR_OK;
}

static enum err_code pop(struct scan *c)
{
    struct frame f = c->stack[--c->depth];
    struct json_node *node = &c->doc->nodes[f.node];
    node->next = (uint32_t)c->doc->n_nodes;
    if (f.last_child != UINT32_MAX)
        c->doc->nodes[f.last_child].flags |= JSON_IS_LAST;
    c->i++;
    return node->kind == JSON_OBJECT ? check_duplicates(c, f.node) : ERR_OK;
}

/* A member's name and the colon; the scan then stands at the value. */
static enum err_code scan_name(struct scan *c)
{
    skip_space(c);
    if (peek(c) != '"')
        return malformed(c, c->i, "a member's name in double quotes was expected");
    TRY(scan_string(c, JSON_IS_KEY));
    skip_space(c);
    if (peek(c) != ':')
        return malformed(c, c->i, "':' was expected");
    c->i++;
    return ERR_OK;
}

/* One value; *ret_opened: it is a non-empty container, still open. */
static enum err_code scan_value(struct scan *c, bool *ret_opened)
{
    int flags = c->depth > 0 && c->doc->nodes[c->stack[c->depth - 1].node].kind == JSON_OBJECT
                    ? JSON_IS_MEMBER
                    : 0;
    *ret_opened = false;
    skip_space(c);
    char ch = peek(c);
    if (ch == '[' || ch == '{') {
        TRY(push(c, ch == '[' ? JSON_LIST : JSON_OBJECT, flags));
        skip_space(c);
        if (peek(c) == (ch == '[' ? ']' : '}') && c->i < c->n)
            return pop(c);
        *ret_opened = true;
        return ch == '{' ? scan_name(c) : ERR_OK;
    }
    if (ch == '"')
        return scan_string(c, flags);
    if (ch == '-' || (ch >= '0' && ch <= '9')) {
        size_t bad, start = c->i;
        const char *why;
        size_t len = json_lex_number(c->s + start, c->n - start, &bad, &why);
        if (len == 0)
            return malformed(c, start + bad, why);
        c->i += len;
        return add(c, JSON_NUMBER, start, len, flags);
    }
    return scan_word(c, flags);
}

static enum err_code scan_text(struct scan *c)
{
    if (c->n >= 3 && memcmp(c->s, "\xEF\xBB\xBF", 3) == 0)
        return malformed(c, 0, "a byte-order mark is not allowed before JSON");
    for (;;) {
        bool opened;
        TRY(scan_value(c, &opened));
        if (opened)
            continue;
        /* after a value: a comma and the next one, or the ends of containers */
        for (;;) {
            if (c->depth == 0) {
                skip_space(c);
                return c->i == c->n ? ERR_OK : malformed(c, c->i, "there is text after the value");
            }
            skip_space(c);
            bool object = c->doc->nodes[c->stack[c->depth - 1].node].kind == JSON_OBJECT;
            char ch = peek(c);
            if (ch == ',') {
                c->i++;
                TRY(object ? scan_name(c) : ERR_OK);
                break;
            }
            if (c->i >= c->n || ch != (object ? '}' : ']'))
                return malformed(c, c->i,
                                 c->i >= c->n ? "the text ends too early"
                                 : object     ? "',' or '}' was expected"
                                              : "',' or ']' was expected");
            TRY(pop(c));
        }
    }
}

enum err_code json_parse(struct arena *arena, const char *text, size_t n,
                         const struct json_limits *limits, struct json *ret, struct err *e)
{
    return json_parse_around(arena, text, n, SIZE_MAX, 0, limits, ret, e);
}

enum err_code json_parse_around(struct arena *arena, const char *text, size_t n, size_t hole_at,
                                size_t hole_len, const struct json_limits *limits, struct json *ret,
                                struct err *e)
{
    if (n > INT32_MAX)
        return err_set(e, ERR_TOO_LARGE, "the JSON text is larger than 2 GiB");
    struct scan c = {
        .arena = arena,
        .n = n,
        .limits = limits ? *limits : (struct json_limits){JSON_MAX_DEPTH, JSON_MAX_NODES},
        .hole_at = hole_at,
        .hole_len = hole_len,
        .e = e,
    };
    c.doc = arena_alloc(arena, sizeof *c.doc);
    c.s = arena_alloc(arena, n + 1);
    c.stack = arena_alloc_array(arena, c.limits.max_depth, sizeof *c.stack);
    if (!c.doc || !c.s || !c.stack)
        return err_oom(e);
    if (n)
        memcpy(c.s, text, n);
    c.doc->text = c.s;
    TRY(scan_text(&c));
    c.doc->nodes[0].flags |= JSON_IS_LAST;
    *ret = (struct json){c.doc, 0};
    return ERR_OK;
}

bool json_pointer_add(char *buf, const char *token, size_t n)
{
    size_t start = strlen(buf), at = start;
    if (at + 1 >= JSON_POINTER_MAX)
        return false;
    buf[at++] = '/';
    for (size_t i = 0; i < n; i++) {
        const char *esc = token[i] == '~' ? "~0" : token[i] == '/' ? "~1" : NULL;
        if (at + 2 >= JSON_POINTER_MAX) {
            buf[start] = '\0';
            return false;
        }
        if (esc) {
            buf[at++] = esc[0];
            buf[at++] = esc[1];
        } else {
            buf[at++] = token[i];
        }
    }
    buf[at] = '\0';
    return true;
}

void json_pointer(const struct json_doc *doc, uint32_t node, char *buf)
{
    buf[0] = '\0';
    uint32_t cur = 0;
    while (cur != node) {
        bool object = doc->nodes[cur].kind == JSON_OBJECT;
        uint32_t child = cur + 1;
        size_t index = 0;
        if (object && node == child)
            return; /* a name: the error's place is its object */
        for (;;) {
            uint32_t value = object ? child + 1 : child;
            if (object && node == child)
                return;
            if (node < doc->nodes[value].next) {
                char number[24];
                bool fits;
                if (object) {
                    const struct json_node *k = &doc->nodes[child];
                    fits = json_pointer_add(buf, doc->text + k->pos, k->len);
                } else {
                    int len = snprintf(number, sizeof number, "%zu", index);
                    fits = json_pointer_add(buf, number, (size_t)len);
                }
                if (!fits)
                    return;
                cur = value;
                break;
            }
            child = doc->nodes[value].next;
            index++;
        }
    }
}
