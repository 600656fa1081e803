/* Jobs of one kernel for tests of the CPU backend's pool and of what runs alone: test_pool.c and
 * test_alone.c. */
#ifndef ARRAYD_TESTS_POOL_JOBS_H
#define ARRAYD_TESTS_POOL_JOBS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "compute/backend.h"
#include "compute/ir/ir_build.h"

/* slot 1 = slot 0 + add, float32, `n` elements; slot numbers may be equal */
struct adder {
    struct arena *arena;
    struct ir_kernel k;
    struct ir_kernel *list[4];
};

static inline void adder_init(struct adder *a, int64_t n, float add, uint32_t from, uint32_t to,
                              int extra)
{
    memset(a, 0, sizeof *a);
    a->arena = arena_new(0);
    a->k.rank = 1;
    a->k.shape[0] = n;
    struct ir_builder b;
    struct ir_ctx c = {.rank = 1, .shape = {n}, .src = {0}, .step = {1}};
    struct view v = {.rank = 1, .shape = {n}, .strides = {1}};
    ir_builder_init(&b, a->arena, &a->k);
    ir_add_ctx(&b, &c);
    uint32_t x = ir_emit_load(&b, from, DT_F32, &v, 0);
    uint32_t y = ir_emit_const(&b, (struct scalar){.dtype = DT_F32, .v.f32 = add});
    for (int i = 0; i < extra; i++)
        x = ir_emit_op(&b, i & 1 ? OP_COS : OP_SIN, DT_F32, &x);
    x = ir_emit_op(&b, OP_ADD, DT_F32, (uint32_t[]){x, y});
    struct ir_output o = {.kind = OUT_STORE, .node = x, .slot = to, .dtype = DT_F32, .view = v};
    assert_true(ir_add_output(&b, &o));
    for (int i = 0; i < 4; i++)
        a->list[i] = &a->k;
}

struct counted {
    struct job job;
    sem_t *sem;
    _Atomic int *order;
    int place;
    _Atomic int calls;
    pthread_t thread;
};

static inline void counted_done(struct job *job)
{
    struct counted *c = job->user;
    c->thread = pthread_self();
    c->place = c->order ? atomic_fetch_add(c->order, 1) : 0;
    atomic_fetch_add(&c->calls, 1);
    sem_post(c->sem);
}

static inline void prepare(struct counted *c, struct adder *a, uint32_t kernels, void *const *slots,
                           sem_t *sem, _Atomic int *order)
{
    memset(c, 0, sizeof *c);
    c->job = (struct job){
        .kernels = a->list, .n_kernels = kernels, .slots = slots, .done = counted_done, .user = c};
    c->sem = sem;
    c->order = order;
}

static inline void wait_for(sem_t *sem, int n)
{
    while (n-- > 0)
        while (sem_wait(sem))
            ;
}

#endif
