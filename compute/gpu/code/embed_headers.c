/* Build tool: makes the tables of headers_data.h,
 *   embed_headers OUTPUT EXPANDED ROOT NAME…
 * from scalar.h after the preprocessor (EXPANDED) and from the device headers ROOT/NAME. Run by
 * Meson.
 *
 * Cutting scalar.h into its functions here, and not while the daemon runs, keeps a C scanner out of
 * the daemon and lets a mistake in the headers stop the build. The scanner relies on the style of
 * scalar*.h: a function starts with AR_FN, its name is the word before the first parenthesis, and
 * no string or character constant holds a brace. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FUNCTIONS 8192
#define MAX_TEXT      (4 << 20)

struct function {
    const char *name, *text;
    size_t name_len, len;
};

static struct function functions[MAX_FUNCTIONS];
static unsigned short by_name[MAX_FUNCTIONS];
static unsigned first_need[MAX_FUNCTIONS + 1];
static int n_functions;
static char expanded[MAX_TEXT], rest[4096], file_text[MAX_TEXT];
static FILE *out;

static void fail(const char *why, const char *what)
{
    fprintf(stderr, "embed_headers: %s: %s\n", what, why);
    exit(1);
}

static void read_file(const char *path, char *text)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        fail("cannot be read", path);
    size_t n = fread(text, 1, MAX_TEXT, in);
    if (ferror(in) || n == MAX_TEXT)
        fail("cannot be read, or too long", path);
    text[n] = '\0';
    fclose(in);
}

static void put_string(const char *s, size_t n)
{
    fputs("\n    \"", out);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '\n')
            fputs(i + 1 < n ? "\\n\"\n    \"" : "\\n", out);
        else if (c == '"' || c == '\\' || c == '?')
            fprintf(out, "\\%c", c);
        else if (c >= 32 && c < 127)
            putc(c, out);
        else
            fprintf(out, "\\%03o", (unsigned)c);
    }
    putc('"', out);
}

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static void add_function(const char *text, size_t len)
{
    const char *paren = memchr(text, '(', len);
    if (!paren || n_functions == MAX_FUNCTIONS)
        fail("not a function, or too many", text);
    const char *end = paren;
    while (end > text && end[-1] == ' ')
        end--;
    const char *name = end;
    while (name > text && is_word(name[-1]))
        name--;
    functions[n_functions++] = (struct function){name, text, (size_t)(end - name), len};
}

/* Items of the file: AR_FN … {…}, or anything else up to its semicolon. */
static void cut(const char *p)
{
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (!*p)
            return;
        int function = strncmp(p, "AR_FN ", 6) == 0, depth = 0;
        const char *q = p;
        for (;; q++) {
            if (!*q)
                fail("ends within a definition", "scalar.h");
            depth += (*q == '{') - (*q == '}');
            if (depth == 0 && *q == (function ? '}' : ';'))
                break;
        }
        size_t len = (size_t)(q + 1 - p);
        if (function)
            add_function(p, len);
        else if (strlen(rest) + len + 2 < sizeof rest)
            strcat(strncat(rest, p, len), "\n");
        else
            fail("too much that is not a function", "scalar.h");
        p = q + 1;
    }
}

static int compare(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);
    return c != 0 ? c : (na > nb) - (na < nb);
}

static int compare_functions(const void *x, const void *y)
{
    const struct function *a = &functions[*(const unsigned short *)x];
    const struct function *b = &functions[*(const unsigned short *)y];
    return compare(a->name, a->name_len, b->name, b->name_len);
}

static int find(const char *name, size_t n)
{
    for (int lo = 0, hi = n_functions; lo < hi;) {
        int mid = (lo + hi) / 2;
        const struct function *f = &functions[by_name[mid]];
        int c = compare(name, n, f->name, f->name_len);
        if (c == 0)
            return by_name[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return -1;
}

/* Writes the functions which function i calls; returns how many. */
static unsigned put_needs(int i)
{
    static int seen_by[MAX_FUNCTIONS]; /* 1 + the last function that listed it */
    const struct function *f = &functions[i];
    unsigned n = 0;
    for (const char *p = f->text, *end = p + f->len; p < end;) {
        const char *word = p;
        while (p < end && is_word(*p))
            p++;
        int k = p > word ? find(word, (size_t)(p - word)) : -1;
        /* one later is a struct of that name: C wants functions defined before they are called */
        if (k >= 0 && k < i && seen_by[k] != i + 1) {
            seen_by[k] = i + 1;
            fprintf(out, "%d,", k);
            n++;
        }
        p += p == word;
    }
    return n;
}

static void put_functions(void)
{
    for (int i = 0; i < n_functions; i++)
        by_name[i] = (unsigned short)i;
    qsort(by_name, (size_t)n_functions, sizeof *by_name, compare_functions);
    for (int i = 1; i < n_functions; i++)
        if (compare_functions(&by_name[i - 1], &by_name[i]) == 0)
            fail("defined twice", functions[by_name[i]].name);

    fputs("const uint16_t scalar_needs[] = {", out);
    for (int i = 0; i < n_functions; i++)
        first_need[i + 1] = first_need[i] + put_needs(i);
    fputs("0};\nconst uint16_t scalar_by_name[] = {", out);
    for (int i = 0; i < n_functions; i++)
        fprintf(out, "%d,", by_name[i]);
    fprintf(out, "0};\nconst int scalar_count = %d;\n", n_functions);
    fputs("const struct scalar_function scalar_functions[] = {", out);
    for (int i = 0; i < n_functions; i++) {
        const struct function *f = &functions[i];
        fprintf(out, "\n{\"%.*s\",", (int)f->name_len, f->name);
        put_string(f->text, f->len);
        fprintf(out, ", %u, %u},", first_need[i], first_need[i + 1] - first_need[i]);
    }
    fputs("\n{0}};\nconst char scalar_rest[] =", out);
    put_string(rest, strlen(rest));
    fputs(";\n", out);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        fail("embed_headers OUTPUT EXPANDED ROOT NAME...", "usage");
    read_file(argv[2], expanded);
    cut(expanded);
    out = fopen(argv[1], "wb");
    if (!out)
        fail("cannot be written", argv[1]);
    fputs("#include \"compute/gpu/code/headers_data.h\"\n", out);
    put_functions();
    fprintf(out, "const int header_count = %d;\nconst char *const header_names[] = {", argc - 4);
    for (int i = 4; i < argc; i++)
        fprintf(out, "\"%s\",", argv[i]);
    fputs("0};\nconst char *const header_texts[] = {", out);
    for (int i = 4; i < argc; i++) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s", argv[3], argv[i]) >= (int)sizeof path)
            fail("too long a path", argv[i]);
        read_file(path, file_text);
        put_string(file_text, strlen(file_text));
        putc(',', out);
    }
    fputs("0};\n", out);
    int failed = ferror(out);
    return fclose(out) != 0 || failed;
}
