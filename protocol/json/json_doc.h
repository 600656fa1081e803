/* The document behind struct json: private to json.c (which makes it) and json_get.c (which reads
 * it). Nodes lie in text order; a container's node is followed by its children, a member's name
 * stands right before its value. */
#ifndef ARRAYD_JSON_DOC_H
#define ARRAYD_JSON_DOC_H

#include "protocol/json/json.h"

enum { JSON_IS_KEY = 1, JSON_IS_MEMBER = 2, JSON_IS_LAST = 4 };

struct json_node {
    uint32_t pos;  /* of its text in the document's text (strings: decoded, after the quote) */
    uint32_t len;  /* strings, numbers: bytes; containers: children; bools: the value */
    uint32_t next; /* the node after this one and all its descendants; UINT32_MAX while open */
    uint8_t kind, flags;
};

struct json_doc {
    char *text;
    struct json_node *nodes;
    size_t n_nodes, cap_nodes;
};

#define JSON_POINTER_MAX 256 /* as in struct err */

/* The JSON pointer of a node, cut at a whole token when it is too long. */
void json_pointer(const struct json_doc *doc, uint32_t node, char *buf);

/* Appends "/token", escaped; false (and nothing appended) when it does not fit. */
bool json_pointer_add(char *buf, const char *token, size_t n);

/* json_parse of a text from which json_body.c removed `hole_len` bytes before position `hole_at`:
 * messages give positions in the text as sent. */
enum err_code json_parse_around(struct arena *arena, const char *text, size_t n, size_t hole_at,
                                size_t hole_len, const struct json_limits *limits, struct json *ret,
                                struct err *e) must_check;

#endif
