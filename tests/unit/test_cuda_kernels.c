/* Kernels on their way to the device, on the CUDA backend over the fake driver: code on disk that
 * the driver refuses, failed kernels that are tried again just then, and whose turn it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/engine/engine.h"
#include "compute/gpu/code/kcache_disk.h"
#include "compute/gpu/cuda/prepare.h"
#include "compute/ir/ir_build.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_arrays.h"

#define N 1000

/* --- code on disk --- */

static char dir[] = "/tmp/arrayd-kernels-XXXXXX";

/* Evaluates something with the folder as it is: how many texts were compiled for it. */
static long evaluate_over(int64_t *ret_disk_errors)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct engine *g = NULL;
    struct engine_stream *s = NULL;
    struct array *a = NULL;
    struct download *d = NULL;
    struct err e = ERR_INIT;
    struct literal from = {.kind = LIT_INT, .i = 5}, to = {.kind = LIT_INT, .i = 5 + N},
                   step = {.kind = LIT_INT, .i = 1};
    struct account *account = account_new(0);
    double got[N];
    int tries = 0;
    long compiled = fake_nvrtc_calls();
    config.backend = "cuda";
    config.device.slab_memory = 8 << 20;
    config.device.kernel_cache = dir;
    config.device.kernel_cache_bytes = 1 << 30;
    if (engine_open(&config, &g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(engine_stream_new(g, 0, &s, &e), ERR_OK);
    assert_int_equal(engine_arange(s, account, DT_F64, &from, &to, &step, &a, &e), ERR_OK);
    assert_int_equal(download_new(s, a, NULL, NULL, &d, &e), ERR_OK);
    for (size_t at = 0; at < sizeof got;) {
        int64_t n = download_pull(d, (int64_t)at, (char *)got + at, sizeof got - at);
        assert_true(n >= 0);
        at += (size_t)n;
        if (!n)
            pause_a_little(&tries);
    }
    for (int i = 0; i < N; i++)
        assert_true(got[i] == 5 + i);
    download_free(d);
    array_unref(a);
    engine_stream_unref(s);
    struct strb metrics = {0};
    engine_metrics(g, &metrics);
    const char *errors = strstr(metrics.data, "\narrayd_cuda_kernel_cache_disk_errors_total ");
    assert_non_null(errors);
    *ret_disk_errors = atoll(strchr(errors, ' '));
    strb_free(&metrics);
    assert_true(engine_close(g));
    account_unref(account);
    return fake_nvrtc_calls() - compiled;
}

/* Stored as it should be, but no code. */
static void damage(const char *name)
{
    static const char no_code[] = "no code at all, whatever its checksum says";
    struct kcache_disk disk;
    struct code_key key;
    unsigned byte;
    assert_int_equal(strlen(name), 2 * sizeof key.sha);
    for (size_t i = 0; i < sizeof key.sha; i++) {
        assert_int_equal(sscanf(name + 2 * i, "%2x", &byte), 1);
        key.sha[i] = (uint8_t)byte;
    }
    kcache_disk_open(&disk, dir, NULL, 1 << 30);
    kcache_disk_store(&disk, &key, no_code, sizeof no_code);
    assert_int_equal(disk.errors, 0);
    kcache_disk_close(&disk);
}

static void delete (const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

/* Every file of the folder; how many. */
static int each_file(void (*what)(const char *name))
{
    char names[8][256];
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (entry->d_name[0] != '.' && n < 8)
            strcpy(names[n++], entry->d_name);
    closedir(d);
    for (int i = 0; i < n; i++)
        what(names[i]);
    return n;
}

static void code_that_does_not_load_is_compiled_anew(void **state)
{
    (void)state;
    int64_t errors;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(evaluate_over(&errors), 2); /* the backend's own and ours */
    assert_int_equal(errors, 0);
    assert_int_equal(evaluate_over(&errors), 0);
    assert_int_equal(errors, 0);
    assert_int_equal(each_file(damage), 2);
    assert_int_equal(evaluate_over(&errors), 2);
    assert_int_equal(errors, 2);
    assert_int_equal(evaluate_over(&errors), 0); /* there it is again, and well */
    assert_int_equal(errors, 0);
    assert_int_equal(each_file(delete), 2);
    assert_int_equal(rmdir(dir), 0);
}

/* --- trying again --- */

static struct {
    struct driver driver;
    const struct driver *real;
    struct ir_kernel *kernel;
    int looks;
} spied;

static CUresult record_while_tried_again(CUevent event, CUstream on)
{
    struct prepared *p = atomic_load(&spied.kernel->prepared);
    spied.looks++;
    atomic_store(&p->state, PREPARED_COMPILING);
    return spied.real->cuEventRecord(event, on);
}

/* N zeros of a dtype, each of which is a text of its own. */
static void make_kernel(struct arena *arena, enum dtype dtype, struct ir_kernel *ret)
{
    struct ir_ctx c = {.rank = 1, .shape = {N}, .step = {1}};
    struct ir_builder build;
    *ret = (struct ir_kernel){.rank = 1, .shape = {N}};
    ir_builder_init(&build, arena, ret);
    ir_add_ctx(&build, &c);
    struct ir_output o = {.node = ir_emit_const(&build, (struct scalar){.dtype = dtype}),
                          .slot = 0,
                          .dtype = dtype,
                          .view = {.rank = 1, .shape = {N}, .strides = {1}}};
    assert_true(ir_add_output(&build, &o));
}

static void job_done(struct job *job)
{
    atomic_store((_Atomic bool *)job->user, true);
}

/* What a kernel failed with is what its job is told, also where another request has it tried again
 * while that job is being launched. */
static void what_failed_is_told_for_what_it_was(void **state)
{
    (void)state;
    struct backend_config config = {.slab_memory = 8 << 20};
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    struct backend_stream *s = NULL;
    _Atomic bool told = false;
    void *memory = NULL;
    int tries = 0;
    if (backend_open("cuda", &config, &b, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(b->ops->stream_new(b, 0, false, &s, &e), ERR_OK);
    assert_int_equal(b->ops->alloc(b, 0, 8 * N, false, &memory, &e), ERR_OK);

    struct arena *arena = arena_new(0);
    struct ir_kernel k;
    make_kernel(arena, DT_F64, &k);

    fake_nvrtc_fail(1, 0);
    b->ops->prepare(b, 0, &k, NULL);
    struct prepared *p = atomic_load(&k.prepared);
    while (atomic_load(&p->state) == PREPARED_COMPILING)
        pause_a_little(&tries);
    assert_int_equal(atomic_load(&p->state), ERR_INTERNAL);

    struct cuda *cuda = (struct cuda *)b;
    spied.real = cuda->driver;
    spied.driver = *cuda->driver;
    spied.driver.cuEventRecord = record_while_tried_again;
    spied.kernel = &k;
    cuda->driver = &spied.driver;
    struct job job = {.kernels = (struct ir_kernel *[]){&k},
                      .n_kernels = 1,
                      .slots = (void *[]){memory},
                      .done = job_done,
                      .user = &told};
    b->ops->submit(s, &job);
    while (!atomic_load(&told))
        pause_a_little(&tries);
    assert_int_equal(job.result, ERR_INTERNAL);
    assert_true(job.untouched && job.refusal);
    assert_int_equal(spied.looks, 0);
    cuda->driver = spied.real;

    b->ops->release(b, &k);
    b->ops->free(b, 0, memory, 8 * N);
    b->ops->stream_free(s);
    backend_close(b);
    arena_free(arena);
}

/* --- turns --- */

enum { FIRST, OTHERS = 4, NEWCOMER, LAST };

static bool is_ready(struct ir_kernel *k)
{
    struct prepared *p = atomic_load(&k->prepared);
    return atomic_load(&p->state) == PREPARED_READY;
}

/* Who has many compilations waiting keeps nobody else's from its turn; his own are in order. */
static void users_have_their_turns(void **state)
{
    (void)state;
    const enum dtype dtypes[] = {DT_F64, DT_F32, DT_I64, DT_I32, DT_U64, DT_I16, DT_U32};
    const int order[] = {FIRST, 1, NEWCOMER, 2, LAST, 3, OTHERS};
    struct backend_config config = {.slab_memory = 8 << 20, .compile_threads = 1};
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    struct ir_kernel k[LAST + 1];
    struct arena *arena = arena_new(0);
    char crowd, alone;
    if (backend_open("cuda", &config, &b, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.message);
    fake_nvrtc_hold();
    const long before = fake_nvrtc_calls();
    for (int i = 0; i <= LAST; i++) {
        int tries = 0;
        make_kernel(arena, dtypes[i], &k[i]);
        b->ops->prepare(b, 0, &k[i], i < NEWCOMER ? &crowd : &alone);
        while (i == FIRST && fake_nvrtc_calls() == before)
            pause_a_little(&tries); /* the thread has it */
    }
    for (int i = 0; i <= LAST; i++) {
        int tries = 0;
        fake_nvrtc_pass(1);
        while (!is_ready(&k[order[i]]))
            pause_a_little(&tries);
        for (int j = i + 1; j <= LAST; j++)
            assert_false(is_ready(&k[order[j]]));
    }
    fake_nvrtc_pass(-1);
    for (int i = 0; i <= LAST; i++)
        b->ops->release(b, &k[i]);
    backend_close(b);
    arena_free(arena);
}

/* A text for the compiler alone. */
static struct prepared *text_of(struct cuda *c, enum dtype dtype)
{
    struct arena *arena = arena_new(0);
    struct ir_kernel *k = arena_alloc(arena, sizeof *k);
    make_kernel(arena, dtype, k);
    struct prepared *p =
        prepared_of(&c->devices[0], arena,
                    emit_within(arena, k, SLOT_ALIGNMENT, c->devices[0].shared, 1), false);
    assert_non_null(p);
    return p;
}

#define TEXTS 9

/* Text 0 is being compiled; nobody waits for 1 to 4, of the same user, and somebody for 5 to 8. The
 * one that is hurried passes the others, even where it was the first or the last of them; each time
 * that three were waited for, one that is not has its turn. */
static void who_is_waited_for_passes_alone(void **state)
{
    (void)state;
    const enum dtype dtypes[TEXTS] = {DT_F64, DT_F32, DT_I64, DT_I32, DT_U64,
                                      DT_I16, DT_U32, DT_U16, DT_I8};
    const struct {
        int hurried, order[TEXTS];
    } cases[] = {{0, {0, 5, 6, 1, 7, 8, 2, 3, 4}}, /* it has begun: nothing is moved */
                 {1, {0, 5, 1, 2, 6, 7, 8, 3, 4}},
                 {3, {0, 5, 3, 1, 6, 7, 8, 2, 4}},
                 {4, {0, 5, 4, 1, 6, 7, 8, 2, 3}}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct backend_config config = {.slab_memory = 8 << 20, .compile_threads = 1};
        struct backend *b = NULL;
        struct err e = ERR_INIT;
        struct prepared *p[TEXTS];
        char crowd, alone;
        if (backend_open("cuda", &config, &b, NULL, 0, &e) != ERR_OK)
            fail_msg("%s", e.message);
        fake_nvrtc_hold();
        const long before = fake_nvrtc_calls();
        for (int i = 0; i < TEXTS; i++) {
            int tries = 0;
            p[i] = text_of((struct cuda *)b, dtypes[i]);
            prepared_compile(p[i], i < 5 ? &crowd : &alone, i == 0 || i >= 5);
            while (i == 0 && fake_nvrtc_calls() == before)
                pause_a_little(&tries); /* the thread has it */
        }
        prepared_hurry(p[cases[n].hurried]);
        for (int i = 0; i < TEXTS; i++) {
            int tries = 0;
            fake_nvrtc_pass(1);
            while (atomic_load(&p[cases[n].order[i]]->state) != PREPARED_READY)
                pause_a_little(&tries);
            for (int j = i + 1; j < TEXTS; j++)
                assert_int_equal(atomic_load(&p[cases[n].order[j]]->state), PREPARED_COMPILING);
            prepared_hurry(p[cases[n].order[i]]); /* it is there: nothing is moved */
        }
        fake_nvrtc_pass(-1);
        for (int i = 0; i < TEXTS; i++)
            prepared_unref(p[i]);
        backend_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_that_does_not_load_is_compiled_anew),
        cmocka_unit_test(what_failed_is_told_for_what_it_was),
        cmocka_unit_test(users_have_their_turns),
        cmocka_unit_test(who_is_waited_for_passes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
