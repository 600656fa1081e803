/*
 * The C client's calls for grids, looks, leases, shares, links and exports, against a daemon:
 * client_c_access SCENARIO ADDRESS. Run by tests/http/test_client_c.py, as client_c.c is.
 */
#include <math.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/clients/client_c.h"

static const char *address;

static void test_grids(void)
{
    struct arrayd_array a, b;
    double all[6], four[4] = {1, 2, 3, 4};
    OK(arrayd_create(c,
                     "{\"name\": \"g\", \"shape\": [4], \"ghost\": [1], \"spacing\": [0.5],"
                     " \"boundary\": [[{\"type\": \"dirichlet\", \"value\": 10},"
                     " {\"type\": \"neumann\", \"value\": 2}]]}",
                     &a, &err));
    CHECK(a.ghost[0] == 1);
    OK(arrayd_write(c, "g", NULL, four, sizeof(four), &err));
    OK(arrayd_read_ghost(c, "g", NULL, all, sizeof(all), &err));
    CHECK(all[0] == 0 && all[1] == 1 && all[4] == 4 && all[5] == 0);
    OK(arrayd_fill_ghost(c, "g", &err));
    OK(arrayd_read_ghost(c, "g", NULL, all, sizeof(all), &err));
    CHECK(all[0] == 19 && all[1] == 1 && all[4] == 4 && all[5] == 5); /* 2*10 - 1, 4 + 0.5*2 */
    OK(arrayd_write_ghost(c, "g", "-1", (double[]){7}, 8, &err));
    OK(arrayd_read_ghost(c, "g", "-1:1", all, 16, &err));
    CHECK(all[0] == 7 && all[1] == 1);
    FAILS(arrayd_read_ghost(c, "g", "-2", all, 8, &err), 422, "bad_index");
    OK(arrayd_patch(c, "g", "{\"boundary\": [\"periodic\"]}", &a, &err));
    OK(arrayd_fill_ghost(c, a.id, &err));
    OK(arrayd_read_ghost(c, "g", NULL, all, sizeof(all), &err));
    CHECK(all[0] == 4 && all[5] == 1);
    FAILS(arrayd_patch(c, "g", "{\"boundary\": [\"round\"]}", NULL, &err), 422, "bad_boundary");
    CHECK(!strcmp(err.pointer, "/boundary/0"));
    FAILS(arrayd_patch(c, "g", NULL, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_fill_ghost(c, "nobody", &err), 404, "not_found");

    OK(arrayd_create(c, "{\"name\": \"h\", \"shape\": [4], \"ghost\": [1]}", &b, &err));
    OK(arrayd_swap(c, "g", b.id, &err));
    CHECK(scalar("sum(g)").re == 0 && scalar("sum(h)").re == 10);
    OK(arrayd_zeros(c, "plain", ARRAYD_FLOAT64, 1, (int64_t[]){4}, NULL, &err));
    FAILS(arrayd_swap(c, "g", "plain", &err), 409, "conflict");
    FAILS(arrayd_swap(c, "g", NULL, &err), 0, "bad_argument");

    OK(arrayd_upload(c, "r", ARRAYD_FLOAT64, 1, (int64_t[]){4}, four, sizeof(four), NULL, &err));
    OK(arrayd_resize(c, "r", 2, (int64_t[]){2, 2}, &a, &err));
    CHECK(a.rank == 2 && a.shape[1] == 2 && scalar("r[1, 0]").re == 3);
    OK(arrayd_view_json(c, "r", "{\"permute\": [1, 0], \"name\": \"t\"}", &b, &err));
    CHECK(b.strides[0] == 1 && scalar("t[0, 1]").re == 3);
    FAILS(arrayd_resize(c, "r", 1, (int64_t[]){3}, &a, &err), 409, "conflict");
    OK(arrayd_delete(c, "t", &err));
    OK(arrayd_resize(c, "r", 1, (int64_t[]){3}, &a, &err));
    CHECK(a.size == 3 && scalar("sum(r)").re == 0);
    FAILS(arrayd_resize(c, "r", 33, (int64_t[]){3}, &a, &err), 0, "bad_argument");
    FAILS(arrayd_resize(c, "r", 1, (int64_t[]){-3}, &a, &err), 422, "bad_shape");

    OK(arrayd_set_on_host(c, "h", true, &err));
    OK(arrayd_find(c, "h", &a, &err));
    CHECK(a.on_host);
    OK(arrayd_set_on_host(c, "h", false, &err));
    OK(arrayd_find(c, "h", &a, &err));
    CHECK(!a.on_host && scalar("sum(h)").re == 10);
    FAILS(arrayd_set_on_host(c, "nobody", true, &err), 404, "not_found");
}

static void test_layouts(void)
{
    const int64_t shapes[] = {64, 65, 65, 64}, ghosts[] = {1, 1, 1, 1};
    int64_t padded[2] = {0};
    OK(arrayd_layout(c, 2, 2, shapes, ghosts, padded, &err));
    CHECK(padded[0] == 67 && padded[1] == 80);
    OK(arrayd_layout(c, 2, 2, shapes, NULL, padded, &err));
    CHECK(padded[0] == 65 && padded[1] == 80);
    FAILS(arrayd_layout(c, 2, 2, (const int64_t[]){1, 1, -1, 1}, NULL, padded, &err), 422,
          "bad_shape");
    FAILS(arrayd_layout(c, 2, 33, shapes, NULL, padded, &err), 0, "bad_argument");
}

static void test_figures(void)
{
    const double values[6] = {0, 1, 2, NAN, 4, 1e9};
    const int64_t large[2] = {INT64_MAX, -5};
    const double range[2] = {0, 10}, wrong[2] = {0, INFINITY};
    struct arrayd_percentile percentiles[2] = {{.percent = 50}, {.percent = 100}};
    struct arrayd_summary s;
    int64_t counts[2];
    OK(arrayd_upload(c, "a", ARRAYD_FLOAT64, 2, (int64_t[]){2, 3}, values, sizeof(values), NULL,
                     &err));
    OK(arrayd_summary(c, "a", NULL, &s, &err));
    CHECK(s.count == 6 && s.finite == 5 && s.nan == 1 && s.inf == 0 && s.minus_inf == 0);
    CHECK(s.min.re == 0 && s.max.re == 1e9 && s.max.dtype == ARRAYD_FLOAT64 && s.hi == 1e9);
    OK(arrayd_summary(c, "a", "0", &s, &err));
    CHECK(s.count == 3 && s.max.re == 2 && s.mean == 1 && s.std > 0.8 && s.std < 0.9);
    OK(arrayd_summary(c, "a", "1, :1", &s, &err));
    CHECK(s.finite == 0 && s.min.dtype == ARRAYD_NONE && isnan(s.max.re) && isnan(s.mean));
    OK(arrayd_histogram(c, "a", NULL, range, 2, counts, &s, &err));
    CHECK(counts[0] == 4 && counts[1] == 0 && s.above == 1 && s.below == 0 && s.hi == 10);
    OK(arrayd_histogram(c, "a", "0", NULL, 2, counts, NULL, &err));
    CHECK(counts[0] == 1 && counts[1] == 2);
    OK(arrayd_percentiles(c, "a", NULL, true, percentiles, 2, &err));
    CHECK(percentiles[0].value == 2 && percentiles[0].error == 0 && percentiles[1].value == 1e9);
    OK(arrayd_percentiles(c, "a", "0", false, percentiles, 1, &err));
    CHECK(fabs(percentiles[0].value - 1) <= percentiles[0].error && percentiles[0].error > 0);
    OK(arrayd_upload(c, "n", ARRAYD_INT64, 1, (int64_t[]){2}, large, sizeof(large), NULL, &err));
    OK(arrayd_summary(c, "n", NULL, &s, &err));
    CHECK(s.max.integer == INT64_MAX && s.min.integer == -5 && s.min.re == -5);
    FAILS(arrayd_histogram(c, "a", NULL, NULL, 0, counts, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_histogram(c, "a", NULL, wrong, 2, counts, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_percentiles(c, "a", NULL, false, percentiles, 0, &err), 0, "bad_argument");
    percentiles[0].percent = 101;
    FAILS(arrayd_percentiles(c, "a", NULL, false, percentiles, 1, &err), 422, "bad_field");
    FAILS(arrayd_summary(c, "nobody", NULL, &s, &err), 404, "not_found");
    FAILS(arrayd_summary(c, "a", "9", &s, &err), 422, "bad_index");
}

/* The width and height of the PNG that was written to a file since `at`. */
static void size_of(FILE *file, long at, int *ret_width, int *ret_height)
{
    unsigned char head[24];
    CHECK(!fseek(file, at, SEEK_SET) && fread(head, 1, 24, file) == 24);
    CHECK(!memcmp(head, "\x89PNG\r\n\x1a\n", 8) && !fseek(file, 0, SEEK_END));
    *ret_width = head[18] << 8 | head[19];
    *ret_height = head[22] << 8 | head[23];
}

static void test_pictures(void)
{
    const double range[2] = {0, 1e20}, percents[2] = {1, 99.5};
    const struct arrayd_picture how = {.index = "1:, :",
                                       .cmap = "viridis",
                                       .range = range,
                                       .width = 30,
                                       .height = 40,
                                       .pool = "max",
                                       .bar = true};
    const struct arrayd_picture parts = {.percents = percents, .width = 6};
    const struct arrayd_picture jet = {.cmap = "jet"};
    struct arrayd_expr expr = expression("p*2");
    FILE *file = tmpfile();
    int width, height;
    CHECK(file);
    OK(arrayd_create(c, "{\"name\": \"p\", \"shape\": [2, 3], \"fill\": 1.5}", NULL, &err));
    OK(arrayd_save_png(c, "p", NULL, file, &err));
    size_of(file, 0, &width, &height);
    CHECK(width == 3 && height == 2);
    long at = ftell(file);
    OK(arrayd_save_png(c, "p", &how, file, &err));
    size_of(file, at, &width, &height);
    CHECK(width == 54 && height == 40); /* and the colour bar */
    at = ftell(file);
    OK(arrayd_evaluate_png(c, &expr, &parts, file, &err));
    size_of(file, at, &width, &height);
    CHECK(width == 6 && height == 4);
    FAILS(arrayd_save_png(c, "p", &jet, file, &err), 422, "bad_field");
    FAILS(arrayd_save_png(c, "p", NULL, NULL, &err), 0, "bad_argument");
    FAILS(arrayd_save_png(c, "nobody", NULL, file, &err), 404, "not_found");
    FAILS(arrayd_evaluate_png(c, &expr, &how, file, &err), 0, "bad_argument");
    expr.name = "kept";
    FAILS(arrayd_evaluate_png(c, &expr, NULL, file, &err), 0, "bad_argument");
    fclose(file);
}

/* --- events --- */

struct seen {
    int count, most; /* it is enough then */
    struct arrayd *other;
    struct arrayd_array array;
    struct arrayd_watch watch;
};

/* What happens between two events, by another client. */
static void write_to(struct arrayd *other, double value)
{
    struct arrayd_error e;
    CHECK(!arrayd_write(other, "w", NULL, (double[]){value, 2, 3, 4}, 32, &e));
}

static bool see_change(void *user, const struct arrayd_array *array)
{
    struct seen *seen = user;
    struct arrayd_error e;
    seen->array = *array;
    if (++seen->count == 1)
        write_to(seen->other, 5);
    else if (seen->count == 2)
        CHECK(!arrayd_rename(seen->other, array->id, "renamed", &e));
    else if (!seen->most)
        CHECK(!arrayd_delete(seen->other, array->id, &e));
    return seen->count != seen->most;
}

static bool see_frame(void *user, const struct arrayd_frame *frame)
{
    struct seen *seen = user;
    const unsigned char *png = frame->png;
    CHECK(frame->size > 50 && !memcmp(png, "\x89PNG\r\n\x1a\n", 8));
    CHECK(!memcmp(png + frame->size - 8, "IEND\xae\x42\x60\x82", 8) && png[19] == 30);
    CHECK(frame->range[0] == -1 && frame->range[1] == 7.5);
    if (++seen->count < seen->most)
        write_to(seen->other, seen->count);
    return seen->count < seen->most;
}

static void test_changes(void)
{
    struct seen seen = {.other = client_of(address, NULL), .most = 3};
    struct arrayd_watch *watch = &seen.watch;
    struct arrayd_array a;
    OK(arrayd_zeros(c, "w", ARRAYD_FLOAT64, 2, (int64_t[]){2, 2}, &a, &err));
    OK(arrayd_changes(c, "w", watch, see_change, &seen, &err));
    CHECK(seen.count == 3 && !strcmp(seen.array.name, "renamed") && watch->last[0]);
    OK(arrayd_rename(seen.other, a.id, "w", &err));

    struct arrayd *quick;
    const struct arrayd_options options = {.timeout_ms = 700};
    OK(arrayd_connect(address, &options, &quick, &err));
    seen = (struct seen){.other = seen.other, .most = 1, .watch = seen.watch};
    FAILS(arrayd_changes(quick, "w", watch, see_change, &seen, &err), 0, "timeout");
    CHECK(seen.count == 0); /* it was told already */
    write_to(seen.other, 6);
    OK(arrayd_changes(quick, "w", watch, see_change, &seen, &err));
    CHECK(seen.count == 1);
    arrayd_close(quick);

    const struct arrayd_picture how = {
        .range = (double[]){-1, 7.5}, .width = 30, .cmap = "viridis", .index = ":, :"};
    seen = (struct seen){.other = seen.other, .most = 3, .watch = {.interval_s = 0.2}};
    OK(arrayd_frames(c, "w", &how, watch, see_frame, &seen, &err));
    CHECK(seen.count == 3);
    FAILS(arrayd_frames(c, "w", &(struct arrayd_picture){.cmap = "grey"}, watch, see_frame, &seen,
                        &err),
          422, "bad_field");
    FAILS(
        arrayd_frames(c, "w", &(struct arrayd_picture){.index = "0"}, NULL, see_frame, &seen, &err),
        406, "not_acceptable");
    watch->interval_s = -1;
    FAILS(arrayd_changes(c, "w", watch, see_change, &seen, &err), 422, "bad_field");

    seen = (struct seen){.other = seen.other}; /* to the end: it is deleted */
    OK(arrayd_changes(c, "w", NULL, see_change, &seen, &err));
    CHECK(seen.count == 3);
    FAILS(arrayd_changes(c, "w", NULL, see_change, &seen, &err), 404, "not_found");
    FAILS(arrayd_changes(c, "", NULL, see_change, &seen, &err), 0, "bad_argument");
    arrayd_close(seen.other);
}

struct listed {
    struct arrayd *other;
    int step;
    bool arrays, jobs; /* there was a first event of them */
    char id[ARRAYD_MAX_NAME + 1], job[ARRAYD_MAX_NAME + 1];
};

static bool has(const char *const *ids, size_t count, const char *id)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(ids[i], id))
            return true;
    return false;
}

/* Waits for one thing after another, each of which makes the next one happen. */
static bool see_news(void *user, const struct arrayd_news *news)
{
    static const char *const body[] = {"w += 1"};
    const struct arrayd_program program = {.body = body, .body_count = 1, .steps = 3};
    struct listed *l = user;
    struct arrayd_array a;
    struct arrayd_job j;
    struct arrayd_error e;
    l->arrays |= news->first && news->array_count;
    l->jobs |= news->first && !news->array_count && !news->more;
    CHECK(!news->array_count || !news->job_count);
    if (l->step == 0 && l->arrays && l->jobs) {
        CHECK(!arrayd_zeros(l->other, "w", ARRAYD_FLOAT64, 1, (int64_t[]){4}, &a, &e));
        strcpy(l->id, a.id);
        l->step++;
    } else if (l->step == 1 && news->array_count && !strcmp(news->arrays[0].id, l->id)) {
        write_to(l->other, 1);
        l->step++;
    } else if (l->step == 2 && has(news->written, news->written_count, l->id)) {
        CHECK(!arrayd_program_start(l->other, &program, &j, &e));
        strcpy(l->job, j.id);
        l->step++;
    } else if (l->step == 3 && news->job_count && news->jobs[0].state == ARRAYD_DONE &&
               !strcmp(news->jobs[0].id, l->job)) {
        CHECK(!arrayd_delete(l->other, "w", &e));
        l->step++;
    } else if (l->step == 4 && has(news->gone, news->gone_count, l->id)) {
        return false;
    }
    return true;
}

static bool end_session(void *user, const struct arrayd_news *news)
{
    struct listed *l = user;
    struct arrayd_error e;
    (void)news;
    if (!l->step++)
        CHECK(!arrayd_session_delete(l->other, l->id, &e));
    return true;
}

static void test_list_changes(void)
{
    struct listed l = {.other = client_of(address, NULL)};
    struct arrayd_session session;
    OK(arrayd_zeros(c, "old", ARRAYD_FLOAT64, 1, (int64_t[]){2}, NULL, &err));
    OK(arrayd_list_changes(c, NULL, see_news, &l, &err));
    CHECK(l.step == 4);
    OK(arrayd_job_cancel(c, l.job, &err));
    OK(arrayd_session_create(c, NULL, &session, &err));
    OK(arrayd_session_use(c, session.id, &err));
    strcpy(l.id, session.id);
    l.step = 0;
    OK(arrayd_list_changes(c, NULL, end_session, &l, &err));
    CHECK(l.step);
    FAILS(arrayd_list_changes(c, NULL, end_session, &l, &err), 404, "not_found");
    arrayd_close(l.other);
}

static void test_leases(void)
{
    struct arrayd *other = client_of(address, getenv("TOKEN"));
    struct arrayd_lease lease, second;
    double value = 5, back;
    OK(arrayd_zeros(c, "a", ARRAYD_FLOAT64, 0, NULL, NULL, &err));
    OK(arrayd_lease(c, "a", true, 30, &lease, &err));
    CHECK(lease.write && lease.token[0] == 'l' && lease.expires[0]);
    FAILS(arrayd_write(c, "a", NULL, &value, 8, &err), 409, "locked"); /* not in use yet */
    OK(arrayd_lease_use(c, lease.token, &err));
    OK(arrayd_write(c, "a", NULL, &value, 8, &err));
    FAILS(arrayd_read(other, "a", NULL, &back, 8, &err), 409, "locked");
    FAILS(arrayd_lease(other, "a", false, 0, &second, &err), 409, "locked");
    FAILS(arrayd_lease_end(other, "a", &err), 409, "locked");
    OK(arrayd_lease(c, "a", false, 0, &second, &err)); /* renewed, for reading */
    CHECK(!strcmp(lease.token, second.token) && !second.write);
    OK(arrayd_read(other, "a", NULL, &back, 8, &err));
    CHECK(back == 5);
    OK(arrayd_lease(other, "a", false, 0, &second, &err));
    FAILS(arrayd_write(c, "a", NULL, &value, 8, &err), 409, "locked");
    OK(arrayd_lease_use(other, second.token, &err));
    OK(arrayd_lease_end(other, "a", &err));
    OK(arrayd_lease_end(c, "a", &err));
    FAILS(arrayd_lease_end(c, "a", &err), 404, "not_found");
    OK(arrayd_lease_use(c, NULL, &err));
    OK(arrayd_write(other, "a", NULL, &value, 8, &err));
    FAILS(arrayd_lease(c, "a", true, -1, &lease, &err), 422, "bad_field");
    CHECK(!strcmp(err.pointer, "/ttl_s"));
    FAILS(arrayd_lease_use(c, "", &err), 0, "bad_argument");
    FAILS(arrayd_lease_use(c, "l-1\r\nX: y", &err), 0, "bad_argument");
    arrayd_close(other);
}

/* With accounts: OTHER is the token of one whose name is bob. */
static void test_shares(void)
{
    struct arrayd *bob = client_of(address, getenv("OTHER"));
    struct arrayd_share shares[2];
    struct arrayd_array a;
    double value = 5, back;
    size_t count;
    OK(arrayd_zeros(c, "a", ARRAYD_FLOAT64, 0, NULL, &a, &err));
    OK(arrayd_shares(c, "a", NULL, 0, &count, &err));
    CHECK(count == 0);
    FAILS(arrayd_read(bob, a.id, NULL, &back, 8, &err), 404, "not_found");
    OK(arrayd_share(c, "a", "bob", false, &err));
    OK(arrayd_read(bob, a.id, NULL, &back, 8, &err));
    FAILS(arrayd_write(bob, a.id, NULL, &value, 8, &err), 403, "forbidden");
    OK(arrayd_share(c, "a", "bob", true, &err));
    OK(arrayd_write(bob, a.id, NULL, &value, 8, &err));
    FAILS(arrayd_share(bob, a.id, "ann", true, &err), 403, "forbidden");
    OK(arrayd_share(c, "a", "o.p@x-y", false, &err));
    OK(arrayd_shares(c, "a", shares, 2, &count, &err));
    CHECK(count == 2 && !strcmp(shares[0].principal, "bob") && shares[0].write);
    CHECK(!strcmp(shares[1].principal, "o.p@x-y") && !shares[1].write);
    OK(arrayd_shares(c, "a", shares + 1, 1, &count, &err));
    CHECK(count == 2 && !strcmp(shares[1].principal, "bob"));
    OK(arrayd_unshare(c, "a", "o.p@x-y", &err));
    OK(arrayd_unshare(c, "a", "bob", &err));
    FAILS(arrayd_read(bob, a.id, NULL, &back, 8, &err), 404, "not_found");
    FAILS(arrayd_unshare(c, "a", "bob", &err), 404, "not_found");
    FAILS(arrayd_share(c, "a", "nobody", false, &err), 404, "not_found");
    FAILS(arrayd_share(c, "a", "ann", false, &err), 422, "bad_field");
    FAILS(arrayd_share(c, "a", NULL, false, &err), 0, "bad_argument");
    FAILS(arrayd_unshare(c, "a", "", &err), 0, "bad_argument");
    arrayd_close(bob);
}

/* With accounts: TOKEN is ann's, a user, OTHER that of an operator. */
static void test_links(void)
{
    struct arrayd *olga = client_of(address, getenv("OTHER")), *nobody;
    const char *const arrays[] = {"a"};
    const struct arrayd_link_options some = {.expires_s = 600, .arrays = arrays, .array_count = 1};
    const struct arrayd_link_options all = {.expires_s = 60}, none = {0};
    struct arrayd_link link, links[2];
    struct arrayd_session session;
    struct arrayd_login login;
    struct arrayd_array a;
    struct arrayd_job job;
    const char *const body[] = {"a += 1"};
    const struct arrayd_program program = {.body = body, .body_count = 1, .steps = 1000000000};
    size_t count;
    OK(arrayd_zeros(c, "a", ARRAYD_FLOAT64, 1, (int64_t[]){4}, &a, &err));
    OK(arrayd_link_create(c, &some, &link, &err));
    CHECK(!strncmp(link.url, "/#link=", 7) && link.arrays == 1 && link.jobs <= 0 &&
          link.expires[0]);
    OK(arrayd_link_create(c, &all, &link, &err));
    CHECK(link.arrays == -1 && link.jobs == -1);
    OK(arrayd_links(c, links, 2, &count, &err));
    CHECK(count == 2 && !links[0].url[0] && links[0].created[0]);
    OK(arrayd_link_delete(c, link.id, &err));
    FAILS(arrayd_link_delete(c, link.id, &err), 404, "not_found");
    OK(arrayd_links(c, links, 0, &count, &err));
    CHECK(count == 1);
    FAILS(arrayd_link_create(c, &none, &link, &err), 422, "bad_field");
    CHECK(!strcmp(err.pointer, "/expires_s"));

    OK(arrayd_login(c, &login, &err));
    CHECK(login.required && !strcmp(login.principal, "ann") && !strcmp(login.role, "user"));
    OK(arrayd_login(olga, &login, &err));
    CHECK(!strcmp(login.role, "operator"));
    nobody = client_of(address, NULL);
    OK(arrayd_login(nobody, &login, &err));
    CHECK(login.required && !login.principal[0] && !login.role[0]);
    arrayd_close(nobody);

    FAILS(arrayd_end_array(c, a.id, &err), 403, "forbidden");
    OK(arrayd_program_start(c, &program, &job, &err));
    OK(arrayd_end_job(olga, job.id, &err));
    OK(arrayd_job_poll(c, job.id, &job, &err));
    CHECK(job.state == ARRAYD_CANCELLED);
    OK(arrayd_end_job(olga, job.id, &err));
    FAILS(arrayd_job_poll(c, job.id, &job, &err), 404, "not_found");
    OK(arrayd_end_array(olga, a.id, &err));
    FAILS(arrayd_find(c, a.id, &a, &err), 404, "not_found");
    OK(arrayd_session_create(c, NULL, &session, &err));
    OK(arrayd_end_session(olga, session.id, &err));
    FAILS(arrayd_session_delete(c, session.id, &err), 404, "not_found");
    OK(arrayd_set_principal(olga, "o.p@x-y", "{\"weight\": 3, \"quotas\": {\"arrays\": 9}}", &err));
    FAILS(arrayd_set_principal(olga, "o.p@x-y", "{\"weight\": 0}", &err), 422, "bad_field");
    CHECK(!strcmp(err.pointer, "/weight"));
    FAILS(arrayd_set_principal(olga, "ann", NULL, &err), 0, "bad_argument");
    OK(arrayd_end_principal(olga, "ann", &err));
    FAILS(arrayd_find(c, "a", &a, &err), 401, "unauthorized");
    arrayd_close(olga);
}

static void test_exports(void)
{
    struct arrayd *other = client_of(address, NULL);
    struct arrayd_export e, second;
    struct arrayd_array a;
    double sum = 0, back;
    OK(arrayd_create(c, "{\"name\": \"a\", \"shape\": [3, 4], \"fill\": 2.0}", &a, &err));
    OK(arrayd_view(c, "a", "1:, ::-2", "v", NULL, &err));
    OK(arrayd_export_begin(c, "v", false, &e, &err));
    CHECK(e.fd == -1 && e.rank == 2 && e.shape[0] == 2 && e.shape[1] == 2 && e.strides[0] == 4 &&
          e.strides[1] == -2 && e.offset == 7 && e.dtype == ARRAYD_FLOAT64 && e.size >= 96);
    CHECK(!e.write && !e.uuid[0] && e.lease[0]);
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 2; j++)
            sum += ((const double *)e.data)[i * e.strides[0] + j * e.strides[1]];
    CHECK(sum == 8);
    OK(arrayd_read(other, "a", "0, 0", &back, 8, &err));
    FAILS(arrayd_write(other, "a", "0, 0", &sum, 8, &err), 409, "locked");
    OK(arrayd_export_begin(other, "a", false, &second, &err));
    OK(arrayd_export_end(&second, &err));
    OK(arrayd_export_end(&e, &err));
    CHECK(!e.data && !e.mapping && e.connection == -1);
    OK(arrayd_export_end(&e, &err)); /* nothing to do */
    OK(arrayd_export_end(NULL, &err));

    OK(arrayd_export_begin(c, "a", true, &e, &err));
    ((double *)e.data)[0] = 9;
    FAILS(arrayd_read(other, "a", "0, 0", &back, 8, &err), 409, "locked");
    FAILS(arrayd_export_begin(other, "a", true, &second, &err), 409, "locked");
    OK(arrayd_lease_use(c, e.lease, &err));
    CHECK(scalar("sum(a)").re == 31);
    FAILS(arrayd_resize(c, "a", 1, (int64_t[]){12}, &a, &err), 409, "locked");
    OK(arrayd_lease_use(c, NULL, &err));
    OK(arrayd_export_end(&e, &err));
    OK(arrayd_read(other, "a", "0, 0", &back, 8,
                   &err)); /* at once, and what was written is there */
    CHECK(back == 9);

    OK(arrayd_export_begin(c, "a", true, &e, &err));
    OK(arrayd_lease_use(c, e.lease, &err));
    OK(arrayd_lease_end(c, "a", &err)); /* which ends the export */
    OK(arrayd_lease_use(c, NULL, &err));
    CHECK(recv(e.connection, &back, 1, MSG_PEEK) == 0); /* the daemon has closed it */
    FAILS(arrayd_export_end(&e, &err), 0, "connection");
    CHECK(e.connection == -1);
    FAILS(arrayd_export_begin(c, "nobody", false, &e, &err), 404, "not_found");
    OK(arrayd_zeros(c, "none", ARRAYD_INT8, 1, (int64_t[]){0}, NULL, &err));
    FAILS(arrayd_export_begin(c, "none", false, &e, &err), 409, "conflict");
    arrayd_close(other);
}

/* The descriptor is for the driver, which this program does not load. */
static void test_exports_cuda(void)
{
    struct arrayd_export e;
    char path[64];
    OK(arrayd_zeros(c, "a", ARRAYD_FLOAT32, 1, (int64_t[]){1000}, NULL, &err));
    OK(arrayd_export_begin(c, "a", true, &e, &err));
    CHECK(!e.data && !e.mapping && e.fd >= 0 && e.uuid[0] && e.size >= 4000 && e.offset == 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", e.fd);
    CHECK(access(path, F_OK) == 0);
    OK(arrayd_export_end(&e, &err));
    CHECK(access(path, F_OK) == -1 && e.fd == -1);
}

static void test_no_export(void)
{
    struct arrayd_export e;
    OK(arrayd_zeros(c, "a", ARRAYD_FLOAT64, 0, NULL, NULL, &err));
    FAILS(arrayd_export_begin(c, "a", false, &e, &err), 403, "forbidden");
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const char *name = argv[1];
    address = argv[2];
    c = client_of(address, getenv("TOKEN"));
    if (!strcmp(name, "grids"))
        test_grids();
    else if (!strcmp(name, "layouts"))
        test_layouts();
    else if (!strcmp(name, "figures"))
        test_figures();
    else if (!strcmp(name, "pictures"))
        test_pictures();
    else if (!strcmp(name, "changes"))
        test_changes();
    else if (!strcmp(name, "list_changes"))
        test_list_changes();
    else if (!strcmp(name, "links"))
        test_links();
    else if (!strcmp(name, "leases"))
        test_leases();
    else if (!strcmp(name, "shares"))
        test_shares();
    else if (!strcmp(name, "exports"))
        test_exports();
    else if (!strcmp(name, "exports_cuda"))
        test_exports_cuda();
    else if (!strcmp(name, "no_export"))
        test_no_export();
    else
        return 2;
    arrayd_close(c);
    return 0;
}
