/* An engine with a keeper of its arrays' memory, for tests of what lies where. Included behind
 * cmocka.h. */
#ifndef ARRAYD_TESTS_CHUNK_FRONT_H
#define ARRAYD_TESTS_CHUNK_FRONT_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/memory/chunk.h"
#include "compute/memory/export.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/reclaim.h"
#include "tests/descriptors.h"
#include "tests/fake/fake_cuda.h"
#include "tests/keeper.h"
#include "tests/unit/cuda_arrays.h"

#define OWN   (INT64_C(2) << 20)
#define LARGE (OWN / 4 * 2)

enum { CPU, CUDA };

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    struct keeper keeper;
    int fds;
    int64_t live;
};

static float ramp[LARGE], got[LARGE];

static inline void open_with(struct fixture *f, int which, const struct engine_config *given)
{
    struct engine_config config = *given;
    struct err e = ERR_INIT;
    *f = (struct fixture){.fds = descriptors(), .live = mem_live()};
    config.backend = which == CPU ? "cpu" : "cuda";
    config.keep = keeper_of(&f->keeper);
    config.device.slab_memory = 16 << 20;
    if (engine_open(&config, &f->g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    f->account = account_new(0);
    assert_int_equal(engine_stream_new(f->g, 0, &f->s, &e), ERR_OK);
}

static inline void open_fixture(struct fixture *f, int which)
{
    open_with(f, which, &(struct engine_config)ENGINE_CONFIG_DEFAULT);
}

static inline void settle(struct fixture *f)
{
    int tries = 0;
    while (engine_jobs_in_flight(f->g) > 0)
        pause_a_little(&tries);
    reclaim_all(f->g->reclaim);
}

static inline void close_fixture(struct fixture *f)
{
    engine_stream_unref(f->s);
    settle(f);
    assert_int_equal(engine_bytes_in_use(f->g), 0);
    assert_int_equal(account_used(f->account), 0);
    assert_true(engine_close(f->g));
    account_unref(f->account);
    assert_int_equal(f->keeper.n, 0);
    assert_int_equal(f->keeper.drops, f->keeper.puts);
    for (int k = 0; k < FAKE_LAUNCHES; k++)
        assert_int_equal(fake_cuda_live((enum fake_kind)k), 0);
    assert_int_equal(descriptors(), f->fds);
    assert_int_equal(mem_live(), f->live);
}

static inline struct array *put(struct fixture *f, int64_t n)
{
    struct array *a = NULL;
    assert_int_equal(put_array(f->s, f->account, ramp, 1, &n, &a), ERR_OK);
    return a;
}

static inline void holds(struct fixture *f, struct array *a, int64_t n)
{
    memset(got, 0xff, (size_t)n * 4);
    assert_int_equal(get_array(f->s, a, got), ERR_OK);
    assert_memory_equal(got, ramp, (size_t)n * 4);
}

static inline const struct storage *storage_of(const struct array *a)
{
    return a->buffer->storage; /* nothing runs */
}

/* What the keeper sees where the array's bytes are; both kinds of memory here are files. */
static inline void keeper_has(struct fixture *f, const struct array *a, int64_t n)
{
    const struct storage *st = storage_of(a);
    assert_true(st->chunk && st->chunk->number);
    const struct kept_chunk *c = keeper_find(&f->keeper, st->chunk->number);
    assert_int_equal(c->device, 0);
    assert_int_equal(c->size, st->chunk->share.size);
    const int64_t offset = (char *)st->data - (char *)st->chunk->share.data;
    assert_true(offset >= 0 && offset % 512 == 0 && offset + n * 4 <= c->size);
    char *p = mmap(NULL, (size_t)c->size, PROT_READ, MAP_SHARED, c->fds[0], 0);
    assert_true(p != MAP_FAILED);
    assert_memory_equal(p + offset, ramp, (size_t)n * 4);
    munmap(p, (size_t)c->size);
}

#endif
