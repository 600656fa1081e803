/* server/page/asset: the page's files, and which form of one a client gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/page/asset.h"

static void codings(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool takes;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"gzip", true},
        {"GZip", true},
        {"x-gzip", true},
        {"*", true},
        {"gzip, deflate, br", true},
        {"br;q=1.0, gzip;q=0.8, *;q=0.1", true},
        {"deflate,gzip", true},
        {"deflate , \tgzip ;q=0.001", true},
        {"gzip;Q=1", true},
        {"*;q=0, gzip", true},
        {"gzip, *;q=0", true},
        {"identity", false},
        {"br", false},
        {"gzips", false},
        {"gzi", false},
        {"xgzip", false},
        {"gzip;q=0", false},
        {"gzip;q=0.000", false},
        {"gzip ; q=0.0 , *", false},
        {"*, gzip;q=0", false},
        {"*;q=0", false},
        {", ,,", false},
        {";q=1", false},
        {"gzip;", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (asset_takes_gzip(cases[i].value) != cases[i].takes)
            print_message("%s\n", cases[i].value ? cases[i].value : "(none)");
        assert_int_equal(asset_takes_gzip(cases[i].value), cases[i].takes);
    }
}

static void names(void **state)
{
    (void)state;
    const struct asset *index = asset_find(page_assets, page_assets_n, "index.html");
    assert_non_null(index);
    assert_string_equal(index->type, "text/html; charset=utf-8");
    static const char *const none[] = {"", "index.htm", "index.html/", "..", "INDEX.HTML"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(asset_find(page_assets, page_assets_n, none[i]));
    assert_null(asset_find(page_assets, 0, "index.html"));
}

static void forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < page_assets_n; i++) {
        const struct asset *a = &page_assets[i];
        char plain[ASSET_TAG], packed[ASSET_TAG];
        assert_true(a->n_plain > 0 && (!a->packed || a->n_packed < a->n_plain));
        if (a->packed)
            assert_memory_equal(a->packed, "\x1f\x8b\x08\0\0\0\0\0", 8); /* no name and no time */
        asset_tag(a, false, plain);
        asset_tag(a, true, packed);
        assert_string_not_equal(plain, packed);
        assert_true(plain[0] == '"' && plain[strlen(plain) - 1] == '"' && strlen(plain) == 34);
        assert_ptr_equal(asset_find(page_assets, page_assets_n, a->name), a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codings),
        cmocka_unit_test(names),
        cmocka_unit_test(forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
