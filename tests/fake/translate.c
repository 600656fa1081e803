/* CUDA source to C++ source, as far as macros cannot do it.
 *
 * `extern __shared__` becomes `extern __dynamic_shared__`, whose names are made aliases of one
 * array. A kernel, `__global__ void [__launch_bounds__(…)] name(`, gets a #define in the line
 * before it, so that the table behind the text lists those that the preprocessor let through. Both
 * are looked for outside comments and literals only. The text keeps its line numbers. */
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

/* At `__global__`: notes the kernel whose declaration goes on from here. */
static void kernel(struct translation *t, const char *p, const char *line, const char *name,
                   int number, struct text *out, size_t out_line)
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
    /* in a macro's definition there is no line of its own to be had */
    if (!n || !is_void || *skip_space(line) == '#' ||
        (out_line >= 2 && out->s[out_line - 2] == '\\'))
        return;
    struct text rest = {0};
    text_add(&rest, out->s + out_line, out->n - out_line);
    out->n = out_line;
    text_addf(out, "#define FAKE_HAS_%d 1\n#line %d \"%s\"\n", t->n, number, name);
    text_add(out, rest.s, rest.n);
    text_free(&rest);
    text_addf(&t->kernels, "#ifdef FAKE_HAS_%d\nFAKE_KERNEL(%.*s, %s)\n#endif\n", t->n, (int)n, p,
              bounds);
    t->n++;
}

/* At `extern __shared__`: notes the array's name. */
static void dynamic(struct translation *t, const char *p)
{
    const char *end = p + strcspn(p, "[;");
    const char *name = end;
    while (name > p && isspace((unsigned char)name[-1]))
        name--;
    const char *last = name;
    while (name > p && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
        name--;
    char entry[128];
    snprintf(entry, sizeof entry, ";%.*s;", (int)(last - name), name);
    if (!t->dynamic.s)
        text_add(&t->dynamic, ";", 1);
    if (!strstr(t->dynamic.s, entry))
        text_add(&t->dynamic, entry + 1, strlen(entry) - 1);
}

void translate(struct translation *t, const char *source, const char *name, struct text *out)
{
    const char *line = source;
    size_t out_line = out->n;
    int number = 1;
    for (const char *p = source; *p;) {
        const char *q = skip_inert(p);
        if (q != p) {
            for (const char *c = p; c < q; c++)
                number += *c == '\n';
            text_add(out, p, (size_t)(q - p));
        } else if ((q = p + word(p)) != p) {
            const char *next = skip_space(q);
            if (is(p, "__global__"))
                kernel(t, p, line, name, number, out, out_line);
            if (is(p, "extern") && is(next, "__shared__")) {
                text_addf(out, "extern __dynamic_shared__");
                for (const char *c = q; c < next; c++)
                    number += *c == '\n';
                q = next + word(next);
                dynamic(t, q);
            } else {
                text_add(out, p, (size_t)(q - p));
            }
        } else {
            q = p + 1;
            text_add(out, p, 1);
            if (*p == '\n') {
                number++;
                line = q;
                out_line = out->n;
            }
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
}
