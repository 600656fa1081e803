/* What of a file becomes which array: see import.h. The index of a variable is NumPy's, resolved to
 * a start, a count and a step along each axis, as files are read; a coordinate of an axis is taken
 * at the same places. */
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/config/config.h"
#include "server/files/import.h"
#include "server/labels/labels_read.h"
#include "server/store/session.h"

/* --- the body --- */

static enum err_code optional_bool(struct json of, const char *name, bool *ret, struct err *e)
{
    const struct json v = json_member(of, name);
    return json_given(v) ? json_get_bool(v, ret, e) : ERR_OK;
}

static enum err_code optional_text(struct json of, const char *name, const char **ret,
                                   struct err *e)
{
    const struct json v = json_member(of, name);
    return json_given(v) ? json_get_string(v, ret, NULL, e) : ERR_OK;
}

static enum err_code read_item(struct json v, struct import_item *ret, struct err *e)
{
    *ret = (struct import_item){.decode = true};
    ret->index.n = 0;
    if (json_kind(v) == JSON_STRING)
        return json_get_string(v, &ret->variable, NULL, e);
    const char *index = NULL;
    TRY(JSON_MEMBERS(v, e, "variable", "name", "index", "decode"));
    TRY(optional_text(v, "variable", &ret->variable, e));
    TRY(optional_text(v, "name", &ret->name, e));
    TRY(optional_bool(v, "decode", &ret->decode, e));
    TRY(optional_text(v, "index", &index, e));
    if (ret->name && name_check(ret->name, e) != ERR_OK)
        return json_err_member(v, "name", e, ERR_BAD_NAME,
                               "a name is a letter or '_' and up to 63 letters, digits and '_'");
    struct err why = ERR_INIT;
    if (index && index_parse(index, strlen(index), &ret->index, &why) != ERR_OK)
        return json_err_member(v, "index", e, why.code, "%s", why.message);
    return ERR_OK;
}

enum err_code import_read(struct import *x, struct json body, struct err *e)
{
    const char *folder;
    struct json v;
    x->coords = x->labels = true;
    TRY(JSON_MEMBERS(body, e, "folder", "path", "variables", "overwrite", "coords", "labels"));
    TRY(json_require(body, "folder", &v, e));
    TRY(json_get_string(v, &folder, NULL, e));
    TRY(folders_find(x->server->files->folders, folder, &x->folder, e));
    TRY(json_require(body, "path", &v, e));
    TRY(json_get_string(v, &x->path, NULL, e));
    if (file_path_check(x->path, e) != ERR_OK)
        return err_prefix(e, "/path");
    TRY(optional_bool(body, "overwrite", &x->overwrite, e));
    TRY(optional_bool(body, "coords", &x->coords, e));
    TRY(optional_bool(body, "labels", &x->labels, e));
    x->coords &= x->labels;
    v = json_member(body, "variables");
    const bool all = json_given(v);
    if (all && (json_kind(v) != JSON_LIST || !json_count(v)))
        return json_err(v, e, ERR_BAD_FIELD, "variables must be a list with at least one");
    x->n_items = all ? json_count(v) : 1;
    struct import_item *items = arena_alloc_array(x->arena, x->n_items, sizeof *items);
    if (!items)
        return err_oom(e);
    x->items = items;
    items->decode = true;
    size_t i = 0;
    for (struct json y = json_first(v); json_present(y); y = json_next(y))
        TRY(read_item(y, &items[i++], e));
    return ERR_OK;
}

/* --- pieces --- */

static struct import_piece *new_piece(struct import *x)
{
    if (arena_grow(x->arena, (void **)&x->pieces, &x->cap_pieces, x->n_pieces, sizeof *x->pieces))
        return NULL;
    struct import_piece *p = &x->pieces[x->n_pieces];
    *p = (struct import_piece){0};
    id_make('a', p->id);
    return p;
}

/* The piece is complete but for this; it counts. */
static enum err_code finish_piece(struct import *x, struct import_piece *p, struct err *e)
{
    TRY(view_contiguous(p->map.rank, p->map.shape, dtype_size(p->dtype), &p->view, e));
    p->nbytes = view_size(&p->view) * (int64_t)dtype_size(p->dtype);
    if (__builtin_add_overflow(x->nbytes, p->nbytes, &x->nbytes))
        return err_set(e, ERR_OUT_OF_MEMORY, "the arrays have more than 2^63 bytes together");
    x->n_pieces++;
    return ERR_OK;
}

/* The last part of a variable's name is the array's. */
static enum err_code name_piece(const struct import *x, const struct import_item *item,
                                struct import_piece *p, struct err *e)
{
    const char *name = item->name;
    if (!name) {
        const char *slash = strrchr(p->variable->name, '/');
        name = slash ? slash + 1 : p->variable->name;
        if (name_check(name, NULL) != ERR_OK)
            return err_set(e, ERR_BAD_NAME,
                           "'%.100s' cannot be an array's name: give one for this variable", name);
    }
    for (size_t i = 0; i < x->n_pieces; i++)
        if (!strcmp(x->pieces[i].name, name))
            return err_set(e, ERR_CONFLICT, "two variables would be the array '%s'", name);
    snprintf(p->name, sizeof p->name, "%s", name);
    return handle_check_name(x->session->handles, name, x->overwrite ? NAME_REPLACE : NAME_NEW, e);
}

static enum err_code plan_item(struct import *x, const struct import_item *item, struct err *e)
{
    struct import_piece *p = new_piece(x);
    if (!p)
        return err_oom(e);
    TRY(describe_find(&x->description, item->variable, &p->variable, e));
    const struct file_variable *v = p->variable;
    p->decode = item->decode && v->decodes;
    p->dtype = p->decode ? v->decoded : v->dtype;
    if (x->job)
        TRY(name_piece(x, item, p, e));
    TRY(index_resolve(v->rank, v->shape, &item->index, &p->map, e));
    for (int k = 0; k < v->rank; k++) {
        p->start[k] = p->map.start[k];
        p->count[k] = 1;
        p->step[k] = p->map.step[k];
    }
    for (int r = 0; r < p->map.rank; r++)
        if (p->map.axis[r] >= 0)
            p->count[p->map.axis[r]] = p->map.shape[r];
    for (int k = 0; k < v->rank; k++)
        if (p->step[k] < 0)
            return err_set(
                e, ERR_BAD_INDEX,
                "files are read forwards: the step along axis %d of '%.100s' is negative", k,
                v->name);
    return finish_piece(x, p, e);
}

/* Whether that is a coordinate of axis k of the piece's variable, at the same places. */
static bool is_along(const struct import_piece *c, const struct file_variable *v,
                     const struct import_piece *p, int k)
{
    return c->variable == v && c->map.rank == 1 && c->map.axis[0] == 0 &&
           c->start[0] == p->start[k] && c->count[0] == p->count[k] && c->step[0] == p->step[k];
}

static const struct import_piece *coordinate(const struct import *x, const struct import_piece *p,
                                             int r)
{
    const int k = p->map.axis[r];
    const char *dim = k >= 0 ? p->variable->dims[k] : NULL;
    const struct file_variable *v =
        dim ? describe_coordinate(&x->description, dim, p->variable->shape[k]) : NULL;
    for (size_t i = 0; v && i < x->n_pieces; i++)
        if (is_along(&x->pieces[i], v, p, k))
            return &x->pieces[i];
    return NULL;
}

/* The coordinates of a piece's axes that are no pieces yet. */
static enum err_code plan_coordinates(struct import *x, size_t i, struct err *e)
{
    for (int r = 0; r < x->pieces[i].map.rank; r++) {
        const int k = x->pieces[i].map.axis[r];
        const struct file_variable *of = x->pieces[i].variable;
        const struct file_variable *v =
            k >= 0 && of->dims[k] ? describe_coordinate(&x->description, of->dims[k], of->shape[k])
                                  : NULL;
        if (!v || v == of || coordinate(x, &x->pieces[i], r))
            continue;
        struct import_piece *c = new_piece(x);
        const struct import_piece *p = &x->pieces[i];
        if (!c)
            return err_oom(e);
        c->variable = v;
        c->decode = v->decodes;
        c->dtype = v->decoded;
        c->start[0] = p->start[k];
        c->count[0] = p->count[k];
        c->step[0] = p->step[k];
        c->map = (struct index_map){.rank = 1, .shape = {p->count[k]}};
        TRY(finish_piece(x, c, e));
    }
    return ERR_OK;
}

enum err_code import_plan(struct import *x, struct err *e)
{
    for (size_t i = 0; i < x->n_items; i++)
        TRY(plan_item(x, &x->items[i], e));
    const size_t named = x->n_pieces;
    for (size_t i = 0; x->coords && i < named; i++)
        TRY(plan_coordinates(x, i, e));
    return ERR_OK;
}

/* --- labels --- */

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

static void put_attrs(const struct import_piece *p, struct json_writer *w)
{
    const struct json units = json_member(p->variable->attrs, "units");
    const bool has_units = json_kind(units) == JSON_STRING;
    json_put_key(w, "attrs");
    json_open_object(w);
    for (struct json a = json_first(p->variable->attrs); json_present(a); a = json_next(a))
        if (!(p->decode && is_of_storage(json_key(a))) &&
            !(has_units && !strcmp(json_key(a), "units"))) {
            json_put_key(w, json_key(a));
            json_put_value(w, a);
        }
    json_close_object(w);
    if (has_units) {
        json_put_key(w, "units");
        json_put_value(w, units);
    }
}

/* The name of axis r; NULL: none, or one that an axis before it has. */
static const char *axis_name(const struct import_piece *p, int r)
{
    const int k = p->map.axis[r];
    const char *name = k >= 0 ? p->variable->dims[k] : NULL;
    for (int before = 0; name && before < r; before++) {
        const int other = p->map.axis[before];
        if (other >= 0 && p->variable->dims[other] && !strcmp(p->variable->dims[other], name))
            return NULL;
    }
    return name;
}

static void put_axes(const struct import *x, const struct import_piece *p, struct json_writer *w)
{
    json_put_key(w, "dims");
    json_open_list(w);
    for (int r = 0; r < p->map.rank; r++)
        json_put_string(w, axis_name(p, r));
    json_close_list(w);
    json_put_key(w, "coords");
    json_open_object(w);
    for (int r = 0; x->coords && r < p->map.rank; r++) {
        const struct import_piece *c = axis_name(p, r) ? coordinate(x, p, r) : NULL;
        if (!c || c->variable == p->variable)
            continue;
        json_put_key(w, axis_name(p, r));
        json_put_string(w, c->id);
    }
    json_close_object(w);
}

/* Coordinates are pieces. */
static enum err_code find_piece(void *user, const char *ref, struct label_array *ret, struct err *e)
{
    const struct import *x = user;
    for (size_t i = 0; i < x->n_pieces; i++) {
        const struct import_piece *p = &x->pieces[i];
        if (strcmp(p->id, ref) != 0)
            continue;
        *ret = (struct label_array){.rank = p->view.rank};
        memcpy(ret->id, p->id, ID_SIZE);
        memcpy(ret->shape, p->view.shape, sizeof ret->shape);
        return ERR_OK;
    }
    return err_set(e, ERR_NOT_FOUND, "there is no array '%s'", ref);
}

enum err_code import_labels(const struct import *x, struct import_piece *p, struct err *e)
{
    const struct label_finder finder = {find_piece, (void *)x};
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    struct json of[LABEL_COUNT], doc;
    struct labels_patch patch;
    if (!x->labels)
        return ERR_OK;
    json_open_object(&w);
    put_attrs(p, &w);
    put_axes(x, p, &w);
    json_close_object(&w);
    if (text.failed)
        return err_oom(e);
    TRY(json_parse(x->arena, text.data, text.len, NULL, &doc, e));
    labels_members(doc, of);
    enum err_code code =
        labels_read(x->arena, of, &finder, x->server->config->max_attrs, &patch, e);
    if (code == ERR_OK)
        code = labels_make(NULL, &patch, &p->view, &p->labels, e);
    if (code == ERR_OK || code == ERR_OUT_OF_MEMORY)
        return code;
    struct err why = *e;
    return err_set(e, code, "'%.100s'%s: %.300s; \"labels\": false leaves all of that in the file",
                   p->variable->name, why.pointer, why.message);
}
