/* Who sent a request by its cookie, and what its login allows.
 *
 * Called by front.c for each request, in place of auth_identify, and by the handlers of logins. A
 * browser sends cookies with whatever any page makes it send, so a request with one counts only if
 * it comes from the daemon's own page. A read-only link allows what its `shown` in the table of
 * routes says, and no more. Any thread that works on the request. */
#ifndef ARRAYD_SERVER_VISITOR_H
#define ARRAYD_SERVER_VISITOR_H

#include "server/http/http.h"
#include "server/login/logins.h"

/* Sets req->principal, and req->login if that is by a login; a guest (ACCESS_GUEST) who shows
 * nothing valid has none. A token counts before a cookie. ERR_FORBIDDEN: it is the request of
 * another site's page; else as auth_identify. */
enum err_code visitor_identify(struct request *req, struct err *e) must_check;
/* The login that the request's cookie is of; NULL: none, or it has a token. The caller gets a
 * reference. */
struct login *visitor_login(struct request *req);
/* Whether its token or login, and its account, are still valid. */
bool visitor_lasts(struct request *req);
/* ERR_FORBIDDEN, ERR_NOT_FOUND: a read-only link does not show that. */
enum err_code visitor_may(const struct request *req, struct err *e) must_check;
/* ERR_FORBIDDEN if a browser says that the request is another site's, or, of one that needs a sign
 * of its origin, nothing about it. */
enum err_code visitor_same_origin(struct request *req, bool needs_sign, struct err *e) must_check;
/* Has the browser keep the login, or (key NULL) forget it. visitor_forget: and the cookies of links
 * that it has from an earlier process. */
void visitor_set_cookie(struct request *req, const char *key, int64_t seconds);
void visitor_forget(struct request *req);

#endif
