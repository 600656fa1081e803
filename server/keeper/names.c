/* The file is a row of texts of one size, each followed by zeros; what a number that is free has
 * there does not count. */
#include "server/keeper/names.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/mem.h"

static struct {
    int file; /* + 1; 0: none */
    char texts[NAMES_MOST][NAMES_TEXT];
    bool used[NAMES_MOST];
    int n_used;
    int end;  /* above all that were ever used */
    int free; /* below all that are free */
} names;

int names_file(void)
{
    return names.file - 1;
}

bool names_create(void)
{
    names.file = mem_file("arrayd-names") + 1;
    return names.file;
}

void names_take(int take_fd)
{
    size_t at = 0;
    ssize_t n;
    do {
        n = pread(take_fd, names.texts[0] + at, sizeof names.texts - at, (off_t)at);
        at += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    for (int i = 0; i < NAMES_MOST; i++)
        names.texts[i][NAMES_TEXT - 1] = '\0';
    names.file = take_fd + 1;
}

static void use(int number)
{
    names.n_used += !names.used[number];
    names.used[number] = true;
    if (names.end <= number)
        names.end = number + 1;
}

static bool write_text(int number, const char *text)
{
    char *to = names.texts[number];
    memset(to, 0, NAMES_TEXT);
    memcpy(to, text, strnlen(text, NAMES_TEXT - 1));
    return pwrite(names.file - 1, to, NAMES_TEXT, (off_t)number * NAMES_TEXT) == NAMES_TEXT;
}

const char *names_claim(int number)
{
    use(number);
    return *names.texts[number] ? names.texts[number] : NULL;
}

int names_add(const char *text, int most)
{
    int i = names.free;
    while (i < NAMES_MOST && names.used[i])
        i++;
    names.free = i;
    if (i >= NAMES_MOST || i >= most || !write_text(i, text))
        return -1;
    use(i);
    return i;
}

int names_find(const char *text)
{
    for (int i = 0; i < names.end; i++)
        if (names.used[i] && !strcmp(names.texts[i], text))
            return i;
    return -1;
}

void names_forget(int number)
{
    (void)write_text(number, "");
}

void names_free(int number)
{
    names.n_used -= names.used[number];
    names.used[number] = false;
    if (names.free > number)
        names.free = number;
}

int names_count(void)
{
    return names.n_used;
}
