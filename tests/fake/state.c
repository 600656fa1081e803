/* The fake driver's state that is not an object: counting calls, failures on demand, devices and
 * contexts, error names.
 *
 * Every driver function opens with fake_enter, which is where a failure on demand strikes: a test
 * that lets the 1st, 2nd, … call fail reaches them all, whatever they are. A function that releases
 * something releases it even then, as the real ones do when they report an earlier error; else no
 * program could come back to its baseline. */
#include "tests/fake/fake.h"

#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
_Thread_local struct CUctx_st *fake_current;

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

/* That part of a list with commas which ARRAYD_SLICE says, NULL for no list. */
static const char *in_turn(const char *name, char *ret, size_t room)
{
    const char *text = getenv(name);
    if (!text)
        return NULL;
    long parts = 1;
    for (const char *c = text; *c; c++)
        parts += *c == ',';
    for (long skip = number("ARRAYD_SLICE", 0) % parts; skip > 0; skip--)
        text = strchr(text, ',') + 1;
    snprintf(ret, room, "%.*s", (int)strcspn(text, ","), text);
    return ret;
}

/* The streams' threads are the parent's: as with the real driver, a child cannot use it. */
static void after_fork(void)
{
    fake.forked = true;
}

__attribute__((constructor)) static void setup(void)
{
    char devices[16], way[32];
    fake.n_devices = in_turn("ARRAYD_FAKE_DEVICES", devices, sizeof devices) ? atoi(devices) : 1;
    if (fake.n_devices > FAKE_MAX_DEVICES)
        fake.n_devices = FAKE_MAX_DEVICES;
    fake.memory = (size_t)number("ARRAYD_FAKE_MEMORY", 4L << 30);
    const char *arch = getenv("ARRAYD_FAKE_ARCH");
    for (int i = 0; i < FAKE_MAX_DEVICES; i++) {
        fake.arch[i] = arch && *arch ? atoi(arch) : i ? fake.arch[i - 1] : 90;
        arch = arch ? strchr(arch, ',') : NULL;
        arch = arch ? arch + 1 : NULL;
    }
    fake.delay_us = (int)number("ARRAYD_FAKE_DELAY", 0);
    fake.trace = number("ARRAYD_FAKE_TRACE", 0) != 0;
    const char *order = in_turn("ARRAYD_FAKE_ORDER", way, sizeof way);
    fake.forgets = number("ARRAYD_FAKE_FORGET", 0) != 0;
    fake.reverse = order && !strcmp(order, "reverse");
    fake.unkind = !order                           ? 0
                  : !strcmp(order, "adverse")      ? 1
                  : !strcmp(order, "adverse-down") ? -1
                                                   : 0;
    fake.fail_file = getenv("ARRAYD_FAKE_FAIL_FILE");
    const char *fail = getenv("ARRAYD_FAKE_FAIL");
    long nth = 0;
    int code = 0, length = 0;
    if (fail && sscanf(fail, "%ld:%d%n", &nth, &code, &length) == 2) {
        if (!strcmp(fail + length, ":async"))
            fake.fail_launch_at = nth, fake.fail_launch_code = code;
        else
            fake.fail_at = nth, fake.fail_code = code;
    }
    pthread_atfork(NULL, NULL, after_fork);
}

void *fake_alloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p) {
        fputs("fake cuda: no memory\n", stderr);
        abort();
    }
    return p;
}

double fake_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void fake_warn(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "fake cuda: %s\n", text);
}

void trail_take(struct trail *t)
{
    t->n = backtrace(t->at, sizeof t->at / sizeof *t->at);
}

void trail_print(const char *what, const struct trail *t)
{
    fprintf(stderr, "fake cuda: %s was asked for by\n", what);
    fflush(stderr);
    backtrace_symbols_fd(t->at, t->n, STDERR_FILENO);
}

/* Whether there is a handler, which it was told. */
static bool told(const char *text)
{
    pthread_mutex_lock(&fake.lock);
    void (*handler)(const char *) = fake.handler;
    pthread_mutex_unlock(&fake.lock);
    if (handler)
        handler(text);
    else
        fprintf(stderr, "fake cuda: %s\n", text);
    return handler != NULL;
}

void fake_violation(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!told(text))
        abort();
}

void fake_mistake(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)told(text);
}

bool fake_sticky_code(int code)
{
    return code == 700 || code == 702 || code == 710 || (code >= 714 && code <= 719);
}

void fake_break(int code)
{
    if (!fake.sticky)
        fake.sticky = code;
    pthread_cond_broadcast(&fake.changed);
}

/* A file that says "code call n": the nth call from the one that finds it fails; the file goes when
 * it does. A test that takes it away sooner has had enough. */
static void look_at_file(void)
{
    if (!fake.fail_file)
        return;
    if (fake.armed) {
        if (access(fake.fail_file, F_OK) != 0)
            fake.armed = false, fake.fail_at = 0;
        return;
    }
    FILE *f = fopen(fake.fail_file, "r");
    if (!f)
        return;
    int code = 0;
    char how[16] = "";
    long nth = 0;
    if (fscanf(f, "%d %15s %ld", &code, how, &nth) == 3 && !strcmp(how, "call"))
        fake.armed = true, fake.fail_at = nth, fake.fail_code = code;
    fclose(f);
}

static void set_failed(const char *name)
{
    fake.failed = name;
    fake.failed_behind = fake.launched;
}

int fake_enter(const char *name, unsigned needs, int *release)
{
    if (fake.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&fake.lock);
    long call = ++fake.calls;
    int result = CUDA_SUCCESS;
    look_at_file();
    if (fake.sticky)
        result = fake.sticky;
    else if (fake.fail_at && (!fake.fail_name || !strcmp(name, fake.fail_name)) &&
             --fake.fail_at == 0) {
        result = fake.fail_code;
        set_failed(name);
        if (fake.armed) {
            fake.armed = false;
            unlink(fake.fail_file);
        }
        if (fake_sticky_code(result))
            fake_break(result);
        else if (release)
            *release = result, result = CUDA_SUCCESS;
    } else if (needs && !fake.initialised)
        result = CUDA_ERROR_NOT_INITIALIZED;
    else if ((needs & NEEDS_CONTEXT) && !fake_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (fake.trace)
        fprintf(stderr, "fake cuda: %ld %s%s%.0d\n", call, name, result ? " = " : "", result);
    if (result)
        pthread_mutex_unlock(&fake.lock);
    return result;
}

int fake_leave(int result)
{
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static int from_file(int *ret_later)
{
    FILE *f = fake.fail_file ? fopen(fake.fail_file, "r") : NULL;
    if (!f)
        return CUDA_SUCCESS;
    int code = 0;
    char how[16] = "";
    int n = fscanf(f, "%d %15s", &code, how);
    fclose(f);
    if (n == 2 && !strcmp(how, "call"))
        return CUDA_SUCCESS; /* look_at_file's */
    if (n < 1)               /* being written: the next launch finds it whole */
        return CUDA_SUCCESS;
    unlink(fake.fail_file);
    set_failed("cuLaunchKernel");
    bool held = !strcmp(how, "held");
    if (!held && strcmp(how, "async"))
        return code;
    *ret_later = held ? -code : code;
    return CUDA_SUCCESS;
}

int fake_held_failure(int code)
{
    char go[4096];
    snprintf(go, sizeof go, "%s.go", fake.fail_file ? fake.fail_file : "");
    for (bool waits = code < 0; waits;) {
        usleep(1000);
        pthread_mutex_lock(&fake.lock);
        waits = !fake.sticky && access(go, F_OK) != 0;
        pthread_mutex_unlock(&fake.lock);
    }
    return code < 0 ? -code : code;
}

int fake_launch_failure(int *ret_later)
{
    *ret_later = CUDA_SUCCESS;
    if (fake.fail_launch_at && --fake.fail_launch_at == 0) {
        *ret_later = fake.fail_launch_code;
        set_failed("cuLaunchKernel");
        return CUDA_SUCCESS;
    }
    int code = CUDA_SUCCESS;
    if (fake.refuse_at && --fake.refuse_at == 0) {
        code = fake.refuse_code;
        set_failed("cuLaunchKernel");
    } else {
        code = from_file(ret_later);
    }
    if (fake_sticky_code(code))
        fake_break(code);
    return code;
}

EXPORT void fake_cuda_fail_call(const char *name, int nth, int code)
{
    pthread_mutex_lock(&fake.lock);
    fake.fail_at = nth;
    fake.fail_code = code;
    fake.fail_name = name;
    pthread_mutex_unlock(&fake.lock);
}

EXPORT void fake_cuda_fail(int nth, int code)
{
    fake_cuda_fail_call(NULL, nth, code);
}

EXPORT void fake_cuda_fail_launch(int nth, int code)
{
    pthread_mutex_lock(&fake.lock);
    fake.fail_launch_at = nth;
    fake.fail_launch_code = code;
    pthread_mutex_unlock(&fake.lock);
}

EXPORT void fake_cuda_refuse_launch(int nth, int code)
{
    pthread_mutex_lock(&fake.lock);
    fake.refuse_at = nth;
    fake.refuse_code = code;
    pthread_mutex_unlock(&fake.lock);
}

EXPORT void fake_cuda_excuse(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.excused = true;
    pthread_mutex_unlock(&fake.lock);
}

EXPORT void fake_cuda_hold(int n)
{
    pthread_mutex_lock(&fake.lock);
    fake.hold_left = n;
    fake.holding = true;
    pthread_mutex_unlock(&fake.lock);
}

static void let_go(void)
{
    fake.hold_left = 0;
    fake.holding = false;
    pthread_cond_broadcast(&fake.changed);
}

EXPORT void fake_cuda_release(void)
{
    pthread_mutex_lock(&fake.lock);
    let_go();
    pthread_mutex_unlock(&fake.lock);
}

EXPORT long fake_cuda_calls(void)
{
    pthread_mutex_lock(&fake.lock);
    long n = fake.calls;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

EXPORT const char *fake_cuda_failed(void)
{
    pthread_mutex_lock(&fake.lock);
    const char *name = fake.failed;
    pthread_mutex_unlock(&fake.lock);
    return name;
}

EXPORT long fake_cuda_failed_behind(void)
{
    pthread_mutex_lock(&fake.lock);
    long n = fake.failed_behind;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

EXPORT void fake_cuda_reset(void)
{
    pthread_mutex_lock(&fake.lock);
    let_go();
    stream_wait_all(); /* of a sticky error: until the dropped work is gone */
    fake.fail_at = fake.fail_launch_at = fake.refuse_at = 0;
    if (fake.sticky)
        memory_forget_pinned();
    fake.sticky = 0;
    fake.failed = NULL;
    fake.launched = 0;
    fake.excused = false;
    pthread_mutex_unlock(&fake.lock);
}

EXPORT long fake_cuda_live(enum fake_kind kind)
{
    pthread_mutex_lock(&fake.lock);
    stream_wait_all();
    long n = fake.live[kind];
    pthread_mutex_unlock(&fake.lock);
    return n;
}

EXPORT void fake_cuda_set_memory(size_t bytes)
{
    pthread_mutex_lock(&fake.lock);
    fake.memory = bytes;
    pthread_mutex_unlock(&fake.lock);
}

EXPORT void fake_cuda_on_violation(void (*handler)(const char *message))
{
    pthread_mutex_lock(&fake.lock);
    fake.handler = handler;
    pthread_mutex_unlock(&fake.lock);
}
