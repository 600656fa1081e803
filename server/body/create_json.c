/* Reading create bodies. The engine's creators say what is wrong with values; here stands what the
 * fields may be, what goes with what, and which dtype a body without one means. */
#include "server/body/create_json.h"

#include <math.h>
#include <string.h>

#include "server/body/grid_json.h"

static const char *const creator_names[] = {"fill", "data",   "arange", "linspace",
                                            "eye",  "random", "like"};

/* The one creator's name, or NULL. */
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
    int64_t n = GRID_ALIGNMENT;
    enum err_code r = ERR_OK;
    if (json_present(v))
        r = json_get_i64(v, INT64_MIN, INT64_MAX, &n, e);
    if (r == ERR_OK && (n < 1 || n > GRID_MAX_ALIGNMENT || (n & (n - 1))))
        r = json_err(v, e, ERR_BAD_FIELD, "alignment must be a power of two from 1 to %d",
                     GRID_MAX_ALIGNMENT);
    *ret = json_present(v) ? n : 0;
    return r;
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
    enum err_code r = json_get_literal(v, &l, e);
    if (r != ERR_OK)
        return r;
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
    enum err_code r = json_get_literal(v, &l, e);
    if (r != ERR_OK)
        return r;
    if (s->dtype < 0) {
        enum dtype t;
        if (l.kind == LIT_COMPLEX)
            return json_err(v, e, ERR_BAD_FIELD, "a complex value needs a complex 'dtype'");
        if ((r = dtype_of_literal(&l, &t, e)) != ERR_OK)
            return err_prefix(e, "/fill");
        s->dtype = (int)t;
    }
    if ((r = scalar_from_literal((enum dtype)s->dtype, &l, &s->fill, e)) != ERR_OK)
        return err_prefix(e, "/fill");
    s->creator = CREATE_FILL;
    return ERR_OK;
}

static enum err_code read_arange(struct json v, struct create_spec *s, struct err *e)
{
    struct json stop;
    enum err_code r;
    bool has;
    s->creator = CREATE_ARANGE;
    s->start = (struct literal){.kind = LIT_INT, .i = 0};
    s->step = (struct literal){.kind = LIT_INT, .i = 1};
    if ((r = JSON_MEMBERS(v, e, "start", "stop", "step")) != ERR_OK ||
        (r = json_require(v, "stop", &stop, e)) != ERR_OK ||
        (r = real_literal(stop, &s->stop, e)) != ERR_OK ||
        (r = optional_real(v, "start", &s->start, &has, e)) != ERR_OK ||
        (r = optional_real(v, "step", &s->step, &has, e)) != ERR_OK)
        return r;
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
    enum err_code r = json_get_literal(v, &l, e);
    if (r == ERR_OK && l.kind == LIT_BOOL)
        r = json_err(v, e, ERR_BAD_FIELD, "must be a number");
    if (r == ERR_OK)
        *ret = l;
    return r;
}

static enum err_code read_linspace(struct json v, struct create_spec *s, struct err *e)
{
    struct json start, stop, x;
    enum err_code r;
    s->creator = CREATE_LINSPACE;
    s->num = 50;
    s->endpoint = true;
    if ((r = JSON_MEMBERS(v, e, "start", "stop", "num", "endpoint")) != ERR_OK ||
        (r = json_require(v, "start", &start, e)) != ERR_OK ||
        (r = json_require(v, "stop", &stop, e)) != ERR_OK ||
        (r = end_literal(start, &s->start, e)) != ERR_OK ||
        (r = end_literal(stop, &s->stop, e)) != ERR_OK)
        return r;
    if (json_present(x = json_member(v, "num")) &&
        (r = json_get_i64(x, 0, INT64_MAX, &s->num, e)) != ERR_OK)
        return r;
    if (json_present(x = json_member(v, "endpoint")) &&
        (r = json_get_bool(x, &s->endpoint, e)) != ERR_OK)
        return r;
    if (s->dtype < 0)
        s->dtype = DT_F64;
    return ERR_OK;
}

static enum err_code read_eye(struct json v, struct create_spec *s, struct err *e)
{
    struct json x;
    enum err_code r;
    s->creator = CREATE_EYE;
    if ((r = JSON_MEMBERS(v, e, "n", "m", "k")) != ERR_OK ||
        (r = json_require(v, "n", &x, e)) != ERR_OK ||
        (r = json_get_i64(x, 0, INT64_MAX, &s->n, e)) != ERR_OK)
        return r;
    s->m = s->n;
    if (json_present(x = json_member(v, "m")) &&
        (r = json_get_i64(x, 0, INT64_MAX, &s->m, e)) != ERR_OK)
        return r;
    if (json_present(x = json_member(v, "k")) &&
        (r = json_get_i64(x, INT64_MIN, INT64_MAX, &s->k, e)) != ERR_OK)
        return r;
    if (s->dtype < 0)
        s->dtype = DT_F64;
    return ERR_OK;
}

static enum err_code read_random(struct json v, struct create_spec *s, struct err *e)
{
    static const char *const names[] = {"uniform", "normal", "integers"};
    static const enum random_dist dists[] = {RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_INTEGERS};
    struct json dist, seed;
    enum err_code r;
    int which = -1;
    s->creator = CREATE_RANDOM;
    if ((r = JSON_MEMBERS(v, e, "distribution", "seed", "low", "high")) != ERR_OK ||
        (r = json_require(v, "distribution", &dist, e)) != ERR_OK ||
        (r = json_require(v, "seed", &seed, e)) != ERR_OK ||
        (r = json_get_u64(seed, &s->random.seed, e)) != ERR_OK)
        return r;
    for (int i = 0; i < 3; i++)
        if (json_equals(dist, names[i]))
            which = i;
    if (which < 0)
        return json_err(dist, e, ERR_BAD_FIELD,
                        "distribution must be \"uniform\", \"normal\" or \"integers\"");
    s->random.dist = dists[which];
    if ((r = optional_real(v, "low", &s->random.low, &s->random.has_low, e)) != ERR_OK ||
        (r = optional_real(v, "high", &s->random.high, &s->random.has_high, e)) != ERR_OK)
        return r;
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
    enum err_code r = json_get_string(v, &ref, NULL, e);
    if (r != ERR_OK)
        return r;
    _cleanup_handle_ struct handle h = {0};
    if ((r = share_get(from, ref, &h, e)) != ERR_OK)
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
        /* for another shape, or more ghosts, the padding is its own */
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
    enum err_code r = json_get_shape(v, 0, &rank, padded, e);
    if (r != ERR_OK)
        return r;
    if (rank != g->rank)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "padded has an extent for each axis: %d for an array of rank %d", rank,
                        g->rank);
    memcpy(g->padded, padded, sizeof *padded * (size_t)rank);
    g->is_padded = true;
    return ERR_OK;
}

static enum err_code read_congruent(struct json v, const struct array_scope *from, struct grid *g,
                                    struct err *e)
{
    const char *ref;
    enum err_code r = json_get_string(v, &ref, NULL, e);
    if (r != ERR_OK)
        return r;
    _cleanup_handle_ struct handle h = {0};
    if ((r = share_get(from, ref, &h, e)) != ERR_OK)
        return err_prefix(e, "/congruent_to");
    const struct grid *other = h.array->grid;
    if (!other || !other->is_padded)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "only a padded array (with ghosts, or made congruent) has others congruent "
                        "to it");
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
    enum err_code r = grid_json_read(s->body, t, &s->grid, e);
    if (r == ERR_OK && json_present(padded) && json_present(congruent))
        r = json_err(congruent, e, ERR_BAD_FIELD,
                     "'padded' and 'congruent_to' cannot be given together");
    else if (r == ERR_OK && json_present(padded))
        r = read_padded(padded, &s->grid, e);
    else if (r == ERR_OK && json_present(congruent)) {
        r = read_congruent(congruent, from, &s->grid, e);
        s->congruent = true;
    }
    return r;
}

/* Padding that does not fit is the fault of the member it came from. */
static enum err_code place_padding(const struct create_spec *s, enum err_code r, struct err *e)
{
    if (r != ERR_OK && s->congruent && strcmp(e->pointer, "/padded") == 0)
        strcpy(e->pointer, "/congruent_to");
    return r;
}

enum err_code create_spec_embed(const struct create_spec *spec, struct session *s,
                                struct array *take_a, struct array **ret, struct err *e)
{
    if (!spec->has_grid) {
        *ret = take_a;
        return ERR_OK;
    }
    enum err_code r = engine_embed(s->stream, s->account, take_a, &spec->grid, ret, e);
    array_unref(take_a);
    return place_padding(spec, r, e);
}

enum err_code create_spec_read(struct json body, bool has_data, const struct array_scope *from,
                               struct create_spec *ret, struct err *e)
{
    struct create_spec s = {.dtype = -1, .body = body};
    const char *creator = NULL;
    struct json v;
    enum err_code r;
    if ((r = JSON_MEMBERS(body, e, "name", "shape", "dtype", "fill", "data", "arange", "linspace",
                          "eye", "random", "like", "alignment", "ghost", "boundary", "spacing",
                          "congruent_to", "padded", "location")) != ERR_OK ||
        (r = find_creator(body, &creator, e)) != ERR_OK ||
        (r = read_alignment(body, &s.alignment, e)) != ERR_OK)
        return r;
    if (json_present(v = json_member(body, "dtype"))) {
        enum dtype t;
        if ((r = json_get_dtype(v, &t, e)) != ERR_OK)
            return r;
        s.dtype = (int)t;
    }
    if (json_present(v = json_member(body, "shape"))) {
        if ((r = json_get_shape(v, 0, &s.rank, s.shape, e)) != ERR_OK)
            return r;
        s.has_shape = true;
    }
    v = creator ? json_member(body, creator) : (struct json){0};
    if (has_data)
        s.creator = CREATE_DATA;
    else if (!creator)
        r = want_shape(&s, body, e);
    else if (strcmp(creator, "fill") == 0)
        r = read_fill(v, &s, e);
    else if (strcmp(creator, "arange") == 0)
        r = read_arange(v, &s, e);
    else if (strcmp(creator, "linspace") == 0)
        r = read_linspace(v, &s, e);
    else if (strcmp(creator, "eye") == 0)
        r = read_eye(v, &s, e);
    else if (strcmp(creator, "random") == 0)
        r = read_random(v, &s, e);
    else
        r = read_like(v, from, &s, e);
    if (r == ERR_OK && (s.creator == CREATE_FILL || s.creator == CREATE_RANDOM))
        r = want_shape(&s, body, e);
    if (r != ERR_OK)
        return r;
    if (s.dtype < 0 && s.creator != CREATE_DATA)
        s.dtype = DT_F64;
    int rank = s.has_shape ? s.rank : s.creator == CREATE_EYE ? 2 : 1;
    if (s.creator != CREATE_DATA &&
        (r = create_spec_grid(&s, (enum dtype)s.dtype, rank, from, e)) != ERR_OK)
        return r;
    if (s.has_grid && s.has_shape && (r = grid_check_ghosts(&s.grid, s.shape, e)) != ERR_OK)
        return r;
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
    return err_field(e, ERR_SHAPE_MISMATCH, "/shape", "the shape given is %s, the elements make %s",
                     shape_text(spec->rank, spec->shape, given, sizeof given),
                     shape_text(rank, shape, made, sizeof made));
}

enum err_code create_spec_run(const struct create_spec *p, struct session *s, struct array **ret,
                              struct err *e)
{
    enum dtype t = (enum dtype)p->dtype;
    struct array *a = NULL;
    enum err_code r = ERR_OK;
    const char *place = "/shape"; /* of errors that say none */
    switch (p->creator) {
    case CREATE_ZEROS:
        r = engine_zeros_grid(s->stream, s->account, t, p->rank, p->shape,
                              p->has_grid ? &p->grid : NULL, &a, e);
        r = place_padding(p, r, e);
        break;
    case CREATE_FILL:
        r = engine_full(s->stream, s->account, p->fill, p->rank, p->shape, &a, e);
        break;
    case CREATE_ARANGE:
        place = "/arange";
        r = engine_arange(s->stream, s->account, t, &p->start, &p->stop, &p->step, &a, e);
        break;
    case CREATE_LINSPACE:
        place = "/linspace";
        r = engine_linspace(s->stream, s->account, t, &p->start, &p->stop, p->num, p->endpoint, &a,
                            e);
        break;
    case CREATE_EYE:
        place = "/eye";
        r = engine_eye(s->stream, s->account, t, p->n, p->m, p->k, &a, e);
        break;
    case CREATE_RANDOM:
        place = "/random";
        r = engine_random(s->stream, s->account, t, p->rank, p->shape, &p->random, &a, e);
        break;
    case CREATE_DATA:
        r = err_set(e, ERR_INTERNAL, "data has no creator");
        break;
    }
    if (r != ERR_OK) {
        if (!e->pointer[0] && err_status(r) == 422)
            err_prefix(e, place);
        return r;
    }
    if ((r = create_spec_shape(p, a->view.rank, a->view.shape, e)) != ERR_OK) {
        array_unref(a);
        return r;
    }
    if (p->creator == CREATE_ZEROS) {
        *ret = a;
        return ERR_OK;
    }
    return create_spec_embed(p, s, a, ret, e);
}
