/* MADV_COLLAPSE makes huge pages of memory that has at least one page in each of them, keeps what
 * is there, and may run beside writers. A call takes long to begin (all processors give back what
 * they have put aside), so it gets as many huge pages as a caller of ahead_end can wait for. */
#include "compute/cpu/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "compute/base/mem.h"
#include "compute/base/worker.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE (INT64_C(2) << 20)
#define PAGE      4096
#define LEAST     (INT64_C(8) << 20)
#define MOST      (INT64_C(1) << 30)
#define STEP      (INT64_C(64) << 20)
#define SPANS     16

struct span {
    char *data, *at;
    int64_t left;
};

struct ahead {
    pthread_mutex_t lock;
    struct worker worker;
    pthread_cond_t made;
    struct span spans[SPANS]; /* oldest first */
    int n;
    const char *busy; /* the data of the span that the thread is in; NULL: none */
};

static bool make(char *at, int64_t size)
{
    for (int64_t i = 0; i < size; i += HUGE_PAGE)
        if (madvise(at + i, PAGE, MADV_POPULATE_WRITE) != 0)
            return false;
    if (madvise(at, (size_t)size, MADV_COLLAPSE) == 0 || errno == EAGAIN || errno == EBUSY)
        return true;
    return errno == EINVAL && madvise(at, (size_t)size, MADV_POPULATE_WRITE) == 0;
}

static void drop(struct ahead *a, int i)
{
    for (a->n--; i < a->n; i++)
        a->spans[i] = a->spans[i + 1];
}

static double step(void *user)
{
    struct ahead *a = user;
    if (a->n == 0)
        return WORKER_RESTS;
    struct span *s = &a->spans[0];
    char *at = s->at;
    const int64_t size = s->left < STEP ? s->left : STEP;
    a->busy = s->data;
    s->at += size;
    s->left -= size;
    if (s->left == 0)
        drop(a, 0);
    pthread_mutex_unlock(&a->lock);
    const bool made = make(at, size);
    pthread_mutex_lock(&a->lock);
    if (!made && a->n && a->spans[0].data == a->busy)
        drop(a, 0); /* no memory left: its writer will see */
    a->busy = NULL;
    pthread_cond_broadcast(&a->made);
    return WORKER_AGAIN;
}

struct ahead *ahead_new(void)
{
    struct ahead *a = mem_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    pthread_mutex_init(&a->lock, NULL); /* neither can fail here */
    pthread_cond_init(&a->made, NULL);
    a->worker = (struct worker){.name = "arrayd-ahead", .lock = &a->lock, .step = step, .user = a};
    worker_init(&a->worker);
    return a;
}

void ahead_free(struct ahead *a)
{
    if (!a)
        return;
    worker_stop(&a->worker);
    worker_destroy(&a->worker);
    pthread_cond_destroy(&a->made);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

void ahead_begin(struct ahead *a, void *data, int64_t size)
{
    size = (size < MOST ? size : MOST) / HUGE_PAGE * HUGE_PAGE;
    if (size < LEAST || !worker_start(&a->worker))
        return;
    pthread_mutex_lock(&a->lock);
    if (a->n < SPANS)
        a->spans[a->n++] = (struct span){data, data, size};
    pthread_mutex_unlock(&a->lock);
    worker_wake(&a->worker);
}

void ahead_end(struct ahead *a, const void *data)
{
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < a->n; i++)
        if (a->spans[i].data == data)
            drop(a, i--);
    while (a->busy == data)
        pthread_cond_wait(&a->made, &a->lock);
    pthread_mutex_unlock(&a->lock);
}
