/*
 * The C client against a daemon: client_c SCENARIO ADDRESS [ARGUMENT...]. Run by
 * tests/http/test_client_c.py, under sanitizers in the sanitized build and under valgrind in the
 * other. Ends with 1 at the first thing that is not as it should be. `fails` prints the error that
 * a scenario's request ended with, for the test to look at.
 */
#include <dirent.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/clients/client_c.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void test_sessions(void)
{
    const struct arrayd_session_options options = {
        .name = "mine", .ttl_s = 60.5, .memory_limit = INT64_MAX, .device = &(int){0}};
    struct arrayd_session session, other;
    struct arrayd_array a;
    OK(arrayd_ping(c, &err));
    OK(arrayd_session_create(c, &options, &session, &err));
    CHECK(!strcmp(session.name, "mine") && session.id[0] == 's' && session.arrays == 0);
    OK(arrayd_session_create(c, NULL, &other, &err));
    CHECK(!other.name[0]);
    OK(arrayd_session_use(c, session.id, &err));
    OK(arrayd_zeros(c, "only_here", ARRAYD_INT32, 1, (int64_t[]){3}, &a, &err));
    CHECK(!strcmp(a.session, session.id));
    OK(arrayd_session_sync(c, NULL, &err));
    OK(arrayd_session_use(c, NULL, &err));
    FAILS(arrayd_find(c, "only_here", &a, &err), 404, "not_found");
    OK(arrayd_find(c, a.id, &a, &err));
    OK(arrayd_session_sync(c, NULL, &err));
    OK(arrayd_session_sync(c, session.id, &err));
    OK(arrayd_session_use(c, session.id, &err));
    OK(arrayd_session_delete(c, session.id, &err)); /* and the client is in the default one */
    OK(arrayd_session_sync(c, NULL, &err));
    OK(arrayd_session_delete(c, other.id, &err));
    FAILS(arrayd_session_delete(c, other.id, &err), 404, "not_found");
}

static void test_arrays(void)
{
    struct arrayd_array a, b;
    struct arrayd_list list;
    const int64_t shape[] = {3, 4};
    const int16_t data[] = {1, 2, 3};
    OK(arrayd_zeros(c, "a", ARRAYD_NONE, 2, shape, &a, &err));
    CHECK(a.rank == 2 && a.shape[0] == 3 && a.shape[1] == 4 && a.strides[0] == 4 &&
          a.strides[1] == 1);
    CHECK(a.size == 12 && a.nbytes == 96 && a.itemsize == 8 && a.dtype == ARRAYD_FLOAT64);
    CHECK(!strcmp(a.name, "a") && !a.view_of[0] && !a.read_only && !a.on_host && a.created[0]);
    FAILS(arrayd_zeros(c, "a", ARRAYD_BOOL, 2, shape, &b, &err), 409, "conflict");
    OK(arrayd_fill(c, "f", ARRAYD_UINT8, 0, NULL, 200, &b, &err));
    CHECK(b.rank == 0 && b.size == 1 && scalar("f").integer == 200);
    FAILS(arrayd_fill(c, NULL, ARRAYD_UINT8, 0, NULL, 300, &b, &err), 422, "literal_range");
    CHECK(!strcmp(err.pointer, "/fill") && err.offset == -1 && err.retry_after_s == -1);
    OK(arrayd_fill(c, "inf", ARRAYD_FLOAT32, 1, (int64_t[]){2}, -INFINITY, NULL, &err));
    CHECK(scalar("max(inf)").re == -INFINITY);
    OK(arrayd_upload(c, "d", ARRAYD_INT16, 1, (int64_t[]){3}, data, sizeof(data), &b, &err));
    CHECK(scalar("sum(d)").integer == 6);
    OK(arrayd_replace(c, "d", ARRAYD_UINT8, 2, (int64_t[]){2, 3}, data, 6, &b, &err));
    CHECK(b.dtype == ARRAYD_UINT8 && b.rank == 2 && scalar("d[0, 2]").integer == 2);
    OK(arrayd_upload(c, "none", ARRAYD_INT16, 3, (int64_t[]){2, 0, 5}, NULL, 0, &b, &err));
    CHECK(b.size == 0 && b.nbytes == 0);
    OK(arrayd_like(c, "d", "l", &b, &err));
    CHECK(b.dtype == ARRAYD_UINT8 && b.shape[1] == 3);
    OK(arrayd_create(c, "{\"arange\": {\"stop\": 10}, \"name\": \"r\"}", &b, &err));
    CHECK(scalar("sum(r)").integer == 45);
    OK(arrayd_view(c, "r", "::-2", "v", &b, &err));
    CHECK(b.strides[0] == -2 && b.offset == 9 && b.size == 5 && b.view_of[0]);
    OK(arrayd_copy(c, "v", NULL, &b, &err));
    CHECK(b.strides[0] == 1 && !b.name[0]);
    OK(arrayd_rename(c, b.id, "w", &err));
    OK(arrayd_find(c, "w", &a, &err));
    CHECK(!strcmp(a.id, b.id));
    OK(arrayd_set_read_only(c, "w", true, &err));
    FAILS(arrayd_delete(c, "w", &err), 409, "read_only");
    OK(arrayd_set_read_only(c, "w", false, &err));
    OK(arrayd_delete(c, "w", &err));

    size_t count = 0;
    char next[ARRAYD_MAX_NAME + 1] = "";
    do {
        OK(arrayd_list(c, next, 3, &list, &err));
        CHECK(list.count && list.count <= 3);
        CHECK(count || !strcmp(list.arrays[0].name, "a"));
        count += list.count;
        strcpy(next, list.next);
        arrayd_list_free(&list);
        arrayd_list_free(NULL);
    } while (next[0]);
    CHECK(count == 8);
    FAILS(arrayd_list(c, NULL, 1001, &list, &err), 422, "bad_field");
}

static void test_data(void)
{
    double all[12], part[4], guard[2] = {7, 8};
    struct arrayd_array a;
    for (int i = 0; i < 12; i++)
        all[i] = i + 0.5;
    OK(arrayd_zeros(c, "a", ARRAYD_FLOAT64, 2, (int64_t[]){3, 4}, &a, &err));
    OK(arrayd_write(c, "a", NULL, all, sizeof(all), &err));
    memset(all, 0, sizeof(all));
    OK(arrayd_read(c, a.id, NULL, all, sizeof(all), &err));
    CHECK(all[0] == 0.5 && all[11] == 11.5);
    OK(arrayd_read(c, "a", "1:, ::2", part, sizeof(part), &err));
    CHECK(part[0] == 4.5 && part[1] == 6.5 && part[2] == 8.5 && part[3] == 10.5);
    part[0] = -1;
    OK(arrayd_write(c, "a", "0, 1:3", part, 16, &err));
    CHECK(scalar("a[0, 1]").re == -1 && scalar("a[0, 2]").re == 6.5);
    OK(arrayd_read(c, "a", "2, 3", guard, 8, &err));
    CHECK(guard[0] == 11.5 && guard[1] == 8);
    OK(arrayd_read(c, "a", "0:0", NULL, 0, &err));
    OK(arrayd_write(c, "a", "0:0", NULL, 0, &err));

    FAILS(arrayd_read(c, "a", "2, 3", guard, 16, &err), 0, "bad_result");
    FAILS(arrayd_read(c, "a", NULL, guard, 8, &err), 0, "bad_result");
    FAILS(arrayd_read(c, "a", "0:0", guard, 8, &err), 0, "bad_result");
    FAILS(arrayd_read(c, "a", NULL, NULL, 0, &err), 0, "bad_result");
    CHECK(guard[0] == 11.5 && guard[1] == 8);
    FAILS(arrayd_write(c, "a", "0", guard, 16, &err), 422, "length_mismatch");
    FAILS(arrayd_read(c, "a", "5", guard, 8, &err), 422, "bad_index");
    FAILS(arrayd_read(c, "nobody", NULL, guard, 8, &err), 404, "not_found");
    OK(arrayd_read(c, "a", "2, 3", guard, 8, &err)); /* the client is as good as before */
}

static void test_large(void)
{
    const size_t count = (64 << 20) / sizeof(uint64_t), size = count * sizeof(uint64_t);
    uint64_t *data = malloc(size), x = 88172645463325252;
    struct arrayd_array a;
    CHECK(data);
    for (size_t i = 0; i < count; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        data[i] = x ^= x << 17;
    }
    OK(arrayd_upload(c, NULL, ARRAYD_UINT64, 1, (int64_t[]){(int64_t)count}, data, size, &a, &err));
    memset(data, 0, size);
    OK(arrayd_read(c, a.id, NULL, data, size, &err));
    x = 88172645463325252;
    for (size_t i = 0; i < count; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        if (data[i] != x)
            CHECK(false);
    }
    OK(arrayd_delete(c, a.id, &err));
    free(data);
}

static int n_files(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *f; d && (f = readdir(d));)
        n += f->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void test_npy(const char *folder)
{
    char path[512], bytes[4096];
    float data[6] = {1, 2, 3, 4, 5, 6}, back[6];
    struct arrayd_array a;
    int ends[2];
    OK(arrayd_upload(c, "a", ARRAYD_FLOAT32, 2, (int64_t[]){2, 3}, data, sizeof(data), &a, &err));
    snprintf(path, sizeof(path), "%s/a.npy", folder);
    OK(arrayd_save_npy_path(c, "a", NULL, path, &err));
    OK(arrayd_load_npy_path(c, "b", path, &a, &err));
    CHECK(a.dtype == ARRAYD_FLOAT32 && a.rank == 2 && a.shape[0] == 2 && a.shape[1] == 3);
    OK(arrayd_read(c, "b", NULL, back, sizeof(back), &err));
    CHECK(!memcmp(data, back, sizeof(data)));

    FAILS(arrayd_save_npy_path(c, "nobody", NULL, path, &err), 404, "not_found");
    FAILS(arrayd_load_npy_path(c, "b", path, &a, &err), 409, "conflict"); /* which is still there */
    CHECK(n_files(folder) == 1);
    FAILS(arrayd_save_npy_path(c, "a", NULL, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_load_npy_path(c, NULL, NULL, &a, &err), 0, "bad_argument");
    FAILS(arrayd_save_npy_path(c, "a", NULL, "/no/such/folder/a.npy", &err), 0, "file");
    FAILS(arrayd_load_npy_path(c, NULL, "/no/such/folder/a.npy", &a, &err), 0, "file");

    FILE *file = tmpfile(); /* which begins with something else */
    CHECK(file && fputs("here: ", file) >= 0);
    OK(arrayd_save_npy(c, "a", "1", file, &err));
    rewind(file);
    CHECK(fseek(file, 6, SEEK_SET) == 0);
    OK(arrayd_load_npy(c, "c", file, &a, &err));
    CHECK(a.rank == 1 && a.shape[0] == 3 && scalar("sum(c)").re == 15);

    CHECK(!pipe(ends) && fseek(file, 6, SEEK_SET) == 0); /* a pipe: nobody knows how long it is */
    size_t length = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    CHECK(write(ends[1], bytes, length) == (ssize_t)length && !close(ends[1]));
    file = fdopen(ends[0], "r");
    OK(arrayd_load_npy(c, "d", file, &a, &err));
    CHECK(scalar("all(c == d)").integer == 1);
    fclose(file);

    file = fopen("/dev/full", "w");
    FAILS(arrayd_save_npy(c, "a", NULL, file, &err), 0, "file");
    fclose(file);
}

static void test_evaluate(void)
{
    struct arrayd_array a;
    struct arrayd_scalar s;
    double out[4];
    OK(arrayd_create(c, "{\"name\": \"u\", \"data\": [1.0, 2.0, 3.0, 4.0]}", NULL, &err));
    const struct arrayd_bind binds[] = {arrayd_bind_array("x", "u"), arrayd_bind_double("dt", 0.1),
                                        arrayd_bind_int("n", 3)};
    struct arrayd_expr e = {.expr = "x*dt + n", .binds = binds, .bind_count = 3, .name = "r"};
    OK(arrayd_evaluate(c, &e, &a, &err));
    CHECK(!strcmp(a.name, "r") && a.dtype == ARRAYD_FLOAT64 && a.size == 4);
    e.name = NULL;
    OK(arrayd_evaluate_into(c, &e, out, sizeof(out), &err));
    CHECK(out[0] == 1 * 0.1 + 3 && out[3] == 4 * 0.1 + 3);
    FAILS(arrayd_evaluate_into(c, &e, out, 24, &err), 0, "bad_result");
    e.dtype = ARRAYD_FLOAT32;
    OK(arrayd_evaluate(c, &e, &a, &err));
    CHECK(a.dtype == ARRAYD_FLOAT32 && !a.name[0]);
    e = (struct arrayd_expr){.expr = "-u[:2]", .out = "u", .index = "2:"};
    OK(arrayd_evaluate(c, &e, &a, &err));
    OK(arrayd_read(c, "u", NULL, out, sizeof(out), &err));
    CHECK(out[1] == 2 && out[2] == -1 && out[3] == -2);
    e = expression("sum(u)"); /* no array is made of it */
    OK(arrayd_evaluate(c, &e, &a, &err));
    CHECK(!a.id[0] && a.rank == 0 && a.dtype == ARRAYD_FLOAT64);
    e = expression("u + 1");
    FAILS(arrayd_evaluate_scalar(c, &e, &s, &err), 0, "bad_result");
    e.name = "y";
    FAILS(arrayd_evaluate_scalar(c, &e, &s, &err), 0, "bad_argument");

    /* Numbers of every kind are exact. */
    const struct arrayd_bind exact[] = {arrayd_bind_int("big", INT64_MIN + 1),
                                        arrayd_bind_double("nan", NAN),
                                        arrayd_bind_double("tiny", DBL_TRUE_MIN)};
    e = (struct arrayd_expr){.expr = "big", .binds = exact, .bind_count = 3};
    OK(arrayd_evaluate_scalar(c, &e, &s, &err));
    CHECK(s.dtype == ARRAYD_INT64 && s.integer == INT64_MIN + 1 && s.re == -0x1p63);
    e.expr = "nan";
    OK(arrayd_evaluate_scalar(c, &e, &s, &err));
    CHECK(s.dtype == ARRAYD_FLOAT64 && isnan(s.re) && s.integer == 0);
    e.expr = "tiny";
    OK(arrayd_evaluate_scalar(c, &e, &s, &err));
    CHECK(s.re == DBL_TRUE_MIN);
    s = scalar("18446744073709551615");
    CHECK(s.dtype == ARRAYD_UINT64 && (uint64_t)s.integer == UINT64_MAX && s.re == 0x1p64);
    CHECK(scalar("9007199254740993").integer == 9007199254740993);
    s = scalar("(1.5 - 2j)*inf");
    CHECK(s.dtype == ARRAYD_COMPLEX128 && s.re == INFINITY);
    s = scalar("any(u < 0)");
    CHECK(s.dtype == ARRAYD_BOOL && s.integer == 1 && s.re == 1);
    CHECK(scalar("1e300*1e10").re == INFINITY && scalar("0.1").re == 0.1);
    CHECK(scalar("astype(u, 'bfloat16')[0]").dtype == ARRAYD_BFLOAT16);

    /* Functions and statements. */
    OK(arrayd_function_define(c, "avg", (const char *const[]){"p", "q"}, 2, "0.5*(p + q)", &err));
    CHECK(scalar("avg(1, 2)").re == 1.5);
    OK(arrayd_function_delete(c, "avg", &err));
    FAILS(arrayd_function_delete(c, "avg", &err), 404, "not_found");
    static const char *const lines[] = {"t = u + n", "s = sum(t)", "u[:2] = t[2:]"};
    const struct arrayd_statements statements = {lines, COUNT(lines), binds + 2, 1, false};
    struct arrayd_result results[] = {{.name = "s"}, {.name = "t"}};
    OK(arrayd_run_statements(c, &statements, results, 2, &err));
    CHECK(!results[0].is_array && results[0].scalar.re == 1 + 2 - 1 - 2 + 12);
    CHECK(results[1].is_array && results[1].array.size == 4);
    CHECK(scalar("u[0]").re == 2);
}

static void test_mistakes(void)
{
    struct arrayd_array a = {.rank = -7};
    struct arrayd_expr e = expression("2 + q");
    char text[1200];
    FAILS(arrayd_evaluate(c, &e, &a, &err), 422, "unknown_name");
    CHECK(!strcmp(err.pointer, "/expr") && err.offset == 4 && strstr(err.detail, "'q'"));
    CHECK(a.rank == -7);
    CHECK(arrayd_evaluate(c, &e, &a, NULL) == -1);
    const struct arrayd_statements statements = {(const char *const[]){"s = 1", "t = s +"}, 2, 0, 0,
                                                 0};
    FAILS(arrayd_run_statements(c, &statements, NULL, 0, &err), 422, "bad_expression");
    CHECK(!strcmp(err.pointer, "/statements/1") && err.offset >= 6);
    FAILS(arrayd_create(c, "{\"shape\": [2, -3]}", &a, &err), 422, "bad_shape");
    CHECK(!strcmp(err.pointer, "/shape/1"));
    FAILS(arrayd_create(c, "{\"shape\": ", &a, &err), 400, "bad_json");

    /* A long name is told in part: cut between characters. */
    for (size_t i = 0; i + 2 < sizeof(text); i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    e.expr = text;
    CHECK(arrayd_evaluate(c, &e, &a, &err) == -1 && err.status == 422);
    for (size_t i = 0; i < strlen(err.detail); i++)
        if ((unsigned char)err.detail[i] == 0xc3)
            CHECK((unsigned char)err.detail[i + 1] == 0xa9);

    /* What is wrong before anything is sent. */
    struct arrayd *other;
    const char *const bad[] = {"", "127.0.0.1:1", "ftp://x", "http://a b", "http://x?y", "unix:"};
    for (size_t i = 0; i < COUNT(bad); i++)
        FAILS(arrayd_connect(bad[i], NULL, &other, &err), 0, "bad_argument");
    const struct arrayd_options injected = {.token = "x\r\nArrayd-Session: s-1"};
    FAILS(arrayd_connect("http://x", &injected, &other, &err), 0, "bad_argument");
    FAILS(arrayd_session_use(c, "a\nb", &err), 0, "bad_argument");
    FAILS(arrayd_find(c, "", &a, &err), 0, "bad_argument");
    FAILS(arrayd_delete(c, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_delete(c, "..", &err), 0, "bad_argument");
    FAILS(arrayd_find(c, "a/data", &a, &err), 400, "bad_request");
    FAILS(arrayd_zeros(c, NULL, ARRAYD_BOOL, 33, NULL, &a, &err), 0, "bad_argument");
    const int64_t huge[] = {INT64_MAX, 3}, negative[] = {-1, -8};
    FAILS(arrayd_upload(c, NULL, ARRAYD_INT64, 2, huge, text, 8, &a, &err), 0, "bad_argument");
    FAILS(arrayd_upload(c, NULL, ARRAYD_INT8, 2, negative, text, 8, &a, &err), 0, "bad_argument");
    FAILS(arrayd_upload(c, NULL, ARRAYD_NONE, 1, huge, text, 8, &a, &err), 0, "bad_argument");
    FAILS(arrayd_upload(c, NULL, ARRAYD_INT8, 1, (int64_t[]){9}, text, 8, &a, &err), 0,
          "bad_argument");
    FAILS(arrayd_replace(c, "", ARRAYD_INT8, 1, (int64_t[]){8}, text, 8, &a, &err), 0,
          "bad_argument");
    FAILS(arrayd_request(c, "GET", "no/slash", NULL, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_request(c, "DELETE", "/v1/arrays/a#b", NULL, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_create(c, NULL, &a, &err), 0, "bad_argument");
    FAILS(arrayd_program_start_json(c, NULL, NULL, &err), 0, "bad_argument");
    CHECK(arrayd_itemsize(ARRAYD_COMPLEX128) == 16 && arrayd_itemsize((enum arrayd_dtype)99) == 0);
    CHECK(!strcmp(arrayd_dtype_name(ARRAYD_BFLOAT16), "bfloat16"));
    arrayd_close(NULL);
}

static void test_jobs(void)
{
    const struct arrayd_pair records[] = {{"total", "sum(u)"}};
    struct arrayd_program p = {.body = (const char *const[]){"u += 1"},
                               .body_count = 1,
                               .steps = 50,
                               .records = records,
                               .record_count = 1,
                               .record_every = 10};
    struct arrayd_job job;
    double values[8];
    size_t count;
    OK(arrayd_zeros(c, "u", ARRAYD_FLOAT64, 1, (int64_t[]){4}, NULL, &err));
    OK(arrayd_program_start(c, &p, &job, &err));
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.state == ARRAYD_DONE && job.step == 50 && job.steps == 50 && !job.stopped_by_until);
    CHECK(job.failed_step == -1 && !job.error.code[0]);
    OK(arrayd_job_records(c, job.id, "total", 3, values, 8, &count, &err));
    CHECK(count == 2 && values[0] == 160 && values[1] == 200);
    OK(arrayd_job_records(c, job.id, "total", 0, values, 1, &count, &err));
    CHECK(count == 1 && values[0] == 40);
    FAILS(arrayd_job_records(c, job.id, "other", 0, values, 1, &count, &err), 0, "bad_result");
    OK(arrayd_job_cancel(c, job.id, &err)); /* it has ended: it is forgotten */
    FAILS(arrayd_job_poll(c, job.id, &job, &err), 404, "not_found");

    p = (struct arrayd_program){.body = p.body, .body_count = 1, .steps = INT64_C(1) << 50};
    OK(arrayd_program_start(c, &p, &job, &err));
    OK(arrayd_job_wait(c, job.id, 0.05, &job, &err));
    CHECK(!arrayd_job_ended(&job));
    OK(arrayd_job_wait(c, job.id, 1.1, &job, &err));
    CHECK(job.state == ARRAYD_RUNNING && job.step > 0);
    OK(arrayd_job_cancel(c, job.id, &err));
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.state == ARRAYD_CANCELLED);
    int64_t step = job.step;
    OK(arrayd_job_resume(c, job.id, &job, &err));
    CHECK(!arrayd_job_ended(&job));
    OK(arrayd_job_cancel(c, job.id, &err));
    OK(arrayd_job_wait(c, job.id, 30, &job, &err));
    CHECK(job.state == ARRAYD_CANCELLED && job.step >= step);
    OK(arrayd_job_cancel(c, job.id, &err));

    p = (struct arrayd_program){.body = (const char *const[]){"u *= 1e300"},
                                .body_count = 1,
                                .steps = 5,
                                .until = "u[0] > 1e305"};
    OK(arrayd_program_start(c, &p, &job, &err));
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.stopped_by_until && job.step < 5);
    OK(arrayd_program_start_json(
        c, "{\"body\": [\"u -= u/0\"], \"steps\": 3, \"stop_on_nan\": true}", &job, &err));
    OK(arrayd_job_wait(c, job.id, -1, &job, &err));
    CHECK(job.state == ARRAYD_FAILED && !strcmp(job.error.code, "not_a_number"));
    CHECK(job.error.status == 422 && job.failed_step >= 1 && job.step == job.failed_step - 1);

    p.body = (const char *const[]){"u += nobody"};
    FAILS(arrayd_program_start(c, &p, &job, &err), 422, "unknown_name");
    CHECK(!strcmp(err.pointer, "/body/0") && err.offset == 5);
}

static void test_request(void)
{
    char *text;
    OK(arrayd_request(c, "POST", "/v1/evaluate", "{\"expr\": \"2*21\"}", &text, &err));
    CHECK(strstr(text, "\"value\":42"));
    free(text);
    OK(arrayd_request(c, "GET", "/metrics", NULL, &text, &err));
    CHECK(strstr(text, "# TYPE"));
    free(text);
    OK(arrayd_request(c, "HEAD", "/healthz", NULL, &text, &err));
    CHECK(!*text);
    free(text);
    OK(arrayd_request(c, "GET", "/v1/info", NULL, NULL, &err));
    OK(arrayd_request(c, "PUT", "/v1/functions/f", "{\"params\":[\"x\"],\"expr\":\"x\"}", NULL,
                      &err));
    OK(arrayd_request(c, "DELETE", "/v1/functions/f", NULL, &text, &err));
    CHECK(!*text);
    free(text);
    FAILS(arrayd_request(c, "POST", "/v1/info", NULL, NULL, &err), 405, "method_not_allowed");
}

static void *thread(void *address)
{
    struct arrayd *mine;
    struct arrayd_error why;
    struct arrayd_array a;
    uint8_t data[999], back[999];
    memset(data, (int)(uintptr_t)&mine >> 4, sizeof(data));
    bool ok = !arrayd_connect(address, NULL, &mine, &why);
    for (int i = 0; ok && i < 10; i++) {
        ok = !arrayd_upload(mine, NULL, ARRAYD_UINT8, 1, (int64_t[]){999}, data, 999, &a, &why) &&
             !arrayd_read(mine, a.id, NULL, back, 999, &why) && !memcmp(data, back, 999) &&
             !arrayd_delete(mine, a.id, &why);
    }
    arrayd_close(mine);
    return ok ? NULL : address;
}

static void test_threads(char *address)
{
    pthread_t threads[4];
    void *bad;
    for (size_t i = 0; i < COUNT(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, thread, address));
    for (size_t i = 0; i < COUNT(threads); i++) {
        CHECK(!pthread_join(threads[i], &bad));
        CHECK(!bad);
    }
}

/* Asks for some data, and prints the error that comes: "STATUS CODE RETRY_AFTER DETAIL". */
static bool more_frames(void *user, const struct arrayd_frame *frame)
{
    (void)user, (void)frame;
    return true;
}

static bool more_news(void *user, const struct arrayd_news *news)
{
    (void)user, (void)news;
    return true;
}

static void test_fails(const char *how)
{
    static char data[1 << 20];
    struct arrayd_array a;
    struct arrayd_expr e = expression("1");
    struct arrayd_export export;
    int ret = -2;
    if (!strcmp(how, "read"))
        ret = arrayd_read(c, "a", NULL, data, 1000, &err);
    else if (!strcmp(how, "upload"))
        ret =
            arrayd_upload(c, NULL, ARRAYD_UINT8, 1, (int64_t[]){1 << 20}, data, 1 << 20, &a, &err);
    else if (!strcmp(how, "evaluate"))
        ret = arrayd_evaluate(c, &e, &a, &err);
    else if (!strcmp(how, "export"))
        ret = arrayd_export_begin(c, "a", false, &export, &err);
    else if (!strcmp(how, "frames"))
        ret = arrayd_frames(c, "a", NULL, NULL, more_frames, NULL, &err);
    else if (!strcmp(how, "lists"))
        ret = arrayd_list_changes(c, NULL, more_news, NULL, &err);
    CHECK(ret == -1);
    printf("%d %s %lld %s\n", err.status, err.code, (long long)err.retry_after_s, err.detail);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const char *name = argv[1], *more = argc > 3 ? argv[3] : NULL;
    c = client_of(argv[2], getenv("TOKEN"));
    if (!strcmp(name, "sessions"))
        test_sessions();
    else if (!strcmp(name, "arrays"))
        test_arrays();
    else if (!strcmp(name, "data"))
        test_data();
    else if (!strcmp(name, "large"))
        test_large();
    else if (!strcmp(name, "npy"))
        test_npy(more);
    else if (!strcmp(name, "evaluate"))
        test_evaluate();
    else if (!strcmp(name, "mistakes"))
        test_mistakes();
    else if (!strcmp(name, "jobs"))
        test_jobs();
    else if (!strcmp(name, "request"))
        test_request();
    else if (!strcmp(name, "threads"))
        test_threads(argv[2]);
    else if (!strcmp(name, "fails"))
        test_fails(more);
    else
        return 2;
    arrayd_close(c);
    return 0;
}
