/* What a compiled module of the fake and the fake driver know of each other: the one symbol a
 * module exports, and the functions the driver lends it. Read as C by the driver and as C++ by the
 * prelude (device.h). */
#ifndef ARRAYD_FAKE_MODULE_H
#define ARRAYD_FAKE_MODULE_H

#define FAKE_ABI          6
#define FAKE_SHARED       49152  /* bytes of shared memory a block may have unasked */
#define FAKE_SHARED_ASKED 232448 /* and when it has asked (cuFuncSetAttribute) */
#define FAKE_CUBIN        "FAKECUBN"

struct fake_dim {
    unsigned x, y, z;
};

enum fake_access { FAKE_READS = 1, FAKE_WRITES = 2 };

/* A barrier in shared memory: made for so many threads, reached by one, waited for. */
enum fake_phase { FAKE_PHASE_OPEN, FAKE_PHASE_REACH, FAKE_PHASE_WAIT };

enum fake_warp { FAKE_WARP_SYNC, FAKE_WARP_SHUFFLE, FAKE_WARP_BALLOT };

/* The driver's side. `line` is where the source calls from, for messages and to tell barriers
 * apart. */
struct fake_host {
    /* waits for the block; the three reductions of `predicate` over it: count, or, and */
    unsigned (*barrier)(int line, int predicate, int reduction);
    /* Waits for the warp's lanes in `mask`. Shuffle: the value lane `source` brought; ballot: the
     * lanes whose value was not 0. */
    unsigned long long (*warp)(enum fake_warp kind, unsigned mask, unsigned long long value,
                               int source, int line);
    unsigned (*active)(void); /* lanes of the warp that have not ended */
    /* `number`: of the threads; the parity of the phase that has to be over. */
    void (*phase)(enum fake_phase what, void *state, unsigned number, int line);
    /* The thread's copies into shared memory, made when they are waited for and no sooner: n bytes;
     * those since the last call are a batch; all but the last `left` batches have to be there. */
    void (*copy)(void *to, const void *from, unsigned n, const void *code);
    void (*copies_sent)(void);
    void (*copies_arrived)(unsigned left);
    /* n bytes at p are going to be read, written or both (enum fake_access) by the code at `from`.
     */
    void (*access)(const void *p, unsigned long n, int how, const void *from);
    /* Ends the launch with this driver error; does not return. */
    void (*trap)(int code, const char *why, const char *file, int line);
};

struct fake_kernel {
    const char *name;
    void (*thread)(void *const *params);               /* runs the current thread */
    void (*block)(void *const *params, int backwards); /* all of a block, one by one */
    const unsigned *sizes;                             /* bytes of each parameter */
    unsigned n_params;
    int max_threads; /* of __launch_bounds__, 0 when there is none */
};

struct fake_module {
    unsigned abi, n_kernels;
    const struct fake_kernel *kernels;
    struct fake_dim *thread_idx, *block_idx, *block_dim, *grid_dim;
    const struct fake_host **host;
    char *dynamic; /* FAKE_SHARED_ASKED bytes, or NULL */
    char *shared, *shared_end;
    const char *image, *image_end; /* the whole module */
};

/* A cubin of the fake: this, then a shared object of `size` bytes. */
struct fake_cubin {
    char magic[8];
    unsigned long long size;
};

#endif
