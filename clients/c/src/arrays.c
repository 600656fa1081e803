/* Arrays as things: making them out of JSON, finding, listing, changing, and letting go of them. */
#include <stdlib.h>

#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/members.h"

static int create(struct arrayd *client, const char *name, enum arrayd_dtype dtype, int rank,
                  const int64_t *shape, const double *fill, struct arrayd_array *ret_array,
                  struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    if (rank < 0 || rank > ARRAYD_MAX_RANK || (rank && !shape))
        x.refused = "a shape must have 0 to 32 extents";
    text_puts(&x.target, "/v1/arrays");
    text_puts(&x.json, "{");
    text_string_member(&x.json, "name", name);
    text_string_member(&x.json, "dtype",
                       dtype ? arrayd_dtype_name(dtype) : arrayd_dtype_name(ARRAYD_FLOAT64));
    text_member(&x.json, "shape");
    text_puts(&x.json, "[");
    for (int i = 0; i < rank && !x.refused; i++) {
        text_comma(&x.json);
        text_i64(&x.json, shape[i]);
    }
    text_puts(&x.json, "]");
    if (fill) {
        text_member(&x.json, "fill");
        text_real(&x.json, *fill);
    }
    text_puts(&x.json, "}");
    return members_array_reply(client, &x, ret_array, err);
}

int arrayd_zeros(struct arrayd *client, const char *name, enum arrayd_dtype dtype, int rank,
                 const int64_t *shape, struct arrayd_array *ret_array, struct arrayd_error *err)
{
    return create(client, name, dtype, rank, shape, NULL, ret_array, err);
}

int arrayd_fill(struct arrayd *client, const char *name, enum arrayd_dtype dtype, int rank,
                const int64_t *shape, double value, struct arrayd_array *ret_array,
                struct arrayd_error *err)
{
    return create(client, name, dtype, rank, shape, &value, ret_array, err);
}

int arrayd_create(struct arrayd *client, const char *json, struct arrayd_array *ret_array,
                  struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    text_puts(&x.target, "/v1/arrays");
    text_puts(&x.json, json ? json : "");
    if (!json)
        x.refused = "the body is missing";
    return members_array_reply(client, &x, ret_array, err);
}

int arrayd_like(struct arrayd *client, const char *ref, const char *name,
                struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    text_puts(&x.target, "/v1/arrays");
    text_puts(&x.json, "{");
    text_string_member(&x.json, "like", ref);
    text_string_member(&x.json, "name", name);
    text_puts(&x.json, "}");
    if (!ref)
        x.refused = "the name or id is empty";
    return members_array_reply(client, &x, ret_array, err);
}

static int derive(struct arrayd *client, const char *ref, const char *how, const char *index,
                  const char *name, struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    exchange_path(&x, "/v1/arrays", ref, how);
    text_puts(&x.json, "{");
    text_string_member(&x.json, "index", index);
    text_string_member(&x.json, "name", name);
    text_puts(&x.json, "}");
    return members_array_reply(client, &x, ret_array, err);
}

int arrayd_view(struct arrayd *client, const char *ref, const char *index, const char *name,
                struct arrayd_array *ret_array, struct arrayd_error *err)
{
    return derive(client, ref, "/views", index, name, ret_array, err);
}

int arrayd_copy(struct arrayd *client, const char *ref, const char *name,
                struct arrayd_array *ret_array, struct arrayd_error *err)
{
    return derive(client, ref, "/copy", NULL, name, ret_array, err);
}

int arrayd_find(struct arrayd *client, const char *ref, struct arrayd_array *ret_array,
                struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    exchange_path(&x, "/v1/arrays", ref, "");
    return members_array_reply(client, &x, ret_array, err);
}

static int read_list(const struct cJSON *tree, struct arrayd_list *ret_list,
                     struct arrayd_error *err)
{
    const struct cJSON *arrays = json_get(tree, "arrays");
    struct arrayd_list list = {0};
    bool ok = json_is_list(arrays) && members_copy(tree, "next", list.next, sizeof(list.next));
    if (ok && json_count(arrays)) {
        list.arrays = calloc(json_count(arrays), sizeof(*list.arrays));
        if (!list.arrays)
            return error_no_memory(err);
        for (const struct cJSON *at = json_first(arrays); ok && at; at = json_next(at))
            ok = members_array(at, &list.arrays[list.count++]);
    }
    if (!ok) {
        free(list.arrays);
        return error_set(err, "bad_result", "the reply is not a list of arrays");
    }
    *ret_list = list;
    return 0;
}

int arrayd_list(struct arrayd *client, const char *after, int limit, struct arrayd_list *ret_list,
                struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct cJSON *tree;
    char digits[16];
    snprintf(digits, sizeof(digits), "%d", limit);
    text_puts(&x.target, "/v1/arrays");
    exchange_query(&x, "limit", limit ? digits : NULL);
    exchange_query(&x, "after", after && *after ? after : NULL);
    if (exchange_json(client, &x, &tree, err))
        return -1;
    int ret = read_list(tree, ret_list, err);
    json_free(tree);
    return ret;
}

void arrayd_list_free(struct arrayd_list *list)
{
    if (!list)
        return;
    free(list->arrays);
    *list = (struct arrayd_list){0};
}

int arrayd_delete(struct arrayd *client, const char *ref, struct arrayd_error *err)
{
    struct exchange x = {.method = "DELETE"};
    exchange_path(&x, "/v1/arrays", ref, "");
    return exchange_done(client, &x, err);
}

int arrayd_rename(struct arrayd *client, const char *ref, const char *name,
                  struct arrayd_error *err)
{
    struct exchange x = {.method = "PATCH"};
    exchange_path(&x, "/v1/arrays", ref, "");
    text_puts(&x.json, "{");
    text_string_member(&x.json, "name", name);
    text_puts(&x.json, "}");
    if (!name)
        x.refused = "the new name is missing";
    return exchange_done(client, &x, err);
}

int arrayd_set_read_only(struct arrayd *client, const char *ref, bool read_only,
                         struct arrayd_error *err)
{
    struct exchange x = {.method = "PATCH"};
    exchange_path(&x, "/v1/arrays", ref, "");
    text_puts(&x.json, read_only ? "{\"read_only\":true}" : "{\"read_only\":false}");
    return exchange_done(client, &x, err);
}
