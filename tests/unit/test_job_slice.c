/* A slice of a job counts as one who has looked, from the question whether the program may use its
 * arrays until the engine has all of the slice: an export that is asked for in between waits. And
 * slices that come to nothing, as others have written to the arrays, do not end a job. Nor does a
 * job's end, or its removal, free what a slice under way uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "compute/base/mem.h"
#include "server/api/routes.c"
#include "server/jobs/jobs.h"
#include "server/store/auth.h"
#include "server/store/lease_use.h"
#include "server/store/session.h"
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
enum err_code __wrap_program_may_use(const struct program_body *b, struct err *e);
void __wrap_program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                           void *user);
void __real_program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                           void *user);

enum err_code __wrap_program_may_use(const struct program_body *b, struct err *e)
{
    (void)b, (void)e;
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

/* --- others, who write to the arrays all the time --- */

static _Atomic bool crowded;
static _Atomic int in_vain;

void __wrap_program_collect(struct program *p, struct program_progress *ret);
void __real_program_collect(struct program *p, struct program_progress *ret);

/* --- slices that do not end --- */

static _Atomic bool hangs;
static _Atomic int freed; /* programs */

void __wrap_program_free(struct program *p);
void __real_program_free(struct program *p);

void __wrap_program_free(struct program *p)
{
    atomic_fetch_add(&freed, p != NULL);
    __real_program_free(p);
}

/* --- */

void __wrap_program_collect(struct program *p, struct program_progress *ret)
{
    if (atomic_load(&hangs)) {
        *ret = (struct program_progress){.state = PROGRAM_WAITING};
        return;
    }
    if (atomic_load(&crowded))
        program_discard(p);
    __real_program_collect(p, ret);
    if (ret->state == PROGRAM_AGAIN)
        atomic_fetch_add(&in_vain, 1);
}

/* --- memory that is short --- */

static _Atomic int lacks; /* how often a job finds no memory */
static _Atomic int asks;  /* how often the engine is asked for some */
static struct eviction *_Atomic unanswered;
static _Atomic int others_work = -1; /* pieces of work in flight; -1: the engine does not answer */

enum err_code __wrap_program_wake(struct program *p, struct err *e);
enum err_code __real_program_wake(struct program *p, struct err *e);
void __wrap_engine_evict(struct engine *g, struct eviction *v);
int64_t __wrap_engine_jobs_in_flight(const struct engine *g);

enum err_code __wrap_program_wake(struct program *p, struct err *e)
{
    if (atomic_load(&lacks) == 0)
        return __real_program_wake(p, e);
    atomic_fetch_sub(&lacks, 1);
    err_set(e, ERR_OUT_OF_MEMORY, "the device is full");
    e->wanted = 1;
    return ERR_OUT_OF_MEMORY;
}

void __wrap_engine_evict(struct engine *g, struct eviction *v)
{
    (void)g;
    atomic_fetch_add(&asks, 1);
    if (atomic_load(&others_work) >= 0)
        v->done(v->user, ERR_OVERLOADED, 0);
    else
        atomic_store(&unanswered, v);
}

int64_t __wrap_engine_jobs_in_flight(const struct engine *g)
{
    (void)g;
    return atomic_load(&others_work);
}

/* --- a job of 20 steps --- */

static struct engine *engine;
static struct principal p;
static struct session *session;
static struct jobs *jobs;
static struct array *u;

static struct user_job *start(void)
{
    static const _Atomic uint32_t weight = 1;
    struct err e = ERR_INIT;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    struct user_job *job;
    p = (struct principal){.name = "local"};
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
                             .stop_timeout = 1,
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
    static const struct body_target target; /* the session's own */
    static const char sent[] = "{\"body\": [\"u += 1\"]}";
    struct program_body body = {.principal = &p,
                                .session = session,
                                .targets = &target,
                                .steps = 20,
                                .text = sent,
                                .text_len = sizeof sent - 1};
    assert_int_equal(program_of_text(&text, &body.program, &e), ERR_OK);
    assert_int_equal(jobs_start(jobs, &body, 0, &job, &e), ERR_OK);
    return job;
}

/* Whether what is told of the job has this text. */
static bool says(struct user_job *job, const char *text)
{
    _cleanup_strb_ struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    job_put(job, 0, INT64_MAX, JOB_TELL_WHOLE, &w, NULL);
    assert_false(out.failed);
    return strstr(out.data, text);
}

static void until_it_says(struct user_job *job, const char *text)
{
    bool said = false;
    for (int i = 0; i < 20000 && !(said = says(job, text)); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(said);
}

static void end(struct user_job *job)
{
    job_unref(job);
    assert_true(jobs_free(jobs));
    array_unref(u);
    sessions_free(p.sessions);
    handles_free(p.handles);
    account_unref(p.account);
    lease_uses_free(uses);
    assert_true(engine_close(engine));
    assert_int_equal(mem_live(), 0);
}

static void test_a_slice_is_waited_for(void **state)
{
    (void)state;
    struct user_job *job = start();
    until_it_says(job, "\"done\"");
    assert_true(atomic_load(&submitted) > 0);
    assert_false(early);
    assert_true(atomic_load(&export.told));
    end(job);
}

/* It says what it waits for, looks again, and goes on when they leave it the time of a step. */
static void test_others_that_write_all_the_time_do_not_end_it(void **state)
{
    (void)state;
    atomic_store(&crowded, true);
    struct user_job *job = start();
    until_it_says(job, "no step could finish");
    assert_true(says(job, "\"running\"") && says(job, "\"step\":0"));
    const int tries = atomic_load(&in_vain);
    assert_true(tries >= PROGRAM_AGAIN_MOST);
    for (int i = 0; i < 20000 && atomic_load(&in_vain) == tries; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(atomic_load(&in_vain) > tries);
    atomic_store(&crowded, false);
    until_it_says(job, "\"done\"");
    assert_true(says(job, "\"step\":20"));
    end(job);
}

/* One that waits so is stopped like any other. */
static void test_it_can_be_stopped_meanwhile(void **state)
{
    (void)state;
    atomic_store(&crowded, true);
    struct user_job *job = start();
    until_it_says(job, "no step could finish");
    job_cancel(job);
    until_it_says(job, "\"cancelled\"");
    atomic_store(&crowded, false);
    end(job);
}

/* While others' work is in flight, which may free memory, a job waits longer than without. */
static void test_memory_is_waited_for_while_others_work(void **state)
{
    (void)state;
    atomic_store(&others_work, 1);
    atomic_store(&lacks, 200);
    struct user_job *job = start();
    until_it_says(job, "\"done\"");
    assert_int_equal(atomic_load(&asks), 200);
    end(job);
    atomic_store(&others_work, 0);
    atomic_store(&asks, 0);
    atomic_store(&lacks, 200);
    job = start();
    until_it_says(job, "\"failed\"");
    assert_true(atomic_load(&asks) > 20 && atomic_load(&asks) < 40);
    end(job);
    atomic_store(&others_work, -1);
    atomic_store(&lacks, 0);
}

/* A job is given up at the stop, and removed, while the engine frees memory for it. */
static void test_a_late_answer_finds_its_job(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    atomic_store(&lacks, 1);
    struct user_job *job = start();
    while (!atomic_load(&unanswered))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    jobs_stop(jobs);
    until_it_says(job, "\"cancelled\"");
    atomic_store(&freed, 0);
    assert_int_equal(job_remove(job, &e), ERR_OK);
    job_unref(job);
    assert_int_equal(atomic_load(&freed), 0);
    struct eviction *v = atomic_load(&unanswered);
    v->done(v->user, ERR_OK, 0);
    end(NULL);
    assert_int_equal(atomic_load(&freed), 1);
}

/* The same while its slice is under way. That slice never ends: what it uses stays until the
 * process ends, so this is the last test. */
static void test_a_removed_job_stays_under_its_slice(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    atomic_store(&hangs, true);
    atomic_store(&submitted, 0);
    struct user_job *job = start();
    while (!atomic_load(&submitted))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    jobs_stop(jobs);
    until_it_says(job, "\"cancelled\"");
    atomic_store(&freed, 0);
    assert_int_equal(job_remove(job, &e), ERR_OK);
    job_unref(job);
    assert_false(jobs_free(jobs));
    assert_int_equal(atomic_load(&freed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slice_is_waited_for),
        cmocka_unit_test(test_others_that_write_all_the_time_do_not_end_it),
        cmocka_unit_test(test_it_can_be_stopped_meanwhile),
        cmocka_unit_test(test_memory_is_waited_for_while_others_work),
        cmocka_unit_test(test_a_late_answer_finds_its_job),
        cmocka_unit_test(test_a_removed_job_stays_under_its_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
