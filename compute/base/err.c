/* The table of errors and the setters. A setter overwrites the previous error: the innermost layer,
 * which understands the mistake, writes the message; outer layers only prepend their place with
 * err_prefix. */
#include "compute/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/meter.h"

static const struct {
    int status;
    const char *name, *title;
} table[ERR_COUNT] = {
    [ERR_OK] = {200, "ok", "OK"},
#define ERR(id, status_, name_, title_) [ERR_##id] = {status_, name_, title_},
#include "compute/base/err.def"
#undef ERR
};

/* Cuts a UTF-8 text that snprintf truncated so that it does not end inside a character. */
static void trim_utf8(char *s, size_t cap, int wanted)
{
    if (wanted < 0 || (size_t)wanted < cap)
        return;
    size_t n = cap - 1;
    while (n > 0 && ((unsigned char)s[n - 1] & 0xC0) == 0x80)
        n--;
    if (n > 0 && ((unsigned char)s[n - 1] & 0xC0) == 0xC0)
        n--;
    s[n] = '\0';
}

__attribute__((format(printf, 5, 0))) static enum err_code set(struct err *e, enum err_code code,
                                                               long offset, const char *pointer,
                                                               const char *fmt, va_list ap)
{
    if (!e)
        return code;
    e->code = code;
    e->offset = offset;
    e->of_target = false;
    e->wanted = 0;
    e->retry_s = 0;
    snprintf(e->pointer, sizeof e->pointer, "%s", pointer);
    int n = vsnprintf(e->message, sizeof e->message, fmt, ap);
    trim_utf8(e->message, sizeof e->message, n);
    return code;
}

enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(e, code, -1, "", fmt, ap);
    va_end(ap);
    return code;
}

enum err_code err_at(struct err *e, enum err_code code, long offset, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(e, code, offset, "", fmt, ap);
    va_end(ap);
    return code;
}

enum err_code err_field(struct err *e, enum err_code code, const char *pointer, const char *fmt,
                        ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(e, code, -1, pointer, fmt, ap);
    va_end(ap);
    return code;
}

enum err_code err_prefix(struct err *e, const char *prefix)
{
    if (!e)
        return ERR_INTERNAL;
    char joined[sizeof e->pointer];
    int n = snprintf(joined, sizeof joined, "%s%s", prefix, e->pointer);
    if (n >= 0 && (size_t)n < sizeof joined)
        memcpy(e->pointer, joined, (size_t)n + 1);
    return e->code;
}

enum err_code err_oom(struct err *e)
{
    if (e && meter_refusal(e))
        return e->code;
    return err_set(e, ERR_OUT_OF_MEMORY, "the daemon is out of memory");
}

enum err_code err_draining(struct err *e)
{
    return err_set(e, ERR_DRAINING, "the daemon is shutting down");
}

int err_status(enum err_code code)
{
    return code < ERR_COUNT ? table[code].status : 500;
}

const char *err_name(enum err_code code)
{
    return code < ERR_COUNT ? table[code].name : "internal";
}

const char *err_title(enum err_code code)
{
    return code < ERR_COUNT ? table[code].title : "Internal error";
}
