/* The untyped tree's storage. Nodes, links and sources are arena arrays that grow by doubling: the
 * arena keeps the outgrown copies, at most as much again, until the request ends. */
#include "compute/lang/expr.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/strb.h"

#define EXPANSIONS_SAID 4 /* functions that an error names, at most */

void expr_init(struct expr *x, struct arena *arena, size_t max_nodes, int max_nesting)
{
    *x = (struct expr){
        .arena = arena, .root = EXPR_NOWHERE, .max_nodes = max_nodes, .max_nesting = max_nesting};
}

enum err_code expr_add_source(struct expr *x, const char *pointer, uint32_t *ret, struct err *e)
{
    char *copy = arena_strndup(x->arena, pointer, strlen(pointer));
    if (!copy || arena_grow(x->arena, (void **)&x->sources, &x->cap_sources, x->n_sources,
                            sizeof *x->sources))
        return err_oom(e);
    *ret = (uint32_t)x->n_sources;
    x->sources[x->n_sources++] = copy;
    return ERR_OK;
}

enum err_code expr_add(struct expr *x, const struct expr_node *node, const struct expr_link *links,
                       size_t n_links, size_t n_keywords, uint32_t *ret, struct err *e)
{
    if (x->n_nodes >= x->max_nodes || x->n_nodes >= EXPR_NOWHERE - 1)
        return err_at(e, ERR_EXPRESSION_TOO_LARGE, node->offset,
                      "the expression has more than %zu nodes", x->max_nodes);
    if (arena_grow(x->arena, (void **)&x->nodes, &x->cap_nodes, x->n_nodes, sizeof *x->nodes) ||
        (n_links && arena_grow(x->arena, (void **)&x->links, &x->cap_links,
                               x->n_links + n_links - 1, sizeof *x->links)))
        return err_oom(e);
    assert(n_keywords <= n_links);
    uint32_t id = (uint32_t)x->n_nodes++;
    struct expr_node *n = &x->nodes[id];
    *n = *node;
    n->first_arg = (uint32_t)x->n_links;
    n->n_args = (uint32_t)n_links;
    n->n_keywords = (uint32_t)n_keywords;
    n->parent = EXPR_NOWHERE;
    for (size_t i = 0; i < n_links; i++) {
        assert(links[i].node < id); /* post-order */
        struct expr_node *child = &x->nodes[links[i].node];
        x->links[x->n_links++] = links[i];
        if (child->expansion == n->expansion)
            child->parent = id;
    }
    *ret = id;
    return ERR_OK;
}

/* The number of an appended node, or of what takes its place. */
static uint32_t swapped(const uint32_t *swaps, uint32_t node, uint32_t first)
{
    return swaps && swaps[node] != EXPR_NOWHERE ? swaps[node] : node + first;
}

/* Grows by doubling, so that many appends together cost no more than what they append. */
static bool append_array(struct arena *arena, void **to, size_t *n, size_t *cap, const void *from,
                         size_t n_from, size_t size)
{
    if (!n_from)
        return true;
    if (arena_grow(arena, to, cap, *n + n_from - 1, size))
        return false;
    memcpy((char *)*to + *n * size, from, n_from * size);
    *n += n_from;
    return true;
}

enum err_code expr_append(struct expr *x, const struct expr *from, const uint32_t *swaps,
                          uint32_t *ret, struct err *e)
{
    const uint32_t node = (uint32_t)x->n_nodes, link = (uint32_t)x->n_links,
                   source = (uint32_t)x->n_sources, expansion = (uint32_t)x->n_expansions;
    struct arena *a = x->arena;
    if (x->n_nodes + from->n_nodes > x->max_nodes)
        return err_set(e, ERR_EXPRESSION_TOO_LARGE,
                       "with everything it uses expanded, the expression has more than %zu nodes",
                       x->max_nodes);
    if (!append_array(a, (void **)&x->nodes, &x->n_nodes, &x->cap_nodes, from->nodes, from->n_nodes,
                      sizeof *x->nodes) ||
        !append_array(a, (void **)&x->links, &x->n_links, &x->cap_links, from->links, from->n_links,
                      sizeof *x->links) ||
        !append_array(a, (void **)&x->sources, &x->n_sources, &x->cap_sources, from->sources,
                      from->n_sources, sizeof *x->sources) ||
        !append_array(a, (void **)&x->expansions, &x->n_expansions, &x->cap_expansions,
                      from->expansions, from->n_expansions, sizeof *x->expansions))
        return err_oom(e);
    for (size_t i = node; i < x->n_nodes; i++) {
        struct expr_node *n = &x->nodes[i];
        n->first_arg += link;
        n->source += source;
        n->expansion += n->expansion ? expansion : 0;
        n->parent += n->parent == EXPR_NOWHERE ? 0 : node;
        if (swaps && swaps[i - node] != EXPR_NOWHERE)
            n->kind = EXPR_NONE; /* no node refers to it any more */
    }
    for (size_t i = link; i < x->n_links; i++)
        x->links[i].node = swapped(swaps, x->links[i].node, node);
    for (size_t i = expansion; i < x->n_expansions; i++)
        x->expansions[i].call += node;
    *ret = swapped(swaps, from->root, node);
    return ERR_OK;
}

enum err_code expr_add_let(struct expr *x, const char *name, uint32_t node, struct err *e)
{
    char *copy = arena_strndup(x->arena, name, strlen(name));
    if (!copy || arena_grow(x->arena, (void **)&x->lets, &x->cap_lets, x->n_lets, sizeof *x->lets))
        return err_oom(e);
    x->lets[x->n_lets++] = (struct expr_let){.name = copy, .node = node};
    return ERR_OK;
}

/* Writes the source's pointer and the steps from the root to `node`. If the whole path does not
 * fit, names the deepest ancestor that does: a shorter pointer is still correct. */
static void node_pointer(const struct expr *x, uint32_t node, char *buf, size_t n)
{
    const struct expr_node *at = &x->nodes[node];
    const char *base = at->source < x->n_sources ? x->sources[at->source] : "";
    if ((size_t)snprintf(buf, n, "%s", base) >= n) {
        buf[0] = '\0';
        return;
    }
    if (at->offset >= 0)
        return;
    size_t len = strlen(base), need = len;
    for (uint32_t i = node; i != EXPR_NOWHERE; i = x->nodes[i].parent)
        if (x->nodes[i].step)
            need += strlen(x->nodes[i].step) + 1;
    /* from the leaf up, each step's position is known from the total; steps past the end are
     * dropped */
    size_t cut = len;
    for (uint32_t i = node; i != EXPR_NOWHERE; i = x->nodes[i].parent) {
        const char *step = x->nodes[i].step;
        if (!step)
            continue;
        size_t k = strlen(step), begin = need - k - 1;
        if (need < n) {
            buf[begin] = '/';
            memcpy(buf + begin + 1, step, k);
            if (need > cut)
                cut = need;
        }
        need = begin;
    }
    buf[cut] = '\0';
}

/* " (in function 'f', at offset 3 of /expr; called in 'g', …)", the innermost first. */
static void say_expansions(const struct expr *x, uint32_t node, struct strb *out)
{
    char pointer[sizeof((struct err *)0)->pointer];
    const char *what = " (in function";
    int n = 0;
    uint32_t k = x->nodes[node].expansion;
    for (; k && n < EXPANSIONS_SAID; n++) {
        node_pointer(x, node, pointer, sizeof pointer);
        strb_addf(out, "%s '%s', at ", what, x->expansions[k - 1].function);
        if (x->nodes[node].offset >= 0)
            strb_addf(out, "offset %ld of its %s", x->nodes[node].offset, pointer);
        else
            strb_addf(out, "its %s", pointer);
        node = x->expansions[k - 1].call;
        k = x->nodes[node].expansion;
        what = "; called in";
    }
    strb_add(out, k ? "; and so on)" : n ? ")" : "");
}

enum err_code expr_err(const struct expr *x, uint32_t node, struct err *e, enum err_code code,
                       const char *fmt, ...)
{
    if (!e)
        return code;
    char text[sizeof e->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (node >= x->n_nodes)
        return err_set(e, code, "%s", text);
    _cleanup_strb_ struct strb within = {0};
    say_expansions(x, node, &within);
    while (x->nodes[node].expansion)
        node = x->expansions[x->nodes[node].expansion - 1].call;
    err_at(e, code, x->nodes[node].offset, "%s%s", text,
           within.data && !strstr(text, within.data) ? within.data : "");
    node_pointer(x, node, e->pointer, sizeof e->pointer);
    return code;
}

uint32_t expr_keyword(const struct expr *x, const struct expr_node *call, const char *keyword)
{
    const struct expr_link *l = expr_args(x, call);
    for (uint32_t i = call->n_args - call->n_keywords; i < call->n_args; i++)
        if (strcmp(l[i].keyword, keyword) == 0)
            return l[i].node;
    return EXPR_NOWHERE;
}
