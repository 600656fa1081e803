/* Precedence climbing over infix_lex.c's tokens. Left-associative chains are loops, so 10,000
 * additions cost no stack; nested constructs (brackets, calls, indexing, unary operators, **)
 * recurse and count against x->max_nesting. Arguments of the calls being read are on one stack of
 * links, each call's on top of its caller's. */
#include "protocol/text/infix.h"

#include <stdbool.h>
#include <string.h>

#include "compute/base/strb.h"
#include "protocol/json/json_lex.h"
#include "protocol/text/index.h"
#include "protocol/text/infix_lex.h"

struct parser {
    struct infix_lex lex;
    struct token tok;
    struct expr *x;
    uint32_t source;
    int depth;
    struct expr_link *links;
    size_t n_links, cap_links;
    struct err *e;
};

enum { PREC_COMPARE, PREC_OR, PREC_XOR, PREC_AND, PREC_SHIFT, PREC_SUM, PREC_PRODUCT };

static const struct binary {
    const char *text, *name;
    int prec;
} binaries[] = {
    {"<", "less", PREC_COMPARE},
    {"<=", "less_equal", PREC_COMPARE},
    {">", "greater", PREC_COMPARE},
    {">=", "greater_equal", PREC_COMPARE},
    {"==", "equal", PREC_COMPARE},
    {"!=", "not_equal", PREC_COMPARE},
    {"|", "bitwise_or", PREC_OR},
    {"^", "bitwise_xor", PREC_XOR},
    {"&", "bitwise_and", PREC_AND},
    {"<<", "bitwise_left_shift", PREC_SHIFT},
    {">>", "bitwise_right_shift", PREC_SHIFT},
    {"+", "add", PREC_SUM},
    {"-", "subtract", PREC_SUM},
    {"*", "multiply", PREC_PRODUCT},
    {"/", "divide", PREC_PRODUCT},
    {"//", "floor_divide", PREC_PRODUCT},
    {"%", "remainder", PREC_PRODUCT},
};

static enum err_code binary_chain(struct parser *p, int min_prec, uint32_t *ret);
static enum err_code unary(struct parser *p, uint32_t *ret);

static enum err_code advance(struct parser *p)
{
    return infix_next(&p->lex, &p->tok);
}

static bool is_op(const struct parser *p, const char *text)
{
    return p->tok.kind == TOK_OP && p->tok.len == strlen(text) &&
           memcmp(p->tok.start, text, p->tok.len) == 0;
}

static bool is_word(const struct parser *p, const char *text)
{
    return p->tok.kind == TOK_NAME && p->tok.len == strlen(text) &&
           memcmp(p->tok.start, text, p->tok.len) == 0;
}

/* The first byte that is not white space after the current token. */
static const char *behind(const struct parser *p)
{
    const char *q = p->lex.p;
    while (q < p->lex.end && json_lex_space(*q))
        q++;
    return q;
}

static bool followed_by(const struct parser *p, const char *text)
{
    const char *q = behind(p);
    size_t n = strlen(text);
    return (size_t)(p->lex.end - q) >= n && memcmp(q, text, n) == 0;
}

static enum err_code bad(struct parser *p, const char *why)
{
    return err_at(p->e, ERR_BAD_EXPRESSION, p->tok.offset, "%s", why);
}

/* The current token is not allowed here: gives the likeliest reason. */
static enum err_code unexpected(struct parser *p, const char *wanted)
{
    static const struct {
        const char *word, *advice;
    } reserved[] = {
        {"and", "there is no \"and\": write & between comparisons in brackets, (a > 0) & (b > 0)"},
        {"or", "there is no \"or\": write | between comparisons in brackets, (a > 0) | (b > 0)"},
        {"not", "there is no \"not\": write ~ before the comparison in brackets, ~(a > 0)"},
        {"in", "there is no \"in\": compare with == and join with |"},
        {"is", "there is no \"is\": write == or isnan(x)"},
        {"if", "there is no \"if\": write where(condition, x, y)"},
        {"else", "there is no \"else\": write where(condition, x, y)"},
        {"for", "there are no loops: expressions work on whole arrays"},
        {"lambda", "there is no \"lambda\""},
    };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (is_word(p, reserved[i].word))
            return bad(p, reserved[i].advice);
    if (p->tok.kind == TOK_END)
        return err_at(p->e, ERR_BAD_EXPRESSION, p->tok.offset, "the expression ends too early: %s",
                      wanted);
    if (is_op(p, "="))
        return bad(p, "an expression cannot assign; == compares; \"name\" and \"out\" say where "
                      "the result goes, or, in a statement, what is before the first equals sign");
    if (is_op(p, "."))
        return bad(p, "there are no attributes or methods: write sum(a) for a.sum(), sin(x) for "
                      "np.sin(x)");
    return err_at(p->e, ERR_BAD_EXPRESSION, p->tok.offset, "%s, but found '%.*s'", wanted,
                  (int)(p->tok.len > 40 ? 40 : p->tok.len), p->tok.start);
}

static enum err_code enter(struct parser *p, long offset)
{
    if (++p->depth > p->x->max_nesting)
        return err_at(p->e, ERR_EXPRESSION_TOO_LARGE, offset,
                      "the expression nests more than %d levels deep; \"let\" names parts of it",
                      p->x->max_nesting);
    return ERR_OK;
}

static enum err_code push_link(struct parser *p, uint32_t node, const char *keyword)
{
    void *links = p->links;
    if (arena_grow(p->x->arena, &links, &p->cap_links, p->n_links, sizeof *p->links))
        return err_oom(p->e);
    p->links = links;
    p->links[p->n_links++] = (struct expr_link){.node = node, .keyword = keyword};
    return ERR_OK;
}

/* Adds a node with the links above `base` as its arguments. */
static enum err_code add(struct parser *p, struct expr_node node, size_t base, size_t n_keywords,
                         uint32_t *ret)
{
    node.source = p->source;
    node.depth = (uint16_t)p->depth;
    size_t n = p->n_links - base;
    p->n_links = base;
    return expr_add(p->x, &node, n ? p->links + base : NULL, n, n_keywords, ret, p->e);
}

static enum err_code add_operator(struct parser *p, const char *name, long offset, uint32_t a,
                                  uint32_t b, uint32_t *ret)
{
    struct expr_node node = {
        .kind = EXPR_CALL, .name = name, .offset = offset, .source = p->source};
    node.depth = (uint16_t)p->depth;
    struct expr_link links[2] = {{.node = a}, {.node = b}};
    return expr_add(p->x, &node, links, b == EXPR_NOWHERE ? 1 : 2, 0, ret, p->e);
}

static enum err_code add_literal(struct parser *p, struct literal lit, long offset, uint32_t *ret)
{
    return add(p, (struct expr_node){.kind = EXPR_LITERAL, .lit = lit, .offset = offset},
               p->n_links, 0, ret);
}

static enum err_code keyword_of(struct parser *p, size_t base, const char **ret)
{
    const char *keyword = arena_strndup(p->x->arena, p->tok.start, p->tok.len);
    if (!keyword)
        return err_oom(p->e);
    if (strcmp(keyword, "op") == 0 || strcmp(keyword, "args") == 0)
        return bad(p, "there is no parameter with this name"); /* reserved for trees */
    for (size_t i = base; i < p->n_links; i++)
        if (p->links[i].keyword && strcmp(p->links[i].keyword, keyword) == 0)
            return bad(p, "the keyword argument is given twice");
    *ret = keyword;
    TRY(advance(p));
    return advance(p);
}

/* With the comma after it, if there is one. */
static enum err_code argument(struct parser *p, size_t base, size_t *n_keywords)
{
    const char *keyword = NULL;
    uint32_t arg;
    if (p->tok.kind == TOK_NAME && followed_by(p, "=") && !followed_by(p, "==")) {
        TRY(keyword_of(p, base, &keyword));
        ++*n_keywords;
    } else if (is_op(p, "*") || is_op(p, "**")) {
        return bad(p,
                   "argument lists (* and **) are not supported: write the arguments one by one");
    } else if (*n_keywords) {
        return bad(p, "positional arguments must come before keyword arguments");
    }
    TRY(binary_chain(p, PREC_COMPARE, &arg));
    TRY(push_link(p, arg, keyword));
    if (is_op(p, ","))
        return advance(p);
    return is_op(p, ")") ? ERR_OK : unexpected(p, "',' or ')' was expected");
}

/* After "name(": the arguments and the closing bracket. */
static enum err_code call(struct parser *p, const char *name, long offset, uint32_t *ret)
{
    size_t base = p->n_links, n_keywords = 0;
    TRY(enter(p, offset));
    while (!is_op(p, ")"))
        TRY(argument(p, base, &n_keywords));
    TRY(advance(p));
    p->depth--;
    return add(p, (struct expr_node){.kind = EXPR_CALL, .name = name, .offset = offset}, base,
               n_keywords, ret);
}

/* At '(' or '[': a bracketed expression, a tuple or a list. */
static enum err_code bracket(struct parser *p, uint32_t *ret)
{
    bool list = is_op(p, "[");
    const char *close = list ? "]" : ")";
    long offset = p->tok.offset;
    size_t base = p->n_links;
    bool comma = false;
    uint32_t node = EXPR_NOWHERE;
    TRY(enter(p, offset));
    TRY(advance(p));
    while (!is_op(p, close)) {
        TRY(binary_chain(p, PREC_COMPARE, &node));
        TRY(push_link(p, node, NULL));
        if (is_op(p, ",")) {
            comma = true;
            TRY(advance(p));
        } else if (!is_op(p, close)) {
            return unexpected(p, list ? "',' or ']' was expected" : "',' or ')' was expected");
        }
    }
    TRY(advance(p));
    p->depth--;
    if (!list && !comma && p->n_links == base + 1) {
        p->n_links = base;
        *ret = node;
        return ERR_OK;
    }
    return add(p, (struct expr_node){.kind = EXPR_LIST, .offset = offset}, base, 0, ret);
}

static enum err_code name_or_call(struct parser *p, uint32_t *ret)
{
    static const char *const reserved[] = {"and", "or",   "not", "in",    "is",
                                           "if",  "else", "for", "lambda"};
    long offset = p->tok.offset;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (is_word(p, reserved[i]))
            return unexpected(p, "");
    bool yes = is_word(p, "True"), no = is_word(p, "False"), none = is_word(p, "None");
    const char *name = arena_strndup(p->x->arena, p->tok.start, p->tok.len);
    if (!name)
        return err_oom(p->e);
    TRY(advance(p));
    if (yes || no)
        return add_literal(p, (struct literal){.kind = LIT_BOOL, .i = yes}, offset, ret);
    if (!none && is_op(p, "(")) {
        TRY(advance(p));
        return call(p, name, offset, ret);
    }
    return add(
        p, (struct expr_node){.kind = none ? EXPR_NONE : EXPR_NAME, .name = name, .offset = offset},
        p->n_links, 0, ret);
}

static enum err_code primary(struct parser *p, uint32_t *ret)
{
    struct token t = p->tok;
    switch (t.kind) {
    case TOK_NUMBER:
        TRY(advance(p));
        return add_literal(p, t.lit, t.offset, ret);
    case TOK_STRING:
        TRY(advance(p));
        return add(p, (struct expr_node){.kind = EXPR_STRING, .name = t.string, .offset = t.offset},
                   p->n_links, 0, ret);
    case TOK_NAME:
        return name_or_call(p, ret);
    case TOK_OP:
        if (is_op(p, "(") || is_op(p, "["))
            return bracket(p, ret);
        break;
    case TOK_END:
        break;
    }
    return unexpected(p, "a number, a name or a bracket was expected");
}

/* At '[' after an operand. */
static __attribute__((noinline)) enum err_code subscript(struct parser *p, uint32_t *ret)
{
    long offset = p->tok.offset;
    size_t used = 0;
    struct index_spec spec;
    enum err_code code = index_scan(p->lex.p, (size_t)(p->lex.end - p->lex.p), &spec, &used, p->e);
    if (code != ERR_OK) {
        if (p->e)
            p->e->offset += p->lex.offset;
        return code;
    }
    /* a valid index is ASCII throughout: bytes are characters */
    p->lex.p += used + 1;
    p->lex.offset += (long)used + 1;
    struct index_spec *kept = arena_dup(p->x->arena, &spec, sizeof spec);
    if (!kept)
        return err_oom(p->e);
    TRY(push_link(p, *ret, NULL));
    TRY(advance(p));
    return add(p, (struct expr_node){.kind = EXPR_GETITEM, .index = kept, .offset = offset},
               p->n_links - 1, 0, ret);
}

static enum err_code postfix(struct parser *p, uint32_t *ret)
{
    uint32_t node = EXPR_NOWHERE;
    enum err_code code = primary(p, &node);
    while (code == ERR_OK && p->tok.kind == TOK_OP) {
        if (is_op(p, "[")) {
            code = subscript(p, &node);
        } else if (is_op(p, "(")) {
            return bad(p, "only a name can be called; write '*' to multiply");
        } else if (is_op(p, ".")) {
            return unexpected(p, "");
        } else {
            break;
        }
    }
    if (code == ERR_OK)
        *ret = node;
    return code;
}

static enum err_code power(struct parser *p, uint32_t *ret)
{
    uint32_t base = EXPR_NOWHERE, exponent = EXPR_NOWHERE;
    TRY(postfix(p, &base));
    if (!is_op(p, "**")) {
        *ret = base;
        return ERR_OK;
    }
    long offset = p->tok.offset;
    enum err_code code = enter(p, offset);
    if (code == ERR_OK)
        code = advance(p);
    if (code == ERR_OK)
        code = unary(p, &exponent); /* 2**-1, and right-associative: 2**3**2 */
    p->depth--;
    return code ? code : add_operator(p, "pow", offset, base, exponent, ret);
}

static enum err_code unary(struct parser *p, uint32_t *ret)
{
    const char *name = is_op(p, "-")   ? "negative"
                       : is_op(p, "+") ? "positive"
                       : is_op(p, "~") ? "bitwise_invert"
                                       : NULL;
    if (!name)
        return power(p, ret);
    bool minus = is_op(p, "-");
    long offset = p->tok.offset;
    TRY(advance(p));
    if (minus && p->tok.kind == TOK_NUMBER && !followed_by(p, "**") && !followed_by(p, "[")) {
        struct literal lit = p->tok.lit;
        if (lit.kind == LIT_INT) {
            lit.i = -lit.i;
        } else {
            lit.re = -lit.re; /* of an imaginary literal too: -2j is (-0-2j) in Python */
            lit.im = lit.kind == LIT_COMPLEX ? -lit.im : 0;
        }
        TRY(advance(p));
        return add_literal(p, lit, offset, ret);
    }
    uint32_t operand = EXPR_NOWHERE;
    enum err_code code = enter(p, offset);
    if (code == ERR_OK)
        code = unary(p, &operand);
    p->depth--;
    return code ? code : add_operator(p, name, offset, operand, EXPR_NOWHERE, ret);
}

static const struct binary *binary_at(const struct parser *p)
{
    if (p->tok.kind == TOK_OP)
        for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++)
            if (is_op(p, binaries[i].text))
                return &binaries[i];
    return NULL;
}

static bool is_bitwise(const struct parser *p, uint32_t node)
{
    const struct expr_node *n = &p->x->nodes[node];
    return n->kind == EXPR_CALL && !strncmp(n->name, "bitwise_", strlen("bitwise_"));
}

static enum err_code binary_chain(struct parser *p, int min_prec, uint32_t *ret)
{
    uint32_t left = EXPR_NOWHERE, right = EXPR_NOWHERE;
    bool compared = false;
    TRY(unary(p, &left));
    for (const struct binary *b = binary_at(p); b && b->prec >= min_prec; b = binary_at(p)) {
        if (b->prec == PREC_COMPARE && compared)
            return bad(p, is_bitwise(p, right)
                              ? "& | ^ bind more tightly than comparisons, so put the comparisons "
                                "in brackets: (a < b) & (b < c)"
                              : "comparisons do not chain: write (a < b) & (b < c)");
        compared = b->prec == PREC_COMPARE;
        long offset = p->tok.offset;
        TRY(advance(p));
        TRY(binary_chain(p, b->prec + 1, &right));
        TRY(add_operator(p, b->name, offset, left, right, &left));
    }
    *ret = left;
    return ERR_OK;
}

static enum err_code whole(struct parser *p, uint32_t *ret)
{
    TRY(advance(p));
    if (p->tok.kind == TOK_END)
        return bad(p, "the expression is empty");
    uint32_t root = EXPR_NOWHERE;
    TRY(binary_chain(p, PREC_COMPARE, &root));
    if (is_op(p, ","))
        return bad(p, "only one expression is allowed here; a tuple needs brackets");
    if (is_op(p, ")") || is_op(p, "]"))
        return bad(p, "a closing bracket without an opening one");
    if (p->tok.kind == TOK_NAME || p->tok.kind == TOK_NUMBER || p->tok.kind == TOK_STRING)
        return unexpected(p, "an operator is missing");
    if (p->tok.kind != TOK_END)
        return unexpected(p, "an operator or the end was expected");
    *ret = root;
    return ERR_OK;
}

enum err_code infix_parse(struct expr *x, uint32_t source, const char *text, size_t n,
                          uint32_t *ret_root, struct err *e)
{
    struct parser p = {
        .lex = {.p = text, .end = text + n, .arena = x->arena, .e = e},
        .x = x,
        .source = source,
        .e = e,
    };
    enum err_code code = ERR_OK;
    long offset = 0;
    for (size_t i = 0; i < n && code == ERR_OK; offset++) {
        size_t len = utf8_length(text + i, n - i);
        if (len == 0)
            code = err_at(e, ERR_BAD_EXPRESSION, offset, "the expression is not valid UTF-8");
        i += len;
    }
    if (code == ERR_OK)
        code = whole(&p, ret_root);
    if (code != ERR_OK && code != ERR_OUT_OF_MEMORY && source < x->n_sources)
        err_prefix(e, x->sources[source]);
    return code;
}
