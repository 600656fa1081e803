/* A table by number, of what the keeper has. A chunk in several parts is given to the keeper one
 * part after the other, and let go of so, and the process may die in between: then nothing lies in
 * what is left of it. */
#include "server/kept/held_chunks.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/base/table.h"
#include "compute/engine/engine.h"
#include "server/keeper/hold.h"

#define NAME 96
#define AS_BEFORE                                                                                  \
    "start with the option mesh as it was, or discard the arrays by one start with keep-arrays = " \
    "no"

/* A chunk that the keeper holds. */
struct held_chunk {
    uint64_t number;
    UT_hash_handle hh;
    int n;
    char names[][NAME];
};

struct held_chunks {
    struct hold *hold;
    struct engine *engine;
    const char *backend;
    struct backend_device mesh; /* without one it has no parts */
    _Atomic bool of_mesh;
    pthread_mutex_t lock;
    struct held_chunk *all; /* under the lock */
};

struct held_chunks *held_chunks_new(struct hold *hold)
{
    struct held_chunks *c = mem_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL); /* cannot fail here */
    c->hold = hold;
    return c;
}

void held_chunks_free(struct held_chunks *c)
{
    if (!c)
        return;
    while (c->all) {
        struct held_chunk *x = c->all;
        HASH_DEL(c->all, x);
        mem_free(x);
    }
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

void held_chunks_engine(struct held_chunks *c, struct engine *g)
{
    c->engine = g;
    c->backend = engine_backend(g);
    if (engine_mesh(g) >= 0)
        engine_device_info(g, engine_mesh(g), &c->mesh);
}

bool held_chunks_of_mesh(const struct held_chunks *c)
{
    return atomic_load(&c->of_mesh);
}

/* --- names --- */

/* What one says. */
struct part {
    uint64_t number;
    char backend[HELD_BACKEND];
    int device;
    int64_t size;  /* of the whole chunk */
    int index, of; /* of 0: it is not the mesh's, and has one part */
};

static int parts_of(const struct part *p)
{
    return p->of ? p->of : 1;
}

static void name_part(const struct part *p, char ret[NAME])
{
    const int n = snprintf(ret, NAME, HELD_CHUNKS "%" PRIu64 ".%s.%d.%" PRId64, p->number,
                           p->backend, p->device, p->size);
    if (p->of)
        snprintf(ret + n, NAME - (size_t)n, ".%d.%d", p->index, p->of);
}

/* As name_part writes it, and no other way: gather() finds it by its number. */
static bool read_part(const char *name, struct part *ret)
{
    char again[NAME];
    *ret = (struct part){0};
    const int n =
        sscanf(name, HELD_CHUNKS "%" SCNu64 ".%15[a-z].%d.%" SCNd64 ".%d.%d", &ret->number,
               ret->backend, &ret->device, &ret->size, &ret->index, &ret->of);
    if (n != 4 && (n != 6 || ret->index < 0 || ret->index >= ret->of || ret->of > BACKEND_PARTS))
        return false;
    name_part(ret, again);
    return !strcmp(name, again);
}

/* --- the table --- */

static struct held_chunk *held_new(uint64_t number, int n)
{
    struct held_chunk *x = mem_calloc(1, sizeof *x + (size_t)n * sizeof *x->names);
    if (x) {
        x->number = number;
        x->n = n;
    }
    return x;
}

/* The keeper has it, or will. */
static enum err_code note(struct held_chunks *c, struct held_chunk *take_x)
{
    pthread_mutex_lock(&c->lock);
    HASH_ADD(hh, c->all, number, sizeof take_x->number, take_x);
    bool added = take_x->hh.tbl;
    pthread_mutex_unlock(&c->lock);
    if (!added)
        mem_free(take_x);
    return added ? ERR_OK : ERR_OUT_OF_MEMORY;
}

static struct held_chunk *take_note(struct held_chunks *c, uint64_t number)
{
    struct held_chunk *x;
    pthread_mutex_lock(&c->lock);
    HASH_FIND(hh, c->all, &number, sizeof number, x);
    if (x)
        HASH_DEL(c->all, x);
    pthread_mutex_unlock(&c->lock);
    return x;
}

/* --- this process's --- */

static bool is_mesh(const struct held_chunks *c, int device)
{
    return c->mesh.n_parts && device == c->mesh.index;
}

/* All of its parts, or none. */
static enum err_code add_all(struct hold *hold, const struct held_chunk *x, const int *fds,
                             struct err *e)
{
    enum err_code code = ERR_OK;
    int i = 0;
    for (; i < x->n && code == ERR_OK; i++)
        code = hold_add(hold, x->names[i], fds[i], e);
    for (i -= 1; code != ERR_OK && i-- > 0;)
        hold_drop(hold, x->names[i]);
    return code;
}

enum err_code held_chunks_put(struct held_chunks *c, uint64_t number, int device, int64_t size,
                              const int *fds, int n, struct err *e)
{
    struct held_chunk *x = held_new(number, n);
    struct part p = {.number = number, .device = device, .size = size};
    if (!x)
        return err_oom(e);
    snprintf(p.backend, sizeof p.backend, "%s", c->backend);
    for (; p.index < n; p.index++) {
        if (is_mesh(c, device)) {
            p.of = n;
            p.device = c->mesh.parts[p.index];
        }
        name_part(&p, x->names[p.index]);
    }
    if (note(c, x) != ERR_OK)
        return err_oom(e);
    enum err_code code = add_all(c->hold, x, fds, e);
    if (code != ERR_OK)
        mem_free(take_note(c, number));
    else if (p.of)
        atomic_store(&c->of_mesh, true);
    return code;
}

void held_chunks_drop(struct held_chunks *c, uint64_t number, bool stays)
{
    struct held_chunk *x = take_note(c, number);
    for (int i = 0; x && i < x->n && !stays; i++)
        hold_drop(c->hold, x->names[i]);
    mem_free(x);
}

/* --- what was left --- */

void held_chunks_backend(const struct held_chunks *c, char ret[HELD_BACKEND])
{
    struct part p;
    const char *name = hold_next(c->hold, HELD_CHUNKS);
    snprintf(ret, HELD_BACKEND, "%s", name && read_part(name, &p) ? p.backend : "");
}

void held_chunks_discard(struct held_chunks *c)
{
    char own[NAME];
    for (const char *x = hold_next(c->hold, HELD_CHUNKS); x; x = hold_next(c->hold, HELD_CHUNKS)) {
        snprintf(own, sizeof own, "%s", x);
        close(hold_take(c->hold, x));
        hold_drop(c->hold, own);
    }
}

/* A chunk as it was left. */
struct left {
    struct part like;       /* any of its parts */
    int fds[BACKEND_PARTS]; /* -1: the keeper does not have that part */
    char names[BACKEND_PARTS][NAME];
};

static bool belongs(const struct left *l, const struct part *p)
{
    return p->of == l->like.of && p->size == l->like.size && l->fds[p->index] < 0 &&
           !strcmp(p->backend, l->like.backend);
}

/* Takes all parts of a chunk that the keeper has; one beside them, which nobody has given it, is
 * dropped. */
static void gather(struct held_chunks *c, struct left *l)
{
    char start[NAME], own[NAME];
    snprintf(start, sizeof start, HELD_CHUNKS "%" PRIu64 ".", l->like.number);
    for (const char *x = hold_next(c->hold, start); x; x = hold_next(c->hold, start)) {
        struct part p;
        snprintf(own, sizeof own, "%s", x);
        const int fd = hold_take(c->hold, x);
        if (read_part(own, &p) && belongs(l, &p)) {
            memcpy(l->names[p.index], own, sizeof own);
            l->fds[p.index] = fd;
        } else {
            close(fd);
            hold_drop(c->hold, own);
        }
    }
}

static bool is_member(const struct held_chunks *c, int device)
{
    for (int i = 0; i < c->mesh.n_parts; i++)
        if (c->mesh.parts[i] == device)
            return true;
    return false;
}

/* Whether it can be mapped, as far as its names tell. */
static enum err_code check(const struct held_chunks *c, const struct left *l, struct err *e)
{
    const int n = parts_of(&l->like);
    struct part p;
    for (int i = 0; i < n; i++)
        if (l->fds[i] < 0)
            return err_set(e, ERR_STATE, "it has %d parts, and the keeper has not got all", n);
    if (l->like.of && !c->mesh.n_parts)
        return err_set(e, ERR_OVERLOADED, "it is the mesh's, and there is no mesh now: " AS_BEFORE);
    for (int i = 0; i < l->like.of; i++)
        if (read_part(l->names[i], &p) && !is_member(c, p.device))
            return err_set(
                e, ERR_OVERLOADED,
                "it is the mesh's, in part on GPU %d, which is not in the mesh now: " AS_BEFORE,
                p.device);
    return ERR_OK;
}

static enum err_code adopt(struct held_chunks *c, const struct left *l, struct err *e)
{
    const struct part *p = &l->like;
    struct held_chunk *x = held_new(p->number, parts_of(p));
    if (!x)
        return err_oom(e);
    memcpy(x->names, l->names, (size_t)x->n * sizeof *x->names);
    if (note(c, x) != ERR_OK)
        return err_oom(e);
    if (p->of)
        atomic_store(&c->of_mesh, true);
    return engine_adopt_chunk(c->engine, p->number, p->of ? c->mesh.index : p->device, l->fds,
                              parts_of(p), p->size, e);
}

static void drop_left(struct held_chunks *c, const struct left *l, const char *why)
{
    mem_free(take_note(c, l->like.number));
    for (int i = 0; i < parts_of(&l->like); i++) {
        if (l->fds[i] < 0)
            continue;
        log_event(LOG_ERROR, "memory of the previous process cannot be mapped, and is dropped",
                  "name", l->names[i], "reason", why, NULL);
        hold_drop(c->hold, l->names[i]);
    }
}

/* `name` is not valid any more then. */
static enum err_code take(struct held_chunks *c, const char *name, struct err *e)
{
    struct left l;
    struct err why = ERR_INIT;
    enum err_code code = ERR_OK;
    const bool read = read_part(name, &l.like);
    memset(l.fds, -1, sizeof l.fds);
    if (read) {
        gather(c, &l);
        code = check(c, &l, &why);
    } else {
        l.like = (struct part){0};
        snprintf(l.names[0], NAME, "%s", name);
        l.fds[0] = hold_take(c->hold, name);
        code = err_set(&why, ERR_STATE, "its name is not understood");
    }
    if (code == ERR_OK)
        code = adopt(c, &l, &why);
    for (int i = 0; i < parts_of(&l.like); i++)
        if (l.fds[i] >= 0)
            close(l.fds[i]);
    if (code == ERR_STATE)
        drop_left(c, &l, why.message);
    return code == ERR_OK || code == ERR_STATE
               ? ERR_OK
               : err_set(e, code, "memory of the previous process (%s) cannot be mapped: %s",
                         l.names[0], why.message);
}

enum err_code held_chunks_adopt(struct held_chunks *c, struct err *e)
{
    for (const char *name = hold_next(c->hold, HELD_CHUNKS); name;
         name = hold_next(c->hold, HELD_CHUNKS))
        TRY(take(c, name, e));
    return ERR_OK;
}
