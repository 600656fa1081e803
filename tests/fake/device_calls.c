/* What a module of the fake calls by itself: linked into each, compiled once. Hidden, so that
 * neither the program's run-time of that name is meant nor another module's.
 *
 * -fsanitize=thread calls the first for each load and store of a kernel,
 * -fsanitize=alignment,bounds the last where the GPU's own answer is a sticky error, and so is
 * ours, with the place. */
#include <stddef.h>

#include "tests/fake/module.h"

#pragma GCC visibility push(hidden)

const struct fake_host *fake_host_;

#define SEEN(name, size, how)                                                                      \
    void __tsan_##name##size(const void *p);                                                       \
    void __tsan_##name##size(const void *p)                                                        \
    {                                                                                              \
        fake_host_->access(p, size, how, __builtin_return_address(0));                             \
    }
#define SEEN_BOTH(size)                                                                            \
    SEEN(read, size, FAKE_READS)                                                                   \
    SEEN(write, size, FAKE_WRITES)
SEEN_BOTH(1)
SEEN_BOTH(2)
SEEN_BOTH(4)
SEEN_BOTH(8)
SEEN_BOTH(16)

void __tsan_read_range(const void *p, size_t n);
void __tsan_read_range(const void *p, size_t n)
{
    fake_host_->access(p, n, FAKE_READS, __builtin_return_address(0));
}

void __tsan_write_range(const void *p, size_t n);
void __tsan_write_range(const void *p, size_t n)
{
    fake_host_->access(p, n, FAKE_WRITES, __builtin_return_address(0));
}

void __tsan_init(void);
void __tsan_init(void) {}

struct place {
    const char *file;
    unsigned line, column;
};

void __ubsan_handle_type_mismatch_v1_abort(const struct place *place, const void *p);
void __ubsan_handle_type_mismatch_v1_abort(const struct place *place, const void *p)
{
    (void)p;
    fake_host_->trap(716, "misaligned address", place->file, (int)place->line);
}

void __ubsan_handle_out_of_bounds_abort(const struct place *place, const void *i);
void __ubsan_handle_out_of_bounds_abort(const struct place *place, const void *i)
{
    (void)i;
    fake_host_->trap(700, "index out of an array's bounds", place->file, (int)place->line);
}
