/* Processes with tables and a journal, memory that outlives them, and a population of sessions,
 * arrays, functions, shares and leases that changes: for test_kept.c. */
#ifndef ARRAYD_TESTS_KEPT_WORLD_H
#define ARRAYD_TESTS_KEPT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/body/function_json.h"
#include "server/config/config.h"
#include "server/kept/journal_writer.h"
#include "server/kept/recover.h"
#include "server/labels/labels_read.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/lease.h"
#include "server/store/share.h"

#define MOST_MEMORIES 4000
#define HOUR          3600.0

static struct engine *engine;
static struct config config;
static const char *const who[] = {"ann", "bob"};

/* A process: its tables and its journal. */
struct world {
    struct server s;
    struct journal *journal;
    struct journal_writer *writer;
};

/* Stands for memory that outlives the process: its contents follow from its number. */
static struct chunk {
    struct array *array; /* of the test's own on its buffer; NULL: not in use */
    uint64_t owner;      /* array_memory_id */
    int64_t bytes;
    bool is_bool;
} chunks[MOST_MEMORIES];
static size_t n_chunks;

static uint64_t seed;

static uint32_t chance(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static void open_world(struct world *w, size_t journal_size)
{
    static struct user users[] = {{.name = "ann", .weight = 1}, {.name = "bob", .weight = 1}};
    const struct accounts accounts = {.users = users, .n_users = 2};
    const struct journal_config jc = {.most = journal_size, .least = writer_least};
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    struct err e = ERR_INIT;
    *w = (struct world){.s = {.config = &config, .engine = engine}};
    assert_int_equal(journal_open(&jc, &w->journal, &e), ERR_OK);
    assert_non_null(w->writer = writer_new(w->journal));
    limits.observer = writer_observer(w->writer);
    limits.session_memory = config.session_memory;
    assert_non_null(w->s.shares = shares_new(100));
    assert_non_null(w->s.leases = leases_new(100));
    shares_observe(w->s.shares, limits.observer);
    leases_observe(w->s.leases, limits.observer);
    assert_int_equal(auth_new(engine, &limits, &accounts, &w->s.auth, &e), ERR_OK);
}

static void close_world(struct world *w)
{
    struct journal_figures before, after;
    writer_stop(w->writer);
    journal_figures(w->journal, &before);
    auth_free(w->s.auth);
    leases_free(w->s.leases);
    shares_free(w->s.shares);
    journal_figures(w->journal, &after);
    assert_true(before.writes == after.writes);
    writer_free(w->writer);
    journal_close(w->journal);
}

static struct principal *principal(struct world *w, uint32_t number)
{
    struct principal *p = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(auth_open(w->s.auth, who[number % 2], &p, &e), ERR_OK);
    return p;
}

/* --- memories --- */

static char byte_of(size_t chunk, int64_t i)
{
    return chunks[chunk].is_bool ? (char)(((int64_t)chunk + i) % 3 == 0)
                                 : (char)((int64_t)chunk * 31 + i * 7);
}

/* An array of the chunk's bytes. */
static enum err_code load(struct engine_stream *s, struct account *payer, size_t chunk,
                          struct array **ret, struct err *e)
{
    struct upload *u;
    const int64_t n = chunks[chunk].bytes;
    char bytes[512];
    for (int64_t i = 0; i < n; i++)
        bytes[i] = byte_of(chunk, i);
    TRY(upload_new(s, payer, n, NULL, NULL, &u, e));
    for (int64_t done = 0; done < n;)
        done += (int64_t)upload_push(u, bytes + done, (size_t)(n - done));
    return upload_finish_new(u, chunks[chunk].is_bool ? DT_BOOL : DT_U8, 1, &n, false, ret, e);
}

static enum err_code place(struct world *w, size_t chunk, const struct array *a, struct err *e)
{
    struct kept_memory m = {.number = array_memory_id(a),
                            .at = {.chunk = chunk, .cell = chunk + 1},
                            .bytes = chunks[chunk].bytes};
    return writer_placed(w->writer, &m, 1, NULL, e);
}

/* The caller owns a reference. */
static struct array *new_memory(struct world *w, const struct session *s)
{
    struct err e = ERR_INIT;
    struct array *a = NULL;
    struct chunk *c = &chunks[n_chunks];
    assert_true(n_chunks < MOST_MEMORIES);
    *c = (struct chunk){.bytes = 64 + 8 * chance(50), .is_bool = chance(4) == 0};
    assert_int_equal(load(s->stream, s->account, n_chunks, &a, &e), ERR_OK);
    assert_non_null(c->array = array_view(a, a->dtype, &a->view));
    c->owner = array_memory_id(a);
    assert_int_equal(place(w, n_chunks++, a, &e), ERR_OK);
    return a;
}

/* What the engine would tell. */
static void drop_unused(struct world *w, bool all)
{
    for (size_t i = 0; i < n_chunks; i++) {
        if (!chunks[i].array || (!all && array_buffer_refs(chunks[i].array) > 1))
            continue;
        if (!all)
            writer_unplaced(w->writer, chunks[i].owner);
        array_unref(chunks[i].array);
        chunks[i].array = NULL;
    }
    n_chunks = all ? 0 : n_chunks;
}

struct found;
struct adopter {
    struct world *to;
    struct engine_stream *stream;
    struct found *found; /* test_kept_job.c's */
};

/* As a new process knows the memories: their numbers are its own. */
static struct chunk chunks_before[MOST_MEMORIES];

static enum err_code adopt(void *user, const struct kept_memory *m, struct account *payer,
                           struct array **ret, struct err *e)
{
    struct adopter *t = user;
    assert_true(m->at.chunk < n_chunks && m->bytes == chunks[m->at.chunk].bytes);
    assert_true(m->at.cell == m->at.chunk + 1 && m->at.offset == 0 && m->device == 0 &&
                !m->at.host);
    if (chunks[m->at.chunk].owner != m->number || !chunks[m->at.chunk].array)
        return err_set(e, ERR_STATE, "the memory is another's now");
    TRY(load(t->stream, payer, m->at.chunk, ret, e));
    chunks[m->at.chunk].owner = array_memory_id(*ret);
    return place(t->to, m->at.chunk, *ret, e);
}

static char living_export[ID_SIZE];

static char orphaned_export[ID_SIZE]; /* of an array that is deleted */
static const char other_array[ID_SIZE] = "a-0123456789ABCDEFGHIJKL";
static struct array *exported_again[2];

/* The export keeps the memory. */
static bool export_again(void *user, const struct lease_image *lease, struct array *base)
{
    (void)user;
    assert_true(lease->pinned && lease->buffer == array_buffer_id(base) && lease->who);
    const bool orphaned = !strcmp(lease->lease.token, orphaned_export);
    if (!orphaned && strcmp(lease->lease.token, living_export) != 0)
        return false;
    assert_string_equal(lease->shared, orphaned ? other_array : "");
    exported_again[orphaned] = array_ref(base);
    return true;
}

static enum err_code recover_world(struct world *to, struct journal *from, bool doubtful,
                                   struct recover_report *ret, struct err *e)
{
    struct adopter t = {.to = to};
    const struct recover_config rc = {
        .server = &to->s, .adopt = adopt, .export_again = export_again, .user = &t};
    TRY(engine_stream_new(engine, 0, &t.stream, e));
    enum err_code code = recover_all(&rc, from, doubtful, ret, e);
    engine_stream_unref(t.stream);
    return code;
}

/* --- comparing --- */

/* Ids of one process, by order of appearance. */
struct numbers {
    uint64_t ids[MOST_MEMORIES];
    size_t n;
};

static size_t number_of(struct numbers *t, uint64_t id, bool add)
{
    size_t i = 0;
    while (i < t->n && t->ids[i] != id)
        i++;
    if (i == t->n && add)
        t->ids[t->n++] = id;
    return i < t->n ? i : SIZE_MAX;
}

static size_t chunk_of(const struct array *a)
{
    size_t i = 0;
    while (i < n_chunks && chunks[i].owner != array_memory_id(a))
        i++;
    assert_true(i < n_chunks);
    return i;
}

static void dump_bytes(struct session *s, struct array *a, struct strb *out)
{
    struct err e = ERR_INIT;
    struct download *d;
    char bytes[512];
    const int64_t n = array_buffer_nbytes(a);
    assert_int_equal(download_buffer(s->stream, a, NULL, NULL, &d, &e), ERR_OK);
    for (int64_t at = 0; at < n;) {
        int64_t got = download_pull(d, at, bytes, (size_t)(n - at));
        for (int64_t i = 0; i < got; i++)
            strb_addf(out, "%02x", (unsigned char)bytes[i]);
        at += got;
    }
    download_free(d);
}

struct dump {
    struct strb text;
    struct numbers buffers;
    bool alone;             /* nothing that depends on others: sharing of buffers, and leases */
    struct strb lines[300]; /* of shares and leases, which have no order */
    size_t n;
};

static void dump_arrays(struct principal *p, struct dump *d)
{
    struct err e = ERR_INIT;
    struct json_writer w = JSON_WRITER(&d->text);
    struct handle_image *images;
    struct session *s;
    size_t n;
    assert_int_equal(session_get(p->sessions, SESSION_DEFAULT, false, &s, &e), ERR_OK);
    assert_int_equal(handles_images(p->handles, &images, &n, &e), ERR_OK);
    for (size_t i = 0; i < n; i++) {
        struct array *a = images[i].array;
        kept_put_array(&w, &images[i], (int64_t)chunk_of(a), false);
        w.comma = false;
        if (!d->alone)
            strb_addf(&d->text, " buffer %zu ", number_of(&d->buffers, array_buffer_id(a), true));
        strb_addf(&d->text, "%s ", dtype_name(array_buffer_dtype(a)));
        dump_bytes(s, a, &d->text);
        strb_addc(&d->text, '\n');
        handle_image_clear(&images[i]);
    }
    mem_free(images);
    session_unref(s);
}

static void dump_principal(struct principal *p, struct dump *d)
{
    struct json_writer w = JSON_WRITER(&d->text);
    struct session *s;
    struct definition *f;
    uint64_t after = LIST_FROM_TOP;
    bool more;
    while (session_list(p->sessions, after, 1, &s, &more) == 1) {
        after = s->seq;
        kept_put_session(&w, s, false);
        w.comma = false;
        strb_addc(&d->text, '\n');
        session_unref(s);
    }
    dump_arrays(p, d);
    for (after = LIST_FROM_TOP; functions_list(p->functions, after, 1, SIZE_MAX, &f, &more) == 1;) {
        after = f->seq;
        kept_put_function(&w, f);
        w.comma = false;
        strb_addc(&d->text, '\n');
        function_unref(f->function);
    }
}

static void dump_share(void *user, const char *id, const struct principal *owner,
                       const struct principal *to, bool write)
{
    struct dump *d = user;
    if (handle_exists(owner->handles, id))
        strb_addf(&d->lines[d->n++], "share %s %s %s %d\n", id, owner->name, to->name, write);
}

static void dump_lease(void *user, const struct record_item *x)
{
    struct dump *d = user;
    struct err e = ERR_INIT;
    struct json v;
    struct kept_lease l;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    assert_int_equal(json_parse(arena, x->value, x->n, NULL, &v, &e), ERR_OK);
    assert_int_equal(kept_read_lease(v, &l, &e), ERR_OK);
    size_t buffer = number_of(&d->buffers, l.image.buffer, false);
    if (buffer != SIZE_MAX)
        strb_addf(&d->lines[d->n++], "lease %s %zu %d %lld %s\n", l.image.lease.token, buffer,
                  l.image.lease.write, (long long)l.image.lease.expires_us, l.who);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct strb *)a)->data, ((const struct strb *)b)->data);
}

/* All that a world has, as text (mem_free). */
static char *dump_world(struct world *w, bool alone)
{
    static struct dump d;
    memset(&d, 0, sizeof d);
    d.alone = alone;
    dump_principal(principal(w, 0), &d);
    dump_principal(principal(w, 1), &d);
    share_each_of_all(w->s.shares, dump_share, &d);
    if (!alone)
        journal_each(w->journal, RECORD_LEASE, dump_lease, &d);
    qsort(d.lines, d.n, sizeof *d.lines, by_text);
    for (size_t i = 0; i < d.n; i++) {
        strb_add(&d.text, d.lines[i].data);
        strb_free(&d.lines[i]);
    }
    assert_false(d.text.failed);
    return strb_take(&d.text, NULL);
}

/* --- a population that changes --- */

/* A random handle of the principal; false: it has none. */
static bool any_handle(struct principal *p, struct handle *ret)
{
    struct err e = ERR_INIT;
    struct handle_image *images;
    size_t n;
    assert_int_equal(handles_images(p->handles, &images, &n, &e), ERR_OK);
    const uint32_t pick = n ? chance((uint32_t)n) : 0;
    bool there = n && handle_get_id(p->handles, images[pick].id, ret, &e) == ERR_OK;
    for (size_t i = 0; i < n; i++)
        handle_image_clear(&images[i]);
    mem_free(images);
    return there;
}

static struct session *any_session(struct principal *p)
{
    struct session *s[50];
    bool more;
    size_t n = session_list(p->sessions, LIST_FROM_TOP, 50, s, &more), pick = chance((uint32_t)n);
    for (size_t i = 0; i < n; i++)
        if (i != pick)
            session_unref(s[i]);
    return s[pick];
}

static const char *any_name(void)
{
    static const char *const list[] = {NULL, "u", "v", "w", "x_1", "", "y"};
    const char *name = list[chance(7)];
    return name && *name ? name : NULL;
}

/* A part of the array, perhaps backwards or with a grid. */
static struct array *part_of(struct array *a)
{
    struct view v = {.rank = 1, .offset = a->view.offset};
    int64_t n = a->view.rank == 1 ? a->view.shape[0] : 0, step = 1 + chance(3);
    v.shape[0] = (n + step - 1) / step;
    v.strides[0] = a->view.strides[0] * step;
    if (v.shape[0] && chance(3) == 0) {
        v.offset += v.strides[0] * (v.shape[0] - 1);
        v.strides[0] = -v.strides[0];
    }
    if (chance(3))
        return array_view(a, a->dtype, &v);
    struct grid desc;
    grid_init(&desc, 1);
    desc.spacing[0] = 0.25 * (1 + chance(5));
    desc.face[0][FACE_LOW] = (struct face){.type = FACE_DIRICHLET, .re = 1.5};
    desc.has_boundary = true;
    struct grid *g = grid_new(&desc);
    struct array *view = array_view_grid(a, &v, g);
    grid_unref(g);
    return view;
}

/* What a client may say of an array; NULL for nothing. */
static struct labels *any_labels(struct arena *arena, const struct view *v,
                                 struct labels_patch *ret_patch)
{
    static const char *const list[] = {"{}", "{\"attrs\":{\"a\":1,\"b\":[null,{\"c\":1.50}]}}",
                                       "{\"attrs\":{\"a\":\"\\u001b\"},\"units\":\"K\"}",
                                       "{\"dims\":[\"x\"]}", "{\"units\":null,\"attrs\":null}"};
    struct err e = ERR_INIT;
    struct json v_body, of[LABEL_COUNT];
    struct labels *made = NULL;
    const char *text = list[chance(5)];
    assert_int_equal(json_parse(arena, text, strlen(text), NULL, &v_body, &e), ERR_OK);
    labels_members(v_body, of);
    assert_int_equal(labels_read(arena, of, NULL, 1000, ret_patch, &e), ERR_OK);
    if (labels_make(NULL, ret_patch, v, &made, &e) != ERR_OK)
        return NULL; /* a name too many */
    return made;
}

static void step_arrays(struct world *w, struct principal *p)
{
    struct err e = ERR_INIT;
    _cleanup_handle_ struct handle old = {0}, h = {0};
    _cleanup_session_ struct session *s = any_session(p);
    _cleanup_array_ struct array *part = NULL;
    struct handle_spec spec = {.name = any_name(), .policy = chance(2) ? NAME_REPLACE : NAME_NEW};
    struct handle_change change = {.read_only = (int)chance(3) - 1, .name = any_name()};
    _cleanup_labels_ struct labels *labels = NULL;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct labels_patch patch;
    const struct view line = {.rank = 1, .shape = {3}};
    const uint32_t what = chance(10);
    assert_non_null(arena);
    spec.labels = labels = any_labels(arena, &line, &patch);
    if (what < 3 || !any_handle(p, &old)) {
        part = new_memory(w, s);
        (void)!handle_add(s->handles, part, &spec, &h, NULL, &e);
    } else if (what < 6) {
        spec.view_of = old.id;
        part = part_of(old.array);
        (void)!handle_add(s->handles, part, &spec, &h, NULL, &e);
    } else if (what < 7) {
        part = part_of(old.array);
        change.old = old.array;
        change.array = part;
        (void)!handle_update(s->handles, old.id, &change, NULL, &h, &e);
    } else if (what < 8) {
        change.name = chance(3) ? change.name : "";
        change.labels = chance(2) ? &patch : NULL;
        (void)!handle_update(s->handles, old.id, &change, NULL, &h, &e);
    } else if (what < 9) {
        part = new_memory(w, s);
        array_take_place(part, old.array);
        (void)!handle_set_array(s->handles, old.id, old.array, part, NULL, &h, &e);
    } else {
        (void)!handle_remove(s->handles, old.id, NULL, &e);
    }
}

static void step_sessions(struct principal *p)
{
    struct err e = ERR_INIT;
    struct session_spec spec = {
        .name = any_name(), .ttl_s = chance(2) * HOUR, .memory_limit = chance(2) * 1000000};
    struct session *s = any_session(p);
    if (chance(5) == 0 || sessions_count(p->sessions) > 8) {
        assert_int_equal(session_delete(p->sessions, s->id, NULL, &e), ERR_OK);
        session_unref(s);
        return;
    }
    session_unref(s);
    assert_int_equal(session_new(p->sessions, &spec, &s, &e), ERR_OK);
    session_unref(s);
}

static void step_functions(struct principal *p)
{
    static const char *const texts[] = {
        "{\"name\": \"f\", \"params\": [\"x\"], \"expr\": \"x + 1\"}",
        "{\"name\": \"g\", \"params\": [\"x\", \"y\"], \"expr\": \"x * y - 2\"}",
        "{\"name\": \"h\", \"params\": [\"x\"], \"tree\": {\"op\": \"sin\", \"args\": [\"x\"]}}",
        "{\"name\": \"g\", \"params\": [], \"expr\": \"f(3)\"}",
    };
    struct err e = ERR_INIT;
    struct json doc;
    struct definition *d;
    bool replaced;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const char *text = texts[chance(4)];
    if (chance(3) == 0) {
        (void)!functions_delete(p->functions, "fgh" + chance(3), &e);
        return;
    }
    assert_int_equal(json_parse(arena, text, strlen(text), NULL, &doc, &e), ERR_OK);
    assert_int_equal(function_json_read(&config, doc, NULL, &d, &e), ERR_OK);
    if (functions_define(p->functions, d, chance(2), &replaced, &e) != ERR_OK)
        function_unref(d->function);
}

static void step_grants(struct world *w, struct principal *p, const struct principal *other)
{
    static char tokens[20][ID_SIZE];
    struct err e = ERR_INIT;
    _cleanup_handle_ struct handle h = {0};
    char *token = tokens[chance(20)];
    struct lease_claim claim = {w->s.leases, *token ? token : NULL, p};
    struct lease lease;
    char export[ID_SIZE];
    bool again;
    if (!any_handle(p, &h))
        return;
    switch (chance(5)) {
    case 0:
    case 1:
        (void)!share_give(w->s.shares, p, h.id, other, chance(2), &again, &e);
        return;
    case 2:
        (void)!share_take_back(w->s.shares, h.id, other->name, &e);
        return;
    case 3:
        if (lease_take(&claim, h.array, chance(2), HOUR * (1 + chance(3)), &lease, &again, &e) ==
            ERR_OK)
            memcpy(token, lease.token, ID_SIZE);
        return;
    default:
        (void)!lease_give(&claim, h.array, export, &e);
    }
}

static void live(struct world *w, int steps)
{
    for (int i = 0; i < steps; i++) {
        const uint32_t one = chance(2), what = chance(12);
        struct principal *p = principal(w, one);
        if (what < 7)
            step_arrays(w, p);
        else if (what < 8)
            step_sessions(p);
        else if (what < 9)
            step_functions(p);
        else
            step_grants(w, p, principal(w, one + 1));
        drop_unused(w, false);
    }
}

#endif
