/* Read-only links, who the client is, and what operators do. */
#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/members.h"

static bool read_link(const struct cJSON *json, struct arrayd_link *ret)
{
    const struct cJSON *arrays = json_get(json, "arrays"), *jobs = json_get(json, "jobs");
    ret->arrays = json_is_list(arrays) ? (int64_t)json_count(arrays) : -1;
    ret->jobs = json_is_list(jobs) ? (int64_t)json_count(jobs) : -1;
    return members_copy(json, "id", ret->id, sizeof(ret->id)) && ret->id[0] &&
           members_copy(json, "url", ret->url, sizeof(ret->url)) &&
           members_copy(json, "created", ret->created, sizeof(ret->created)) &&
           members_copy(json, "expires", ret->expires, sizeof(ret->expires));
}

int arrayd_link_create(struct arrayd *client, const struct arrayd_link_options *options,
                       struct arrayd_link *ret_link, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct arrayd_link made;
    struct cJSON *tree;
    text_puts(&x.target, "/v1/links");
    text_puts(&x.json, "{");
    text_member(&x.json, "expires_s");
    text_real(&x.json, options->expires_s);
    if (options->array_count)
        members_strings(&x.json, "arrays", options->arrays, options->array_count);
    if (options->job_count)
        members_strings(&x.json, "jobs", options->jobs, options->job_count);
    text_puts(&x.json, "}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = read_link(tree, &made) && made.url[0];
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply does not describe a link");
    *ret_link = made;
    return 0;
}

int arrayd_links(struct arrayd *client, struct arrayd_link *links, size_t capacity,
                 size_t *ret_count, struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct cJSON *tree;
    size_t count = 0;
    text_puts(&x.target, "/v1/links");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    const struct cJSON *list = json_get(tree, "links");
    bool ok = json_is_list(list);
    for (const struct cJSON *at = json_first(list); ok && at; at = json_next(at), count++) {
        struct arrayd_link one;
        ok = read_link(at, &one);
        if (ok && count < capacity)
            links[count] = one;
    }
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply is not a list of links");
    *ret_count = count;
    return 0;
}

int arrayd_login(struct arrayd *client, struct arrayd_login *ret_login, struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct arrayd_login login;
    struct cJSON *tree;
    text_puts(&x.target, "/v1/login");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    login.required = json_true(tree, "required");
    bool ok = json_get(tree, "required") &&
              members_copy(tree, "principal", login.principal, sizeof(login.principal)) &&
              members_copy(tree, "role", login.role, sizeof(login.role));
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply does not say who the client is");
    *ret_login = login;
    return 0;
}

static int delete (struct arrayd *client, const char *head, const char *name,
                   struct arrayd_error *err)
{
    struct exchange x = {.method = "DELETE"};
    exchange_path(&x, head, name, "");
    return exchange_done(client, &x, err);
}

int arrayd_link_delete(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    return delete (client, "/v1/links", id, err);
}

int arrayd_end_session(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    return delete (client, "/v1/admin/sessions", id, err);
}

int arrayd_end_array(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    return delete (client, "/v1/admin/arrays", id, err);
}

int arrayd_end_job(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    return delete (client, "/v1/admin/jobs", id, err);
}

int arrayd_end_principal(struct arrayd *client, const char *principal, struct arrayd_error *err)
{
    return delete (client, "/v1/admin/principals", principal, err);
}

int arrayd_set_principal(struct arrayd *client, const char *principal, const char *json,
                         struct arrayd_error *err)
{
    struct exchange x = {.method = "PATCH"};
    exchange_path(&x, "/v1/admin/principals", principal, "");
    text_puts(&x.json, json ? json : "");
    if (!json)
        x.refused = "the changes are missing";
    return exchange_done(client, &x, err);
}
