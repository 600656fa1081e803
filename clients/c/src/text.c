/*
 * Growing text. It grows by half, so that long replies are moved seldom. Numbers are written
 * without regard to the locale, whose decimal point may be a comma.
 */
#include "clients/c/src/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

const char *text_get(const struct text *text)
{
    return text->data ? text->data : "";
}

static bool grow(struct text *text, size_t count)
{
    size_t need, wanted;
    if (__builtin_add_overflow(text->length, count, &need) || need == SIZE_MAX)
        return false;
    if (text->data && need < text->capacity)
        return true;
    if (__builtin_add_overflow(need, need / 2, &wanted) || wanted > SIZE_MAX - 64)
        return false;
    char *data = realloc(text->data, wanted + 64);
    if (!data)
        return false;
    text->data = data;
    text->capacity = wanted + 64;
    return true;
}

static bool make_room(struct text *text, size_t count)
{
    text->failed = text->failed || !grow(text, count);
    return !text->failed;
}

void text_add(struct text *text, const void *bytes, size_t count)
{
    if (!make_room(text, count))
        return;
    if (count)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = 0;
}

void text_puts(struct text *text, const char *string)
{
    text_add(text, string, strlen(string));
}

void text_i64(struct text *text, int64_t value)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%" PRId64, value);
    text_puts(text, digits);
}

static bool unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '~' || c == '@'; /* in accounts' names */
}

void text_escape(struct text *text, const char *string)
{
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        char code[4];
        if (unreserved(*c)) {
            text_add(text, c, 1);
        } else {
            snprintf(code, sizeof(code), "%%%02X", *c);
            text_puts(text, code);
        }
    }
}

void text_quote(struct text *text, const char *string)
{
    text_puts(text, "\"");
    for (const char *c = string; *c; c++) {
        char code[8];
        if (*c == '"' || *c == '\\') {
            snprintf(code, sizeof(code), "\\%c", *c);
            text_puts(text, code);
        } else if ((unsigned char)*c < 0x20) {
            snprintf(code, sizeof(code), "\\u%04x", (unsigned char)*c);
            text_puts(text, code);
        } else {
            text_add(text, c, 1);
        }
    }
    text_puts(text, "\"");
}

void text_real(struct text *text, double value)
{
    if (isnan(value)) {
        text_puts(text, "\"NaN\"");
    } else if (isinf(value)) {
        text_puts(text, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    } else {
        char digits[48];
        snprintf(digits, sizeof(digits), "%.17g", value);
        size_t before = strspn(digits, "-0123456789");
        size_t point = strcspn(digits + before, "0123456789eE");
        text_add(text, digits, before);
        if (point)
            text_puts(text, ".");
        text_puts(text, digits + before + point);
        if (!strpbrk(digits + before, "eE") && !point)
            text_puts(text, ".0"); /* it stays a floating-point number, as the caller meant it */
    }
}

void text_comma(struct text *text)
{
    if (text->length && !strchr("[{", text->data[text->length - 1]))
        text_puts(text, ",");
}

void text_member(struct text *text, const char *name)
{
    text_comma(text);
    text_quote(text, name);
    text_puts(text, ":");
}

void text_string_member(struct text *text, const char *name, const char *value)
{
    if (!value)
        return;
    text_member(text, name);
    text_quote(text, value);
}
