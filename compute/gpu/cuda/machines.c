/* The interpreter's texts take NVRTC a minute of a processor's time, and a compilation cannot be
 * interrupted. So what is not on disk is compiled by another process (config.precompile), which
 * writes it there, with the least priority, and is ended when the backend closes; a thread waits
 * for it, and then has the compiler's threads read and load the code, as that of any other kernel.
 * Until then new kernels wait for their own code. Without such a command (tests) it is compiled
 * here. */
#include "compute/gpu/cuda/prepare.h"

#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/trace.h"
#include "compute/base/worker.h"
#include "compute/gpu/transfer/pack.h"

#define UNAVAILABLE "the interpreter could not be compiled"
#define KERNELS     (MACHINES + INTERP_RESTS) /* of a device: these first */
#define COMMAND     8                         /* words of config.precompile, at most */
#define LOOK_S      0.05 /* how often it is seen whether the process has ended */

extern char **environ;

struct machines {
    struct prepared **on; /* KERNELS for each device */
    pthread_mutex_t lock;
    struct worker worker;
    int next;      /* of them, the one to be got */
    pid_t process; /* that compiles it; 0: none */
    bool tried;    /* a process has */
};

bool machines_are_wanted(const struct cuda *c)
{
    return c->machines != NULL;
}

const CUfunction *machines_functions(const struct cuda *c, int device, enum machine m)
{
    const struct prepared *p = c->machines ? c->machines->on[device * KERNELS + (int)m] : NULL;
    return p && atomic_load(&p->state) == PREPARED_READY ? p->functions : NULL;
}

/* --- compiling elsewhere --- */

/* Starts the command; 0: it cannot be started. */
static pid_t start_process(struct cuda *c, const char *arch)
{
    const char *words[COMMAND + 3] = {NULL};
    int n = 0;
    for (; n < COMMAND && c->config.precompile[n]; n++)
        words[n] = c->config.precompile[n];
    words[n++] = c->config.kernel_cache;
    words[n++] = arch;
    pid_t pid = 0;
    char *const *argv = (char *const *)(uintptr_t)words;
    return posix_spawn(&pid, words[0], NULL, NULL, argv, environ) == 0 ? pid : 0;
}

/* Gets one kernel after the other. */
static double machines_step(void *user)
{
    struct cuda *c = user;
    struct machines *m = c->machines;
    lock_held(&m->lock);
    if (m->process && waitpid(m->process, NULL, WNOHANG) == 0)
        return LOOK_S;
    m->process = 0;
    if (m->next == c->n_devices * KERNELS)
        return WORKER_RESTS;
    struct prepared *p = m->on[m->next];
    const char *arch = c->devices[p->device].arch;
    const bool here = !c->config.precompile || atomic_load(&p->state) == PREPARED_READY;
    if (!here && !kcache_has(c->kcache, arch, p->emitted->text, false)) {
        const bool starts = !m->tried && kcache_folder(c->kcache) >= 0;
        m->process = starts ? start_process(c, arch) : 0;
        m->tried = true;
        if (m->process)
            return LOOK_S;
        trace_write(TRACE_NVRTC, UNAVAILABLE, sizeof UNAVAILABLE - 1);
    } else if (atomic_load(&p->state) != PREPARED_READY) {
        prepared_compile(p, m, true); /* until then kernels wait for their own code */
    }
    m->tried = false;
    m->next++;
    return WORKER_AGAIN;
}

/* --- opening --- */

static struct emitted *kernel_emit(struct arena *arena, int number)
{
    return number < MACHINES ? machine_emit(arena, (enum machine)number)
                             : interp_rest(arena, number - MACHINES);
}

static bool make(struct cuda *c)
{
    struct machines *m = c->machines;
    for (int i = 0; i < c->n_devices * KERNELS; i++) {
        struct arena *arena = arena_new(0);
        if (!arena)
            return false;
        arena_exempt(arena, true);
        m->on[i] =
            prepared_of(&c->devices[i / KERNELS], arena, kernel_emit(arena, i % KERNELS), false);
        if (!m->on[i])
            return false;
    }
    return true;
}

enum err_code machines_open(struct cuda *c, struct err *e)
{
    /* what another process compiles comes here by the disk */
    if (c->config.interpret == INTERPRET_NEVER ||
        (c->config.precompile && !kcache_reads(c->kcache)))
        return ERR_OK;
    struct machines *m = mem_calloc(1, sizeof *m);
    if (!m)
        return err_oom(e);
    pthread_mutex_init(&m->lock, NULL); /* cannot fail here */
    m->worker = (struct worker){
        .name = "arrayd-machines", .lock = &m->lock, .step = machines_step, .user = c};
    worker_init(&m->worker);
    c->machines = m;
    m->on = mem_calloc((size_t)c->n_devices * KERNELS, sizeof(struct prepared *));
    if (!m->on || !make(c))
        return err_oom(e);
    if (worker_start(&m->worker)) /* else kernels wait for their own code */
        worker_wake(&m->worker);
    return ERR_OK;
}

void machines_close(struct cuda *c)
{
    struct machines *m = c->machines;
    if (!m)
        return;
    worker_stop(&m->worker);
    if (m->process && kill(m->process, SIGKILL) == 0)
        (void)waitpid(m->process, NULL, 0);
    m->process = 0;
}

void machines_free(struct cuda *c)
{
    struct machines *m = c->machines;
    if (!m)
        return;
    for (int i = 0; m->on && i < c->n_devices * KERNELS; i++)
        if (m->on[i])
            prepared_unref(m->on[i]);
    worker_destroy(&m->worker);
    pthread_mutex_destroy(&m->lock);
    mem_free(m->on);
    mem_free(m);
    c->machines = NULL;
}

/* --- into a folder --- */

enum err_code machines_precompile(const char *kernel_cache, const char *architecture, struct err *e)
{
    struct cuda c = {0};
    struct kcache_config config = {
        .dir = kernel_cache, .max_disk_bytes = INT64_MAX, .max_entries = KERNELS};
    TRY(loader_nvrtc(&c.nvrtc, e));
    TRY(kcache_new(&config, c.nvrtc, &c.kcache, e));
    enum err_code code =
        kcache_folder(c.kcache) < 0
            ? err_set(e, ERR_BAD_FIELD, "%s cannot keep compiled kernels", kernel_cache)
            : cuda_pack_compile(&c, architecture, e);
    for (int i = 0; i < KERNELS && code == ERR_OK; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct emitted *m = arena ? kernel_emit(arena, i) : NULL;
        struct kcache_entry *entry = NULL;
        enum kcache_how how;
        code = m ? kcache_get(c.kcache, architecture, m->text, false, &entry, &how, e) : err_oom(e);
        kcache_unref(entry);
    }
    kcache_free(c.kcache);
    return code;
}
