/* Prepared kernels: text, compiled code, a function on each device, arguments.
 *
 * Called by cuda.c, launch.c and, to compile ahead, backends.c. The prepared form of an IR kernel
 * is attached to it (k->prepared) until cuda_release; all kernels of one text share the compiled
 * code through the kernel cache. Thread-safe. Compilation runs on threads of its own. */
#ifndef ARRAYD_CUDA_PREPARE_H
#define ARRAYD_CUDA_PREPARE_H

#include "compute/base/strb.h"
#include "compute/gpu/device/device.h"
#include "compute/gpu/interp/interp.h"
#include "compute/gpu/text/emit.h"

/* A slot's alignment in device memory; that of a single number is its own size. */
#define SLOT_ALIGNMENT 256

/* prepared->state; any other value is the enum err_code of the failure. */
enum { PREPARED_COMPILING = -1, PREPARED_READY = ERR_OK };

struct prepared {
    _Atomic uint32_t refs;
    struct arena *arena; /* holds all of it */
    struct cuda *cuda;
    struct emitted *emitted;
    unsigned form;           /* kernel_form_bit */
    struct emitted *program; /* what the machine runs while it is compiled; NULL: it waits */
    struct prepared *rest;   /* and what is run behind that; NULL: nothing */
    enum machine machine;
    bool fast_math;
    struct code_key key;
    int device; /* kernels are planned for one device */
    /* On a mesh: whether each member takes a part, of its own elements (parts.h), and parts_remote
     */
    bool divided, own;
    int64_t remote;
    /* A failure may be retried, so readers load the state once: it also holds the reason. The
     * fields below belong to the thread that compiles, and are constant once the state is
     * PREPARED_READY. */
    _Atomic int state;
    double compile_ms; /* what compiling took, 0 if the code was found; the first launch takes it */
    struct kcache_entry *entry;
    CUfunction *functions; /* by the device's members */
    _Atomic bool put_off;  /* it is compiled when it comes a second time */
    bool has_run;          /* as a program; with the device's lock */
    const void *user;      /* the user whose request came first */
    /* in the compiler's queue */
    struct prepared *next;          /* user: the users in order, one entry each */
    struct prepared *behind, *last; /* the same user's; `last` only in its first entry */
};

/* The kernel writes nothing: it needs no code, and none is prepared. */
bool prepare_is_empty(const struct ir_kernel *k);

/* Compilation threads. */
enum err_code cuda_compiler_open(struct cuda *c, struct err *e) must_check;
void cuda_compiler_close(struct cuda *c);

/* A prepared text. Takes the arena, which has what was emitted; NULL: no memory for that. */
struct prepared *prepared_of(struct cuda_device *d, struct arena *arena, struct emitted *emitted,
                             bool fast_math);
void prepared_unref(struct prepared *p);
/* Queues it for a compiler's thread, in the turn of `user`; `waited_for`: before all that is not.
 */
void prepared_compile(struct prepared *p, const void *user, bool waited_for);

/* How a kernel can be launched now, and from then on: its code; or its program by a machine, and
 * then perhaps the rest. False: it waits for the compiler, or has failed. `compiled`: only its code
 * will do. */
struct launchable {
    const struct emitted *m[2];
    const CUfunction *functions[2]; /* by the device's members */
    int n;
};
bool prepared_code(const struct prepared *p, bool compiled, struct launchable *ret);

/* It was launched as a program, with device->lock. The second time it is compiled. */
void prepared_was_interpreted(struct prepared *p);
/* A request waits for it: it is compiled now if that was put off, and before what none waits for.
 */
void prepared_hurry(struct prepared *p);

/* k->prepared, created if missing, for `user` (see backend.h); NULL without memory. */
struct prepared *cuda_prepare(struct cuda_device *d, struct ir_kernel *k, const void *user);
/* whole.c: whether wholes run in place of some of the job's kernels, and sets their bits
 * (launch.h). Compiles them if that has not begun, and is worth it. */
bool cuda_wholes(struct cuda_device *d, const struct job *job, uint64_t ret[2]);
/* Explains something prepared, and drops the reference. */
void cuda_explain_prepared(struct cuda *c, struct prepared *p, struct kernel_explanation *ret);
/* backend.h's */
bool cuda_explain_whole(struct backend *b, int device, const struct ir_whole *w,
                        struct kernel_explanation *ret, const char **ret_why);
void cuda_prepare_op(struct backend *b, int device, struct ir_kernel *k, const void *user);
uint32_t cuda_steps(struct backend *b, int device, const struct ir_kernel *k, const char **ret_why);
void cuda_release(struct backend *b, struct ir_kernel *k);
void cuda_explain(struct backend *b, int device, const struct ir_kernel *k,
                  struct kernel_explanation *ret);

/* --- machines.c: the interpreter's machines on the devices: compiled, found on disk, loaded --- */

/* Begins to get them, unless config.interpret says never; the compiler is open. */
enum err_code machines_open(struct cuda *c, struct err *e) must_check;
/* Before the compiler is closed: nothing more is asked of it. */
void machines_close(struct cuda *c);
void machines_free(struct cuda *c);

bool machines_are_wanted(const struct cuda *c);
/* By the device's members. NULL: it is not there yet, or never will be. */
const CUfunction *machines_functions(const struct cuda *c, int device, enum machine m);

/* backend.h's backend_precompile */
enum err_code machines_precompile(const char *kernel_cache, const char *architecture,
                                  struct err *e) must_check;

/* Frees what is attached to a cache entry: kcache_config.user_free. */
void cuda_modules_free(void *modules);

#endif
