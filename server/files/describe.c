/* Descriptions: see describe.h. Members that are not known are left out, so that clients see
 * nothing that was not checked. */
#include "server/files/describe.h"

#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"

#define VALUE_DEPTH  8  /* of lists in attributes */
#define NAMES_LISTED 40 /* in an error */

/* --- reading ---
 *
 * Whether something is as agreed is asked without an error: its place would be looked for. */

/* Whether attributes are as agreed: no objects in them. */
static bool is_value(struct json v, int left)
{
    if (json_kind(v) == JSON_OBJECT || !left)
        return false;
    for (struct json x = json_first(v); json_present(x); x = json_next(x))
        if (!is_value(x, left - 1))
            return false;
    return true;
}

static bool is_attrs(struct json v)
{
    if (!json_present(v))
        return true;
    bool good = json_kind(v) == JSON_OBJECT;
    for (struct json x = json_first(v); good && json_present(x); x = json_next(x))
        good = is_value(x, VALUE_DEPTH);
    return good;
}

static bool is_text(struct json v)
{
    return json_kind(v) == JSON_STRING;
}

static bool is_texts(struct json v)
{
    bool good = json_kind(v) == JSON_LIST;
    for (struct json x = json_first(v); good && json_present(x); x = json_next(x))
        good = is_text(x);
    return good;
}

static bool is_number(struct json v)
{
    double x;
    return json_get_double(v, &x, NULL) == ERR_OK;
}

static bool or_null(struct json v, bool good)
{
    return good || !json_given(v);
}

/* Dims of the file: lengths that are numbers. */
static bool are_dims(struct json dims)
{
    bool good = json_kind(dims) == JSON_OBJECT, unlimited;
    int64_t length;
    for (struct json x = json_first(dims); good && json_present(x); x = json_next(x)) {
        const struct json u = json_member(x, "unlimited");
        good = json_kind(x) == JSON_OBJECT &&
               json_get_i64(json_member(x, "length"), 0, INT64_MAX, &length, NULL) == ERR_OK &&
               (!json_present(u) || json_get_bool(u, &unlimited, NULL) == ERR_OK);
    }
    return good;
}

static bool read_names(struct json list, struct file_variable *v)
{
    int k = 0;
    if (!json_given(list))
        return true;
    if (json_kind(list) != JSON_LIST || (int)json_count(list) != v->rank)
        return false;
    for (struct json x = json_first(list); json_present(x); x = json_next(x), k++) {
        if (json_kind(x) != JSON_NULL && !is_text(x))
            return false;
        v->dims[k] = json_kind(x) == JSON_NULL ? NULL : json_text(x, &(size_t){0});
    }
    return true;
}

static bool read_decoded(struct json d, struct file_variable *v)
{
    v->decoded = v->dtype;
    if (!json_given(d))
        return true;
    v->decodes = true;
    return json_kind(d) == JSON_OBJECT &&
           json_get_dtype(json_member(d, "dtype"), &v->decoded, NULL) == ERR_OK &&
           or_null(json_member(d, "scale"), is_number(json_member(d, "scale"))) &&
           or_null(json_member(d, "offset"), is_number(json_member(d, "offset"))) &&
           is_value(json_member(d, "fill"), VALUE_DEPTH) && is_attrs(json_member(d, "attrs"));
}

/* What is told as it is: lists and texts of the right kinds. */
static bool is_told(struct json v)
{
    const struct json chunks = json_member(v, "chunks"), why = json_member(v, "why");
    const struct json filters = json_member(v, "filters"), stored = json_member(v, "stored");
    const struct json nbytes = json_member(v, "nbytes");
    int64_t n[MAX_RANK];
    size_t count;
    return is_attrs(json_member(v, "attrs")) && or_null(why, is_text(why)) &&
           or_null(stored, is_text(stored)) && or_null(filters, is_texts(filters)) &&
           or_null(nbytes, json_get_i64(nbytes, -1, INT64_MAX, n, NULL) == ERR_OK) &&
           or_null(chunks,
                   json_get_i64_list(chunks, MAX_RANK, 0, INT64_MAX, n, &count, NULL) == ERR_OK);
}

static bool read_variable(struct json x, struct file_variable *v)
{
    struct view view;
    const struct json dtype = json_member(x, "dtype");
    v->all = x;
    v->attrs = json_member(x, "attrs");
    v->readable = json_given(dtype);
    const struct json at = json_member(x, "at");
    if (json_kind(x) != JSON_OBJECT || !is_told(x) ||
        json_get_string(json_member(x, "name"), &v->name, NULL, NULL) != ERR_OK ||
        json_get_shape(json_member(x, "shape"), 0, &v->rank, v->shape, NULL) != ERR_OK ||
        (v->readable && json_get_dtype(dtype, &v->dtype, NULL) != ERR_OK) ||
        (json_given(at) && json_get_i64(at, 1, INT64_MAX, &v->at, NULL) != ERR_OK) ||
        !read_names(json_member(x, "dims"), v) || !read_decoded(json_member(x, "decoded"), v))
        return false;
    const struct json why = json_member(x, "why");
    v->why = json_given(why) ? json_text(why, &(size_t){0}) : "its type is not read";
    if (v->readable && view_contiguous(v->rank, v->shape, dtype_size(v->decoded), &view, NULL)) {
        v->readable = false;
        v->why = "it has more than 2^63 bytes";
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct file_variable *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static bool sort(struct arena *arena, struct file_description *d)
{
    d->by_name = arena_alloc_array(arena, d->n, sizeof *d->by_name);
    for (size_t i = 0; d->by_name && i < d->n; i++)
        d->by_name[i] = &d->variables[i];
    if (d->by_name)
        qsort(d->by_name, d->n, sizeof *d->by_name, by_name);
    return d->by_name;
}

enum err_code describe(struct file_process *p, struct arena *arena, struct file_description *ret,
                       struct err *e)
{
    static char ask[] = "{\"do\":\"describe\"}";
    const struct strb line = {.data = ask, .len = sizeof ask - 1};
    struct err why = ERR_INIT;
    TRY(process_ask(p, &line, e));
    TRY(process_hear(p, arena, &ret->all, e));
    const struct json list = json_member(ret->all, "variables");
    if (json_get_string(json_member(ret->all, "format"), &ret->format, NULL, &why) != ERR_OK ||
        json_kind(list) != JSON_LIST || !is_attrs(json_member(ret->all, "attrs")) ||
        !are_dims(json_member(ret->all, "dims")))
        return process_lies(e, "a malformed description of a file");
    ret->n = json_count(list);
    ret->variables = arena_alloc_array(arena, ret->n, sizeof *ret->variables);
    if (!ret->variables)
        return err_oom(e);
    size_t i = 0;
    for (struct json x = json_first(list); json_present(x); x = json_next(x))
        if (!read_variable(x, &ret->variables[i++]))
            return process_lies(e, "a malformed description of a variable");
    return sort(arena, ret) ? ERR_OK : err_oom(e);
}

/* --- finding --- */

/* The variables of that name: *ret_n of them, one after the other. */
static const struct file_variable **named(const struct file_description *d, const char *name,
                                          size_t *ret_n)
{
    const struct file_variable wanted = {.name = name}, *key = &wanted;
    const struct file_variable **all = d->by_name, **end = all + d->n;
    const struct file_variable **at = d->n ? bsearch(&key, all, d->n, sizeof *all, by_name) : NULL;
    size_t n = 0;
    while (at && at > all && !strcmp(at[-1]->name, name))
        at--;
    while (at && at + n < end && !strcmp(at[n]->name, name))
        n++;
    *ret_n = n;
    return at;
}

const struct file_variable *describe_named(const struct file_description *d, const char *name)
{
    size_t n;
    const struct file_variable **at = named(d, name, &n);
    return n == 1 && (*at)->readable ? *at : NULL;
}

const struct file_variable *describe_beside(const struct file_description *d,
                                            const struct file_variable *of, const char *name,
                                            size_t n)
{
    const char *slash = strrchr(of->name, '/');
    const bool absolute = n > 0 && *name == '/';
    const size_t group = slash && !absolute ? (size_t)(slash - of->name) + 1 : 0;
    char path[1024];
    name += absolute;
    n -= absolute;
    if (group + n >= sizeof path)
        return NULL;
    memcpy(path, of->name, group);
    memcpy(path + group, name, n);
    path[group + n] = '\0';
    const struct file_variable *v = describe_named(d, path);
    return v || !group ? v : describe_named(d, path + group);
}

void describe_names(const struct file_variable *of, const char *attr, struct file_names *ret)
{
    const struct json text = json_member(of->attrs, attr);
    size_t n;
    ret->at = json_kind(text) == JSON_STRING ? json_text(text, &n) : "";
    ret->colons = strchr(ret->at, ':');
    ret->before = !strcmp(attr, "grid_mapping");
}

bool describe_next(struct file_names *names, const char **ret, size_t *ret_n)
{
    for (;;) {
        const char *word = names->at + strspn(names->at, " \t\r\n");
        const size_t n = strcspn(word, " \t\r\n"), colon = n && word[n - 1] == ':';
        names->at = word + n;
        *ret = word;
        *ret_n = n - colon;
        if (!n || !names->colons || names->before == colon)
            return n;
    }
}

/* --- which one is meant --- */

/* A dimension's own variable. */
static bool is_axis(const struct file_variable *v)
{
    return v->rank == 1 && v->dims[0] && !strcmp(v->dims[0], v->name);
}

/* Marks those that belong to others, as CF has it. */
static void mark_named(struct file_description *d)
{
    static const char *const attrs[] = {"coordinates",  "bounds",        "climatology",
                                        "grid_mapping", "cell_measures", "ancillary_variables",
                                        "formula_terms"};
    for (size_t i = 0; i < d->n; i++)
        for (size_t k = 0; k < sizeof attrs / sizeof *attrs; k++) {
            struct file_names names;
            const char *name;
            size_t n;
            describe_names(&d->variables[i], attrs[k], &names);
            while (describe_next(&names, &name, &n)) {
                const struct file_variable *v = describe_beside(d, &d->variables[i], name, n);
                if (v && v != &d->variables[i])
                    d->variables[v - d->variables].belongs = true;
            }
        }
    d->marked = true;
}

/* Whether one may be meant where none is named: not if it belongs to others, as long as there are
 * some that do not. */
static bool may_be_meant(const struct file_variable *v, bool all)
{
    return v->readable && (all || (!is_axis(v) && !v->belongs));
}

static const struct file_variable *only(const struct file_description *d, bool all, size_t *ret_n)
{
    const struct file_variable *found = NULL;
    *ret_n = 0;
    for (size_t i = 0; i < d->n; i++)
        if (may_be_meant(&d->variables[i], all)) {
            found = &d->variables[i];
            ++*ret_n;
        }
    return found;
}

/* `name` NULL: none is named. */
static enum err_code unknown(const struct file_description *d, const char *name, bool all,
                             struct err *e)
{
    _cleanup_strb_ struct strb names = {0};
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        if (may_be_meant(&d->variables[i], all) && n++ < NAMES_LISTED)
            strb_addf(&names, "%s%.100s", n > 1 ? ", " : "", d->variables[i].name);
    if (n > NAMES_LISTED)
        strb_add(&names, ", …");
    if (names.failed)
        return err_oom(e);
    if (name)
        return err_set(e, ERR_UNKNOWN_NAME, "the file has no variable '%.100s', %s %s", name,
                       n ? "but" : "and", n ? names.data : "none that can be read");
    if (n)
        return err_set(e, ERR_UNKNOWN_NAME, "which variable? The file has %s", names.data);
    if (!d->n)
        return err_set(e, ERR_UNKNOWN_NAME, "the file has no variables");
    return err_set(e, ERR_UNSUPPORTED_FILE,
                   "no variable of the file can be read; of '%.100s': %.300s", d->variables->name,
                   d->variables->why);
}

enum err_code describe_find(struct file_description *d, const char *name,
                            const struct file_variable **ret, struct err *e)
{
    size_t n;
    bool all = name;
    const struct file_variable **at = name ? named(d, name, &n) : NULL, *found;
    if (name && !at && *name == '/') /* as HDF5's own tools write a path */
        at = named(d, name + 1, &n);
    if (name) {
        found = at ? *at : NULL;
    } else {
        if (!d->marked)
            mark_named(d);
        found = only(d, false, &n);
        all = !n;
        if (all)
            found = only(d, true, &n);
    }
    if (!found || (n > 1 && found->readable))
        return unknown(d, name, all, e);
    if (!found->readable)
        return err_set(e, ERR_UNSUPPORTED_FILE, "the variable '%.100s' cannot be read: %.300s",
                       found->name, found->why);
    *ret = found;
    return ERR_OK;
}

/* A coordinate lies in the same group as the dimension, the root's or one's own; those whose names
 * are the dimension's are enough here. */
const struct file_variable *describe_coordinate(const struct file_description *d, const char *dim,
                                                int64_t length)
{
    const struct file_variable *v = describe_named(d, dim);
    return v && v->rank == 1 && v->dims[0] && !strcmp(v->dims[0], dim) && v->shape[0] == length
               ? v
               : NULL;
}

const char *describe_last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

/* --- telling --- */

static void put_member(struct json_writer *w, const char *name, struct json of)
{
    const struct json v = json_member(of, name);
    if (!json_present(v))
        return;
    json_put_key(w, name);
    json_put_value(w, v);
}

static void put_dims(struct json_writer *w, struct json dims)
{
    json_put_key(w, "dims");
    json_open_object(w);
    for (struct json x = json_first(dims); json_present(x); x = json_next(x)) {
        json_put_key(w, json_key(x));
        json_open_object(w);
        put_member(w, "length", x);
        put_member(w, "unlimited", x);
        json_close_object(w);
    }
    json_close_object(w);
}

static void put_variable(struct json_writer *w, const struct file_variable *v)
{
    static const char *const members[] = {"name", "dtype",  "stored",  "why",    "shape",
                                          "dims", "chunks", "filters", "nbytes", "attrs"};
    const struct json decoded = json_member(v->all, "decoded");
    json_open_object(w);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        put_member(w, members[i], v->all);
    if (json_given(decoded)) {
        json_put_key(w, "decoded");
        json_open_object(w);
        put_member(w, "dtype", decoded);
        put_member(w, "scale", decoded);
        put_member(w, "offset", decoded);
        put_member(w, "fill", decoded);
        json_close_object(w);
    }
    json_close_object(w);
}

void describe_put(const struct file_description *d, struct json_writer *w)
{
    json_put_member_string(w, "format", d->format);
    put_member(w, "attrs", d->all);
    put_dims(w, json_member(d->all, "dims"));
    json_put_key(w, "variables");
    json_open_list(w);
    for (size_t i = 0; i < d->n; i++)
        put_variable(w, &d->variables[i]);
    json_close_list(w);
}
