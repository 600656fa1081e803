/* The type is a URN made from the code: stable, without promising a page. */
#include "protocol/wire/problem.h"

#include <string.h>

#include "protocol/json/json_writer.h"

void problem_write(const struct err *e, struct strb *out)
{
    struct json_writer w = JSON_WRITER(out);
    char type[96] = "urn:arrayd:problem:";
    strncat(type, err_name(e->code), sizeof type - strlen(type) - 1);
    json_open_object(&w);
    json_put_member_string(&w, "type", type);
    json_put_member_string(&w, "title", err_title(e->code));
    json_put_member_i64(&w, "status", err_status(e->code));
    json_put_member_string(&w, "code", err_name(e->code));
    json_put_member_string(&w, "detail", e->message);
    if (e->pointer[0])
        json_put_member_string(&w, "pointer", e->pointer);
    if (e->offset >= 0)
        json_put_member_i64(&w, "offset", e->offset);
    json_close_object(&w);
}
