/* Bodies that make arrays, and the grids and labels in them: what is accepted is made or refused
 * with a place in the body, and a grid or labels that were read are the same once they were written
 * and read again. */
#include "server/body/create_json.h"
#include "server/body/grid_json.h"
#include "server/labels/labels_read.h"
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

/* Every array has the shape of its ref's letters: "ccd" is (3, 3, 4). */
static enum err_code find(void *user, const char *ref, struct label_array *ret, struct err *e)
{
    (void)user;
    *ret = (struct label_array){.id = "a-0"};
    for (; *ref && ret->rank < MAX_RANK; ref++)
        ret->shape[ret->rank++] = *ref - 'a' + 1;
    return *ref ? err_set(e, ERR_NOT_FOUND, "no array has this name") : ERR_OK;
}

static void put(struct strb *out, const struct labels *l)
{
    struct json_writer w = JSON_WRITER(out);
    json_open_object(&w);
    labels_put(&w, l, false);
    json_close_object(&w);
    FUZZ_CHECK(!out->failed);
}

/* As labels of a (3, 4), and of its transpose. */
static void labels_come_back(struct json body, struct arena *arena)
{
    static const struct label_finder finder = {find, NULL};
    static const struct view view = {.rank = 2, .shape = {3, 4}};
    static const struct label_axes turned = {.n = 2, .from = {1, 0}, .whole = {true, true}};
    const int64_t most = 500;
    struct strb text = {0}, again = {0};
    struct json of[LABEL_COUNT], doc;
    struct labels_patch patch;
    struct err e = ERR_INIT;
    _cleanup_labels_ struct labels *made = NULL, *back = NULL, *other = NULL, *twice = NULL;
    labels_members(body, of);
    enum err_code code = labels_read(arena, of, &finder, most, &patch, &e);
    if (code == ERR_OK)
        code = labels_make(NULL, &patch, &view, &made, &e);
    if (code != ERR_OK) {
        FUZZ_CHECK(e.code == code && *e.message && *e.pointer);
        return;
    }
    FUZZ_CHECK(labels_size(made) <= (size_t)most);
    put(&text, made);
    MUST(json_parse(arena, text.data, text.len, NULL, &doc, &e));
    MUST(labels_restore(doc, &back, &e));
    MUST(labels_follow(back, &turned, &other, &e));
    MUST(labels_follow(other, &turned, &twice, &e));
    put(&again, twice);
    FUZZ_CHECK(again.len == text.len && !memcmp(again.data, text.data, text.len));
    labels_unref(back);
    back = NULL;
    MUST(labels_make(made, &patch, &view, &back, &e));
    strb_free(&text);
    strb_free(&again);
}

static void read_and_make(struct json body, struct arena *arena, struct session *s)
{
    struct array_scope scope = {server.shares, principal(), s->handles};
    struct create_spec spec;
    struct err e = ERR_INIT;
    struct array *a;
    labels_come_back(body, arena);
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
