/* Faults of users' work, by wall-clock time, since they are counted across processes. A user is
 * barred from the last of `limit` faults within the window on, for as long as the window is. */
#include <stdio.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/culprit/culprit_int.h"

void culprits_limit(struct culprits *c, int64_t limit, double window_s)
{
    pthread_mutex_lock(&c->lock);
    c->limit = limit;
    c->window_s = window_s;
    pthread_mutex_unlock(&c->lock);
}

/* How many there were within the window up to the user's last; *ret_last: when that was. */
static int64_t count(const struct culprits *c, const char *who, time_t *ret_last)
{
    lock_held(&c->lock);
    int64_t n = 0;
    *ret_last = 0;
    for (int i = c->m->n_strikes - 1; i >= 0; i--) {
        const struct culprit_strike *s = &c->m->strikes[i];
        if (strncmp(s->who, who, sizeof s->who) != 0)
            continue;
        *ret_last = *ret_last ? *ret_last : s->at;
        n += difftime(*ret_last, s->at) < c->window_s;
    }
    return n;
}

int64_t culprits_strike(struct culprits *c, const char *who)
{
    struct culprit_strike s = {.at = clock_date()};
    time_t last;
    snprintf(s.who, sizeof s.who, "%s", who);
    pthread_mutex_lock(&c->lock);
    culprits_read(c);
    culprits_add_strike(c, &s);
    culprits_counted(c);
    (void)culprits_write(c);
    int64_t n = count(c, who, &last);
    pthread_mutex_unlock(&c->lock);
    return n;
}

int64_t culprits_strikes(struct culprits *c, const char *who)
{
    time_t last;
    pthread_mutex_lock(&c->lock);
    int64_t n = count(c, who, &last);
    n = difftime(clock_date(), last) < c->window_s ? n : 0;
    pthread_mutex_unlock(&c->lock);
    return n;
}

double culprits_barred(struct culprits *c, const char *who)
{
    time_t last;
    if (atomic_load_explicit(&c->n_strikes, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&c->lock);
    double left = 0;
    if (c->limit > 0 && count(c, who, &last) >= c->limit) {
        culprits_read(c); /* an operator may have lifted it */
        if (count(c, who, &last) >= c->limit)
            left = c->window_s - difftime(clock_date(), last);
    }
    left = left > c->window_s ? c->window_s : left; /* the clock was set back */
    pthread_mutex_unlock(&c->lock);
    return left > 0 ? left : 0;
}

enum err_code culprits_admit(struct culprits *c, const char *who, struct err *e)
{
    const double left = c ? culprits_barred(c, who) : 0;
    if (left <= 0)
        return ERR_OK;
    err_set(e, ERR_PRINCIPAL_FAULTED,
            "your work has made the device fault %lld times within %.0f seconds: no more of it is "
            "run for %.0f seconds, unless an operator allows it",
            (long long)c->limit, c->window_s, left < 1 ? 1 : left);
    if (e)
        e->retry_s = (int)left + 1;
    return ERR_PRINCIPAL_FAULTED;
}
