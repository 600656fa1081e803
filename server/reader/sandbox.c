/* What is left to the process: its socket, the file, the slabs, memory up to a limit, the crew's
 * threads, the clock. The walls stand one behind another:
 *
 * - limits of address space, processor time, descriptors, size of files; no core files;
 * - Landlock: of the whole file system the one file can be opened again; no TCP, no abstract
 *   sockets and no signals to others, where the kernel knows these rules;
 * - seccomp: a list of the calls that are allowed. All others fail with EPERM, so that a library
 *   that tries one has an ordinary error. Memory can never be made executable, and no thread be
 *   started. No call reaches the kernel with a path: it would tell which files there are. Those
 * that libraries make for WIRE_PATH are answered here, by the descriptor.
 *
 * Landlock and capabilities are a thread's own, and inherited by those that it starts. Therefore
 * the crew is started behind them; the filter is then put on all threads.
 *
 * Linux's headers may be older than its kernel: the few constants of Landlock that are missing in
 * them are written here. */
#include "server/reader/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "server/reader/crew.h"
#include "server/reader/format.h"
#include "server/reader/link.h"

/* Of Landlock's ABI 2 to 6. */
#define FS_TRUNCATE    (1ull << 14)
#define FS_IOCTL_DEV   (1ull << 15)
#define NET_BIND       (1ull << 0)
#define NET_CONNECT    (1ull << 1)
#define SCOPE_ABSTRACT (1ull << 0)
#define SCOPE_SIGNAL   (1ull << 1)
struct ruleset {
    uint64_t fs, net, scoped;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static void last_words(const char *line, size_t n)
{
    _exit(write(WIRE_SOCKET, line, n) == (ssize_t)n ? 0 : 1);
}

static void on_time(int number)
{
    (void)number;
    static const char line[] = "{\"error\":{\"code\":\"timeout\",\"detail\":\"the file took more "
                               "processor time than its reader may use\"}}\n";
    last_words(line, sizeof line - 1);
}

static void on_crash(int number)
{
    (void)number;
    static const char line[] = "{\"error\":{\"code\":\"bad_file\",\"detail\":\"the library of "
                               "this format crashed on the file\"}}\n";
    last_words(line, sizeof line - 1);
}

/* --- calls with a path --- */

/* Where the arguments of a system call are, and its result. On machines that are not here paths do
 * reach the kernel: nothing can be opened for all that, but what there is is told. */
#if defined(__x86_64__)
#define ARGUMENT(c, i)                                                                             \
    ((c)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10}[i]])
#define RESULT(c) ((c)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARGUMENT(c, i) ((c)->uc_mcontext.regs[i])
#define RESULT(c)      ((c)->uc_mcontext.regs[0])
#endif

#ifdef ARGUMENT
#define PATHS_ARE_ANSWERED true

/* Calls of open or openat: another descriptor of the file, which begins at its beginning. */
static int reopen(int flags)
{
    int mode = fcntl(WIRE_FILE, F_GETFL) & O_ACCMODE;
    if (flags & O_EXCL)
        return -EEXIST;
    if ((flags & O_ACCMODE) != O_RDONLY && mode != O_RDWR)
        return -EACCES;
    int fd = fcntl(WIRE_FILE, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0 || (flags & O_TRUNC && ftruncate(fd, 0) != 0))
        return -errno;
    return fd;
}

static int about(int fd, struct stat *to)
{
    return syscall(SYS_fstat, fd, to) == 0 ? 0 : -errno;
}

/* The kernel asks instead of doing the call. */
static void on_path(int number, siginfo_t *info, void *context)
{
    (void)number;
    ucontext_t *c = context;
    int before = errno, call = info->si_syscall;
    bool at = call == SYS_openat || call == SYS_newfstatat;
    bool opens = call == SYS_openat;
#ifdef SYS_open /* newer machines lack it */
    opens = opens || call == SYS_open;
#endif
    const char *path = (const char *)ARGUMENT(c, at ? 1 : 0);
    int given = (int)ARGUMENT(c, at ? 2 : 1); /* flags of open */
    struct stat *to = (struct stat *)ARGUMENT(c, at ? 2 : 1);
    int ret = -EACCES;
    if (call == SYS_newfstatat && !*path && ARGUMENT(c, 3) & AT_EMPTY_PATH)
        ret = about((int)ARGUMENT(c, 0), to); /* libc's fstat */
    else if (strcmp(path, WIRE_PATH) == 0)
        ret = opens ? reopen(given) : about(WIRE_FILE, to);
    RESULT(c) = ret;
    errno = before;
}

#else
#define PATHS_ARE_ANSWERED false

static void on_path(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
}
#endif

/* --- the walls --- */

/* A crash says so, from a stack of its own, because endless recursion is one. */
static bool set_handlers(void)
{
    static char stack[64 << 10];
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction time = {.sa_handler = on_time};
    struct sigaction crash = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    struct sigaction path = {.sa_sigaction = on_path, .sa_flags = SA_SIGINFO};
    struct sigaction ignore = {.sa_handler = SIG_IGN}; /* writing fails, which says more */
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    bool ok = sigaction(SIGXCPU, &time, NULL) == 0 && sigaction(SIGSYS, &path, NULL) == 0 &&
              sigaction(SIGXFSZ, &ignore, NULL) == 0;
    if (SANITIZED) /* says more itself */
        return ok;
    ok = ok && sigaltstack(&own, NULL) == 0;
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        ok = ok && sigaction(crashes[i], &crash, NULL) == 0;
    return ok;
}

static bool limit(int what, uint64_t soft, uint64_t hard)
{
    struct rlimit now, want = {soft, hard};
    if (getrlimit(what, &now) != 0)
        return false;
    if (now.rlim_max < want.rlim_max)
        want.rlim_max = now.rlim_max;
    if (want.rlim_max < want.rlim_cur)
        want.rlim_cur = want.rlim_max;
    return setrlimit(what, &want) == 0;
}

/* Of a root's powers the right to open the file again is left where paths reach the kernel. */
static bool drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {0};
    if (syscall(SYS_capget, &head, sets) != 0)
        return false;
    const uint32_t kept =
        PATHS_ARE_ANSWERED ? 0 : 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
    sets[0].effective &= kept;
    sets[0].permitted &= kept;
    sets[0].inheritable = 0;
    sets[1] = (struct __user_cap_data_struct){0};
    return syscall(SYS_capset, &head, sets) == 0;
}

/* Bytes of address space that are taken already, of the open /proc/self/statm. */
static uint64_t mapped(int fd)
{
    char text[64] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    unsigned long long pages = 0;
    if (n <= 0 || sscanf(text, "%llu", &pages) != 1)
        return 256 << 20;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool set_limits(const struct sandbox *s, uint64_t taken)
{
    uint64_t seconds = (uint64_t)s->seconds, file = s->write ? (uint64_t)s->file : 0;
    uint64_t memory = taken + (uint64_t)s->memory;
    return limit(RLIMIT_CPU, seconds, seconds + 5) && limit(RLIMIT_CORE, 0, 0) &&
           limit(RLIMIT_NOFILE, 32, 32) && limit(RLIMIT_FSIZE, file, file) &&
           /* a sanitizer's shadow of memory needs all of the address space */
           (SANITIZED || limit(RLIMIT_AS, memory, memory));
}

static const char *enter_landlock(const struct sandbox *s)
{
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return errno == ENOSYS       ? "the kernel has no Landlock"
               : errno == EOPNOTSUPP ? "the kernel has Landlock, but does not start it (lsm=)"
                                     : "a filter of calls keeps Landlock's away";
    struct ruleset rules = {.fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    uint64_t file = LANDLOCK_ACCESS_FS_READ_FILE | (s->write ? LANDLOCK_ACCESS_FS_WRITE_FILE : 0);
    if (abi >= 2)
        rules.fs |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3)
        rules.fs |= FS_TRUNCATE;
    if (abi >= 3 && s->write)
        file |= FS_TRUNCATE;
    if (abi >= 4)
        rules.net = NET_BIND | NET_CONNECT;
    if (abi >= 5)
        rules.fs |= FS_IOCTL_DEV;
    if (abi >= 6)
        rules.scoped = SCOPE_ABSTRACT | SCOPE_SIGNAL;
    size_t size = abi >= 6 ? sizeof rules : abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
    int set = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
    if (set < 0)
        return "Landlock gives no ruleset";
    struct landlock_path_beneath_attr rule = {.allowed_access = file, .parent_fd = WIRE_FILE};
    /* EBADFD: Landlock has no rules for a file in memory, and does not keep it from being opened.
     */
    const char *why = NULL;
    if (syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0 &&
        errno != EBADFD)
        why = "Landlock takes no rule for the file";
    else if (syscall(SYS_landlock_restrict_self, set, 0) != 0)
        why = "Landlock cannot restrict the process";
    close(set);
    return why;
}

/* Calls with a path, for on_path. */
static const int trapped[] = {
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(newfstatat),
};

/* Calls of any arguments. */
static const int allowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(dup),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(brk),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_yield),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrusage),
    SCMP_SYS(getrandom),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sysinfo),
    SCMP_SYS(uname),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(restart_syscall),
};

/* A call whose argument `arg` has one of the bits of `mask` as `value` says. */
static bool allow_masked(scmp_filter_ctx f, int call, unsigned arg, uint64_t mask, uint64_t value)
{
    return seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 1,
                            SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, mask, value)) == 0;
}

static bool allow_equal(scmp_filter_ctx f, int call, unsigned arg, uint64_t value)
{
    return seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 1, SCMP_CMP(arg, SCMP_CMP_EQ, value)) == 0;
}

static const char *enter_seccomp(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!f)
        return "libseccomp makes no filter";
    bool ok = true;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        ok = ok && seccomp_rule_add(f, SCMP_ACT_ALLOW, allowed[i], 0) == 0;
    for (size_t i = 0; i < sizeof trapped / sizeof *trapped; i++)
        ok = ok && seccomp_rule_add(f, PATHS_ARE_ANSWERED ? SCMP_ACT_TRAP : SCMP_ACT_ALLOW,
                                    trapped[i], 0) == 0;
    ok = ok && seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1) == 0 &&
         allow_masked(f, SCMP_SYS(mmap), 2, PROT_EXEC, 0) &&
         allow_masked(f, SCMP_SYS(mprotect), 2, PROT_EXEC, 0) &&
         allow_equal(f, SCMP_SYS(fcntl), 1, F_GETFL) &&
         allow_equal(f, SCMP_SYS(fcntl), 1, F_GETFD) &&
         allow_equal(f, SCMP_SYS(fcntl), 1, F_SETFD) &&
         allow_equal(f, SCMP_SYS(fcntl), 1, F_DUPFD_CLOEXEC) &&
         allow_equal(f, SCMP_SYS(tgkill), 0, (uint64_t)getpid()) &&
         allow_equal(f, SCMP_SYS(prlimit64), 2, 0); /* asks, and sets nothing */
    int code = ok ? seccomp_load(f) : -1;
    seccomp_release(f);
    return code == 0 ? NULL : "the kernel takes no seccomp filter";
}

void sandbox_enter(const struct sandbox *s, char *ret, size_t n)
{
    const char *why = NULL;
    int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        why = "the kernel has no no_new_privs";
    /* without the daemon nobody would end what is in the middle of work */
    bool ok =
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && set_handlers() && drop_capabilities();
    const char *landlock = enter_landlock(s);
    crew_start(s->threads);
    if (!ok || !set_limits(s, mapped(statm)))
        stop(WIRE_NO_SANDBOX, "the limits of the process cannot be set: %s", strerror(errno));
    const char *seccomp = enter_seccomp();
    why = why ? why : landlock ? landlock : seccomp;
    if (why && s->required)
        stop(WIRE_NO_SANDBOX, "%s, and files are not opened without it", why);
    if (why)
        snprintf(ret, n, "none: %s", why);
    else
        snprintf(ret, n, "landlock+seccomp");
}
