/* Jobs are numbers that whoever is free takes next, the caller too. */
#include "server/reader/crew.h"

#include <malloc.h>
#include <pthread.h>

#define STACK_BYTES (256 << 10)

static struct {
    int threads;
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    /* the work at hand */
    bool (*job)(int i);
    int n, next, left; /* jobs, the next one, those not done */
    bool bad;
} self = {.threads = 1,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .more = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

/* Called and returns with the lock held. */
static void work(void)
{
    while (self.next < self.n) {
        int i = self.next++;
        pthread_mutex_unlock(&self.lock);
        bool ok = self.job(i);
        pthread_mutex_lock(&self.lock);
        self.bad = self.bad || !ok;
        if (--self.left == 0)
            pthread_cond_signal(&self.done);
    }
}

static void *run(void *unused)
{
    pthread_mutex_lock(&self.lock);
    for (;;) {
        work();
        pthread_cond_wait(&self.more, &self.lock);
    }
    return unused;
}

void crew_start(int threads)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (threads <= self.threads || pthread_attr_init(&attr) != 0)
        return;
    mallopt(M_ARENA_MAX, 1); /* another one reserves much of the address space */
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    while (self.threads < threads && pthread_create(&thread, &attr, run, NULL) == 0)
        self.threads++;
    pthread_attr_destroy(&attr);
}

int crew_size(void)
{
    return self.threads;
}

int crew_work(void)
{
    return self.threads < CREW_WORK / 2 ? 2 * self.threads : CREW_WORK;
}

bool crew_run(int n, bool (*job)(int i))
{
    pthread_mutex_lock(&self.lock);
    self.job = job;
    self.n = self.left = n;
    self.next = 0;
    self.bad = false;
    if (n > 1)
        pthread_cond_broadcast(&self.more);
    work();
    while (self.left > 0)
        pthread_cond_wait(&self.done, &self.lock);
    bool ok = !self.bad;
    pthread_mutex_unlock(&self.lock);
    return ok;
}
