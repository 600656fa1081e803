/* Kernels made ready: text, compiled code, a function on each device, arguments.
 *
 * Called by cuda.c and stream.c. What is made of an IR kernel hangs on it (k->prepared) until
 * cuda_release; what is compiled is shared through the kernel cache by all kernels of one text.
 * Thread-safe. Compilation runs on threads of its own. */
#ifndef ARRAYD_CUDA_PREPARE_H
#define ARRAYD_CUDA_PREPARE_H

#include "compute/base/strb.h"
#include "compute/cuda/cuda_int.h"
#include "compute/cuda/emit.h"

enum prepared_state { PREPARED_COMPILING, PREPARED_READY, PREPARED_FAILED };

struct prepared {
    _Atomic uint32_t refs;
    struct arena *arena; /* all of it lives here */
    struct cuda *cuda;
    struct emitted *emitted;
    bool fast_math;
    struct kcache_key key; /* on the device it was prepared for first */
    _Atomic int state;
    enum err_code error; /* PREPARED_FAILED: why */
    double compile_ms;   /* what compiling it took, 0 when it was there */
    int device;
    struct kcache_entry *entry;
    struct prepared *next; /* in the compiler's queue */
};

/* Compilation threads. */
enum err_code cuda_compiler_open(struct cuda *c, struct err *e) must_check;
void cuda_compiler_close(struct cuda *c);

/* k->prepared, made when it is not there yet; NULL without memory. */
struct prepared *cuda_prepare(struct cuda_device *d, struct ir_kernel *k);
/* backend.h's */
void cuda_prepare_op(struct backend *b, int device, struct ir_kernel *k);
void cuda_release(struct backend *b, struct ir_kernel *k);
void cuda_explain(struct backend *b, const struct ir_kernel *k, struct kernel_explanation *ret);

/* The loaded functions, for a ready one; with the device entered. ERR_OUT_OF_MEMORY,
 * ERR_DEVICE_LOST. */
struct functions {
    CUfunction kernel, finish; /* finish: NULL where there is none */
};
enum err_code cuda_functions(struct cuda_device *d, struct prepared *p, struct functions *ret,
                             struct err *e) must_check;

/* Frees what hangs on a cache entry: kcache_config.user_free. */
void cuda_modules_free(void *modules);

#endif
