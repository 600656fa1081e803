/*
 * Text that grows: request targets, JSON bodies, and replies whose size nobody knows beforehand.
 *
 * A text is zeroed before its first use and freed with text_free. When memory runs out it stays as
 * it is and `failed` is set; whoever sends or reads it looks there once, at the end.
 */
#ifndef ARRAYD_CLIENT_TEXT_H
#define ARRAYD_CLIENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data; /* ended by a zero; NULL while nothing was added */
    size_t length;
    size_t capacity;
    bool failed;
};

void text_free(struct text *text);

/* What was added, "" where that is nothing. */
const char *text_get(const struct text *text);

void text_add(struct text *text, const void *bytes, size_t count);
void text_puts(struct text *text, const char *string);
void text_i64(struct text *text, int64_t value);

/* Percent-encodes everything but the characters that mean nothing in a path or a query. */
void text_escape(struct text *text, const char *string);

/* JSON: a string with its quotes; a number, or the string that stands for NaN or an infinity. */
void text_quote(struct text *text, const char *string);
void text_real(struct text *text, double value);

/* JSON: the comma before an element or a member, unless it is the first one. */
void text_comma(struct text *text);

/* JSON: a member's name and colon, with the comma before it; then its value is added. */
void text_member(struct text *text, const char *name);

/* JSON: a member that is a string; none where value is NULL. */
void text_string_member(struct text *text, const char *name, const char *value);

#endif
