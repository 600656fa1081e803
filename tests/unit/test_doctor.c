/* What the doctor reads of a machine, from files of the test's own under a folder instead of /. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/commands/doctor.h"
#include "server/config/config.h"

static char root[64];

static void make_file(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0755);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    (void)state;
    strcpy(root, "/tmp/arrayd-doctor-XXXXXX");
    unsetenv("ARRAYD_LIBCUDA");
    unsetenv("NVIDIA_VISIBLE_DEVICES");
    unsetenv("KUBERNETES_SERVICE_HOST");
    unsetenv("container");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static bool says(const struct doctor *d, const char *what)
{
    return d->text.data && strstr(d->text.data, what) != NULL;
}

static void a_gpu_is_expected_where_something_speaks_for_it(void **state)
{
    (void)state;
    assert_false(doctor_gpu_expected(root));
    make_file("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    make_file("/sys/bus/pci/devices/0000:01:00.0/class", "0x040300\n");
    assert_false(doctor_gpu_expected(root)); /* NVIDIA's, but it makes sounds */
    make_file("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x10de\n");
    make_file("/sys/bus/pci/devices/0000:02:00.0/class", "0x030200\n");
    assert_true(doctor_gpu_expected(root));
    teardown(NULL);
    assert_int_equal(mkdir(root, 0755), 0);
    make_file("/dev/nvidiactl", "");
    assert_true(doctor_gpu_expected(root));
}

static void huge_pages_for_shared_memory(void **state)
{
    (void)state;
    static const char file[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    struct config c = {.keep_arrays = true};
    struct doctor d = {0};
    doctor_huge_pages(&d, &c, root); /* a kernel without the setting */
    assert_null(d.text.data);
    make_file(file, "always within_size [advise] never deny force\n");
    doctor_huge_pages(&d, &c, root);
    assert_true(says(&d, "may have them") && !says(&d, "echo"));
    make_file(file, "always within_size advise [never] deny force\n");
    doctor_huge_pages(&d, &c, root);
    assert_true(says(&d, "take longer at first"));
    assert_false(says(&d, "echo")); /* nothing is to be done */
    assert_int_equal(d.n[FINDING_OK], 2);
    c.no_keeper = true;
    doctor_huge_pages(&d, &c, root);
    assert_int_equal(d.n[FINDING_OK], 2);
    doctor_free(&d);
}

static void no_device_files_is_what_is_done_about_it(void **state)
{
    (void)state;
    struct doctor none = {.without_gpu = FINDING_OK}, there = {.without_gpu = FINDING_WARN},
                  asked = {.without_gpu = FINDING_FAIL};
    doctor_devices(&none, root);
    assert_int_equal(none.n[FINDING_OK], 2);
    doctor_devices(&there, root);
    assert_int_equal(there.n[FINDING_WARN], 1);
    assert_true(says(&there, "no container") && says(&there, "install the NVIDIA driver"));
    make_file("/.dockerenv", "");
    doctor_devices(&asked, root);
    assert_int_equal(asked.n[FINDING_FAIL], 1);
    assert_true(says(&asked, "a Docker container") && says(&asked, "--gpus all"));
    doctor_free(&none);
    doctor_free(&there);
    doctor_free(&asked);
}

/* A link that leads nowhere cannot be opened even by root, whom no mode keeps out. */
static void device_files_that_may_not_be_used_are_named(void **state)
{
    (void)state;
    struct doctor d = {.without_gpu = FINDING_WARN};
    char path[128];
    make_file("/dev/nvidia0", "");
    make_file("/dev/nvidia-uvm", "");
    make_file("/dev/nvidia-modeset", ""); /* not needed, not counted */
    doctor_devices(&d, root);
    assert_int_equal(d.n[FINDING_OK], 2);
    assert_true(says(&d, "2 NVIDIA device files"));
    snprintf(path, sizeof path, "%s/dev/nvidiactl", root);
    assert_int_equal(symlink("/nowhere", path), 0);
    doctor_devices(&d, root);
    assert_int_equal(d.n[FINDING_WARN], 1);
    assert_true(says(&d, "/dev/nvidiactl") && says(&d, "--gpus all"));
    doctor_free(&d);
}

static void the_smallest_limit_on_the_way_up_counts(void **state)
{
    (void)state;
    struct config c = {.host_memory = 3LL << 30, .slab_memory = 64 << 20};
    struct doctor d = {0};
    doctor_memory(&d, &c, root);
    assert_true(d.n[FINDING_OK] == 1 && says(&d, "no control group"));
    make_file("/proc/self/cgroup", "0::/a/b\n");
    make_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    make_file("/sys/fs/cgroup/a/memory.max", "4294967296\n");
    doctor_memory(&d, &c, root);
    assert_true(d.n[FINDING_OK] == 2 && says(&d, "4.00 GiB"));
    make_file("/sys/fs/cgroup/memory.max", "2147483648\n"); /* a container's own root */
    doctor_memory(&d, &c, root);
    assert_true(d.n[FINDING_WARN] == 1 && says(&d, "2.00 GiB") && says(&d, "lower host-memory"));
    doctor_free(&d);
}

static void the_older_hierarchy_is_read_too(void **state)
{
    (void)state;
    struct config c = {.host_memory = 3LL << 30};
    struct doctor d = {0};
    make_file("/proc/self/cgroup", "12:memory:/x\n");
    make_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    doctor_memory(&d, &c, root); /* how that one says "none" */
    assert_true(d.n[FINDING_OK] == 1 && says(&d, "no control group"));
    make_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    doctor_memory(&d, &c, root);
    assert_true(d.n[FINDING_WARN] == 1 && says(&d, "1.00 GiB"));
    doctor_free(&d);
}

static void folders_are_tried(void **state)
{
    (void)state;
    struct doctor d = {0};
    char path[128];
    doctor_folder(&d, "state-dir", root, false, FINDING_FAIL);
    assert_true(d.n[FINDING_OK] == 1 && says(&d, "is writable"));
    snprintf(path, sizeof path, "%s/not/yet", root);
    doctor_folder(&d, "state-dir", path, false, FINDING_FAIL);
    assert_true(d.n[FINDING_OK] == 2 && says(&d, "can be created"));
    assert_int_not_equal(access(path, F_OK), 0); /* and it was not */
    make_file("/file", "");
    snprintf(path, sizeof path, "%s/file", root);
    doctor_folder(&d, "state-dir", path, false, FINDING_FAIL);
    assert_true(d.n[FINDING_FAIL] == 1 && says(&d, "not a folder"));
    doctor_folder(&d, "state-dir", "/proc/arrayd", false, FINDING_FAIL);
    assert_int_equal(d.n[FINDING_FAIL], 2);
    assert_int_equal(chmod(root, 0777), 0);
    doctor_folder(&d, "kernel-cache", root, true, FINDING_WARN);
    assert_true(d.n[FINDING_WARN] == 1 && says(&d, "other users may write"));
    doctor_free(&d);
}

static void too_few_descriptors_are_told(void **state)
{
    (void)state;
    struct config c = {.max_connections = 10};
    struct doctor d = {0};
    doctor_limits(&d, &c);
    assert_int_equal(d.n[FINDING_OK], 1);
    c.max_connections = 1LL << 40;
    doctor_limits(&d, &c);
    assert_true(d.n[FINDING_WARN] == 1 && says(&d, "LimitNOFILE"));
    assert_non_null(strstr(d.json.data, "},{\"check\":\"descriptors\",\"status\":\"warn\""));
    doctor_free(&d);
}

static void the_self_test_computes(void **state)
{
    (void)state;
    struct config c = {.threads = 1};
    struct doctor d = {0};
    doctor_self_test(&d, &c, "cpu", FINDING_FAIL);
    assert_true(d.n[FINDING_OK] == 1 && says(&d, "correct"));
    setenv("ARRAYD_LIBCUDA", "/nowhere/libcuda.so", 1);
    doctor_self_test(&d, &c, "cuda", FINDING_WARN);
    assert_true(d.n[FINDING_WARN] == 1 && says(&d, "/nowhere/libcuda.so"));
    doctor_free(&d);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(huge_pages_for_shared_memory),
        TEST(a_gpu_is_expected_where_something_speaks_for_it),
        TEST(no_device_files_is_what_is_done_about_it),
        TEST(device_files_that_may_not_be_used_are_named),
        TEST(the_smallest_limit_on_the_way_up_counts),
        TEST(the_older_hierarchy_is_read_too),
        TEST(folders_are_tried),
        TEST(too_few_descriptors_are_told),
        TEST(the_self_test_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
