/* SIGPIPE kept from the process: quiet.h. */
#include "clients/c/src/quiet.h"

#include <pthread.h>
#include <time.h>

static sigset_t sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

static bool is_pending(void)
{
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, SIGPIPE) == 1;
}

void quiet_begin(struct quiet *quiet)
{
    sigset_t set = sigpipe();
    quiet->pending = is_pending();
    pthread_sigmask(SIG_BLOCK, &set, &quiet->before);
}

void quiet_end(const struct quiet *quiet)
{
    sigset_t set = sigpipe();
    if (!quiet->pending && is_pending())
        sigtimedwait(&set, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
}
