/* compute/export on the CPU backend: contents through another mapping, what an export waits for,
 * what stays in its place while it lasts, what becomes of it where something fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/export.h"
#include "tests/unit/engine_front.h"

#define NBYTES ((int64_t)(N * sizeof(double)))
#define PAGE   4096

enum { WAITING = -1 };
enum { AT_ONCE = 1, MOVES = 1 << 20 }; /* shareable_least: so from creation; when it is exported */
static const int ways[] = {AT_ONCE, MOVES};

static void told(struct exporting *x)
{
    assert_int_equal(atomic_load((_Atomic int *)x->user), WAITING);
    atomic_store((_Atomic int *)x->user, (int)x->code);
}

/* The number of descriptors that are open. */
static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void begin_export(struct fixture *f, struct array *a, bool write, struct exporting *x,
                         _Atomic int *done)
{
    *x = (struct exporting){.array = a, .write = write, .done = told, .user = (void *)done};
    atomic_store(done, WAITING);
    engine_export(f->s, x);
}

static enum err_code export(struct fixture *f, struct array *a, bool write, struct exporting *x) {
    _Atomic int done; begin_export(f, a, write, x, &done);
    assert_int_not_equal(atomic_load(&done), WAITING);
    return x->code;
}

static double *map(const struct exporting *x, bool write)
{
    char *p = mmap(NULL, (size_t)x->exported.size, write ? PROT_READ | PROT_WRITE : PROT_READ,
                   MAP_SHARED, x->exported.fd, 0);
    assert_true(p != MAP_FAILED);
    return (double *)(void *)(p + x->exported.offset);
}

static void unmap(const struct exporting *x, double *p)
{
    assert_int_equal(munmap((char *)p - x->exported.offset, (size_t)x->exported.size), 0);
}

static void end_export(struct exporting *x)
{
    close(x->exported.fd);
    engine_export_end(x->export);
}

static void both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        struct exporting x;
        open_fixture_sharing(&f, ways[i]);
        uint64_t version = array_version(f.a);
        assert_int_equal(export(&f, f.a, false, &x), ERR_OK);
        assert_false(x.exported.cuda);
        assert_int_equal(x.exported.size, PAGE);
        assert_int_equal(x.exported.offset, 0);
        assert_int_equal(x.exported.version, version);
        assert_string_equal(x.exported.uuid, "");
        assert_true(array_is_exported(f.a) && !array_written_outside(f.a));
        double *p = map(&x, false);
        for (int k = 0; k < N; k++)
            assert_true(p[k] == k);
        for (int k = NBYTES; k < PAGE; k++)
            assert_int_equal(((char *)p)[k], 0);
        assert_int_equal(evaluate(&f, "a + 1", f.a, NULL), ERR_OK);
        assert_true(p[0] == 1); /* it is the same memory */
        unmap(&x, p);
        end_export(&x);
        assert_false(array_is_exported(f.a));

        version = array_version(f.a);
        assert_int_equal(export(&f, f.a, true, &x), ERR_OK);
        assert_true(array_written_outside(f.a));
        assert_true(x.exported.version > version);
        p = map(&x, true);
        for (int k = 0; k < N; k++)
            p[k] = (k + 3) % N;
        unmap(&x, p);
        end_export(&x);
        assert_true(array_version(f.a) > x.exported.version);
        holds_ramp(&f, f.a, 3);
        struct export_figures n;
        engine_export_figures(f.g, &n);
        assert_int_equal(n.readers + n.writers + n.bytes, 0);
        assert_int_equal(n.total, 2);
        assert_int_equal(n.moved, ways[i] == MOVES);
        assert_int_equal(n.shareable, ways[i] == MOVES ? PAGE : 2 * PAGE);
        assert_int_equal(account_used(f.account), engine_bytes_in_use(f.g));
        close_fixture(&f);
    }
}

static void views_follow(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x, whole;
    struct view odd = {.rank = 1, .shape = {N / 2}, .strides = {2}, .offset = 1};
    open_fixture_sharing(&f, MOVES);
    struct array *v = array_view(f.a, DT_F64, &odd);
    assert_int_equal(export(&f, v, true, &x), ERR_OK);
    assert_int_equal(x.exported.offset, sizeof(double));
    assert_true(array_is_exported(f.a) && array_written_outside(v));
    assert_int_equal(export(&f, f.a, false, &whole), ERR_OK);
    double *p = map(&x, true), *q = map(&whole, false);
    assert_true(p[0] == 1 && q[1] == 1 && p[2] == 3);
    p[0] = 77;
    assert_true(q[1] == 77);
    unmap(&x, p);
    unmap(&whole, q);
    end_export(&x);
    assert_true(array_is_exported(v) && !array_written_outside(v));
    end_export(&whole);
    array_unref(v);
    close_fixture(&f);
}

/* Who may read cannot write, nobody can make it shorter, and no program that is started gets it. */
static void what_a_descriptor_can_do(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct stat status;
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    open_fixture_sharing(&f, AT_ONCE);
    for (int write = 0; write <= 1; write++) {
        assert_int_equal(export(&f, f.a, write, &x), ERR_OK);
        int fd = x.exported.fd;
        void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_int_equal(p != MAP_FAILED, write);
        assert_true(write || errno == EACCES);
        assert_int_equal(pwrite(fd, "x", 1, 0), write ? 1 : -1);
        assert_int_equal(ftruncate(fd, 0), -1);
        assert_int_equal(ftruncate(fd, 2 * PAGE), -1);
        assert_int_equal(fcntl(fd, F_GET_SEALS) & seals, seals);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal(status.st_mode & 0777, 0600);
        assert_int_equal(status.st_size, PAGE);
        if (write)
            munmap(p, PAGE);
        end_export(&x);
    }
    close_fixture(&f);
}

/* Whom the export's piece of work waits for, of other streams: for reading the writer, for writing
 * the readers too; and it is told when that is over, not before. */
static void it_waits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool write = i & 1, moves = i & 2;
        struct fixture f;
        struct exporting x;
        _Atomic int done;
        struct engine_stream *other;
        open_fixture_sharing(&f, moves ? MOVES : AT_ONCE);
        struct engine_stream *own = f.s;
        assert_int_equal(engine_stream_new(f.g, 0, &other, NULL), ERR_OK);
        hold();
        f.s = other;
        assert_int_equal(evaluate(&f, "a + 1", f.b, NULL), ERR_OK); /* reads a, writes b */
        f.s = own;
        begin_export(&f, f.a, write, &x, &done);
        assert_int_equal(front.head->next->n_waits, write && !moves);
        end(ERR_OK);
        assert_int_equal(atomic_load(&done), WAITING);
        end(ERR_OK);
        assert_int_equal(atomic_load(&done), ERR_OK);
        end_export(&x);
        f.s = other;
        assert_int_equal(evaluate(&f, "a + 2", f.b, NULL), ERR_OK);
        f.s = own;
        begin_export(&f, f.b, write, &x, &done);
        assert_int_equal(front.head->next->n_waits, 1);
        end(ERR_OK);
        assert_int_equal(atomic_load(&done), WAITING);
        end(ERR_OK);
        assert_int_equal(atomic_load(&done), ERR_OK);
        double *p = map(&x, write);
        assert_true(p[0] == 2 && p[N - 1] == N + 1);
        unmap(&x, p);
        end_export(&x);
        engine_stream_unref(other);
        close_fixture(&f);
    }
}

static enum err_code upload_into(struct fixture *f, struct array *a, const double *values)
{
    struct upload *u;
    struct err e = ERR_INIT;
    assert_int_equal(upload_new(f->s, f->account, NBYTES, NULL, NULL, &u, NULL), ERR_OK);
    assert_int_equal(upload_push(u, values, (size_t)NBYTES), NBYTES);
    return upload_finish_into(u, a, &a->view, false, NULL, NULL, &e);
}

/* Writes that would bring a new storage go to the one that is exported. */
static void writes_stay(void **state)
{
    (void)state;
    static const double values[N] = {5, 4, 3, 2, 1, 0, 7, 6};
    static const enum err_code how[] = {ERR_OK, ERR_OUT_OF_MEMORY, ERR_DEVICE_LOST};
    struct fixture f;
    struct exporting x;
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(export(&f, f.a, false, &x), ERR_OK);
    double *p = map(&x, false);
    assert_int_equal(evaluate(&f, "shift(a, 1, 'wrap')", f.a, NULL), ERR_OK);
    for (int i = 0; i < N; i++)
        assert_true(p[i] == (i + 1) % N);
    holds_ramp(&f, f.a, 1);
    assert_int_equal(upload_into(&f, f.a, values), ERR_OK);
    assert_memory_equal(p, values, sizeof values);
    for (int i = 0; i < 6; i++) {
        const bool later = i & 1;
        front.at_once = later ? ERR_OK : how[i / 2];
        if (later)
            hold();
        enum err_code code = evaluate(&f, "shift(a, 1, 'wrap')", f.a, NULL);
        assert_int_equal(code, later ? ERR_OK : how[i / 2]);
        if (later)
            end(how[i / 2]);
        front.hold = false;
        bool shifted = how[i / 2] == ERR_OK;
        double got[N];
        for (int k = 0; k < N; k++)
            assert_true(p[k] == (shifted ? values[(k + 1 + i) % N] : values[(k + 2) % N]));
        assert_int_equal(read_all(&f, f.a, got), ERR_OK);
        assert_memory_equal(got, p, sizeof got);
    }
    unmap(&x, p);
    end_export(&x);
    /* afterwards memory is exchanged again */
    assert_int_equal(evaluate(&f, "shift(a, 1, 'wrap')", f.a, NULL), ERR_OK);
    close_fixture(&f);
}

/* A download is a snapshot: what is exported cannot be written under it. */
static void downloads(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x, y;
    double got[N];
    open_fixture_sharing(&f, AT_ONCE);
    struct download *d = begin_reading(&f, f.a);
    assert_int_equal(export(&f, f.a, true, &x), ERR_OK); /* elsewhere */
    double *p = map(&x, true);
    for (int i = 0; i < N; i++) {
        assert_true(p[i] == i);
        p[i] = (i + 5) % N;
    }
    assert_int_equal(finish_reading(d, got), ERR_OK);
    assert_true(got[0] == 0 && got[N - 1] == N - 1);
    holds_ramp(&f, f.a, 5);
    d = begin_reading(&f, f.a);
    assert_int_equal(evaluate(&f, "a + 1", f.a, NULL), ERR_CONFLICT);
    assert_int_equal(evaluate(&f, "shift(a, 1, 'wrap')", f.a, NULL), ERR_CONFLICT);
    assert_int_equal(export(&f, f.a, true, &y), ERR_CONFLICT);
    assert_null(y.export);
    assert_int_equal(export(&f, f.a, false, &y), ERR_OK);
    end_export(&y);
    assert_int_equal(finish_reading(d, got), ERR_OK);
    assert_int_equal(export(&f, f.a, true, &y), ERR_OK);
    end_export(&y);
    assert_int_equal(evaluate(&f, "(a + 1) % 8", f.a, NULL), ERR_OK);
    assert_true(p[0] == 6);
    unmap(&x, p);
    end_export(&x);
    holds_ramp(&f, f.a, 6);
    close_fixture(&f);
}

static void moved_out(void *user, enum err_code result, double device_ms)
{
    (void)device_ms;
    atomic_store((_Atomic int *)user, (int)result);
}

static enum err_code evict(struct fixture *f)
{
    _Atomic int done = WAITING;
    struct eviction v = {
        .bytes = NBYTES, .until = UINT64_MAX, .again = true, .done = moved_out, .user = &done};
    engine_evict(f->g, &v);
    while (atomic_load(&done) == WAITING)
        usleep(100);
    return (enum err_code)atomic_load(&done);
}

static void it_stays_where_it_is(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x, y;
    struct err e = ERR_INIT;
    _Atomic int done = WAITING;
    open_fixture_sharing(&f, AT_ONCE);
    assert_true(array_exchanges(f.a, f.b));
    assert_int_equal(export(&f, f.a, false, &x), ERR_OK);
    assert_int_equal(export(&f, f.b, false, &y), ERR_OK);
    assert_int_equal(engine_move(f.s, f.a, true, moved_out, &done, &e), ERR_CONFLICT);
    assert_int_equal(evict(&f), ERR_OVERLOADED);
    assert_false(array_in_host_memory(f.a) || array_in_host_memory(f.b));
    end_export(&y);
    assert_false(array_exchanges(f.a, f.b));
    assert_int_equal(engine_swap(f.s, f.a, f.b, &e), ERR_CONFLICT);
    end_export(&x);
    assert_int_equal(engine_swap(f.s, f.a, f.b, &e), ERR_CONFLICT); /* it may be mapped still */
    struct exchange version = {f.a, f.b, array_version(f.a)};
    assert_int_equal(engine_exchange(f.s, &version, 1, &e), ERR_PRECONDITION_FAILED);
    holds_ramp(&f, f.a, 0);
    holds(&f, f.b, 100);
    assert_int_equal(evict(&f), ERR_OK);
    assert_true(array_in_host_memory(f.a)); /* of the two the one used longest ago */
    mover_dig(f.g->mover);

    /* and from there */
    assert_int_equal(export(&f, f.a, false, &x), ERR_OK);
    assert_false(array_in_host_memory(f.a));
    double *p = map(&x, false);
    assert_true(p[0] == 0 && p[N - 1] == N - 1);
    unmap(&x, p);
    end_export(&x);
    mover_dig(f.g->mover);
    assert_int_equal(engine_host_bytes(f.g), 0);
    assert_int_equal(account_used(f.account), 2 * PAGE);
    close_fixture(&f);
}

/* Whoever keeps his mapping sees what he had, and nothing of anybody else. */
static void memory_is_not_given_to_others(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *others[50];
    struct scalar secret = {.dtype = DT_F64, .v.f64 = 4242};
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(export(&f, f.a, true, &x), ERR_OK);
    double *p = map(&x, true);
    end_export(&x);
    array_unref(f.a);
    mover_dig(f.g->mover);
    for (int i = 0; i < 50; i++)
        assert_int_equal(engine_full(f.s, f.account, secret, 1, (int64_t[]){N}, &others[i], NULL),
                         ERR_OK);
    for (int i = 0; i < N; i++) {
        assert_true(p[i] == i);
        p[i] = -1;
    }
    for (int i = 0; i < 50; i++) {
        holds(&f, others[i], 4242);
        array_unref(others[i]);
    }
    unmap(&x, p);
    f.a = NULL;
    close_fixture(&f);
}

/* What nobody was given is used again, by arrays of its size and unless zeros are asked for. */
static void memory_is_used_again(void **state)
{
    (void)state;
    struct fixture f;
    struct array *c;
    struct scalar value = {.dtype = DT_F64, .v.f64 = 77};
    const int64_t n = N, less = N - 1;
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(engine_full(f.s, f.account, value, 1, &n, &c, NULL), ERR_OK);
    array_unref(c);
    assert_int_equal(mover_kept(f.g->mover, 0), PAGE);
    int64_t bytes = engine_bytes_in_use(f.g);
    assert_int_equal(engine_zeros(f.s, f.account, DT_F64, 1, &n, &c, NULL), ERR_OK);
    assert_int_equal(mover_kept(f.g->mover, 0), PAGE);
    holds(&f, c, 0);
    array_unref(c);
    assert_int_equal(mover_kept(f.g->mover, 0), 2 * PAGE);
    assert_int_equal(engine_empty(f.s, f.account, DT_F64, 1, &less, &c, NULL), ERR_OK);
    assert_int_equal(mover_kept(f.g->mover, 0), 2 * PAGE);
    array_unref(c);
    mover_dig(f.g->mover);
    assert_int_equal(mover_kept(f.g->mover, 0), 0);
    array_unref(f.b);
    const void *was = buffer_storage(f.a->buffer)->data;
    array_unref(f.a);
    assert_int_equal(engine_full(f.s, f.account, value, 1, &n, &f.a, NULL), ERR_OK);
    assert_ptr_equal(buffer_storage(f.a->buffer)->data, was); /* the last that was let go of */
    holds(&f, f.a, 77);
    f.b = NULL;
    assert_int_equal(engine_bytes_in_use(f.g), bytes - PAGE);
    close_fixture(&f);
}

/* The work behind the contents, or the move, fails. */
static void work_that_fails(void **state)
{
    (void)state;
    static const enum err_code how[] = {ERR_OUT_OF_MEMORY, ERR_DEVICE_LOST};
    for (int i = 0; i < 8; i++) {
        const bool later = i & 1, write = i & 2;
        struct fixture f;
        struct exporting x;
        _Atomic int done;
        int open = descriptors();
        open_fixture_sharing(&f, MOVES);
        front.at_once = later ? ERR_OK : how[i / 4];
        if (later)
            hold();
        begin_export(&f, f.a, write, &x, &done);
        assert_int_equal(atomic_load(&done), later ? WAITING : (int)how[i / 4]);
        if (later)
            end(how[i / 4]);
        assert_int_equal(atomic_load(&done), how[i / 4]);
        assert_true(x.exported.fd == -1 && !x.export && *x.err.message);
        assert_int_equal(x.err.code, how[i / 4]);
        assert_false(array_is_exported(f.a) || array_written_outside(f.a));
        front.hold = false;
        holds_ramp(&f, f.a, 0);
        assert_int_equal(export(&f, f.a, write, &x), ERR_OK);
        end_export(&x);

        hold(); /* what is exported never came */
        struct array *sum = NULL;
        assert_int_equal(evaluate(&f, "a + b", NULL, &sum), ERR_OK);
        begin_export(&f, sum, write, &x, &done);
        end(how[i / 4]);
        end(ERR_OK);
        assert_int_equal(atomic_load(&done), how[i / 4]);
        front.hold = false;
        array_unref(sum);
        struct export_figures n;
        engine_export_figures(f.g, &n);
        assert_int_equal(n.readers + n.writers + n.bytes, 0);
        close_fixture(&f);
        assert_int_equal(descriptors(), open);
    }
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool moves = i & 1, write = i & 2;
        int64_t live = mem_live();
        int open = descriptors();
        bool struck = true;
        for (int nth = 1; struck; nth++) {
            struct fixture f;
            struct exporting x;
            open_fixture_sharing(&f, moves ? MOVES : AT_ONCE);
            mem_fail_after(nth, false);
            enum err_code code = export(&f, f.a, write, &x);
            struck = mem_failed() > 0;
            mem_fail_after(0, false);
            assert_true(code == ERR_OK || (struck && code == ERR_OUT_OF_MEMORY));
            if (code == ERR_OK)
                end_export(&x);
            assert_false(array_is_exported(f.a));
            holds_ramp(&f, f.a, 0);
            close_fixture(&f);
            assert_int_equal(mem_live(), live);
            assert_int_equal(descriptors(), open);
            assert_true(nth < 100);
        }
    }
}

static void refusals(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *none;
    open_fixture(&f);
    assert_string_equal(engine_export_problem(f.g, 0), "exports are off");
    assert_int_equal(export(&f, f.a, false, &x), ERR_FORBIDDEN);
    close_fixture(&f);
    open_fixture_sharing(&f, MOVES);
    assert_null(engine_export_problem(f.g, 0));
    assert_int_equal(engine_zeros(f.s, f.account, DT_F64, 1, (int64_t[]){0}, &none, NULL), ERR_OK);
    assert_int_equal(export(&f, none, false, &x), ERR_CONFLICT);
    array_unref(none);
    account_set_limits(f.account, 2 * NBYTES + PAGE - NBYTES - 1, 0); /* a byte too little */
    assert_int_equal(export(&f, f.a, false, &x), ERR_QUOTA);
    holds_ramp(&f, f.a, 0);
    account_set_limits(f.account, 2 * NBYTES + PAGE - NBYTES, 0);
    assert_int_equal(export(&f, f.a, false, &x), ERR_OK);
    end_export(&x);
    close_fixture(&f);
}

/* A few descriptors: arrays are made all the same, and what cannot be exported says so. */
static void descriptors_run_out(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct rlimit was, few;
    struct array *all[40] = {NULL};
    int exported = 0, open = descriptors();
    struct scalar one = {.dtype = DT_F64, .v.f64 = 1};
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 64; /* 16 for these two and the next, 32 for what is exported */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 40; i++)
        assert_int_equal(engine_full(f.s, f.account, one, 1, (int64_t[]){N}, &all[i], NULL),
                         ERR_OK);
    struct export_figures n;
    engine_export_figures(f.g, &n);
    assert_int_equal(n.shareable, 16 * PAGE);
    for (int i = 0; i < 40; i++) {
        enum err_code code = export(&f, all[i], false, &x);
        assert_int_equal(code, exported < 30 ? ERR_OK : ERR_OVERLOADED);
        exported += code == ERR_OK;
        holds(&f, all[i], 1);
        if (code == ERR_OK)
            end_export(&x);
        else
            assert_non_null(strstr(x.err.message, "file descriptors"));
    }
    int taken[64], n_taken = 0; /* by somebody else */
    while ((taken[n_taken] = dup(0)) >= 0)
        n_taken++;
    assert_int_equal(export(&f, all[0], false, &x), ERR_OVERLOADED);
    while (n_taken)
        close(taken[--n_taken]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    for (int i = 0; i < 40; i++)
        array_unref(all[i]);
    close_fixture(&f);
    assert_int_equal(descriptors(), open);
}

static void nothing_leaks(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *c;
    int64_t live = mem_live();
    int open = descriptors();
    open_fixture_sharing(&f, MOVES);
    for (int i = 0; i < 1000; i++) {
        struct scalar value = {.dtype = DT_F64, .v.f64 = i};
        assert_int_equal(engine_full(f.s, f.account, value, 1, (int64_t[]){N}, &c, NULL), ERR_OK);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(export(&f, c, k, &x), ERR_OK);
            double *p = map(&x, k);
            assert_true(p[N - 1] == i);
            unmap(&x, p);
            end_export(&x);
        }
        array_unref(c);
    }
    mover_dig(f.g->mover);
    assert_int_equal(descriptors(), open);
    assert_int_equal(engine_bytes_in_use(f.g), 2 * NBYTES);
    close_fixture(&f);
    assert_int_equal(mem_live(), live);
    assert_int_equal(descriptors(), open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways),
        cmocka_unit_test(views_follow),
        cmocka_unit_test(what_a_descriptor_can_do),
        cmocka_unit_test(it_waits),
        cmocka_unit_test(writes_stay),
        cmocka_unit_test(downloads),
        cmocka_unit_test(it_stays_where_it_is),
        cmocka_unit_test(memory_is_not_given_to_others),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(work_that_fails),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(refusals),
        cmocka_unit_test(descriptors_run_out),
        cmocka_unit_test(nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
