/* JSON as a read-only document: a strict RFC 8259 scan that leaves a flat node array, and typed
 * getters whose errors carry the JSON pointer of the offending member.
 *
 * Called by the handlers and by tree.c for every JSON request body (array data goes through
 * json_array.h and json_body.h instead). The document and its strings live in the arena given to
 * json_parse; values are two words and are passed by value. Nothing here is changed after parsing,
 * so a document may be read by several threads.
 *
 * cJSON is not used for reading: it keeps numbers as doubles (64-bit integers are lost), ends
 * strings at U+0000 and accepts texts that are not JSON, so a strict scan must come first anyway,
 * and the scan has all it takes to keep the nodes. The unit test uses cJSON as its reference. */
#ifndef ARRAYD_JSON_H
#define ARRAYD_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"

enum json_kind {
    JSON_ABSENT,
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_LIST,
    JSON_OBJECT
};

struct json_doc;

/* One value of a document. A zeroed struct is "absent", the result of a failed lookup; every
 * function here accepts it. */
struct json {
    const struct json_doc *doc;
    uint32_t node;
};

struct json_limits {
    uint32_t max_depth; /* nested lists and objects; ERR_BAD_JSON past it */
    uint32_t max_nodes; /* values and member names; ERR_TOO_LARGE past it */
};
#define JSON_MAX_DEPTH 1000
#define JSON_MAX_NODES (1u << 21)

/* Parses n bytes of text (copied; it need not be NUL-terminated). `limits` may be NULL for the
 * defaults above. Errors: ERR_BAD_JSON with the byte position in the message (malformed, byte-order
 * mark, invalid UTF-8, duplicate member, too deep); ERR_BAD_FIELD for a string that no name or
 * expression can hold (U+0000, half a surrogate pair); ERR_TOO_LARGE; ERR_OUT_OF_MEMORY. */
enum err_code json_parse(struct arena *arena, const char *text, size_t n,
                         const struct json_limits *limits, struct json *ret,
                         struct err *e) must_check;

enum json_kind json_kind(struct json v);
bool json_present(struct json v); /* not absent */
bool json_given(struct json v);   /* neither absent nor null: an optional member that was set */
size_t json_count(struct json v); /* elements of a list, members of an object, else 0 */

/* Member of an object by its exact name; absent when there is none or v is no object. */
struct json json_member(struct json v, const char *name);

/* Iteration: for (struct json c = json_first(v); json_present(c); c = json_next(c)). For objects it
 * visits the values; json_key is the member's name there, NULL elsewhere. */
struct json json_first(struct json v);
struct json json_next(struct json v);
const char *json_key(struct json v);

/* A string's text (NUL-terminated; holds no U+0000), a number's exact text (not terminated: use
 * *ret_len), NULL for other kinds. */
const char *json_text(struct json v, size_t *ret_len);

/* Whether v is the string s. */
bool json_equals(struct json v, const char *s);

/* err_set with the JSON pointer of v; of member `name` of v with json_err_member. */
enum err_code json_err(struct json v, struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
enum err_code json_err_member(struct json v, const char *name, struct err *e, enum err_code code,
                              const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* v must be an object with no members but the `n` allowed names: ERR_BAD_FIELD, ERR_UNKNOWN_FIELD
 * with the pointer of the first unknown member. JSON_MEMBERS(v, e, "a", "b") for short. */
enum err_code json_check_members(struct json v, const char *const *allowed, size_t n,
                                 struct err *e) must_check;
#define JSON_MEMBERS(v, e, ...)                                                                    \
    json_check_members((v), (const char *const[]){__VA_ARGS__},                                    \
                       sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), (e))

/* As json_member, but ERR_BAD_FIELD ("/name", required) when it is missing. */
enum err_code json_require(struct json v, const char *name, struct json *ret,
                           struct err *e) must_check;

/* Typed getters. ERR_BAD_FIELD when v (absent included) is of another kind or out of range. An
 * integer written as a JSON number beyond ±2^53 is ERR_INEXACT_NUMBER; its message suggests the
 * same integer as a string, which is accepted, or the range where none as large is allowed. 2.0 and
 * 2e3 count as integers. */
enum err_code json_get_string(struct json v, const char **ret, size_t *ret_len,
                              struct err *e) must_check; /* ret_len may be NULL */
enum err_code json_get_bool(struct json v, bool *ret, struct err *e) must_check;
enum err_code json_get_i64(struct json v, int64_t lo, int64_t hi, int64_t *ret,
                           struct err *e) must_check;
enum err_code json_get_u64(struct json v, uint64_t *ret, struct err *e) must_check;
/* Numbers and the strings "NaN", "Infinity", "-Infinity". */
enum err_code json_get_double(struct json v, double *ret, struct err *e) must_check;
/* A weak scalar: true/false, a number (an integer unless it has a fraction or an exponent), the
 * strings of json_get_double, an integer as a string (±2^127), or [re, im]. */
enum err_code json_get_literal(struct json v, struct literal *ret, struct err *e) must_check;
/* The same for text whose integers were not rounded on the way: those past 2^53 are taken as they
 * are written. An integer as a string is refused. */
enum err_code json_get_exact(struct json v, struct literal *ret, struct err *e) must_check;
/* A list of 0…max integers within [lo, hi]; ret has room for max. */
enum err_code json_get_i64_list(struct json v, size_t max, int64_t lo, int64_t hi, int64_t *ret,
                                size_t *ret_n, struct err *e) must_check;
/* A list of up to MAX_RANK extents ≥ lo (0, or -1 where reshape infers one): ERR_BAD_SHAPE. */
enum err_code json_get_shape(struct json v, int64_t lo, int *ret_rank, int64_t *ret_shape,
                             struct err *e) must_check;
/* A dtype's name: ERR_BAD_DTYPE. */
enum err_code json_get_dtype(struct json v, enum dtype *ret, struct err *e) must_check;

#endif
