/*
 * Reading JSON replies, on cJSON, which only json.c knows. Integers of any size are exact: cJSON
 * has doubles alone, so that long integers reach it as strings.
 *
 * The getters take NULL for an object that is not there. Strings live as long as the tree does.
 */
#ifndef ARRAYD_CLIENT_JSON_H
#define ARRAYD_CLIENT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* The tree, for json_free; NULL where the text is no JSON, or memory runs out. */
struct cJSON *json_read(const char *text, size_t length);
void json_free(struct cJSON *tree);

/* A member, or NULL. */
const struct cJSON *json_get(const struct cJSON *object, const char *name);

/* Walking an array or the members of an object: the first element, the next, how many there are. */
const struct cJSON *json_first(const struct cJSON *list);
const struct cJSON *json_next(const struct cJSON *element);
size_t json_count(const struct cJSON *list);
bool json_is_list(const struct cJSON *value);
bool json_is_object(const struct cJSON *value);

/* Members: NULL or false where it is not there or of another type. Outputs are written on success
 * only. */
const char *json_string(const struct cJSON *object, const char *name);
bool json_i64(const struct cJSON *object, const char *name, int64_t *ret);
bool json_real(const struct cJSON *object, const char *name, double *ret);
bool json_true(const struct cJSON *object, const char *name);

/*
 * Values: an integer (of uint64 its bits), and a real number, which may also be true or false, or
 * the string of a NaN or an infinity.
 */
bool json_value_i64(const struct cJSON *value, int64_t *ret);
bool json_value_real(const struct cJSON *value, double *ret);

/* A string, or NULL. */
const char *json_value_string(const struct cJSON *value);

#endif
