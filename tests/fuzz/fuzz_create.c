/* Bodies that make arrays, and the grids in them: what is accepted is made or refused with a place
 * in the body, and a grid that was read is the same once it was written and read again. */
#include "server/body/create_json.h"
#include "server/body/grid_json.h"
#include "tests/fuzz/fuzz_server.h"

static void grid_comes_back(const struct grid *g, enum dtype t, struct arena *arena)
{
    struct strb text = {0}, again = {0};
    struct json_writer w = JSON_WRITER(&text), v = JSON_WRITER(&again);
    struct err e = ERR_INIT;
    struct grid h;
    struct json doc;
    json_open_object(&w);
    grid_json_put(&w, g, g->rank);
    json_close_object(&w);
    FUZZ_CHECK(!text.failed);
    MUST(json_parse(arena, text.data, text.len, NULL, &doc, &e));
    grid_init(&h, g->rank);
    MUST(grid_json_read(doc, t, &h, &e));
    json_open_object(&v);
    grid_json_put(&v, &h, h.rank);
    json_close_object(&v);
    FUZZ_CHECK(!again.failed && again.len == text.len && !memcmp(again.data, text.data, text.len));
    strb_free(&text);
    strb_free(&again);
}

static void read_and_make(struct json body, struct arena *arena, struct session *s)
{
    struct array_scope scope = {server.shares, principal(), s->handles};
    struct create_spec spec;
    struct err e = ERR_INIT;
    struct array *a;
    enum err_code err = create_spec_read(body, false, &scope, &spec, &e);
    if (err) {
        FUZZ_CHECK(e.code == err && *e.message);
        return;
    }
    if (spec.has_grid)
        grid_comes_back(&spec.grid, (enum dtype)spec.dtype, arena);
    err = create_spec_run(&spec, s, &a, &e);
    if (err)
        FUZZ_CHECK(e.code == err && *e.message && err != ERR_INTERNAL);
    else
        array_unref(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct session *s;
    struct json doc;
    struct err e = ERR_INIT;
    if (!s) {
        open_server();
        furnish();
        s = default_session();
    }
    const int64_t bytes = engine_bytes_in_use(server.engine);
    struct arena *arena = arena_new(0);
    if (json_parse(arena, (const char *)data, size, NULL, &doc, &e) == ERR_OK)
        read_and_make(doc, arena, s);
    arena_free(arena);
    FUZZ_CHECK(engine_bytes_in_use(server.engine) == bytes);
    return 0;
}
