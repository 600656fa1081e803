/* compute/gpu/cuda/fault.c: which device's work is told where it is not known which device was
 * lost, and whose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/gpu/cuda/fault.h"
#include "compute/gpu/cuda/launch.h"

/* A backend of two devices, each with a stream and copies under way on it. */
struct node {
    struct driver driver;
    struct cuda cuda;
    struct cuda_device devices[2];
    struct backend_stream streams[2];
    struct launch launches[2];
    struct job jobs[2];
    int noted, told; /* how often */
    int device;      /* that was told of last */
    uint32_t n_work;
    const void *asker; /* of the first of them */
};

static CUresult no_name(CUresult code, const char **ret)
{
    (void)code;
    *ret = NULL;
    return CUDA_SUCCESS;
}

static void noted(void *user)
{
    struct node *n = user;
    assert_int_equal(n->told, 0);
    n->noted++;
}

static void told(void *user, const struct backend_fault *fault)
{
    struct node *n = user;
    n->told++;
    n->device = fault->device;
    n->n_work = fault->n_work;
    n->asker = fault->n_work ? fault->work[0].asker : NULL;
}

static void set_up(struct node *n, int lost_device)
{
    *n = (struct node){.device = -1};
    n->driver.cuGetErrorName = no_name;
    n->cuda.driver = &n->driver;
    n->cuda.config = (struct backend_config){.noted = noted, .fault = told, .lost_user = n};
    n->cuda.devices = n->devices;
    n->cuda.n_devices = n->cuda.n_gpus = 2;
    n->cuda.lost_what = "a call";
    atomic_store(&n->cuda.lost, true);
    atomic_store(&n->cuda.lost_code, CUDA_ERROR_ECC_UNCORRECTABLE);
    atomic_store(&n->cuda.lost_device, lost_device);
    pthread_mutex_init(&n->cuda.fault_lock, NULL);
    for (int i = 0; i < 2; i++) {
        n->launches[i].launched = true;
        n->jobs[i].private_data = &n->launches[i];
        n->streams[i].under_way = &n->jobs[i];
        n->streams[i].n_under_way = 1;
        n->devices[i].index = i;
        pthread_mutex_init(&n->devices[i].lock, NULL);
        n->devices[i].cuda = &n->cuda;
        n->devices[i].members[0] = &n->devices[i];
        n->devices[i].n_members = 1;
        n->devices[i].streams = &n->streams[i];
    }
}

static void look(struct node *n, int device)
{
    pthread_mutex_lock(&n->devices[device].lock);
    cuda_fault_look(&n->devices[device]);
    pthread_mutex_unlock(&n->devices[device].lock);
}

static void look_and_tell(struct node *n, int device)
{
    look(n, device);
    cuda_fault_tell(&n->cuda);
}

static void one_device_is_told_of_once(void **state)
{
    (void)state;
    const int64_t live = mem_live();
    for (int lost_device = -1; lost_device < 2; lost_device++) {
        struct node n;
        set_up(&n, lost_device);
        for (int again = 0; again < 2; again++) {
            look_and_tell(&n, 0);
            look_and_tell(&n, 1);
        }
        assert_true(n.noted == 1 && n.told == 1 && n.n_work == 1);
        assert_int_equal(n.device, lost_device == 1);
        assert_true(mem_live() == live);
    }
}

static void two_that_are_looked_at_before_either_is_told_of(void **state)
{
    (void)state;
    const int64_t live = mem_live();
    struct node n;
    set_up(&n, -1);
    look(&n, 1);
    look_and_tell(&n, 0);
    cuda_fault_tell(&n.cuda);
    assert_true(n.noted == 1 && n.told == 1 && n.device == 1);
    assert_true(mem_live() == live);
}

static void one_that_had_nothing_leaves_it_to_another(void **state)
{
    (void)state;
    struct node n;
    set_up(&n, -1);
    n.launches[0].over = true;
    look_and_tell(&n, 0);
    assert_true(n.noted == 0 && n.told == 0);
    look_and_tell(&n, 1);
    assert_true(n.noted == 1 && n.told == 1 && n.device == 1 && n.n_work == 1);
}

static void what_nobody_asked_for_is_not_to_blame(void **state)
{
    (void)state;
    struct node n;
    struct job own = {0};
    struct launch launch = {.launched = true};
    int somebody;
    set_up(&n, 0);
    n.jobs[0].asker = &somebody;
    n.jobs[0].next = &own;
    own.private_data = &launch;
    n.streams[0].n_under_way = 2;
    look_and_tell(&n, 0);
    assert_true(n.told == 1 && n.n_work == 1);
    assert_ptr_equal(n.asker, &somebody);
}

/* Of a mesh, two of whose members are devices by themselves. */
static void what_shares_a_gpu_is_one(void **state)
{
    (void)state;
    for (int lost_device = 0; lost_device < 2; lost_device++) {
        struct node n;
        set_up(&n, lost_device);
        n.devices[1].members[1] = &n.devices[0];
        n.devices[1].n_members = 2;
        look_and_tell(&n, 1);
        look_and_tell(&n, 0);
        assert_true(n.noted == 1 && n.told == 1 && n.n_work == 2 && n.device == lost_device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_is_told_of_once),
        cmocka_unit_test(two_that_are_looked_at_before_either_is_told_of),
        cmocka_unit_test(one_that_had_nothing_leaves_it_to_another),
        cmocka_unit_test(what_nobody_asked_for_is_not_to_blame),
        cmocka_unit_test(what_shares_a_gpu_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
