/* Three tables of function pointers, filled by dlopen and dlsym from driver.def, nvrtc.def and
 * nvml.def.
 *
 * Why not link: one binary has to start where there is neither a driver nor a toolkit, and the same
 * build has to take whichever NVRTC the machine has. The lists are macros so that a function is
 * named once: the table's member, its type and the symbol looked up cannot disagree.
 *
 * A library is kept once it was found complete. One that is missing, lacks a symbol or is too old
 * is closed again, and the next call tries anew: a daemon may be started before its driver is.
 * Hence a lock rather than pthread_once; it is taken a few times in a process's life. */
#include "compute/gpu/api/loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool have_driver, have_nvrtc, have_nvml;
static struct driver driver;
static struct nvrtc nvrtc;
static struct nvml nvml;

struct symbol {
    const char *name;
    void *place; /* a function pointer; its bytes are what dlsym returns (POSIX) */
};

static const struct symbol driver_symbols[] = {
#define CU(name, symbol, args) {symbol, &driver.name},
#include "compute/gpu/api/driver.def"
#undef CU
};
static const struct symbol nvrtc_symbols[] = {
#define NVRTC(name, args) {#name, &nvrtc.name},
#include "compute/gpu/api/nvrtc.def"
#undef NVRTC
    {"nvrtcGetErrorString", &nvrtc.nvrtcGetErrorString},
};
static const struct symbol nvml_symbols[] = {
#define NVML(name, symbol, args) {symbol, &nvml.name},
#include "compute/gpu/api/nvml.def"
#undef NVML
};

struct library {
    const char *what, *variable;
    const char *const *candidates;
    const struct symbol *symbols;
    size_t n_symbols;
    const char *source; /* what installs it on a machine that lacks it */
    const char *newer;  /* what installs one that has every symbol */
    enum err_code (*check)(const char *name,
                           struct err *e); /* checks its version once it is loaded */
};

#define NEEDED_DRIVER "NVIDIA driver 525 or later (CUDA 12.0) is needed"
#define NEEDED_NVRTC  "NVRTC of CUDA 12 or later is needed"
#define LEAST_MAJOR   12

static int driver_version; /* 1000 * major + 10 * minor */

static enum err_code check_driver(const char *name, struct err *e)
{
    if (driver.cuDriverGetVersion(&driver_version) != CUDA_SUCCESS)
        return err_set(e, ERR_BAD_FIELD, "cannot read the version of %s", name);
    if (driver_version >= LEAST_MAJOR * 1000)
        return ERR_OK;
    return err_set(e, ERR_BAD_FIELD, "%s is from CUDA %d.%d: %s", name, driver_version / 1000,
                   driver_version % 1000 / 10, NEEDED_DRIVER);
}

/* A driver cannot load code of a compiler newer than itself. */
static enum err_code check_nvrtc(const char *name, struct err *e)
{
    int result = nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor);
    if (result != NVRTC_SUCCESS)
        return err_set(e, ERR_BAD_FIELD, "cannot read the version of %s: %s", name,
                       nvrtc.nvrtcGetErrorString(result));
    if (nvrtc.major < LEAST_MAJOR)
        return err_set(e, ERR_BAD_FIELD, "%s is from CUDA %d.%d: %s", name, nvrtc.major,
                       nvrtc.minor, NEEDED_NVRTC);
    if (have_driver && nvrtc.major > driver_version / 1000)
        return err_set(e, ERR_BAD_FIELD,
                       "%s is from CUDA %d.%d, but the driver supports CUDA %d.%d only: install a "
                       "newer driver, or an NVRTC of CUDA %d (set ARRAYD_LIBNVRTC to its path)",
                       name, nvrtc.major, nvrtc.minor, driver_version / 1000,
                       driver_version % 1000 / 10, driver_version / 1000);
    return ERR_OK;
}

static enum err_code check_nvml(const char *name, struct err *e)
{
    (void)name, (void)e; /* every version has what arrayd needs */
    return ERR_OK;
}

/* The dynamic linker's own search first: it knows ld.so.conf and LD_LIBRARY_PATH. Then the places
 * where installers put the files without telling the linker. The bare libcuda.so is not tried: a
 * toolkit's stub has that name. */
static const struct library driver_library = {
    .what = "CUDA driver library libcuda.so.1",
    .variable = "ARRAYD_LIBCUDA",
    .candidates = (const char *const[]){"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/local/cuda/compat/libcuda.so.1",
                                        "/usr/lib/wsl/lib/libcuda.so.1", NULL},
    .symbols = driver_symbols,
    .n_symbols = sizeof driver_symbols / sizeof *driver_symbols,
    .source = "libcuda.so.1 comes with the NVIDIA driver; in a container, the NVIDIA container "
              "toolkit mounts it (--gpus all)",
    .newer = NEEDED_DRIVER,
    .check = check_driver,
};
static const struct library nvrtc_library = {
    .what = "CUDA run-time compiler libnvrtc.so",
    .variable = "ARRAYD_LIBNVRTC",
    .candidates = (const char *const[]){"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so",
                                        "/opt/cuda/lib64/libnvrtc.so", NULL},
    .symbols = nvrtc_symbols,
    .n_symbols = sizeof nvrtc_symbols / sizeof *nvrtc_symbols,
    .source = "it comes with the CUDA toolkit: package cuda-nvrtc-13-0 (or -12-x) from NVIDIA's "
              "repository, libnvrtc12 from Debian or Ubuntu, or nvidia-cuda-nvrtc from PyPI (then "
              "set ARRAYD_LIBNVRTC to its path)",
    .newer = NEEDED_NVRTC,
    .check = check_nvrtc,
};

static const struct library nvml_library = {
    .what = "management library libnvidia-ml.so.1",
    .variable = "ARRAYD_LIBNVML",
    .candidates =
        (const char *const[]){"libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
                              "/usr/lib/wsl/lib/libnvidia-ml.so.1", NULL},
    .symbols = nvml_symbols,
    .n_symbols = sizeof nvml_symbols / sizeof *nvml_symbols,
    .source = "it comes with the NVIDIA driver; in a container, it is mounted only if "
              "NVIDIA_DRIVER_CAPABILITIES contains 'utility'",
    .newer = "a newer NVIDIA driver is needed",
    .check = check_nvml,
};

static enum err_code load(const struct library *l, struct err *e)
{
    const char *given = getenv(l->variable), *name = NULL;
    char why[512] = "";
    void *handle = NULL;
    if (given && *given) {
        handle = dlopen(name = given, RTLD_NOW | RTLD_LOCAL);
        const char *reason = handle ? NULL : dlerror();
        if (!handle)
            return err_set(e, ERR_BAD_FIELD, "%s, set by %s, cannot be loaded (%s): %s", given,
                           l->variable, reason ? reason : "unknown reason", l->source);
    }
    for (const char *const *c = l->candidates; !handle && *c; c++) {
        handle = dlopen(name = *c, RTLD_NOW | RTLD_LOCAL);
        const char *reason = handle ? NULL : dlerror();
        /* A file that exists but is unusable says more than the many that are absent. */
        if (reason && !*why && !strstr(reason, "No such file"))
            strncat(strcpy(why, " ("), reason, sizeof why - 8);
    }
    if (!handle)
        return err_set(e, ERR_BAD_FIELD, "the %s was not found%s%s: %s", l->what, why,
                       *why ? ")" : "", l->source);
    for (size_t i = 0; i < l->n_symbols; i++) {
        void *function = dlsym(handle, l->symbols[i].name);
        memcpy(l->symbols[i].place, &function, sizeof function);
        if (!function) {
            err_set(e, ERR_BAD_FIELD, "%s has no function %s: %s", name, l->symbols[i].name,
                    l->newer);
            dlclose(handle);
            return ERR_BAD_FIELD;
        }
    }
    enum err_code code = l->check(name, e);
    if (code != ERR_OK)
        dlclose(handle);
    return code;
}

static enum err_code load_once(const struct library *l, bool *have, struct err *e)
{
    enum err_code code = *have ? ERR_OK : load(l, e);
    *have = code == ERR_OK;
    return code;
}

enum err_code loader_driver(const struct driver **ret, struct err *e)
{
    pthread_mutex_lock(&lock);
    enum err_code code = load_once(&driver_library, &have_driver, e);
    pthread_mutex_unlock(&lock);
    if (code == ERR_OK)
        *ret = &driver;
    return code;
}

enum err_code loader_open(const struct driver **ret_driver, const struct nvrtc **ret_nvrtc,
                          struct err *e)
{
    pthread_mutex_lock(&lock);
    enum err_code code = load_once(&driver_library, &have_driver, e);
    if (code == ERR_OK)
        code = load_once(&nvrtc_library, &have_nvrtc, e);
    pthread_mutex_unlock(&lock);
    if (code)
        return code;
    *ret_driver = &driver;
    *ret_nvrtc = &nvrtc;
    return ERR_OK;
}

enum err_code loader_nvrtc(const struct nvrtc **ret, struct err *e)
{
    pthread_mutex_lock(&lock);
    enum err_code code = load_once(&nvrtc_library, &have_nvrtc, e);
    pthread_mutex_unlock(&lock);
    if (code == ERR_OK)
        *ret = &nvrtc;
    return code;
}

enum err_code loader_nvml(const struct nvml **ret, struct err *e)
{
    pthread_mutex_lock(&lock);
    enum err_code code = load_once(&nvml_library, &have_nvml, e);
    pthread_mutex_unlock(&lock);
    if (code == ERR_OK)
        *ret = &nvml;
    return code;
}
