/* Array memory that other processes can map. Each block is a memfd of its own, sealed so that it
 * cannot be shortened under a process that has it mapped, and once it is handed out SHARE_SEALED,
 * so that no other process can write to it.
 *
 * Called by cpu.c. Thread-safe; backend.h's share_… functions say what each does. */
#ifndef ARRAYD_CPU_SHARE_H
#define ARRAYD_CPU_SHARE_H

#include "compute/backend.h"
#include "compute/cpu/cpu_memory.h"

const char *cpu_share_problem(void);
/* Counted as live memory of `m`. */
enum err_code cpu_share_alloc(struct cpu_memory *m, int64_t size, bool must,
                              struct shared_block *ret, struct err *e) must_check;
enum err_code cpu_share_import(struct cpu_memory *m, int fd, int64_t size, struct shared_block *ret,
                               bool *ret_sealed, struct err *e) must_check;
bool cpu_share_fits(const struct shared_block *share, enum share_mode mode);
enum err_code cpu_share_export(const struct shared_block *share, enum share_mode mode, int *ret_fd,
                               struct err *e) must_check;
void cpu_share_free(struct cpu_memory *m, const struct shared_block *share);

/* The same for arrays that were moved out of the device: backend.h's host_… with a descriptor.
 * Counted as cpu_memory_get_out counts. `size` is of whole pages. */
enum err_code cpu_share_out(struct cpu_memory *m, int64_t size, int *ret_fd, void **ret,
                            struct err *e) must_check;
enum err_code cpu_share_out_import(struct cpu_memory *m, int fd, int64_t size, void **ret,
                                   struct err *e) must_check;
void cpu_share_out_free(struct cpu_memory *m, void *p, int64_t size);

#endif
