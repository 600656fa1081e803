/* What of a file becomes which array: see import.h. The index of a variable is NumPy's, resolved to
 * a start, a count and a step along each axis, as files are read. */
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/config/config.h"
#include "server/files/import.h"
#include "server/store/session.h"

/* --- the body --- */

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
    TRY(files_get_bool(v, "decode", &ret->decode, e));
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
    TRY(JSON_MEMBERS(body, e, "folder", "path", "variables", "overwrite", "coords", "labels",
                     "ghosts"));
    TRY(json_require(body, "folder", &v, e));
    TRY(json_get_string(v, &folder, NULL, e));
    TRY(folders_find(x->server->files->folders, folder, &x->folder, e));
    TRY(json_require(body, "path", &v, e));
    TRY(json_get_string(v, &x->path, NULL, e));
    if (file_path_check(x->path, e) != ERR_OK)
        return err_prefix(e, "/path");
    TRY(files_get_bool(body, "overwrite", &x->overwrite, e));
    TRY(files_get_bool(body, "coords", &x->coords, e));
    TRY(files_get_bool(body, "labels", &x->labels, e));
    x->coords &= x->labels;
    TRY(files_get_ghosts(json_member(body, "ghosts"), &x->ghosts, e));
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

struct import_piece *import_piece_new(struct import *x)
{
    if (arena_grow(x->arena, (void **)&x->pieces, &x->cap_pieces, x->n_pieces, sizeof *x->pieces))
        return NULL;
    struct import_piece *p = &x->pieces[x->n_pieces];
    *p = (struct import_piece){0};
    id_make('a', p->id);
    return p;
}

/* Of several with the same contents the first is the coordinate. */
static enum err_code add_place(struct import *x, const struct import_piece *p, struct err *e)
{
    struct import_place *at = arena_alloc(x->arena, sizeof *at), *old;
    if (!at)
        return err_oom(e);
    memset(at, 0, sizeof *at);
    at->piece = x->n_pieces;
    at->key.variable = p->variable;
    at->key.of_part = p->of_part;
    for (int k = 0; k < p->variable->rank; k++) {
        at->key.start[k] = p->start[k];
        at->key.count[k] = p->count[k];
        at->key.step[k] = p->step[k];
    }
    for (int r = 0; r < p->map.rank; r++) {
        if (p->map.axis[r] < 0)
            return ERR_OK;
        at->key.kept |= (uint64_t)1 << p->map.axis[r];
    }
    HASH_FIND(hh, x->places, &at->key, sizeof at->key, old);
    if (old)
        return ERR_OK;
    HASH_ADD(hh, x->places, key, sizeof at->key, at);
    return at->hh.tbl ? ERR_OK : err_oom(e);
}

enum err_code import_piece_add(struct import *x, struct import_piece *p, struct err *e)
{
    TRY(view_contiguous(p->map.rank, p->map.shape, dtype_size(p->dtype), &p->view, e));
    p->inside = p->view;
    for (int r = 0; p->grid && r < p->view.rank; r++)
        p->inside.shape[r] -= 2 * p->grid->ghost[r];
    p->nbytes = view_size(&p->view) * (int64_t)dtype_size(p->dtype);
    if (__builtin_add_overflow(x->nbytes, p->nbytes, &x->nbytes))
        return err_set(e, ERR_OUT_OF_MEMORY, "the arrays have more than 2^63 bytes together");
    TRY(add_place(x, p, e));
    x->n_pieces++;
    return ERR_OK;
}

static enum err_code take_name(struct import *x, const char *name, struct err *e)
{
    struct import_name *n;
    HASH_FIND_STR(x->names, name, n);
    if (n)
        return err_set(e, ERR_CONFLICT, "two variables would be the array '%s'", name);
    n = arena_alloc(x->arena, sizeof *n);
    if (!n)
        return err_oom(e);
    n->name = name;
    HASH_ADD_KEYPTR(hh, x->names, n->name, strlen(n->name), n);
    return n->hh.tbl ? ERR_OK : err_oom(e);
}

/* The last part of a variable's name is the array's. */
static enum err_code name_piece(struct import *x, const struct import_item *item,
                                struct import_piece *p, struct err *e)
{
    const char *name = item->name ? item->name : describe_last_part(p->variable->name);
    if (!item->name && name_check(name, NULL) != ERR_OK)
        return err_set(e, ERR_BAD_NAME,
                       "'%.100s' cannot be an array's name: give one for this variable", name);
    TRY(take_name(x, name, e));
    snprintf(p->name, sizeof p->name, "%s", name);
    return handle_check_name(x->session->handles, name, x->overwrite ? NAME_REPLACE : NAME_NEW, e);
}

static enum err_code plan_item(struct import *x, const struct import_item *item, struct err *e)
{
    struct import_piece *p = import_piece_new(x);
    struct err why = ERR_INIT;
    if (!p)
        return err_oom(e);
    TRY(describe_find(&x->description, item->variable, &p->variable, e));
    const struct file_variable *v = p->variable;
    p->decode = item->decode && v->decodes;
    p->dtype = p->decode ? v->decoded : v->dtype;
    if (x->task.job)
        TRY(name_piece(x, item, p, e));
    if (index_resolve(v->rank, v->shape, &item->index, &p->map, &why) != ERR_OK)
        return err_set(e, why.code, "'%.100s': %s", v->name, why.message);
    for (int k = 0; k < v->rank; k++) {
        p->start[k] = p->map.start[k];
        p->count[k] = 1;
        p->step[k] = p->map.step[k];
    }
    for (int r = 0; r < p->map.rank; r++)
        if (p->map.axis[r] >= 0)
            p->count[p->map.axis[r]] = p->map.shape[r];
    if (!item->index.n)
        TRY(import_grid(x, p, e));
    return import_piece_add(x, p, e);
}

enum err_code import_plan(struct import *x, struct err *e)
{
    for (size_t i = 0; i < x->n_items; i++)
        TRY(plan_item(x, &x->items[i], e));
    const size_t named = x->n_pieces;
    for (size_t i = 0; x->coords && i < named; i++) {
        TRY(import_goes_on(x, e));
        TRY(import_coordinates(x, i, e));
    }
    return ERR_OK;
}
