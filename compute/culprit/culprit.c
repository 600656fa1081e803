/* The memory. A process that died may have left it half changed: so lengths are bounded
 * and texts ended before they are used, and what is wrong then is one line. */
#include "compute/culprit/culprit_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"

static const char magic[16] = "arrayd faults 1";

static int make_file(void)
{
    int fd = mem_file("arrayd-culprits");
    if (fd >= 0 && fallocate(fd, 0, 0, sizeof(struct culprits_memory)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Without a descriptor: memory of this process alone. */
static bool map(struct culprits *c)
{
    struct stat st;
    if (c->fd >= 0 && (fstat(c->fd, &st) != 0 || st.st_size != sizeof *c->m))
        return false;
    void *p = mmap(NULL, sizeof *c->m, PROT_READ | PROT_WRITE,
                   c->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, c->fd, 0);
    c->m = p == MAP_FAILED ? NULL : p;
    return c->m;
}

static void unmap(struct culprits *c)
{
    if (c->m)
        munmap(c->m, sizeof *c->m);
    if (c->fd >= 0)
        close(c->fd);
    c->m = NULL;
    c->fd = -1;
}

static void end_texts(struct culprits_memory *m)
{
    m->n = m->n < 0 ? 0 : m->n > CULPRITS_MOST ? CULPRITS_MOST : m->n;
    m->n_strikes = m->n_strikes < 0               ? 0
                   : m->n_strikes > CULPRITS_MOST ? CULPRITS_MOST
                                                  : m->n_strikes;
    for (int i = 0; i < m->n; i++)
        m->entries[i].form[CULPRIT_FORM - 1] = m->entries[i].why[CULPRIT_WHY - 1] = '\0';
    for (int i = 0; i < m->n_strikes; i++)
        m->strikes[i].who[CULPRIT_WHO - 1] = '\0';
}

static void take_plan(struct culprits *c, const struct running_slot *s, uint32_t slot)
{
    struct culprit_left *l = &c->left[c->n_left++];
    l->slot = slot;
    l->plan = s->plan;
    l->alone = s->alone;
    memcpy(l->who, s->who, sizeof l->who);
    memcpy(l->form, s->form, sizeof l->form);
    memcpy(l->job, s->job, sizeof l->job);
    if (s->n_kernels > 1)
        snprintf(l->form, sizeof l->form, "plan-of-%u", s->n_kernels);
}

/* Notes what was running. False without memory. */
static bool take_running(struct culprits *c)
{
    c->left = mem_calloc(RUNNING_MOST, sizeof *c->left);
    for (uint32_t i = 0; c->left && i < RUNNING_MOST; i++) {
        struct running_slot *s = &c->m->slots[i];
        const uint32_t state = atomic_load(&s->state);
        const bool left = state == SLOT_RUNS || state == SLOT_CRASHED;
        s->who[sizeof s->who - 1] = s->form[sizeof s->form - 1] = s->job[sizeof s->job - 1] = '\0';
        if (left && *s->form) {
            take_plan(c, s, i);
            continue;
        }
        if (left) {
            memcpy(c->job_left, s->job, sizeof c->job_left);
            c->n_jobs_left++;
        }
        atomic_store(&s->state, SLOT_FREE);
    }
    return c->left;
}

static bool is_ours(const struct culprits_memory *m)
{
    return memcmp(m->magic, magic, sizeof magic) == 0 &&
           strncmp(m->version, ARRAYD_VERSION, sizeof m->version) == 0;
}

struct culprits *culprits_open(bool shared, int take_fd)
{
    struct culprits *c = mem_calloc(1, sizeof *c);
    if (!c) {
        if (take_fd >= 0)
            close(take_fd);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->fd = take_fd;
    c->dir = -1;
    if (take_fd >= 0 && map(c) && is_ours(c->m)) {
        c->kept = true;
        end_texts(c->m);
        if (!take_running(c)) {
            culprits_close(c);
            return NULL;
        }
    } else {
        unmap(c);
        c->fd = shared ? make_file() : -1;
        if ((shared && c->fd < 0) || !map(c)) {
            culprits_close(c);
            return NULL;
        }
        memcpy(c->m->magic, magic, sizeof magic);
        strncpy(c->m->version, ARRAYD_VERSION, sizeof c->m->version - 1);
    }
    pthread_mutex_lock(&c->lock);
    culprits_counted(c);
    pthread_mutex_unlock(&c->lock);
    return c;
}

void culprits_close(struct culprits *c)
{
    if (!c)
        return;
    unmap(c);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->left);
    mem_free(c);
}

int culprits_fd(const struct culprits *c)
{
    return c->fd;
}

void culprits_kept(struct culprits *c)
{
    c->kept = true;
}

bool culprits_are_kept(const struct culprits *c)
{
    return c->kept;
}

void culprits_folder(struct culprits *c, int dir)
{
    pthread_mutex_lock(&c->lock);
    c->dir = dir;
    if (dir >= 0 && c->m->unsaved)
        (void)culprits_write(c);
    else if (dir >= 0) { /* the file is as new as the memory, or an operator's */
        c->m->n = c->m->n_strikes = 0;
        culprits_read(c);
        culprits_counted(c);
    }
    pthread_mutex_unlock(&c->lock);
}

int culprits_count_in(const char *folder)
{
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct culprits *c = dir >= 0 ? culprits_open(false, -1) : NULL;
    if (c)
        culprits_folder(c, dir);
    int n = c ? culprits_count(c) : 0;
    culprits_close(c);
    if (dir >= 0)
        close(dir);
    return n;
}
