/* An engine with a keeper of its arrays' memory, as a process has them, and what a journal would
 * know: for tests in which another engine takes over. Included behind cmocka.h. */
#ifndef ARRAYD_TESTS_SIDE_H
#define ARRAYD_TESTS_SIDE_H

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "compute/engine/engine.h"
#include "compute/memory/cells.h"
#include "compute/memory/memory_int.h"
#include "tests/keeper.h"

#define SIDE_MOST 64

struct side {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    struct keeper keeper;
    struct engine_placed all[SIDE_MOST]; /* what a journal would have */
    int n, cells;
    uint64_t writing;  /* of the cell of what was placed last, at that time */
    struct side *dies; /* at the next time that something is placed: what is left then; or NULL */
};

static inline struct engine_placed *side_find(struct side *x, uint64_t buffer)
{
    for (int i = 0; i < x->n; i++)
        if (x->all[i].buffer == buffer)
            return &x->all[i];
    return NULL;
}

/* What the keeper and the journal have, for another process: `to` is not open yet. The cells are a
 * copy: whatever `x` does from now on is not seen. The caller has the keeper's lock. */
static inline void side_copy_locked(const struct side *x, struct side *to)
{
    memset(to, 0, sizeof *to);
    for (int i = 0; i < x->keeper.n; i++) {
        to->keeper.all[i] = x->keeper.all[i];
        for (int k = 0; k < x->keeper.all[i].n; k++) {
            to->keeper.all[i].fds[k] = fcntl(x->keeper.all[i].fds[k], F_DUPFD_CLOEXEC, 0);
            assert_true(to->keeper.all[i].fds[k] >= 0);
        }
    }
    to->keeper.n = x->keeper.n;
    memcpy(to->all, x->all, sizeof x->all);
    to->n = x->n;
    struct stat st;
    char block[4096];
    to->cells = memfd_create("cells", MFD_CLOEXEC);
    assert_true(to->cells >= 0 && fstat(x->cells, &st) == 0);
    for (off_t at = 0; at < st.st_size;) {
        const ssize_t n = pread(x->cells, block, sizeof block, at);
        assert_true(n > 0 && pwrite(to->cells, block, (size_t)n, at) == n);
        at += n;
    }
}

static inline void side_copy(struct side *x, struct side *to)
{
    pthread_mutex_lock(&x->keeper.lock); /* memory that is let go of goes in the background */
    side_copy_locked(x, to);
    pthread_mutex_unlock(&x->keeper.lock);
}

static inline void side_placed(void *user, const struct engine_placed *all, uint32_t n,
                               const void *with)
{
    struct side *x = user;
    (void)with;
    pthread_mutex_lock(&x->keeper.lock);
    for (uint32_t i = 0; i < n; i++) {
        struct engine_placed *had = side_find(x, all[i].buffer);
        assert_true(had || x->n < SIDE_MOST);
        *(had ? had : &x->all[x->n++]) = all[i];
        if (all[i].place.cell)
            x->writing = atomic_load(&cells_at(x->g->cells, all[i].place.cell)->writing);
    }
    if (x->dies)
        side_copy_locked(x, x->dies);
    x->dies = NULL;
    pthread_mutex_unlock(&x->keeper.lock);
}

static inline void side_gone(void *user, uint64_t buffer)
{
    struct side *x = user;
    pthread_mutex_lock(&x->keeper.lock);
    struct engine_placed *had = side_find(x, buffer);
    assert_non_null(had);
    *had = x->all[--x->n];
    pthread_mutex_unlock(&x->keeper.lock);
}

static inline void side_cells(void *user, int fd)
{
    struct side *x = user;
    x->cells = fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static inline enum err_code side_put(void *user, uint64_t chunk, int device, int64_t size,
                                     const int *fds, int n, struct err *e)
{
    return keeper_put(&((struct side *)user)->keeper, chunk, device, size, fds, n, e);
}

static inline void side_drop(void *user, uint64_t chunk)
{
    keeper_drop(&((struct side *)user)->keeper, chunk);
}

static inline void side_open(struct side *x, const char *backend, int cells)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = backend;
    config.device.slab_memory = 16 << 20;
    config.device.shareable = true;
    config.device.mesh = getenv("ARRAYD_MESH");
    config.device.mesh_least = 1;
    pthread_mutex_init(&x->keeper.lock, NULL);
    config.cells = cells;
    config.keep = (struct engine_keep){.put = side_put,
                                       .drop = side_drop,
                                       .cells = side_cells,
                                       .placed = side_placed,
                                       .gone = side_gone,
                                       .user = x};
    if (engine_open(&config, &x->g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    x->account = account_new(0);
    const int device = engine_device_count(x->g) - 1; /* the mesh, or the only one */
    assert_int_equal(engine_stream_new(x->g, device, &x->s, &e), ERR_OK);
}

/* Opens it, with the chunks that it has. */
static inline void side_take_over(struct side *x, const char *backend)
{
    const struct keeper had = x->keeper;
    side_open(x, backend, x->cells);
    struct err e = ERR_INIT;
    for (int i = 0; i < had.n; i++)
        if (engine_adopt_chunk(x->g, had.all[i].number, had.all[i].device, had.all[i].fds,
                               had.all[i].n, had.all[i].size, &e) != ERR_OK)
            fail_msg("%s", e.message);
}

#endif
