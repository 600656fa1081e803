/* Bodies of evaluate, of evaluate with statements, and of programs: read, and as far as they are
 * right, typed, planned and explained; then given back without a trace. Nothing is computed. Which
 * of the three it is, the first byte says; the rest is the body. */
#include "server/body/eval_body.h"
#include "server/body/program_body.h"
#include "tests/fuzz/fuzz_server.h"

static void is_refusal(enum err_code err, const struct err *e)
{
    FUZZ_CHECK(e->code == err && *e->message && err != ERR_INTERNAL);
    FUZZ_CHECK(err_status(err) >= 400 && err_status(err) < 600);
}

static enum err_code look(void *user, const struct program_kernel *k, struct err *e)
{
    (void)user, (void)e;
    FUZZ_CHECK(k->kernel && k->statement >= -1);
    return ERR_OK;
}

static void program(struct request *req, struct json doc, bool statements)
{
    struct program_body b;
    struct loop_report report;
    struct err e = ERR_INIT;
    enum err_code err = statements ? statements_body_read(req, doc, false, 0, &b, &e)
                                   : program_body_read(req, doc, false, &b, &e);
    if (err) {
        is_refusal(err, &e);
        return;
    }
    FUZZ_CHECK(b.program && b.session && b.steps >= 1);
    err = program_explain(b.program, 1, look, NULL, &report, &e);
    if (err)
        is_refusal(err, &e);
    program_body_clear(&b);
}

static void evaluate(struct request *req, struct json doc)
{
    struct eval_body b;
    struct err e = ERR_INIT;
    struct eval_explanation x;
    enum err_code err = eval_body_read(req, doc, false, &b, &e);
    if (err) {
        is_refusal(err, &e);
        return;
    }
    err = engine_explain(b.reader.session->stream, &b.request, req->arena, &x, &e);
    if (err)
        is_refusal(err, &e);
    eval_body_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool open;
    struct json doc;
    struct err e = ERR_INIT;
    if (!open) {
        open_server();
        furnish();
        open = true;
    }
    if (!size)
        return 0;
    const int64_t bytes = engine_bytes_in_use(server.engine);
    struct rq q = {.r = {.server = &server,
                         .arena = arena_new(0),
                         .principal = principal(),
                         .body = (const char *)data + 1,
                         .body_len = size - 1}};
    if (json_parse(q.r.arena, (const char *)data + 1, size - 1, NULL, &doc, &e) == ERR_OK) {
        if (data[0] % 3 == 0)
            evaluate(&q.r, doc);
        else
            program(&q.r, doc, data[0] % 3 == 1);
    }
    arena_free(q.r.arena);
    FUZZ_CHECK(engine_bytes_in_use(server.engine) == bytes);
    return 0;
}
