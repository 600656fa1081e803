/* A slice of a job counts as one who has looked, from the question whether the program may use its
 * arrays until the engine has all of the slice: an export that is asked for in between waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <time.h>

#include "compute/base/mem.h"
#include "server/auth.h"
#include "server/jobs.h"
#include "server/lease_use.h"
#include "server/routes.c"
#include "server/session.h"
#include "tests/unit/program_text.h"

static struct lease_uses *uses;
static _Atomic int asked, submitted;

/* --- an export's lease that comes when the question has been answered --- */

struct settling {
    struct lease_settling settling; /* first */
    _Atomic bool told;
};
static struct settling export;
static _Atomic bool early; /* it did not wait */

static void told(struct lease_settling *s)
{
    atomic_store(&((struct settling *)s)->told, true);
}

/* By the linker in the place of those without __wrap_. */
enum err_code __wrap_job_may_use(const struct job_spec *spec, struct err *e);
void __wrap_program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                           void *user);
void __real_program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                           void *user);

enum err_code __wrap_job_may_use(const struct job_spec *spec, struct err *e)
{
    (void)spec, (void)e;
    if (atomic_fetch_add(&asked, 1) == 0) {
        export.settling.done = told;
        lease_uses_settle(uses, &export.settling);
    }
    return ERR_OK;
}

void __wrap_program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                           void *user)
{
    const bool first = atomic_fetch_add(&submitted, 1) == 0;
    early |= first && atomic_load(&export.told);
    __real_program_submit(p, step, n, wake, user);
    early |= first && atomic_load(&export.told);
}

static void test_a_slice_is_waited_for(void **state)
{
    static const _Atomic uint32_t weight = 1;
    (void)state;
    struct err e = ERR_INIT;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    struct principal p = {.name = "local"};
    struct engine *engine;
    struct session *session;
    struct jobs *jobs;
    struct array *u;
    struct user_job *job;
    assert_int_equal(engine_open(&config, &engine, &e), ERR_OK);
    p.handles = handles_new(10);
    p.account = account_new(0);
    assert_int_equal(sessions_new(engine, &limits, p.handles, p.account, &weight, &p.sessions, &e),
                     ERR_OK);
    assert_int_equal(session_get(p.sessions, SESSION_DEFAULT, true, &session, &e), ERR_OK);
    uses = lease_uses_new();
    struct jobs_config jc = {.max_jobs = 2,
                             .retention = 10,
                             .slice = JOB_SLICE,
                             .patience = 10,
                             .keep_alive = JOB_KEEP_ALIVE,
                             .uses = uses,
                             .engine = engine};
    assert_int_equal(jobs_new(&jc, &jobs, &e), ERR_OK);
    int64_t shape[] = {100};
    assert_int_equal(engine_zeros(session->stream, session->account, DT_F32, 1, shape, &u, &e),
                     ERR_OK);

    const struct named_array arrays[] = {{"u", u}, {NULL, NULL}};
    struct program_text text = {.stream = session->stream,
                                .account = session->account,
                                .arrays = arrays,
                                .body = (const char *const[]){"u += 1", NULL}};
    struct job_spec spec = {.principal = &p, .session = session, .steps = 20};
    assert_int_equal(program_of_text(&text, &spec.program, &e), ERR_OK);
    assert_int_equal(jobs_start(jobs, &spec, &job, &e), ERR_OK);
    for (int i = 0; i < 20000 && !job_ended(job); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(job_ended(job));
    assert_true(atomic_load(&submitted) > 0);
    assert_false(early);
    assert_true(atomic_load(&export.told));

    job_unref(job);
    jobs_free(jobs);
    array_unref(u);
    sessions_free(p.sessions);
    handles_free(p.handles);
    account_unref(p.account);
    lease_uses_free(uses);
    assert_true(engine_close(engine));
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_slice_is_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
