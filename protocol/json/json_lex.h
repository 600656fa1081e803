/* The lexical part of RFC 8259, shared by json.c, json_array.c and json_body.c: numbers and
 * strings. Pure functions over bytes; thread-safe. Private to protocol/json. */
#ifndef ARRAYD_JSON_LEX_H
#define ARRAYD_JSON_LEX_H

#include <stdbool.h>
#include <stddef.h>

enum json_lex {
    JSON_LEX_OK,
    JSON_LEX_MALFORMED, /* not JSON: 400 */
    JSON_LEX_UNUSABLE   /* JSON, but text that cannot be stored (U+0000, half a surrogate pair): 422
                         */
};

/* Length of the number at p, or 0 with *ret_why and *ret_bad (offset of the offending byte). The
 * caller checks what follows the number. */
size_t json_lex_number(const char *p, size_t n, size_t *ret_bad, const char **ret_why);

/* Decodes the string whose first byte after the opening quote is s[0], in place: the decoded text
 * is s[0 … *ret_len), NUL-terminated. *ret_used counts up to and including the closing quote; on an
 * error it is the offset of the offending byte. */
enum json_lex json_lex_string(char *s, size_t n, size_t *ret_used, size_t *ret_len,
                              const char **ret_why);

static inline bool json_lex_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

#endif
