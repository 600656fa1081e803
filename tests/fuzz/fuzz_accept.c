/* Accept and Content-Type headers: the choice is an offer, or the error says why there is none. */
#include <string.h>

#include "protocol/wire/media.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum media offers[] = {MEDIA_OCTETS, MEDIA_NPY, MEDIA_JSON};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    struct err e = ERR_INIT;
    enum media m = MEDIA_NONE;
    enum err_code err = media_negotiate(text, offers, 3, &m, &e);
    FUZZ_CHECK(err ? err == ERR_NOT_ACCEPTABLE
                   : m == offers[0] || m == offers[1] || m == offers[2]);
    err = media_content_type(text, &m, &e);
    FUZZ_CHECK(err ? err == ERR_UNSUPPORTED_MEDIA_TYPE : m < MEDIA_COUNT);
    err = media_require_json(text, &e);
    FUZZ_CHECK(err == ERR_OK || err == ERR_UNSUPPORTED_MEDIA_TYPE);
    free(text);
    return 0;
}
