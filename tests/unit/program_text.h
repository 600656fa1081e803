/* Programs made of text, over arrays that go by a name. */
#ifndef ARRAYD_TESTS_PROGRAM_TEXT_H
#define ARRAYD_TESTS_PROGRAM_TEXT_H

#include <string.h>

#include "compute/program/program.h"
#include "protocol/text/statement.h"

struct named_array {
    const char *name; /* NULL: the last */
    struct array *array;
};

struct program_text {
    struct engine_stream *stream;
    struct account *account;
    const struct named_array *arrays;
    const char *const *body; /* up to NULL */
    const char *series;      /* recorded every 2 steps; NULL: nothing */
    const char *until;       /* asked every 3 steps; NULL: nothing */
    bool stop_on_nan;
    const char *const *results; /* names, up to NULL; NULL: none. Then it has one step */
};

static enum err_code program_text_find(void *user, const char *name, struct binding *ret,
                                       struct err *e)
{
    (void)e;
    const struct program_text *t = user;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (const struct named_array *n = t->arrays; n->name; n++)
        if (!strcmp(name, n->name))
            *ret = (struct binding){.kind = BINDING_ARRAY,
                                    .array = n->array,
                                    .dtype = n->array->dtype,
                                    .view = n->array->view,
                                    .grid = n->array->grid};
    return ERR_OK;
}

static enum err_code program_text_target(void *user, const char *name, struct array **ret,
                                         struct err *e)
{
    struct binding b;
    enum err_code code = program_text_find(user, name, &b, e);
    *ret = b.kind == BINDING_ARRAY ? array_ref(b.array) : NULL;
    return code;
}

static enum err_code program_text_parse(struct arena *arena, const char *text, struct expr *x,
                                        struct statement *s, struct err *e)
{
    uint32_t source;
    expr_init(x, arena, 10000, 40);
    enum err_code code = expr_add_source(x, "/body", &source, e);
    if (code == ERR_OK)
        code = statement_parse(x, source, text, strlen(text), s, e);
    x->root = code == ERR_OK ? s->root : 0;
    return code;
}

/* program_new's errors; `text` must live no longer than the call. */
static enum err_code program_of_text(struct program_text *text, struct program **ret, struct err *e)
{
    struct arena *arena = arena_new(0);
    struct check_env env = {program_text_find, text, 64};
    struct program_spec spec = {.arena = arena,
                                .series_every = 2,
                                .until_every = 3,
                                .env = &env,
                                .target = program_text_target,
                                .user = text,
                                .stop_on_nan = text->stop_on_nan ? "/stop_on_nan" : NULL,
                                .once = text->results};
    size_t n = 0, n_results = 0;
    while (text->body[n])
        n++;
    while (text->results && text->results[n_results])
        n_results++;
    struct program_assign *assigns = arena ? arena_alloc_array(arena, n, sizeof *assigns) : NULL;
    struct program_result *results =
        arena ? arena_alloc_array(arena, n_results, sizeof *results) : NULL;
    struct program_series *watched = arena ? arena_alloc_array(arena, 2, sizeof *watched) : NULL;
    enum err_code code = assigns && results && watched ? ERR_OK : err_oom(e);
    for (const char *const *name = text->results; code == ERR_OK && name && *name; name++)
        results[spec.n_results++] = (struct program_result){*name, "/results"};
    spec.results = results;
    struct statement s;
    for (const char *const *body = text->body; *body && code == ERR_OK; body++) {
        struct program_assign *a = &assigns[spec.n_body++];
        code = program_text_parse(arena, *body, &a->expr, &s, e);
        a->place = "/body";
        if (code == ERR_OK) {
            a->target = s.target;
            a->index = s.index;
            a->fills = s.fills;
            a->at = s.at;
        }
    }
    spec.body = assigns;
    spec.series = watched;
    if (code == ERR_OK && text->series) {
        watched[0].name = watched[0].place = "x";
        spec.n_series = 1;
        code = program_text_parse(arena, text->series, &watched[0].expr, &s, e);
    }
    if (code == ERR_OK && text->until) {
        watched[1].place = "x";
        spec.until = &watched[1];
        code = program_text_parse(arena, text->until, &watched[1].expr, &s, e);
    }
    if (code == ERR_OK)
        code = program_new(text->stream, text->account, &spec, ret, e);
    if (code != ERR_OK)
        arena_free(arena);
    return code;
}

#endif
