/* RFC 6265, 5.4: pairs "name=value", separated by a semicolon and a blank, or by a comma and a
 * blank where a proxy has made two headers of one, which http_header joins. Whatever else is in the
 * header belongs to others: it is passed over, and never a mistake of the request. */
#include "server/login/cookie.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static size_t pair_length(const char *pair)
{
    size_t n = strcspn(pair, ";,");
    while (pair[n] == ',' && pair[n + 1] != ' ')
        n += 1 + strcspn(pair + n + 1, ";,");
    return n;
}

const char *cookie_next(const char **at, const char *name, size_t *ret_n)
{
    return cookie_next_like(at, name, strlen(name), ret_n);
}

const char *cookie_next_like(const char **at, const char *name, size_t n_same, size_t *ret_n)
{
    const size_t n_name = strlen(name);
    while (**at) {
        const char *pair = *at + strspn(*at, " \t");
        size_t n = pair_length(pair);
        *at = pair + n + (pair[n] != '\0');
        while (n && (pair[n - 1] == ' ' || pair[n - 1] == '\t'))
            n--;
        if (n > n_name && memchr(pair, '=', n) == pair + n_name && !memcmp(pair, name, n_same)) {
            *ret_n = n - n_name - 1;
            return pair + n_name + 1;
        }
    }
    return NULL;
}

void cookie_set(const char *name, const char *value, int64_t seconds, bool encrypted,
                char ret[COOKIE_MAX])
{
    snprintf(ret, COOKIE_MAX,
             "%.64s=%.64s; Path=/; Max-Age=%" PRId64 "; HttpOnly; SameSite=Strict%s", name, value,
             seconds, encrypted ? "; Secure" : "");
}
