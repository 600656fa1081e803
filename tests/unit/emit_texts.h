/* Emitted texts held against the committed ones in GOLDEN_DIR. Included behind cmocka.h. */
#ifndef ARRAYD_TESTS_EMIT_TEXTS_H
#define ARRAYD_TESTS_EMIT_TEXTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gpu/code/headers.h"

/* Whether every file that the text includes is one of those the compiler is given. */
static bool includes_what_there_is(const char *text)
{
    const char *const *texts, *const *names;
    int n = headers_get(&texts, &names);
    for (const char *at = text; (at = strstr(at, "#include \"")); at++) {
        const char *name = at + strlen("#include \"");
        bool known = false;
        for (int i = 0; i < n; i++)
            known |= !strncmp(name, names[i], strlen(names[i])) && name[strlen(names[i])] == '"';
        if (!known) {
            print_message("there is no %.60s\n", name);
            return false;
        }
    }
    return true;
}

/* Says where the text first differs from the file's; whether it does. */
static bool differs(const char *name, const char *text, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        print_message("%s: cannot open %s\n", name, path);
        return true;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    bool found = false;
    for (int number = 1; !found; number++) {
        n = getline(&line, &cap, f);
        const char *end = strchr(text, '\n');
        size_t m = end ? (size_t)(end - text) + 1 : strlen(text);
        if (n <= 0 && m == 0)
            break;
        found = n <= 0 || (size_t)n != m || memcmp(line, text, m) != 0;
        if (found)
            print_message("%s.cu, line %d\n  is  %.*s  not %s", name, number, (int)m, text,
                          n > 0 ? line : "\n");
        text += m;
    }
    free(line);
    fclose(f);
    return found;
}

static int is_golden(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.cu", GOLDEN_DIR, name);
    if (getenv("ARRAYD_GOLDEN_WRITE")) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
        assert_int_equal(fclose(f), 0);
    }
    return differs(name, text, path);
}

#endif
