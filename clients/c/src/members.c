/* What JSON requests and replies have in common. */
#include "clients/c/src/members.h"

#include <string.h>

#include "clients/c/src/dtype.h"
#include "clients/c/src/error.h"
#include "clients/c/src/json.h"

#define EXACT (INT64_C(1) << 53) /* JSON numbers are exact up to here */

void members_strings(struct text *json, const char *name, const char *const *strings, size_t count)
{
    text_member(json, name);
    text_puts(json, "[");
    for (size_t i = 0; i < count; i++) {
        text_comma(json);
        text_quote(json, strings[i] ? strings[i] : "");
    }
    text_puts(json, "]");
}

void members_integer(struct text *json, const char *name, int64_t value)
{
    text_member(json, name);
    text_i64(json, value);
}

void members_true(struct text *json, const char *name, bool value)
{
    if (!value)
        return;
    text_member(json, name);
    text_puts(json, "true");
}

static void add_bind(struct text *json, const struct arrayd_bind *bind)
{
    text_member(json, bind->name ? bind->name : "");
    if (bind->ref) {
        text_quote(json, bind->ref);
    } else if (!bind->is_int) {
        text_real(json, bind->real);
    } else if (bind->integer >= -EXACT && bind->integer <= EXACT) {
        text_i64(json, bind->integer);
    } else {
        text_puts(json, "{\"op\":\"const\",\"dtype\":\"int64\",\"value\":\"");
        text_i64(json, bind->integer);
        text_puts(json, "\"}");
    }
}

void members_binds(struct text *json, const struct arrayd_bind *binds, size_t count)
{
    if (!count)
        return;
    text_member(json, "bind");
    text_puts(json, "{");
    for (size_t i = 0; i < count; i++)
        add_bind(json, &binds[i]);
    text_puts(json, "}");
}

bool members_copy(const struct cJSON *json, const char *name, char *into, size_t size)
{
    const char *text = json_string(json, name);
    into[0] = 0;
    if (text && strlen(text) >= size)
        return false;
    if (text)
        memcpy(into, text, strlen(text) + 1);
    return true;
}

bool members_integers(const struct cJSON *json, const char *name, int rank, int64_t *ret)
{
    const struct cJSON *list = json_get(json, name);
    if (!json_is_list(list) || json_count(list) != (size_t)rank)
        return false;
    for (const struct cJSON *at = json_first(list); at; at = json_next(at))
        if (!json_value_i64(at, ret++))
            return false;
    return true;
}

bool members_array(const struct cJSON *json, struct arrayd_array *ret)
{
    int64_t device;
    const char *location = json_string(json, "location");
    size_t rank = json_count(json_get(json, "shape"));
    memset(ret, 0, sizeof(*ret));
    if (rank > ARRAYD_MAX_RANK || !location)
        return false;
    ret->rank = (int)rank;
    ret->dtype = dtype_named(json_string(json, "dtype"));
    ret->read_only = json_true(json, "read_only");
    ret->on_host = !strcmp(location, "host");
    if (!json_i64(json, "device", &device) || device < 0 || device > INT32_MAX)
        return false;
    ret->device = (int)device;
    return ret->dtype && members_copy(json, "id", ret->id, sizeof(ret->id)) && ret->id[0] &&
           members_copy(json, "name", ret->name, sizeof(ret->name)) &&
           members_copy(json, "session", ret->session, sizeof(ret->session)) &&
           members_copy(json, "view_of", ret->view_of, sizeof(ret->view_of)) &&
           members_copy(json, "created", ret->created, sizeof(ret->created)) &&
           members_integers(json, "shape", ret->rank, ret->shape) &&
           members_integers(json, "strides", ret->rank, ret->strides) &&
           members_integers(json, "ghost", ret->rank, ret->ghost) &&
           json_i64(json, "offset", &ret->offset) && json_i64(json, "size", &ret->size) &&
           json_i64(json, "nbytes", &ret->nbytes) && json_i64(json, "itemsize", &ret->itemsize) &&
           json_i64(json, "references", &ret->references);
}

bool members_scalar(const struct cJSON *json, struct arrayd_scalar *ret)
{
    const struct cJSON *value = json_get(json, "value");
    struct arrayd_scalar read = {.dtype = dtype_named(json_string(json, "dtype"))};
    if (!value || !read.dtype)
        return false;
    if (read.dtype < ARRAYD_FLOAT16 && !json_value_i64(value, &read.integer))
        return false;
    if (read.dtype >= ARRAYD_COMPLEX64) {
        if (!json_is_list(value) || json_count(value) != 2 ||
            !json_value_real(json_next(json_first(value)), &read.im))
            return false;
        value = json_first(value);
    }
    if (!json_value_real(value, &read.re))
        return false;
    *ret = read;
    return true;
}

int members_array_reply(struct arrayd *client, struct exchange *x, struct arrayd_array *ret,
                        struct arrayd_error *err)
{
    struct cJSON *tree;
    struct arrayd_array array;
    if (exchange_json(client, x, &tree, err))
        return -1;
    bool ok = members_array(tree, &array);
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply does not describe an array");
    if (ret)
        *ret = array;
    return 0;
}
