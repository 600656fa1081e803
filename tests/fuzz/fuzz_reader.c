/* Files of every format that arrayd-file reads, damaged: each is described and read by a process of
 * its own, as the daemon does it. The answers have to be as server/reader/wire.h says, and no byte
 * of them may come from memory that nobody wrote: without sanitizers each file is read twice, with
 * new memory full of other bytes, and the answers compared.
 *
 * Libraries crash on bad files: that is what the process is for, which then says so. A crash in our
 * own code is a mistake. FUZZ_SAY=1 prints where the libraries crash. */
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <hdf5.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "compute/base/arena.h"
#include "compute/base/strb.h"
#include "compute/type/dtype.h"
#include "protocol/json/json.h"
#include "server/reader/crew.h"
#include "server/reader/link.h"
#include "server/reader/requests.h"
#include "tests/fuzz/fuzz.h"

#define SLAB      (64 << 10)
#define SLABS     4
#define MEMORY    (64ll << 20)
#define SECONDS   3
#define MOST      2000 /* elements along an axis, at most */
#define VARIABLES 6    /* that are read of a file */

#if defined(__has_feature) /* clang's */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

enum { LIBRARY_CRASHED = 66, WE_CRASHED = 67 };

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
const char *__asan_default_options(void);
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

const char *__asan_default_options(void)
{
    return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:"
           "abort_on_error=1:max_allocation_size_mb=24:allocator_may_return_null=1:detect_leaks=0";
}

/* --- the reader --- */

static unsigned char *slabs;
static rlim_t mapped; /* bytes, without what a reader takes */

/* Whose code a place is: the first one that is neither libc's nor a sanitizer's. */
static bool is_ours(void *const *frames, int n)
{
    Dl_info self, of;
    bool handler = true; /* up to where the kernel returns to, which is libc's */
    dladdr((void *)LLVMFuzzerTestOneInput, &self);
    for (int i = 0; i < n; i++) {
        if (!dladdr(frames[i], &of) || !of.dli_fname)
            continue;
        handler = handler && !strstr(of.dli_fname, "/libc.so");
        if (!handler && !strstr(of.dli_fname, "/libc.so") && !strstr(of.dli_fname, "/libasan.so") &&
            !strstr(of.dli_fname, "/libubsan.so"))
            return of.dli_fbase == self.dli_fbase;
    }
    return true;
}

static void on_crash(int number)
{
    void *frames[40];
    int n = backtrace(frames, 40);
    bool ours = is_ours(frames, n);
    (void)number;
    if (ours || getenv("FUZZ_SAY"))
        backtrace_symbols_fd(frames, n, 2);
    _exit(ours ? WE_CRASHED : LIBRARY_CRASHED);
}

static void on_time(int number)
{
    (void)number;
    static const char line[] = "{\"error\":{\"code\":\"timeout\",\"detail\":\"time\"}}\n";
    _exit(write(WIRE_SOCKET, line, sizeof line - 1) > 0 ? 0 : 1);
}

_Noreturn static void be_reader(int perturb)
{
    static char stack[64 << 10];
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction crash = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    struct sigaction time = {.sa_handler = on_time};
    struct rlimit seconds = {SECONDS, SECONDS + 2};
    struct rlimit memory = {mapped + MEMORY, mapped + MEMORY};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    sigaltstack(&own, NULL);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i], &crash, NULL);
    sigaction(SIGXCPU, &time, NULL);
    setrlimit(RLIMIT_CPU, &seconds);
    if (!SANITIZED)
        setrlimit(RLIMIT_AS, &memory);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(NULL);
    if (perturb)
        mallopt(M_PERTURB, perturb);
    struct reader_limits limits = {.memory = MEMORY};
    link_open(SLAB, SLABS);
    crew_start(2);
    requests_serve(&limits);
}

/* --- the daemon's part --- */

struct talk {
    int fd;
    struct strb in;
    size_t taken;
    uint64_t digest; /* of all that was answered */
    bool refused;    /* the last answer is an error, or there is none */
};

static void digest(struct talk *t, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t->digest = (t->digest ^ ((const unsigned char *)p)[i]) * 0x100000001b3;
}

static void say(struct talk *t, const char *line)
{
    /* whoever does not listen any more has said why */
    if (send(t->fd, line, strlen(line), MSG_NOSIGNAL) < 0)
        t->refused = t->refused;
}

/* The next answer, and what it is; false if the reader ends with it. */
static bool hear(struct talk *t, struct arena *arena, struct json *ret)
{
    char *end;
    while (!(end = t->in.len > t->taken ? memchr(t->in.data + t->taken, '\n', t->in.len - t->taken)
                                        : NULL)) {
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        FUZZ_CHECK(poll(&p, 1, 60000) > 0); /* it neither ends nor answers */
        char *to = strb_reserve(&t->in, 65536);
        FUZZ_CHECK(to);
        ssize_t n = recv(t->fd, to, 65536, 0);
        if (n <= 0) {
            t->refused = true;
            return false;
        }
        t->in.len += (size_t)n;
        FUZZ_CHECK(t->in.len - t->taken <= 2 * WIRE_LINE_MAX);
    }
    struct err e = ERR_INIT;
    size_t n = (size_t)(end - (t->in.data + t->taken));
    enum err_code code = json_parse(arena, t->in.data + t->taken, n, NULL, ret, &e);
    if (code != ERR_OK && code != ERR_TOO_LARGE)
        fprintf(stderr, "%s: %.*s\n", e.message, n > 2000 ? 2000 : (int)n, t->in.data + t->taken);
    FUZZ_CHECK(code == ERR_OK || code == ERR_TOO_LARGE);
    digest(t, t->in.data + t->taken, n);
    t->taken += n + 1;
    struct json error = code == ERR_OK ? json_member(*ret, "error") : (struct json){0};
    if (code == ERR_OK && !json_present(error))
        return true;
    const char *name, *detail;
    if (code == ERR_OK) {
        FUZZ_CHECK(json_get_string(json_member(error, "code"), &name, NULL, &e) == ERR_OK);
        FUZZ_CHECK(json_get_string(json_member(error, "detail"), &detail, NULL, &e) == ERR_OK);
        FUZZ_CHECK(*detail && strcmp(name, "bad_request") != 0 && strcmp(name, "not_found") != 0);
    }
    t->refused = true;
    return false;
}

static void read_variable(struct talk *t, struct arena *arena, struct json v, uint64_t chance)
{
    struct json answer;
    struct err e = ERR_INIT;
    struct strb line = {0};
    struct json_writer w = JSON_WRITER(&line);
    const char *name;
    int rank;
    int64_t shape[MAX_RANK], nbytes = 1, n, slab;
    enum dtype dtype;
    FUZZ_CHECK(json_get_string(json_member(v, "name"), &name, NULL, &e) == ERR_OK);
    FUZZ_CHECK(json_get_shape(json_member(v, "shape"), 0, &rank, shape, &e) == ERR_OK);
    for (int d = 0; d < rank; d++)
        shape[d] = shape[d] > MOST / (d + 1) ? MOST / (d + 1) : shape[d];
    json_open_object(&w);
    json_put_member_string(&w, "do", "read");
    json_put_member_string(&w, "variable", name);
    json_put_member_bool(&w, "decode", chance & 1);
    if (chance & 6) { /* else all of it */
        json_put_key(&w, "count");
        json_put_i64_list(&w, (size_t)rank, shape);
    }
    json_close_object(&w);
    strb_addc(&line, '\n');
    FUZZ_CHECK(!line.failed);
    say(t, line.data);
    strb_free(&line);
    if (!hear(t, arena, &answer))
        return;
    FUZZ_CHECK(json_get_dtype(json_member(answer, "dtype"), &dtype, &e) == ERR_OK);
    FUZZ_CHECK(json_get_shape(json_member(answer, "shape"), 0, &rank, shape, &e) == ERR_OK);
    nbytes = (int64_t)dtype_size(dtype);
    for (int d = 0; d < rank; d++)
        FUZZ_CHECK(!__builtin_mul_overflow(nbytes, shape[d], &nbytes));
    for (;;) {
        if (!hear(t, arena, &answer))
            return;
        if (json_present(json_member(answer, "done")))
            break;
        FUZZ_CHECK(json_get_i64(json_member(answer, "slab"), 0, SLABS - 1, &slab, &e) == ERR_OK);
        FUZZ_CHECK(json_get_i64(json_member(answer, "bytes"), 1, SLAB, &n, &e) == ERR_OK);
        FUZZ_CHECK(n <= nbytes && n % (int64_t)dtype_size(dtype) == 0);
        const unsigned char *p = slabs + slab * SLAB;
        for (int64_t i = 0; dtype == DT_BOOL && i < n; i++)
            FUZZ_CHECK(p[i] <= 1);
        digest(t, p, (size_t)n);
        nbytes -= n;
        char free[64];
        snprintf(free, sizeof free, "{\"free\":%d}\n", (int)slab);
        say(t, free);
    }
    FUZZ_CHECK(nbytes == 0);
}

static void converse(struct talk *t, uint64_t chance)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct json content;
    FUZZ_CHECK(arena);
    say(t, "{\"do\":\"describe\"}\n");
    if (!hear(t, arena, &content))
        return;
    struct json variables = json_member(content, "variables"), v = json_first(variables);
    size_t n = json_count(variables), begin = n ? chance / 8 % n : 0;
    int left = VARIABLES;
    for (size_t i = 0; i < 2 * n && !t->refused && left > 0; i++) {
        bool mine = i >= begin && i < begin + n;
        if (mine && json_kind(json_member(v, "dtype")) == JSON_STRING) {
            read_variable(t, arena, v, chance);
            left--;
        }
        v = i + 1 == n ? json_first(variables) : json_next(v);
    }
}

/* Reads the file once; true with the digest of what it has if all was read. */
static bool try_file(int perturb, uint64_t chance, uint64_t *ret)
{
    int ends[2], status;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_t pid = fork();
    FUZZ_CHECK(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], WIRE_SOCKET);
        close_range(WIRE_SLABS + 1, ~0u, 0); /* the other end, without which this one has none */
        be_reader(perturb);
    }
    close(ends[1]);
    struct talk t = {.fd = ends[0], .digest = 14695981039346656037u};
    converse(&t, chance);
    close(ends[0]);
    FUZZ_CHECK(waitpid(pid, &status, 0) == pid);
    strb_free(&t.in);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != LIBRARY_CRASHED))
        fprintf(stderr, "the reader ended with the status %#x\n", (unsigned)status);
    FUZZ_CHECK(WIFEXITED(status));
    FUZZ_CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == LIBRARY_CRASHED);
    *ret = t.digest;
    return !t.refused;
}

static void prepare(void)
{
    void *frames[4];
    int file = memfd_create("file", MFD_CLOEXEC), memory = memfd_create("slabs", MFD_CLOEXEC);
    FUZZ_CHECK(file >= 0 && memory >= 0 && ftruncate(memory, SLAB * SLABS) == 0);
    /* out of the way of each other first */
    file = fcntl(file, F_DUPFD_CLOEXEC, 100);
    memory = fcntl(memory, F_DUPFD_CLOEXEC, 100);
    FUZZ_CHECK(dup2(file, WIRE_FILE) == WIRE_FILE && dup2(memory, WIRE_SLABS) == WIRE_SLABS);
    slabs = mmap(NULL, SLAB * SLABS, PROT_READ, MAP_SHARED, WIRE_SLABS, 0);
    FUZZ_CHECK(slabs != MAP_FAILED);
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    FUZZ_CHECK(f && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    mapped = pages * (rlim_t)sysconf(_SC_PAGESIZE);
    backtrace(frames, 4); /* loads what it needs */
    H5open();             /* once, which takes longer than a file */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!slabs)
        prepare();
    FUZZ_CHECK(ftruncate(WIRE_FILE, 0) == 0);
    FUZZ_CHECK(pwrite(WIRE_FILE, data, size, 0) == (ssize_t)size);
    uint64_t chance = 14695981039346656037u, first = 0, second = 0;
    for (size_t i = 0; i < size; i++)
        chance = (chance ^ data[i]) * 0x100000001b3;
    chance ^= chance >> 29;
    bool read = try_file(0x55, chance, &first);
    if (!SANITIZED && read && try_file(0xAA, chance, &second))
        FUZZ_CHECK(first == second); /* of memory that nobody wrote */
    return 0;
}

/* --- mutations --- */

/* PNG's checksums as they should be: what follows them is else never looked at. */
static void mend_checksums(uint8_t *b, size_t n)
{
    for (size_t at = 8; n >= 12 && at <= n - 12;) {
        size_t length = (size_t)b[at] << 24 | (size_t)b[at + 1] << 16 | b[at + 2] << 8 | b[at + 3];
        if (length > n - 12 - at)
            break;
        uint32_t sum = (uint32_t)crc32(0, b + at + 4, (uInt)length + 4);
        for (size_t k = 0; k < 4; k++)
            b[at + 8 + length + k] = (uint8_t)(sum >> (24 - 8 * k));
        at += 12 + length;
    }
}

static size_t change(uint8_t *b, size_t n, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *b, size_t n, size_t most, unsigned seed)
{
    n = change(b, n, most, seed);
    if (n > 8 && memcmp(b, "\x89PNG", 4) == 0 && seed % 4)
        mend_checksums(b, n);
    return n;
}

/* Numbers and offsets are what formats of bytes are made of: they become others, and seldom does
 * anything move. */
static size_t change(uint8_t *b, size_t n, size_t most, unsigned seed)
{
    static const uint64_t extremes[] = {
        0,          1,          2,          0x7F,       0x80,       0xFF,
        0x7FFF,     0x8000,     0xFFFF,     0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
        1ull << 32, 1ull << 40, 1ull << 62, INT64_MAX,  1ull << 63, UINT64_MAX,
    };
    uint64_t r = seed * 0x9E3779B97F4A7C15u + 1;
    r ^= r >> 29;
    r *= 0xBF58476D1CE4E5B9u;
    r ^= r >> 32;
    if (n == 0)
        return n;
    /* headers lie at the front, or at the end of a zip */
    size_t from = r % 3 == 2 && n > 300 ? n - 300 : 0, room = r % 3 == 0 ? n : n < 600 ? n : 600;
    size_t at = from + r / 4 % (n - from < room ? n - from : room), width = 1u << (r >> 40) % 4;
    uint64_t number = extremes[(r >> 44) % (sizeof extremes / sizeof *extremes)];
    bool big = r >> 50 & 1;
    if (width > n - at)
        width = 1;
    switch ((r >> 52) % 10) {
    case 0:
    case 1:
        b[at] ^= (uint8_t)(1u << (r >> 20) % 8);
        return n;
    case 2:
        b[at] = (uint8_t)(r >> 20);
        return n;
    case 3: /* one more or less */
        b[at] = (uint8_t)(b[at] + (big ? 1 : -1));
        return n;
    case 4:
    case 5:
    case 6:
        for (size_t k = 0; k < width; k++)
            b[at + (big ? width - 1 - k : k)] = (uint8_t)(number >> 8 * k);
        return n;
    case 7: /* a piece of another place */
        width = 1 + (r >> 20) % 64;
        from = (r >> 26) % n;
        width = width < n - at ? width : n - at;
        width = width < n - from ? width : n - from;
        memmove(b + at, b + from, width);
        return n;
    case 8:
        return (r >> 20) % 4 ? n : at;
    default:
        width = 1 + (r >> 20) % 8;
        if (r >> 30 & 1 && n + width <= most) {
            memmove(b + at + width, b + at, n - at);
            return n + width;
        }
        width = width < n - at ? width : n - at;
        memmove(b + at, b + at + width, n - at - width);
        return n - width;
    }
}
