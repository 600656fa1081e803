/* Exports between two processes, on a named backend: export_suite BACKEND [BYTES]. Exit 77 when the
 * backend is not available, or the device cannot share memory (which is said).
 *
 * The other process is this program once more (`peer`): it maps what it was given, through the CUDA
 * driver where that is a GPU's, looks at every element and writes it anew. Arrays are large ones,
 * which can be mapped from their creation, small ones, which are moved, and views. What the
 * daemon's side computes with them meanwhile and afterwards has to be right; a peer that is killed
 * leaves nothing behind; descriptors and bytes come back to where they were. With BYTES an array of
 * that size is exported and mapped, and how long that takes is printed as a line of JSON. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/engine/engine.h"
#include "compute/gpu/api/cuda_api.h"
#include "compute/memory/export.h"
#include "protocol/text/infix.h"
#include "tests/descriptors.h"

#define SKIPPED 77
#define PEER_FD 9
#define LEAST   (INT64_C(1) << 20)
#define SMALL   INT64_C(1000)      /* elements */
#define LARGE   (INT64_C(3) << 20) /* 12 MiB of float32, and no multiple of 2 MiB with one more */
#define KILLED  3
#define SLACK   (INT64_C(8) << 20) /* that the driver may come to need, page tables and the like */
#define ROUNDS  150                /* of each thread */
#define MANY    40                 /* with BYTES so many times more: */
#define MORE    25

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* --- the other process --- */

#define PEER_FUNCTIONS                                                                             \
    X(cuInit, "cuInit", (unsigned))                                                                \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *))                                               \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int))                                               \
    X(cuDeviceGetUuid, "cuDeviceGetUuid_v2", (CUuuid *, CUdevice))                                 \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))               \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext))                                             \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                            \
      (CUmemGenericAllocationHandle *, void *, int))                                               \
    X(cuMemAddressReserve, "cuMemAddressReserve",                                                  \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                            \
    X(cuMemMap, "cuMemMap",                                                                        \
      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))             \
    X(cuMemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))    \
    X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))                        \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))
#define X(name, symbol, args) static CUresult(*name) args;
PEER_FUNCTIONS
#undef X

static void load_driver(void)
{
    const char *given = getenv("ARRAYD_LIBCUDA");
    void *library = dlopen(given && *given ? given : "libcuda.so.1", RTLD_NOW);
    CHECK(library);
#define X(name, symbol, args)                                                                      \
    *(void **)(void *)&name = dlsym(library, symbol);                                              \
    CHECK(name);
    PEER_FUNCTIONS
#undef X
}

static CUdevice device_called(const char *uuid)
{
    int n = 0;
    CHECK(cuDeviceGetCount(&n) == 0);
    for (int i = 0; i < n; i++) {
        CUdevice d;
        CUuuid u;
        char text[64] = "GPU";
        CHECK(cuDeviceGet(&d, i) == 0 && cuDeviceGetUuid(&u, d) == 0);
        for (int k = 0; k < 16; k++)
            sprintf(text + strlen(text),
                    k == 0 || (k >= 4 && k <= 10 && k % 2 == 0) ? "-%02x" : "%02x", u.bytes[k]);
        if (!strcmp(text, uuid))
            return d;
    }
    CHECK(!"a device with that UUID");
    return -1;
}

static CUdeviceptr import(const char *uuid, size_t size)
{
    CUcontext context;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    load_driver();
    CHECK(cuInit(0) == 0);
    CUdevice d = device_called(uuid);
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, d},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuDevicePrimaryCtxRetain(&context, d) == 0 && cuCtxSetCurrent(context) == 0);
    CHECK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)PEER_FD,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0);
    CHECK(cuMemAddressReserve(&p, size, 0, 0, 0) == 0 && cuMemMap(p, size, 0, handle, 0) == 0);
    CHECK(cuMemSetAccess(p, size, &access, 1) == 0);
    return p;
}

/* Element i is to be first + i; with `write` it becomes first + i + 1000000. What is behind the
 * array's bytes has to be zero. */
static int peer(char **argv)
{
    const char *uuid = argv[0];
    const size_t size = strtoull(argv[1], NULL, 10), offset = strtoull(argv[2], NULL, 10),
                 n = strtoull(argv[3], NULL, 10), end = strtoull(argv[4], NULL, 10);
    const float first = strtof(argv[5], NULL);
    const bool write = !strcmp(argv[6], "write"), stay = !strcmp(argv[7], "stay");
    const bool cuda = *uuid != '-';
    float *values;
    CUdeviceptr from = 0;
    if (cuda) {
        from = import(uuid, size);
        values = malloc(size);
        CHECK(values && cuMemcpyDtoH(values, from, size) == 0);
    } else {
        values =
            mmap(NULL, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, PEER_FD, 0);
        CHECK(values != MAP_FAILED);
        CHECK(write ||
              mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, PEER_FD, 0) == MAP_FAILED);
    }
    float *mine = values + offset / sizeof *values;
    for (size_t i = 0; i < n; i++)
        CHECK(mine[i] == first + (float)i);
    for (size_t i = end; i < size; i++)
        CHECK(((char *)values)[i] == 0);
    for (size_t i = 0; i < n && write; i++)
        mine[i] = first + (float)i + 1000000;
    if (cuda && write)
        CHECK(cuMemcpyHtoD(from + offset, mine, n * sizeof *mine) == 0 && cuCtxSynchronize() == 0);
    puts("ready");
    fflush(stdout);
    while (stay)
        pause();
    if (cuda)
        free(values);
    return 0;
}

static const char *program;

/* Starts a peer with what is exported; comes back when it is over, or has said that it is ready. */
static pid_t start_peer(const struct exporting *x, int64_t n, int64_t end, float first, bool stay)
{
    char size[32], offset[32], count[32], last[32], from[32];
    int said[2];
    snprintf(size, sizeof size, "%lld", (long long)x->exported.size);
    snprintf(offset, sizeof offset, "%lld", (long long)x->exported.offset);
    snprintf(count, sizeof count, "%lld", (long long)n);
    snprintf(last, sizeof last, "%lld", (long long)end);
    snprintf(from, sizeof from, "%.9g", (double)first);
    CHECK(pipe2(said, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int memory = fcntl(x->exported.fd, F_DUPFD, PEER_FD + 1), /* one may be PEER_FD now */
            out = fcntl(said[1], F_DUPFD, PEER_FD + 1);
        if (dup2(memory, PEER_FD) < 0 || dup2(out, 1) < 0 || close(memory) || close(out))
            _exit(2);
        execl(program, program, "peer", *x->exported.uuid ? x->exported.uuid : "-", size, offset,
              count, last, from, x->write ? "write" : "read", stay ? "stay" : "go", (char *)NULL);
        _exit(3);
    }
    char word[16] = "";
    close(said[1]);
    ssize_t got = read(said[0], word, sizeof word - 1);
    CHECK(got > 0 && !strncmp(word, "ready", 5));
    close(said[0]);
    return pid;
}

static void run_peer(const struct exporting *x, int64_t n, int64_t end, float first)
{
    int status;
    pid_t pid = start_peer(x, n, end, first, false);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- this one --- */

struct suite {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    struct array *a;
};

static void told(struct exporting *x)
{
    atomic_store((_Atomic bool *)x->user, true);
}

static void ask(struct suite *t, struct array *a, bool write, struct exporting *x)
{
    _Atomic bool done = false;
    *x = (struct exporting){.array = a, .write = write, .done = told, .user = (void *)&done};
    engine_export(t->s, x);
    while (!atomic_load(&done))
        usleep(20);
}

static void export(struct suite *t, struct array *a, bool write, struct exporting *x)
{
    ask(t, a, write, x);
    if (x->code != ERR_OK)
        fprintf(stderr, "%s\n", x->err.message);
    CHECK(x->code == ERR_OK);
}

static void end_export(struct exporting *x)
{
    close(x->exported.fd);
    engine_export_end(x->export);
}

static struct array *arange(struct suite *t, int64_t n)
{
    struct literal from = {.kind = LIT_INT}, step = {.kind = LIT_INT, .i = 1},
                   to = {.kind = LIT_INT, .i = (uint64_t)n};
    struct array *a = NULL;
    CHECK(engine_arange(t->s, t->account, DT_F32, &from, &to, &step, &a, NULL) == ERR_OK);
    return a;
}

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    const struct suite *t = user;
    (void)name, (void)e;
    *ret = (struct binding){
        .kind = BINDING_ARRAY, .array = t->a, .dtype = t->a->dtype, .view = t->a->view};
    return ERR_OK;
}

static enum err_code try_to(struct suite *t, const char *text, struct array *out)
{
    struct arena *arena = arena_new(0);
    struct expr expr;
    struct err e = ERR_INIT;
    struct check_env env = {.resolve = resolve, .user = t, .max_inputs = 64};
    struct array *ret = NULL;
    uint32_t source;
    expr_init(&expr, arena, 1000, 400);
    CHECK(expr_add_source(&expr, "/expr", &source, NULL) == ERR_OK);
    CHECK(infix_parse(&expr, source, text, strlen(text), &expr.root, &e) == ERR_OK);
    struct eval_request req = {.expr = &expr, .env = &env, .dtype = -1, .out = out};
    enum err_code code = engine_evaluate(t->s, t->account, &req, &ret, NULL, NULL, NULL, &e);
    array_unref(ret);
    arena_free(arena);
    return code;
}

static void evaluate(struct suite *t, const char *text, struct array *out)
{
    CHECK(try_to(t, text, out) == ERR_OK);
}

/* The elements are first + i, by a download. */
static void holds(struct suite *t, struct array *a, float first)
{
    struct download *d = NULL;
    static float block[4096];
    int64_t n = array_nbytes(a);
    CHECK(download_new(t->s, a, NULL, NULL, &d, NULL) == ERR_OK);
    for (int64_t at = 0; at < n;) {
        int64_t got = download_pull(d, at, block, sizeof block);
        CHECK(got >= 0);
        for (int64_t i = 0; i < got / 4; i++)
            CHECK(block[i] == first + (float)(at / 4 + i));
        if (got == 0)
            usleep(20);
        at += got;
    }
    download_free(d);
}

/* Read by a peer, written over here while it is exported, read by another, written by one, and
 * computed with. */
static void both_ways(struct suite *t, int64_t n, bool view)
{
    struct exporting x;
    struct array *whole = arange(t, n);
    struct view v = {.rank = 1, .shape = {n - 100}, .strides = {1}, .offset = 100};
    struct array *a = view ? array_view(whole, DT_F32, &v) : array_ref(whole);
    const int64_t from = view ? 100 : 0, end = n * 4;
    t->a = a;
    export(t, a, false, &x);
    CHECK(x.exported.offset == from * 4 && x.exported.size >= end);
    CHECK(x.exported.cuda == !engine_in_host_memory(t->g));
    run_peer(&x, n - from, end, (float)from);
    evaluate(t, "a + 7", a);
    evaluate(t, "shift(shift(a, 1, 'wrap'), -1, 'wrap')", a); /* through other memory, and back */
    end_export(&x);
    export(t, a, false, &x); /* behind that */
    run_peer(&x, n - from, end, (float)from + 7);
    end_export(&x);
    uint64_t version = array_version(a);
    export(t, a, true, &x);
    CHECK(array_written_outside(whole));
    run_peer(&x, n - from, end, (float)from + 7);
    end_export(&x);
    CHECK(array_version(a) > version && !array_is_exported(whole));
    holds(t, a, (float)from + 1000007);
    evaluate(t, "a - 1000007", a);
    holds(t, a, (float)from);
    array_unref(a);
    array_unref(whole);
}

static void settle(struct suite *t)
{
    while (engine_jobs_in_flight(t->g) > 0)
        usleep(50);
}

/* Memory goes back a moment after it was let go of, and its descriptor with it. */
static bool back_to(int open)
{
    for (int i = 0; i < 2000 && descriptors() > open; i++)
        usleep(1000);
    return descriptors() <= open;
}

static int64_t free_memory(struct suite *t)
{
    struct backend_device d = {0};
    settle(t);
    engine_device_info(t->g, 0, &d);
    return d.memory_free;
}

static bool has_free(struct suite *t, int64_t bytes)
{
    for (int i = 0; i < 2000 && free_memory(t) < bytes; i++)
        usleep(1000);
    return free_memory(t) >= bytes;
}

static void killed_peers_leave_nothing(struct suite *t)
{
    struct exporting x;
    int64_t before = 0;
    int open = 0;
    for (int i = 0; i < KILLED; i++) {
        struct array *a = arange(t, LARGE);
        export(t, a, i & 1, &x);
        pid_t pid = start_peer(&x, LARGE, LARGE * 4, 0, true);
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        end_export(&x);
        holds(t, a, i & 1 ? 1000000 : 0);
        array_unref(a);
        if (i == 0) { /* the pools and slabs have grown, the driver has what it needs */
            usleep(200000);
            before = free_memory(t);
            open = descriptors();
        }
        CHECK(has_free(t, before - SLACK));
        CHECK(engine_bytes_in_use(t->g) == 0 && account_used(t->account) == 0);
        CHECK(back_to(open));
    }
}

static void many_leave_nothing(struct suite *t, int many)
{
    struct exporting x;
    int64_t before = free_memory(t);
    const int open = descriptors(); /* the engine has nothing by now */
    for (int i = 0; i < many; i++) {
        struct array *a = arange(t, i & 1 ? SMALL : LARGE);
        for (int k = 0; k < 3; k++) {
            export(t, a, k == 1, &x);
            end_export(&x);
        }
        array_unref(a);
    }
    CHECK(has_free(t, before - 8 * SLACK)); /* of hundreds of megabytes that came and went */
    CHECK(engine_bytes_in_use(t->g) == 0 && account_used(t->account) == 0);
    CHECK(back_to(open));
}

/* --- many threads --- */

struct member {
    struct suite t; /* a stream of its own */
    struct array *all[3];
    unsigned seed;
    pthread_t thread;
};

/* What an export, or another's download, forbids. */
static void may_conflict(enum err_code code)
{
    CHECK(code == ERR_OK || code == ERR_CONFLICT);
}

static void moved(void *user, enum err_code result, double device_ms)
{
    (void)device_ms;
    CHECK(result == ERR_OK || result == ERR_OUT_OF_MEMORY || result == ERR_OVERLOADED);
    atomic_store((_Atomic bool *)user, true);
}

static void wait_for(const _Atomic bool *done)
{
    while (!atomic_load(done))
        usleep(20);
}

static void one_thing(struct member *m, unsigned what)
{
    struct suite *t = &m->t;
    struct exporting x;
    struct download *d;
    struct array *c;
    char byte;
    _Atomic bool done = false;
    struct array *a = t->a = m->all[what / 16 % 3], *b = m->all[(what / 16 + 1) % 3];
    struct eviction v = {.bytes = SMALL, .until = UINT64_MAX, .done = moved, .user = (void *)&done};
    switch (what % 8) {
    case 0:
    case 1:
        ask(t, a, what % 8, &x);
        may_conflict(x.code);
        usleep(what / 64 % 4 * 100);
        if (x.code == ERR_OK)
            end_export(&x);
        break;
    case 2:
        may_conflict(try_to(t, "a + 1", a));
        break;
    case 3:
        may_conflict(try_to(t, "shift(a, 1, 'wrap')", a));
        break;
    case 4: {
        enum err_code code = engine_move(t->s, a, what & 8, moved, (void *)&done, NULL);
        may_conflict(code);
        if (code == ERR_OK)
            wait_for(&done);
        break;
    }
    case 5:
        may_conflict(engine_swap(t->s, a, b, NULL));
        break;
    case 6:
        CHECK(download_new(t->s, a, NULL, NULL, &d, NULL) == ERR_OK);
        CHECK(download_pull(d, 0, &byte, 1) >= 0);
        download_free(d);
        break;
    default:
        engine_evict(t->g, &v);
        wait_for(&done);
        CHECK(engine_copy(t->s, t->account, a, &c, NULL) == ERR_OK);
        array_unref(c);
    }
}

static void *member_run(void *user)
{
    struct member *m = user;
    for (int i = 0; i < ROUNDS; i++) {
        m->seed = m->seed * 1664525u + 1013904223u;
        one_thing(m, m->seed >> 12);
    }
    return NULL;
}

static void a_crowd(struct suite *t)
{
    struct member all[4];
    struct array *arrays[3];
    for (int i = 0; i < 3; i++)
        arrays[i] = arange(t, i < 2 ? LEAST / 4 : SMALL);
    for (unsigned i = 0; i < 4; i++) {
        all[i] = (struct member){.t = *t, .seed = i + 1};
        memcpy(all[i].all, arrays, sizeof arrays);
        CHECK(engine_stream_new(t->g, 0, &all[i].t.s, NULL) == ERR_OK);
        CHECK(pthread_create(&all[i].thread, NULL, member_run, &all[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(all[i].thread, NULL) == 0);
        engine_stream_unref(all[i].t.s);
    }
    settle(t);
    struct export_figures n;
    engine_export_figures(t->g, &n);
    CHECK(n.readers == 0 && n.writers == 0 && n.bytes == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(!array_is_exported(arrays[i]) && !array_is_held(arrays[i]));
        array_unref(arrays[i]);
    }
    CHECK(engine_bytes_in_use(t->g) == 0 && account_used(t->account) == 0);
}

static void time_one(struct suite *t, int64_t bytes)
{
    struct exporting x;
    double best = 1e9, made = clock_ms();
    struct array *a = arange(t, bytes / 4);
    made = clock_ms() - made;
    for (int i = 0; i < 20; i++) {
        settle(t);
        double begin = clock_ms();
        export(t, a, i & 1, &x);
        double took = clock_ms() - begin;
        best = took < best ? took : best;
        end_export(&x);
    }
    printf("{\"bench\": \"export\", \"bytes\": %lld, \"export_ms\": %.4f, \"create_ms\": %.3f}\n",
           (long long)bytes, best, made);
    array_unref(a);
}

int main(int argc, char **argv)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct suite t = {0};
    struct err e = ERR_INIT;
    if (argc == 10 && !strcmp(argv[1], "peer"))
        return peer(argv + 2);
    CHECK(argc >= 2);
    program = "/proc/self/exe";
    config.backend = argv[1];
    config.device.shareable = true;
    config.device.shareable_least = LEAST;
    config.device.slab_memory = 32 << 20;
    if (engine_open(&config, &t.g, &e) != ERR_OK) {
        printf("%s\n", e.message);
        return SKIPPED;
    }
    const char *problem = engine_export_problem(t.g, 0);
    if (problem) {
        printf("%s\n", problem);
        return SKIPPED;
    }
    t.account = account_new(0);
    CHECK(engine_stream_new(t.g, 0, &t.s, NULL) == ERR_OK);
    for (int view = 0; view <= 1; view++) {
        both_ways(&t, SMALL, view);
        both_ways(&t, LARGE + 1, view);
    }
    a_crowd(&t);
    killed_peers_leave_nothing(&t);
    many_leave_nothing(&t, argc > 2 ? MANY * MORE : MANY);
    if (argc > 2)
        time_one(&t, strtoll(argv[2], NULL, 10));
    settle(&t);
    engine_stream_unref(t.s);
    account_unref(t.account);
    CHECK(engine_close(t.g));
    puts("exports: well");
    return 0;
}
