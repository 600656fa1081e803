/* Headers that the page's visitors send: each value of a cookie lies in the header, behind its name
 * and before a semicolon, and the search ends; Accept-Encoding is read to its end. */
#include <string.h>

#include "server/login/cookie.h"
#include "server/page/asset.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    const char *end = text + strlen(text), *at = text, *before = text, *v;
    for (size_t n; (v = cookie_next(&at, "a", &n)); before = at) {
        FUZZ_CHECK(at > before && at <= end);
        FUZZ_CHECK(v >= before + 2 && v + n <= at && v[-1] == '=' && v[-2] == 'a');
        FUZZ_CHECK(!memchr(v, ';', n));
        FUZZ_CHECK(n == 0 || (v[n - 1] != ' ' && v[n - 1] != '\t'));
    }
    FUZZ_CHECK(at == end);
    FUZZ_CHECK(!asset_takes_gzip(text) || strchr(text, '*') || strcasestr(text, "gzip"));
    free(text);
    return 0;
}
