/* Finds the equals sign outside brackets and quotes; reads the left side here, and the right side
 * as an expression. The expression is parsed after as many blanks as there are characters before
 * it, so that its nodes and errors have the statement's offsets. */
#include "protocol/text/statement.h"

#include <string.h>

#include "protocol/text/index.h"
#include "protocol/text/infix.h"

/* Longest first. */
static const struct augmented {
    const char *text, *name;
} augmented[] = {
    {"**", "pow"},        {"//", "floor_divide"}, {"<<", "bitwise_left_shift"},
    {"+", "add"},         {"-", "subtract"},      {">>", "bitwise_right_shift"},
    {"*", "multiply"},    {"/", "divide"},        {"%", "remainder"},
    {"&", "bitwise_and"}, {"|", "bitwise_or"},    {"^", "bitwise_xor"},
};

struct left {
    const char *text;
    size_t n;                     /* up to the operator */
    const struct augmented *with; /* or NULL */
    size_t end;                   /* after the equals sign */
};

/* Position of the assignment; n: none. */
static size_t find_equals(const char *s, size_t n)
{
    int depth = 0;
    char quote = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (quote) {
            if (c == '\\')
                i++;
            else if (c == quote)
                quote = 0;
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == '(' || c == '[') {
            depth++;
        } else if (c == ')' || c == ']') {
            depth--;
        } else if (c == '=' && depth <= 0) {
            bool equal = i + 1 < n && s[i + 1] == '=';
            bool shift = i > 1 && (s[i - 1] == '<' || s[i - 1] == '>') && s[i - 2] == s[i - 1];
            if (!equal && (shift || i == 0 || !strchr("=<>!", s[i - 1])))
                return i;
            i += equal;
        }
    }
    return n;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_blanks(const struct left *l, size_t at)
{
    while (at < l->n && is_blank(l->text[at]))
        at++;
    return at;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static enum err_code at(struct expr *x, uint32_t source, struct err *e, size_t offset,
                        const char *message)
{
    err_at(e, ERR_BAD_EXPRESSION, (long)offset, "%s", message);
    return err_prefix(e, x->sources[source]);
}

static enum err_code split(struct expr *x, uint32_t source, const char *text, size_t n,
                           struct left *ret, struct err *e)
{
    size_t equals = find_equals(text, n);
    *ret = (struct left){.text = text, .n = equals, .end = equals + 1};
    if (equals == n)
        return at(x, source, e, 0,
                  "a statement must be name = expression, name += expression, name[index] = "
                  "expression or fill_ghost(name)");
    for (size_t k = 0; k < sizeof augmented / sizeof *augmented && !ret->with; k++) {
        size_t len = strlen(augmented[k].text);
        if (equals >= len && !memcmp(text + equals - len, augmented[k].text, len)) {
            ret->with = &augmented[k];
            ret->n = equals - len;
        }
    }
    return ERR_OK;
}

/* The position after the name that begins here; `begin` if none does. */
static size_t skip_name(const struct left *l, size_t begin)
{
    size_t i = begin;
    while (i < l->n &&
           (is_letter(l->text[i]) || (i > begin && l->text[i] >= '0' && l->text[i] <= '9')))
        i++;
    return i;
}

/* Reads the name and the index, with their offsets for their nodes. */
static enum err_code read_target(struct expr *x, uint32_t source, const struct left *l,
                                 struct statement *ret, struct err *e)
{
    size_t begin = skip_blanks(l, 0), i = skip_name(l, begin);
    ret->at = (long)begin;
    if (i == begin)
        return at(x, source, e, begin, "a name is expected before the equals sign");
    ret->target = arena_strndup(x->arena, l->text + begin, i - begin);
    if (!ret->target)
        return err_oom(e);
    i = skip_blanks(l, i);
    ret->index = NULL;
    if (i < l->n && l->text[i] == '[') {
        struct index_spec *index = arena_alloc(x->arena, sizeof *index);
        size_t used;
        if (!index)
            return err_oom(e);
        if (index_scan(l->text + i + 1, l->n - i - 1, index, &used, e) != ERR_OK) {
            e->offset += (long)i + 1;
            return err_prefix(e, x->sources[source]);
        }
        ret->index = index;
        i = skip_blanks(l, i + 1 + used + 1);
    }
    if (i < l->n)
        return at(x, source, e, i,
                  "a name, or a name with an index, is expected before the equals sign");
    return ERR_OK;
}

static enum err_code add(struct expr *x, struct expr_node n, const uint32_t *args, size_t n_args,
                         uint32_t *ret, struct err *e)
{
    struct expr_link links[2] = {{.node = n_args ? args[0] : 0},
                                 {.node = n_args > 1 ? args[1] : 0}};
    return expr_add(x, &n, links, n_args, 0, ret, e);
}

/* Adds the target's current value, and the operator that joins it with the right side. */
static enum err_code add_operator(struct expr *x, const struct left *l, struct expr_node n,
                                  struct statement *s, struct err *e)
{
    uint32_t args[2];
    n.kind = EXPR_NAME;
    n.name = s->target;
    enum err_code code = add(x, n, NULL, 0, &args[0], e);
    if (code == ERR_OK && s->index) {
        n.kind = EXPR_GETITEM;
        n.name = NULL;
        n.index = s->index;
        code = add(x, n, args, 1, &args[0], e);
    }
    if (code != ERR_OK)
        return code;
    n.kind = EXPR_CALL;
    n.name = l->with->name;
    n.index = NULL;
    args[1] = s->root;
    return add(x, n, args, 2, &s->root, e);
}

/* Position after `fill_ghost(`; 0: another statement. */
static size_t skip_fill(const struct left *l)
{
    static const char fill[] = "fill_ghost";
    size_t begin = skip_blanks(l, 0), end = skip_name(l, begin), i = skip_blanks(l, end);
    bool is = end - begin == sizeof fill - 1 && !memcmp(l->text + begin, fill, sizeof fill - 1);
    return is && i < l->n && l->text[i] == '(' ? i + 1 : 0;
}

static enum err_code read_fill(struct expr *x, uint32_t source, const struct left *l, size_t from,
                               struct statement *ret, struct err *e)
{
    size_t begin = skip_blanks(l, from), end = skip_name(l, begin), i = skip_blanks(l, end);
    if (begin == end)
        return at(x, source, e, begin, "fill_ghost takes the name of an array");
    if (i == l->n || l->text[i] != ')')
        return at(
            x, source, e, i,
            "fill_ghost takes only the name of an array: it fills from the array's own boundary");
    i = skip_blanks(l, i + 1);
    if (i < l->n)
        return at(x, source, e, i, "fill_ghost(name) must be a statement by itself");
    *ret = (struct statement){.target = arena_strndup(x->arena, l->text + begin, end - begin),
                              .at = (long)begin,
                              .fills = true};
    if (!ret->target)
        return err_oom(e);
    struct expr_node n = {.kind = EXPR_NAME,
                          .name = ret->target,
                          .source = source,
                          .offset = ret->at,
                          .parent = EXPR_NOWHERE};
    return add(x, n, NULL, 0, &ret->root, e);
}

enum err_code statement_parse(struct expr *x, uint32_t source, const char *text, size_t n,
                              struct statement *ret, struct err *e)
{
    struct left l = {.text = text, .n = n};
    size_t fill = find_equals(text, n) == n ? skip_fill(&l) : 0;
    if (fill)
        return read_fill(x, source, &l, fill, ret, e);
    ret->fills = false;
    enum err_code code = split(x, source, text, n, &l, e);
    if (code == ERR_OK)
        code = read_target(x, source, &l, ret, e);
    if (code != ERR_OK)
        return code;
    char *right = arena_alloc(x->arena, n + 1);
    if (!right)
        return err_oom(e);
    memset(right, ' ', l.end); /* the left side is ASCII: a name, an index, an operator */
    memcpy(right + l.end, text + l.end, n - l.end);
    right[n] = 0;
    code = infix_parse(x, source, right, n, &ret->root, e);
    if (code == ERR_OK && l.with)
        code = add_operator(x, &l,
                            (struct expr_node){.source = source,
                                               .offset = ret->at,
                                               .parent = EXPR_NOWHERE,
                                               .depth = x->nodes[ret->root].depth},
                            ret, e);
    return code;
}
