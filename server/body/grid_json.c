/* Lists with one entry per axis; errors have the entry's place. A face's value is stored as two
 * doubles: ghosts are computed in floating point whatever the array's type. */
#include "server/body/grid_json.h"

#include <math.h>

static enum err_code read_ghost(struct json v, struct grid *g, struct err *e)
{
    int64_t width[MAX_RANK];
    size_t n;
    TRY(json_get_i64_list(v, MAX_RANK, 0, INT64_MAX, width, &n, e));
    if (n != (size_t)g->rank)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "ghost must have one width per axis: got %zu for an array of rank %d", n,
                        g->rank);
    for (int k = 0; k < g->rank; k++)
        g->ghost[k] = width[k];
    return ERR_OK;
}

static enum err_code read_spacing(struct json v, struct grid *g, struct err *e)
{
    double h[MAX_RANK];
    int n = 0;
    if (json_kind(v) != JSON_LIST)
        return json_err(v, e, ERR_BAD_FIELD, "spacing must be a list of numbers, one per axis");
    if (json_count(v) != (size_t)g->rank)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "spacing must have one number per axis: got %zu for an array of rank %d",
                        json_count(v), g->rank);
    for (struct json x = json_first(v); json_present(x); x = json_next(x), n++) {
        TRY(json_get_double(x, &h[n], e));
        if (!(h[n] > 0) || isinf(h[n]))
            return json_err(x, e, ERR_BAD_FIELD, "a spacing must be a positive number");
    }
    for (int k = 0; k < g->rank; k++)
        g->spacing[k] = h[k];
    return ERR_OK;
}

static enum err_code bad(struct json v, struct err *e, const char *what)
{
    return json_err(v, e, ERR_BAD_BOUNDARY, "%s", what);
}

static enum err_code read_face(struct json v, enum dtype t, struct face *ret, struct err *e)
{
    struct face f = {.type = FACE_NONE};
    if (json_kind(v) != JSON_OBJECT)
        return bad(v, e, "a face must be {\"type\": \"dirichlet\", \"neumann\" or \"none\", …}");
    struct json type = json_member(v, "type"), value = json_member(v, "value");
    TRY(JSON_MEMBERS(v, e, "type", "value"));
    if (json_equals(type, "dirichlet"))
        f.type = FACE_DIRICHLET;
    else if (json_equals(type, "neumann"))
        f.type = FACE_NEUMANN;
    else if (json_equals(type, "periodic"))
        f.type = FACE_PERIODIC;
    else if (!json_equals(type, "none"))
        return bad(json_present(type) ? type : v, e,
                   "a face's type must be \"dirichlet\", \"neumann\", \"periodic\" or \"none\"");
    bool wanted = f.type == FACE_DIRICHLET || f.type == FACE_NEUMANN;
    if (wanted != json_present(value))
        return bad(wanted ? v : value, e,
                   wanted ? "this type of face needs a value" : "this type of face takes no value");
    if (wanted) {
        struct literal l;
        TRY(json_get_literal(value, &l, e));
        if (l.kind == LIT_BOOL)
            return bad(value, e, "a face's value must be a number");
        if (l.kind == LIT_COMPLEX && !dtype_is_complex(t))
            return bad(value, e, "only the faces of a complex array can have complex values");
        f.re = l.kind == LIT_INT ? (double)l.i : l.re;
        f.im = l.kind == LIT_COMPLEX ? l.im : 0;
    }
    *ret = f;
    return ERR_OK;
}

static enum err_code read_axis(struct json v, enum dtype t, struct face *ret, struct err *e)
{
    if (json_equals(v, "periodic")) {
        ret[FACE_LOW] = ret[FACE_HIGH] = (struct face){.type = FACE_PERIODIC};
        return ERR_OK;
    }
    if (json_kind(v) != JSON_LIST || json_count(v) != 2)
        return bad(v, e, "the boundary of an axis must be \"periodic\" or [low face, high face]");
    struct json low = json_first(v), high = json_next(low);
    TRY(read_face(low, t, &ret[FACE_LOW], e));
    TRY(read_face(high, t, &ret[FACE_HIGH], e));
    if ((ret[FACE_LOW].type == FACE_PERIODIC) != (ret[FACE_HIGH].type == FACE_PERIODIC))
        return bad(v, e, "an axis must be periodic on both faces or on neither");
    return ERR_OK;
}

static enum err_code read_boundary(struct json v, enum dtype t, struct grid *g, struct err *e)
{
    struct face face[MAX_RANK][2];
    int k = 0;
    if (json_kind(v) != JSON_LIST)
        return bad(v, e, "a boundary must be a list with one entry per axis");
    if (json_count(v) != (size_t)g->rank)
        return json_err(v, e, ERR_BAD_BOUNDARY,
                        "a boundary must have one entry per axis: got %zu for an array of rank %d",
                        json_count(v), g->rank);
    for (struct json x = json_first(v); json_present(x); x = json_next(x), k++)
        TRY(read_axis(x, t, face[k], e));
    for (k = 0; k < g->rank; k++) {
        g->face[k][FACE_LOW] = face[k][FACE_LOW];
        g->face[k][FACE_HIGH] = face[k][FACE_HIGH];
    }
    g->has_boundary = true;
    return ERR_OK;
}

enum err_code grid_json_read(struct json body, enum dtype t, struct grid *g, struct err *e)
{
    struct json ghost = json_member(body, "ghost"), boundary = json_member(body, "boundary"),
                spacing = json_member(body, "spacing");
    if (json_present(ghost))
        TRY(read_ghost(ghost, g, e));
    if (json_present(boundary))
        TRY(read_boundary(boundary, t, g, e));
    return json_present(spacing) ? read_spacing(spacing, g, e) : ERR_OK;
}

static void put_face(struct json_writer *w, const struct face *f)
{
    static const char *const names[] = {
        [FACE_NONE] = "none", [FACE_DIRICHLET] = "dirichlet", [FACE_NEUMANN] = "neumann"};
    json_open_object(w);
    json_put_member_string(w, "type", names[f->type]);
    if (f->type != FACE_NONE) {
        json_put_key(w, "value");
        if (f->im != 0) {
            json_open_list(w);
            json_put_double(w, f->re);
            json_put_double(w, f->im);
            json_close_list(w);
        } else {
            json_put_double(w, f->re);
        }
    }
    json_close_object(w);
}

void grid_json_put(struct json_writer *w, const struct grid *g, int rank)
{
    static const struct face none[2];
    json_put_key(w, "ghost");
    json_open_list(w);
    for (int k = 0; k < rank; k++)
        json_put_i64(w, g ? g->ghost[k] : 0);
    json_close_list(w);
    json_put_key(w, "boundary");
    json_open_list(w);
    for (int k = 0; k < rank; k++) {
        const struct face *f = g ? g->face[k] : none;
        if (f[FACE_LOW].type == FACE_PERIODIC) {
            json_put_string(w, "periodic");
            continue;
        }
        json_open_list(w);
        put_face(w, &f[FACE_LOW]);
        put_face(w, &f[FACE_HIGH]);
        json_close_list(w);
    }
    json_close_list(w);
    json_put_key(w, "spacing");
    json_open_list(w);
    for (int k = 0; k < rank; k++)
        json_put_double(w, g ? g->spacing[k] : 1);
    json_close_list(w);
}
