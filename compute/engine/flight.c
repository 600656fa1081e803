/* Work that nobody wants: the client that asked for it has gone, and with it all that led to the
 * result.
 *
 * Nobody need report that. What a task writes can be read only through references that others than
 * tasks have on its storage: a buffer's, a download's. Where there are none, and no task that is
 * wanted itself comes behind it to read, nobody will ever see what the task makes. So those in
 * flight are looked through from the newest to the oldest, and a reference is one of somebody
 * else's when there are more of them than tasks in flight hold. Such references cannot come back
 * once they have gone, since whoever makes one has one; what is counted too high for a moment (a
 * task that is just coming or going) is found the next time.
 *
 * A backend asks while work is running (job.unwanted), not before some milliseconds have gone since
 * the last time, so that small work is not burdened with any of this. */
#include "compute/base/clock.h"
#include "compute/engine/engine_int.h"

#define LOOK_NS 5000000u

void flight_add(struct task *t)
{
    struct flight *f = &t->stream->engine->flight;
    pthread_mutex_lock(&f->lock);
    struct task *before = f->newest; /* mostly: several threads submit */
    while (before && before->number > t->number)
        before = before->older;
    t->older = before;
    t->newer = before ? before->newer : f->oldest;
    *(t->newer ? &t->newer->older : &f->newest) = t;
    *(before ? &before->newer : &f->oldest) = t;
    t->in_flight = true;
    pthread_mutex_unlock(&f->lock);
}

void flight_remove(struct task *t)
{
    struct flight *f = &t->stream->engine->flight;
    if (!t->in_flight)
        return;
    pthread_mutex_lock(&f->lock);
    *(t->newer ? &t->newer->older : &f->newest) = t->older;
    *(t->older ? &t->older->newer : &f->oldest) = t->newer;
    t->in_flight = false;
    pthread_mutex_unlock(&f->lock);
}

static void count_references(const struct flight *f)
{
    for (const struct task *t = f->oldest; t; t = t->newer)
        for (uint32_t i = 0; i < t->n_uses; i++) {
            t->uses[i].storage->in_flight = 0;
            t->uses[i].storage->awaited = false;
        }
    for (const struct task *t = f->oldest; t; t = t->newer) {
        struct storage *left = download_left(t);
        for (uint32_t i = 0; i < t->n_uses; i++)
            t->uses[i].storage->in_flight++;
        if (left)
            left->in_flight++;
    }
}

/* Those behind it are known. */
static bool is_wanted(const struct task *t)
{
    if (!t->job.unwanted)
        return !task_is_idle_download(t);
    bool held = !t->given_up || !atomic_load(t->given_up), writes = false;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        const struct storage *st = t->uses[i].storage;
        if (!t->uses[i].write)
            continue;
        if (st->awaited || (held && !st->scratch && atomic_load(&st->refs) > st->in_flight))
            return true;
        writes = true;
    }
    return held && !writes; /* it is no more than a step of what comes behind it */
}

static void look(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    count_references(f);
    for (struct task *t = f->newest; t; t = t->older) {
        bool wanted = is_wanted(t);
        for (uint32_t i = 0; i < t->n_uses; i++)
            if (wanted)
                t->uses[i].storage->awaited = true;
            else if (t->uses[i].write)
                storage_forget(t->uses[i].storage); /* which nobody wants in its place either */
        atomic_store(&t->unwanted, !wanted);
    }
    pthread_mutex_unlock(&f->lock);
}

bool flight_unwanted(struct job *job)
{
    struct task *t = job->user;
    struct flight *f = &t->stream->engine->flight;
    uint64_t now = clock_ns(), last = atomic_load(&f->looked_ns);
    if (now - last >= LOOK_NS && atomic_compare_exchange_strong(&f->looked_ns, &last, now))
        look(f);
    return atomic_load(&t->unwanted);
}
