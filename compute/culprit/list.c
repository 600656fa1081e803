/* The list in memory. Kernels are listed, and plans of several as the sum of their kernels' keys; a
 * plan of one kernel is that kernel. Where a plan faulted alone, one of its kernels did it: they
 * are noted as its parts, and one that is part of a second plan that faults is refused by itself.
 */
#include <stdio.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/culprit/culprit_int.h"

#define SUSPECT_S (24 * 3600) /* how long a suspicion lasts */

static bool drop(struct culprits *c, const struct code_key *key, bool refused)
{
    lock_held(&c->lock);
    struct culprit_entry *e = culprits_find(c, key);
    if (!e || (e->state == CULPRIT_REFUSED && !refused))
        return false;
    *e = c->m->entries[--c->m->n];
    return true;
}

/* --- faults --- */

/* How many different kernels there are; *ret_works: pieces of work that have any. */
static uint32_t count_kernels(const struct culprit_work *works, uint32_t n, uint32_t *ret_works)
{
    uint32_t different = 0;
    *ret_works = 0;
    for (uint32_t w = 0; w < n; w++) {
        *ret_works += works[w].n_kernels > 0;
        for (uint32_t k = 0; k < works[w].n_kernels; k++) {
            bool seen = false;
            for (uint32_t v = 0; v < w && !seen; v++)
                for (uint32_t i = 0; i < works[v].n_kernels && !seen; i++)
                    seen = code_key_same(&works[v].kernels[i].key, &works[w].kernels[k].key);
            different += !seen;
        }
    }
    return different;
}

static bool is_recent(const struct culprit_entry *e, time_t now)
{
    return now - e->at < SUSPECT_S;
}

static void note(struct culprits *c, const struct code_key *key, const char *form, const char *why,
                 enum culprit_state state, time_t now)
{
    struct culprit_entry e = {.key = *key, .state = state, .at = now};
    snprintf(e.form, sizeof e.form, "%s", form);
    snprintf(e.why, sizeof e.why, "%s", why);
    culprits_add(c, &e);
}

/* What becomes of a kernel: `alone`, nothing else was there; `part`, but others of its plan. */
static enum culprit_state judge_kernel(struct culprits *c, const struct code_key *key, bool alone,
                                       bool part, time_t now)
{
    lock_held(&c->lock);
    const struct culprit_entry *was = culprits_find(c, key);
    if (alone || (was && was->state == CULPRIT_REFUSED))
        return CULPRIT_REFUSED;
    const bool was_part = was && was->state == CULPRIT_PART && is_recent(was, now);
    return part ? (was_part ? CULPRIT_REFUSED : CULPRIT_PART)
                : (was_part ? CULPRIT_PART : CULPRIT_SUSPECT);
}

static void note_work(struct culprits *c, struct culprit_work *w, const char *why, bool alone,
                      bool part, time_t now)
{
    lock_held(&c->lock);
    for (uint32_t k = 0; k < w->n_kernels; k++) {
        struct culprit_kernel *x = &w->kernels[k];
        const enum culprit_state state = judge_kernel(c, &x->key, alone, part, now);
        x->refused = state == CULPRIT_REFUSED;
        note(c, &x->key, x->form, why, state, now);
    }
    if (part && w->n_kernels) {
        char form[CULPRIT_FORM];
        snprintf(form, sizeof form, "plan-of-%u", w->n_kernels);
        note(c, &w->plan, form, why, CULPRIT_REFUSED, now);
    }
}

bool culprits_fault(struct culprits *c, const char *why, struct culprit_work *works, uint32_t n,
                    bool sure)
{
    const time_t now = clock_date();
    uint32_t n_works;
    const uint32_t different = count_kernels(works, n, &n_works);
    if (different == 0)
        return true;
    pthread_mutex_lock(&c->lock);
    culprits_read(c); /* what other processes or an operator changed */
    for (uint32_t w = 0; w < n; w++)
        note_work(c, &works[w], why, sure && different == 1, sure && different > 1 && n_works == 1,
                  now);
    culprits_counted(c);
    bool ok = culprits_write(c);
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* --- asking --- */

bool culprits_is_empty(const struct culprits *c)
{
    return atomic_load_explicit(&c->n, memory_order_relaxed) == 0;
}

int culprits_count(const struct culprits *c)
{
    return atomic_load_explicit(&c->n_refused, memory_order_relaxed);
}

int culprits_suspects(struct culprits *c)
{
    const time_t now = clock_date();
    int n = 0;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->m->n; i++)
        n += c->m->entries[i].state != CULPRIT_REFUSED && is_recent(&c->m->entries[i], now);
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* The first 8 bytes of the key make the number. */
static uint64_t number_of(const struct code_key *key)
{
    uint64_t number;
    memcpy(&number, key->sha, sizeof number);
    return number | CULPRITS_NUMBER;
}

static struct culprit_verdict search(struct culprits *c, const struct code_key *keys, uint32_t n,
                                     const struct code_key *plan)
{
    lock_held(&c->lock);
    const time_t now = clock_date();
    struct culprit_verdict v = {.code = ERR_OK};
    for (uint32_t i = 0; i <= n && v.code == ERR_OK; i++) {
        const struct culprit_entry *e = culprits_find(c, i ? &keys[i - 1] : plan);
        if (e && e->state == CULPRIT_REFUSED) {
            v.code = i ? ERR_FAULTED : ERR_PLAN_FAULTED;
            v.refusal = number_of(&e->key);
        } else if (e && is_recent(e, now)) {
            v.alone = true;
        }
    }
    return v;
}

struct culprit_verdict culprits_judge(struct culprits *c, const struct code_key *keys, uint32_t n,
                                      const struct code_key *plan)
{
    struct culprit_verdict v = {.code = ERR_OK};
    if (culprits_is_empty(c))
        return v;
    pthread_mutex_lock(&c->lock);
    v = search(c, keys, n, plan);
    if (v.code != ERR_OK || v.alone) {
        culprits_read(c);
        v = search(c, keys, n, plan);
    }
    pthread_mutex_unlock(&c->lock);
    return v;
}

void culprits_cleared(struct culprits *c, const struct code_key *keys, uint32_t n,
                      const struct code_key *plan)
{
    pthread_mutex_lock(&c->lock);
    culprits_read(c);
    bool any = drop(c, plan, false);
    for (uint32_t i = 0; i < n; i++)
        any |= drop(c, &keys[i], false);
    culprits_counted(c);
    if (any)
        (void)culprits_write(c);
    pthread_mutex_unlock(&c->lock);
}

bool culprits_avoids(struct culprits *c, const struct code_key *key)
{
    pthread_mutex_lock(&c->lock);
    const struct culprit_entry *e = culprits_find(c, key);
    if (e) {
        culprits_read(c);
        e = culprits_find(c, key);
    }
    bool avoids = e && (e->state == CULPRIT_REFUSED ||
                        (e->state == CULPRIT_PART && is_recent(e, clock_date())));
    pthread_mutex_unlock(&c->lock);
    return avoids;
}

void culprits_reason(struct culprits *c, uint64_t number, char ret[CULPRITS_TEXT])
{
    char date[CULPRITS_DATE], key[CODE_KEY_TEXT];
    *ret = '\0';
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->m->n; i++) {
        const struct culprit_entry *e = &c->m->entries[i];
        if (e->state != CULPRIT_REFUSED || number_of(&e->key) != number)
            continue;
        culprits_date(e->at, date);
        code_key_text(&e->key, key);
        snprintf(ret, CULPRITS_TEXT,
                 "refused: at %s the %s%s %.16s was running alone when something faulted (%s); an "
                 "operator can allow it again",
                 date, e->form, strncmp(e->form, "plan", 4) ? " kernel" : "", key, e->why);
        break;
    }
    pthread_mutex_unlock(&c->lock);
}

/* --- operators --- */

void culprits_each(struct culprits *c, void (*work)(void *user, const struct culprit_entry *e),
                   void (*strike)(void *user, const struct culprit_strike *s), void *user)
{
    pthread_mutex_lock(&c->lock);
    culprits_read(c);
    for (int i = 0; i < c->m->n && work; i++)
        work(user, &c->m->entries[i]);
    for (int i = 0; i < c->m->n_strikes && strike; i++)
        strike(user, &c->m->strikes[i]);
    pthread_mutex_unlock(&c->lock);
}

int culprits_forget(struct culprits *c, const char *which)
{
    struct code_key key;
    int n = 0;
    pthread_mutex_lock(&c->lock);
    culprits_read(c);
    if (!which) {
        n = c->m->n + c->m->n_strikes;
        c->m->n = c->m->n_strikes = 0;
    } else {
        n = code_key_read(which, &key) && drop(c, &key, true);
        int32_t left = 0;
        for (int i = 0; i < c->m->n_strikes; i++)
            if (strcmp(c->m->strikes[i].who, which) != 0)
                c->m->strikes[left++] = c->m->strikes[i];
        n += c->m->n_strikes - left;
        c->m->n_strikes = left;
    }
    culprits_counted(c);
    if (n)
        (void)culprits_write(c);
    pthread_mutex_unlock(&c->lock);
    return n;
}
