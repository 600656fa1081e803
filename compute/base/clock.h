/* The clocks: the monotonic clock for measuring and deadlines, the wall clock for dates only. No
 * state of its own; thread-safe. */
#ifndef ARRAYD_BASE_CLOCK_H
#define ARRAYD_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double clock_ms(void)
{
    return (double)clock_ns() * 1e-6;
}

static inline double clock_s(void)
{
    return (double)clock_ns() * 1e-9;
}

/* Time that a processor has given to this thread. */
static inline uint64_t clock_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Up to some milliseconds behind, for a fraction of the cost: for times read in every request. */
static inline int64_t clock_coarse_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The deadline `seconds` from now, for pthread_cond_timedwait on the monotonic clock. */
static inline struct timespec clock_after(double seconds)
{
    uint64_t ns = clock_ns() + (uint64_t)(seconds * 1e9);
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

/* Initialises a condition whose deadlines come from clock_after. */
static inline void clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr); /* cannot fail here */
    pthread_condattr_destroy(&attr);
}

/* Microseconds since 1970. */
static inline int64_t clock_date_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

#define CLOCK_DATE_SIZE 48

/* A time in microseconds since 1970 as text: UTC, to the millisecond (RFC 3339). */
static inline void clock_date_text(int64_t us, char ret[CLOCK_DATE_SIZE])
{
    const int64_t part = (us % 1000000 + 1000000) % 1000000; /* also of a time before */
    const time_t s = (time_t)((us - part) / 1000000);
    struct tm tm;
    gmtime_r(&s, &tm);
    size_t n = strftime(ret, CLOCK_DATE_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret + n, CLOCK_DATE_SIZE - n, ".%03dZ", (int)(part / 1000));
}

static inline time_t clock_date(void)
{
    return (time_t)(clock_date_us() / 1000000);
}

#endif
