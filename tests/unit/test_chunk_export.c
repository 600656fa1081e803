/* compute/memory/chunk and exports, on both backends (the GPU's on the fake driver). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compute/gpu/device/device.h"
#include "tests/unit/chunk_front.h"

static void told(struct exporting *x)
{
    atomic_store((_Atomic bool *)x->user, true);
}

static void export(struct fixture *f, struct array *a, struct exporting *x)
{
    _Atomic bool done = false;
    int tries = 0;
    *x = (struct exporting){.array = a, .write = true, .done = told, .user = (void *)&done};
    engine_export(f->s, x);
    while (!atomic_load(&done))
        pause_a_little(&tries);
}

/* Descriptors that are kept for exports stay, however many chunks are made. */
static void chunks_leave_exports_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.device.shareable = true;
    open_with(&f, CUDA, &config);
    struct array *exported = put(&f, LARGE), *a[2 * SHARE_FDS];
    const struct share_fds *kept = &((struct cuda *)f.g->backend)->devices[0].share.fds;
    assert_int_equal(kept->n, 0);
    export(&f, exported, &x);
    assert_int_equal(x.code, ERR_OK);
    assert_int_equal(kept->n, 1);
    close(x.exported.fd);
    engine_export_end(x.export);
    for (int i = 0; i < 2 * SHARE_FDS; i++)
        a[i] = put(&f, OWN / 4);
    assert_int_equal(kept->n, 1);
    assert_int_equal(kept->kept[0].handle, storage_share(storage_of(exported))->handle);
    for (int i = 0; i < 2 * SHARE_FDS; i++)
        array_unref(a[i]);
    array_unref(exported);
    close_fixture(&f);
}

/* The chunk that a piece lies in is never anybody's but the keeper's. */
static void a_piece_moves_to_be_exported(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        struct exporting x;
        struct engine_config config = ENGINE_CONFIG_DEFAULT;
        config.device.shareable = true;
        open_with(&f, which, &config);
        struct array *small = put(&f, 100), *beside = put(&f, 100), *large = put(&f, LARGE);
        settle(&f);
        const struct chunk *was = storage_of(small)->chunk, *own = storage_of(large)->chunk;
        export(&f, small, &x);
        assert_int_equal(x.code, ERR_OK);
        settle(&f);
        assert_int_equal(x.exported.offset, 0);
        assert_ptr_not_equal(storage_of(small)->chunk, was);
        assert_non_null(storage_share(storage_of(small)));
        keeper_has(&f, small, 100);
        close(x.exported.fd);
        engine_export_end(x.export);
        export(&f, large, &x);
        assert_int_equal(x.code, ERR_OK);
        assert_ptr_equal(storage_of(large)->chunk, own);
        close(x.exported.fd);
        engine_export_end(x.export);
        holds(&f, small, 100);
        holds(&f, beside, 100);
        holds(&f, large, LARGE);
        array_unref(small);
        array_unref(beside);
        array_unref(large);
        close_fixture(&f);
        /* and without exports there are none */
        config.device.shareable = false;
        open_with(&f, which, &config);
        large = put(&f, LARGE);
        export(&f, large, &x);
        assert_int_equal(x.code, ERR_FORBIDDEN);
        settle(&f);
        keeper_has(&f, large, LARGE);
        array_unref(large);
        close_fixture(&f);
    }
}

/* What the keeper could not take is for the export that it was made for, and for no later array. */
static void unkept_memory_is_not_used_again(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        struct engine_config config = ENGINE_CONFIG_DEFAULT;
        config.max_chunks = 1;
        config.device.shareable = true;
        open_with(&f, which, &config);
        struct array *first = put(&f, LARGE), *beyond = put(&f, LARGE);
        struct storage *st;
        struct err e = ERR_INIT;
        assert_null(storage_of(beyond)->chunk);
        if (storage_shareable(storage_of(beyond), f.account, &st, &e) != ERR_OK)
            fail_msg("%s", e.message);
        assert_int_equal(st->chunk->number, 0);
        settle(&f);
        array_unref(first);
        reclaim_all(f.g->reclaim);
        storage_unref(st); /* the export is not made */
        first = put(&f, LARGE);
        holds(&f, first, LARGE);
        keeper_has(&f, first, LARGE);
        array_unref(first);
        array_unref(beyond);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_moves_to_be_exported),
        cmocka_unit_test(chunks_leave_exports_alone),
        cmocka_unit_test(unkept_memory_is_not_used_again),
    };
    for (int i = 0; i < LARGE; i++)
        ramp[i] = (float)i;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
