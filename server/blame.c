/* A daemon that a fault's signal ended (SIGSEGV, SIGABRT, …) has crashed, also if somebody sent
 * that signal: only its number is known. One that was killed by another signal blames nobody. */
#include "server/blame.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "compute/backend.h"
#include "compute/base/log.h"
#include "server/config/config.h"
#include "server/keeper/hold.h"
#include "server/work/asker.h"

#define FAULTS "faults" /* the name with the keeper */

/* Signals by which a process ends that did something wrong. Others were sent by somebody, or by the
 * system because memory ran out. */
static bool is_a_crash(int sig)
{
    switch (sig) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS:
        return true;
    default:
        return false;
    }
}

enum err_code blame_open(const struct config *config, struct hold *hold, struct culprits **ret,
                         struct err *e)
{
    struct err why = ERR_INIT;
    struct culprits *c = culprits_open(hold != NULL, hold_take(hold, FAULTS));
    if (!c)
        return err_oom(e);
    culprits_ended(c, is_a_crash(hold_signal(hold)));
    culprits_limit(c, config->fault_limit, config->fault_window);
    if (hold && !culprits_are_kept(c)) {
        if (hold_put(hold, FAULTS, culprits_fd(c), &why) == ERR_OK)
            culprits_kept(c);
        else
            log_event(LOG_WARN, "what faults will not be known after a crash", "reason",
                      why.message, NULL);
    }
    *ret = c;
    return ERR_OK;
}

static void count_fault(struct culprits *c, const char *who)
{
    char faults[24];
    snprintf(faults, sizeof faults, "%lld", (long long)culprits_strike(c, who));
    log_event(LOG_ERROR, "only work of this user was running at the fault", "principal", who,
              "faults", faults, NULL);
    if (culprits_barred(c, who) > 0)
        log_event(LOG_ERROR, "work of this user is not run for a while", "principal", who, NULL);
}

void blame_crash(struct culprits *c, const struct hold *hold)
{
    uint32_t n;
    char why[64], key[CODE_KEY_TEXT];
    const int sig = hold_signal(hold);
    const struct culprit_left *left = culprits_left(c, &n);
    if (n == 0 && !is_a_crash(sig))
        return;
    if (is_a_crash(sig))
        snprintf(why, sizeof why, "the daemon died of signal %d (%s)", sig, strsignal(sig));
    else
        snprintf(why, sizeof why, "the daemon crashed"); /* one before the last */
    const bool saved = culprits_crashed(c, why);
    for (uint32_t i = 0; i < n; i++) {
        code_key_text(&left[i].plan, key);
        log_event(LOG_ERROR, "running when the previous process crashed", "principal", left[i].who,
                  "kernels", left[i].form, "key", key, "from_now_on",
                  left[i].refused ? "refused" : "suspected", NULL);
    }
    if (n == 1 && left[0].refused)
        count_fault(c, left[0].who);
    if (!saved)
        log_event(LOG_ERROR, "what was running could not be recorded", NULL);
}

struct culprit_who blame_who(const void *asker)
{
    const struct asker *a = asker;
    return a ? (struct culprit_who){a->principal, a->job} : (struct culprit_who){0};
}

void blame_fault(struct culprits *c, const struct backend_fault *f)
{
    const char *who = NULL;
    bool one = f->of_kernels;
    for (uint32_t i = 0; i < f->n_work && one; i++) {
        const char *name = blame_who(f->work[i].asker).name;
        if (f->work[i].n_kernels == 0)
            continue;
        one = name && *name && (!who || !strcmp(who, name));
        who = name;
    }
    if (one && who)
        count_fault(c, who);
}
