/* The texts lie behind the struct. Names and coordinates are parsed again where they have to follow
 * an array's axes, which is rare and short; whatever the texts hold, also those of another version,
 * parsing them finds only what is there. */
#include "server/labels/labels.h"

#include <string.h>

#include "compute/base/mem.h"
#include "server/labels/label_dims.h"

const char *const label_names[LABEL_COUNT] = {[LABEL_ATTRS] = "attrs",
                                              [LABEL_COORDS] = "coords",
                                              [LABEL_DIMS] = "dims",
                                              [LABEL_UNITS] = "units"};

struct labels *labels_ref(struct labels *l)
{
    if (l)
        atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

void labels_unref(struct labels *l)
{
    if (l && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1)
        mem_free(l);
}

enum err_code labels_new(const struct label_text of[LABEL_COUNT], struct labels **ret,
                         struct err *e)
{
    size_t n = 0;
    for (int k = 0; k < LABEL_COUNT; k++)
        n += of[k].n;
    *ret = NULL;
    if (!n)
        return ERR_OK;
    struct labels *l = mem_alloc(sizeof *l + n);
    if (!l)
        return err_oom(e);
    atomic_init(&l->refs, 1);
    char *p = l->bytes;
    for (int k = 0; k < LABEL_COUNT; k++) {
        l->of[k] = (struct label_text){p, of[k].n};
        if (of[k].n)
            memcpy(p, of[k].text, of[k].n);
        p += of[k].n;
    }
    *ret = l;
    return ERR_OK;
}

size_t labels_size(const struct labels *l)
{
    size_t n = 0;
    for (int k = 0; l && k < LABEL_COUNT; k++)
        n += l->of[k].n ? l->of[k].n + strlen(label_names[k]) + strlen("\"\":,") : 0;
    return n;
}

void labels_put(struct json_writer *w, const struct labels *l, bool brief)
{
    for (int k = 0; l && k < LABEL_COUNT; k++) {
        if (!l->of[k].n || (brief && (k == LABEL_ATTRS || k == LABEL_COORDS)))
            continue;
        json_put_key(w, label_names[k]);
        json_put_raw(w, l->of[k].text, l->of[k].n);
    }
}

/* --- the labels of a view --- */

static enum err_code parse(struct arena *arena, const struct label_text *t, struct json *ret,
                           struct err *e)
{
    *ret = (struct json){0};
    return t->n ? json_parse(arena, t->text, t->n, NULL, ret, e) : ERR_OK;
}

static void put_dims(struct json_writer *w, const struct label_dims *dims,
                     const struct label_axes *axes)
{
    bool any = false;
    const size_t from = w->out->len;
    json_open_list(w);
    for (int r = 0; r < axes->n; r++) {
        const char *name = axes->from[r] < 0 ? NULL : dims->name[axes->from[r]];
        any |= name != NULL;
        if (name)
            json_put_string(w, name);
        else
            json_put_null(w);
    }
    json_close_list(w);
    if (!any && !w->out->failed)
        w->out->len = from;
}

/* Whether each axis that it lies on is there whole. */
static bool stays(struct json coord, const struct label_dims *dims, const bool whole[MAX_RANK])
{
    const struct json on = json_member(coord, "dims");
    for (struct json x = json_first(on); json_present(x); x = json_next(x)) {
        const char *name = json_text(x, &(size_t){0});
        const int k = name ? label_dims_axis(dims, name) : -1;
        if (k < 0 || !whole[k])
            return false;
    }
    return true;
}

static void put_coords(struct json_writer *w, struct json coords, const struct label_dims *dims,
                       const struct label_axes *axes)
{
    bool any = false, whole[MAX_RANK] = {false};
    const size_t from = w->out->len;
    for (int r = 0; r < axes->n; r++)
        if (axes->whole[r])
            whole[axes->from[r]] = true;
    json_open_object(w);
    for (struct json c = json_first(coords); json_present(c); c = json_next(c)) {
        if (!stays(c, dims, whole))
            continue;
        any = true;
        json_put_key(w, json_key(c));
        json_put_value(w, c);
    }
    json_close_object(w);
    if (!any && !w->out->failed)
        w->out->len = from;
}

bool labels_is_place(const char *attr)
{
    static const char *const names[] = {"ModelTiepoint", "ModelPixelScale", "ModelTransformation"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], attr))
            return true;
    return false;
}

/* Whether the first two axes and whatever others are left are the array's own. */
static bool keeps_pixels(const struct label_axes *axes)
{
    bool same = axes->n >= 2;
    for (int r = 0; r < axes->n; r++)
        same = same && axes->from[r] == r && axes->whole[r];
    return same;
}

static void put_attrs(struct json_writer *w, struct json attrs)
{
    bool any = false;
    const size_t from = w->out->len;
    json_open_object(w);
    for (struct json a = json_first(attrs); json_present(a); a = json_next(a)) {
        if (labels_is_place(json_key(a)))
            continue;
        any = true;
        json_put_key(w, json_key(a));
        json_put_value(w, a);
    }
    json_close_object(w);
    if (!any && !w->out->failed)
        w->out->len = from;
}

enum err_code labels_follow(struct labels *l, const struct label_axes *axes, struct labels **ret,
                            struct err *e)
{
    const struct label_text *attrs = l ? &l->of[LABEL_ATTRS] : NULL;
    const bool places =
        attrs && attrs->n && memmem(attrs->text, attrs->n, "\"Model", 6) && !keeps_pixels(axes);
    *ret = NULL;
    if (!l || (!places && !l->of[LABEL_DIMS].n && !l->of[LABEL_COORDS].n)) {
        *ret = labels_ref(l);
        return ERR_OK;
    }
    struct json dims, coords, said;
    struct label_dims names;
    struct label_text of[LABEL_COUNT];
    _cleanup_strb_ struct strb text = {0};
    _cleanup_arena_ struct arena *arena = arena_new(0);
    if (!arena)
        return err_oom(e);
    TRY(parse(arena, &l->of[LABEL_DIMS], &dims, e));
    TRY(parse(arena, &l->of[LABEL_COORDS], &coords, e));
    TRY(parse(arena, &(struct label_text){attrs->text, places ? attrs->n : 0}, &said, e));
    memcpy(of, l->of, sizeof of);
    struct json_writer w = JSON_WRITER(&text);
    label_dims_read(&names, dims);
    put_dims(&w, &names, axes);
    const size_t middle = text.len;
    w.comma = false;
    put_coords(&w, coords, &names, axes);
    const size_t end = text.len;
    w.comma = false;
    if (places)
        put_attrs(&w, said);
    if (text.failed)
        return err_oom(e);
    of[LABEL_DIMS] = (struct label_text){text.data, middle};
    of[LABEL_COORDS] = (struct label_text){text.data + middle, end - middle};
    if (places)
        of[LABEL_ATTRS] = (struct label_text){text.data + end, text.len - end};
    return labels_new(of, ret, e);
}

enum err_code labels_resize(struct labels *l, const struct view *was, const struct view *is,
                            struct labels **ret, struct err *e)
{
    struct label_axes axes;
    label_axes_own(&axes, was->rank);
    if (was->rank == is->rank)
        label_axes_stretch(&axes, was, is);
    else
        label_axes_reshape(&axes, was, is);
    return labels_follow(l, &axes, ret, e);
}

/* --- from another process --- */

bool labels_in(struct json v)
{
    bool any = false;
    for (int k = 0; k < LABEL_COUNT; k++)
        any |= json_present(json_member(v, label_names[k]));
    return any;
}

enum err_code labels_restore(struct json v, struct labels **ret, struct err *e)
{
    static const enum json_kind kinds[LABEL_COUNT] = {[LABEL_ATTRS] = JSON_OBJECT,
                                                      [LABEL_COORDS] = JSON_OBJECT,
                                                      [LABEL_DIMS] = JSON_LIST,
                                                      [LABEL_UNITS] = JSON_STRING};
    size_t from[LABEL_COUNT + 1] = {0};
    struct label_text of[LABEL_COUNT];
    _cleanup_strb_ struct strb text = {0};
    for (int k = 0; k < LABEL_COUNT; k++) {
        const struct json x = json_member(v, label_names[k]);
        struct json_writer w = JSON_WRITER(&text);
        if (json_present(x) && json_kind(x) != kinds[k])
            return json_err(x, e, ERR_STATE, "this cannot be said of an array");
        if (json_present(x))
            json_put_value(&w, x);
        from[k + 1] = text.len;
    }
    *ret = NULL;
    if (text.failed)
        return err_oom(e);
    if (!text.len)
        return ERR_OK;
    for (int k = 0; k < LABEL_COUNT; k++)
        of[k] = (struct label_text){text.data + from[k], from[k + 1] - from[k]};
    return labels_new(of, ret, e);
}
