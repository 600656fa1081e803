/* The CUDA driver, NVRTC and NVML, found at run time: one binary serves with and without a GPU.
 *
 * Called by compute/gpu only. Symbols are listed once, in driver.def, nvrtc.def and nvml.def. The
 * tables are filled once a process and stay; immutable afterwards, so thread-safe. */
#ifndef ARRAYD_CUDA_LOADER_H
#define ARRAYD_CUDA_LOADER_H

#include "compute/base/err.h"
#include "compute/gpu/api/cuda_api.h"

struct driver {
#define CU(name, symbol, args) CUresult(*name) args;
#include "compute/gpu/api/driver.def"
#undef CU
};

struct nvrtc {
#define NVRTC(name, args) nvrtcResult(*name) args;
#include "compute/gpu/api/nvrtc.def"
#undef NVRTC
    const char *(*nvrtcGetErrorString)(nvrtcResult code);
    int major, minor; /* its version */
};

struct nvml {
#define NVML(name, symbol, args) nvmlReturn(*name) args;
#include "compute/gpu/api/nvml.def"
#undef NVML
};

/* Loads the driver (libcuda.so.1, or the file ARRAYD_LIBCUDA names) and NVRTC (libnvrtc.so.13, .12,
 * .so, those of the toolkit's usual places, or the file ARRAYD_LIBNVRTC names). The tables live as
 * long as the process. ERR_BAD_FIELD, with a message that says which library or symbol is missing
 * and what provides it, or what is too old: the driver must be of CUDA 12.0 or later and no older
 * than NVRTC, NVRTC of CUDA 12 or later. */
enum err_code loader_open(const struct driver **ret_driver, const struct nvrtc **ret_nvrtc,
                          struct err *e) must_check;
/* The driver alone, with the same errors. */
enum err_code loader_driver(const struct driver **ret, struct err *e) must_check;
/* NVRTC alone, on a machine that needs no driver: its version is held against none. The same
 * errors. */
enum err_code loader_nvrtc(const struct nvrtc **ret, struct err *e) must_check;
/* NVML (libnvidia-ml.so.1, or the file ARRAYD_LIBNVML names), which only the health figures need.
 * ERR_BAD_FIELD. */
enum err_code loader_nvml(const struct nvml **ret, struct err *e) must_check;

#endif
