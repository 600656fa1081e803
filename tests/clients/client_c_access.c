/*
 * The C client's calls for grids, leases, shares and exports, against a daemon:
 * client_c_access SCENARIO ADDRESS. Run by tests/http/test_client_c.py, as client_c.c is.
 */
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
