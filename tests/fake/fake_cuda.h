/* How a test drives the fake driver and the fake NVRTC (libfakecuda.so, libfakenvrtc.so).
 *
 * A test links both and sets ARRAYD_LIBCUDA and ARRAYD_LIBNVRTC to their files (Meson: fake_dep,
 * fake_env), so that the loader's tables are theirs. Every function is thread-safe.
 *
 * Environment, read when the library is loaded unless said otherwise:
 * - ARRAYD_FAKE_DEVICES=n: devices, 1 unless given; 2,3,5: one of these, by ARRAYD_SLICE
 * - ARRAYD_FAKE_MEMORY=bytes: memory of each, 4 GiB unless given
 * - ARRAYD_FAKE_ARCH=90,80: compute capability of each device; of the last for those not named
 * - ARRAYD_FAKE_SHARED=bytes: that a block of the last device can ask for; read when asked for
 * - ARRAYD_FAKE_DRIVER=13000: version of the driver; read when it is asked for
 * - ARRAYD_FAKE_NVRTC=13.0: of NVRTC; likewise
 * - ARRAYD_FAKE_VMM=0: no memory that can be shared by descriptors; read when asked for
 * - ARRAYD_FAKE_PEERS=0: no device may have access to another's memory; likewise; 0-1: that pair
 *   has none; pcie: all have, but not over NVLink
 * - ARRAYD_FAKE_MIG=1: a device's name is that of a part of a GPU
 * - ARRAYD_FAKE_ORDER=reverse: blocks and threads run last to first: a missing barrier shows;
 *   adverse: nothing is run until it is waited for, and then the work of later devices first, as
 *   far as no event orders it: a missing event between devices shows; adverse-down: that of earlier
 *   devices first; a list: one of these, by ARRAYD_SLICE
 * - ARRAYD_FAKE_FORGET=1: no stream waits for another device's event: whether a missing wait would
 *   show
 * - ARRAYD_FAKE_DELAY=us: each piece of queued work waits so long first: missing order shows
 * - ARRAYD_FAKE_FAIL=N:CODE: as fake_cuda_fail(N, CODE), or N:CODE:async as fake_cuda_fail_launch
 * - ARRAYD_FAKE_FAIL_FILE=p: when file p is there at a launch, that launch fails with the code in
 *   it ("719", "719 async": in the stream, or "719 held": there, when p.go is there) and the file
 *   is removed; "2 call 7": of whatever calls, the seventh from now fails, and then it goes
 * - ARRAYD_FAKE_TRACE=1: every call on standard error, with its number
 * - ARRAYD_FAKE_CACHE=dir: compiled modules are kept in this directory (made if it is not there)
 * - ARRAYD_FAKE_CXX=c++: host compiler */
#ifndef ARRAYD_FAKE_CUDA_H
#define ARRAYD_FAKE_CUDA_H

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* The nth driver call from now (1 = the next) returns `code` and does nothing, except that a
 * release still releases; nth 0 switches it off. Calls of cuGetErrorName and cuDriverGetVersion
 * are not counted. A sticky code (700, 702, 710, 714 to 719) is then returned by
 * every later call of the process, and queued work is dropped. */
void fake_cuda_fail(int nth, int code);
/* The same of the calls of that name ("cuMemCreate", static text) alone. */
void fake_cuda_fail_call(const char *name, int nth, int code);
/* The nth kernel launch from now returns success and fails with `code`, which becomes sticky, when
 * the stream reaches it. */
void fake_cuda_fail_launch(int nth, int code);
/* The nth kernel launch from now returns `code` and does nothing. */
void fake_cuda_refuse_launch(int nth, int code);
/* Reads of memory that nobody wrote are no mistake from now on, until the reset: something is going
 * to be missing. So it is, without this, once a call or a compilation has failed. */
void fake_cuda_excuse(void);
/* The next n kernel launches do not run, nor what is behind them in their streams, until
 * fake_cuda_release. */
void fake_cuda_hold(int n);
void fake_cuda_release(void);
/* Driver calls counted so far. */
long fake_cuda_calls(void);
/* The call that was made to fail last ("cuLaunchKernel"), NULL when none was since the reset. */
const char *fake_cuda_failed(void);
/* How many kernels had been launched since the reset before that call. */
long fake_cuda_failed_behind(void);
/* Forgets failures, also a sticky one. Not with live objects other than contexts. */
void fake_cuda_reset(void);

enum fake_kind {
    FAKE_BYTES, /* of device memory, allocated and not yet freed in stream order */
    FAKE_ALLOCATIONS,
    FAKE_HOST_ALLOCATIONS,
    FAKE_STREAMS,
    FAKE_EVENTS,
    FAKE_MODULES,
    FAKE_GRAPHS, /* executable ones, too */
    FAKE_POOLS,
    FAKE_HANDLES,  /* of virtual memory management, to physical memory */
    FAKE_MAPPINGS, /* of that */
    FAKE_RANGES,   /* of addresses, reserved */
    FAKE_CONTEXTS, /* retained, not released */
    FAKE_LAUNCHES, /* kernels that were run so far */
    FAKE_KINDS
};
/* How many there are. Waits until all streams are idle first, so that what was freed is gone. */
long fake_cuda_live(enum fake_kind kind);

/* Memory per device from now on. */
void fake_cuda_set_memory(size_t bytes);

/* A broken guard, a barrier some threads never reach, a read of memory nobody wrote and the like
 * end the process with a message; with a handler it gets the message and the launch ends with a
 * sticky 719. It also gets those of what a GPU has an error for, which go to standard error else.
 * NULL: the default. */
void fake_cuda_on_violation(void (*handler)(const char *message));

/* The nth compilation from now fails with NVRTC_ERROR_COMPILATION (code 0) or `code`. */
void fake_nvrtc_fail(int nth, int code);
/* The next compilations wait for fake_nvrtc_pass, which lets n of them go on; n < 0: all. */
void fake_nvrtc_hold(void);
void fake_nvrtc_pass(int n);
/* Compilations asked for so far, and those that ran the compiler (not from ARRAYD_FAKE_CACHE). */
long fake_nvrtc_calls(void);
long fake_nvrtc_compiled(void);

#endif
