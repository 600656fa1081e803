/* Bytes in and out of memory that lies on several GPUs, on the fake driver: which GPU copies them,
 * in the right order, whatever order the devices have. Run in each that the fake has, and again
 * where no device waits for another (ARRAYD_FAKE_FORGET): then the tests of the order must fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "compute/gpu/device/mesh.h"
#include "compute/gpu/transfer/slab.h"
#include "tests/backend/suite.h"

#define MB          (INT64_C(1) << 20)
#define SHARE       (4 * MB) /* of each GPU */
#define SLAB_MEMORY (8 * MB)
#define AWAY        (MB + MB / 2) /* copies go so far from where they were */

static struct backend *b;
static int mesh, n_gpus;
static struct backend_stream *stream;
static int64_t n;                 /* bytes of an array */
static char *one, *two;           /* arrays */
static char *host, *other, *back; /* pinned, as large */

static struct cuda_device *gpu(int k)
{
    return &((struct cuda *)b)->devices[k];
}

static char *device_memory(int64_t size)
{
    struct err e = ERR_INIT;
    void *p = NULL;
    if (b->ops->alloc(b, mesh, size, true, &p, &e) != ERR_OK)
        fail_msg("%s", e.message);
    return p;
}

static char *pinned(void)
{
    void *p = NULL;
    assert_int_equal(b->ops->host_alloc(b, n, NULL, &p, NULL), ERR_OK);
    memset(p, 0, (size_t)n);
    return p;
}

static int setup(void **state)
{
    (void)state;
    struct backend_config config = suite_config("cuda").device;
    struct err e = ERR_INIT;
    char note[128];
    config.slab_memory = SLAB_MEMORY;
    if (backend_open("cuda", &config, &b, note, sizeof note, &e) != ERR_OK) {
        print_message("%s\n", e.message);
        return -1;
    }
    mesh = b->ops->device_count(b) - 1;
    n_gpus = mesh;
    n = n_gpus * SHARE;
    if (b->ops->stream_new(b, mesh, false, &stream, &e) != ERR_OK)
        return -1;
    one = device_memory(n);
    two = device_memory(n);
    host = pinned();
    other = pinned();
    back = pinned();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    b->ops->free(b, mesh, one, n);
    b->ops->free(b, mesh, two, n);
    b->ops->stream_free(stream);
    b->ops->host_free(b, host, n, false);
    b->ops->host_free(b, other, n, false);
    b->ops->host_free(b, back, n, false);
    backend_close(b);
    return 0;
}

/* --- jobs and transfers --- */

static void job_done(struct job *job)
{
    atomic_store((_Atomic bool *)job->user, true);
}

static void submit(struct job *job, _Atomic bool *done)
{
    atomic_store(done, false);
    job->done = job_done;
    job->user = (void *)done;
    assert_int_not_equal(b->ops->submit(stream, job), 0);
}

static void await(_Atomic bool *flag)
{
    const time_t begun = time(NULL);
    while (!atomic_load(flag)) {
        sched_yield();
        if (time(NULL) - begun > 60)
            fail_msg("nothing came for a minute");
    }
}

/* Until everything has run, also where nobody waited for it. */
static void settle(void)
{
    for (int k = 0; k < n_gpus; k++) {
        const struct driver *v = gpu(k)->cuda->driver;
        assert_true(cuda_enter(gpu(k)));
        assert_int_equal(v->cuStreamSynchronize(stream->mesh[k].cu), CUDA_SUCCESS);
        for (int q = 0; q < 6; q++)
            assert_int_equal(v->cuStreamSynchronize(slab_stream(gpu(k)->slabs, q)), CUDA_SUCCESS);
    }
}

static void copy(void *to, const void *from, int64_t bytes, enum copy_way way)
{
    const struct job_copy block = {to, from, bytes, way};
    struct job job = {.copies = &block, .n_copies = 1};
    _Atomic bool done;
    submit(&job, &done);
    await(&done);
    assert_int_equal(job.result, ERR_OK);
    settle();
}

struct client {
    struct transfer *t;
    _Atomic bool woken, released;
};

static void woken(void *user)
{
    atomic_store(&((struct client *)user)->woken, true);
}

static void released(void *user)
{
    atomic_store(&((struct client *)user)->released, true);
}

static void finish(struct client *c)
{
    b->ops->transfer_free(c->t, released, c);
    await(&c->released);
}

/* The upload is not ended. */
static void push(struct client *c, char *to, const char *from, int64_t bytes)
{
    struct err e = ERR_INIT;
    assert_int_equal(b->ops->upload_new(b, mesh, to, bytes, woken, c, &c->t, &e), ERR_OK);
    for (int64_t at = 0; at < bytes;) {
        size_t room;
        atomic_store(&c->woken, false);
        void *p = b->ops->upload_reserve(c->t, &room);
        if (!p) {
            await(&c->woken);
            continue;
        }
        memcpy(p, from + at, room);
        b->ops->upload_advance(c->t, room);
        at += (int64_t)room;
    }
    assert_int_equal(b->ops->upload_join(c->t, stream, &e), ERR_OK);
}

static void upload(char *to, const char *from, int64_t bytes)
{
    struct client c = {0};
    struct job nothing = {0};
    _Atomic bool done;
    push(&c, to, from, bytes);
    submit(&nothing, &done);
    await(&done);
    finish(&c);
}

static void pull(struct client *c, char *to, int64_t at, int64_t end)
{
    while (at < end) {
        atomic_store(&c->woken, false);
        const int64_t got = b->ops->download_pull(c->t, at, to + at, (size_t)(end - at));
        assert_true(got >= 0);
        if (!got)
            await(&c->woken);
        at += got;
    }
}

static struct client begin_download(const char *from, const struct view *v, size_t itemsize,
                                    struct client *c)
{
    struct err e = ERR_INIT;
    *c = (struct client){0};
    assert_int_equal(
        b->ops->download_new(b, mesh, (void *)(uintptr_t)from, v, itemsize, woken, c, &c->t, &e),
        ERR_OK);
    return *c;
}

static void download(const char *from, const struct view *v, size_t itemsize, char *to)
{
    struct client c;
    (void)begin_download(from, v, itemsize, &c);
    b->ops->download_start(c.t);
    pull(&c, to, 0, view_size(v) * (int64_t)itemsize);
    finish(&c);
}

static void fill(char *p, unsigned seed)
{
    for (int64_t i = 0; i + 4 <= n; i += 4)
        memcpy(p + i, &(uint32_t){((uint32_t)i + seed) * 2654435761u}, 4);
}

/* --- tests --- */

static struct cuda_slab_stats slabs_of(int k)
{
    struct cuda_slab_stats s;
    cuda_slab_stats(gpu(k), &s);
    return s;
}

/* Each GPU copies its own share: each share is a slab, or two where the first is small. */
static void shares(void **state)
{
    (void)state;
    const struct view flat = {.rank = 1, .shape = {n}, .strides = {1}};
    fill(host, 1);
    for (int down = 0; down < 2; down++) {
        int64_t before[BACKEND_PARTS];
        for (int k = 0; k < n_gpus; k++)
            before[k] = slabs_of(k).copies;
        if (down)
            download(one, &flat, 1, back);
        else
            upload(one, host, n);
        for (int k = 0; k < n_gpus; k++)
            assert_in_range(slabs_of(k).copies - before[k], 1, 2);
    }
    assert_memory_equal(back, host, (size_t)n);
    /* what is small lies on the first; of a part of the whole, its owner has the bytes */
    const int64_t before = slabs_of(0).copies;
    upload(one + n - 1000, host, 1000);
    assert_int_equal(slabs_of(0).copies, before);
    char *small = device_memory(1000);
    upload(small, host, 1000);
    assert_int_equal(slabs_of(0).copies, before + 1);
    b->ops->free(b, mesh, small, 1000);
    copy(back, one, n, COPY_OUT);
    assert_memory_equal(back, host, (size_t)n - 1000);
    assert_memory_equal(back + n - 1000, host, 1000);
}

static void check_view(const struct view *v)
{
    const int64_t size = view_size(v);
    memset(back, 0, (size_t)size * 4);
    download(one, v, 4, back);
    for (int64_t i = 0; i < size; i++) {
        int64_t at = v->offset, rest = i;
        for (int a = v->rank - 1; a >= 0; a--) {
            at += rest % v->shape[a] * v->strides[a];
            rest /= v->shape[a];
        }
        if (memcmp(back + 4 * i, host + 4 * at, 4) != 0)
            fail_msg("element %lld of the view", (long long)i);
    }
}

static void views(void **state)
{
    (void)state;
    const int64_t m = n / 4, rows = m / 1000;
    fill(host, 2);
    upload(one, host, n);
    check_view(&(struct view){1, {m / 2 - 3}, {2}, 1});
    check_view(&(struct view){1, {m - 5}, {-1}, m - 3});
    check_view(&(struct view){2, {1000, rows}, {1, 1000}, 0});
    check_view(&(struct view){2, {rows, 999}, {1000, 1}, 1});
    check_view(&(struct view){1, {300000}, {1}, SHARE / 4 - 150001});
}

/* More users than slabs, at any place, and others on the GPUs themselves; none stays hungry, and
 * no GPU has more slabs than it may. */
static void *worker(void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    char *got = malloc((size_t)n);
    for (int i = 0; i < 6; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int64_t from = (int64_t)((seed >> 33) % (uint64_t)n), size = (n - from) / 4 * 4 / 4;
        const struct view part = {1, {size}, {1}, from};
        struct client c;
        (void)begin_download(one, &part, 1, &c);
        b->ops->download_start(c.t);
        pull(&c, got, 0, size / 2);
        if (i % 3 == 0) /* elsewhere */
            pull(&c, got, 0, size / 8);
        if (i % 2 == 0)
            pull(&c, got, size / 2, size);
        assert_memory_equal(got, host + from, (size_t)(i % 2 ? size / 2 : size));
        finish(&c);
    }
    free(got);
    return NULL;
}

static void too_few_slabs(void **state)
{
    (void)state;
    pthread_t threads[8];
    fill(host, 3);
    upload(one, host, n);
    for (uintptr_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    for (int k = 0; k < n_gpus; k++) {
        for (int i = 0; i < 5000 && slabs_of(k).free_bytes != slabs_of(k).bytes; i++)
            usleep(1000);
        assert_int_equal(slabs_of(k).free_bytes, slabs_of(k).bytes);
        assert_true(slabs_of(k).bytes <= SLAB_MEMORY);
    }
}

/* --- order --- */

/* An upload; its bytes are copied to somewhere else, where they lie on other GPUs in part, and
 * overwritten; what was copied comes back. Nothing is waited for in between. */
static bool moves_in_order(bool up)
{
    const int64_t size = n - AWAY;
    char *to = up ? two + AWAY : two, *from = up ? one : one + AWAY;
    const struct job_copy copies[] = {
        {to, from, size, COPY_WITHIN}, {one, other, n, COPY_IN}, {back, two, n, COPY_OUT}};
    struct job jobs[3];
    _Atomic bool done[3];
    struct client c = {0};
    push(&c, one, host, n);
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct job){.copies = &copies[i], .n_copies = 1};
        submit(&jobs[i], &done[i]);
    }
    for (int i = 0; i < 3; i++)
        await(&done[i]);
    settle();
    finish(&c);
    return memcmp(back + (to - two), host + (from - one), (size_t)size) == 0;
}

/* What a job fetches is what its own copies, by all, have left. */
static bool fetches_in_order(int64_t at)
{
    const struct view part = {1, {1000}, {1}, at};
    const struct job_copy in = {one, host, n, COPY_IN};
    struct job job = {.copies = &in, .n_copies = 1};
    struct client c;
    char got[1000];
    _Atomic bool done;
    (void)begin_download(one, &part, 1, &c);
    job.fetch = c.t;
    submit(&job, &done);
    await(&done);
    pull(&c, got, 0, 1000);
    settle();
    finish(&c);
    return memcmp(got, host + at, 1000) == 0;
}

static int out_of_order(void)
{
    int wrong = 0;
    for (unsigned i = 0; i < 12; i++) {
        fill(host, 5 + 2 * i);
        fill(other, 6 + 2 * i);
        memset(back, 0, (size_t)n);
        wrong += !moves_in_order(i % 2);
        fill(host, 100 + i);
        wrong += !fetches_in_order(n - 5000) << 8;
    }
    return wrong;
}

static void order(void **state)
{
    (void)state;
    assert_int_equal(out_of_order(), 0);
    copy(back, one, n, COPY_OUT);
    assert_memory_equal(back, host, (size_t)n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares),
        cmocka_unit_test(views),
        cmocka_unit_test(too_few_slabs),
        cmocka_unit_test(order),
    };
    if (!getenv("ARRAYD_FAKE_FORGET"))
        return cmocka_run_group_tests(tests, setup, teardown);
    /* The first device's stream is the job's: what it reads too soon is seen where it is first. */
    const bool first = strcmp(getenv("ARRAYD_FAKE_ORDER"), "adverse-down") == 0;
    const int wrong = setup(NULL) == 0 ? out_of_order() : 0;
    print_message("moves out of order: %d, fetches: %d\n", wrong & 255, wrong >> 8);
    _exit((wrong & 255) > 0 && (wrong >> 8 > 0 || !first) ? 0 : 1); /* work may be left */
}
