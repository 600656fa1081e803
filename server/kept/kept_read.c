/* The readers. What they read has a checksum, but may come from another version, or from another
 * machine: everything is checked that could crash the daemon. */
#include <limits.h>

#include "server/body/function_json.h"
#include "server/body/grid_json.h"
#include "server/config/config.h"
#include "server/kept/kept.h"
#include "server/kept/member.h"
#include "server/labels/labels.h"

enum err_code kept_read_session(struct json v, const struct engine *g, struct session *ret,
                                struct err *e)
{
    struct json x;
    int64_t device;
    TRY(member_id(v, "id", 's', false, ret->id, e));
    TRY(member_text(v, "name", ret->name, NAME_SIZE, e));
    TRY(member_bool(v, "default", &ret->is_default, e));
    TRY(member_i64(v, "created_us", &ret->created_us, e));
    TRY(json_require(v, "ttl_s", &x, e));
    TRY(json_get_double(x, &ret->ttl_s, e));
    TRY(member_i64(v, "memory_limit", &ret->own_limit, e));
    TRY(member_i64(v, "device", &device, e));
    ret->device = engine_device_kept(g, device);
    ret->kept_device = engine_kept_again(g, device, ret->device);
    int64_t seq = 0;
    TRY(member_i64_given(v, "seq", &seq, e));
    ret->seq = (uint64_t)seq;
    return ERR_OK;
}

/* --- arrays --- */

enum err_code kept_read_handle(struct json v, struct kept_handle *ret, struct err *e)
{
    struct handle_image *h = &ret->image;
    int64_t seq;
    TRY(member_id(v, "id", 'a', false, h->id, e));
    TRY(member_text(v, "name", h->name, NAME_SIZE, e));
    TRY(member_id(v, "session", 's', false, h->session, e));
    TRY(member_id(v, "view_of", 'a', true, h->view_of, e));
    TRY(member_id(v, "base", 'a', true, h->base, e));
    TRY(member_bool(v, "read_only", &h->read_only, e));
    h->coordinate = false;
    if (json_present(json_member(v, "coordinate")))
        TRY(member_bool(v, "coordinate", &h->coordinate, e));
    TRY(member_i64(v, "created_us", &h->created_us, e));
    TRY(member_i64(v, "seq", &seq, e));
    TRY(member_i64(v, "memory", &ret->memory, e));
    h->seq = (uint64_t)seq;
    h->restored_us = 0;
    TRY(member_i64_given(v, "restored_us", &h->restored_us, e));
    ret->buffer = ret->memory;
    TRY(member_i64_given(v, "buffer", &ret->buffer, e));
    if (h->name[0])
        TRY(name_check(h->name, e));
    return labels_restore(v, &h->labels, e);
}

static enum err_code read_grid(struct json v, enum dtype dtype, int rank, struct grid **ret,
                               struct err *e)
{
    struct grid desc;
    struct json padded = json_member(v, "padded");
    size_t n;
    grid_init(&desc, rank);
    TRY(grid_json_read(v, dtype, &desc, e));
    TRY(member_bool(v, "has_boundary", &desc.has_boundary, e));
    TRY(member_bool(v, "whole", &desc.whole, e));
    TRY(member_i64(v, "alignment", &desc.alignment, e));
    if (json_present(padded)) {
        TRY(json_get_i64_list(padded, MAX_RANK, 0, INT64_MAX, desc.padded, &n, e));
        if (n != (size_t)rank)
            return json_err(padded, e, ERR_STATE, "this must have one extent per axis");
        desc.is_padded = true;
    }
    *ret = grid_new(&desc);
    return *ret ? ERR_OK : err_oom(e);
}

static enum err_code read_view(struct json v, struct view *ret, struct err *e)
{
    struct json shape, strides;
    size_t n;
    TRY(json_require(v, "shape", &shape, e));
    TRY(json_get_shape(shape, 0, &ret->rank, ret->shape, e));
    TRY(json_require(v, "strides", &strides, e));
    TRY(json_get_i64_list(strides, MAX_RANK, INT64_MIN, INT64_MAX, ret->strides, &n, e));
    if (n != (size_t)ret->rank)
        return json_err(strides, e, ERR_STATE, "this must have one stride per axis");
    return member_i64(v, "offset", &ret->offset, e);
}

enum err_code kept_read_array(struct json v, struct array *base, struct array **ret, struct err *e)
{
    enum dtype dtype;
    struct view view = {0};
    struct json x, desc = json_member(v, "grid");
    int64_t lo, hi;
    TRY(json_require(v, "dtype", &x, e));
    TRY(json_get_dtype(x, &dtype, e));
    TRY(read_view(v, &view, e));
    view_extent(&view, &lo, &hi);
    if (lo < 0 || hi > array_buffer_nbytes(base) / (int64_t)dtype_size(dtype))
        return json_err(v, e, ERR_STATE, "the array lies outside its memory");
    _cleanup_array_ struct array *a = array_view(base, dtype, &view);
    if (!a)
        return err_oom(e);
    if (json_present(desc)) {
        struct grid *grid;
        TRY(read_grid(desc, dtype, view.rank, &grid, e));
        *ret = array_view_grid(a, &view, grid);
        grid_unref(grid);
        return *ret ? ERR_OK : err_oom(e);
    }
    *ret = array_ref(a);
    return ERR_OK;
}

/* --- the rest --- */

enum err_code kept_read_function(const struct config *config, struct json v,
                                 struct definition **ret, struct err *ret_why, struct err *e)
{
    struct config widest = *config;
    struct json x;
    int64_t seq, created_us;
    TRY(member_i64(v, "seq", &seq, e));
    TRY(member_i64(v, "created_us", &created_us, e));
    TRY(json_require(v, "definition", &x, e));
    widest.max_function_size = MOST_FUNCTION_SIZE;
    widest.max_nodes = MOST_NODES;
    widest.max_nesting = MOST_NESTING;
    *ret = NULL;
    enum err_code code = function_json_read(&widest, x, NULL, ret, ret_why);
    if (code == ERR_OUT_OF_MEMORY) {
        *e = *ret_why;
        return code;
    }
    if (code == ERR_OK) {
        (*ret)->seq = (uint64_t)seq;
        (*ret)->created_us = created_us;
    }
    return ERR_OK;
}

enum err_code kept_read_share(struct json v, struct kept_share *ret, struct err *e)
{
    TRY(member_id(v, "array", 'a', false, ret->id, e));
    TRY(member_text(v, "owner", ret->owner, PRINCIPAL_SIZE, e));
    TRY(member_text(v, "principal", ret->who, PRINCIPAL_SIZE, e));
    return member_bool(v, "write", &ret->write, e);
}

enum err_code kept_read_lease(struct json v, struct kept_lease *ret, struct err *e)
{
    struct lease_image *l = &ret->image;
    int64_t buffer, memory = 0;
    TRY(member_id(v, "token", 'l', false, l->lease.token, e));
    TRY(member_i64(v, "buffer", &buffer, e));
    TRY(member_bool(v, "write", &l->lease.write, e));
    TRY(member_i64(v, "expires_us", &l->lease.expires_us, e));
    TRY(member_bool(v, "export", &l->pinned, e));
    TRY(member_i64_given(v, "memory", &memory, e));
    *l->shared = '\0';
    if (json_present(json_member(v, "shared")))
        TRY(member_id(v, "shared", 'a', false, l->shared, e));
    l->buffer = (uint64_t)buffer;
    l->memory = (uint64_t)memory;
    l->who = NULL;
    return member_text(v, "principal", ret->who, PRINCIPAL_SIZE, e);
}

/* One that is absent is false. */
static enum err_code given(struct json v, const char *name, bool *ret, struct err *e)
{
    *ret = false;
    return json_present(json_member(v, name)) ? member_bool(v, name, ret, e) : ERR_OK;
}

static enum err_code read_place(struct json v, int64_t bytes, struct kept_place *ret, struct err *e)
{
    int64_t chunk, cell;
    TRY(member_i64(v, "chunk", &chunk, e));
    TRY(member_i64(v, "offset", &ret->offset, e));
    TRY(member_i64(v, "cell", &cell, e));
    TRY(member_bool(v, "own", &ret->own, e));
    TRY(given(v, "host", &ret->host, e));
    TRY(given(v, "exported", &ret->exported, e));
    TRY(given(v, "outstayed", &ret->outstayed, e));
    ret->chunk = (uint64_t)chunk;
    ret->cell = (uint64_t)cell;
    return ret->offset <= INT64_MAX - bytes ? ERR_OK
                                            : json_err(v, e, ERR_STATE, "this memory cannot be");
}

enum err_code kept_read_memory(struct json v, struct kept_memory *ret, struct err *e)
{
    int64_t device;
    struct json was = json_member(v, "was");
    TRY(member_i64(v, "bytes", &ret->bytes, e));
    TRY(read_place(v, ret->bytes, &ret->at, e));
    ret->was = (struct kept_place){0};
    if (json_present(was))
        TRY(read_place(was, ret->bytes, &ret->was, e));
    TRY(member_i64(v, "device", &device, e));
    if (device > INT_MAX)
        return json_err(v, e, ERR_STATE, "this memory cannot be");
    ret->device = (int)device;
    return ERR_OK;
}

/* A setting of another version's is left out. */
enum err_code kept_read_settings(struct json v, struct setting_changes *ret, struct err *e)
{
    *ret = (struct setting_changes){0};
    for (size_t i = 0; i < SETTINGS; i++) {
        struct setting_change *x = &ret->of[i];
        const struct json list = json_member(v, setting_name(i));
        if (!json_present(list))
            continue;
        if (json_count(list) != 2)
            return json_err(list, e, ERR_STATE, "a setting must have two values");
        const struct json value = json_first(list);
        TRY(json_get_i64(value, !i, setting_most(i), &x->value, e));
        TRY(json_get_i64(json_next(value), 0, INT64_MAX, &x->file, e));
        x->set = true;
    }
    return ERR_OK;
}

static enum err_code read_month(struct json v, struct account_month *ret, struct err *e)
{
    int64_t month, ns;
    TRY(member_i64(v, "month", &month, e));
    TRY(member_i64(v, "device_ns", &ns, e));
    *ret = (struct account_month){month > INT32_MAX ? 0 : (int32_t)month, (uint64_t)ns};
    return ERR_OK;
}

enum err_code kept_read_months(struct json v, struct account_months *ret, struct err *e)
{
    const struct json other = json_member(v, "other");
    ret->other = (struct account_month){0};
    TRY(read_month(v, &ret->now, e));
    return json_present(other) ? read_month(other, &ret->other, e) : ERR_OK;
}

static enum err_code read_shown(struct json v, struct kept_link *ret, struct err *e)
{
    struct json list;
    const char *ref;
    TRY(member_list(v, "shows", &list, e));
    for (struct json x = json_first(list); json_present(x); x = json_next(x)) {
        TRY(json_get_string(x, &ref, NULL, e));
        if (ret->n_refs == KEPT_LINK_REFS || (!id_is('a', ref) && !id_is('j', ref)))
            return json_err(x, e, ERR_STATE, "a link cannot show this");
        memcpy(ret->refs[ret->n_refs++], ref, ID_SIZE);
    }
    return ERR_OK;
}

enum err_code kept_read_link(struct json v, struct kept_link *ret, struct err *e)
{
    char hash[2 * TOKEN_HASH_SIZE + 1];
    *ret = (struct kept_link){0};
    TRY(member_id(v, "id", 'v', false, ret->id, e));
    TRY(member_i64(v, "seq", &ret->created_us, e));
    TRY(member_i64(v, "expires_us", &ret->expires_us, e));
    TRY(member_text(v, "key_sha256", hash, sizeof hash, e));
    if (!token_hash_parse(hash, strlen(hash), ret->hash))
        return json_err_member(v, "key_sha256", e, ERR_STATE, "this is no SHA-256");
    TRY(member_bool(v, "whole", &ret->whole, e));
    return read_shown(v, ret, e);
}
