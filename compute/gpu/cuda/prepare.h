/* Kernels made ready: text, compiled code, a function on each device, arguments.
 *
 * Called by cuda.c and launch.c. What is made of an IR kernel hangs on it (k->prepared) until
 * cuda_release; what is compiled is shared through the kernel cache by all kernels of one text.
 * Thread-safe. Compilation runs on threads of its own. */
#ifndef ARRAYD_CUDA_PREPARE_H
#define ARRAYD_CUDA_PREPARE_H

#include "compute/base/strb.h"
#include "compute/gpu/cuda/device.h"
#include "compute/gpu/text/emit.h"

/* Of a slot's address in device memory; of one number's, its own size. */
#define SLOT_ALIGNMENT 256

/* prepared->state; what is neither is the enum err_code it failed with. */
enum { PREPARED_COMPILING = -1, PREPARED_READY = ERR_OK };

struct prepared {
    _Atomic uint32_t refs;
    struct arena *arena; /* all of it lives here */
    struct cuda *cuda;
    struct emitted *emitted;
    bool fast_math;
    struct kcache_key key;
    int device; /* kernels are planned for one device */
    /* A failure may be tried again, so that readers take the state once: it says why, too. What is
     * below is whoever's who compiles, and constant once the state is PREPARED_READY. */
    _Atomic int state;
    double compile_ms; /* what compiling it took, 0 when it was there; the first launch takes it */
    struct kcache_entry *entry;
    CUfunction function;
    /* in the compiler's queue */
    const void *user;
    struct prepared *next;          /* user: who comes first, of every user one */
    struct prepared *behind, *last; /* the same user's; `last` of the first alone */
};

/* Nothing is to be written by the kernel: it needs no code, and none is prepared. */
bool prepare_is_empty(const struct ir_kernel *k);

/* Compilation threads. */
enum err_code cuda_compiler_open(struct cuda *c, struct err *e) must_check;
void cuda_compiler_close(struct cuda *c);

/* k->prepared, made when it is not there yet, for `user` (see backend.h); NULL without memory. */
struct prepared *cuda_prepare(struct cuda_device *d, struct ir_kernel *k, const void *user);
/* backend.h's */
void cuda_prepare_op(struct backend *b, int device, struct ir_kernel *k, const void *user);
uint32_t cuda_steps(struct backend *b, int device, const struct ir_kernel *k, const char **ret_why);
void cuda_release(struct backend *b, struct ir_kernel *k);
void cuda_explain(struct backend *b, int device, const struct ir_kernel *k,
                  struct kernel_explanation *ret);

/* Frees what hangs on a cache entry: kcache_config.user_free. */
void cuda_modules_free(void *modules);

#endif
