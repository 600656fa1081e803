/* What becomes of what a file says of its variables: see import.h.
 *
 * Dimensions become names of axes, attributes become attributes, and one called "units" the unit.
 * Coordinates are variables that are called as a dimension, and those that the attributes
 * "coordinates" and "grid_mapping" name, as CF has it; they are taken at the same places. The
 * attributes "spacing", "boundary" and "ghost" make a grid, if they fit the variable, as our own
 * exports have them. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/body/grid_json.h"
#include "server/config/config.h"
#include "server/files/import.h"
#include "server/labels/labels_read.h"
#include "server/reader/wire.h"

static const char *const grid_attr_names[] = {"ghost", "spacing", "boundary"};
enum { ATTR_GHOST, N_GRID_ATTRS = 3 };

/* --- grids --- */

/* *ret: {name: value}; a text is JSON, and a number a list of one, which files do not tell apart.
 * False: it is no such thing. */
static bool as_member(const struct import *x, const char *name, struct json v, struct json *ret)
{
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    struct err why = ERR_INIT;
    size_t n;
    json_open_object(&w);
    json_put_key(&w, name);
    if (json_kind(v) == JSON_STRING) {
        const char *inner = json_text(v, &n);
        json_put_raw(&w, inner, n);
    } else if (json_kind(v) == JSON_NUMBER) {
        json_open_list(&w);
        json_put_value(&w, v);
        json_close_list(&w);
    } else {
        json_put_value(&w, v);
    }
    json_close_object(&w);
    return !text.failed && json_parse(x->arena, text.data, text.len, NULL, ret, &why) == ERR_OK;
}

/* Whether there is an interior, as long as the ghosts. */
static bool have_interior(const struct import_piece *p, const struct grid *g)
{
    int64_t shape[MAX_RANK];
    struct err why = ERR_INIT;
    for (int k = 0; k < g->rank; k++) {
        if (g->ghost[k] > p->count[k] / 2)
            return false;
        shape[k] = p->count[k] - 2 * g->ghost[k];
    }
    return grid_check_ghosts(g, shape, &why) == ERR_OK;
}

static bool read_attr(const struct import *x, const struct import_piece *p, int which,
                      struct grid *g)
{
    const char *name = grid_attr_names[which];
    const struct json v = json_member(p->variable->attrs, name);
    struct grid read = *g;
    struct json member;
    struct err why = ERR_INIT;
    if (!json_given(v) || !as_member(x, name, v, &member) ||
        grid_json_read(member, p->dtype, &read, &why) != ERR_OK ||
        (which == ATTR_GHOST && !have_interior(p, &read)))
        return false;
    *g = read;
    return true;
}

enum err_code import_grid(struct import *x, struct import_piece *p, struct err *e)
{
    struct grid g;
    grid_init(&g, p->variable->rank);
    for (int i = 0; i < N_GRID_ATTRS && (x->labels || x->into); i++)
        if (read_attr(x, p, i, &g))
            p->grid_attrs |= 1u << i;
    for (int k = 0; k < g.rank && !x->ghosts; k++) {
        p->start[k] += g.ghost[k];
        p->count[k] -= 2 * g.ghost[k];
        p->map.shape[k] = p->count[k];
        g.ghost[k] = 0;
    }
    if (x->into || grid_is_plain(&g))
        return ERR_OK;
    p->grid = arena_alloc(x->arena, sizeof *p->grid);
    if (!p->grid)
        return err_oom(e);
    *p->grid = g;
    return ERR_OK;
}

/* --- coordinates --- */

/* The name of axis r; NULL: none, or one that an axis before it has. */
static const char *axis_name(const struct import_piece *p, int r)
{
    const int k = p->map.axis[r];
    const char *name = k >= 0 ? p->variable->dims[k] : NULL;
    for (int before = 0; name && before < r; before++) {
        const int other = p->map.axis[before];
        if (other >= 0 && p->variable->dims[other] &&
            !strcmp(describe_last_part(p->variable->dims[other]), describe_last_part(name)))
            return NULL;
    }
    return name ? describe_last_part(name) : NULL;
}

/* The axis of the array that is axis k of the variable; −1: none. */
static int axis_of(const struct import_piece *p, int k)
{
    for (int r = 0; r < p->map.rank; r++)
        if (p->map.axis[r] == k)
            return r;
    return -1;
}

/* The axis of the variable that has that dimension; −1: none, or several. */
static int axis_with(const struct file_variable *of, const char *dim, int64_t length)
{
    int found = -1;
    for (int k = 0; k < of->rank; k++)
        if (of->dims[k] && !strcmp(of->dims[k], dim)) {
            if (found >= 0 || of->shape[k] != length)
                return -1;
            found = k;
        }
    return found;
}

/* Where a coordinate is to be taken whose axis j is the variable's axis on[j]. False: its place
 * cannot be told. */
static bool place(const struct import_piece *p, const struct file_variable *v, const int *on,
                  struct import_piece *c, struct import_coord *ret)
{
    c->variable = v;
    c->decode = v->decodes;
    c->dtype = v->decoded;
    for (int j = 0; j < v->rank; j++) {
        const int r = axis_of(p, on[j]);
        const int64_t ghosts = p->grid && r >= 0 ? p->grid->ghost[r] : 0;
        for (int before = 0; before < j; before++)
            if (on[before] == on[j]) /* an array has no two axes of one name */
                return false;
        c->start[j] = p->start[on[j]] + ghosts;
        c->count[j] = p->count[on[j]] - 2 * ghosts;
        c->step[j] = p->step[on[j]];
        if (r < 0)
            continue;
        if (!axis_name(p, r))
            return false;
        ret->axes[c->map.rank] = r;
        c->map.axis[c->map.rank] = j;
        c->map.shape[c->map.rank++] = c->count[j];
    }
    return true;
}

static const struct import_place *find_place(const struct import *x, const struct import_piece *c)
{
    struct import_place wanted, *found;
    memset(&wanted, 0, sizeof wanted);
    wanted.key.variable = c->variable;
    wanted.key.of_part = c->of_part;
    for (int k = 0; k < c->variable->rank; k++) {
        wanted.key.start[k] = c->start[k];
        wanted.key.count[k] = c->count[k];
        wanted.key.step[k] = c->step[k];
    }
    for (int r = 0; r < c->map.rank; r++)
        wanted.key.kept |= (uint64_t)1 << c->map.axis[r];
    HASH_FIND(hh, x->places, &wanted.key, sizeof wanted.key, found);
    return found;
}

/* The piece's coordinate of that name, or NULL. */
static const struct import_coord *find_coord_of(const struct import_piece *p, const char *name)
{
    for (size_t i = 0; i < p->n_coords; i++)
        if (!strcmp(p->coords[i].name, name))
            return &p->coords[i];
    return NULL;
}

/* A coordinate of piece i; *ret_added false: its place or name cannot be told. */
static enum err_code add_coord(struct import *x, size_t i, const char *name,
                               const struct file_variable *v, const int *on, bool *ret_added,
                               struct err *e)
{
    struct import_piece *c = import_piece_new(x), *p = &x->pieces[i];
    struct import_coord coord = {.name = name, .piece = x->n_pieces};
    *ret_added = false;
    if (!c)
        return err_oom(e);
    const struct import_coord *same = find_coord_of(p, name);
    *ret_added = same && x->pieces[same->piece].variable == v;
    if (same || !place(p, v, on, c, &coord))
        return ERR_OK;
    if (p->n_coords == LABEL_MEMBERS_MOST)
        return err_set(e, ERR_INLINE_TOO_LARGE,
                       "'%.100s' has more than %d coordinates; %s leaves them in the file",
                       p->variable->name, LABEL_MEMBERS_MOST,
                       x->task.job ? "\"coords\": false" : "?coords={}");
    c->of_part = !import_is_whole(p) && json_present(json_member(v->attrs, "GeoTransform"));
    if (arena_grow(x->arena, (void **)&p->coords, &p->cap_coords, p->n_coords, sizeof *p->coords))
        return err_oom(e);
    const struct import_place *old = find_place(x, c);
    if (old)
        coord.piece = old->piece;
    else
        TRY(import_piece_add(x, c, e));
    if (coord.piece != i)
        p->coords[p->n_coords++] = coord;
    *ret_added = coord.piece != i;
    return ERR_OK;
}

static enum err_code add_named(struct import *x, size_t i, const char *name, size_t n,
                               bool *ret_added, struct err *e)
{
    const struct file_variable *of = x->pieces[i].variable,
                               *v = describe_beside(&x->description, of, name, n);
    int on[MAX_RANK];
    *ret_added = false;
    if (!v || v == of)
        return ERR_OK;
    for (int j = 0; j < v->rank; j++) {
        on[j] = v->dims[j] ? axis_with(of, v->dims[j], v->shape[j]) : -1;
        if (on[j] < 0)
            return ERR_OK;
    }
    return add_coord(x, i, describe_last_part(v->name), v, on, ret_added, e);
}

/* *ret_left: those names of the attribute that did not become coordinates, separated by spaces;
 * NULL if all did. */
static enum err_code add_all_named(struct import *x, size_t i, const char *attr,
                                   const char **ret_left, struct err *e)
{
    struct file_names names;
    const char *name;
    size_t n, len = 0;
    bool added;
    describe_names(x->pieces[i].variable, attr, &names);
    char *left = arena_alloc(x->arena, strlen(names.at) + 1);
    if (!left)
        return err_oom(e);
    while (describe_next(&names, &name, &n)) {
        TRY(add_named(x, i, name, n, &added, e));
        if (added)
            continue;
        if (len)
            left[len++] = ' ';
        memcpy(left + len, name, n);
        len += n;
    }
    left[len] = 0;
    *ret_left = len ? left : NULL;
    return ERR_OK;
}

/* The coordinate of the variable's axis k. */
static enum err_code add_of_axis(struct import *x, size_t i, int k, const char *name, struct err *e)
{
    const struct file_variable *of = x->pieces[i].variable;
    const struct file_variable *v =
        name ? describe_coordinate(&x->description, of->dims[k], of->shape[k]) : NULL;
    bool added;
    return v && v != of ? add_coord(x, i, name, v, &k, &added, e) : ERR_OK;
}

/* The name of axis k, which the index has taken away; NULL if it had none, or one that an axis of
 * the array has. */
static const char *place_name(const struct import_piece *p, int k)
{
    const char *name = p->variable->dims[k] ? describe_last_part(p->variable->dims[k]) : NULL;
    for (int r = 0; name && r < p->map.rank; r++)
        if (axis_name(p, r) && !strcmp(axis_name(p, r), name))
            return NULL;
    return name;
}

enum err_code import_coordinates(struct import *x, size_t i, struct err *e)
{
    const struct file_variable *of = x->pieces[i].variable;
    const char *left;
    for (int k = 0; k < of->rank; k++) {
        const int r = axis_of(&x->pieces[i], k);
        const char *name = r < 0 ? place_name(&x->pieces[i], k) : axis_name(&x->pieces[i], r);
        TRY(add_of_axis(x, i, k, name, e));
    }
    TRY(add_all_named(x, i, "coordinates", &left, e));
    x->pieces[i].left_coords = left;
    return add_all_named(x, i, "grid_mapping", &left, e);
}

/* --- labels --- */

/* Names of variables that do not come along: bounds never do, and of a body perhaps no coordinates.
 */
static bool is_left_behind(const struct import *x, const char *name)
{
    return (!x->task.job && !x->coords &&
            (!strcmp(name, "coordinates") || !strcmp(name, "grid_mapping"))) ||
           !strcmp(name, "bounds") || !strcmp(name, "climatology");
}

/* Attributes that say how values are stored: of decoded ones they are not true any more. */
static bool is_of_storage(const char *name)
{
    static const char *const names[] = {"scale_factor", "add_offset", "_FillValue", "missing_value",
                                        "_Unsigned"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

/* The range of the stored values, which scaled ones are not in. */
static bool is_of_packed(const struct import_piece *p, const char *name)
{
    const struct json attrs = p->variable->attrs;
    return (!strcmp(name, "valid_range") || !strcmp(name, "valid_min") ||
            !strcmp(name, "valid_max")) &&
           (json_present(json_member(attrs, "scale_factor")) ||
            json_present(json_member(attrs, "add_offset")));
}

/* Whether something else says it of the array. */
static bool is_said(const struct import *x, const struct import_piece *p, const char *name,
                    struct json value)
{
    for (int i = 0; i < N_GRID_ATTRS; i++)
        if ((p->grid_attrs >> i & 1) && !strcmp(grid_attr_names[i], name))
            return true;
    if (json_kind(value) == JSON_STRING && is_left_behind(x, name))
        return true;
    return (p->decode && (is_of_storage(name) || is_of_packed(p, name))) ||
           ((p->dtype == DT_BOOL || p->dtype != p->variable->dtype) && !strcmp(name, "dtype") &&
            json_equals(value, "bool")) ||
           (x->coords && !p->left_coords && !strcmp(name, "coordinates")) ||
           import_is_place(p, name);
}

static void put_attrs(const struct import *x, const struct import_piece *p, struct json_writer *w)
{
    const struct json units = json_member(p->variable->attrs, "units");
    const bool has_units = json_kind(units) == JSON_STRING;
    /* those that read otherwise of decoded elements, in the same order */
    struct json other = json_member(json_member(p->variable->all, "decoded"), "attrs");
    other = p->decode ? json_first(other) : (struct json){0};
    json_put_key(w, "attrs");
    json_open_object(w);
    for (struct json a = json_first(p->variable->attrs); json_present(a); a = json_next(a)) {
        const bool is_other = json_present(other) && !strcmp(json_key(other), json_key(a));
        if (!is_said(x, p, json_key(a), a) && !(has_units && !strcmp(json_key(a), "units"))) {
            json_put_key(w, json_key(a));
            if (p->left_coords && !strcmp(json_key(a), "coordinates"))
                json_put_string(w, p->left_coords);
            else
                json_put_value(w, is_other ? other : a);
        }
        if (is_other)
            other = json_next(other);
    }
    import_put_place(p, w);
    json_close_object(w);
    if (has_units) {
        json_put_key(w, "units");
        json_put_value(w, units);
    }
}

/* Whether a library made a name up, for an axis that has none, and no coordinate lies on it. */
static bool is_phony(const struct import *x, const struct import_piece *p, int r, const char *name)
{
    const size_t n = strlen(WIRE_PHONY_DIM);
    bool phony = !strncmp(name, WIRE_PHONY_DIM, n) && name[n + strspn(name + n, "0123456789")] == 0;
    for (size_t i = 0; i < p->n_coords; i++)
        for (int j = 0; j < x->pieces[p->coords[i].piece].map.rank; j++)
            phony &= p->coords[i].axes[j] != r;
    return phony;
}

static void put_axes(const struct import *x, const struct import_piece *p, struct json_writer *w)
{
    json_put_key(w, "dims");
    json_open_list(w);
    for (int r = 0; r < p->map.rank; r++) {
        const char *name = axis_name(p, r);
        json_put_string(w, name && is_phony(x, p, r, name) ? NULL : name);
    }
    json_close_list(w);
    json_put_key(w, "coords");
    json_open_object(w);
    for (size_t i = 0; i < p->n_coords; i++) {
        const struct import_piece *c = &x->pieces[p->coords[i].piece];
        json_put_key(w, p->coords[i].name);
        json_open_object(w);
        json_put_member_string(w, "array", c->id);
        json_put_key(w, "dims");
        json_open_list(w);
        for (int r = 0; r < c->map.rank; r++)
            json_put_string(w, axis_name(p, p->coords[i].axes[r]));
        json_close_list(w);
        json_close_object(w);
    }
    json_close_object(w);
}

struct coord_finder {
    const struct import *x;
    const struct import_piece *of;
};

/* Coordinates are pieces. */
static enum err_code find_coord(void *user, const char *ref, struct label_array *ret, struct err *e)
{
    const struct coord_finder *f = user;
    for (size_t i = 0; i < f->of->n_coords; i++) {
        const struct import_piece *p = &f->x->pieces[f->of->coords[i].piece];
        if (strcmp(p->id, ref) != 0)
            continue;
        *ret = (struct label_array){.rank = p->inside.rank};
        memcpy(ret->id, p->id, ID_SIZE);
        memcpy(ret->shape, p->inside.shape, sizeof ret->shape);
        return ERR_OK;
    }
    return err_set(e, ERR_NOT_FOUND, "there is no array '%s'", ref);
}

enum err_code import_labels(const struct import *x, struct import_piece *p, struct err *e)
{
    struct coord_finder own = {x, p};
    const struct label_finder finder = {find_coord, &own};
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    struct json of[LABEL_COUNT], doc;
    struct labels_patch patch;
    if (!x->labels)
        return ERR_OK;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    if (!arena)
        return err_oom(e);
    json_open_object(&w);
    put_attrs(x, p, &w);
    put_axes(x, p, &w);
    json_close_object(&w);
    if (text.failed)
        return err_oom(e);
    TRY(json_parse(arena, text.data, text.len, NULL, &doc, e));
    labels_members(doc, of);
    enum err_code code = labels_read(arena, of, &finder, x->server->config->max_attrs, &patch, e);
    if (code == ERR_OK)
        code = labels_make(NULL, &patch, &p->inside, &p->labels, e);
    if (code == ERR_OK || code == ERR_OUT_OF_MEMORY)
        return code;
    struct err why = *e;
    return err_set(e, code, "'%.100s'%s: %.300s; %s leaves all of that in the file",
                   p->variable->name, why.pointer, why.message,
                   x->task.job ? "\"labels\": false" : "?labels=false");
}
