/* Memory that outlives its process, on a named backend: import_suite BACKEND; with ARRAYD_MESH
 * ("all", "0,1"), that of several GPUs as one, each block with a descriptor for each. Exit 77 when
 * the backend is not available, or the device cannot share memory (which is said).
 *
 * Another process, this program once more (`make`), makes blocks, fills them, sends their
 * descriptors and is killed. This one maps them, sees every byte, copies them to other memory and
 * over them, and frees them; nothing is left of either. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/backend.h"
#include "compute/base/clock.h"
#include "tests/descriptors.h"

#define SKIPPED 77
#define SOCKET  9
#define GRAIN   (INT64_C(2) << 20)
#define BLOCKS  5
#define MOST    (BLOCKS * BACKEND_PARTS + 1)
#define ROUNDS  3
#define SLACK   (INT64_C(8) << 20) /* that the driver may come to need, page tables and the like */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct suite {
    struct backend *b;
    struct backend_stream *s;
    uint32_t *host; /* of the largest block */
};

static int device, parts = 1; /* of what is shared; other memory is the first device's */

static int64_t size_of(int i)
{
    return (1 + 3 * i) * GRAIN * parts;
}

static int64_t largest(void)
{
    return size_of(BLOCKS - 1);
}

/* Of each block's parts, and one of host memory, of the first block's size and contents. */
static int n_fds(void)
{
    return BLOCKS * parts + 1;
}

static void told(struct job *job)
{
    atomic_store((_Atomic bool *)job->user, true);
}

static void copy(struct suite *t, void *to, const void *from, int64_t n, enum copy_way way)
{
    _Atomic bool done = false;
    struct job_copy c = {to, from, n, way};
    struct job job = {.copies = &c, .n_copies = 1, .done = told, .user = (void *)&done};
    backend_submit(t->b, t->s, &job);
    while (!atomic_load(&done))
        usleep(20);
    CHECK(job.result == ERR_OK);
}

static void fill(struct suite *t, void *block, int i, uint32_t with)
{
    for (int64_t k = 0; k < size_of(i) / 4; k++)
        t->host[k] = (uint32_t)k * 2654435761u + with;
    copy(t, block, t->host, size_of(i), COPY_IN);
}

static void holds(struct suite *t, const void *block, int i, uint32_t with)
{
    memset(t->host, 0, (size_t)size_of(i));
    copy(t, t->host, block, size_of(i), COPY_OUT);
    for (int64_t k = 0; k < size_of(i) / 4; k++)
        CHECK(t->host[k] == (uint32_t)k * 2654435761u + with);
}

static bool open_suite(struct suite *t, const char *name)
{
    char note[512];
    struct backend_config config = {
        .slab_memory = 32 << 20, .shareable = true, .mesh = getenv("ARRAYD_MESH"), .mesh_least = 1};
    struct backend_device d;
    struct err e = ERR_INIT;
    void *p;
    if (backend_open(name, &config, &t->b, note, sizeof note, &e) != ERR_OK) {
        printf("%s\n", e.message);
        return false;
    }
    device = t->b->ops->device_count(t->b) - 1; /* the mesh, if there is one */
    t->b->ops->device_info(t->b, device, &d);
    if (d.n_parts)
        parts = d.n_parts;
    else
        device = 0;
    const char *problem = t->b->ops->share_problem(t->b, 0);
    if (problem)
        printf("%s\n", problem);
    CHECK(t->b->ops->stream_new(t->b, device, false, &t->s, NULL) == ERR_OK);
    CHECK(t->b->ops->host_alloc(t->b, largest(), NULL, &p, NULL) == ERR_OK);
    t->host = p;
    return !problem;
}

static void close_suite(struct suite *t)
{
    t->b->ops->host_free(t->b, t->host, largest(), false);
    t->b->ops->stream_free(t->s);
    backend_close(t->b);
}

/* --- the process that is killed --- */

static void send_all(const int fds[MOST])
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN((size_t)n_fds() * sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct iovec word = {"made", 4};
    struct msghdr m = {.msg_iov = &word,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE((size_t)n_fds() * sizeof(int))};
    memcpy(CMSG_DATA(&control.head), fds, (size_t)n_fds() * sizeof *fds);
    CHECK(sendmsg(SOCKET, &m, 0) == 4);
}

static void make_host(struct suite *t, uint32_t with, int *ret_fd)
{
    void *block, *host;
    CHECK(t->b->ops->alloc(t->b, 0, size_of(0), false, &block, NULL) == ERR_OK);
    CHECK(t->b->ops->host_alloc(t->b, size_of(0), ret_fd, &host, NULL) == ERR_OK);
    fill(t, block, 0, with);
    copy(t, host, block, size_of(0), COPY_OUT);
}

static int make(const char *name, uint32_t with)
{
    struct suite t;
    int fds[MOST];
    CHECK(open_suite(&t, name));
    for (int i = 0; i < BLOCKS; i++) {
        struct shared_block block;
        CHECK(t.b->ops->share_alloc(t.b, device, size_of(i), false, true, &block, NULL) == ERR_OK);
        CHECK(block.size == size_of(i));
        fill(&t, block.data, i, with + (uint32_t)i);
        CHECK(block.n_parts == parts);
        for (int k = 0; k < parts; k++)
            CHECK(t.b->ops->share_export(t.b, device, &block, k, SHARE_WRITE, false,
                                         &fds[i * parts + k], NULL) == ERR_OK);
    }
    make_host(&t, with, &fds[n_fds() - 1]);
    send_all(fds);
    while (true)
        pause();
}

/* --- this one --- */

static void receive_all(int from, int ret[MOST])
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
    } control;
    char text[4];
    struct iovec word = {text, 4};
    struct msghdr m = {.msg_iov = &word,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    CHECK(recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 4 && !(m.msg_flags & MSG_CTRUNC));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == SCM_RIGHTS &&
          c->cmsg_len == CMSG_LEN((size_t)n_fds() * sizeof(int)));
    memcpy(ret, CMSG_DATA(c), (size_t)n_fds() * sizeof *ret);
}

/* The descriptors of blocks whose process is dead. */
static void left_behind(const char *name, uint32_t with, int ret[MOST])
{
    int ends[2];
    char text[32];
    snprintf(text, sizeof text, "%u", with);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (dup2(ends[1], SOCKET) < 0)
            _exit(2);
        execl("/proc/self/exe", "import_suite", "make", name, text, (char *)NULL);
        _exit(3);
    }
    close(ends[1]);
    receive_all(ends[0], ret);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    close(ends[0]);
}

static void take_over(struct suite *t, const int *fds, int i, uint32_t with, double *ret_ms)
{
    struct shared_block block, none;
    bool sealed = true;
    void *p;
    struct backend *b = t->b;
    CHECK(b->ops->share_import(b, device, fds, parts, size_of(i) + 1, &none, &sealed, NULL) ==
          ERR_STATE);
    CHECK(b->ops->share_import(b, device, fds, parts, size_of(i) + GRAIN, &none, &sealed, NULL) !=
          ERR_OK);
    if (!strcmp(b->ops->name, "cpu")) /* CUDA says nothing of a part */
        CHECK(b->ops->share_import(b, device, fds, parts, size_of(i) - GRAIN, &none, &sealed,
                                   NULL) == ERR_STATE);
    CHECK(b->ops->share_import(b, device, &(int){STDIN_FILENO}, 1, GRAIN, &none, &sealed, NULL) !=
          ERR_OK);
    double begun = clock_ms();
    CHECK(b->ops->share_import(b, device, fds, parts, size_of(i), &block, &sealed, NULL) == ERR_OK);
    *ret_ms = clock_ms() - begun;
    CHECK(!sealed && block.size == size_of(i));
    for (int k = 0; k < parts; k++)
        close(fds[k]);
    holds(t, block.data, i, with + (uint32_t)i);
    CHECK(b->ops->alloc(b, 0, size_of(i), false, &p, NULL) == ERR_OK);
    copy(t, p, block.data, size_of(i), COPY_WITHIN);
    fill(t, block.data, i, 77);
    holds(t, p, i, with + (uint32_t)i);
    holds(t, block.data, i, 77);
    b->ops->free(b, 0, p, size_of(i));
    b->ops->share_free(b, device, &block);
}

static void take_over_host(struct suite *t, int fd, uint32_t with)
{
    struct backend *b = t->b;
    void *host, *block, *none;
    CHECK(b->ops->host_import(b, fd, size_of(0) + GRAIN, &none, NULL) == ERR_STATE);
    CHECK(b->ops->host_import(b, STDIN_FILENO, GRAIN, &none, NULL) == ERR_STATE);
    CHECK(b->ops->host_import(b, fd, size_of(0), &host, NULL) == ERR_OK);
    close(fd);
    CHECK(b->ops->alloc(b, 0, size_of(0), false, &block, NULL) == ERR_OK);
    copy(t, block, host, size_of(0), COPY_IN);
    holds(t, block, 0, with);
    fill(t, block, 0, 78);
    copy(t, host, block, size_of(0), COPY_OUT);
    CHECK(((uint32_t *)host)[0] == 78);
    b->ops->free(b, 0, block, size_of(0));
    b->ops->host_free(b, host, size_of(0), true);
}

static int64_t free_memory(struct suite *t)
{
    struct backend_device d = {0};
    t->b->ops->device_info(t->b, 0, &d);
    return d.memory_free;
}

int main(int argc, char **argv)
{
    struct suite t = {0};
    int64_t before = 0;
    if (argc == 4 && !strcmp(argv[1], "make"))
        return make(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
    CHECK(argc == 2);
    if (!open_suite(&t, argv[1]))
        return SKIPPED;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        int fds[MOST], open = descriptors();
        double ms[BLOCKS];
        left_behind(argv[1], round * 100, fds);
        for (int i = 0; i < BLOCKS; i++)
            take_over(&t, &fds[i * parts], i, round * 100, &ms[i]);
        take_over_host(&t, fds[n_fds() - 1], round * 100);
        CHECK(round == 0 || descriptors() == open); /* the driver has opened what it needs */
        if (t.b->ops->tidy)
            t.b->ops->tidy(t.b);
        if (round == 0) { /* the pools and slabs have grown, the driver has what it needs */
            before = free_memory(&t);
            printf("import of %lld bytes: %.3f ms, of %lld: %.3f ms\n", (long long)size_of(0),
                   ms[0], (long long)size_of(BLOCKS - 1), ms[BLOCKS - 1]);
        }
        /* the pool of the copies may have grown by one more, if a free was still on its way; what
         * is imported in a round is 70 MiB */
        CHECK(free_memory(&t) >= before - SLACK - largest());
    }
    close_suite(&t);
    puts("imports: well");
    return 0;
}
