/* Our own parser, because a line must never mean anything but what a person sees. Libraries for
 * such files cut long lines and read the rest as further lines, join indented lines to the previous
 * one, and stop at a NUL. This one reports invisible characters as mistakes with their line: a NUL,
 * and a CR that does not end a line, behind which a comment would swallow settings. */
#include "compute/base/ini.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX (4u << 20)

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct ini_part trim(const char *from, const char *to)
{
    while (from < to && blank(*from))
        from++;
    while (to > from && blank(to[-1]))
        to--;
    return (struct ini_part){from, (size_t)(to - from)};
}

static const char *before_comment(const char *from, const char *to)
{
    for (const char *p = from; p < to; p++)
        if ((*p == '#' || *p == ';') && (p == from || blank(p[-1])))
            return p;
    return to;
}

static enum ini_kind mistake(struct ini_line *l, const char *what)
{
    l->mistake = what;
    return INI_MISTAKE;
}

/* Parses the line from `from` to `to`, without its line end. */
static enum ini_kind parse(struct ini_line *l, const char *from, const char *to)
{
    if (to > from && to[-1] == '\r')
        to--;
    if (memchr(from, '\0', (size_t)(to - from)))
        return mistake(l, "the line contains a NUL character");
    if (memchr(from, '\r', (size_t)(to - from)))
        return mistake(l, "the line contains a CR without an LF after it");
    struct ini_part all = trim(from, before_comment(from, to));
    const char *equals = memchr(all.at, '=', all.n);
    if (!all.n)
        return INI_EMPTY;
    if (all.at[0] == '[') {
        if (all.at[all.n - 1] != ']')
            return mistake(l, "a section must be '[name]', followed by nothing but a comment");
        l->name = trim(all.at + 1, all.at + all.n - 1);
        return l->name.n ? INI_SECTION : mistake(l, "the brackets contain no name");
    }
    if (!equals)
        return mistake(l, "expected 'name = value'");
    l->name = trim(all.at, equals);
    l->value = trim(equals + 1, all.at + all.n);
    return INI_VALUE;
}

bool ini_next(const char *end, struct ini_line *l)
{
    static const char bom[] = "\xef\xbb\xbf";
    const char *at = l->at + l->n;
    if (at >= end)
        return false;
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    const char *to = stop ? stop : end;
    *l = (struct ini_line){
        .at = at, .n = (size_t)((stop ? stop + 1 : end) - at), .number = l->number + 1};
    if (l->number == 1 && to - at >= 3 && !memcmp(at, bom, 3))
        at += 3;
    l->kind = parse(l, at, to);
    return true;
}

bool ini_is(struct ini_part p, const char *text)
{
    return p.n == strlen(text) && !memcmp(p.at, text, p.n);
}

enum err_code ini_read(int fd, const char *name, struct strb *ret, struct err *e)
{
    char block[4096];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n == 0)
            return ret->failed ? err_oom(e) : ERR_OK;
        if (n < 0 && errno != EINTR)
            return err_set(e, ERR_BAD_FIELD, "%s: %s", name, strerror(errno));
        if (n > 0)
            strb_addn(ret, block, (size_t)n);
        if (ret->len > TEXT_MAX)
            return err_set(e, ERR_BAD_FIELD, "%s: the file is larger than %u bytes", name,
                           TEXT_MAX);
    }
}

bool ini_size(const char *text, double *ret)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {
        {"", 1},     {"B", 1},         {"K", 1024},      {"KiB", 1024},   {"kB", 1e3},
        {"KB", 1e3}, {"M", 1 << 20},   {"MiB", 1 << 20}, {"MB", 1e6},     {"G", 1 << 30},
        {"GB", 1e9}, {"GiB", 1 << 30}, {"T", 0x1p40},    {"TiB", 0x1p40}, {"TB", 1e12},
    };
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    double v = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].suffix)) {
            *ret = v * units[i].factor;
            return isfinite(*ret);
        }
    return false;
}
