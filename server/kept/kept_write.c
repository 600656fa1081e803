/* The writers. The order of members is the format's: files of the state are compared byte for byte
 * with those of other versions. */
#include "server/body/function_json.h"
#include "server/body/grid_json.h"
#include "server/kept/kept.h"
#include "server/labels/labels.h"
#include "server/store/auth.h"

void kept_put_session(struct json_writer *w, const struct session *s, bool live)
{
    json_open_object(w);
    json_put_member_string(w, "id", s->id);
    json_put_member_string(w, "name", s->name);
    json_put_member_bool(w, "default", s->is_default);
    json_put_member_i64(w, "created_us", s->created_us);
    json_put_member_double(w, "ttl_s", s->ttl_s);
    json_put_member_i64(w, "memory_limit", s->own_limit);
    json_put_member_i64(w, "device", s->kept_device);
    if (live)
        json_put_member_i64(w, "seq", (int64_t)s->seq);
    json_close_object(w);
}

static void put_grid(struct json_writer *w, const struct grid *g)
{
    json_put_key(w, "grid");
    json_open_object(w);
    grid_json_put(w, g, g->rank);
    json_put_member_bool(w, "has_boundary", g->has_boundary);
    json_put_member_bool(w, "whole", g->whole);
    json_put_member_i64(w, "alignment", g->alignment);
    if (g->is_padded) {
        json_put_key(w, "padded");
        json_put_i64_list(w, (size_t)g->rank, g->padded);
    }
    json_close_object(w);
}

void kept_put_elements(struct json_writer *w, const struct array *a, int64_t memory, bool live)
{
    size_t rank = (size_t)a->view.rank;
    json_put_member_i64(w, "memory", memory);
    json_put_member_string(w, "dtype", dtype_name(a->dtype));
    json_put_key(w, "shape");
    json_put_i64_list(w, rank, a->view.shape);
    json_put_key(w, "strides");
    json_put_i64_list(w, rank, a->view.strides);
    json_put_member_i64(w, "offset", a->view.offset);
    if (a->grid)
        put_grid(w, a->grid);
    if (live && (int64_t)array_buffer_id(a) != memory)
        json_put_member_i64(w, "buffer", (int64_t)array_buffer_id(a));
}

void kept_put_array(struct json_writer *w, const struct handle_image *h, int64_t memory, bool live)
{
    json_open_object(w);
    json_put_member_string(w, "id", h->id);
    json_put_member_string(w, "name", h->name);
    json_put_member_string(w, "session", h->session);
    json_put_member_string(w, "view_of", h->view_of);
    json_put_member_string(w, "base", h->base);
    json_put_member_bool(w, "read_only", h->read_only);
    if (h->coordinate)
        json_put_member_bool(w, "coordinate", true);
    json_put_member_i64(w, "created_us", h->created_us);
    json_put_member_i64(w, "seq", (int64_t)h->seq);
    kept_put_elements(w, h->array, memory, live);
    labels_put(w, h->labels, false);
    if (live && h->restored_us)
        json_put_member_i64(w, "restored_us", h->restored_us);
    json_close_object(w);
}

void kept_put_function(struct json_writer *w, const struct definition *d)
{
    json_open_object(w);
    json_put_member_i64(w, "seq", (int64_t)d->seq);
    json_put_member_i64(w, "created_us", d->created_us);
    json_put_key(w, "definition");
    function_json_put(w, d);
    json_close_object(w);
}

void kept_put_share(struct json_writer *w, const char *id, const char *owner, const char *who,
                    bool write)
{
    json_open_object(w);
    json_put_member_string(w, "array", id);
    json_put_member_string(w, "owner", owner);
    json_put_member_string(w, "principal", who);
    json_put_member_bool(w, "write", write);
    json_close_object(w);
}

void kept_put_settings(struct json_writer *w, const struct setting_changes *c)
{
    json_open_object(w);
    for (size_t i = 0; i < SETTINGS; i++)
        if (c->of[i].set) {
            json_put_key(w, setting_name(i));
            json_put_i64_list(w, 2, (const int64_t[]){c->of[i].value, c->of[i].file});
        }
    json_close_object(w);
}

void kept_put_link(struct json_writer *w, const struct kept_link *l)
{
    char hash[2 * TOKEN_HASH_SIZE + 1];
    token_hash_text(l->hash, hash);
    json_open_object(w);
    json_put_member_string(w, "id", l->id);
    json_put_member_i64(w, "seq", l->created_us);
    json_put_member_i64(w, "expires_us", l->expires_us);
    json_put_member_string(w, "key_sha256", hash);
    json_put_member_bool(w, "whole", l->whole);
    json_put_key(w, "shows");
    json_open_list(w);
    for (size_t i = 0; i < l->n_refs; i++)
        json_put_string(w, l->refs[i]);
    json_close_list(w);
    json_close_object(w);
}

static void put_month(struct json_writer *w, const struct account_month *m)
{
    json_put_member_i64(w, "month", m->month);
    json_put_member_i64(w, "device_ns", (int64_t)m->device_ns);
}

void kept_put_months(struct json_writer *w, const struct account_months *m)
{
    json_open_object(w);
    put_month(w, &m->now);
    if (m->other.device_ns) {
        json_put_key(w, "other");
        json_open_object(w);
        put_month(w, &m->other);
        json_close_object(w);
    }
    json_close_object(w);
}

void kept_put_lease(struct json_writer *w, const struct lease_image *l)
{
    json_open_object(w);
    json_put_member_string(w, "token", l->lease.token);
    json_put_member_i64(w, "buffer", (int64_t)l->buffer);
    json_put_member_bool(w, "write", l->lease.write);
    json_put_member_i64(w, "expires_us", l->lease.expires_us);
    json_put_member_bool(w, "export", l->pinned);
    json_put_member_string(w, "principal", l->who ? l->who->name : "");
    if (l->pinned)
        json_put_member_i64(w, "memory", (int64_t)l->memory);
    if (*l->shared)
        json_put_member_string(w, "shared", l->shared);
    json_close_object(w);
}

static void put_place(struct json_writer *w, const struct kept_place *p)
{
    json_put_member_i64(w, "chunk", (int64_t)p->chunk);
    json_put_member_i64(w, "offset", p->offset);
    json_put_member_i64(w, "cell", (int64_t)p->cell);
    json_put_member_bool(w, "host", p->host);
    json_put_member_bool(w, "own", p->own);
    if (p->exported)
        json_put_member_bool(w, "exported", true);
    if (p->outstayed)
        json_put_member_bool(w, "outstayed", true);
}

void kept_put_memory(struct json_writer *w, const struct kept_memory *m)
{
    json_open_object(w);
    put_place(w, &m->at);
    json_put_member_i64(w, "bytes", m->bytes);
    json_put_member_i64(w, "device", m->device);
    if (m->was.chunk) {
        json_put_key(w, "was");
        json_open_object(w);
        put_place(w, &m->was);
        json_close_object(w);
    }
    json_close_object(w);
}
