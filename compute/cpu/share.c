/* A memfd's pages are allocated, zeroed, when they are first touched, like anonymous memory; they
 * are huge pages where the system allows that for shared memory (shmem_enabled). The file has its
 * final length from the start and is sealed at it, so that no client can cause a SIGBUS. Where the
 * kernel promises no more memory than there is (overcommit_memory 2), a page that cannot be
 * allocated would also kill the process: there all of it is allocated at once.
 *
 * Descriptors: each block keeps one, which is handed out for writing. For reading, the file is
 * reopened read-only by its name in /proc. A client with that descriptor that runs as the same user
 * could reopen the file for writing in the same way. So before the file is handed to a client that
 * may not write, it is sealed against new writable mappings. The existing mapping stays writable,
 * but there can never be another: memory handed out in this way cannot be handed out for writing
 * later. A client that may write can set seals itself; all it achieves is that the array has to
 * move. Before Linux 5.1, without that seal, only the file's mode (0600) keeps other users from
 * writing. */
#include "compute/cpu/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 16 /* Linux 5.1 */
#endif

#define PAGE       INT64_C(4096)
#define HUGE_PAGE  (INT64_C(2) << 20)
#define HUGE_LEAST (INT64_C(4) << 20)
#define PLENTY     4 /* blocks that could be ordinary memory may use a fourth of all descriptors, */
#define MOST       2 /* those that could not, a half: the rest is for connections */

static _Atomic int64_t blocks; /* each has one descriptor; per process, whatever backend owns it */

static const char *failure(int number, char ret[64])
{
    return strerror_r(number, ret, 64); /* the GNU one */
}

static enum err_code no_descriptor(struct err *e, const char *what)
{
    char why[64];
    int number = errno;
    bool none = number == EMFILE || number == ENFILE;
    return err_set(e, none ? ERR_OVERLOADED : ERR_OUT_OF_MEMORY, "%s: %s%s", what,
                   failure(number, why),
                   number == EMFILE ? " (LimitNOFILE of the service, or ulimit -n)" : "");
}

static int create(void)
{
    int fd = memfd_create("arrayd", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("arrayd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

static bool is_strict(void)
{
    char mode = '0';
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &mode, 1) != 1)
            mode = '0';
        close(fd);
    }
    return mode == '2';
}

static bool prepare(int fd, int64_t size)
{
    return fchmod(fd, 0600) == 0 && ftruncate(fd, size) == 0 &&
           (!is_strict() || fallocate(fd, 0, 0, size) == 0) &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
}

/* Maps large ones on 2 MiB boundaries, so that huge pages fit. */
static void *map(int fd, int64_t size)
{
    int64_t slack = size < HUGE_LEAST ? 0 : HUGE_PAGE;
    char *raw = mmap(NULL, (size_t)(size + slack), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t head = slack ? (size_t)(-(uintptr_t)raw & (uintptr_t)(HUGE_PAGE - 1)) : 0;
    if (mmap(raw + head, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        munmap(raw, (size_t)(size + slack));
        return NULL;
    }
    if (head)
        munmap(raw, head);
    if ((size_t)slack - head)
        munmap(raw + head + size, (size_t)slack - head);
    if (slack)
        madvise(raw + head, (size_t)size, MADV_HUGEPAGE); /* fails where the system has none */
    return raw + head;
}

const char *cpu_share_problem(void)
{
    int fd = create();
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE ? NULL : "the kernel gives out no memfd";
    close(fd);
    return access("/proc/self/fd", X_OK) == 0
               ? NULL
               : "/proc is not mounted, by which a memfd is opened read-only";
}

/* Whether one more block is allowed. */
static bool count_block(bool must)
{
    struct rlimit r;
    int64_t most = getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur != RLIM_INFINITY
                       ? (int64_t)r.rlim_cur / (must ? MOST : PLENTY)
                       : INT64_MAX;
    int64_t now = atomic_load(&blocks);
    do {
        if (now >= most)
            return false;
    } while (!atomic_compare_exchange_weak(&blocks, &now, now + 1));
    return true;
}

/* The file and its mapping. */
static enum err_code make(int64_t size, struct shared_block *ret, struct err *e)
{
    char why[64];
    int fd = create();
    if (fd < 0)
        return no_descriptor(e, "no memory can be made for sharing");
    void *p = prepare(fd, size) ? map(fd, size) : NULL;
    if (!p) {
        bool none = errno == ENOMEM || errno == ENOSPC; /* else: file too large (LimitFSIZE) */
        enum err_code code = err_set(e, none ? ERR_OUT_OF_MEMORY : ERR_OVERLOADED,
                                     "No shared memory for an array of %lld bytes: %s",
                                     (long long)size, failure(errno, why));
        close(fd);
        return code;
    }
    *ret = (struct shared_block){p, size, fd};
    return ERR_OK;
}

enum err_code cpu_share_alloc(struct cpu_memory *m, int64_t size, bool must,
                              struct shared_block *ret, struct err *e)
{
    if (size > INT64_MAX - HUGE_PAGE - PAGE)
        return err_set(e, ERR_OUT_OF_MEMORY, "No memory for an array of %lld bytes",
                       (long long)size);
    size = (size + PAGE - 1) / PAGE * PAGE;
    if (!count_block(must))
        return err_set(e, ERR_OVERLOADED,
                       "arrays that are shared have taken as many file descriptors as they may "
                       "(LimitNOFILE of the service, or ulimit -n)");
    if (!cpu_memory_book(m, size)) {
        atomic_fetch_sub(&blocks, 1);
        return err_set(e, ERR_OUT_OF_MEMORY, "No memory for an array of %lld bytes",
                       (long long)size);
    }
    enum err_code code = make(size, ret, e);
    if (code != ERR_OK) {
        cpu_memory_unbook(m, size);
        atomic_fetch_sub(&blocks, 1);
    }
    return code;
}

bool cpu_share_fits(const struct shared_block *share, enum share_mode mode)
{
    int seals = fcntl((int)share->handle, F_GET_SEALS);
    if (mode == SHARE_WRITE)
        return !(seals & F_SEAL_FUTURE_WRITE);
    return mode == SHARE_READ || (seals & F_SEAL_FUTURE_WRITE) || !(seals & F_SEAL_SEAL);
}

/* Applies to every descriptor handed out from here on. */
static enum err_code seal(int fd, struct err *e)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if ((seals & F_SEAL_FUTURE_WRITE) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0 || errno == EINVAL)
        return ERR_OK; /* EINVAL: the kernel has no such seal */
    return err_set(e, ERR_CONFLICT, "the array's memory was sealed by a holder with write access");
}

enum err_code cpu_share_export(const struct shared_block *share, enum share_mode mode, int *ret_fd,
                               struct err *e)
{
    char path[64];
    if (mode == SHARE_SEALED)
        TRY(seal((int)share->handle, e));
    snprintf(path, sizeof path, "/proc/self/fd/%d", (int)share->handle);
    int fd = mode == SHARE_WRITE ? fcntl((int)share->handle, F_DUPFD_CLOEXEC, 0)
                                 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return no_descriptor(e, "the array's memory cannot be handed out");
    *ret_fd = fd;
    return ERR_OK;
}

void cpu_share_free(struct cpu_memory *m, const struct shared_block *share)
{
    munmap(share->data, (size_t)share->size);
    close((int)share->handle);
    cpu_memory_unbook(m, share->size);
    atomic_fetch_sub(&blocks, 1);
}
