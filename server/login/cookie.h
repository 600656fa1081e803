/* Cookies as text: the values of one name in a Cookie header, and a Set-Cookie header.
 *
 * Called by visitor.c and login.c, and pure; thread-safe. */
#ifndef ARRAYD_SERVER_COOKIE_H
#define ARRAYD_SERVER_COOKIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The next value of the cookie `name` in a Cookie header's value from *at on, which moves on; NULL:
 * there is no other. The value is in the header's own text and is not terminated: *ret_n bytes. A
 * browser sends several of one name if other pages of the host have set them, too. */
const char *cookie_next(const char **at, const char *name, size_t *ret_n);
/* The same for any name as long as `name` that begins like it, with n_same characters; it is right
 * before the value, and an equals sign. */
const char *cookie_next_like(const char **at, const char *name, size_t n_same, size_t *ret_n);

#define COOKIE_MAX 256
/* Set-Cookie: for scripts invisible, and only in requests of the daemon's own pages. Keeps `value`
 * for that many seconds; 0: forgets it. `name` and `value` have at most 64 characters. */
void cookie_set(const char *name, const char *value, int64_t seconds, bool encrypted,
                char ret[COOKIE_MAX]);

#endif
