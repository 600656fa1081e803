/* Starting arrayd-file and speaking with it: see process.h.
 *
 * It gets exactly the descriptors that wire.h names: they are moved out of the way of each other
 * first, and the new process closes all others itself. posix_spawn does not copy the daemon's page
 * tables, so that a start costs the same however many arrays there are. */
#include "server/files/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"
#include "server/reader/wire.h"

#define LOOK_MS        50    /* how often it is asked whether the work goes on */
#define READ_SIZE      65536 /* of the socket, at a time */
#define TEXT_MOST      500   /* bytes of a reader's detail that are passed on */
#define OUT_OF_THE_WAY 16    /* no descriptor of wire.h is as large */

struct file_process {
    struct process_spec spec;
    pid_t pid;  /* 0: it has not been started */
    int socket; /* −1: none */
    unsigned char *slabs;
    size_t mapped;
    struct strb in;       /* what has come; of it, */
    size_t taken;         /* bytes that were lines before */
    uint64_t patience_ns; /* for which it may still be waited, */
    size_t moved;         /* bytes moved since it was as long as it gets */
};

enum err_code process_lies(struct err *e, const char *what)
{
    return err_set(e, ERR_FILE_READER, "arrayd-file answered what it may not: %s", what);
}

bool process_goes_on(const struct file_process *p)
{
    return !p->spec.goes_on || p->spec.goes_on(p->spec.user);
}

bool process_says(struct json answer, const char *name)
{
    struct err why = ERR_INIT;
    bool yes = false;
    return json_get_bool(json_member(answer, name), &yes, &why) == ERR_OK && yes;
}

unsigned char *process_slab(const struct file_process *p, int i)
{
    return p->slabs + (size_t)i * p->spec.slab;
}

size_t process_slab_size(const struct file_process *p)
{
    return p->spec.slab;
}

int process_slabs(const struct file_process *p)
{
    return p->spec.slabs;
}

/* --- the end --- */

/* Its status as waitpid tells it, after which it is no more; 0 where there was none. */
static int reap(struct file_process *p)
{
    int status = 0;
    pid_t got;
    if (!p->pid)
        return 0;
    do
        got = waitpid(p->pid, &status, 0);
    while (got < 0 && errno == EINTR);
    p->pid = 0;
    return got < 0 ? 0 : status;
}

void process_end(struct file_process *p)
{
    if (!p)
        return;
    if (p->pid)
        kill(p->pid, SIGKILL);
    reap(p);
    if (p->socket >= 0)
        close(p->socket);
    if (p->slabs)
        munmap(p->slabs, p->mapped);
    strb_free(&p->in);
    mem_free(p);
}

/* It has closed its end: by an end of its own, which comes at once or never. */
static enum err_code ended(struct file_process *p, struct err *e)
{
    int status;
    for (int i = 0; p->pid && i < 100; i++) {
        siginfo_t info = {0};
        status = waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT);
        if (status < 0 || info.si_pid)
            break;
        usleep(1000);
    }
    if (p->pid)
        kill(p->pid, SIGKILL);
    status = reap(p);
    if (WIFEXITED(status) &&
        WEXITSTATUS(status)) /* 127 where a library that it needs is not there */
        return err_set(e, ERR_FILE_READER,
                       "arrayd-file ended with status %d before it had answered",
                       WEXITSTATUS(status));
    return err_set(e, ERR_FILE_READER, "arrayd-file ended before it had answered%s",
                   !WIFSIGNALED(status)          ? ""
                   : WTERMSIG(status) == SIGXCPU ? ": it took too much processor time"
                   : WTERMSIG(status) == SIGSYS  ? ": it did what its sandbox forbids"
                   : WTERMSIG(status) == SIGKILL ? ": it was killed"
                   : WTERMSIG(status) == SIGXFSZ ? ": the file became too large"
                                                 : ": it crashed");
}

/* --- the beginning --- */

static int move_away(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
}

static enum err_code cannot_start(int number, struct err *e)
{
    const bool busy = number == EMFILE || number == ENFILE || number == EAGAIN;
    return number == ENOMEM ? err_oom(e)
                            : err_set(e, busy ? ERR_OVERLOADED : ERR_FILE_READER,
                                      "arrayd-file cannot be started: %s", strerror(number));
}

/* Its standard error is the log, if that is at level debug. */
static enum err_code spawn_with(struct file_process *p, const int fds[3], struct err *e)
{
    static char name[] = WIRE_PROGRAM, locale[] = "LC_ALL=C";
    char *const argv[] = {name, NULL}, *const envp[] = {locale, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions))
        return err_oom(e);
    if (posix_spawnattr_init(&attr)) {
        posix_spawn_file_actions_destroy(&actions);
        return err_oom(e);
    }
    int bad = posix_spawnattr_setsigmask(&attr, &none) |
              posix_spawnattr_setsigdefault(&attr, &all) | posix_spawnattr_setpgroup(&attr, 0) |
              posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                  POSIX_SPAWN_SETPGROUP);
    bad |= posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    bad |= posix_spawn_file_actions_adddup2(&actions, 0, 1);
    if (!log_enabled(LOG_DEBUG))
        bad |= posix_spawn_file_actions_adddup2(&actions, 0, 2);
    static const int places[3] = {WIRE_SOCKET, WIRE_FILE, WIRE_SLABS};
    for (int i = 0; i < 3; i++)
        bad |= posix_spawn_file_actions_adddup2(&actions, fds[i], places[i]);
    bad |= posix_spawn_file_actions_addclosefrom_np(&actions, WIRE_SLABS + 1);
    int number = bad ? ENOMEM : posix_spawn(&p->pid, p->spec.program, &actions, &attr, argv, envp);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (!number)
        return ERR_OK;
    p->pid = 0;
    if (number == ENOENT || number == EACCES)
        return err_set(e, ERR_LIBRARY_MISSING, "arrayd-file cannot be started (%s): %s",
                       p->spec.program, strerror(number));
    return cannot_start(number, e);
}

static enum err_code spawn(struct file_process *p, int slabs, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return cannot_start(errno, e);
    p->socket = pair[0];
    fcntl(p->socket, F_SETFL, O_NONBLOCK);
    const int fds[3] = {move_away(pair[1]), move_away(p->spec.file), move_away(slabs)};
    enum err_code code =
        fds[0] < 0 || fds[1] < 0 || fds[2] < 0 ? cannot_start(EMFILE, e) : spawn_with(p, fds, e);
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    close(pair[1]);
    return code;
}

static enum err_code make_slabs(struct file_process *p, int *ret_fd, struct err *e)
{
    const int fd = mem_file("arrayd-slabs");
    if (fd < 0)
        return cannot_start(errno, e);
    p->mapped = p->spec.slab * (size_t)p->spec.slabs;
    if (!mem_file_size(fd, (int64_t)p->mapped)) {
        close(fd);
        return err_oom(e);
    }
    void *at = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        close(fd);
        return err_oom(e);
    }
    p->slabs = at;
    *ret_fd = fd;
    return ERR_OK;
}

static enum err_code greet(struct file_process *p, struct err *e)
{
    const struct process_spec *s = &p->spec;
    _cleanup_strb_ struct strb line = {0};
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct json_writer w = JSON_WRITER(&line);
    struct json answer;
    if (!arena)
        return err_oom(e);
    json_open_object(&w);
    json_put_key(&w, "limits");
    json_open_object(&w);
    json_put_member_i64(&w, "memory", s->memory);
    json_put_member_i64(&w, "seconds", (int64_t)s->cpu);
    json_put_member_string(&w, "sandbox", s->unsandboxed ? "allow_none" : "require");
    json_put_member_i64(&w, "slab", (int64_t)s->slab);
    json_put_member_i64(&w, "slabs", s->slabs);
    json_put_member_i64(&w, "threads", s->threads);
    if (s->write)
        json_put_member_i64(&w, "file", s->most);
    json_close_object(&w);
    json_put_member_bool(&w, "write", s->write);
    json_close_object(&w);
    TRY(process_ask(p, &line, e));
    TRY(process_hear(p, arena, &answer, e));
    return process_says(answer, "ready") ? ERR_OK
                                         : process_lies(e, "something other than that it is ready");
}

enum err_code process_check(const char *program, struct err *e)
{
    return program ? ERR_OK
                   : err_set(e, ERR_LIBRARY_MISSING,
                             "files are opened by the program arrayd-file, which is neither "
                             "beside the daemon nor where its option file-reader says");
}

enum err_code process_start(const struct process_spec *spec, struct file_process **ret,
                            struct err *e)
{
    TRY(process_check(spec->program, e));
    struct file_process *p = mem_calloc(1, sizeof *p);
    if (!p)
        return err_oom(e);
    p->spec = *spec;
    p->socket = -1;
    int slabs = -1;
    enum err_code code = make_slabs(p, &slabs, e);
    if (code == ERR_OK)
        code = spawn(p, slabs, e);
    if (slabs >= 0)
        close(slabs);
    if (code == ERR_OK)
        code = greet(p, e);
    if (code != ERR_OK) {
        process_end(p);
        return code;
    }
    *ret = p;
    return ERR_OK;
}

/* --- lines --- */

void process_patience(struct file_process *p)
{
    p->patience_ns = (uint64_t)(p->spec.silence * 1e9);
    p->moved = 0;
}

void process_moved(struct file_process *p, size_t n)
{
    p->moved += n;
    if (p->moved >= p->spec.slab)
        process_patience(p);
}

static enum err_code silent(const struct file_process *p, struct err *e)
{
    return err_set(e, ERR_FILE_READER, "arrayd-file has not answered for %.0f s (file-timeout)",
                   p->spec.silence);
}

/* Waits until the socket can do that, which it has to be patient for. */
static enum err_code await(struct file_process *p, short event, struct err *e)
{
    for (;;) {
        struct pollfd x = {.fd = p->socket, .events = event};
        const uint64_t from_ns = clock_ns();
        const bool can = poll(&x, 1, LOOK_MS) > 0;
        const uint64_t took_ns = clock_ns() - from_ns;
        p->patience_ns -= took_ns < p->patience_ns ? took_ns : p->patience_ns;
        if (!can && !process_goes_on(p))
            return err_set(e, ERR_DEADLINE, "the work was cancelled");
        if (!p->patience_ns)
            return silent(p, e);
        if (can)
            return ERR_OK;
    }
}

/* Reads until there is a line: its length, without the newline. */
static enum err_code read_line(struct file_process *p, size_t *ret_n, struct err *e)
{
    struct strb *in = &p->in;
    size_t looked = p->taken;
    for (;;) {
        const char *end =
            in->len > looked ? memchr(in->data + looked, '\n', in->len - looked) : NULL;
        if (end) {
            *ret_n = (size_t)(end - (in->data + p->taken));
            return ERR_OK;
        }
        looked = in->len - p->taken;
        if (p->taken) {
            memmove(in->data, in->data + p->taken, looked);
            in->len = looked;
            p->taken = 0;
        }
        if (in->len > WIRE_LINE_MAX)
            return process_lies(e, "a line without an end");
        char *to = strb_reserve(in, READ_SIZE);
        if (!to)
            return err_oom(e);
        const ssize_t n = recv(p->socket, to, READ_SIZE, 0);
        if (n > 0)
            in->len += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            TRY(await(p, POLLIN, e));
        else if (n == 0 || errno != EINTR)
            return ended(p, e);
    }
}

static enum err_code error_code(const char *name)
{
    static const struct {
        const char *name;
        enum err_code code;
    } codes[] = {
#define X(id, text) [WIRE_##id] = {text, ERR_FILE_READER},
        WIRE_ERRORS(X)
#undef X
    };
    static const enum err_code of[WIRE_ERROR_COUNT] = {
        [WIRE_BAD_FILE] = ERR_BAD_FILE,           [WIRE_UNSUPPORTED] = ERR_UNSUPPORTED_FILE,
        [WIRE_NOT_FOUND] = ERR_UNKNOWN_NAME,      [WIRE_TOO_LARGE] = ERR_INLINE_TOO_LARGE,
        [WIRE_OUT_OF_MEMORY] = ERR_OUT_OF_MEMORY, [WIRE_IO] = ERR_FILE_IO,
        [WIRE_NO_SPACE] = ERR_DISK_FULL,          [WIRE_NO_SANDBOX] = ERR_LIBRARY_MISSING,
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!strcmp(codes[i].name, name))
            return of[i] ? of[i] : codes[i].code;
    return ERR_OK;
}

/* Its text is shown to people: in one line, and not for ever. */
static void clean(char to[TEXT_MOST + 1], const char *from)
{
    size_t n = 0;
    for (size_t k; from[n] && n < TEXT_MOST; n += k) {
        k = utf8_length(from + n, SIZE_MAX);
        if (!k || n + k > TEXT_MOST)
            break;
        memcpy(to + n, from + n, k);
        if (k == 1 && ((unsigned char)to[n] < ' ' || to[n] == 0x7F))
            to[n] = ' ';
    }
    to[n] = '\0';
}

/* An answer that is an error. */
static enum err_code answer_error(const struct file_process *p, struct json error, struct err *e)
{
    const char *name, *detail;
    char text[TEXT_MOST + 1];
    struct err why = ERR_INIT;
    if (json_get_string(json_member(error, "code"), &name, NULL, &why) != ERR_OK ||
        json_get_string(json_member(error, "detail"), &detail, NULL, &why) != ERR_OK)
        return process_lies(e, "a malformed error");
    enum err_code code = error_code(name);
    if (code == ERR_OK)
        return process_lies(e, "an error of no known kind");
    if (code == ERR_BAD_FILE && p->spec.write)
        code = ERR_FILE_READER; /* the file is its own */
    clean(text, detail);
    return err_set(e, code, "%s", text);
}

enum err_code process_hear(struct file_process *p, struct arena *arena, struct json *ret,
                           struct err *e)
{
    struct err why = ERR_INIT;
    size_t n = 0;
    TRY(read_line(p, &n, e));
    const enum err_code code = json_parse(arena, p->in.data + p->taken, n, NULL, ret, &why);
    p->taken += n + 1;
    if (code == ERR_OUT_OF_MEMORY)
        return err_oom(e);
    if (code == ERR_TOO_LARGE)
        return err_set(e, ERR_INLINE_TOO_LARGE, "what is in the file takes too long to tell");
    if (code != ERR_OK || json_kind(*ret) != JSON_OBJECT)
        return process_lies(e, "a line that is no JSON object");
    const struct json error = json_member(*ret, "error");
    return json_present(error) ? answer_error(p, error, e) : ERR_OK;
}

/* It takes no more lines: for the reason that it may have told before, or it has just ended. */
static enum err_code last_words(struct file_process *p, struct err *e)
{
    for (;;) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct json answer;
        if (!arena)
            return err_oom(e);
        TRY(process_hear(p, arena, &answer, e));
    }
}

enum err_code process_say(struct file_process *p, const struct strb *line, struct err *e)
{
    if (line->failed)
        return err_oom(e);
    if (line->len >= WIRE_LINE_MAX)
        return err_set(e, ERR_INLINE_TOO_LARGE, "attributes take more than %d bytes",
                       WIRE_LINE_MAX);
    for (size_t at = 0; at <= line->len;) {
        const bool end = at == line->len;
        const ssize_t n = send(p->socket, end ? "\n" : line->data + at, end ? 1 : line->len - at,
                               MSG_NOSIGNAL | (end ? 0 : MSG_MORE));
        if (n > 0)
            at += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            TRY(await(p, POLLOUT, e));
        else if (n < 0 && errno != EINTR)
            return last_words(p, e);
    }
    return ERR_OK;
}

enum err_code process_ask(struct file_process *p, const struct strb *line, struct err *e)
{
    process_patience(p);
    return process_say(p, line, e);
}
