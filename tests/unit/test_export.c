/* compute/export on the CPU backend: contents through another mapping, what an export waits for,
 * what stays in its place while it lasts, what becomes of it where something fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "compute/memory/reclaim.h"
#include "tests/unit/export_front.h"

#define FUTURE_WRITE 16 /* F_SEAL_FUTURE_WRITE */

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
        assert_int_equal(n.moved, 1 + (ways[i] == MOVES)); /* from what was for reading */
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
    assert_int_equal(export(&f, f.a, false, &whole), ERR_CONFLICT); /* not both at once */
    assert_int_equal(export(&f, f.a, true, &whole), ERR_OK);
    double *p = map(&x, true), *q = map(&whole, true);
    assert_true(p[0] == 1 && q[1] == 1 && p[2] == 3);
    p[0] = 77;
    assert_true(q[1] == 77);
    unmap(&x, p);
    unmap(&whole, q);
    end_export(&x);
    assert_true(array_is_exported(v) && array_written_outside(v));
    end_export(&whole);
    assert_true(!array_is_exported(v) && !array_written_outside(v));
    array_unref(v);
    close_fixture(&f);
}

static void cannot_be_reopened(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC); /* it is the same user's */
    assert_true(again >= 0);
    assert_true(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
    assert_int_equal(pwrite(again, "x", 1, 0), -1);
    close(again);
}

/* Who may read cannot write, nobody can make it shorter, and no program that is started gets it. */
static void what_a_descriptor_can_do(void **state)
{
    (void)state;
    static const struct {
        bool write, sealed;
    } asked[] = {{false, false}, {false, true}, {true, false}};
    struct fixture f;
    struct exporting x;
    struct stat status;
    open_fixture_sharing(&f, AT_ONCE);
    for (int i = 0; i < 3; i++) {
        const bool write = asked[i].write;
        assert_int_equal(export_so(&f, f.a, write, asked[i].sealed, &x), ERR_OK);
        int fd = x.exported.fd;
        const int seals =
            F_SEAL_SHRINK | F_SEAL_GROW | (asked[i].sealed ? FUTURE_WRITE | F_SEAL_SEAL : 0);
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
        if (asked[i].sealed)
            cannot_be_reopened(fd);
        end_export(&x);
    }
    close_fixture(&f);
}

/* Memory is moved where it was handed out sealed and is to be written, or where who had it for
 * writing has sealed it; else it stays, and what is in it always does. */
static void from_reading_to_writing(void **state)
{
    (void)state;
    static const struct {
        enum { SEALED, PLAIN, WRITE } how;
        bool moves;
        int seals; /* that the client sets */
    } turns[] = {{SEALED, false, 0},          {SEALED, false, 0}, {WRITE, true, 0},
                 {WRITE, false, 0},           {PLAIN, false, 0},  {WRITE, false, 0},
                 {SEALED, false, 0},          {PLAIN, false, 0},  {WRITE, true, F_SEAL_SEAL},
                 {WRITE, false, 0},           {PLAIN, false, 0},  {SEALED, true, 0},
                 {WRITE, true, FUTURE_WRITE}, {PLAIN, false, 0},  {WRITE, true, 0}};
    struct fixture f;
    struct exporting x;
    struct export_figures n;
    uint64_t moved = 0;
    open_fixture_sharing(&f, AT_ONCE);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        const bool write = turns[i].how == WRITE;
        assert_int_equal(export_so(&f, f.a, write, turns[i].how == SEALED, &x), ERR_OK);
        engine_export_figures(f.g, &n);
        assert_int_equal(n.moved - moved, turns[i].moves);
        moved = n.moved;
        double *p = map(&x, write);
        for (int k = 0; k < N; k++)
            assert_true(p[k] == k);
        unmap(&x, p);
        if (turns[i].seals)
            assert_int_equal(fcntl(x.exported.fd, F_ADD_SEALS, turns[i].seals), 0);
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
    assert_false(array_exchanges(f.a, f.b)); /* it may be mapped still */
    struct exchange version = {f.a, f.b, array_version(f.a)};
    assert_int_equal(engine_exchange(f.s, &version, 1, NULL, &e), ERR_PRECONDITION_FAILED);
    holds_ramp(&f, f.a, 0);
    holds(&f, f.b, 100);
    assert_int_equal(evict(&f), ERR_OK);
    assert_true(array_in_host_memory(f.a)); /* of the two the one used longest ago */
    reclaim_all(f.g->reclaim);

    /* and from there */
    assert_int_equal(export(&f, f.a, false, &x), ERR_OK);
    assert_false(array_in_host_memory(f.a));
    double *p = map(&x, false);
    assert_true(p[0] == 0 && p[N - 1] == N - 1);
    unmap(&x, p);
    end_export(&x);
    reclaim_all(f.g->reclaim);
    assert_int_equal(engine_host_bytes(f.g), 0);
    assert_int_equal(account_used(f.account), 2 * PAGE);
    close_fixture(&f);
}

/* Who keeps a mapping sees neither array afterwards. */
static void exchanged_after_its_end(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct err e = ERR_INIT;
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(export(&f, f.a, true, &x), ERR_OK);
    double *p = map(&x, true);
    assert_int_equal(engine_swap(f.s, f.a, f.b, &e), ERR_CONFLICT);
    end_export(&x);
    front.at_once = ERR_OUT_OF_MEMORY; /* where it cannot leave that memory nothing happens */
    assert_int_not_equal(engine_swap(f.s, f.a, f.b, &e), ERR_OK);
    front.at_once = ERR_OK;
    holds_ramp(&f, f.a, 0);
    assert_int_equal(engine_swap(f.s, f.a, f.b, &e), ERR_OK);
    p[0] = p[1] = 55;
    holds_ramp(&f, f.b, 0);
    holds(&f, f.a, 100);
    assert_true(array_exchanges(f.a, f.b));
    assert_int_equal(engine_swap(f.s, f.a, f.b, &e), ERR_OK);
    holds_ramp(&f, f.a, 0);
    unmap(&x, p);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways),
        cmocka_unit_test(views_follow),
        cmocka_unit_test(what_a_descriptor_can_do),
        cmocka_unit_test(from_reading_to_writing),
        cmocka_unit_test(it_waits),
        cmocka_unit_test(writes_stay),
        cmocka_unit_test(downloads),
        cmocka_unit_test(it_stays_where_it_is),
        cmocka_unit_test(exchanged_after_its_end),
        cmocka_unit_test(work_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
