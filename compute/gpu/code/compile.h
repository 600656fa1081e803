/* Compiles one kernel's CUDA text to machine code with NVRTC.
 *
 * Called by kcache.c (and tests). The code belongs to the caller. Thread-safe; calls on several
 * threads run in parallel as far as NVRTC lets them. Blocks for the compilation: 10 ms for a small
 * kernel, seconds for a huge one. */
#ifndef ARRAYD_CUDA_COMPILE_H
#define ARRAYD_CUDA_COMPILE_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/base/err.h"
#include "compute/gpu/api/loader.h"

struct compiled {
    void *bytes; /* a CUBIN for cuModuleLoadData; mem_free() */
    size_t n;
};

/* Compiles `source` for `arch` ("sm_90"). It may #include the headers of compute/kernels by their
 * path from the root; of scalar.h it gets the functions it names (headers.h). fast_math allows a·b
 * + c to be contracted and nothing else.
 *
 * ERR_INTERNAL when NVRTC rejects the text, with the first lines of its log (arrayd generated the
 * text, so that is a defect of arrayd), or when NVRTC is too old for the architecture;
 * ERR_OUT_OF_MEMORY. */
enum err_code compile_text(const struct nvrtc *nvrtc, const char *arch, const char *source,
                           bool fast_math, struct compiled *ret, struct err *e) must_check;

#define COMPILE_MAX_OPTIONS 8
/* The options compile_text() gives NVRTC; returns how many. `arch_option` (64 bytes) holds the one
 * that is generated. Part of a cached kernel's key. */
int compile_options(const struct nvrtc *nvrtc, const char *arch, bool fast_math, char *arch_option,
                    const char *ret_options[COMPILE_MAX_OPTIONS]);

#endif
