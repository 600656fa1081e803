/* The list is searched from its beginning, as it is short. Of Accept-Encoding only gzip matters: it
 * is the one coding that the files are kept in, and a quality can only exclude it, since what is
 * shorter is always the better choice. */
#include "server/page/asset.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct asset *asset_find(const struct asset *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, name))
            return &list[i];
    return NULL;
}

/* Whether an element of the list, which ends at `end`, has a quality of zero: "gzip;q=0.0". */
static bool is_excluded(const char *element, const char *end)
{
    const char *p = memchr(element, ';', (size_t)(end - element));
    if (!p)
        return false;
    p += 1 + strspn(p + 1, " \t");
    if (strncasecmp(p, "q=", 2) != 0)
        return false;
    p += 2 + strspn(p + 2, "0.");
    return p + strspn(p, " \t") >= end;
}

bool asset_takes_gzip(const char *accept_encoding)
{
    bool takes = false, named = false;
    for (const char *p = accept_encoding, *end; p && *p; p = end + (*end == ',')) {
        p += strspn(p, " \t");
        end = p + strcspn(p, ",");
        const size_t n = strcspn(p, " \t;,");
        const bool star = n == 1 && *p == '*';
        const bool gzip =
            (n == 4 && !strncasecmp(p, "gzip", 4)) || (n == 6 && !strncasecmp(p, "x-gzip", 6));
        if (gzip || (star && !named)) {
            named |= gzip;
            takes = !is_excluded(p, end);
        }
    }
    return takes;
}

void asset_tag(const struct asset *a, bool packed, char ret[ASSET_TAG])
{
    snprintf(ret, ASSET_TAG, "\"%s%s\"", a->tag, packed ? "-gzip" : "");
}
