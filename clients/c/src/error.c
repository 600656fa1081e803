/*
 * Errors. A text that does not fit is cut between characters, never inside of one: who prints a
 * detail prints UTF-8.
 */
#include "clients/c/src/error.h"

#include <stdarg.h>
#include <string.h>

#include "clients/c/src/json.h"

static void clear(struct arrayd_error *err)
{
    memset(err, 0, sizeof(*err));
    err->retry_after_s = -1;
    err->offset = -1;
}

static void cut(char *text)
{
    size_t length = strlen(text), start = length;
    while (start && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    unsigned char lead = start ? (unsigned char)text[start - 1] : 0;
    size_t want = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    if (lead >= 0xc0 && length - start < want)
        text[start - 1] = 0;
}

int error_set(struct arrayd_error *err, const char *code, const char *format, ...)
{
    if (!err)
        return -1;
    clear(err);
    snprintf(err->code, sizeof(err->code), "%s", code);
    va_list args;
    va_start(args, format);
    vsnprintf(err->detail, sizeof(err->detail), format, args);
    va_end(args);
    cut(err->detail);
    return -1;
}

int error_no_memory(struct arrayd_error *err)
{
    return error_set(err, "out_of_memory", "this process is out of memory");
}

static void take(const struct cJSON *problem, const char *name, char *into, size_t size)
{
    const char *text = json_string(problem, name);
    if (!text)
        return;
    snprintf(into, size, "%s", text);
    cut(into);
}

void error_from_problem(struct arrayd_error *err, const struct cJSON *problem)
{
    int64_t number;
    clear(err);
    if (json_i64(problem, "status", &number) && number >= 400 && number < 600)
        err->status = (int)number;
    if (json_i64(problem, "offset", &number))
        err->offset = number;
    take(problem, "code", err->code, sizeof(err->code));
    take(problem, "pointer", err->pointer, sizeof(err->pointer));
    take(problem, "detail", err->detail, sizeof(err->detail));
}

int error_from_reply(struct arrayd_error *err, long status, int64_t retry_after_s, const char *body,
                     size_t length)
{
    if (!err)
        return -1;
    struct cJSON *problem = json_read(body, length);
    error_from_problem(err, problem);
    json_free(problem);
    if (!err->code[0])
        error_set(err, "bad_result", "the reply (status %ld) does not come from arrayd", status);
    err->status = (int)status;
    err->retry_after_s = retry_after_s;
    return -1;
}
