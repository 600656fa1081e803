/* NVRTC parses its input anew for every kernel, and scalar.h has some 1,200 functions, of which a
 * kernel calls a handful: included whole, it doubled the compilation time of a small kernel. So the
 * build cuts scalar.h into its functions (embed_headers.c), and each kernel gets those it names and
 * those they call. Callees come before callers, so one pass from the last function to the first
 * finds them all. */
#include "compute/gpu/code/headers.h"

#include <string.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "compute/gpu/code/headers_data.h"

static const char preamble[] = "#ifndef ARRAYD_SCALAR_H\n#define ARRAYD_SCALAR_H\n"
                               "#include \"compute/kernels/scalar/scalar_types.h\"\n";

int headers_get(const char *const **ret_texts, const char *const **ret_names)
{
    *ret_texts = header_texts;
    *ret_names = header_names;
    return header_count;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static int find_function(const char *name, size_t n)
{
    for (int lo = 0, hi = scalar_count; lo < hi;) {
        int mid = (lo + hi) / 2;
        const char *other = scalar_functions[scalar_by_name[mid]].name;
        int c = strncmp(name, other, n);
        if (c == 0)
            c = other[n] == '\0' ? 0 : -1;
        if (c == 0)
            return scalar_by_name[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return -1;
}

/* Marks the functions named in the text. */
static void mark_functions(const char *text, bool *needed)
{
    for (const char *p = strstr(text, "ar_"); p; p = strstr(p, "ar_")) {
        const char *word = p;
        while (is_word(*p))
            p++;
        int i = word > text && is_word(word[-1]) ? -1 : find_function(word, (size_t)(p - word));
        if (i >= 0)
            needed[i] = true;
    }
}

/* Marks the headers included in the text. */
static void mark_headers(const char *text, bool *included)
{
    static const char directive[] = "#include \"";
    for (const char *p = strstr(text, directive); p; p = strstr(p, directive)) {
        p += sizeof directive - 1;
        for (int i = 0; i < header_count; i++) {
            size_t n = strlen(header_names[i]);
            if (strncmp(p, header_names[i], n) == 0 && p[n] == '"')
                included[i] = true;
        }
    }
}

/* scalar.h and its parts: the table holds their functions. */
static bool is_scalar(const char *name)
{
    return strncmp(name, "compute/kernels/scalar/scalar",
                   strlen("compute/kernels/scalar/scalar")) == 0;
}

static void mark_all(const char *source, bool *needed, bool *included, bool *read)
{
    mark_functions(source, needed);
    mark_headers(source, included);
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < header_count; i++) {
            if (!included[i] || read[i])
                continue;
            read[i] = again = true;
            if (!is_scalar(header_names[i])) {
                mark_functions(header_texts[i], needed);
                mark_headers(header_texts[i], included);
            }
        }
    }
    for (int i = scalar_count - 1; i >= 0; i--) {
        const struct scalar_function *f = &scalar_functions[i];
        for (uint32_t k = 0; needed[i] && k < f->n_needs; k++)
            needed[scalar_needs[f->first_need + k]] = true;
    }
}

enum err_code headers_select(const char *source, struct headers *ret, struct err *e)
{
    size_t n = (size_t)header_count;
    _cleanup_free_ bool *marks = mem_calloc((size_t)scalar_count + 2 * n, sizeof *marks);
    const char **texts = mem_reallocarray(NULL, n, sizeof *texts);
    _cleanup_strb_ struct strb b = {0};
    if (marks) {
        bool *included = marks + scalar_count;
        mark_all(source, marks, included, included + n);
        strb_add(&b, preamble);
        strb_add(&b, scalar_rest);
        for (int i = 0; i < scalar_count; i++) {
            if (!marks[i])
                continue;
            strb_add(&b, scalar_functions[i].text);
            strb_addc(&b, '\n');
        }
        strb_add(&b, "#endif\n");
    }
    char *scalar = marks ? strb_take(&b, NULL) : NULL;
    if (!texts || !scalar) {
        mem_free(texts);
        mem_free(scalar);
        return err_oom(e);
    }
    for (size_t i = 0; i < n; i++)
        texts[i] = strcmp(header_names[i], HEADERS_SCALAR) == 0 ? scalar : header_texts[i];
    *ret = (struct headers){header_count, header_names, texts, scalar};
    return ERR_OK;
}

void headers_free(struct headers *h)
{
    mem_free(h->texts);
    mem_free(h->scalar);
    *h = (struct headers){0};
}
