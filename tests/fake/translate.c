/* CUDA source to C++ source, as far as macros cannot do it.
 *
 * `extern __shared__` becomes `extern __dynamic_shared__`, whose names are made aliases of one
 * array. A kernel, `__global__ void [__launch_bounds__(…)] name(`, gets a #define in the line
 * before it, so that the table behind the text lists those that the preprocessor let through. A
 * macro whose body defines a kernel named by its first parameter is noted, and its uses are kernels
 * too. All are looked for outside comments and literals only. The text keeps its line numbers. */
#include "tests/fake/nvrtc.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_add(struct text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->capacity) {
        t->capacity = 2 * (t->n + n + 1);
        t->s = realloc(t->s, t->capacity);
        if (!t->s)
            abort();
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void text_addf(struct text *t, const char *format, ...)
{
    char *s = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&s, format, args);
    va_end(args);
    if (n < 0)
        abort();
    text_add(t, s, (size_t)n);
    free(s);
}

void text_free(struct text *t)
{
    free(t->s);
    *t = (struct text){0};
}

/* Behind a comment or a literal that starts at p; p when there is none. */
static const char *skip_inert(const char *p)
{
    if (p[0] == '/' && p[1] == '/')
        return p + strcspn(p, "\n");
    if (p[0] == '/' && p[1] == '*') {
        const char *end = strstr(p + 2, "*/");
        return end ? end + 2 : p + strlen(p);
    }
    if (*p != '"' && *p != '\'')
        return p;
    const char *q = p + 1;
    while (*q && *q != *p && *q != '\n')
        q += *q == '\\' && q[1] ? 2 : 1;
    return *q ? q + 1 : q;
}

static const char *skip_space(const char *p)
{
    for (const char *q = p;; p = q) {
        while (isspace((unsigned char)*q))
            q++;
        if (*q == '/')
            q = skip_inert(q);
        if (q == p)
            return p;
    }
}

static size_t word(const char *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_')
        n++;
    return n;
}

static bool is(const char *p, const char *what)
{
    return word(p) == strlen(what) && !strncmp(p, what, strlen(what));
}

/* Behind the parenthesis that closes the one at p. */
static const char *skip_parens(const char *p)
{
    int depth = 0;
    do {
        const char *q = skip_inert(p);
        if (q != p) {
            p = q;
            continue;
        }
        depth += (*p == '(') - (*p == ')');
        p++;
    } while (*p && depth);
    return p;
}

/* Where p is, in the file that is being translated. */
struct place {
    const char *source, *line, *name;
    int number;
    struct text *out;
    size_t out_line; /* where the line starts in out */
};

/* The `#` of the directive that p's line belongs to, over continued lines; NULL when none. */
static const char *directive(const struct place *at)
{
    const char *line = at->line;
    while (line - at->source >= 2 && line[-2] == '\\') {
        line -= 2;
        while (line > at->source && line[-1] != '\n')
            line--;
    }
    line += strspn(line, " \t");
    return *line == '#' ? line : NULL;
}

static void note(struct text *list, const char *name, size_t n)
{
    char entry[128];
    snprintf(entry, sizeof entry, ";%.*s;", (int)n, name);
    if (!list->n)
        text_add(list, ";", 1);
    if (!strstr(list->s, entry))
        text_add(list, entry + 1, strlen(entry) - 1);
}

static bool noted(const struct text *list, const char *name, size_t n)
{
    char entry[128];
    snprintf(entry, sizeof entry, ";%.*s;", (int)n, name);
    return list->n && strstr(list->s, entry);
}

static void add_kernel(struct translation *t, const char *name, size_t n, const char *bounds,
                       const struct place *at)
{
    struct text rest = {0};
    text_add(&rest, at->out->s + at->out_line, at->out->n - at->out_line);
    at->out->n = at->out_line;
    text_addf(at->out, "#define FAKE_HAS_%d 1\n#line %d \"%s\"\n", t->n, at->number, at->name);
    text_add(at->out, rest.s, rest.n);
    text_free(&rest);
    text_addf(&t->kernels, "#ifdef FAKE_HAS_%d\nFAKE_KERNEL(", t->n);
    text_add(&t->kernels, name, n);
    text_addf(&t->kernels, ", %s)\n#endif\n", bounds);
    t->n++;
}

/* At a macro's body that defines kernel `name`. */
static void add_macro(struct translation *t, const char *hash, const char *name, size_t n)
{
    const char *macro = hash + 1 + strspn(hash + 1, " \t");
    if (!is(macro, "define"))
        return;
    macro = skip_space(macro + word(macro));
    const char *first = macro + word(macro);
    if (*first != '(')
        return;
    first = skip_space(first + 1);
    if (word(first) == n && !strncmp(first, name, n))
        note(&t->macros, macro, word(macro));
}

/* At `__global__`: notes the kernel whose declaration goes on from here. */
static void kernel(struct translation *t, const char *p, const struct place *at)
{
    char bounds[256] = "()";
    size_t n = 0;
    bool is_void = false;
    for (p = skip_space(p + word(p)); (n = word(p)) != 0; p = skip_space(p + n)) {
        const char *next = skip_space(p + n);
        is_void |= is(p, "void");
        if (*next != '(')
            continue;
        if (!is(p, "__launch_bounds__"))
            break;
        const char *end = skip_parens(next);
        snprintf(bounds, sizeof bounds, "%.*s", (int)(end - next), next);
        p = end;
        n = 0;
    }
    const char *hash = directive(at);
    if (n && is_void && hash)
        add_macro(t, hash, p, n);
    else if (n && is_void)
        add_kernel(t, p, n, bounds, at);
}

/* At a use of such a macro. */
static void macro_use(struct translation *t, const char *p, const struct place *at)
{
    p = skip_space(p + word(p));
    if (*p != '(' || directive(at))
        return;
    p = skip_space(p + 1);
    if (word(p))
        add_kernel(t, p, word(p), "()", at);
}

/* At `extern __shared__`: notes the array's name. */
static void dynamic(struct translation *t, const char *p)
{
    const char *name = p + strcspn(p, "[;");
    while (name > p && isspace((unsigned char)name[-1]))
        name--;
    const char *end = name;
    while (name > p && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
        name--;
    note(&t->dynamic, name, (size_t)(end - name));
}

static int lines(const char *p, const char *end)
{
    int n = 0;
    for (; p < end; p++)
        n += *p == '\n';
    return n;
}

void translate(struct translation *t, const char *source, const char *name, struct text *out)
{
    struct place at = {source, source, name, 1, out, out->n};
    for (const char *p = source; *p;) {
        const char *q = skip_inert(p);
        if (q == p && (q = p + word(p)) != p) {
            const char *next = skip_space(q);
            if (is(p, "__global__"))
                kernel(t, p, &at);
            else if (noted(&t->macros, p, (size_t)(q - p)))
                macro_use(t, p, &at);
            if (is(p, "extern") && is(next, "__shared__")) {
                text_addf(out, "extern __dynamic_shared__");
                at.number += lines(q, next);
                p = q = next + word(next);
                dynamic(t, q);
            }
        } else if (q == p) {
            q = p + 1;
        }
        text_add(out, p, (size_t)(q - p));
        at.number += lines(p, q);
        if (q > p && q[-1] == '\n') {
            at.line = q;
            at.out_line = out->n;
        }
        p = q;
    }
}

void translate_end(struct translation *t, struct text *out)
{
    text_addf(out, "\n#line 1 \"kernels of the fake\"\n");
    if (t->dynamic.n)
        text_addf(out, "FAKE_DYNAMIC_SHARED\n");
    const char *names = t->dynamic.s ? t->dynamic.s + 1 : "";
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, ";");
        text_addf(out, "FAKE_DYNAMIC_NAME(");
        text_add(out, p, n);
        text_addf(out, ")\n");
        p += n + 1;
    }
    const char *kernels = t->kernels.s ? t->kernels.s : "";
    text_addf(out, "static const fake_kernel fake_kernels[] = {\n%s{}};\nFAKE_MODULE(%s)\n",
              kernels, *names ? "fake_dynamic" : "nullptr");
}

void translation_free(struct translation *t)
{
    text_free(&t->kernels);
    text_free(&t->dynamic);
    text_free(&t->macros);
}
