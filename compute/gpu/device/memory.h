/* A device's memory: memory.c's pool, and share.c's blocks that other processes can map.
 *
 * Called by cuda.c and files that allocate device memory. Thread-safe between open and close. */
#ifndef ARRAYD_CUDA_MEMORY_H
#define ARRAYD_CUDA_MEMORY_H

#include "compute/gpu/device/device.h"

/* An open that fails leaves nothing behind: do not call its close. */
enum err_code cuda_memory_open(struct cuda_device *d, struct err *e) must_check;
void cuda_memory_close(struct cuda_device *d);
/* backend.h's alloc and free. Memory may be used on any stream at once. */
enum err_code cuda_alloc(struct backend *b, int device, int64_t size, bool zero, void **ret,
                         struct err *e);
void cuda_free(struct backend *b, int device, void *p, int64_t size);
/* backend.h's alloc_placed and divided. */
enum err_code cuda_alloc_placed(struct backend *b, int device, int64_t size, bool divided,
                                void **ret, struct err *e);
int cuda_divided(struct backend *b, int device, const void *p, int ret_on[BACKEND_PARTS],
                 int64_t ret_from[BACKEND_PARTS]);
/* backend.h's taken. */
int64_t cuda_taken(struct backend *b, int device, const void *p, int64_t size);
enum err_code cuda_zero(struct backend *b, int device, void *p, int64_t size, struct err *e);
/* Zeroed memory for the backend's own use, not counted in the limit and the figures. */
enum err_code cuda_alloc_own(struct cuda_device *d, int64_t size, void **ret,
                             struct err *e) must_check;
void cuda_free_own(struct cuda_device *d, void *p);
enum err_code cuda_host_alloc(struct backend *b, int64_t size, int *ret_fd, void **ret,
                              struct err *e);
enum err_code cuda_host_import(struct backend *b, int fd, int64_t size, void **ret, struct err *e);
void cuda_host_free(struct backend *b, void *p, int64_t size, bool of_file);

struct cuda_memory_stats {
    int64_t live, peak;         /* bytes given out */
    int64_t allocations, trims; /* so far */
    int64_t reserved, used;     /* the pool's own figures, bytes */
    int64_t free, total;        /* of the device, bytes; 0 if unknown */
    int64_t most;               /* what would be free if nothing were given out: no less */
    int64_t of_mesh;            /* bytes given out to the mesh's arrays */
};
void cuda_memory_stats(struct cuda_device *d, struct cuda_memory_stats *ret);

/* For share.c, whose memory is outside the pool: counts bytes against the configured limit; returns
 * what the pool keeps to the driver; waits for memory's contents before any stream sees it, after
 * cuMemsetD8Async on device->memory.stream. */
enum err_code cuda_memory_charge(struct cuda_device *d, int64_t size, struct err *e) must_check;
void cuda_memory_charge_anyway(struct cuda_device *d, int64_t size); /* whatever the limit is */
void cuda_memory_discharge(struct cuda_device *d, int64_t size);
void cuda_memory_count(struct cuda_device *d); /* counts one more allocation */
/* So many bytes more, or less, of what is charged are the mesh's arrays'. */
void cuda_memory_of_mesh(struct cuda_device *d, int64_t size);
CUresult cuda_memory_trim(struct cuda_device *d);
enum err_code cuda_memory_settle(struct cuda_device *d, struct err *e) must_check;
/* A call's result; one that says nothing about the device's health is ERR_OVERLOADED, "not now, not
 * like this". */
enum err_code cuda_judge(struct cuda *c, CUresult r, const char *what, struct err *e);
enum err_code cuda_memory_none(struct cuda_device *d, int64_t size, struct err *e); /* the error */

/* Finds out whether memory can be shared: allocates some, and a descriptor for it. */
void cuda_share_open(struct cuda_device *d);
void cuda_share_close(struct cuda_device *d); /* after its blocks are freed */
/* backend.h's */
const char *cuda_share_problem(struct backend *b, int device);
enum err_code cuda_share_alloc(struct backend *b, int device, int64_t size, bool zero, bool must,
                               struct shared_block *ret, struct err *e);
enum err_code cuda_share_import(struct backend *b, int device, const int *fds, int n, int64_t size,
                                struct shared_block *ret, bool *ret_sealed, struct err *e);
enum err_code cuda_share_export(struct backend *b, int device, const struct shared_block *share,
                                int part, enum share_mode mode, bool again, int *ret_fd,
                                struct err *e);
void cuda_share_free(struct backend *b, int device, const struct shared_block *share);
/* Lets another GPU reach the memory that p is in, if the two have a way. The caller has entered d.
 */
void cuda_memory_opens_to(struct cuda_device *d, const void *p, const struct cuda_device *other);
/* Physical memory that another process made on *ret_on, one of the device's members. ERR_STATE and
 * other errors as share_import's. */
enum err_code cuda_share_physical(struct cuda_device *d, int fd, CUmemGenericAllocationHandle *ret,
                                  struct cuda_device **ret_on, struct err *e) must_check;

#endif
