/*
 * A program that runs on the daemon: the heat equation with a warm wall, watched to its end.
 *
 *   heat [ADDRESS [STEPS]]
 *
 * What it makes is in a session of its own, which takes everything with it when it is deleted.
 */
#include <arrayd.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, const struct arrayd_error *err)
{
    fprintf(stderr, "%s: %s: %s\n", what, err->code, err->detail);
    return 1;
}

static int watch(struct arrayd *client, const char *id, struct arrayd_job *job)
{
    struct arrayd_error err;
    do {
        if (arrayd_job_wait(client, id, 0.2, job, &err))
            return fail("waiting", &err);
        printf("step %lld of %lld\n", (long long)job->step, (long long)job->steps);
    } while (!arrayd_job_ended(job));
    return job->state == ARRAYD_DONE ? 0 : fail("the job", &job->error);
}

static int run(struct arrayd *client, int64_t steps)
{
    static const char *const body[] = {"u[0] = 1", "u += 0.1*laplacian(u, boundary='clamp')"};
    const struct arrayd_pair records[] = {{"mean", "mean(u)"}};
    const struct arrayd_program program = {.body = body,
                                           .body_count = 2,
                                           .steps = steps,
                                           .records = records,
                                           .record_count = 1,
                                           .record_every = 100,
                                           .until = "min(u) > 0.5",
                                           .until_every = 100,
                                           .stop_on_nan = true};
    const int64_t shape[] = {32, 32};
    double means[4];
    size_t count;
    struct arrayd_job job;
    struct arrayd_error err;

    if (arrayd_zeros(client, "u", ARRAYD_FLOAT64, 2, shape, NULL, &err))
        return fail("the array", &err);
    if (arrayd_program_start(client, &program, &job, &err))
        return fail("the program", &err);
    if (watch(client, job.id, &job))
        return 1;
    if (arrayd_job_records(client, job.id, "mean", 0, means, 4, &count, &err))
        return fail("the records", &err);
    for (size_t i = 0; i < count; i++)
        printf("mean after %zu steps: %.4f\n", 100 * (i + 1), means[i]);
    printf(job.stopped_by_until ? "warm after %lld steps\n" : "not warm after %lld steps\n",
           (long long)job.step);
    return 0;
}

int main(int argc, char **argv)
{
    const char *address = argc > 1 ? argv[1] : "http://127.0.0.1:7411";
    const struct arrayd_session_options options = {.ttl_s = 3600};
    struct arrayd *client;
    struct arrayd_session session;
    struct arrayd_error err;

    if (arrayd_connect(address, NULL, &client, &err))
        return fail(address, &err);
    int ret = 1;
    if (arrayd_session_create(client, &options, &session, &err) ||
        arrayd_session_use(client, session.id, &err)) {
        fail("the session", &err);
    } else {
        ret = run(client, argc > 2 ? atoll(argv[2]) : 100000);
        if (arrayd_session_delete(client, session.id, &err))
            ret = fail("the session", &err);
    }
    arrayd_close(client);
    return ret;
}
