/* The loader: what is missing is said with what provides it, a failed attempt may be repeated, and
 * both fakes have every symbol of the tables. Each case in a process of its own, for the tables
 * stay once they are filled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "compute/gpu/api/loader.h"

/* FAKE_CUDA, FAKE_NVRTC and FAKE_NVML are the fakes' files, FAKE_EMPTY a library with none of the
 * symbols. */

static const struct driver *driver;
static const struct nvrtc *nvrtc;
static struct err e;

static enum err_code with(const char *cuda, const char *rtc)
{
    e = (struct err)ERR_INIT;
    driver = NULL;
    nvrtc = NULL;
    setenv("ARRAYD_LIBCUDA", cuda, 1);
    setenv("ARRAYD_LIBNVRTC", rtc, 1);
    return loader_open(&driver, &nvrtc, &e);
}

/* Runs `body` in a child; cmocka's failure there is this test's. */
static void in_child(void (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        body();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* In a child an assertion of cmocka's would go on with the parent's tests. */
#define need(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            print_error("%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, e.message);                    \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static bool says(const char *what)
{
    return strstr(e.message, what) != NULL;
}

static void missing_driver(void)
{
    need(with("/nowhere/libcuda.so.1", FAKE_NVRTC) == ERR_BAD_FIELD);
    need(!driver && !nvrtc);
    need(says("/nowhere/libcuda.so.1") && says("ARRAYD_LIBCUDA"));
    need(says("NVIDIA driver") && says("--gpus all"));
    need(with(FAKE_CUDA, FAKE_NVRTC) == ERR_OK); /* it has been mounted since */
    need(driver && nvrtc);
}

static void missing_nvrtc(void)
{
    need(with(FAKE_CUDA, "/nowhere/libnvrtc.so") == ERR_BAD_FIELD);
    need(!driver && !nvrtc);
    need(says("/nowhere/libnvrtc.so") && says("ARRAYD_LIBNVRTC") && says("cuda-nvrtc"));
    need(with("/nowhere/libcuda.so.1", FAKE_NVRTC) == ERR_OK); /* the driver is kept */
}

static void missing_symbol(void)
{
    need(with(FAKE_EMPTY, FAKE_NVRTC) == ERR_BAD_FIELD);
    need(says(FAKE_EMPTY) && says("cuInit") && says("driver 525"));
    need(with(FAKE_CUDA, FAKE_EMPTY) == ERR_BAD_FIELD);
    need(says(FAKE_EMPTY) && says("nvrtcVersion") && says("CUDA 12"));
    need(!driver && !nvrtc);
}

/* docs/gpu.md says what is needed; what is older is said to be. */
static void too_old(void)
{
    setenv("ARRAYD_FAKE_DRIVER", "11080", 1);
    need(with(FAKE_CUDA, FAKE_NVRTC) == ERR_BAD_FIELD);
    need(says(FAKE_CUDA) && says("CUDA 11.8") && says("driver 525 or later") && !driver);
    setenv("ARRAYD_FAKE_DRIVER", "12000", 1);
    need(with(FAKE_CUDA, FAKE_NVRTC) == ERR_BAD_FIELD); /* NVRTC 13 */
    need(says(FAKE_NVRTC) && says("CUDA 13.0") && says("CUDA 12.0") && !nvrtc);
    setenv("ARRAYD_FAKE_NVRTC", "11.8", 1);
    need(with(FAKE_CUDA, FAKE_NVRTC) == ERR_BAD_FIELD);
    need(says(FAKE_NVRTC) && says("CUDA 11.8") && says("CUDA 12 or later"));
    setenv("ARRAYD_FAKE_NVRTC", "12.9", 1); /* newer within a version is fine */
    need(with(FAKE_CUDA, FAKE_NVRTC) == ERR_OK);
    need(nvrtc->major == 12 && nvrtc->minor == 9);
}

static void not_a_library(void)
{
    need(with("/proc/self/status", FAKE_NVRTC) == ERR_BAD_FIELD);
    need(says("/proc/self/status"));
}

static void both_fakes(void)
{
    need(with(FAKE_CUDA, FAKE_NVRTC) == ERR_OK);
    need(driver && nvrtc);
    need(nvrtc->major == 13);
    int n = 0;
    need(driver->cuInit(0) == CUDA_SUCCESS);
    need(driver->cuDeviceGetCount(&n) == CUDA_SUCCESS && n == 1);
    const struct driver *first = driver;
    need(with("/nowhere", "/nowhere") == ERR_OK); /* loaded once */
    need(driver == first);
}

/* Whatever this machine has: an answer, and one that says something. */
static void by_itself(void)
{
    e = (struct err)ERR_INIT;
    unsetenv("ARRAYD_LIBCUDA");
    unsetenv("ARRAYD_LIBNVRTC");
    enum err_code code = loader_open(&driver, &nvrtc, &e);
    need(code == ERR_OK || (code == ERR_BAD_FIELD && (says("libcuda.so.1") || says("libnvrtc"))));
    need((code == ERR_OK) == (driver != NULL));
    setenv("ARRAYD_LIBCUDA", FAKE_CUDA, 1); /* NVRTC alone, where a toolkit is installed */
    code = loader_open(&driver, &nvrtc, &e);
    need(code != ERR_OK || (nvrtc->major >= 12 && nvrtc->nvrtcGetErrorString(NVRTC_SUCCESS)));
    need(code == ERR_OK || says("cuda-nvrtc"));
}

/* It is nobody's need: asked for by itself, and neither of the others hears of it. */
static void management(void)
{
    const struct nvml *nvml = NULL;
    setenv("ARRAYD_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
    need(loader_nvml(&nvml, &e) == ERR_BAD_FIELD && !nvml);
    need(says("/nowhere/libnvidia-ml.so.1") && says("ARRAYD_LIBNVML") && says("utility"));
    setenv("ARRAYD_LIBNVML", FAKE_EMPTY, 1);
    need(loader_nvml(&nvml, &e) == ERR_BAD_FIELD && says("nvmlInit_v2"));
    setenv("ARRAYD_LIBNVML", FAKE_NVML, 1);
    need(loader_nvml(&nvml, &e) == ERR_OK && nvml->nvmlInit() == NVML_SUCCESS);
    setenv("ARRAYD_LIBCUDA", FAKE_CUDA, 1); /* the driver alone */
    need(loader_driver(&driver, &e) == ERR_OK && driver);
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        in_child(name);                                                                            \
    }
TEST(missing_driver)
TEST(missing_nvrtc)
TEST(missing_symbol)
TEST(too_old)
TEST(not_a_library)
TEST(both_fakes)
TEST(by_itself)
TEST(management)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_driver), cmocka_unit_test(test_missing_nvrtc),
        cmocka_unit_test(test_missing_symbol), cmocka_unit_test(test_not_a_library),
        cmocka_unit_test(test_too_old),        cmocka_unit_test(test_both_fakes),
        cmocka_unit_test(test_by_itself),      cmocka_unit_test(test_management),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
