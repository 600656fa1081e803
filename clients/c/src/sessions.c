/* Sessions: making, deleting, and waiting for them; which one a client is in is client.c's. */
#include <string.h>

#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/members.h"

static void add_options(struct text *json, const struct arrayd_session_options *options)
{
    text_string_member(json, "name", options->name);
    if (options->ttl_s != 0) {
        text_member(json, "ttl_s");
        text_real(json, options->ttl_s);
    }
    if (options->memory_limit) {
        text_member(json, "memory_limit"); /* as text: exact past 2^53 */
        text_puts(json, "\"");
        text_i64(json, options->memory_limit);
        text_puts(json, "\"");
    }
    if (options->device)
        members_integer(json, "device", *options->device);
}

int arrayd_session_create(struct arrayd *client, const struct arrayd_session_options *options,
                          struct arrayd_session *ret_session, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct arrayd_session session = {0};
    struct cJSON *tree;
    int64_t device = 0;
    text_puts(&x.target, "/v1/sessions");
    text_puts(&x.json, "{");
    if (options)
        add_options(&x.json, options);
    text_puts(&x.json, "}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = members_copy(tree, "id", session.id, sizeof(session.id)) && session.id[0] &&
              members_copy(tree, "name", session.name, sizeof(session.name)) &&
              json_i64(tree, "device", &device) && json_i64(tree, "arrays", &session.arrays) &&
              json_i64(tree, "bytes_in_use", &session.bytes_in_use);
    session.device = (int)device;
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply does not describe a session");
    *ret_session = session;
    return 0;
}

int arrayd_session_delete(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    struct exchange x = {.method = "DELETE"};
    exchange_path(&x, "/v1/sessions", id, "");
    if (exchange_done(client, &x, err))
        return -1;
    if (client->session_id && !strcmp(client->session_id, id))
        return arrayd_session_use(client, NULL, err);
    return 0;
}

int arrayd_session_sync(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    if (!id)
        id = client->session_id ? client->session_id : "default";
    exchange_path(&x, "/v1/sessions", id, "/sync");
    return exchange_done(client, &x, err);
}
