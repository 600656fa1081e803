/* Exports on the CPU backend with the front of engine_front.h: asked for, mapped and ended.
 * Included by one test at a time, behind cmocka.h. */
#ifndef ARRAYD_EXPORT_FRONT_H
#define ARRAYD_EXPORT_FRONT_H

#include <sys/mman.h>
#include <unistd.h>

#include "compute/engine/engine.h"
#include "compute/memory/export.h"
#include "tests/descriptors.h"
#include "tests/unit/engine_front.h"

#define NBYTES ((int64_t)(N * sizeof(double)))
#define PAGE   4096

enum { WAITING = -1 };
enum { AT_ONCE = 1, MOVES = 1 << 20 }; /* shareable_least: so from creation; when it is exported */
static const int ways[] = {AT_ONCE, MOVES};

static inline void told(struct exporting *x)
{
    assert_int_equal(atomic_load((_Atomic int *)x->user), WAITING);
    atomic_store((_Atomic int *)x->user, (int)x->code);
}

static inline void begin_export_so(struct fixture *f, struct array *a, bool write, bool sealed,
                                   struct exporting *x, _Atomic int *done)
{
    *x = (struct exporting){
        .array = a, .write = write, .sealed = sealed, .done = told, .user = (void *)done};
    atomic_store(done, WAITING);
    engine_export(f->s, x);
}

/* For writing, or for who may not. */
static inline void begin_export(struct fixture *f, struct array *a, bool write, struct exporting *x,
                                _Atomic int *done)
{
    begin_export_so(f, a, write, !write, x, done);
}

static inline enum err_code export_so(struct fixture *f, struct array *a, bool write, bool sealed,
                                      struct exporting *x)
{
    _Atomic int done;
    begin_export_so(f, a, write, sealed, x, &done);
    assert_int_not_equal(atomic_load(&done), WAITING);
    return x->code;
}

static inline enum err_code export(struct fixture *f, struct array *a, bool write,
                                   struct exporting *x) {
    return export_so(f, a, write, !write, x);
}

static inline double *map(const struct exporting *x, bool write)
{
    char *p = mmap(NULL, (size_t)x->exported.size, write ? PROT_READ | PROT_WRITE : PROT_READ,
                   MAP_SHARED, x->exported.fd, 0);
    assert_true(p != MAP_FAILED);
    return (double *)(void *)(p + x->exported.offset);
}

static inline void unmap(const struct exporting *x, double *p)
{
    assert_int_equal(munmap((char *)p - x->exported.offset, (size_t)x->exported.size), 0);
}

static inline void end_export(struct exporting *x)
{
    close(x->exported.fd);
    engine_export_end(x->export);
}

#endif
