/* protocol/media: Content-Type and Accept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "protocol/wire/media.h"

static void content_types(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        enum err_code err;
        enum media media;
    } cases[] = {
        {NULL, ERR_OK, MEDIA_NONE},
        {"", ERR_OK, MEDIA_NONE},
        {"  ", ERR_OK, MEDIA_NONE},
        {"application/json", ERR_OK, MEDIA_JSON},
        {"Application/JSON ; Charset=\"UTF-8\"", ERR_OK, MEDIA_JSON},
        {"application/json;", ERR_OK, MEDIA_JSON},
        {"application/json; charset=latin-1", ERR_UNSUPPORTED_MEDIA_TYPE, 0},
        {"application/json, application/json", ERR_UNSUPPORTED_MEDIA_TYPE, 0},
        {"application/jsonx", ERR_OK, MEDIA_OTHER},
        {"application/x-npy", ERR_OK, MEDIA_NPY},
        {"application/octet-stream;q=1", ERR_OK, MEDIA_OCTETS},
        {"application/x-www-form-urlencoded", ERR_OK, MEDIA_OTHER},
        {"multipart/form-data; boundary=\"a;b\\\"c\"", ERR_OK, MEDIA_OTHER},
        {"json", ERR_UNSUPPORTED_MEDIA_TYPE, 0},
        {"application/", ERR_UNSUPPORTED_MEDIA_TYPE, 0},
        {"application /json", ERR_UNSUPPORTED_MEDIA_TYPE, 0},
        {"application/json; charset", ERR_UNSUPPORTED_MEDIA_TYPE, 0},
        {"application/json; charset=\"utf-8", ERR_UNSUPPORTED_MEDIA_TYPE, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum media m = MEDIA_COUNT;
        struct err e = ERR_INIT;
        enum err_code err = media_content_type(cases[i].value, &m, &e);
        if (err != cases[i].err || (!err && m != cases[i].media))
            fail_msg("%s: %s %d", cases[i].value, err_name(err), m);
    }
    struct err e = ERR_INIT;
    assert_int_equal(media_require_json("application/json;charset=utf-8", &e), ERR_OK);
    assert_int_equal(media_require_json("application/x-www-form-urlencoded", &e),
                     ERR_UNSUPPORTED_MEDIA_TYPE);
    assert_non_null(strstr(e.message, "curl --json"));
    assert_int_equal(media_require_json(NULL, &e), ERR_UNSUPPORTED_MEDIA_TYPE);
}

static void accept_is_negotiated(void **state)
{
    (void)state;
    static const enum media offers[] = {MEDIA_JSON, MEDIA_OCTETS, MEDIA_NPY};
    static const struct {
        const char *accept;
        enum media want; /* MEDIA_NONE: 406 */
    } cases[] = {
        {NULL, MEDIA_JSON},
        {"", MEDIA_JSON},
        {" , ", MEDIA_JSON},
        {"*/*", MEDIA_JSON},
        {"application/*", MEDIA_JSON},
        {"application/octet-stream", MEDIA_OCTETS},
        {"APPLICATION/X-NPY", MEDIA_NPY},
        {"application/octet-stream, */*", MEDIA_OCTETS},
        {"*/*, application/x-npy;q=1.000", MEDIA_NPY},
        {"application/octet-stream;q=0.5, application/x-npy;q=0.8", MEDIA_NPY},
        {"application/octet-stream;q=0.5, */*;q=0.1", MEDIA_OCTETS},
        {"*/*, application/json;q=0", MEDIA_OCTETS},
        {"application/json;q=0, application/*;q=0.2, application/octet-stream;q=0", MEDIA_NPY},
        {"application/json;q=0", MEDIA_NONE},
        {"text/html", MEDIA_NONE},
        {"text/html, */*;q=0.01", MEDIA_JSON},
        {"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", MEDIA_JSON},
        {"application/json; charset=utf-8", MEDIA_JSON},
        {"application/json;version=2", MEDIA_NONE},
        {"application/x-npy; q=0.4 , application/json ; q=0.3", MEDIA_NPY},
        {"application/json;q=2", MEDIA_NONE},
        {"application/json;q=abc, application/x-npy", MEDIA_NPY},
        {"application/json;q=", MEDIA_NONE},
        {"application/*;q=0.9, application/json;q=0.1", MEDIA_OCTETS},
        {"application/jso", MEDIA_NONE},
        {"text/plain;x=\"a,b\\\"\", application/x-npy", MEDIA_NPY},
        {"application/octet-stream,application/x-npy", MEDIA_OCTETS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum media m = MEDIA_NONE;
        struct err e = ERR_INIT;
        enum err_code err = media_negotiate(cases[i].accept, offers, 3, &m, &e);
        if (m != cases[i].want || (err != ERR_OK) != (cases[i].want == MEDIA_NONE))
            fail_msg("%s: %d %s", cases[i].accept, m, e.message);
        if (err)
            assert_int_equal(err, ERR_NOT_ACCEPTABLE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_types),
        cmocka_unit_test(accept_is_negotiated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
