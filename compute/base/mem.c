/* Counting wrapper over the libc allocator. The counters are relaxed atomics: they are statistics
 * and a test switch, never used for synchronisation. */
#include "compute/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "compute/base/clock.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

static _Atomic int64_t live;
static _Atomic int64_t fail_countdown; /* 0 = off, n = the nth from now fails, -1 = all fail */
static _Atomic int64_t failed;
static _Atomic bool fail_sticky;

static bool refused(void)
{
    int64_t n = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    if (__builtin_expect(n == 0, 1))
        return false;
    if (n > 0) {
        n = atomic_fetch_sub(&fail_countdown, 1);
        if (n > 1 || n == 0)
            return false;
        if (n == 1)
            atomic_store(&fail_countdown, atomic_load(&fail_sticky) ? -1 : 0);
    }
    atomic_fetch_add(&failed, 1);
    return true;
}

void mem_fail_after(int64_t nth, bool sticky)
{
    atomic_store(&fail_sticky, sticky);
    atomic_store(&failed, 0);
    atomic_store(&fail_countdown, nth);
}

int64_t mem_failed(void)
{
    return atomic_load(&failed);
}

int64_t mem_live(void)
{
    return atomic_load(&live);
}

#define LARGE      (64u << 10)
#define TRIM_LEAST (16 << 20)
#define TRIM_SHARE 20 /* trimming takes at most 1/20 of the time */

static _Atomic size_t gave_back;

void mem_gave_back(size_t n)
{
    if (n > LARGE)
        atomic_fetch_add_explicit(&gave_back, n, memory_order_relaxed);
}

void mem_trim(void)
{
    static _Atomic double not_before; /* as clock_ms */
    double begun = clock_ms();
    if (atomic_load_explicit(&gave_back, memory_order_relaxed) < TRIM_LEAST ||
        begun < atomic_load(&not_before))
        return;
    atomic_store(&gave_back, 0);
    malloc_trim(0);
    double ended = clock_ms();
    atomic_store(&not_before, ended + TRIM_SHARE * (ended - begun));
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

void *mem_alloc(size_t size)
{
    return refused() ? NULL : counted(malloc(size ? size : 1));
}

void *mem_calloc(size_t n, size_t size)
{
    return refused() ? NULL : counted(calloc(n ? n : 1, size ? size : 1));
}

void *mem_realloc(void *p, size_t size)
{
    if (refused())
        return NULL;
    void *q = realloc(p, size ? size : 1);
    return p ? q : counted(q);
}

void *mem_reallocarray(void *p, size_t n, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(n, size, &total))
        return NULL;
    return mem_realloc(p, total);
}

void mem_free(void *p)
{
    if (!p)
        return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(p);
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t n)
{
    n = strnlen(s, n);
    char *p = mem_alloc(n + 1);
    if (!p)
        return NULL;
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

#define AWAY_LEAST 4096 /* below this the caches are quicker */

void mem_copy_away(void *to, const void *from, size_t n)
{
#if defined(__SSE2__)
    char *t = to;
    const char *f = from;
    if (n < AWAY_LEAST) {
        memcpy(t, f, n);
        return;
    }
    size_t head = -(uintptr_t)t & 63;
    memcpy(t, f, head);
    t += head, f += head, n -= head;
    for (; n >= 64; t += 64, f += 64, n -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)f);
        __m128i b = _mm_loadu_si128((const __m128i *)(f + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(f + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(f + 48));
        _mm_stream_si128((__m128i *)t, a);
        _mm_stream_si128((__m128i *)(t + 16), b);
        _mm_stream_si128((__m128i *)(t + 32), c);
        _mm_stream_si128((__m128i *)(t + 48), d);
    }
    _mm_sfence();
    memcpy(t, f, n);
#else
    memcpy(to, from, n);
#endif
}

static int64_t read_limit(const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return INT64_MAX;
    char text[64];
    int64_t v = INT64_MAX;
    if (fgets(text, sizeof text, f) && text[0] >= '0' && text[0] <= '9')
        v = strtoll(text, NULL, 10);
    fclose(f);
    return v > 0 ? v : INT64_MAX;
}

int64_t mem_machine(void)
{
    int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; i++) {
        int64_t v = read_limit(limits[i]);
        if (v < total)
            total = v;
    }
    return total;
}

int mem_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
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

bool mem_file_size(int fd, int64_t size)
{
    return fchmod(fd, 0600) == 0 && ftruncate(fd, size) == 0 &&
           (!is_strict() || fallocate(fd, 0, 0, size) == 0) &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
}
