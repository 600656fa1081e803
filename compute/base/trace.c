/* The keys are parsed once into a bit set; after that a disabled key costs one relaxed load. */
#include "compute/base/trace.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *const names[] = {"expr", "ir", "emit", "nvrtc", "cache", "launch"};
#define N_KEYS (sizeof names / sizeof names[0])

static _Atomic unsigned enabled; /* bit 31: parsed */

static unsigned parse(void)
{
    unsigned bits = 1u << 31;
    const char *s = getenv("ARRAYD_TRACE");
    while (s && *s) {
        size_t n = strcspn(s, ",");
        for (size_t i = 0; i < N_KEYS; i++)
            if (strlen(names[i]) == n && memcmp(names[i], s, n) == 0)
                bits |= 1u << i;
        s += n;
        s += *s == ',';
    }
    atomic_store(&enabled, bits);
    return bits;
}

bool trace_on(enum trace_key key)
{
    unsigned bits = atomic_load_explicit(&enabled, memory_order_relaxed);
    if (!bits)
        bits = parse();
    return bits >> key & 1;
}

void trace_write(enum trace_key key, const char *text, size_t len)
{
    if (!trace_on(key))
        return;
    struct iovec v[] = {{(void *)"[", 1},
                        {(void *)names[key], strlen(names[key])},
                        {(void *)"] ", 2},
                        {(void *)text, len},
                        {(void *)"\n", 1}};
    ssize_t written = writev(STDERR_FILENO, v, 5);
    (void)written;
}
