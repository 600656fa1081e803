/* What a read-only link shows, as members of a JSON object. For links.c and login.c. */
#ifndef ARRAYD_SERVER_LINKS_H
#define ARRAYD_SERVER_LINKS_H

#include "protocol/json/json_writer.h"
#include "server/login/logins.h"

/* "arrays" and "jobs", lists of ids; null: not only some. `terms` NULL: there is no login. */
void link_put_refs(struct json_writer *w, const struct login_terms *terms);

#endif
