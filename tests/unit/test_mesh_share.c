/* Memory of several GPUs as one that another process maps, on the fake driver with three: a
 * descriptor for each part, which is found again on whatever mesh has its GPU; what is refused; the
 * bytes that count on each GPU; and every driver call failing once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compute/backend.h"
#include "compute/base/mem.h"
#include "tests/descriptors.h"
#include "tests/fake/fake_cuda.h"

#define GPUS  3
#define MESH  GPUS /* its number */
#define PART  (INT64_C(4) << 20)
#define LIMIT (INT64_C(64) << 20) /* of each GPU */
#define OOM   2

static char note[512];

static struct backend *open_mesh(const char *listed)
{
    struct backend_config config = {.memory_limit = LIMIT,
                                    .slab_memory = 16 << 20,
                                    .shareable = true,
                                    .mesh = listed,
                                    .mesh_least = 1};
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    if (backend_open("cuda", &config, &b, note, sizeof note, &e) != ERR_OK)
        fail_msg("%s", e.message);
    return b;
}

/* So many bytes of each GPU count. */
static void in_use(struct backend *b, int64_t of_0, int64_t of_1, int64_t of_2)
{
    const int64_t want[GPUS] = {of_0, of_1, of_2};
    for (int i = 0; i < GPUS; i++) {
        struct backend_device d;
        b->ops->device_info(b, i, &d);
        assert_int_equal(LIMIT - d.memory_free, want[i]);
    }
}

static void nothing_is_left(void)
{
    assert_int_equal(fake_cuda_live(FAKE_BYTES), 0);
    assert_int_equal(fake_cuda_live(FAKE_HANDLES) + fake_cuda_live(FAKE_MAPPINGS) +
                         fake_cuda_live(FAKE_RANGES),
                     0);
}

static void fill(int fd, char with)
{
    char *p = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    for (int64_t i = 0; i < PART; i++)
        p[i] = (char)(i * 7 + with);
    munmap(p, PART);
}

/* The fake's device memory is where its address says. */
static void shows(const struct shared_block *b)
{
    for (int k = 0; k < b->n_parts; k++)
        for (int64_t i = 0; i < PART; i++)
            if (((const char *)b->data)[k * PART + i] != (char)(i * 7 + k))
                fail_msg("part %d, byte %lld", k, (long long)i);
}

/* The descriptors of a block over three GPUs that no process has any more. */
static void left_behind(int fds[GPUS])
{
    struct backend *b = open_mesh("all");
    struct shared_block block;
    assert_int_equal(b->ops->share_alloc(b, MESH, GPUS * PART - 5, false, true, &block, NULL),
                     ERR_OK);
    assert_int_equal(block.size, GPUS * PART);
    assert_int_equal(block.n_parts, GPUS);
    in_use(b, PART, PART, PART);
    for (int k = 0; k < GPUS; k++) {
        assert_int_equal(
            b->ops->share_export(b, MESH, &block, k, SHARE_WRITE, false, &fds[k], NULL), ERR_OK);
        fill(fds[k], (char)k);
    }
    b->ops->share_free(b, MESH, &block);
    in_use(b, 0, 0, 0);
    nothing_is_left();
    backend_close(b);
}

static void close_all(int fds[GPUS])
{
    for (int k = 0; k < GPUS; k++)
        close(fds[k]);
}

static enum err_code import(struct backend *b, const int *fds, int n, int64_t size,
                            struct shared_block *ret)
{
    struct err e = ERR_INIT;
    bool sealed = true;
    enum err_code code = b->ops->share_import(b, MESH, fds, n, size, ret, &sealed, &e);
    assert_true(code == ERR_OK ? !sealed : e.code == code && *e.message);
    return code;
}

/* The block's parts are on the GPUs `first`, first + 1 and so on, which the mesh has in its order.
 */
static void lies_on(struct backend *b, const struct shared_block *block, int first)
{
    struct backend_device d;
    int64_t from[BACKEND_PARTS];
    int on[BACKEND_PARTS];
    b->ops->device_info(b, MESH, &d);
    assert_int_equal(b->ops->divided(b, MESH, (char *)block->data + 5, on, from), block->n_parts);
    for (int k = 0; k < block->n_parts; k++)
        assert_int_equal(d.parts[on[k]], first + k);
    for (int k = 0; k < block->n_parts && block->n_parts > 1; k++)
        assert_int_equal(from[k], k * PART - 5);
    assert_int_equal(b->ops->taken(b, MESH, block->data, block->size), block->size);
}

static void every_byte_is_there(void **state)
{
    (void)state;
    static const char *const meshes[] = {"all", "0,1,2", "2,0,1"};
    const int held = descriptors();
    int fds[GPUS];
    left_behind(fds);
    for (int i = 0; i < 3; i++) {
        struct backend *b = open_mesh(meshes[i]);
        struct shared_block block;
        int again;
        assert_null(b->ops->share_problem(b, MESH));
        assert_int_equal(import(b, fds, GPUS, GPUS * PART, &block), ERR_OK);
        assert_true(block.n_parts == GPUS && block.size == GPUS * PART);
        in_use(b, PART, PART, PART);
        shows(&block);
        lies_on(b, &block, 0);
        assert_int_equal(b->ops->share_export(b, MESH, &block, 2, SHARE_WRITE, false, &again, NULL),
                         ERR_OK);
        close(again);
        b->ops->share_free(b, MESH, &block);
        in_use(b, 0, 0, 0);
        nothing_is_left();
        /* some of the parts are a block, too, or one alone: it counts where it is */
        assert_int_equal(import(b, &fds[1], 2, 2 * PART, &block), ERR_OK);
        in_use(b, 0, PART, PART);
        lies_on(b, &block, 1);
        b->ops->share_free(b, MESH, &block);
        assert_int_equal(import(b, &fds[1], 1, PART, &block), ERR_OK);
        in_use(b, 0, PART, 0);
        lies_on(b, &block, 1);
        b->ops->share_free(b, MESH, &block);
        backend_close(b);
    }
    close_all(fds);
    assert_int_equal(descriptors(), held);
}

static void what_is_no_memory_of_the_mesh(void **state)
{
    (void)state;
    int fds[GPUS];
    struct shared_block block;
    left_behind(fds);
    struct backend *b = open_mesh("0,1");
    /* the third GPU is not a member */
    assert_int_equal(import(b, fds, GPUS, GPUS * PART, &block), ERR_OVERLOADED);
    in_use(b, 0, 0, 0);
    assert_int_equal(import(b, fds, 2, 2 * PART, &block), ERR_OK);
    b->ops->share_free(b, MESH, &block);
    backend_close(b);
    b = open_mesh("all");
    assert_int_equal(import(b, fds, GPUS, GPUS * PART - 1, &block), ERR_STATE);
    assert_int_equal(import(b, fds, GPUS, PART, &block), ERR_STATE);
    assert_int_equal(import(b, fds, GPUS, 2 * GPUS * PART, &block), ERR_OVERLOADED);
    assert_int_equal(import(b, fds, 0, GPUS * PART, &block), ERR_STATE);
    assert_int_equal(import(b, (int[]){fds[0], STDIN_FILENO, fds[2]}, GPUS, GPUS * PART, &block),
                     ERR_STATE);
    in_use(b, 0, 0, 0);
    nothing_is_left();
    /* and a block of several parts is no single GPU's */
    bool sealed;
    assert_int_equal(b->ops->share_import(b, 0, fds, GPUS, GPUS * PART, &block, &sealed, NULL),
                     ERR_STATE);
    backend_close(b);
    close_all(fds);
}

/* What is not divided is the first member's, and a freed block is no other memory's. */
static void small_and_freed(void **state)
{
    (void)state;
    struct backend *b = open_mesh("1,2");
    struct shared_block small, large;
    void *p;
    assert_int_equal(b->ops->share_alloc(b, MESH, 1000, true, true, &small, NULL), ERR_OK);
    assert_true(small.n_parts == 1 && small.size == 2 << 20);
    in_use(b, 0, 2 << 20, 0);
    for (int i = 0; i < 2 << 20; i++)
        assert_int_equal(((char *)small.data)[i], 0);
    assert_int_equal(b->ops->share_alloc(b, MESH, 2 * PART, false, true, &large, NULL), ERR_OK);
    in_use(b, 0, PART + (2 << 20), PART);
    b->ops->share_free(b, MESH, &large);
    b->ops->share_free(b, MESH, &small);
    nothing_is_left();
    /* memory of the mesh that no process maps is kept for the next; that is not exported */
    assert_int_equal(b->ops->alloc(b, MESH, 2 * PART, false, &p, NULL), ERR_OK);
    b->ops->free(b, MESH, p, 2 * PART);
    assert_int_equal(fake_cuda_live(FAKE_HANDLES), 2);
    assert_int_equal(b->ops->share_alloc(b, MESH, 2 * PART, false, true, &large, NULL), ERR_OK);
    assert_int_equal(fake_cuda_live(FAKE_HANDLES), 4);
    b->ops->share_free(b, MESH, &large);
    /* unless it is in the way: each GPU has 64 MiB, of which 4 are kept */
    assert_int_equal(b->ops->share_alloc(b, MESH, 2 * LIMIT, false, true, &large, NULL), ERR_OK);
    in_use(b, 0, LIMIT, LIMIT);
    assert_int_equal(b->ops->share_alloc(b, MESH, 1, false, true, &small, NULL), ERR_OUT_OF_MEMORY);
    b->ops->share_free(b, MESH, &large);
    in_use(b, 0, 0, 0);
    backend_close(b);
    nothing_is_left();
}

static void every_call_of_an_import_fails_once(void **state)
{
    (void)state;
    static const int codes[] = {OOM, 1, 801};
    int fds[GPUS];
    struct shared_block block;
    left_behind(fds);
    struct backend *b = open_mesh("all");
    const int64_t live = mem_live();
    for (size_t i = 0; i < 3; i++) {
        int failures = 0;
        bool struck = true;
        for (int nth = 1; struck;) {
            void *small;
            fake_cuda_reset();
            /* enters the mesh: a context that cannot be entered is a device that is lost */
            assert_int_equal(b->ops->alloc(b, MESH, 8, false, &small, NULL), ERR_OK);
            b->ops->free(b, MESH, small, 8);
            fake_cuda_fail(nth, codes[i]);
            const enum err_code code = import(b, fds, GPUS, GPUS * PART, &block);
            struck = fake_cuda_failed();
            fake_cuda_fail(0, 0);
            failures += code != ERR_OK;
            nth += code != ERR_OK; /* else another thread's call was struck: once more */
            if (code == ERR_OK) {
                shows(&block);
                b->ops->share_free(b, MESH, &block);
            }
            nothing_is_left();
            in_use(b, 0, 0, 0);
            assert_int_equal(mem_live(), live);
        }
        /* import, whose it is, and mapping of each; addresses, access */
        assert_true(failures >= 3 * 3 + 2);
    }
    backend_close(b);
    close_all(fds);
}

static void every_call_of_an_allocation_fails_once(void **state)
{
    (void)state;
    struct backend *b = open_mesh("all");
    struct shared_block block;
    const int64_t live = mem_live();
    int failures = 0;
    bool struck = true;
    for (int nth = 1; struck; nth++) {
        for (int zero = 0; zero < 2; zero++) {
            fake_cuda_reset();
            fake_cuda_fail(nth, OOM);
            const enum err_code code =
                b->ops->share_alloc(b, MESH, GPUS * PART - PART / 2, zero, true, &block, NULL);
            struck = fake_cuda_failed();
            fake_cuda_fail(0, 0);
            assert_true(code == ERR_OK || (struck && code == ERR_OUT_OF_MEMORY));
            failures += code != ERR_OK;
            if (code == ERR_OK)
                b->ops->share_free(b, MESH, &block);
            nothing_is_left();
            in_use(b, 0, 0, 0);
            assert_int_equal(mem_live(), live);
        }
    }
    assert_true(failures > 8); /* addresses, mapping, access, clearing and waiting */
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_there),
        cmocka_unit_test(what_is_no_memory_of_the_mesh),
        cmocka_unit_test(small_and_freed),
        cmocka_unit_test(every_call_of_an_import_fails_once),
        cmocka_unit_test(every_call_of_an_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
