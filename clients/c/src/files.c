/* Files of the daemon's machine, and several arrays in one file. Bodies are the caller's JSON. */
#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/jobs.h"
#include "clients/c/src/json.h"
#include "clients/c/src/looks.h"
#include "clients/c/src/members.h"

int arrayd_folders(struct arrayd *client, struct arrayd_folder *folders, size_t capacity,
                   size_t *ret_count, struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct cJSON *tree;
    size_t count = 0;
    text_puts(&x.target, "/v1/files");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    const struct cJSON *list = json_get(tree, "folders");
    bool ok = json_is_list(list);
    for (const struct cJSON *at = json_first(list); ok && at; at = json_next(at), count++) {
        struct arrayd_folder one = {.read_only = json_true(at, "read_only"),
                                    .shared = json_true(at, "shared")};
        ok = members_copy(at, "name", one.name, sizeof(one.name)) && one.name[0];
        if (ok && count < capacity)
            folders[count] = one;
    }
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply is not a list of folders");
    *ret_count = count;
    return 0;
}

int arrayd_file_look(struct arrayd *client, const char *folder, const char *path, char **ret_text,
                     struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    exchange_path(&x, "/v1/files", folder, "");
    exchange_query(&x, "path", path && *path ? path : NULL);
    return exchange_text(client, &x, ret_text, err);
}

int arrayd_file_import(struct arrayd *client, const char *json, struct arrayd_job *ret_job,
                       struct arrayd_error *err)
{
    return jobs_start(client, "/v1/files/import", json, ret_job, err);
}

int arrayd_file_export(struct arrayd *client, const char *json, struct arrayd_job *ret_job,
                       struct arrayd_error *err)
{
    return jobs_start(client, "/v1/files/export", json, ret_job, err);
}

int arrayd_file_bundle(struct arrayd *client, const char *json, FILE *file,
                       struct arrayd_error *err)
{
    struct exchange x = {.method = "POST", .accept = ANY_TYPE, .to = file};
    text_puts(&x.target, "/v1/files/bundle");
    text_puts(&x.json, json ? json : "");
    if (!json || !file)
        x.refused = json ? "the file is missing" : "the body is missing";
    return looks_save(client, &x, file, err);
}
