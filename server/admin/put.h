/* What operators see of others' things, as JSON: the thing as its owner sees it, and around it
 * whose it is, when it was last used, and who else may use it. Secrets (tokens of leases and
 * exports) are left out.
 *
 * Called by handlers_admin.c, and by handlers_service.c for what a principal sees of itself.
 * Thread-safe. */
#ifndef ARRAYD_SERVER_ADMIN_PUT_H
#define ARRAYD_SERVER_ADMIN_PUT_H

#include "protocol/json/json_writer.h"
#include "server/server.h"
#include "server/store/auth.h"

struct user_job;

/* The members of /v1/info's `principal`, without the brackets. */
void put_principal_members(struct json_writer *w, struct server *server, struct principal *p);

/* Each writes one object. */
void put_others_session(struct json_writer *w, struct principal *owner, const struct session *s);
void put_others_array(struct json_writer *w, struct server *server, const char *owner,
                      const struct handle *h);
void put_others_job(struct json_writer *w, struct user_job *j);
void put_others_principal(struct json_writer *w, struct server *server, struct principal *p);

#endif
