/* Inside of the fake NVRTC: a program's text on its way to the host compiler. */
#ifndef ARRAYD_FAKE_NVRTC_H
#define ARRAYD_FAKE_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

/* A growing text; ends the process when there is no memory. */
struct text {
    char *s;
    size_t n, capacity;
};
void text_add(struct text *t, const char *s, size_t n);
void text_addf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *t);
/* A whole file; false when it cannot be read. */
bool text_read(struct text *t, const char *path);
bool text_write(const struct text *t, const char *path);

/* translate.c: what CUDA source has that C++ has not. */
struct translation {
    struct text kernels; /* entries of the module's table */
    struct text dynamic; /* names of dynamic shared memory, ";name;name;" */
    struct text macros;  /* names of macros that define the kernel their first argument names */
    int n;
};
/* Appends `source` to `out`, fit for the host compiler, and notes its kernels. Headers first: a
 * macro is known behind its definition. */
void translate(struct translation *t, const char *source, const char *name, struct text *out);
/* What goes behind the text. */
void translate_end(struct translation *t, struct text *out);
void translation_free(struct translation *t);

/* compile.c: compiles `main`, behind device.h, with the headers (names relative, texts translated)
 * and options for the host compiler, by way of the cache. 0, 6 (compilation error; the log tells)
 * or 11 (something else). */
struct unit {
    struct text main, *headers;
    const char *const *names;
    int n_headers;
    char **options; /* ends with NULL */
};
int compile_unit(const struct unit *u, struct text *ret_binary, struct text *log);

#endif
