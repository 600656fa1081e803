/* Handlers of logins and of read-only links. Called through the table of routes. */
#ifndef ARRAYD_SERVER_LOGIN_H
#define ARRAYD_SERVER_LOGIN_H

#include "server/admin/audit.h"
#include "server/http/http.h"

#define LOGIN_BODY 4096 /* bytes: anybody may send one */

struct login_terms;
struct principal;

/* For the audit: a login, or a link, of terms->who is made or opened by `who` (NULL: nobody that is
 * known). */
void login_told(struct request *req, const struct login_terms *terms, const struct principal *who,
                enum audit_access action);

/* login.c: POST and GET /v1/login, POST /v1/logout, DELETE /v1/logins and
 * /v1/admin/principals/{principal}/logins */
handler_fn login_post, login_get, logout_post, logins_delete, admin_logins_delete;

/* links.c: POST and GET /v1/links, DELETE /v1/links/{id} */
handler_fn link_post, link_list_get, link_delete;

#endif
