/* Several GPUs of a host as one device: a mesh. Large memory is one range of addresses whose pages
 * lie on all of them (mesh_memory.c), and a kernel is launched on each over a part of its blocks
 * (compute/gpu/cuda/launch_kernel.c). Whatever a part reads of another's is there, at its own
 * address, over the link between the GPUs; a bad division is slow, never wrong. Only a missing
 * event would be wrong.
 *
 * Called by memory.c, share.c, stream.c, compute/gpu/transfer and compute/gpu/cuda. */
#ifndef ARRAYD_CUDA_MESH_H
#define ARRAYD_CUDA_MESH_H

#include "compute/gpu/device/stream.h"

#define MESH_LEAST (INT64_C(4) << 20) /* bytes a member, by default */

/* Makes d, behind the GPUs, the mesh of those that config.mesh names. ERR_BAD_FIELD: it names none,
 * one twice, or two that do not reach each other's memory. They are open. */
enum err_code mesh_open(struct cuda_device *d, struct err *e) must_check;
/* Before they are closed: gives all memory back. */
void mesh_close(struct cuda_device *d);
/* Whether all its GPUs reach each other's memory by NVLink. */
bool mesh_is_linked(const struct cuda_device *d);

/* --- memory: mesh_memory.c --- */

/* Whether so many bytes are divided, unless asked otherwise; the rest is the first member's, or
 * another's while that has no room. mesh_parts: by which rule. */
void mesh_parts(const struct cuda_device *d, struct backend_device *ret);
bool mesh_divides(const struct cuda_device *d, int64_t size);
/* What is not divided, of member k's pool: the mesh has it from now on; which member's it was.
 * ERR_OUT_OF_MEMORY: of the host. */
enum err_code mesh_takes(struct cuda_device *d, int k, const void *p, int64_t whole,
                         struct err *e) must_check;
struct cuda_device *mesh_returns(struct cuda_device *d, const void *p, int64_t whole);
/* Adds to a member's error what was asked of the mesh. NULL allowed. */
void mesh_lacks(const struct cuda_device *d, int64_t size, struct err *e);
/* cuda_alloc's and cuda_free's part: thread-safe; blocks while the driver maps memory. Each member
 * is charged an equal share. */
enum err_code mesh_alloc(struct cuda_device *d, int64_t size, bool zero, void **ret,
                         struct err *e) must_check;
/* False: so many bytes there are not divided. */
bool mesh_free(struct cuda_device *d, void *p, int64_t size);
/* backend_ops.divided. */
int mesh_divided(struct cuda_device *d, const void *p, int ret_on[BACKEND_PARTS],
                 int64_t ret_from[BACKEND_PARTS]);
/* share_alloc's, share_import's and share_free's part (backend.h): ranges that are not kept for
 * others. mesh_share_part: the physical memory of one of its parts. */
enum err_code mesh_share_alloc(struct cuda_device *d, int64_t size, bool zero,
                               struct shared_block *ret, struct err *e) must_check;
enum err_code mesh_share_import(struct cuda_device *d, const int *fds, int n, int64_t size,
                                struct shared_block *ret, struct err *e) must_check;
CUmemGenericAllocationHandle mesh_share_part(const struct shared_block *share, int part);
void mesh_share_free(struct cuda_device *d, const struct shared_block *share);
/* Gives ranges back to the driver that nothing uses, and says whether there were any: all, because
 * a GPU has no memory left; those that were not used lately. */
bool mesh_gives_back(struct cuda *c);
void mesh_tidy(struct cuda *c);
/* Bytes of a GPU in such ranges. */
int64_t mesh_kept(struct cuda_device *gpu);

/* Where memory lies: in `n` equal shares from `at` on, or (share 0) all of it on one member. Which
 * members: all in their order, unless a process with another mesh made it. */
struct mesh_home {
    CUdeviceptr at;
    int64_t share;
    int n, on[BACKEND_PARTS];
};
/* Of the device's memory at p, while it is not freed. */
struct mesh_home mesh_home(struct cuda_device *d, const void *p);
/* The member that this byte of it is on. */
static inline int mesh_member(const struct mesh_home *h, CUdeviceptr p)
{
    return h->on[h->share ? (int64_t)(p - h->at) / h->share : 0];
}

/* --- order: with device->lock and the device entered, but for opening and closing --- */

#define MESH_SPANS 32

/* Addresses that a member's part of a kernel touches. */
struct mesh_span {
    uintptr_t from, until;
    bool written;
};

/* A member's CUDA stream, and the event behind what it was given last. */
struct mesh_lane {
    CUstream cu;
    CUevent end;
    struct mesh_span spans[MESH_SPANS]; /* of its work since it last waited for all others' */
    int n_spans;                        /* -1: anything */
};

enum err_code mesh_stream_open(struct backend_stream *s, struct err *e) must_check;
void mesh_stream_close(struct backend_stream *s);

/* Before all members are given work: everything the stream has been given is before it. `spans`:
 * `n` that each member's part touches, member after member; n -1: it may touch anything. Where no
 * part needs what another has done, or is in the way of it, none waits. Afterwards each member's
 * context has to be entered for its part, and the device's again behind the last. */
enum err_code mesh_part_ways(struct backend_stream *s, const struct mesh_span *spans,
                             int n) must_check;
/* Before an event behind everything is recorded for s->cu, the first member's. */
enum err_code mesh_meet(struct backend_stream *s) must_check;
/* Before that member alone is given work. */
enum err_code mesh_alone(struct backend_stream *s) must_check;

/* After a capture (s->captured) that began with the first member alone: nothing of it runs yet, and
 * its events stand for nothing. */
enum err_code mesh_captured(struct backend_stream *s) must_check;

/* Finds out, a thousand times a second at most, whether another member is lost: the first would
 * wait for it for ever. Does nothing for the stream of one GPU. */
void mesh_look(struct backend_stream *s);

#endif
