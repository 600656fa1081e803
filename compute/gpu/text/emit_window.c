/* The text of the form window: what a tile holds at a place (ar_value…), and ar_march(), which does
 * with a plane all that can be done when it is there.
 *
 * In ar_march() a value's name is v<node>_<stage>_<point>: that of the thread's point, row by row,
 * whose stage has come. It is computed in one stage; later ones have it from the planes before.
 * Rows of the tile come in order, and with each the nodes that waited for it, of all points; what
 * is read from row j is r<tile>_<j>_<column>, by vectors in r<tile>_<j>_<vector>.
 *
 * Each point's statements are written out. With an unrolled loop over the points, NVRTC no longer
 * does two float16 operations in one: window-self.cu had 1016 instructions instead of 832. So it
 * also computes once what several points, or several planes' nodes of one stage, have in common:
 * the inner sums of weights that are an outer product (check_correlate.c). */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>

static const struct window_node *node_of(const struct emitter *m, uint32_t i)
{
    return &m->f->window.nodes[i];
}

static const char *type_of(const struct emitter *m, uint32_t node)
{
    return emit_type((enum dtype)m->k->nodes[node].dtype);
}

static bool is_self(const struct window_tile *t)
{
    return t->mode == BOUNDARY_SELF;
}

static bool has_self(const struct form_window *w)
{
    bool any = false;
    for (uint32_t t = 0; t < w->n_tiles; t++)
        any |= is_self(&w->tiles[t]);
    return any;
}

/* Whether a tile's values depend on the point's being inside. */
static bool chooses(const struct emitter *m)
{
    bool any = false;
    for (uint32_t t = 0; t < m->f->window.n_tiles; t++)
        any |= m->f->window.tiles[t].mode == BOUNDARY_CONSTANT;
    return any;
}

static bool has_half(const struct emitter *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->k->n_nodes; i++)
        any |= node_of(m, i)->half;
    return any;
}

/* The thread's point that the text is about. */
static int point_of(const struct emitter *m)
{
    return m->line * m->f->elements + m->column;
}

/* The column that the point reads, from the thread's first. */
static int column_of(const struct emitter *m, const struct window_node *n)
{
    return m->f->window.left + n->step[2] + m->column;
}

/* Whether a value that is read needs no name of its own. */
static bool is_plain(const struct emitter *m, const struct window_node *n)
{
    const bool chosen = m->edge && is_self(&m->f->window.tiles[n->tile]);
    return n->kind == WINDOW_READ && n->last == n->stage && !chosen;
}

static void name_read(struct emitter *m, const struct window_node *n)
{
    const int k = column_of(m, n), e = m->f->elements;
    strb_addf(&m->body, "r%u_%d_%d", n->tile, n->row + m->line, k / e);
    if (e > 1)
        strb_addf(&m->body, ".v[%d]", k % e);
}

static void name(struct emitter *m, uint32_t node)
{
    const struct window_node *n = node_of(m, node);
    struct strb *b = &m->body;
    if (is_plain(m, n))
        name_read(m, n);
    else if (n->kind != WINDOW_UNIFORM)
        strb_addf(b, "v%u_%d_%d", node, m->stage, point_of(m));
    else if (m->k->nodes[node].kind == IR_CONST)
        strb_addf(b, "p.c%u", m->k->nodes[node].scalar);
    else
        strb_addf(b, "u.v%u", node);
}

/* --- tiles --- */

/* The first tile with the same boundary: they share their places in a plane. */
static uint32_t spot_of(const struct form_window *w, uint32_t tile)
{
    uint32_t t = 0;
    while (w->tiles[t].mode != w->tiles[tile].mode)
        t++;
    return t;
}

/* What a tile's value is made of; false without memory. */
static bool mark_parts(struct emitter *m, uint32_t root, bool **ret)
{
    const struct ir_kernel *k = m->k;
    bool *used = *ret = arena_alloc_array(m->arena, root + 1, sizeof *used);
    m->oom |= !used;
    if (!used)
        return false;
    used[root] = true;
    for (uint32_t i = root + 1; i-- > 0;)
        for (int a = 0; used[i] && a < k->nodes[i].n_args; a++)
            used[k->nodes[i].args[a]] = true;
    return true;
}

static void emit_parts(struct emitter *m, const bool *used, uint32_t root)
{
    m->index = "i";
    for (uint32_t i = 0; i <= root; i++) {
        if (!used[i])
            continue;
        strb_addf(&m->body, "    const %s v%u = ", type_of(m, i), i);
        emit_value(m, i);
        strb_add(&m->body, ";\n");
    }
    m->index = NULL;
}

/* ar_value<t>(): the value at the indices i; `inside`: whether the shift needed no boundary.
 * ar_inner<t>(): those of AR_E neighbours that need none, the first at i. */
static void emit_tile_value(struct emitter *m, uint32_t tile)
{
    const uint32_t root = m->f->window.tiles[tile].node;
    const char *type = type_of(m, root);
    struct strb *b = &m->body;
    bool *used;
    if (!mark_parts(m, root, &used))
        return;
    strb_addf(b,
              "AR_FN %s ar_value%u(const ar_params &p, const ar_index *i, bool inside)\n{\n"
              "    (void)i;\n    (void)inside;\n",
              type, tile);
    emit_parts(m, used, root);
    strb_addf(b, "    return v%u;\n}\n", root);
    if (m->f->window.deep)
        return;
    strb_addf(b,
              "AR_FN ar_vec<%s, AR_E> ar_inner%u(const ar_params &p, ar_index *i)\n{\n"
              "    ar_vec<%s, AR_E> r;\n    const bool inside = true;\n    (void)inside;\n",
              type, tile, type);
    for (uint32_t l = 0; l < m->f->n_loads; l++) {
        const struct form_load *load = &m->f->loads[l];
        if (load->node > root || !used[load->node] || load->kind != LOAD_VECTOR)
            continue;
        const char *of = emit_type(m->k->inputs[load->input].dtype);
        strb_addf(b, "    const ar_vec<%s, AR_E> l%u = ar_load<%s, AR_E>(p.in%u + ", of, l, of,
                  load->input);
        emit_offset(m, load->input, 0, "i");
        strb_add(b, ");\n");
    }
    strb_add(b, "#pragma unroll\n    for (int e = 0; e < AR_E; e++, i[AR_FAST]++) {\n");
    m->vectors = true;
    emit_parts(m, used, root);
    m->vectors = false;
    strb_addf(b, "    r.v[e] = v%u;\n    }\n    return r;\n}\n", root);
}

static void emit_spots(struct emitter *m)
{
    const struct form_window *w = &m->f->window;
    struct strb *b = &m->body;
    strb_add(b, "struct ar_spot {\n");
    for (uint32_t t = 0; t < w->n_tiles; t++)
        if (spot_of(w, t) == t)
            strb_addf(b, "    ar_index y%u, x%u;\n", t, t);
    strb_add(b, "    bool inside;\n};\nAR_FN ar_spot ar_spot_of(const ar_params &p, ar_index y, "
                "ar_index x)\n{\n    ar_spot s;\n");
    for (uint32_t t = 0; t < w->n_tiles; t++) {
        const char *mode = emit_boundary(w->tiles[t].mode);
        if (spot_of(w, t) == t)
            strb_addf(b,
                      "    s.y%u = ar_bounded<%s>(y, (ar_index)p.ny);\n"
                      "    s.x%u = ar_bounded<%s>(x, (ar_index)p.nx);\n",
                      t, mode, t, mode);
    }
    strb_add(b, "    s.inside = y >= 0 && y < (ar_index)p.ny && x >= 0 && x < (ar_index)p.nx;\n"
                "    return s;\n}\n");
}

/* Copies the indices of the batch, and sets the last three. */
static void emit_indices(struct emitter *m, const char *z, const char *y, const char *x)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    for (int a = 0; a < f->window.batch; a++)
        strb_addf(b, "    i[%d] = at.i[%d];\n", a, a);
    if (f->rank > 2)
        strb_addf(b, "    i[%d] = %s;\n", f->rank - 3, z);
    if (f->rank > 1)
        strb_addf(b, "    i[%d] = %s;\n", f->rank - 2, y);
    strb_addf(b, "    i[%d] = %s;\n", f->rank - 1, x);
}

/* ar_produce(): the values at a place of plane z, as element e. */
static void emit_produce(struct emitter *m)
{
    const struct form_window *w = &m->f->window;
    struct strb *b = &m->body;
    strb_add(b, "template <bool INNER> AR_FN void ar_produce(const ar_params &p, const ar_at &at, "
                "ar_index z, const ar_spot &s, int e, ar_values &v)\n{\n    (void)at;\n"
                "    const bool inside = INNER || (s.inside && z >= 0 && z < (ar_index)p.nz);\n"
                "    ar_index i[AR_RANK];\n");
    for (uint32_t t = 0; t < w->n_tiles; t++) {
        char z[64], y[16], x[16];
        snprintf(z, sizeof z, "ar_bounded<%s>(z, (ar_index)p.nz)", emit_boundary(w->tiles[t].mode));
        snprintf(y, sizeof y, "s.y%u", spot_of(w, t));
        snprintf(x, sizeof x, "s.x%u", spot_of(w, t));
        emit_indices(m, z, y, x);
        strb_addf(b, "    v.v%u.v[e] = ar_value%u(p, i, inside);\n", t, t);
    }
    strb_add(b, "}\n");
}

/* ar_produce_inner(): the values at AR_E neighbours that need no boundary. */
static void emit_produce_inner(struct emitter *m)
{
    const struct form_window *w = &m->f->window;
    struct strb *b = &m->body;
    strb_add(b, "AR_FN void ar_produce_inner(const ar_params &p, const ar_at &at, ar_index z, "
                "ar_index y, ar_index x, ar_values &v)\n{\n    (void)at;\n    (void)z;\n"
                "    (void)y;\n    ar_index i[AR_RANK];\n");
    for (uint32_t t = 0; t < w->n_tiles; t++) {
        emit_indices(m, "z", "y", "x");
        strb_addf(b, "    v.v%u = ar_inner%u(p, i);\n", t, t);
    }
    strb_add(b, "}\n");
}

static void emit_tiles(struct emitter *m)
{
    const struct form_window *w = &m->f->window;
    struct strb *b = &m->body;
    for (uint32_t t = 0; t < w->n_tiles; t++)
        emit_tile_value(m, t);
    emit_spots(m);
    strb_add(b, "struct ar_values {\n");
    for (uint32_t t = 0; t < w->n_tiles; t++)
        strb_addf(b, "    ar_vec<%s, AR_E> v%u;\n", emit_type(w->tiles[t].dtype), t);
    strb_add(b, "};\nstruct ar_tiles {\n");
    for (uint32_t t = 0; t < w->n_tiles; t++)
        strb_addf(b, "    alignas(16) %s v%u[AR_TX * AR_TY];\n", emit_type(w->tiles[t].dtype), t);
    strb_add(b, "};\nAR_FN void ar_keep(ar_tiles &t, int n, const ar_values &v)\n{\n");
    for (uint32_t t = 0; t < w->n_tiles; t++)
        strb_addf(b, "    ar_store<%s, AR_E>(t.v%u + n, v.v%u);\n", emit_type(w->tiles[t].dtype), t,
                  t);
    strb_add(b, "}\n");
    emit_produce(m);
    if (!w->deep)
        emit_produce_inner(m);
}

/* --- what is the same everywhere --- */

static void emit_uniform(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    strb_add(b, "struct ar_uniform {\n");
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (node_of(m, i)->kind == WINDOW_UNIFORM && k->nodes[i].kind != IR_CONST)
            strb_addf(b, "    %s v%u;\n", type_of(m, i), i);
    strb_add(b, "};\nAR_FN void ar_make_uniform(const ar_params &p, ar_uniform &u)\n{\n"
                "    (void)p;\n    (void)u;\n");
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (node_of(m, i)->kind == WINDOW_UNIFORM && k->nodes[i].kind != IR_CONST) {
            strb_addf(b, "    u.v%u = ", i);
            emit_value(m, i);
            strb_add(b, ";\n");
        }
    strb_add(b, "}\n");
}

/* --- a plane --- */

static bool is_computed(const struct window_node *n)
{
    return n->kind == WINDOW_READ || n->kind == WINDOW_POINT;
}

static void emit_carry(struct emitter *m)
{
    struct strb *b = &m->body;
    strb_add(b, "struct ar_carry {\n");
    for (uint32_t i = 0; i < m->k->n_nodes; i++)
        for (int s = node_of(m, i)->stage + 1;
             is_computed(node_of(m, i)) && s <= node_of(m, i)->last; s++)
            strb_addf(b, "    %s v%u_%d[AR_R * AR_E];\n", type_of(m, i), i, s);
    strb_add(b, "};\n");
}

static void take_carried(struct emitter *m)
{
    const struct form *f = m->f;
    for (uint32_t i = 0; i < m->k->n_nodes; i++) {
        const struct window_node *n = node_of(m, i);
        for (int s = n->stage + 1; is_computed(n) && s <= n->last; s++)
            for (int q = 0; q < f->rows * f->elements; q++)
                strb_addf(&m->body, "    const %s v%u_%d_%d = c.v%u_%d[%d];\n", type_of(m, i), i, s,
                          q, i, s, q);
    }
}

static void leave_carried(struct emitter *m)
{
    const struct form *f = m->f;
    for (uint32_t i = 0; i < m->k->n_nodes; i++) {
        const struct window_node *n = node_of(m, i);
        for (int s = n->stage + 1; is_computed(n) && s <= n->last; s++)
            for (int q = 0; q < f->rows * f->elements; q++)
                strb_addf(&m->body, "    c.v%u_%d[%d] = v%u_%d_%d;\n", i, s, q, i, s - 1, q);
    }
}

/* Whether what is computed in a stage asks for the point's indices. */
static bool asks_where(const struct emitter *m, int stage)
{
    bool any = false;
    for (uint32_t i = 0; i < m->k->n_nodes; i++) {
        const struct ir_node *n = &m->k->nodes[i];
        any |= node_of(m, i)->kind == WINDOW_POINT && node_of(m, i)->stage == stage &&
               (n->kind == IR_LOAD || (n->kind == IR_INDEX && n->axis >= 0));
    }
    return any;
}

/* For a shift that replaces what is outside by the point itself: its own value, which a tile of the
 * point's plane has. */
static void emit_own_value(struct emitter *m, int d)
{
    const struct form_window *w = &m->f->window;
    struct strb *b = &m->body;
    const int q = point_of(m);
    for (uint32_t t = 0; t < w->n_tiles; t++) {
        if (!is_self(&w->tiles[t]))
            continue;
        const char *type = emit_type(w->tiles[t].dtype);
        if (w->deep)
            strb_addf(b,
                      "    %s m%u_%d_%d;\n    {\n        ar_index i[AR_RANK];\n"
                      "        ar_near_point(p, at, s - (%d), y + %d, x + %d, i);\n"
                      "        m%u_%d_%d = ar_value%u(p, i, true);\n    }\n",
                      type, t, d, q, w->lo[0] + d, m->line, m->column, t, d, q, t);
        else
            strb_addf(b, "    const %s m%u_%d_%d = t%u[%d * AR_TX + %d];\n", type, t, d, q, t,
                      m->line - w->lo[1], m->column + w->left);
    }
}

/* Where a stage's points are, and at an edge what they may be replaced by. */
static void emit_places(struct emitter *m, int rows)
{
    const struct form *f = m->f;
    const struct form_window *w = &f->window;
    struct strb *b = &m->body;
    for (int d = 0; d <= w->hi[0] - w->lo[0]; d++)
        for (m->line = 0; m->line < rows; m->line++)
            for (m->column = 0; m->column < f->elements; m->column++) {
                if (asks_where(m, d))
                    strb_addf(b,
                              "    ar_index i%d_%d[AR_RANK];\n"
                              "    ar_near_point(p, at, s - (%d), y + %d, x + %d, i%d_%d);\n",
                              d, point_of(m), w->lo[0] + d, m->line, m->column, d, point_of(m));
                if (m->edge)
                    emit_own_value(m, d);
            }
    if (!m->edge)
        return;
    for (int j = 0; j < rows + w->hi[1] - w->lo[1]; j++)
        strb_addf(b,
                  "    const bool y%d = s >= 0 && s < (ar_index)p.nz && y + (%d) >= 0 && "
                  "y + (%d) < (ar_index)p.ny;\n",
                  j, j + w->lo[1], j + w->lo[1]);
    for (int k = w->lo[2]; k < w->hi[2] + f->elements; k++)
        strb_addf(b, "    const bool x%d = x + (%d) >= 0 && x + (%d) < (ar_index)p.nx;\n",
                  w->left + k, k, k);
}

/* Whether a node waits for an element of row j of a tile: one of vector k. */
static bool is_read(struct emitter *m, uint32_t tile, int rows, int j, int k)
{
    bool any = false;
    for (uint32_t i = 0; i < m->k->n_nodes; i++) {
        const struct window_node *n = node_of(m, i);
        if (n->kind != WINDOW_READ || n->tile != tile || n->row > j || n->row <= j - rows)
            continue;
        for (m->column = 0; m->column < m->f->elements; m->column++)
            any |= column_of(m, n) / m->f->elements == k;
    }
    return any;
}

/* Reads from row j of the tile what nodes wait for. */
static void read_row(struct emitter *m, int rows, int j)
{
    const struct form_window *w = &m->f->window;
    const int e = m->f->elements, vectors = (w->left + w->hi[2] + 2 * e - 1) / e;
    for (uint32_t t = 0; t < w->n_tiles; t++)
        for (int k = 0; k < vectors; k++) {
            const char *type = emit_type(w->tiles[t].dtype);
            if (!is_read(m, t, rows, j, k))
                continue;
            if (e == 1)
                strb_addf(&m->body, "    const %s r%u_%d_%d = t%u[%d * AR_TX + %d];\n", type, t, j,
                          k, t, j, k);
            else
                strb_addf(
                    &m->body,
                    "    const ar_vec<%s, AR_E> r%u_%d_%d = ar_load<%s, AR_E>(t%u + %d * AR_TX "
                    "+ %d);\n",
                    type, t, j, k, type, t, j, k * e);
        }
}

static void emit_statement(struct emitter *m, uint32_t i, int j)
{
    const struct form_window *w = &m->f->window;
    const struct window_node *n = node_of(m, i);
    struct strb *b = &m->body;
    if (is_plain(m, n))
        return;
    strb_addf(b, "    const %s ", type_of(m, i));
    name(m, i);
    strb_add(b, " = ");
    if (n->kind == WINDOW_READ) {
        const bool moved = n->step[0] || n->step[1] || n->step[2];
        if (m->edge && is_self(&w->tiles[n->tile]) && moved)
            strb_addf(b, "!(y%d && x%d) ? m%u_%d_%d : ", j, column_of(m, n), n->tile, m->stage,
                      point_of(m));
        name_read(m, n);
    } else if (n->half) {
        static const char *const ops[] = {
            [OP_ADD] = "ADD", [OP_SUBTRACT] = "SUBTRACT", [OP_MULTIPLY] = "MULTIPLY"};
        const struct ir_node *at = &m->k->nodes[i];
        if (at->dtype == DT_BF16)
            strb_add(b, "ar_half_bf16(");
        else
            strb_addf(b, "ar_half_%s(", ops[m->k->nodes[at->args[0]].op]);
        for (int a = 0; a < n->n_args; a++) {
            strb_add(b, a ? ", " : "");
            name(m, n->args[a]);
        }
        strb_addc(b, ')');
    } else {
        char index[32];
        snprintf(index, sizeof index, "i%d_%d", m->stage, point_of(m));
        m->index = index;
        emit_value(m, i);
        m->index = NULL;
    }
    strb_add(b, ";\n");
}

static void emit_results(struct emitter *m, int rows)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    m->stage = m->f->window.hi[0] - m->f->window.lo[0];
    for (m->line = 0; m->line < rows; m->line++)
        for (m->column = 0; m->column < m->f->elements; m->column++)
            for (uint32_t o = 0; o < k->n_outputs; o++) {
                strb_addf(b, "    r[%d].v[%d]", m->line, m->column);
                if (k->n_outputs > 1)
                    strb_addf(b, ".v%u", o);
                strb_add(b, " = ");
                name(m, k->outputs[o].node);
                strb_add(b, ";\n");
            }
}

static void emit_near_point(struct emitter *m)
{
    strb_add(&m->body, "AR_FN void ar_near_point(const ar_params &p, const ar_at &at, ar_index z, "
                       "ar_index y, ar_index x, ar_index *i)\n{\n    (void)at;\n    (void)z;\n"
                       "    (void)y;\n");
    emit_indices(m, "ar_bounded<AR_CLAMP>(z, (ar_index)p.nz)",
                 "ar_bounded<AR_CLAMP>(y, (ar_index)p.ny)",
                 "ar_bounded<AR_CLAMP>(x, (ar_index)p.nx)");
    strb_add(&m->body, "}\n");
}

/* The nodes of all points of the thread that row j of a plane is the last one for. */
static void emit_row(struct emitter *m, int rows, int j)
{
    const struct form_window *w = &m->f->window;
    for (m->stage = w->hi[0] - w->lo[0]; m->stage >= 0; m->stage--)
        for (m->line = 0; m->line < rows; m->line++)
            for (uint32_t i = 0; i < m->k->n_nodes; i++)
                if (is_computed(node_of(m, i)) && node_of(m, i)->stage == m->stage &&
                    node_of(m, i)->row == j - m->line)
                    for (m->column = 0; m->column < m->f->elements; m->column++)
                        emit_statement(m, i, j);
}

/* ar_march() of `rows` rows; ar_march_edge(), where a point may be on an edge that matters. */
static void emit_march(struct emitter *m, int rows, bool edge)
{
    const struct form_window *w = &m->f->window;
    struct strb *b = &m->body;
    m->edge = edge;
    strb_addf(b,
              "AR_FN void ar_march%s(const ar_params &p, const ar_at &at, const ar_tiles &t, const "
              "ar_uniform &u, ar_carry &c, int own, ar_index s, ar_index y, ar_index x, "
              "ar_vec<ar_result, AR_E> *r)\n{\n    (void)at;\n    (void)u;\n",
              edge ? "_edge" : "");
    for (uint32_t t = 0; t < w->n_tiles; t++)
        strb_addf(b, "    const %s *t%u = t.v%u + own;\n", emit_type(w->tiles[t].dtype), t, t);
    take_carried(m);
    emit_places(m, rows);
    m->name = name;
    for (int j = 0; j < rows + w->hi[1] - w->lo[1]; j++) {
        read_row(m, rows, j);
        emit_row(m, rows, j);
    }
    leave_carried(m);
    emit_results(m, rows);
    m->name = NULL;
    strb_add(b, "}\n");
}

void emit_window(struct emitter *m)
{
    const struct form *f = m->f;
    const struct form_window *w = &f->window;
    struct strb *b = &m->body;
    const int64_t nz = f->rank > 2 ? f->shape[f->rank - 3] : 1;
    const int values = w->columns / f->elements * w->lines;
    strb_addf(b,
              "#define AR_BX %d\n#define AR_BY %d\n#define AR_R %d\n#define AR_BATCH %d\n"
              "#define AR_YL %d\n#define AR_YH %d\n#define AR_XL %d\n#define AR_TX %d\n"
              "#define AR_TY %d\n#define AR_FILL %d\n#define AR_SELF %d\n#define AR_RESIDENT %d\n",
              w->across, f->threads / w->across, f->rows, w->batch, -w->lo[1], w->hi[1], w->left,
              w->columns, w->lines, (values + f->threads - 1) / f->threads, has_self(w),
              w->resident);
    if (w->deep)
        strb_addf(b,
                  "#define AR_DEEP 1\n#define AR_ZL %d\n#define AR_ZH %d\n#define AR_CHOOSES %s\n",
                  -w->lo[0], w->hi[0], chooses(m) ? "true" : "false");
    else
        strb_addf(b, "#define AR_DEEP 0\n#define AR_ONE %s\n", w->part == 1 ? "true" : "false");
    emit_i64(m, nz, "nz");
    emit_i64(m, f->rank > 1 ? f->shape[f->rank - 2] : 1, "ny");
    emit_i64(m, f->shape[f->rank - 1], "nx");
    emit_i64(m, w->part, "part");
    emit_divisor(m, (nz + w->part - 1) / w->part, "ar_div parts");
    emit_divisors(m);
    m->halves |= has_half(m);
    emit_result(m);
    emit_tiles(m);
    m->name = name;
    emit_uniform(m);
    m->name = NULL;
    emit_near_point(m);
    emit_carry(m);
    emit_march(m, f->rows, false);
    if (has_self(w))
        emit_march(m, w->deep ? f->rows : 1, true);
    m->edge = false;
    emit_place(m);
    emit_put(m);
    strb_add(b, "#include \"compute/kernels/forms/window.cuh\"\n");
}
