/* Values in attrs are nobody's business but the clients', so only their size and depth are looked
 * at: they become part of other documents, which have to stay within the limits of readers. */
#include "server/labels/labels_read.h"

#include <stdio.h>
#include <string.h>

#include "server/labels/label_dims.h"

#define NAME_MOST   256  /* bytes, as in NetCDF files */
#define DEPTH_MOST  64   /* of attrs */
#define DIGITS_MOST 1000 /* of a number: Python reads none of more than 4,300 */

struct label_coord {
    struct label_array array;
    const char *dims[MAX_RANK];
};

void labels_members(struct json body, struct json ret[LABEL_COUNT])
{
    for (int k = 0; k < LABEL_COUNT; k++)
        ret[k] = json_member(body, label_names[k]);
}

bool labels_given(const struct labels_patch *p)
{
    bool any = false;
    for (int k = 0; k < LABEL_COUNT; k++)
        any |= json_present(p->of[k]);
    return any;
}

/* --- reading --- */

/* Names end up in terminals and pages: whoever shows them need not expect control characters. */
static bool is_printable(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c == 0x7F)
            return false;
        if (c == 0xC2 && (unsigned char)text[i + 1] < 0xA0) /* U+0080 to U+009F */
            return false;
    }
    return true;
}

static bool is_name(const char *text)
{
    const size_t n = strlen(text);
    return n > 0 && n <= NAME_MOST && is_printable(text, n);
}

static enum err_code bad_name(struct json v, struct err *e)
{
    return json_err(v, e, ERR_BAD_NAME, "a name must have 1 to %d bytes and no control characters",
                    NAME_MOST);
}

static enum err_code read_dims(struct json v, struct err *e)
{
    const char *name;
    if (json_kind(v) != JSON_LIST)
        return json_err(v, e, ERR_BAD_FIELD, "dims must be a list with a name or null per axis");
    if (json_count(v) > MAX_RANK)
        return json_err(v, e, ERR_SHAPE_MISMATCH, "an array has at most %d axes", MAX_RANK);
    for (struct json x = json_first(v); json_present(x); x = json_next(x)) {
        if (json_kind(x) == JSON_NULL)
            continue;
        TRY(json_get_string(x, &name, NULL, e));
        if (!is_name(name))
            return bad_name(x, e);
        for (struct json y = json_first(v); y.node != x.node; y = json_next(y))
            if (json_equals(y, name))
                return json_err(x, e, ERR_BAD_FIELD, "two axes cannot have the same name");
    }
    return ERR_OK;
}

static enum err_code read_units(struct json v, struct err *e)
{
    const char *text;
    size_t n;
    TRY(json_get_string(v, &text, &n, e));
    if (n > NAME_MOST || !is_printable(text, n))
        return json_err(v, e, ERR_BAD_FIELD,
                        "units must have at most %d bytes and no control characters", NAME_MOST);
    return ERR_OK;
}

static enum err_code check_value(struct json v, int left, struct err *e)
{
    size_t digits = 0;
    if (left == 0)
        return json_err(v, e, ERR_BAD_FIELD, "attrs are nested more than %d levels deep",
                        DEPTH_MOST);
    if (json_kind(v) == JSON_NUMBER && json_text(v, &digits) && digits > DIGITS_MOST)
        return json_err(v, e, ERR_BAD_FIELD, "a number has more than %d digits", DIGITS_MOST);
    for (struct json x = json_first(v); json_present(x); x = json_next(x))
        TRY(check_value(x, left - 1, e));
    return ERR_OK;
}

static enum err_code check_members(struct json v, size_t n, struct err *e)
{
    if (n > LABEL_MEMBERS_MOST)
        return json_err(v, e, ERR_INLINE_TOO_LARGE, "there may be at most %d", LABEL_MEMBERS_MOST);
    return ERR_OK;
}

static enum err_code read_attrs(struct json v, struct err *e)
{
    if (json_kind(v) != JSON_OBJECT)
        return json_err(v, e, ERR_BAD_FIELD, "attrs must be an object");
    TRY(check_members(v, json_count(v), e));
    for (struct json x = json_first(v); json_present(x); x = json_next(x)) {
        if (!is_name(json_key(x)))
            return bad_name(x, e);
        TRY(check_value(x, DEPTH_MOST, e));
    }
    return ERR_OK;
}

static enum err_code find(const struct label_finder *finder, struct json v, struct label_array *ret,
                          struct err *e)
{
    const char *ref;
    struct err why = ERR_INIT;
    TRY(json_get_string(v, &ref, NULL, e));
    enum err_code code = finder->find(finder->user, ref, ret, &why);
    return code == ERR_OK ? ERR_OK : json_err(v, e, code, "%s", why.message);
}

/* "lat": ref, which lies on the axis of its own name, or is a number. */
static enum err_code read_short_coord(struct json v, const struct label_finder *finder,
                                      struct label_coord *ret, struct err *e)
{
    TRY(find(finder, v, &ret->array, e));
    if (ret->array.rank > 1)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "a coordinate of rank %d needs the axes it lies on: {\"array\", \"dims\"}",
                        ret->array.rank);
    ret->dims[0] = json_key(v);
    return ERR_OK;
}

static enum err_code read_coord(struct json v, const struct label_finder *finder,
                                struct label_coord *ret, struct err *e)
{
    struct json array, dims;
    int n = 0;
    if (!is_name(json_key(v)))
        return bad_name(v, e);
    if (json_kind(v) == JSON_STRING)
        return read_short_coord(v, finder, ret, e);
    if (json_kind(v) != JSON_OBJECT)
        return json_err(v, e, ERR_BAD_FIELD,
                        "a coordinate must be an array's id or name, or {\"array\", \"dims\"}");
    TRY(JSON_MEMBERS(v, e, "array", "dims"));
    TRY(json_require(v, "array", &array, e));
    TRY(json_require(v, "dims", &dims, e));
    TRY(find(finder, array, &ret->array, e));
    TRY(read_dims(dims, e));
    if (json_count(dims) != (size_t)ret->array.rank)
        return json_err(dims, e, ERR_SHAPE_MISMATCH,
                        "dims must name each axis of the coordinate: got %zu for rank %d",
                        json_count(dims), ret->array.rank);
    for (struct json x = json_first(dims); json_present(x); x = json_next(x), n++)
        TRY(json_get_string(x, &ret->dims[n], NULL, e));
    return ERR_OK;
}

static enum err_code read_coords(struct json v, const struct label_finder *finder,
                                 struct labels_patch *p, struct err *e)
{
    if (json_kind(v) != JSON_OBJECT)
        return json_err(v, e, ERR_BAD_FIELD, "coords must be an object");
    TRY(check_members(v, json_count(v), e));
    p->coords = arena_alloc_array(p->arena, json_count(v), sizeof *p->coords);
    if (!p->coords)
        return err_oom(e);
    for (struct json x = json_first(v); json_present(x); x = json_next(x))
        if (json_kind(x) != JSON_NULL)
            TRY(read_coord(x, finder, &p->coords[p->n_coords++], e));
    return ERR_OK;
}

enum err_code labels_read(struct arena *arena, const struct json of[LABEL_COUNT],
                          const struct label_finder *finder, int64_t most, struct labels_patch *ret,
                          struct err *e)
{
    *ret = (struct labels_patch){.arena = arena, .most = most};
    memcpy(ret->of, of, sizeof ret->of);
    if (json_given(of[LABEL_ATTRS]))
        TRY(read_attrs(of[LABEL_ATTRS], e));
    if (json_given(of[LABEL_DIMS]))
        TRY(read_dims(of[LABEL_DIMS], e));
    if (json_given(of[LABEL_UNITS]))
        TRY(read_units(of[LABEL_UNITS], e));
    return json_given(of[LABEL_COORDS]) ? read_coords(of[LABEL_COORDS], finder, ret, e) : ERR_OK;
}

/* --- making --- */

struct maker {
    const struct labels_patch *patch;
    const struct view *view;
    struct json old[LABEL_COUNT];
    struct label_dims dims; /* as they will be */
    struct json_writer w;
};

static enum err_code parse_old(struct maker *m, const struct labels *old, struct err *e)
{
    for (int k = 0; old && k < LABEL_COUNT; k++)
        if (old->of[k].n)
            TRY(json_parse(m->patch->arena, old->of[k].text, old->of[k].n, NULL, &m->old[k], e));
    return ERR_OK;
}

/* The member as it will be, where it is replaced as a whole. */
static struct json replaced(const struct maker *m, enum label k)
{
    return json_present(m->patch->of[k]) ? m->patch->of[k] : m->old[k];
}

static enum err_code check_dims(const struct maker *m, struct err *e)
{
    const struct json v = m->patch->of[LABEL_DIMS];
    if (json_given(v) && json_count(v) != (size_t)m->view->rank)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "dims must have one name per axis: got %zu for an array of rank %d",
                        json_count(v), m->view->rank);
    return ERR_OK;
}

static enum err_code check_coord(const struct maker *m, struct json at, const struct label_coord *c,
                                 struct err *e)
{
    for (int i = 0; i < c->array.rank; i++) {
        const int k = label_dims_axis(&m->dims, c->dims[i]);
        if (k < 0)
            return json_err(at, e, ERR_SHAPE_MISMATCH, "the array has no axis named '%.80s'",
                            c->dims[i]);
        if (c->array.shape[i] != m->view->shape[k])
            return json_err(at, e, ERR_SHAPE_MISMATCH,
                            "the coordinate has extent %lld along '%.80s', but the array has %lld",
                            (long long)c->array.shape[i], c->dims[i], (long long)m->view->shape[k]);
    }
    return ERR_OK;
}

/* One that stays must find its axes again under their new names. */
static enum err_code check_staying(const struct maker *m, struct json coord, struct err *e)
{
    const struct json on = json_member(coord, "dims");
    for (struct json x = json_first(on); json_present(x); x = json_next(x)) {
        const char *name = json_text(x, &(size_t){0});
        if (name && label_dims_axis(&m->dims, name) < 0)
            return json_err(m->patch->of[LABEL_DIMS], e, ERR_SHAPE_MISMATCH,
                            "the coordinate '%.80s' lies on the axis '%.80s', which must keep its "
                            "name",
                            json_key(coord), name);
    }
    return ERR_OK;
}

static void put_coord(struct json_writer *w, const char *name, const struct label_coord *c)
{
    json_put_key(w, name);
    json_open_object(w);
    json_put_member_string(w, "array", c->array.id);
    json_put_key(w, "dims");
    json_open_list(w);
    for (int i = 0; i < c->array.rank; i++)
        json_put_string(w, c->dims[i]);
    json_close_list(w);
    json_close_object(w);
}

/* The members that stay, then those that are given. An object without members is as good as none.
 */
static enum err_code put_object(struct maker *m, enum label k, struct err *e)
{
    const struct json now = m->patch->of[k];
    const struct label_coord *c = m->patch->coords;
    const size_t from = m->w.out->len;
    json_open_object(&m->w);
    size_t n = 0;
    struct json old = json_kind(now) == JSON_NULL ? (struct json){0} : json_first(m->old[k]);
    for (; json_present(old); old = json_next(old)) {
        if (json_present(json_member(now, json_key(old))))
            continue;
        if (k == LABEL_COORDS && json_present(m->patch->of[LABEL_DIMS]))
            TRY(check_staying(m, old, e));
        json_put_key(&m->w, json_key(old));
        json_put_value(&m->w, old);
        n++;
    }
    for (struct json x = json_first(now); json_present(x); x = json_next(x)) {
        if (json_kind(x) == JSON_NULL)
            continue;
        n++;
        if (k == LABEL_COORDS) {
            TRY(check_coord(m, x, c, e));
            put_coord(&m->w, json_key(x), c++);
            continue;
        }
        json_put_key(&m->w, json_key(x));
        json_put_value(&m->w, x);
    }
    json_close_object(&m->w);
    if (!n && !m->w.out->failed)
        m->w.out->len = from;
    return check_members(now, n, e);
}

static bool names_any(struct json dims)
{
    struct json x = json_first(dims);
    while (json_kind(x) == JSON_NULL)
        x = json_next(x);
    return json_present(x);
}

static enum err_code put(struct maker *m, enum label k, struct err *e)
{
    const struct json v = replaced(m, k);
    m->w.comma = false;
    if (k == LABEL_ATTRS || k == LABEL_COORDS)
        return put_object(m, k, e);
    if (json_given(v) && (k != LABEL_DIMS || names_any(v)))
        json_put_value(&m->w, v);
    return ERR_OK;
}

/* The first member that was given is to blame. */
static enum err_code too_large(const struct labels_patch *p, size_t n, struct err *e)
{
    char pointer[16] = "";
    for (int k = 0; k < LABEL_COUNT && !*pointer; k++)
        if (json_given(p->of[k]))
            snprintf(pointer, sizeof pointer, "/%s", label_names[k]);
    return err_field(e, ERR_INLINE_TOO_LARGE, pointer,
                     "attrs, coords, dims and units would have %zu bytes together, but at most "
                     "%lld are allowed (max-attrs)",
                     n, (long long)p->most);
}

enum err_code labels_make(const struct labels *old, const struct labels_patch *p,
                          const struct view *v, struct labels **ret, struct err *e)
{
    struct maker m = {.patch = p, .view = v};
    size_t from[LABEL_COUNT + 1] = {0};
    struct label_text of[LABEL_COUNT];
    _cleanup_strb_ struct strb text = {0};
    if (!strb_reserve(&text, 64))
        return err_oom(e);
    TRY(parse_old(&m, old, e));
    TRY(check_dims(&m, e));
    label_dims_read(&m.dims, replaced(&m, LABEL_DIMS));
    m.w = JSON_WRITER(&text);
    for (int k = 0; k < LABEL_COUNT; k++) {
        TRY(put(&m, (enum label)k, e));
        from[k + 1] = text.len;
    }
    if (text.failed)
        return err_oom(e);
    for (int k = 0; k < LABEL_COUNT; k++)
        of[k] = (struct label_text){text.data + from[k], from[k + 1] - from[k]};
    _cleanup_labels_ struct labels *l = NULL;
    TRY(labels_new(of, &l, e));
    if (labels_size(l) > (size_t)p->most && labels_size(l) > labels_size(old))
        return too_large(p, labels_size(l), e);
    *ret = l;
    l = NULL;
    return ERR_OK;
}
