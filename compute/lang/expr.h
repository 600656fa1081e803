/* The untyped expression tree: both spellings (infix text, JSON tree) are parsed into it.
 *
 * Nodes lie in one array in post-order: every child has a smaller index than its parent, so that
 * the passes over it are loops and a chain of 10,000 additions costs no stack. Built by
 * protocol/text/infix.c and protocol/text/tree.c, read by compute/check/check.c. All memory is the
 * request's arena; not thread-safe. */
#ifndef ARRAYD_EXPR_H
#define ARRAYD_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"

enum expr_kind {
    EXPR_LITERAL, /* weak number or True/False: lit */
    EXPR_TYPED,   /* {"op":"const"} with a dtype: typed */
    EXPR_NONE,    /* None / null */
    EXPR_STRING,  /* a quoted string argument: 'wrap', "float32": name */
    EXPR_NAME,    /* an array, let, bound scalar or constant, resolved by check: name */
    EXPR_CALL,   /* name(args…, key=…): operators arrive under their operation's name ("add") */
    EXPR_LIST,   /* [a, b] or (a, b): args */
    EXPR_GETITEM /* args[0] indexed by `index` */
};

#define EXPR_NOWHERE UINT32_MAX

struct expr_node {
    enum expr_kind kind;
    uint32_t first_arg, n_args; /* expr->links[first_arg …].node: positional, then keyword */
    uint32_t n_keywords;        /* of n_args, the last n_keywords are keyword arguments */
    const char *name;           /* NUL-terminated */
    struct literal lit;
    struct scalar typed;
    const struct index_spec *index;

    uint16_t depth;     /* nesting depth of the node: brackets, calls, unary operators and ** */
    uint32_t expansion; /* 0: the request's own; k: from expr->expansions[k - 1] */

    /* place in the request (or the function's definition), for errors */
    uint32_t source;  /* the text or tree it came from: expr->sources[source] */
    long offset;      /* infix: character (not byte) offset; trees: -1 */
    uint32_t parent;  /* trees: the parent node (EXPR_NOWHERE at the root), for the JSON pointer */
    const char *step; /* trees: reference token(s) from the parent: "args/0" */
};

struct expr_link {
    uint32_t node;
    const char *keyword; /* NULL when positional */
};

/* One "let" entry: name and the root of its expression; visible in later lets and the main
 * expression. */
struct expr_let {
    const char *name;
    uint32_t node;
};

/* A call of a user's function, replaced by its body (function.h). The call's own node stays, only
 * for its place: no computed node refers to it. */
struct expr_expansion {
    const char *function;
    uint32_t call;
};

struct expr {
    struct arena *arena;
    struct expr_node *nodes;
    size_t n_nodes, cap_nodes;
    struct expr_link *links;
    size_t n_links, cap_links;
    struct expr_let *lets;
    size_t n_lets, cap_lets;
    const char **sources; /* JSON pointers: "/expr", "/let/0/1", "/tree" */
    size_t n_sources, cap_sources;
    struct expr_expansion *expansions;
    size_t n_expansions, cap_expansions;
    uint32_t root;
    size_t max_nodes; /* limit: ERR_EXPRESSION_TOO_LARGE past it */
    int max_nesting;  /* limit of brackets, calls, unary operators and ** (parsers enforce it) */
};

/* A node's arguments; NULL if it has none. */
static inline const struct expr_link *expr_args(const struct expr *x, const struct expr_node *node)
{
    return node->n_args ? x->links + node->first_arg : NULL;
}

/* Prepares an empty expression; limits as in struct expr. */
void expr_init(struct expr *x, struct arena *arena, size_t max_nodes, int max_nesting);

/* Registers a source's JSON pointer (copied); its number goes into node.source. */
enum err_code expr_add_source(struct expr *x, const char *pointer, uint32_t *ret,
                              struct err *e) must_check;

/* Appends a node (copied) with its children; sets the `parent` of those of the same expansion.
 * Errors: ERR_EXPRESSION_TOO_LARGE past max_nodes, ERR_OUT_OF_MEMORY. */
enum err_code expr_add(struct expr *x, const struct expr_node *node, const struct expr_link *links,
                       size_t n_links, size_t n_keywords, uint32_t *ret, struct err *e) must_check;

/* Appends all nodes of another expression (in the same arena, or one that lives as long), without
 * its lets. `swaps`: by node of `from`, the node of `x` that takes its place, or EXPR_NOWHERE;
 * NULL: none. *ret is the number of its root. */
enum err_code expr_append(struct expr *x, const struct expr *from, const uint32_t *swaps,
                          uint32_t *ret, struct err *e) must_check;

enum err_code expr_add_let(struct expr *x, const char *name, uint32_t node,
                           struct err *e) must_check;

/* err_set with the place of a node: the source's pointer, then the offset (infix) or the path of
 * steps (tree). For a node expanded from a function, the place is the call's in the request, and
 * the message names the function and the place in it. */
enum err_code expr_err(const struct expr *x, uint32_t node, struct err *e, enum err_code code,
                       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Keyword argument of a call, or EXPR_NOWHERE. */
uint32_t expr_keyword(const struct expr *x, const struct expr_node *call, const char *keyword);
/* Whether the node names something: in a tree, strings do too. */
static inline bool expr_is_name(const struct expr_node *n)
{
    return n->kind == EXPR_NAME || (n->kind == EXPR_STRING && n->offset < 0);
}

#endif
