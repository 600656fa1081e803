/*
 * JSON replies. Before cJSON sees a text, integers of 16 digits and more are put in quotes: what is
 * beyond 2^53 would lose its last bits as a double. The getters read both spellings.
 */
#include "clients/c/src/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/src/text.h"

#define LONG_INTEGER 16 /* characters, a sign counted */

static const char *after_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end)
            at++;
    return at < end ? at + 1 : end;
}

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Copies the text, long integers in quotes. */
static void quote_integers(struct text *out, const char *at, const char *end)
{
    const char *copied = at;
    while (at < end) {
        if (*at == '"') {
            at = after_string(at, end);
        } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
            const char *start = at;
            bool integer = true;
            for (; at < end && in_number(*at); at++)
                integer &= *at != '.' && *at != 'e' && *at != 'E';
            if (integer && at - start >= LONG_INTEGER) {
                text_add(out, copied, (size_t)(start - copied));
                text_puts(out, "\"");
                text_add(out, start, (size_t)(at - start));
                text_puts(out, "\"");
                copied = at;
            }
        } else {
            at++;
        }
    }
    text_add(out, copied, (size_t)(end - copied));
}

struct cJSON *json_read(const char *text, size_t length)
{
    struct text quoted = {0};
    quote_integers(&quoted, text, text + length);
    cJSON *tree = quoted.failed ? NULL : cJSON_ParseWithLength(text_get(&quoted), quoted.length);
    text_free(&quoted);
    return tree;
}

void json_free(struct cJSON *tree)
{
    cJSON_Delete(tree);
}

const struct cJSON *json_get(const struct cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

const struct cJSON *json_first(const struct cJSON *list)
{
    return list ? list->child : NULL;
}

const struct cJSON *json_next(const struct cJSON *element)
{
    return element->next;
}

size_t json_count(const struct cJSON *list)
{
    return (size_t)cJSON_GetArraySize(list);
}

bool json_is_list(const struct cJSON *value)
{
    return cJSON_IsArray(value);
}

bool json_is_object(const struct cJSON *value)
{
    return cJSON_IsObject(value);
}

const char *json_string(const struct cJSON *object, const char *name)
{
    return cJSON_GetStringValue(json_get(object, name));
}

bool json_i64(const struct cJSON *object, const char *name, int64_t *ret)
{
    return json_value_i64(json_get(object, name), ret);
}

bool json_real(const struct cJSON *object, const char *name, double *ret)
{
    return json_value_real(json_get(object, name), ret);
}

bool json_true(const struct cJSON *object, const char *name)
{
    return cJSON_IsTrue(json_get(object, name));
}

bool json_value_i64(const struct cJSON *value, int64_t *ret)
{
    if (cJSON_IsBool(value)) {
        *ret = cJSON_IsTrue(value);
        return true;
    }
    if (cJSON_IsNumber(value)) {
        double number = value->valuedouble;
        if (!(fabs(number) <= 0x1p53) || number != trunc(number))
            return false;
        *ret = (int64_t)number;
        return true;
    }
    const char *digits = cJSON_GetStringValue(value);
    if (!digits || strlen(digits) < LONG_INTEGER)
        return false;
    char *end;
    errno = 0;
    int64_t number =
        digits[0] == '-' ? (int64_t)strtoll(digits, &end, 10) : (int64_t)strtoull(digits, &end, 10);
    if (errno || *end || end == digits)
        return false;
    *ret = number;
    return true;
}

const char *json_value_string(const struct cJSON *value)
{
    return cJSON_GetStringValue(value);
}

bool json_value_real(const struct cJSON *value, double *ret)
{
    if (cJSON_IsBool(value)) {
        *ret = cJSON_IsTrue(value);
        return true;
    }
    if (cJSON_IsNumber(value)) {
        *ret = value->valuedouble;
        return true;
    }
    const char *text = cJSON_GetStringValue(value);
    if (!text)
        return false;
    char *end; /* strtod knows NaN and Infinity, and whole numbers have no decimal point */
    double number = strtod(text, &end);
    if (*end || end == text)
        return false;
    *ret = number;
    return true;
}
