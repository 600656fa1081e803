/* Leases and shares of arrays. */
#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/members.h"

int arrayd_lease(struct arrayd *client, const char *ref, bool write, double ttl_s,
                 struct arrayd_lease *ret_lease, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct arrayd_lease lease = {.write = write};
    struct cJSON *tree;
    exchange_path(&x, "/v1/arrays", ref, "/lease");
    text_puts(&x.json, "{");
    text_string_member(&x.json, "mode", write ? "write" : "read");
    if (ttl_s != 0) {
        text_member(&x.json, "ttl_s");
        text_real(&x.json, ttl_s);
    }
    text_puts(&x.json, "}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = members_copy(tree, "token", lease.token, sizeof(lease.token)) && lease.token[0] &&
              members_copy(tree, "expires", lease.expires, sizeof(lease.expires));
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply does not describe a lease");
    *ret_lease = lease;
    return 0;
}

int arrayd_lease_end(struct arrayd *client, const char *ref, struct arrayd_error *err)
{
    struct exchange x = {.method = "DELETE"};
    exchange_path(&x, "/v1/arrays", ref, "/lease");
    return exchange_done(client, &x, err);
}

int arrayd_share(struct arrayd *client, const char *ref, const char *principal, bool write,
                 struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    exchange_path(&x, "/v1/arrays", ref, "/shares");
    text_puts(&x.json, "{");
    text_string_member(&x.json, "principal", principal);
    text_string_member(&x.json, "access", write ? "write" : "read");
    text_puts(&x.json, "}");
    if (!principal || !*principal)
        x.refused = "the account's name is empty";
    return exchange_done(client, &x, err);
}

int arrayd_unshare(struct arrayd *client, const char *ref, const char *principal,
                   struct arrayd_error *err)
{
    struct exchange x = {.method = "DELETE"};
    exchange_path(&x, "/v1/arrays", ref, "/shares/");
    text_escape(&x.target, principal ? principal : "");
    if (!principal || !*principal)
        x.refused = "the account's name is empty";
    return exchange_done(client, &x, err);
}

static bool read_share(const struct cJSON *json, struct arrayd_share *ret)
{
    const char *access = json_string(json, "access");
    ret->write = access && access[0] == 'w';
    return access && members_copy(json, "principal", ret->principal, sizeof(ret->principal)) &&
           ret->principal[0];
}

int arrayd_shares(struct arrayd *client, const char *ref, struct arrayd_share *shares,
                  size_t capacity, size_t *ret_count, struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct cJSON *tree;
    size_t count = 0;
    exchange_path(&x, "/v1/arrays", ref, "/shares");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    const struct cJSON *list = json_get(tree, "shares");
    bool ok = json_is_list(list);
    for (const struct cJSON *at = json_first(list); ok && at; at = json_next(at), count++) {
        struct arrayd_share share = {0};
        ok = read_share(at, &share);
        if (ok && count < capacity)
            shares[count] = share;
    }
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply is not a list of shares");
    *ret_count = count;
    return 0;
}
