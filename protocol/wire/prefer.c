/* A list of preferences, each a token with an optional value and parameters:
 *
 *     respond-async, wait=10; x="a, b"
 *
 * It is split at commas outside quotes, and each element is read only as far as needed to identify
 * the preference. */
#include "protocol/wire/prefer.h"

#include <string.h>
#include <strings.h>

static const char *blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* The end of the element that p is in: a comma or the end of the text. */
static const char *element_end(const char *p)
{
    bool quoted = false;
    for (; *p && (quoted || *p != ','); p++) {
        if (*p == '"')
            quoted = !quoted;
        else if (*p == '\\' && quoted && p[1])
            p++;
    }
    return p;
}

/* The seconds of "=10" or "=\"10\"", whatever parameters follow; -1 if it is anything else. */
static int64_t seconds(const char *p)
{
    p = blanks(p);
    if (*p++ != '=')
        return -1;
    p = blanks(p);
    bool quoted = *p == '"';
    p += quoted;
    if (*p < '0' || *p > '9')
        return -1;
    int64_t n = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (*p - '0');
        n = n < PREFER_WAIT_MAX ? n : PREFER_WAIT_MAX;
    }
    if (quoted && *p++ != '"')
        return -1;
    p = blanks(p);
    return *p == '\0' || *p == ',' || *p == ';' ? n : -1;
}

/* The text after the first preference of that name; NULL if there is none. */
static const char *find(const char *value, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = value; p && *p;) {
        p = blanks(p);
        if (strcspn(p, " \t=;,\"") == n && !strncasecmp(p, name, n))
            return p + n;
        p = element_end(p);
        p += *p == ',';
    }
    return NULL;
}

int64_t prefer_wait(const char *value)
{
    const char *p = find(value, "wait");
    return p ? seconds(p) : -1;
}

bool prefer_async(const char *value)
{
    return find(value, "respond-async") != NULL;
}
