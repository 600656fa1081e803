/* The page's files as they are compiled in, and the form of one that a client gets.
 *
 * pack.py writes the table from the files that clients/page/meson.build lists; page.c serves them.
 * Pure, over constants; thread-safe. */
#ifndef ARRAYD_SERVER_ASSET_H
#define ARRAYD_SERVER_ASSET_H

#include <stdbool.h>
#include <stddef.h>

struct asset {
    const char *name; /* "page.css" */
    const char *type; /* Content-Type */
    const char *tag;  /* of the contents, hexadecimal */
    const unsigned char *plain;
    size_t n_plain;
    const unsigned char *packed; /* by gzip; NULL: that would not be shorter */
    size_t n_packed;
};
extern const struct asset page_assets[];
extern const size_t page_assets_n;

#define ASSET_TAG 64

/* The file with that name among the n; NULL if no file has it. */
const struct asset *asset_find(const struct asset *list, size_t n, const char *name);

/* Whether an Accept-Encoding allows gzip (RFC 9110, 12.5.3); NULL: the header was not sent. */
bool asset_takes_gzip(const char *accept_encoding);

/* The entity tag of one form: they are different sequences of bytes. */
void asset_tag(const struct asset *a, bool packed, char ret[ASSET_TAG]);

#endif
