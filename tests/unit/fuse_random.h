/* Statements at random for test_ir_fuse.c: over a few arrays and temporaries of one shape, with
 * shifts of all modes, regions, reductions, scans and gathers. Included once, hence all static. */
#ifndef ARRAYD_TESTS_FUSE_RANDOM_H
#define ARRAYD_TESTS_FUSE_RANDOM_H

#include "tests/unit/fuse_lists.h"

static const char *const modes[] = {"self", "clamp", "wrap", "reflect", "symmetric", "constant"};

struct text {
    char s[4096];
    size_t n;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, format, ap);
    va_end(ap);
    t->n += (size_t)n < sizeof t->s - t->n ? (size_t)n : sizeof t->s - t->n - 1;
}

static void random_term(struct list *l, struct text *t, int rank, int depth);

static void random_shift(struct list *l, struct text *t, int rank, int depth)
{
    const char *mode = modes[list_below(6)];
    put(t, "shift(");
    random_term(l, t, rank, depth);
    put(t, ", [");
    for (int a = 0; a < rank; a++)
        put(t, a ? ", %d" : "%d", list_below(3) ? list_below(5) - 2 : 0);
    put(t, strcmp(mode, "constant") ? "], '%s')" : "], '%s', 3)", mode);
}

static void random_term(struct list *l, struct text *t, int rank, int depth)
{
    static const char *const types[] = {"float32", "float64", "int32", "bool", "float16", "uint8"};
    static const char *const binary[] = {" + ", " - ", "*", " + ", " > "};
    if (depth == 0 || list_below(6) == 0) {
        if (list_below(8) == 0)
            put(t, list_below(2) ? "%d" : "index(%d)", list_below(rank));
        else
            put(t, "%s", l->names[list_below(l->n_names)].name);
        return;
    }
    switch (list_below(16)) {
    case 0:
    case 1:
    case 2:
        random_shift(l, t, rank, depth - 1);
        return;
    case 3:
        put(t, "laplacian(");
        random_term(l, t, rank, depth - 1);
        put(t, ", boundary='%s')", modes[list_below(5)]);
        return;
    case 4:
        put(t, "astype(");
        random_term(l, t, rank, depth - 1);
        put(t, ", '%s')", types[list_below(6)]);
        return;
    case 5:
        put(t, "(");
        random_term(l, t, rank, depth - 1);
        put(t, list_below(2) ? ")[::-1]" : ")[..., ::-1]");
        return;
    case 6:
        put(t, "where(");
        random_term(l, t, rank, depth - 1);
        put(t, " > 1, ");
        random_term(l, t, rank, depth - 1);
        put(t, ", ");
        random_term(l, t, rank, depth - 1);
        put(t, ")");
        return;
    case 7:
        put(t, list_below(3) ? "maximum(" : "minimum(");
        random_term(l, t, rank, depth - 1);
        put(t, ", ");
        random_term(l, t, rank, depth - 1);
        put(t, ")");
        return;
    case 8:
        if (list_below(3) == 0) {
            put(t, list_below(3) ? "max(" : "sum(");
            random_term(l, t, rank, depth - 1);
            put(t, list_below(2) ? ")" : ", axis=0)");
            return;
        }
        break;
    case 9:
        if (list_below(4) == 0) {
            const int which = list_below(3);
            put(t, which ? "take(" : "cumulative_sum(");
            random_term(l, t, rank, depth - 1);
            put(t, which == 0   ? ", 0)"
                   : which == 1 ? ", [2, 0, 1, 1, 0], 0, mode='clip')"
                                : ", index(0) - 1, 0, mode='clip')");
            return;
        }
        break;
    case 10:
        put(t, rank == 2 ? "permute_dims(" : "flip(");
        random_term(l, t, rank, depth - 1);
        put(t, rank == 2 ? ", [1, 0])" : ")");
        return;
    default:
        break;
    }
    put(t, "(");
    random_term(l, t, rank, depth - 1);
    put(t, "%s", binary[list_below(5)]);
    random_term(l, t, rank, depth - 1);
    put(t, ")");
}

static void random_list(struct list *l, uint64_t seed, char *what, size_t n)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F64, DT_I32, DT_BOOL, DT_F16, DT_U8};
    static const char *const arrays[] = {"a", "b", "c", "d"};
    static const char *const temporaries[] = {"s", "t", "w"};
    static const char *const regions[] = {"1:-1", "0", "::2", "..., 1:-1", "2:, ...", "-1"};
    static const int64_t shapes[][4] = {{1, 9},       {1, 70},     {2, 6, 6}, {2, 5, 8},
                                        {3, 4, 5, 6}, {2, 12, 36}, {2, 3, 1}, {3, 2, 2, 64},
                                        {2, 20, 37},  {2, 32, 32}};
    list_begin(l);
    list_state = seed;
    const int64_t *shape = shapes[list_below(10)];
    const int rank = (int)shape[0], n_arrays = 2 + list_below(3);
    for (int i = 0; i < n_arrays; i++)
        list_array(l, arrays[i], types[list_below(list_below(2) ? 3 : 7)], rank, shape + 1);
    if (list_below(2))
        list_array(l, "row", DT_F32, 1, shape + rank);
    static const uint32_t nodes[] = {400, 400, 30}, inputs[] = {64, 64, 3}, again[] = {400, 32, 4};
    l->knows_sizes = list_below(2);
    l->limits.max_nodes = nodes[list_below(3)];
    l->limits.max_inputs = inputs[list_below(3)];
    l->limits.recompute = again[list_below(3)];
    for (int statements = 2 + list_below(7), tries = 0; statements > 0 && tries < 60; tries++) {
        struct text t = {0};
        bool done;
        l->in_place = list_below(3) == 0;
        if (l->n_names + 2 > LIST_NAMES || l->n_slots + 40 > LIST_SLOTS ||
            l->n_kernels + 30 > LIST_KERNELS)
            break;
        const char *region = regions[list_below(6)];
        const int kind = list_below(10);
        if (kind < 2)
            put(&t, "(");
        random_term(l, &t, rank, 1 + list_below(3));
        if (kind < 2)
            put(&t, ")[%s]", region);
        const char *to = kind < 5 ? arrays[list_below(n_arrays)] : temporaries[list_below(3)];
        done = kind < 2 ? list_assign_region(l, to, region, t.s) : list_assign(l, to, t.s);
        statements -= done;
        if (done && getenv("FUSE_TEXT"))
            print_message("%s%s%s%s = %s\n", to, kind < 2 ? "[" : "", kind < 2 ? region : "",
                          kind < 2 ? "]" : "", t.s);
    }
    for (int i = 0; i < l->n_names; i++)
        l->dead[l->names[i].slot] = l->names[i].temporary && list_below(4) > 0;
    snprintf(what, n, "seed %llu", (unsigned long long)seed);
}

#endif
