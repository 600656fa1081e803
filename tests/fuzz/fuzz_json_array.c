/* Array data in JSON. The first byte chooses the dtype, the second the size of the chunks, the rest
 * is the text. Whole and in chunks, and with the dtype before or after, the result is the same;
 * what is accepted is JSON to the strict scan too. The same text also goes through the splitter of
 * create bodies. */
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/json/json_array.h"
#include "protocol/json/json_body.h"
#include "tests/fuzz/fuzz.h"

static enum err_code read_array(const char *p, size_t n, size_t chunk, int early, int late,
                                struct json_array_data *ret, struct err *e)
{
    struct json_array *r = json_array_new(early, 1 << 20);
    enum err_code err = ERR_OK;
    for (size_t i = 0; i < n && !err; i += chunk)
        err = json_array_feed_all(r, p + i, n - i < chunk ? n - i : chunk, e);
    if (!err)
        err = json_array_finish(r, e);
    if (!err)
        err = json_array_take(r, late, ret, e);
    json_array_free(r);
    return err;
}

static void same(const struct json_array_data *a, const struct json_array_data *b)
{
    FUZZ_CHECK(a->dtype == b->dtype && a->rank == b->rank && a->size == b->size);
    FUZZ_CHECK(memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->rank) == 0);
    FUZZ_CHECK(memcmp(a->data, b->data, (size_t)a->size * dtype_size(a->dtype)) == 0);
}

static void arrays(const char *p, size_t n, int dtype, size_t chunk)
{
    struct json_array_data a, b;
    struct err e = ERR_INIT, f = ERR_INIT;
    enum err_code whole = read_array(p, n, n ? n : 1, dtype, dtype, &a, &e);
    enum err_code pieces = read_array(p, n, chunk, dtype, dtype, &b, &f);
    FUZZ_CHECK(whole == pieces);
    if (whole) {
        FUZZ_CHECK(e.code == whole && e.message[0] && strcmp(e.pointer, f.pointer) == 0);
    } else {
        same(&a, &b);
        struct arena *arena = arena_new(0);
        struct json doc;
        FUZZ_CHECK(json_parse(arena, p, n, NULL, &doc, &e) == ERR_OK);
        arena_free(arena);
        mem_free(b.data);
    }
    if (dtype >= 0) {
        enum err_code late = read_array(p, n, chunk, -1, dtype, &b, &f);
        /* errors may come in another order, but what one way takes the other takes alike */
        FUZZ_CHECK((late == ERR_OK) == (whole == ERR_OK));
        if (!late) {
            same(&a, &b);
            mem_free(b.data);
        }
    }
    if (!whole)
        mem_free(a.data);
}

static enum err_code read_body(const char *p, size_t n, size_t chunk, bool *ret_streamed)
{
    struct json_body_limits limits = {.max_text = 1 << 20, .max_data_bytes = 1 << 20};
    struct json_body *b = json_body_new(&limits);
    struct arena *arena = arena_new(0);
    struct json_array *data = NULL;
    struct json doc;
    struct err e = ERR_INIT;
    enum err_code err = ERR_OK;
    for (size_t i = 0; i < n && !err; i += chunk)
        err = json_body_feed(b, p + i, n - i < chunk ? n - i : chunk, &e);
    if (!err)
        err = json_body_finish(b, arena, &doc, &data, &e);
    *ret_streamed = data != NULL;
    arena_free(arena);
    json_body_free(b);
    return err;
}

static void bodies(const char *p, size_t n, size_t chunk)
{
    bool one, other;
    enum err_code whole = read_body(p, n, n ? n : 1, &one);
    enum err_code pieces = read_body(p, n, chunk, &other);
    FUZZ_CHECK(whole == pieces && one == other);
    struct arena *arena = arena_new(0);
    struct json doc;
    struct err e = ERR_INIT;
    enum err_code err = json_parse(arena, p, n, NULL, &doc, &e);
    if (!whole)
        FUZZ_CHECK(err == ERR_OK && one == (json_present(json_member(doc, "data"))));
    if (err == ERR_BAD_JSON)
        FUZZ_CHECK(whole != ERR_OK);
    arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int dtype = (int)(data[0] % (DT_COUNT + 1)) - 1;
    size_t chunk = 1 + data[1] % 16;
    arrays((const char *)data + 2, size - 2, dtype, chunk);
    bodies((const char *)data + 2, size - 2, chunk);
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
