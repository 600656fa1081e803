/* A memfd's pages are allocated, zeroed, when they are first touched, like anonymous memory; they
 * are huge pages where the system allows that for shared memory (shmem_enabled). The file has its
 * final length from the start and is sealed at it, so that no client can cause a SIGBUS.
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

#include "compute/base/mem.h"

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

/* Maps large ones on 2 MiB boundaries, so that huge pages fit; and those that are made of such
 * pages, as chunks for small arrays are. */
static void *map(int fd, int64_t size, int access)
{
    int64_t slack = size < HUGE_LEAST && size % HUGE_PAGE ? 0 : HUGE_PAGE;
    char *raw = mmap(NULL, (size_t)(size + slack), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t head = slack ? (size_t)(-(uintptr_t)raw & (uintptr_t)(HUGE_PAGE - 1)) : 0;
    if (mmap(raw + head, (size_t)size, access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
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
    int fd = mem_file("arrayd");
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE ? NULL : "the kernel cannot create a memfd";
    close(fd);
    return access("/proc/self/fd", X_OK) == 0
               ? NULL
               : "/proc is not mounted; it is needed to open a memfd read-only";
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

/* The file and its mapping. Other errors than a lack of memory: too many descriptors, or a file
 * that is too large (LimitFSIZE). */
static enum err_code make(int64_t size, struct shared_block *ret, struct err *e)
{
    char why[64];
    int fd = mem_file("arrayd");
    if (fd < 0)
        return no_descriptor(e, "cannot allocate shared memory");
    void *p = mem_file_size(fd, size) ? map(fd, size, PROT_READ | PROT_WRITE) : NULL;
    if (!p) {
        bool none = errno == ENOMEM || errno == ENOSPC;
        enum err_code code = err_set(e, none ? ERR_OUT_OF_MEMORY : ERR_OVERLOADED,
                                     "cannot allocate shared memory for an array of %lld bytes: %s",
                                     (long long)size, failure(errno, why));
        close(fd);
        return code;
    }
    *ret = (struct shared_block){p, size, fd, 1};
    return ERR_OK;
}

/* Counts a block of that size, and its descriptor. */
static enum err_code count(struct cpu_memory *m, int64_t size, bool must, struct err *e)
{
    if (!count_block(must))
        return err_set(e, ERR_OVERLOADED,
                       "shared arrays already use as many file descriptors as they may "
                       "(LimitNOFILE of the service, or ulimit -n)");
    if (cpu_memory_book(m, size))
        return ERR_OK;
    atomic_fetch_sub(&blocks, 1);
    return err_set(e, ERR_OUT_OF_MEMORY, "out of memory for an array of %lld bytes",
                   (long long)size);
}

static void uncount(struct cpu_memory *m, int64_t size)
{
    cpu_memory_unbook(m, size);
    atomic_fetch_sub(&blocks, 1);
}

enum err_code cpu_share_alloc(struct cpu_memory *m, int64_t size, bool must,
                              struct shared_block *ret, struct err *e)
{
    if (size > INT64_MAX - HUGE_PAGE - PAGE)
        return err_set(e, ERR_OUT_OF_MEMORY, "out of memory for an array of %lld bytes",
                       (long long)size);
    size = (size + PAGE - 1) / PAGE * PAGE;
    TRY(count(m, size, must, e));
    enum err_code code = make(size, ret, e);
    if (code != ERR_OK)
        uncount(m, size);
    return code;
}

/* The file as it was made here, by a process that is gone. */
static bool is_block(int fd, int64_t size, int *ret_seals)
{
    struct stat st;
    *ret_seals = fcntl(fd, F_GET_SEALS);
    return *ret_seals >= 0 && (*ret_seals & F_SEAL_SHRINK) && (*ret_seals & F_SEAL_GROW) &&
           fstat(fd, &st) == 0 && st.st_size == size;
}

enum err_code cpu_share_import(struct cpu_memory *m, int fd, int64_t size, struct shared_block *ret,
                               bool *ret_sealed, struct err *e)
{
    int seals, own;
    if (!is_block(fd, size, &seals))
        return err_set(e, ERR_STATE, "this is not memory of %lld bytes", (long long)size);
    *ret_sealed = seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE);
    own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return no_descriptor(e, "memory cannot be taken over");
    void *p = map(own, size, *ret_sealed ? PROT_READ : PROT_READ | PROT_WRITE);
    if (!p) {
        close(own);
        return err_set(e, ERR_OUT_OF_MEMORY, "no addresses for an array of %lld bytes",
                       (long long)size);
    }
    atomic_fetch_add(&blocks, 1);
    cpu_memory_book_anyway(m, size, false);
    *ret = (struct shared_block){p, size, own, 1};
    return ERR_OK;
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
        return no_descriptor(e, "the array's memory cannot be exported");
    *ret_fd = fd;
    return ERR_OK;
}

void cpu_share_free(struct cpu_memory *m, const struct shared_block *share)
{
    munmap(share->data, (size_t)share->size);
    close((int)share->handle);
    uncount(m, share->size);
}

/* --- moved out of the device --- */

static enum err_code not_out(int64_t size, struct err *e)
{
    return err_set(e, ERR_OUT_OF_MEMORY,
                   "this array needs %lld bytes, which the machine does not have", (long long)size);
}

enum err_code cpu_share_out(struct cpu_memory *m, int64_t size, int *ret_fd, void **ret,
                            struct err *e)
{
    struct shared_block block;
    if (!cpu_memory_book_out(m, size))
        return not_out(size, e);
    enum err_code code = make(size, &block, e);
    if (code != ERR_OK) {
        cpu_memory_unbook_out(m, size);
        return code;
    }
    *ret_fd = (int)block.handle;
    *ret = block.data;
    return ERR_OK;
}

enum err_code cpu_share_out_import(struct cpu_memory *m, int fd, int64_t size, void **ret,
                                   struct err *e)
{
    int seals;
    if (!is_block(fd, size, &seals))
        return err_set(e, ERR_STATE, "this is not memory of %lld bytes", (long long)size);
    void *p = map(fd, size, PROT_READ | PROT_WRITE);
    if (!p)
        return err_set(e, ERR_OUT_OF_MEMORY, "no addresses for an array of %lld bytes",
                       (long long)size);
    cpu_memory_book_anyway(m, size, true);
    *ret = p;
    return ERR_OK;
}

void cpu_share_out_free(struct cpu_memory *m, void *p, int64_t size)
{
    munmap(p, (size_t)size);
    cpu_memory_unbook_out(m, size);
}
