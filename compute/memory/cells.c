/* Cell 0 is the opening of the memory. All of it is allocated at once, so that no store can fail
 * for lack of a page. Which cells are taken is known to this process only: after a death those
 * count that somebody asks for, once each, and the others are free. */
#include "compute/memory/cells.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/memory/memory.h"

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)

static const char magic[16] = "arrayd cells " TEXT(ENGINE_KEEP_VERSION) "\n";

struct cells {
    pthread_mutex_t lock;
    int fd;
    struct cell *all;
    uint32_t n; /* the opening included */
    uint64_t *taken;
    uint64_t *left;       /* of those: by the previous process, not yet asked for; NULL: none */
    uint32_t low;         /* before it, all words are full */
    _Atomic int64_t used; /* changed under the lock */
    bool frozen, is_new, damaged;
    uint64_t how; /* the previous process ended */
};

static size_t words(uint32_t cells)
{
    return (cells + 63) / 64;
}

static bool can_be_cells(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof(struct cell) &&
           st.st_size / (off_t)sizeof(struct cell) <= UINT32_MAX;
}

/* Fills in c->all and c->n: as many as there are, but at least `most`. */
static enum err_code map(struct cells *c, uint32_t most, struct err *e)
{
    const off_t least = ((off_t)most + 1) * (off_t)sizeof(struct cell);
    struct stat st;
    if (fstat(c->fd, &st) != 0 || (st.st_size < least && fallocate(c->fd, 0, 0, least) != 0))
        return err_oom(e);
    c->n = (uint32_t)((st.st_size > least ? st.st_size : least) / (off_t)sizeof(struct cell));
    void *p = mmap(NULL, c->n * sizeof(struct cell), PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (p == MAP_FAILED)
        return err_oom(e);
    c->all = p;
    c->damaged |= !c->is_new && memcmp(p, magic, sizeof magic) != 0;
    if (c->damaged)
        atomic_store(&c->all->ended, 0);
    memcpy(p, magic, sizeof magic);
    return ERR_OK;
}

static bool says_something(const struct cell *cell)
{
    return atomic_load(&cell->writing) | atomic_load(&cell->owner) | atomic_load(&cell->coming);
}

static void count(struct cells *c, int more)
{
    const int64_t used = atomic_load_explicit(&c->used, memory_order_relaxed);
    atomic_store_explicit(&c->used, used + more, memory_order_relaxed);
}

static bool find_left(struct cells *c)
{
    c->left = mem_calloc(words(c->n), sizeof *c->left);
    for (uint32_t i = 1; c->left && i < c->n; i++)
        if (says_something(&c->all[i])) {
            c->left[i / 64] |= UINT64_C(1) << i % 64;
            c->taken[i / 64] |= UINT64_C(1) << i % 64;
            count(c, 1);
        }
    return c->left;
}

enum err_code cells_new(uint32_t most, int take_fd, struct cells **ret, struct err *e)
{
    const bool adopts = take_fd >= 0 && can_be_cells(take_fd), none = take_fd >= 0 && !adopts;
    if (none)
        close(take_fd);
    const int fd = adopts ? take_fd : mem_file("arrayd-cells");
    struct cells *c = fd >= 0 ? mem_calloc(1, sizeof *c) : NULL;
    if (!c) {
        if (fd >= 0)
            close(fd);
        return err_oom(e);
    }
    c->fd = fd;
    c->is_new = !adopts;
    c->damaged = none;
    pthread_mutex_init(&c->lock, NULL); /* cannot fail here */
    enum err_code code = map(c, most, e);
    if (code == ERR_OK) {
        c->taken = mem_calloc(words(c->n), sizeof *c->taken);
        code = c->taken ? ERR_OK : err_oom(e);
    }
    if (code != ERR_OK) {
        cells_free(c);
        return code;
    }
    c->taken[0] = 1;
    if (adopts && !find_left(c)) {
        cells_free(c);
        return err_oom(e);
    }
    *ret = c;
    return ERR_OK;
}

void cells_free(struct cells *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    if (c->all)
        munmap(c->all, c->n * sizeof *c->all);
    close(c->fd);
    mem_free(c->taken);
    mem_free(c->left);
    mem_free(c);
}

int cells_fd(const struct cells *c)
{
    return c->fd;
}

/* --- how a process ended: its date in seconds, and in the last byte a signal or enum cells_how; in
 * the opening, 0 while the process lives --- */

#define HOW_BITS  8
#define HOW_MASK  ((UINT64_C(1) << HOW_BITS) - 1)
#define LAST_DATE (UINT64_C(1) << 36) /* later ones are none */

static uint64_t ended_at(int64_t when, uint64_t how)
{
    return (uint64_t)when << HOW_BITS | how;
}

static void note_end(struct cells *c, uint64_t ended)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong(&c->all->ended, &none, ended);
}

void cells_end(struct cells *c, enum cells_how how)
{
    note_end(c, ended_at(clock_date(), how));
}

void cells_died(struct cells *c, int signal, int64_t when)
{
    const bool unseen = when <= 0 && signal == 0;
    c->how = ended_at(when > 0 ? when : clock_date(), unseen ? CELLS_UNSEEN : (uint64_t)signal);
    if (c->is_new)
        return;
    note_end(c, c->how); /* until cells_settle: this process may not get so far */
    c->how = atomic_load(&c->all->ended);
}

static bool is_dated(uint64_t ended)
{
    return ended >> HOW_BITS > 0 && ended >> HOW_BITS < LAST_DATE;
}

uint64_t cells_lose(struct cells *c, uint32_t cell, bool changed)
{
    struct cell *at = cells_at(c, cell);
    const uint64_t how = changed ? (c->how & ~HOW_MASK) | CELLS_CHANGED : c->how;
    if (!is_dated(atomic_load(&at->ended)))
        atomic_store(&at->ended, how);
    return atomic_load(&at->ended);
}

void cells_how_text(uint64_t ended, char *ret, size_t n)
{
    const uint64_t how = ended & HOW_MASK;
    char when[CLOCK_DATE_SIZE] = "", by[64] = "ended";
    if (is_dated(ended))
        clock_date_text((int64_t)(ended >> HOW_BITS) * 1000000, when);
    if (how == CELLS_LOST_DEVICE)
        snprintf(by, sizeof by, "lost its device");
    else if (how == CELLS_ASKED)
        snprintf(by, sizeof by, "was asked to end");
    else if (how > 0 && how <= SIGRTMAX)
        snprintf(by, sizeof by, "died of signal %d (%s)", (int)how, strsignal((int)how));
    const char *what = how == CELLS_CHANGED ? "changed by something else" : "being written";
    const char *joint = !*when ? "" : how == CELLS_UNSEEN ? " before " : " at ";
    snprintf(ret, n, "was %s when the daemon %s%s%s", what, by, joint, when);
}

bool cells_are_new(const struct cells *c)
{
    return c->is_new;
}

bool cells_are_damaged(const struct cells *c)
{
    return c->damaged;
}

struct cell *cells_at(const struct cells *c, uint32_t cell)
{
    return &c->all[cell];
}

const struct cell *cells_look(const struct cells *c, uint64_t cell)
{
    return cell > 0 && cell < c->n ? &c->all[cell] : NULL;
}

static void clear(struct cell *at)
{
    atomic_store(&at->owner, 0);
    atomic_store(&at->coming, 0);
    atomic_store(&at->writing, 0);
    atomic_store(&at->ended, 0);
    atomic_store(&at->sum, CELL_SUM_NONE);
}

uint32_t cells_take(struct cells *c)
{
    uint32_t cell = 0;
    pthread_mutex_lock(&c->lock);
    while (c->low < words(c->n) && c->taken[c->low] == UINT64_MAX)
        c->low++;
    if (c->low < words(c->n))
        cell = c->low * 64 + (uint32_t)__builtin_ctzll(~c->taken[c->low]);
    if (cell >= c->n)
        cell = 0;
    if (cell) {
        c->taken[cell / 64] |= UINT64_C(1) << cell % 64;
        count(c, 1);
        clear(cells_at(c, cell));
    }
    pthread_mutex_unlock(&c->lock);
    return cell;
}

struct cell *cells_take_at(struct cells *c, uint32_t cell)
{
    const uint64_t bit = UINT64_C(1) << cell % 64;
    pthread_mutex_lock(&c->lock);
    const bool there = c->left && cell < c->n && (c->left[cell / 64] & bit);
    if (there)
        c->left[cell / 64] &= ~bit;
    pthread_mutex_unlock(&c->lock);
    return there ? cells_at(c, cell) : NULL;
}

void cells_give(struct cells *c, uint32_t cell)
{
    pthread_mutex_lock(&c->lock);
    if (!c->frozen)
        clear(cells_at(c, cell));
    c->taken[cell / 64] &= ~(UINT64_C(1) << cell % 64);
    count(c, -1);
    if (cell / 64 < c->low)
        c->low = cell / 64;
    pthread_mutex_unlock(&c->lock);
}

void cells_count(struct cells *c, int64_t *ret, int64_t *ret_most)
{
    *ret = atomic_load(&c->used);
    *ret_most = (int64_t)c->n - 1;
}

void cells_freeze(struct cells *c)
{
    pthread_mutex_lock(&c->lock);
    c->frozen = true;
    pthread_mutex_unlock(&c->lock);
}

void cells_settle(struct cells *c)
{
    for (uint32_t i = 1; c->left && i < c->n; i++)
        if (c->left[i / 64] >> i % 64 & 1)
            cells_give(c, i);
    mem_free(c->left);
    c->left = NULL;
    atomic_store(&c->all->ended, 0);
}
