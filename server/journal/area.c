/* fallocate takes the memory, in pieces, so that no store into the mapping can fail for lack of it.
 * An adopted area is mapped only as far as it has data: reading a hole of a memfd would allocate
 * its pages. */
#include "server/journal/area.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"

#define PIECE ((size_t)256 << 10)

static enum err_code fail(struct area *a, enum err_code code, const char *what, struct err *e)
{
    char why[64];
    err_set(e, code, "%s: %s", what, strerror_r(errno, why, sizeof why));
    area_close(a);
    return code;
}

enum err_code area_new(const char *name, size_t size, struct area *ret, struct err *e)
{
    struct area a = AREA_NONE;
    a.fd = mem_file(name);
    if (a.fd < 0 || ftruncate(a.fd, (off_t)size) != 0)
        return fail(&a, ERR_OUT_OF_MEMORY, "no shared memory", e);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, a.fd, 0);
    if (p == MAP_FAILED)
        return fail(&a, ERR_OUT_OF_MEMORY, "no addresses for shared memory", e);
    a.at = p;
    a.size = size;
    *ret = a;
    return ERR_OK;
}

enum err_code area_adopt(int take_fd, struct area *ret, struct err *e)
{
    struct area a = {.fd = take_fd};
    struct stat st;
    if (fstat(take_fd, &st) != 0)
        return fail(&a, ERR_STATE, "the memory cannot be read", e);
    off_t end = 0;
    for (off_t data = lseek(take_fd, 0, SEEK_DATA); data >= 0 && data >= end;
         data = lseek(take_fd, end, SEEK_DATA)) {
        off_t hole = lseek(take_fd, data, SEEK_HOLE);
        if (hole <= data)
            break;
        end = hole;
    }
    a.size = a.ready = (size_t)(end < st.st_size ? end : st.st_size);
    if (a.size > 0) {
        void *p = mmap(NULL, a.size, PROT_READ, MAP_SHARED, take_fd, 0);
        if (p == MAP_FAILED)
            return fail(&a, ERR_STATE, "the memory cannot be mapped", e);
        a.at = p;
    }
    *ret = a;
    return ERR_OK;
}

enum err_code area_make_ready(struct area *a, size_t n, struct err *e)
{
    if (n <= a->ready)
        return ERR_OK;
    size_t to = (n + PIECE - 1) / PIECE * PIECE;
    if (to > a->size)
        to = a->size;
    if (n > a->size || fallocate(a->fd, 0, (off_t)a->ready, (off_t)(to - a->ready)) != 0)
        return err_oom(e);
    a->ready = to;
    return ERR_OK;
}

void area_shorten(struct area *a, size_t n)
{
    size_t to = (n + PIECE - 1) / PIECE * PIECE;
    if (to >= a->ready || fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)to,
                                    (off_t)(a->ready - to)) != 0)
        return;
    a->ready = to;
}

int area_duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

void area_close(struct area *a)
{
    if (a->at)
        munmap(a->at, a->size);
    if (a->fd >= 0)
        close(a->fd);
    *a = (struct area)AREA_NONE;
}
