/* GET and DELETE /v1/faults: what is refused or suspected since something faulted, and users whose
 * work did it. For operators. */
#include "compute/culprit/culprit.h"
#include "protocol/json/json_writer.h"
#include "server/admin/audit.h"
#include "server/api/handlers.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/server.h"

static void put_work(void *user, const struct culprit_entry *e)
{
    struct json_writer *w = user;
    char key[CODE_KEY_TEXT];
    code_key_text(&e->key, key);
    json_open_object(w);
    json_put_member_string(w, "key", key);
    json_put_member_string(w, "state", culprit_state_name(e->state));
    json_put_member_string(w, "kernels", e->form);
    meta_put_time(w, "at", (int64_t)e->at * 1000000);
    json_put_member_string(w, "reason", e->why);
    json_close_object(w);
}

static void put_strike(void *user, const struct culprit_strike *s)
{
    struct json_writer *w = user;
    json_open_object(w);
    json_put_member_string(w, "principal", s->who);
    meta_put_time(w, "at", (int64_t)s->at * 1000000);
    json_close_object(w);
}

void faults_get(struct request *req)
{
    struct culprits *c = req->server->culprits;
    struct err e = ERR_INIT;
    if (request_plain(req, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_key(&w, "work");
    json_open_list(&w);
    culprits_each(c, put_work, NULL, &w);
    json_close_list(&w);
    json_put_key(&w, "users");
    json_open_list(&w);
    culprits_each(c, NULL, put_strike, &w);
    json_close_list(&w);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
}

static void forget(struct request *req, const char *which)
{
    static const char *const none[] = {NULL};
    struct err e = ERR_INIT;
    if (http_query_only(req, none, &e) == ERR_OK &&
        (culprits_forget(req->server->culprits, which) || !which)) {
        audit_did(req->server->audit, req, "forget_faults", ERR_OK, "%.80s", which ? which : "");
        http_reply_empty(req, 204);
        return;
    }
    if (e.code == ERR_OK)
        err_set(&e, ERR_NOT_FOUND, "no work has the key '%s', and no user of that name had a fault",
                which);
    http_reply_error(req, &e);
}

void faults_delete(struct request *req)
{
    forget(req, NULL);
}

void fault_delete(struct request *req)
{
    forget(req, req->param[0]);
}
