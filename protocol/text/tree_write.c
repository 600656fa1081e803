/* The writing half of tree.h; see tree.c. */
#include <math.h>
#include <string.h>

#include "protocol/number/numtext.h"
#include "protocol/text/index.h"
#include "protocol/text/tree.h"

struct frame {
    const struct expr_node *node;
    const struct expr_link *links;
    uint32_t n, n_keywords, next;
};

struct writer {
    const struct expr *x;
    struct arena *arena;
    struct json_writer *w;
    struct frame *stack;
    size_t n, cap;
    struct err *e;
};

static bool beyond_exact(__int128 i)
{
    const __int128 max = (__int128)1 << 53;
    return i > max || i < -max;
}

static size_t integer_text(__int128 i, char *buf)
{
    unsigned __int128 u = i < 0 ? 0 - (unsigned __int128)i : (unsigned __int128)i;
    char tmp[40];
    size_t n = sizeof tmp, len = 0;
    do {
        tmp[--n] = (char)('0' + (int)(u % 10));
        u /= 10;
    } while (u);
    if (i < 0)
        buf[len++] = '-';
    memcpy(buf + len, tmp + n, sizeof tmp - n);
    return len + sizeof tmp - n;
}

static void put_const(struct json_writer *w, const struct literal *l, const char *dtype)
{
    char text[48];
    json_open_object(w);
    json_put_member_string(w, "op", "const");
    json_put_key(w, "value");
    switch (l->kind) {
    case LIT_BOOL:
        json_put_bool(w, l->i != 0);
        break;
    case LIT_INT:
        if (beyond_exact(l->i))
            json_put_stringn(w, text, integer_text(l->i, text));
        else
            json_put_i64(w, (int64_t)l->i);
        break;
    case LIT_FLOAT:
        json_put_double(w, l->re);
        break;
    case LIT_COMPLEX:
        json_open_list(w);
        json_put_double(w, l->re);
        json_put_double(w, l->im);
        json_close_list(w);
        break;
    }
    if (dtype)
        json_put_member_string(w, "dtype", dtype);
    json_close_object(w);
}

static void put_literal(struct json_writer *w, const struct literal *l)
{
    if (l->kind == LIT_BOOL)
        json_put_bool(w, l->i != 0);
    else if (l->kind == LIT_INT && !beyond_exact(l->i))
        json_put_i64(w, (int64_t)l->i);
    else if (l->kind == LIT_FLOAT && isfinite(l->re))
        json_put_double(w, l->re);
    else
        put_const(w, l, NULL);
}

static bool is_variadic(const char *name)
{
    static const char *const names[] = {"add",         "multiply",    "maximum",
                                        "minimum",     "logical_and", "logical_or",
                                        "bitwise_and", "bitwise_or",  "bitwise_xor"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The node below `node` on the left, when both are one chain of a variadic operation. */
static const struct expr_node *chained(const struct expr *x, const struct expr_node *node)
{
    if (node->kind != EXPR_CALL || node->n_args < 2 || node->n_keywords || !is_variadic(node->name))
        return NULL;
    const struct expr_node *left = &x->nodes[x->links[node->first_arg].node];
    return left->kind == EXPR_CALL && left->n_args >= 2 && !left->n_keywords &&
                   strcmp(left->name, node->name) == 0
               ? left
               : NULL;
}

/* Begins a node with children: its opening text, and a frame for the rest. */
static enum err_code push(struct writer *t, const struct expr_node *node)
{
    const struct expr *x = t->x;
    struct frame f = {.node = node,
                      .links = expr_args(x, node),
                      .n = node->n_args,
                      .n_keywords = node->n_keywords};
    if (chained(x, node)) { /* a left fold: the arguments from its far end up */
        const struct expr_node *at;
        for (f.n = 1, at = node; at; at = chained(x, at))
            f.n += at->n_args - 1;
        struct expr_link *all = arena_alloc_array(t->arena, f.n, sizeof *all);
        if (!all)
            return err_oom(t->e);
        uint32_t end = f.n;
        for (at = node; at; at = chained(x, at)) {
            uint32_t skip = chained(x, at) ? 1 : 0;
            end -= at->n_args - skip;
            memcpy(all + end, x->links + at->first_arg + skip, (at->n_args - skip) * sizeof *all);
        }
        f.links = all;
    }
    void *stack = t->stack;
    if (arena_grow(t->arena, &stack, &t->cap, t->n, sizeof *t->stack))
        return err_oom(t->e);
    t->stack = stack;
    t->stack[t->n++] = f;
    if (node->kind != EXPR_LIST) {
        json_open_object(t->w);
        json_put_member_string(t->w, "op", node->kind == EXPR_CALL ? node->name : "getitem");
        json_put_key(t->w, "args");
    }
    json_open_list(t->w);
    return ERR_OK;
}

static enum err_code begin(struct writer *t, const struct expr_node *node)
{
    struct literal lit;
    switch (node->kind) {
    case EXPR_LITERAL:
        put_literal(t->w, &node->lit);
        return ERR_OK;
    case EXPR_TYPED:
        lit = literal_from_scalar(node->typed);
        put_const(t->w, &lit, dtype_name(node->typed.dtype));
        return ERR_OK;
    case EXPR_NONE:
        json_put_null(t->w);
        return ERR_OK;
    case EXPR_STRING:
    case EXPR_NAME:
        json_put_string(t->w, node->name);
        return ERR_OK;
    case EXPR_CALL:
    case EXPR_LIST:
    case EXPR_GETITEM:
        break;
    }
    return push(t, node);
}

static void finish(struct writer *t, const struct frame *f)
{
    if (f->node->kind == EXPR_LIST) {
        json_close_list(t->w);
        return;
    }
    if (f->n_keywords == 0)
        json_close_list(t->w);
    if (f->node->kind == EXPR_GETITEM) {
        _cleanup_strb_ struct strb text = {0};
        index_print(f->node->index, &text);
        json_put_member_string(t->w, "index", text.data ? text.data : "");
        t->w->out->failed |= text.failed;
    }
    json_close_object(t->w);
}

enum err_code tree_write(const struct expr *x, uint32_t root, struct arena *arena,
                         struct json_writer *w, struct err *e)
{
    struct writer t = {.x = x, .arena = arena, .w = w, .e = e};
    enum err_code code = begin(&t, &x->nodes[root]);
    while (code == ERR_OK && t.n > 0) {
        struct frame *f = &t.stack[t.n - 1];
        if (f->next == f->n) {
            finish(&t, f);
            t.n--;
            continue;
        }
        const struct expr_link *l = &f->links[f->next];
        if (f->n_keywords && f->next == f->n - f->n_keywords)
            json_close_list(w);
        if (l->keyword)
            json_put_key(w, l->keyword);
        f->next++;
        code = begin(&t, &x->nodes[l->node]);
    }
    return code;
}
