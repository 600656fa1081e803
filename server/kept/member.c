/* Numbers are never negative: nothing that is kept has a meaning below 0 but strides. */
#include "server/kept/member.h"

#include <string.h>

#include "server/store/handles.h"

enum err_code member_i64(struct json v, const char *name, int64_t *ret, struct err *e)
{
    struct json x;
    TRY(json_require(v, name, &x, e));
    return json_get_i64(x, 0, INT64_MAX, ret, e);
}

enum err_code member_i64_given(struct json v, const char *name, int64_t *ret, struct err *e)
{
    return json_present(json_member(v, name)) ? member_i64(v, name, ret, e) : ERR_OK;
}

enum err_code member_bool(struct json v, const char *name, bool *ret, struct err *e)
{
    struct json x;
    TRY(json_require(v, name, &x, e));
    return json_get_bool(x, ret, e);
}

enum err_code member_list(struct json v, const char *name, struct json *ret, struct err *e)
{
    TRY(json_require(v, name, ret, e));
    return json_kind(*ret) == JSON_LIST ? ERR_OK
                                        : json_err(*ret, e, ERR_STATE, "this must be a list");
}

enum err_code member_text(struct json v, const char *name, char *ret, size_t size, struct err *e)
{
    struct json x;
    const char *text;
    size_t n;
    TRY(json_require(v, name, &x, e));
    TRY(json_get_string(x, &text, &n, e));
    if (n >= size)
        return json_err(x, e, ERR_STATE, "this is too long");
    memset(ret, 0, size);
    memcpy(ret, text, n);
    return ERR_OK;
}

enum err_code member_id(struct json v, const char *name, char prefix, bool optional,
                        char ret[ID_SIZE], struct err *e)
{
    TRY(member_text(v, name, ret, ID_SIZE, e));
    return (optional && !*ret) || id_is(prefix, ret)
               ? ERR_OK
               : json_err_member(v, name, e, ERR_STATE, "this is not an id");
}
