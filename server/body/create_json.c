/* Reading create bodies. The engine's creators check the values; this file checks the fields' forms
 * and combinations, and chooses the dtype of a body without one. */
#include "server/body/create_json.h"

#include <math.h>
#include <string.h>

#include "server/body/grid_json.h"

static const char *const creator_names[] = {"fill", "data",   "arange", "linspace",
                                            "eye",  "random", "like"};

/* The name of the one creator in the body, or NULL. */
static enum err_code find_creator(struct json body, const char **ret, struct err *e)
{
    const char *found = NULL;
    for (size_t i = 0; i < sizeof creator_names / sizeof *creator_names; i++) {
        if (!json_present(json_member(body, creator_names[i])))
            continue;
        if (found)
            return json_err_member(body, creator_names[i], e, ERR_BAD_FIELD,
                                   "'%s' and '%s' cannot be given together", found,
                                   creator_names[i]);
        found = creator_names[i];
    }
    *ret = found;
    return ERR_OK;
}

static enum err_code read_alignment(struct json body, int64_t *ret, struct err *e)
{
    struct json v = json_member(body, "alignment");
    int64_t n;
    *ret = 0;
    if (!json_present(v))
        return ERR_OK;
    TRY(json_get_i64(v, INT64_MIN, INT64_MAX, &n, e));
    if (n < 1 || n > GRID_MAX_ALIGNMENT || (n & (n - 1)))
        return json_err(v, e, ERR_BAD_FIELD, "alignment must be a power of two from 1 to %d",
                        GRID_MAX_ALIGNMENT);
    *ret = n;
    return ERR_OK;
}

static enum err_code want_shape(const struct create_spec *s, struct json body, struct err *e)
{
    if (s->has_shape)
        return ERR_OK;
    return json_err_member(body, "shape", e, ERR_BAD_FIELD, "'shape' is required here");
}

/* An integer or a float, not true and not complex. */
static enum err_code real_literal(struct json v, struct literal *ret, struct err *e)
{
    struct literal l;
    TRY(json_get_literal(v, &l, e));
    if (l.kind != LIT_INT && l.kind != LIT_FLOAT)
        return json_err(v, e, ERR_BAD_FIELD, "must be a real number");
    *ret = l;
    return ERR_OK;
}

static enum err_code optional_real(struct json body, const char *name, struct literal *ret,
                                   bool *ret_has, struct err *e)
{
    struct json v = json_member(body, name);
    *ret_has = json_present(v);
    return *ret_has ? real_literal(v, ret, e) : ERR_OK;
}

static enum err_code read_fill(struct json v, struct create_spec *s, struct err *e)
{
    struct literal l;
    TRY(json_get_literal(v, &l, e));
    if (s->dtype < 0) {
        enum dtype t;
        if (l.kind == LIT_COMPLEX)
            return json_err(v, e, ERR_BAD_FIELD, "a complex value needs a complex 'dtype'");
        if (dtype_of_literal(&l, &t, e) != ERR_OK)
            return err_prefix(e, "/fill");
        s->dtype = (int)t;
    }
    if (scalar_from_literal((enum dtype)s->dtype, &l, &s->fill, e) != ERR_OK)
        return err_prefix(e, "/fill");
    s->creator = CREATE_FILL;
    return ERR_OK;
}

static enum err_code read_arange(struct json v, struct create_spec *s, struct err *e)
{
    struct json stop;
    bool has;
    s->creator = CREATE_ARANGE;
    s->start = (struct literal){.kind = LIT_INT, .i = 0};
    s->step = (struct literal){.kind = LIT_INT, .i = 1};
    TRY(JSON_MEMBERS(v, e, "start", "stop", "step"));
    TRY(json_require(v, "stop", &stop, e));
    TRY(real_literal(stop, &s->stop, e));
    TRY(optional_real(v, "start", &s->start, &has, e));
    TRY(optional_real(v, "step", &s->step, &has, e));
    if (s->dtype < 0)
        s->dtype = s->start.kind == LIT_INT && s->stop.kind == LIT_INT && s->step.kind == LIT_INT
                       ? DT_I64
                       : DT_F64;
    return ERR_OK;
}

/* An end of linspace: real or complex. */
static enum err_code end_literal(struct json v, struct literal *ret, struct err *e)
{
    struct literal l;
    TRY(json_get_literal(v, &l, e));
    if (l.kind == LIT_BOOL)
        return json_err(v, e, ERR_BAD_FIELD, "must be a number");
    *ret = l;
    return ERR_OK;
}

static enum err_code read_linspace(struct json v, struct create_spec *s, struct err *e)
{
    struct json start, stop, num = json_member(v, "num"), endpoint = json_member(v, "endpoint");
    s->creator = CREATE_LINSPACE;
    s->num = 50;
    s->endpoint = true;
    TRY(JSON_MEMBERS(v, e, "start", "stop", "num", "endpoint"));
    TRY(json_require(v, "start", &start, e));
    TRY(json_require(v, "stop", &stop, e));
    TRY(end_literal(start, &s->start, e));
    TRY(end_literal(stop, &s->stop, e));
    if (json_present(num))
        TRY(json_get_i64(num, 0, INT64_MAX, &s->num, e));
    if (json_present(endpoint))
        TRY(json_get_bool(endpoint, &s->endpoint, e));
    if (s->dtype < 0 && (s->start.kind == LIT_COMPLEX || s->stop.kind == LIT_COMPLEX))
        return json_err(s->start.kind == LIT_COMPLEX ? start : stop, e, ERR_BAD_DTYPE,
                        "complex end points need a dtype: complex64 or complex128");
    if (s->dtype < 0)
        s->dtype = DT_F64;
    return ERR_OK;
}

static enum err_code read_eye(struct json v, struct create_spec *s, struct err *e)
{
    struct json n, m = json_member(v, "m"), k = json_member(v, "k");
    s->creator = CREATE_EYE;
    TRY(JSON_MEMBERS(v, e, "n", "m", "k"));
    TRY(json_require(v, "n", &n, e));
    TRY(json_get_i64(n, 0, INT64_MAX, &s->n, e));
    s->m = s->n;
    if (json_present(m))
        TRY(json_get_i64(m, 0, INT64_MAX, &s->m, e));
    if (json_present(k))
        TRY(json_get_i64(k, INT64_MIN, INT64_MAX, &s->k, e));
    if (s->dtype < 0)
        s->dtype = DT_F64;
    return ERR_OK;
}

static enum err_code read_random(struct json v, struct create_spec *s, struct err *e)
{
    static const char *const names[] = {"uniform", "normal", "integers"};
    static const enum random_dist dists[] = {RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_INTEGERS};
    struct json dist, seed;
    int which = -1;
    s->creator = CREATE_RANDOM;
    TRY(JSON_MEMBERS(v, e, "distribution", "seed", "low", "high"));
    TRY(json_require(v, "distribution", &dist, e));
    TRY(json_require(v, "seed", &seed, e));
    TRY(json_get_u64(seed, &s->random.seed, e));
    for (int i = 0; i < 3; i++)
        if (json_equals(dist, names[i]))
            which = i;
    if (which < 0)
        return json_err(dist, e, ERR_BAD_FIELD,
                        "distribution must be \"uniform\", \"normal\" or \"integers\"");
    s->random.dist = dists[which];
    TRY(optional_real(v, "low", &s->random.low, &s->random.has_low, e));
    TRY(optional_real(v, "high", &s->random.high, &s->random.has_high, e));
    if (s->random.dist == RANDOM_NORMAL && (s->random.has_low || s->random.has_high))
        return json_err_member(v, s->random.has_low ? "low" : "high", e, ERR_BAD_FIELD,
                               "a normal distribution has no bounds");
    if (s->dtype < 0)
        s->dtype = s->random.dist == RANDOM_INTEGERS ? DT_I64 : DT_F64;
    return ERR_OK;
}

static enum err_code read_like(struct json v, const struct array_scope *from, struct create_spec *s,
                               struct err *e)
{
    const char *ref;
    TRY(json_get_string(v, &ref, NULL, e));
    _cleanup_handle_ struct handle h = {0};
    if (share_get(from, ref, &h, e) != ERR_OK)
        return err_prefix(e, "/like");
    const struct view *like = &h.array->view;
    if (s->dtype < 0)
        s->dtype = (int)h.array->dtype;
    if (!s->has_shape) {
        s->rank = like->rank;
        memcpy(s->shape, like->shape, sizeof s->shape);
        s->has_shape = true;
    }
    if (h.array->grid && s->rank == like->rank) {
        s->has_grid = true;
        s->grid = *h.array->grid;
        s->grid.whole = false;
        /* for another shape, or more ghosts, it gets padding of its own */
        s->grid.is_padded &= !h.array->grid->whole &&
                             !json_present(json_member(s->body, "ghost")) &&
                             !memcmp(s->shape, like->shape, sizeof *s->shape * (size_t)s->rank);
    }
    return ERR_OK;
}

static enum err_code read_padded(struct json v, struct grid *g, struct err *e)
{
    int rank;
    int64_t padded[MAX_RANK];
    TRY(json_get_shape(v, 0, &rank, padded, e));
    if (rank != g->rank)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "padded must have one extent per axis: got %d for an array of rank %d",
                        rank, g->rank);
    memcpy(g->padded, padded, sizeof *padded * (size_t)rank);
    g->is_padded = true;
    return ERR_OK;
}

static enum err_code read_congruent(struct json v, const struct array_scope *from, struct grid *g,
                                    struct err *e)
{
    const char *ref;
    TRY(json_get_string(v, &ref, NULL, e));
    _cleanup_handle_ struct handle h = {0};
    if (share_get(from, ref, &h, e) != ERR_OK)
        return err_prefix(e, "/congruent_to");
    const struct grid *other = h.array->grid;
    if (!other || !other->is_padded)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "an array can be congruent only to a padded one (with ghosts, \"padded\" "
                        "or \"congruent_to\")");
    if (other->rank != g->rank)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "an array of rank %d cannot be congruent to one of rank %d", g->rank,
                        other->rank);
    memcpy(g->padded, other->padded, sizeof g->padded);
    g->is_padded = true;
    return ERR_OK;
}

enum err_code create_spec_grid(struct create_spec *s, enum dtype t, int rank,
                               const struct array_scope *from, struct err *e)
{
    static const char *const members[] = {"ghost", "boundary", "spacing", "padded", "congruent_to"};
    struct json padded = json_member(s->body, "padded"),
                congruent = json_member(s->body, "congruent_to");
    bool asked = s->has_grid || (s->alignment && s->alignment != GRID_ALIGNMENT);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        asked |= json_present(json_member(s->body, members[i]));
    if (!asked)
        return ERR_OK;
    if (!s->has_grid)
        grid_init(&s->grid, rank);
    if (s->alignment)
        s->grid.alignment = s->alignment;
    s->has_grid = true;
    TRY(grid_json_read(s->body, t, &s->grid, e));
    if (json_present(padded) && json_present(congruent))
        return json_err(congruent, e, ERR_BAD_FIELD,
                        "'padded' and 'congruent_to' cannot be given together");
    if (json_present(padded))
        return read_padded(padded, &s->grid, e);
    s->congruent = json_present(congruent);
    return s->congruent ? read_congruent(congruent, from, &s->grid, e) : ERR_OK;
}

/* An error about padding that does not fit is at the member it came from. */
static enum err_code place_padding(const struct create_spec *s, enum err_code code, struct err *e)
{
    if (code != ERR_OK && s->congruent && strcmp(e->pointer, "/padded") == 0)
        strcpy(e->pointer, "/congruent_to");
    return code;
}

enum err_code create_spec_embed(const struct create_spec *spec, struct session *s,
                                struct array *take_a, struct array **ret, struct err *e)
{
    if (!spec->has_grid) {
        *ret = take_a;
        return ERR_OK;
    }
    enum err_code code = engine_embed(s->stream, s->account, take_a, &spec->grid, ret, e);
    array_unref(take_a);
    return place_padding(spec, code, e);
}

/* Reads the creator's members; without a creator, zeros. */
static enum err_code read_creator(const char *creator, const struct array_scope *from,
                                  struct create_spec *s, struct err *e)
{
    struct json v = creator ? json_member(s->body, creator) : (struct json){0};
    if (!creator)
        return want_shape(s, s->body, e);
    if (strcmp(creator, "arange") == 0)
        return read_arange(v, s, e);
    if (strcmp(creator, "linspace") == 0)
        return read_linspace(v, s, e);
    if (strcmp(creator, "eye") == 0)
        return read_eye(v, s, e);
    if (strcmp(creator, "fill") == 0)
        TRY(read_fill(v, s, e));
    else if (strcmp(creator, "random") == 0)
        TRY(read_random(v, s, e));
    else
        return read_like(v, from, s, e);
    return want_shape(s, s->body, e);
}

static enum err_code read_spec(struct create_spec *s, bool has_data, const struct array_scope *from,
                               struct err *e)
{
    struct json type = json_member(s->body, "dtype"), shape = json_member(s->body, "shape");
    const char *creator = NULL;
    enum dtype t;
    TRY(JSON_MEMBERS(s->body, e, "name", "shape", "dtype", "fill", "data", "arange", "linspace",
                     "eye", "random", "like", "alignment", "ghost", "boundary", "spacing",
                     "congruent_to", "padded", "location", "placement", "attrs", "coords", "dims",
                     "units"));
    TRY(find_creator(s->body, &creator, e));
    TRY(read_alignment(s->body, &s->alignment, e));
    if (json_present(type)) {
        TRY(json_get_dtype(type, &t, e));
        s->dtype = (int)t;
    }
    if (json_present(shape)) {
        TRY(json_get_shape(shape, 0, &s->rank, s->shape, e));
        s->has_shape = true;
    }
    if (has_data) {
        s->creator = CREATE_DATA;
    } else {
        TRY(read_creator(creator, from, s, e));
        if (s->dtype < 0)
            s->dtype = DT_F64;
        int rank = s->has_shape ? s->rank : s->creator == CREATE_EYE ? 2 : 1;
        TRY(create_spec_grid(s, (enum dtype)s->dtype, rank, from, e));
    }
    return s->has_grid && s->has_shape ? grid_check_ghosts(&s->grid, s->shape, e) : ERR_OK;
}

enum err_code create_spec_read(struct json body, bool has_data, const struct array_scope *from,
                               struct create_spec *ret, struct err *e)
{
    struct create_spec s = {.dtype = -1, .body = body};
    TRY(read_spec(&s, has_data, from, e));
    *ret = s;
    return ERR_OK;
}

enum err_code create_spec_shape(const struct create_spec *spec, int rank, const int64_t *shape,
                                struct err *e)
{
    char given[SHAPE_TEXT_MAX], made[SHAPE_TEXT_MAX];
    if (!spec->has_shape ||
        (spec->rank == rank && !memcmp(spec->shape, shape, sizeof *shape * (size_t)rank)))
        return ERR_OK;
    return err_field(e, ERR_SHAPE_MISMATCH, "/shape",
                     "the shape is given as %s, but the data has shape %s",
                     shape_text(spec->rank, spec->shape, given, sizeof given),
                     shape_text(rank, shape, made, sizeof made));
}

enum err_code create_spec_run(const struct create_spec *p, struct session *s, struct array **ret,
                              struct err *e)
{
    enum dtype t = (enum dtype)p->dtype;
    struct array *a = NULL;
    enum err_code code = ERR_OK;
    const char *place = "/shape", *creator = ""; /* of errors without a place, and with one */
    switch (p->creator) {
    case CREATE_ZEROS:
        code = engine_zeros_grid(s->stream, s->account, t, p->rank, p->shape,
                                 p->has_grid ? &p->grid : NULL, &a, e);
        code = place_padding(p, code, e);
        break;
    case CREATE_FILL:
        code = engine_full(s->stream, s->account, p->fill, p->rank, p->shape, &a, e);
        break;
    case CREATE_ARANGE:
        place = creator = "/arange";
        code = engine_arange(s->stream, s->account, t, &p->start, &p->stop, &p->step, &a, e);
        break;
    case CREATE_LINSPACE:
        place = creator = "/linspace";
        code = engine_linspace(s->stream, s->account, t, &p->start, &p->stop, p->num, p->endpoint,
                               &a, e);
        break;
    case CREATE_EYE:
        place = creator = "/eye";
        code = engine_eye(s->stream, s->account, t, p->n, p->m, p->k, &a, e);
        break;
    case CREATE_RANDOM:
        creator = "/random";
        code = engine_random(s->stream, s->account, t, p->rank, p->shape, &p->random, &a, e);
        break;
    case CREATE_DATA:
        code = err_set(e, ERR_INTERNAL, "an array from 'data' is uploaded, not computed");
        break;
    }
    if (code != ERR_OK) {
        if (e->pointer[0])
            return err_prefix(e, creator);
        if (code == ERR_BAD_DTYPE)
            place = "/dtype";
        return err_status(code) == 422 ? err_prefix(e, place) : code;
    }
    code = create_spec_shape(p, a->view.rank, a->view.shape, e);
    if (code != ERR_OK) {
        array_unref(a);
        return code;
    }
    if (p->creator == CREATE_ZEROS) {
        *ret = a;
        return ERR_OK;
    }
    return create_spec_embed(p, s, a, ret, e);
}
