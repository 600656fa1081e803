/* Grids and the memory of arrays: ghost cells, layouts, other shapes, other memory, other places.
 */
#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/members.h"

static void add_integers(struct text *json, const int64_t *values, int count)
{
    text_puts(json, "[");
    for (int i = 0; i < count; i++) {
        text_comma(json);
        text_i64(json, values[i]);
    }
    text_puts(json, "]");
}

static bool is_rank(int rank)
{
    return rank >= 0 && rank <= ARRAYD_MAX_RANK;
}

int arrayd_resize(struct arrayd *client, const char *ref, int rank, const int64_t *shape,
                  struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    exchange_path(&x, "/v1/arrays", ref, "/resize");
    text_puts(&x.json, "{\"shape\":");
    if (!is_rank(rank) || (rank && !shape))
        x.refused = "a shape must have 0 to 32 extents";
    else
        add_integers(&x.json, shape, rank);
    text_puts(&x.json, "}");
    return members_array_reply(client, &x, ret_array, err);
}

int arrayd_swap(struct arrayd *client, const char *ref, const char *with, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    exchange_path(&x, "/v1/arrays", ref, "/swap");
    text_puts(&x.json, "{");
    text_string_member(&x.json, "with", with);
    text_puts(&x.json, "}");
    if (!with || !*with)
        x.refused = "the name or id is empty";
    return exchange_done(client, &x, err);
}

int arrayd_fill_ghost(struct arrayd *client, const char *ref, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    exchange_path(&x, "/v1/arrays", ref, "/fill_ghost");
    return exchange_done(client, &x, err);
}

int arrayd_set_on_host(struct arrayd *client, const char *ref, bool on_host,
                       struct arrayd_error *err)
{
    return arrayd_patch(
        client, ref, on_host ? "{\"location\":\"host\"}" : "{\"location\":\"device\"}", NULL, err);
}

int arrayd_patch(struct arrayd *client, const char *ref, const char *json,
                 struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "PATCH"};
    exchange_path(&x, "/v1/arrays", ref, "");
    text_puts(&x.json, json ? json : "");
    if (!json)
        x.refused = "the body is missing";
    return members_array_reply(client, &x, ret_array, err);
}

int arrayd_view_json(struct arrayd *client, const char *ref, const char *json,
                     struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    exchange_path(&x, "/v1/arrays", ref, "/views");
    text_puts(&x.json, json ? json : "");
    if (!json)
        x.refused = "the body is missing";
    return members_array_reply(client, &x, ret_array, err);
}

static void add_rows(struct text *json, const char *name, size_t count, int rank,
                     const int64_t *rows)
{
    text_member(json, name);
    text_puts(json, "[");
    for (size_t i = 0; i < count; i++) {
        text_comma(json);
        add_integers(json, rows + i * (size_t)rank, rank);
    }
    text_puts(json, "]");
}

int arrayd_layout(struct arrayd *client, size_t count, int rank, const int64_t *shapes,
                  const int64_t *ghosts, int64_t *ret_padded, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct cJSON *tree;
    int64_t padded[ARRAYD_MAX_RANK];
    text_puts(&x.target, "/v1/layouts");
    text_puts(&x.json, "{");
    if (!is_rank(rank) || (rank && count && !shapes)) {
        x.refused = "a shape must have 0 to 32 extents";
    } else {
        add_rows(&x.json, "shapes", count, rank, shapes);
        if (ghosts)
            add_rows(&x.json, "ghosts", count, rank, ghosts);
    }
    text_puts(&x.json, "}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = members_integers(tree, "padded", rank, padded);
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply is not a layout");
    for (int i = 0; i < rank; i++)
        ret_padded[i] = padded[i];
    return 0;
}
