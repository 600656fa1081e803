/* NVIDIA's own NVRTC for tests, without the driver that loader_open() wants beside it: many a
 * machine that builds arrayd has a toolkit and no GPU. ARRAYD_LIBNVRTC is not asked, for it may
 * name the fake. The library stays open. */
#ifndef ARRAYD_TESTS_REAL_NVRTC_H
#define ARRAYD_TESTS_REAL_NVRTC_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "compute/gpu/api/loader.h"

/* The table, or NULL when there is no NVRTC, nor in a short run under AddressSanitizer: the
 * compiler is not checked by it, and takes the same text in the release build. */
static inline const struct nvrtc *real_nvrtc(void)
{
#ifdef __SANITIZE_ADDRESS__
    if (!getenv("ARRAYD_LONG"))
        return NULL;
#endif
    static const char *const places[] = {
        "libnvrtc.so.13",
        "libnvrtc.so.12",
        "/usr/local/cuda/lib64/libnvrtc.so.13",
        "/usr/local/cuda/lib64/libnvrtc.so.12",
    };
    static struct nvrtc table;
    void *library = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !library; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return NULL;
#define NVRTC(name, args) *(void **)&table.name = dlsym(library, #name);
#include "compute/gpu/api/nvrtc.def"
#undef NVRTC
    *(void **)&table.nvrtcGetErrorString = dlsym(library, "nvrtcGetErrorString");
    if (!table.nvrtcVersion || table.nvrtcVersion(&table.major, &table.minor) != NVRTC_SUCCESS)
        return NULL;
    return &table;
}

#endif
