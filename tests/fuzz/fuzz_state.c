/* Manifests of snapshots: a foreign, torn or changed one is refused, and then nothing of it stays;
 * of one that is taken every array lies within its memory and can be read. (Before a manifest is
 * looked at its SHA-256 is: what is here are those whose sum is right.)
 *
 * Beside the manifest there are two files of memories: `data`, the bytes 0 to 255 sixteen times,
 * and memory-1-1, 4096 zeros. The principals are ann and bob. */
#include <fcntl.h>
#include <unistd.h>

#include "server/state/state_passed.h"
#include "tests/fuzz/fuzz_server.h"

static char folder[] = "/tmp/arrayd-fuzz-XXXXXX";

static void remove_folder(void)
{
    static const char *const names[] = {"data", "memory-1-1", "lock"};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlinkat(fd, names[i], 0);
    close(fd);
    rmdir(folder);
}

static void put_file(int at, const char *name, bool zeros)
{
    uint8_t bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = zeros ? 0 : (uint8_t)i;
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    close(fd);
}

static struct state_dir *dir;
static struct accounts accounts;

static void begin(void)
{
    static const char text[] = "[ann]\n[bob]\nrole = operator\n";
    struct err e = ERR_INIT;
    open_server();
    auth_free(server.auth);
    shares_free(server.shares);
    FUZZ_CHECK(mkdtemp(folder));
    atexit(remove_folder);
    MUST(state_dir_open(folder, &dir, &e));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_file(fd, "data", false);
    put_file(fd, "memory-1-1", true);
    close(fd);
    MUST(accounts_parse(text, strlen(text), "text", &accounts, &e));
}

static void read_array(struct session *s, struct array *a)
{
    static char bytes[1 << 16];
    struct download *d;
    struct err e = ERR_INIT;
    if (download_new(s->stream, a, NULL, NULL, &d, &e) != ERR_OK)
        return;
    const int64_t n = array_nbytes(a) < (int64_t)sizeof bytes ? array_nbytes(a) : 0;
    for (int64_t at = 0, got; at < n; at += got) {
        got = download_pull(d, at, bytes, (size_t)(n - at));
        FUZZ_CHECK(got >= 0);
    }
    download_free(d);
}

/* Every array of every session. */
static void read_back(void *user, struct principal *p)
{
    (void)user;
    struct session *s;
    uint64_t after = LIST_FROM_TOP;
    bool more;
    while (session_list(p->sessions, after, 1, &s, &more) == 1) {
        struct handle h;
        uint64_t last = LIST_FROM_TOP;
        bool rest;
        after = s->seq;
        while (handle_list(s->handles, last, 1, &h, &rest) == 1) {
            last = h.seq;
            read_array(s, h.array);
            handle_clear(&h);
        }
        session_unref(s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = ERR_INIT;
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    struct state_report report;
    struct state_kept *kept = NULL;
    struct state_passed passed = {0};
    if (!server.engine)
        begin();
    struct state_reader r = {.dir = dir, .data = -1, .n = size};
    FUZZ_CHECK((r.manifest = mem_alloc(size + 1)) != NULL);
    memcpy(r.manifest, data, size);
    r.manifest[size] = '\0';
    FUZZ_CHECK((r.folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0);
    FUZZ_CHECK((server.shares = shares_new(10)) != NULL);
    MUST(auth_new(server.engine, &limits, &accounts, &server.auth, &e));
    enum err_code err = state_read_all(&server, &r, &kept, &passed, &report, &e);
    if (err)
        FUZZ_CHECK(e.code == err && *e.message && err != ERR_INTERNAL);
    else
        auth_each(server.auth, read_back, NULL);
    state_kept_free(&kept);
    passed_free(&passed);
    state_read_close(&r);
    auth_free(server.auth);
    shares_free(server.shares);
    FUZZ_CHECK(engine_bytes_in_use(server.engine) == 0);
    return 0;
}
