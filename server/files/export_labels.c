/* What becomes of labels and grids in a file: see export.h.
 *
 * Names of axes become dimensions, and units an attribute. Coordinates become variables; those that
 * lie on other axes than the one of their own name are named by the attribute "coordinates", as CF
 * has it, if "grid_mapping" does not name them. Of a grid there are "spacing", "boundary" and, if
 * ghosts are kept, "ghost". Whatever of "attrs" no file can hold as it is becomes its JSON text. */
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/body/grid_json.h"
#include "server/body/request.h"
#include "server/files/describe.h"
#include "server/files/export.h"
#include "server/labels/labels.h"

static enum err_code disagree(const struct export_piece *p, struct err *e, enum err_code code,
                              const char *what)
{
    static const char hint[] = "; \"labels\": false leaves all of that out of the file";
    return json_present(p->at) ? json_err(p->at, e, code, "%s%s", what, hint)
                               : err_set(e, code, "%s%s", what, hint);
}

static enum err_code parse_label(const struct export_task *x, const struct export_piece *p,
                                 enum label which, struct json *ret, struct err *e)
{
    *ret = (struct json){0};
    if (!p->labels || !p->labels->of[which].n)
        return ERR_OK;
    return json_parse(x->arena, p->labels->of[which].text, p->labels->of[which].n, NULL, ret, e);
}

/* An underscore for each such character. */
static enum err_code replace(struct export_task *x, const char **name, char what, struct err *e)
{
    char *copy = arena_strndup(x->arena, *name, strlen(*name));
    if (!copy)
        return err_oom(e);
    for (char *s = strchr(copy, what); s; s = strchr(s, what))
        *s = '_';
    *name = copy;
    return ERR_OK;
}

/* --- coordinates --- */

static bool same_names(struct json a, struct json b)
{
    struct json x = json_first(a), y = json_first(b);
    for (; json_present(x) && json_present(y); x = json_next(x), y = json_next(y)) {
        size_t n;
        const char *text = json_kind(x) == JSON_STRING ? json_text(x, &n) : NULL;
        if (!text || !json_equals(y, text))
            return false;
    }
    return !json_present(x) && !json_present(y);
}

/* Whether one of those axes is longer in the file than the coordinate, by its ghosts. */
static bool has_ghosts(const struct export_task *x, const struct export_piece *p, struct json dims)
{
    const struct grid *g = x->ghosts ? p->array->grid : NULL;
    int k = 0;
    for (struct json d = json_first(p->dims); g && json_present(d); d = json_next(d), k++)
        for (struct json c = json_first(dims); json_present(c); c = json_next(c))
            if (g->ghost[k] && json_kind(d) == JSON_STRING &&
                json_equals(c, json_text(d, &(size_t){0})))
                return true;
    return false;
}

enum err_code export_another_coordinate(const struct export_task *x, size_t i, const char *name,
                                        struct err *e)
{
    static const char fmt[] = "'%.100s' has a coordinate '%.100s' that is another than the file's; "
                              "\"coords\": false leaves coordinates out of the file";
    const struct export_piece *p = &x->pieces[i];
    return json_present(p->at) ? json_err(p->at, e, ERR_CONFLICT, fmt, p->name, name)
                               : err_set(e, ERR_CONFLICT, fmt, p->name, name);
}

/* Whether they are the same is seen when the contents are read. */
static enum err_code add_twin(struct export_task *x, struct request *req, struct handle *h,
                              size_t of, size_t with, struct err *e)
{
    struct export_twin *t = arena_alloc(x->arena, sizeof *t);
    if (!t)
        return err_oom(e);
    TRY(request_leased(req, h->array, LEASE_READ, e));
    *t = (struct export_twin){.of = of,
                              .with = with,
                              .array = h->array,
                              .nbytes = array_nbytes(h->array),
                              .next = x->twins};
    h->array = NULL;
    x->twins = t;
    return ERR_OK;
}

/* The array as the variable of that name, unless it is there as the same, or as one that may have
 * the same contents. */
static enum err_code add_coordinate(struct export_task *x, struct request *req, struct handle *h,
                                    const char *name, struct json dims, size_t i, struct err *e)
{
    struct export_piece *o = export_find(x, name);
    if (!o) {
        TRY(export_add(x, req, h, name, x->pieces[i].at, e));
        x->pieces[x->n_pieces - 1].dims = dims;
        x->pieces[x->n_pieces - 1].asked_for = false;
        return ERR_OK;
    }
    if (!json_present(o->dims))
        o->dims = dims;
    const bool same = same_names(o->dims, dims);
    if (same && !strcmp(o->id, h->id))
        return ERR_OK;
    if (same && !o->asked_for && o->array->dtype == h->array->dtype &&
        view_same_shape(&o->array->view, &h->array->view))
        return add_twin(x, req, h, (size_t)(o - x->pieces), i, e);
    return export_another_coordinate(x, i, name, e);
}

/* Whether it is a grid mapping, which CF has in its own attribute alone; an import finds it there.
 */
static bool is_mapping(struct json attrs, const char *name)
{
    const struct file_variable v = {.attrs = attrs};
    struct file_names names;
    const char *word;
    size_t n;
    describe_names(&v, "grid_mapping", &names);
    while (describe_next(&names, &word, &n))
        if (n == strlen(name) && !memcmp(word, name, n))
            return true;
    return false;
}

static enum err_code read_coordinate(struct export_task *x, struct request *req, struct session *s,
                                     size_t i, struct json c, struct json attrs, struct err *e)
{
    const char *name = describe_last_part(json_key(c)), *id;
    const struct json dims = json_member(c, "dims");
    const bool own = json_count(dims) == 1 && json_equals(json_first(dims), json_key(c));
    _cleanup_handle_ struct handle h = {0};
    struct err why = ERR_INIT;
    if (!export_is_name(name) || has_ghosts(x, &x->pieces[i], dims) ||
        json_get_string(json_member(c, "array"), &id, NULL, &why) != ERR_OK ||
        request_find(req, s, id, &h, &why) != ERR_OK || h.array->view.rank != (int)json_count(dims))
        return ERR_OK; /* only named, or changed since */
    if (!own)
        TRY(replace(x, &name, ' ', e)); /* between the names there are spaces */
    TRY(add_coordinate(x, req, &h, name, dims, i, e));
    struct strb *list = &x->pieces[i].coordinates;
    if (!own && !is_mapping(attrs, name))
        strb_addf(list, "%s%s", list->len ? " " : "", name);
    return list->failed ? err_oom(e) : ERR_OK;
}

enum err_code export_coordinates(struct export_task *x, struct request *req, struct session *s,
                                 size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        struct json coords, attrs;
        TRY(parse_label(x, &x->pieces[i], LABEL_COORDS, &coords, e));
        TRY(parse_label(x, &x->pieces[i], LABEL_ATTRS, &attrs, e));
        for (struct json c = json_first(coords); json_present(c); c = json_next(c))
            TRY(read_coordinate(x, req, s, i, c, attrs, e));
    }
    return ERR_OK;
}

/* --- dimensions --- */

static enum err_code add_dimension(struct export_task *x, const struct export_piece *p, int k,
                                   const char *name, struct err *e)
{
    const int64_t length = p->array->view.shape[k];
    struct export_dim *d;
    char what[500];
    HASH_FIND_STR(x->dims, name, d);
    if (d && d->length != length) {
        snprintf(what, sizeof what,
                 "the axis '%.100s' has extent %lld in '%.100s', but %lld in '%.100s'", name,
                 (long long)length, p->name, (long long)d->length, d->of);
        return disagree(p, e, ERR_SHAPE_MISMATCH, what);
    }
    if (d)
        return ERR_OK;
    d = arena_alloc(x->arena, sizeof *d);
    if (!d)
        return err_oom(e);
    *d = (struct export_dim){.name = name, .of = p->name, .length = length};
    HASH_ADD_KEYPTR(hh, x->dims, d->name, strlen(d->name), d);
    return d->hh.tbl ? ERR_OK : err_oom(e);
}

/* Whether an axis before axis k has that name. */
static bool is_named(const struct export_piece *p, int k, const char *name)
{
    for (int before = 0; before < k; before++)
        if (p->names[before] && !strcmp(p->names[before], name))
            return true;
    return false;
}

/* The last part of a path, or all of it if another axis of the array is called like that. */
static enum err_code name_axis(struct export_task *x, struct export_piece *p, int k, struct json d,
                               struct err *e)
{
    if (json_kind(d) != JSON_STRING)
        return ERR_OK;
    const char *path = json_text(d, &(size_t){0}), *name = describe_last_part(path);
    if (strchr(name, '/') || is_named(p, k, name)) {
        name = path;
        TRY(replace(x, &name, '/', e));
    }
    if (is_named(p, k, name)) {
        char what[500];
        snprintf(what, sizeof what, "'%.100s' would have two axes called '%.100s'", p->name, name);
        return disagree(p, e, ERR_CONFLICT, what);
    }
    p->names[k] = name;
    return add_dimension(x, p, k, name, e);
}

enum err_code export_dimensions(struct export_task *x, struct err *e)
{
    for (size_t i = 0; i < x->n_pieces; i++) {
        struct export_piece *p = &x->pieces[i];
        int k = 0;
        if ((int)json_count(p->dims) != p->array->view.rank)
            continue;
        for (struct json d = json_first(p->dims); json_present(d); d = json_next(d), k++)
            TRY(name_axis(x, p, k, d, e));
    }
    return ERR_OK;
}

/* --- attributes --- */

bool export_is_name(const char *name)
{
    bool good = *name && strlen(name) <= 256;
    for (const unsigned char *p = (const unsigned char *)name; *p && good; p++)
        good = *p >= ' ' && *p != 0x7F && *p != '/';
    return good;
}

static bool is_number(struct json v)
{
    struct literal l;
    return json_get_exact(v, &l, NULL) == ERR_OK && l.kind != LIT_COMPLEX;
}

/* Whether n numbers are of one type: all float64, if one is a fraction, else integers of 64 bits.
 */
static bool are_of_one_type(struct json v, size_t n)
{
    bool negative = false, large = false, fits = true, floats = false;
    struct literal l;
    for (; n; v = json_next(v), n--) {
        if (json_get_exact(v, &l, NULL) != ERR_OK)
            return false;
        floats |= l.kind == LIT_FLOAT;
        negative |= l.kind == LIT_INT && l.i < 0;
        large |= l.kind == LIT_INT && l.i > INT64_MAX;
        fits &= l.kind != LIT_INT || (l.i >= INT64_MIN && l.i <= UINT64_MAX);
    }
    return floats || (fits && !(negative && large));
}

/* Whether it is a number, a text, or a list of one of these, as files have them. */
static bool fits(struct json v)
{
    const bool list = json_kind(v) == JSON_LIST;
    const struct json first = list ? json_first(v) : v;
    const size_t n = list ? json_count(v) : 1;
    size_t texts = 0, numbers = 0, left = n;
    for (struct json x = first; left; x = json_next(x), left--) {
        texts += json_kind(x) == JSON_STRING;
        numbers += is_number(x);
    }
    if (numbers == n)
        return are_of_one_type(first, n);
    return texts == n && !is_number(first);
}

enum err_code export_check_attrs(struct json attrs, struct err *e)
{
    if (json_given(attrs) && json_kind(attrs) != JSON_OBJECT)
        return json_err(attrs, e, ERR_BAD_FIELD, "attrs must be an object");
    for (struct json a = json_first(attrs); json_present(a); a = json_next(a)) {
        if (!export_is_name(json_key(a)))
            return json_err(a, e, ERR_BAD_NAME,
                            "an attribute's name has 1 to 256 bytes, no control characters and no "
                            "'/'");
        if (!fits(a))
            return json_err(a, e, ERR_BAD_FIELD,
                            "an attribute of a file is a number of 64 bits, a text, or a list of "
                            "one of these");
    }
    return ERR_OK;
}

static void put_as_text(struct json_writer *w, struct json v)
{
    _cleanup_strb_ struct strb text = {0};
    struct json_writer inner = JSON_WRITER(&text);
    json_put_value(&inner, v);
    w->out->failed |= text.failed;
    if (!text.failed)
        json_put_stringn(w, text.data, text.len);
}

/* --- grids --- */

static bool has_spacing(const struct grid *g)
{
    bool any = false;
    for (int k = 0; g && k < g->rank; k++)
        any |= g->spacing[k] != 1;
    return any;
}

static enum err_code put_boundary(const struct export_task *x, const struct grid *g,
                                  struct json_writer *w, struct err *e)
{
    _cleanup_strb_ struct strb text = {0};
    struct json_writer inner = JSON_WRITER(&text);
    struct json all;
    json_open_object(&inner);
    grid_json_put(&inner, g, g->rank);
    json_close_object(&inner);
    if (text.failed)
        return err_oom(e);
    TRY(json_parse(x->arena, text.data, text.len, NULL, &all, e));
    json_put_key(w, "boundary");
    put_as_text(w, json_member(all, "boundary"));
    return ERR_OK;
}

static enum err_code put_grid(const struct export_task *x, const struct grid *g,
                              struct json_writer *w, struct err *e)
{
    if (has_spacing(g)) {
        json_put_key(w, "spacing");
        json_open_list(w);
        for (int k = 0; k < g->rank; k++)
            json_put_double(w, g->spacing[k]);
        json_close_list(w);
    }
    if (x->ghosts && grid_has_ghosts(g)) {
        json_put_key(w, "ghost");
        json_put_i64_list(w, (size_t)g->rank, g->ghost);
    }
    return g && g->has_boundary ? put_boundary(x, g, w, e) : ERR_OK;
}

/* Whether something else says it. */
static bool is_said(const struct export_task *x, const struct export_piece *p, const char *name,
                    bool units)
{
    const struct grid *g = p->array->grid;
    return (!strcmp(name, "units") && units) || (!strcmp(name, "spacing") && has_spacing(g)) ||
           (!strcmp(name, "ghost") && x->ghosts && grid_has_ghosts(g)) ||
           (!strcmp(name, "boundary") && g && g->has_boundary) ||
           (!strcmp(name, "coordinates") && p->coordinates.len);
}

/* --- variables --- */

static enum err_code put_attrs(const struct export_task *x, const struct export_piece *p,
                               struct json_writer *w, struct err *e)
{
    struct json attrs, units;
    TRY(parse_label(x, p, LABEL_ATTRS, &attrs, e));
    TRY(parse_label(x, p, LABEL_UNITS, &units, e));
    json_put_key(w, "attrs");
    json_open_object(w);
    for (struct json a = json_first(attrs); json_present(a); a = json_next(a)) {
        if (!json_given(a) || is_said(x, p, json_key(a), json_given(units)))
            continue;
        json_put_key(w, json_key(a));
        if (fits(a))
            json_put_value(w, a);
        else
            put_as_text(w, a);
    }
    if (json_given(units)) {
        json_put_key(w, "units");
        json_put_value(w, units);
    }
    if (p->coordinates.len)
        json_put_member_string(w, "coordinates", p->coordinates.data);
    if (x->labels)
        TRY(put_grid(x, p->array->grid, w, e));
    json_close_object(w);
    return ERR_OK;
}

enum err_code export_put_variable(const struct export_task *x, const struct export_piece *p,
                                  struct json_writer *w, struct err *e)
{
    const int rank = p->array->view.rank;
    json_open_object(w);
    json_put_member_string(w, "name", p->name);
    json_put_member_string(w, "dtype", dtype_name(p->array->dtype));
    json_put_key(w, "shape");
    json_put_i64_list(w, (size_t)rank, p->array->view.shape);
    json_put_key(w, "dims");
    if (json_present(p->dims) && (int)json_count(p->dims) == rank) {
        json_open_list(w);
        for (int k = 0; k < rank; k++)
            json_put_string(w, p->names[k]);
        json_close_list(w);
    } else {
        json_put_null(w);
    }
    TRY(put_attrs(x, p, w, e));
    json_close_object(w);
    return ERR_OK;
}
