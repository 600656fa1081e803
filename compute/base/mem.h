/* The only caller of malloc. Counts live blocks and fails on demand, so that tests can prove that
 * every allocation failure is survived (as sqlite does). Thread-safe. */
#ifndef ARRAYD_BASE_MEM_H
#define ARRAYD_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the libc functions, except that a size of 0 gives a unique pointer and products are
 * overflow-checked. NULL when memory runs out. */
void *mem_alloc(size_t size) __attribute__((malloc, warn_unused_result));
void *mem_calloc(size_t n, size_t size) __attribute__((malloc, warn_unused_result));
void *mem_realloc(void *p, size_t size) __attribute__((warn_unused_result));
void *mem_reallocarray(void *p, size_t n, size_t size) __attribute__((warn_unused_result));
void mem_free(void *p);
char *mem_strdup(const char *s) __attribute__((warn_unused_result));
char *mem_strndup(const char *s, size_t n) __attribute__((warn_unused_result));

/* Bytes of memory of the machine, or of the container this process runs in. */
int64_t mem_machine(void);

/* A new, empty file in memory (memfd) that is closed on exec; −1 with errno. mem_file_size gives it
 * its size for good: nobody can change that any more, and where the kernel promises no more memory
 * than there is, all of it is allocated at once, so that no store can fail; false with errno. */
int mem_file(const char *name);
bool mem_file_size(int fd, int64_t size);

/* mem_gave_back records that n bytes were freed, if in a large piece: libc may keep them. mem_trim
 * returns what libc keeps to the system once that is much, and not too often. It takes some
 * milliseconds: do not call it on a thread that serves requests. */
void mem_gave_back(size_t n);
void mem_trim(void);

/* Live blocks from these functions. */
int64_t mem_live(void);

/* Fault injection: the nth allocation from now (1 = the next) fails, and, when `sticky`, all after
 * it; 0 switches it off. mem_failed() returns how many have failed since. */
void mem_fail_after(int64_t nth, bool sticky);
int64_t mem_failed(void);

/* For `_cleanup_free_ char *p`: releases at the end of the scope. */
static inline void mem_freep(void *pp)
{
    void **p = pp;
    mem_free(*p);
    *p = NULL;
}
#define _cleanup_free_ __attribute__((cleanup(mem_freep)))

/* memcpy for bytes that will not be read again soon: the stores bypass the caches, so that memory
 * is written without being read first. Ordered before any later store of the thread. */
void mem_copy_away(void *to, const void *from, size_t n);

#endif
