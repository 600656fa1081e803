/* A kernel is prepared once. Its first submitter emits its text and looks the text's hash up in the
 * memory cache. If the code is not there, or not loaded into this device, a compiler thread
 * compiles it or reads it from disk, loads it, and retries the streams that wait for it
 * (cuda_wake): all of that may block, and a submitter must not. The compiler serves users round
 * robin, one kernel each, however many a user has waiting. What no request waits for, because it is
 * interpreted meanwhile, comes behind what one does, but for every fourth.
 *
 * What fails for lack of memory is retried at the next request; what NVRTC rejects, once the cache
 * has forgotten the refusal. Code from disk that the driver rejects is compiled anew at once.
 *
 * Modules are attached to the cache entry, one per device, and freed with it. */
#include "compute/gpu/cuda/prepare.h"

#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/trace.h"
#include "compute/base/worker.h"
#include "compute/gpu/cuda/parts.h"

#define MOST_IN_A_ROW 3 /* then one that nobody waits for */

struct compiler {
    pthread_mutex_t lock;
    struct worker worker;
    struct prepared *first[2]; /* of the user served next; [1]: what nobody waits for */
    int in_a_row;              /* so many that somebody waited for were the last */
};

struct module {
    CUmodule module;
    CUfunction function;
};

struct modules {
    struct cuda *cuda;
    pthread_mutex_t lock;
    struct module by_device[];
};

bool prepare_is_empty(const struct ir_kernel *k)
{
    const struct ir_output *o = &k->outputs[0];
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] == 0 && !(o->kind == OUT_REDUCE && (o->axes >> a & 1)))
            return true;
    return false;
}

void prepared_unref(struct prepared *p)
{
    if (atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    if (p->rest)
        prepared_unref(p->rest);
    kcache_unref(p->entry);
    arena_free(p->arena);
}

/* --- loading --- */

void cuda_modules_free(void *modules)
{
    struct modules *m = modules;
    struct cuda *c = m->cuda;
    for (int i = 0; i < c->n_devices; i++)
        if (m->by_device[i].module && cuda_enter(&c->devices[i]))
            (void)c->driver->cuModuleUnload(m->by_device[i].module);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

static struct modules *modules_of(struct cuda *c, struct kcache_entry *entry)
{
    struct modules *m = atomic_load(&entry->user);
    if (m)
        return m;
    m = mem_calloc(1, sizeof *m + sizeof *m->by_device * (size_t)c->n_devices);
    if (!m || pthread_mutex_init(&m->lock, NULL) != 0) {
        mem_free(m);
        return NULL;
    }
    m->cuda = c;
    void *none = NULL;
    if (!atomic_compare_exchange_strong(&entry->user, &none, m)) {
        cuda_modules_free(m);
        m = none;
    }
    return m;
}

static enum err_code load_module(struct cuda *c, const void *bytes, const struct emitted *emitted,
                                 struct module *ret, struct err *e)
{
    struct module m = {0};
    TRY(cuda_check(c, c->driver->cuModuleLoadData(&m.module, bytes), "cuModuleLoadData", e));
    enum err_code code =
        cuda_check(c, c->driver->cuModuleGetFunction(&m.function, m.module, "ar_kernel"),
                   "cuModuleGetFunction", e);
    /* a block's shared memory follows from the text, as the code does; what that declares counts
     * towards what is to be had unasked */
    if (code == ERR_OK && emitted->form->shared > 0)
        code = cuda_check(c,
                          c->driver->cuFuncSetAttribute(
                              m.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              (int)emitted->form->shared),
                          "cuFuncSetAttribute", e);
    if (code == ERR_OK)
        *ret = m;
    else
        (void)c->driver->cuModuleUnload(m.module);
    return code;
}

/* Loads the entry's code into the device's members, once for all kernels that share it. */
static enum err_code load(struct prepared *p, struct err *e)
{
    struct cuda_device *d = &p->cuda->devices[p->device];
    struct modules *m = modules_of(p->cuda, p->entry);
    if (!m)
        return err_oom(e);
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&m->lock);
    for (int k = 0; k < d->n_members && code == ERR_OK; k++) {
        struct module *at = &m->by_device[d->members[k]->index];
        code = cuda_entered(d->members[k], e);
        if (code == ERR_OK && !at->module)
            code = load_module(p->cuda, p->entry->bytes, p->emitted, at, e);
        if (code == ERR_OK)
            p->functions[k] = at->function;
    }
    pthread_mutex_unlock(&m->lock);
    return code;
}

/* Whether the code is loaded; does not wait for a thread that is loading it. */
static bool is_loaded(struct prepared *p)
{
    struct modules *m = atomic_load(&p->entry->user);
    if (!m || pthread_mutex_trylock(&m->lock) != 0)
        return false;
    const struct cuda_device *d = &p->cuda->devices[p->device];
    bool loaded = true;
    for (int k = 0; k < d->n_members && loaded; k++) {
        const struct module *at = &m->by_device[d->members[k]->index];
        loaded = at->module != NULL;
        p->functions[k] = at->function;
    }
    pthread_mutex_unlock(&m->lock);
    return loaded;
}

/* --- compiling --- */

/* Gets the code if it is missing, and loads it. ret_found: it was on disk, or another thread has
 * just compiled it. */
static enum err_code get_and_load(struct prepared *p, bool *ret_found, struct err *e)
{
    struct cuda *c = p->cuda;
    enum err_code code = ERR_OK;
    *ret_found = true;
    if (!p->entry) {
        enum kcache_how how = KCACHE_COMPILED;
        double start = clock_ms();
        code = kcache_get(c->kcache, c->devices[p->device].arch, p->emitted->text, p->fast_math,
                          &p->entry, &how, e);
        p->compile_ms = clock_ms() - start;
        *ret_found = code == ERR_OK && how != KCACHE_COMPILED;
    }
    return code == ERR_OK ? load(p, e) : code;
}

static enum err_code make_ready(struct prepared *p, bool *ret_found, struct err *e)
{
    struct kcache *cache = p->cuda->kcache;
    enum err_code code = get_and_load(p, ret_found, e);
    if (code == ERR_INTERNAL && p->entry && kcache_reject(cache, p->entry)) {
        kcache_unref(p->entry);
        p->entry = NULL;
        code = get_and_load(p, ret_found, e);
    }
    if (code == ERR_INTERNAL)
        kcache_refuse(cache, &p->key, e);
    return code;
}

static void compile(struct prepared *p)
{
    struct err e = ERR_INIT;
    bool found;
    enum err_code code = make_ready(p, &found, &e);
    if (code != ERR_OK)
        trace_write(TRACE_NVRTC, e.message, strlen(e.message));
    atomic_store(&p->state, (int)code);
}

/* --- the queue, with its lock held --- */

static void insert_last(struct prepared **at, struct prepared *p)
{
    while (*at)
        at = &(*at)->next;
    p->next = NULL;
    *at = p;
}

/* Behind the same user's. */
static void enqueue(struct prepared **queue, struct prepared *p)
{
    struct prepared *first = *queue;
    while (first && first->user != p->user)
        first = first->next;
    if (first) {
        first->last->behind = p;
        first->last = p->last;
    } else {
        insert_last(queue, p);
    }
}

static struct prepared *dequeue(struct compiler *q)
{
    lock_held(&q->lock);
    const bool leisure = q->first[1] && (!q->first[0] || q->in_a_row >= MOST_IN_A_ROW);
    struct prepared *p = q->first[leisure];
    if (!p)
        return NULL;
    q->in_a_row = leisure ? 0 : q->in_a_row + 1;
    q->first[leisure] = p->next;
    if (p->behind) {
        p->behind->last = p->last;
        insert_last(&q->first[leisure], p->behind);
    }
    return p;
}

/* Takes it out, wherever it is; false: it is not there. */
static bool take_out(struct prepared **queue, struct prepared *p)
{
    for (struct prepared **at = queue; *at; at = &(*at)->next) {
        struct prepared *first = *at, *before = first;
        if (first == p) {
            *at = p->behind ? p->behind : p->next;
            if (p->behind) {
                p->behind->next = p->next;
                p->behind->last = p->last;
            }
            return true;
        }
        while (before->behind && before->behind != p)
            before = before->behind;
        if (!before->behind)
            continue;
        before->behind = p->behind;
        if (first->last == p)
            first->last = before;
        return true;
    }
    return false;
}

/* It is waited for; what its user has waiting beside it is not. */
static void bring_forward(struct compiler *q, struct prepared *p)
{
    lock_held(&q->lock);
    if (!take_out(&q->first[1], p))
        return;
    p->behind = NULL;
    p->last = p;
    enqueue(&q->first[0], p);
}

/* --- its threads --- */

static double compiler_step(void *user)
{
    struct cuda *c = user;
    struct compiler *q = c->compiler;
    struct prepared *p = dequeue(q);
    if (!p)
        return WORKER_RESTS;
    pthread_mutex_unlock(&q->lock);
    compile(p);
    prepared_unref(p);
    cuda_wake(c);
    pthread_mutex_lock(&q->lock);
    return WORKER_AGAIN;
}

enum err_code cuda_compiler_open(struct cuda *c, struct err *e)
{
    struct compiler *q = mem_calloc(1, sizeof *q);
    if (!q)
        return err_oom(e);
    c->compiler = q;
    pthread_mutex_init(&q->lock, NULL); /* cannot fail here */
    q->worker = (struct worker){.name = "arrayd-compile",
                                .lock = &q->lock,
                                .step = compiler_step,
                                .user = c,
                                .n = c->config.compile_threads > 0 ? c->config.compile_threads : 2};
    worker_init(&q->worker);
    if (worker_start(&q->worker) || q->worker.running)
        return ERR_OK;
    cuda_compiler_close(c);
    return err_set(e, ERR_OUT_OF_MEMORY, "cannot start a compiler thread");
}

void cuda_compiler_close(struct cuda *c)
{
    struct compiler *q = c->compiler;
    if (!q)
        return;
    worker_stop(&q->worker);
    worker_destroy(&q->worker);
    pthread_mutex_destroy(&q->lock);
    mem_free(q);
    c->compiler = NULL;
}

void prepared_compile(struct prepared *p, const void *user, bool waited_for)
{
    struct compiler *q = p->cuda->compiler;
    atomic_fetch_add(&p->refs, 1);
    pthread_mutex_lock(&q->lock);
    p->user = user;
    p->behind = NULL;
    p->last = p;
    enqueue(&q->first[!waited_for], p);
    worker_wake(&q->worker);
    pthread_mutex_unlock(&q->lock);
}

/* --- preparing --- */

struct prepared *prepared_of(struct cuda_device *d, struct arena *arena, struct emitted *emitted,
                             bool fast_math)
{
    struct prepared *p = emitted ? arena_alloc(arena, sizeof *p) : NULL;
    if (p)
        p->functions = arena_alloc_array(arena, (size_t)d->n_members, sizeof *p->functions);
    if (!p || !p->functions) {
        arena_free(arena);
        return NULL;
    }
    atomic_init(&p->refs, 1);
    p->arena = arena;
    p->cuda = d->cuda;
    p->device = d->index;
    p->fast_math = fast_math;
    p->emitted = emitted;
    p->form = kernel_form_bit(form_name(emitted->form));
    p->key = kcache_key(d->cuda->kcache, d->arch, emitted->text, fast_math);
    p->entry = kcache_find(d->cuda->kcache, &p->key);
    atomic_init(&p->state,
                p->entry && is_loaded(p) ? (int)PREPARED_READY : (int)PREPARED_COMPILING);
    return p;
}

/* How it is interpreted; without memory it is not. A program and what is run behind it
 * have an arena of their own, because the latter may outlive the kernel in the compiler's queue. */
static void make_program(struct cuda_device *d, struct prepared *p, const struct ir_kernel *k)
{
    const struct form *f = parts_form_of_program(d, p, k);
    if (!f)
        return;
    const int64_t most = d->cuda->config.interpret_bytes;
    struct emitted *rest = NULL;
    if (!interp_has_rest(f)) {
        p->program = interp_program(p->arena, k, f, most, &p->machine, &rest);
        return;
    }
    struct arena *own = arena_new(0);
    if (!own)
        return;
    arena_exempt(own, true);
    struct emitted *program = interp_program(own, k, f, most, &p->machine, &rest);
    p->rest = prepared_of(d, own, program ? rest : NULL, false);
    p->program = p->rest ? program : NULL;
}

static struct prepared *prepared_new(struct cuda_device *d, const struct ir_kernel *k,
                                     const void *user)
{
    struct arena *arena = arena_new(0);
    if (!arena)
        return NULL;
    arena_exempt(arena, true); /* freed with the kernel; the plan counts it */
    int members = parts_members(d, k);
    struct emitted *m = emit_within(arena, k, SLOT_ALIGNMENT, d->shared, members);
    if (m && m->indirect && members > 1) { /* a member's part differs in its parameters */
        members = 1;
        m = emit_within(arena, k, SLOT_ALIGNMENT, d->shared, members);
    }
    struct prepared *p = prepared_of(d, arena, m, k->fast_math);
    if (p && trace_on(TRACE_EMIT))
        trace_write(TRACE_EMIT, p->emitted->text, strlen(p->emitted->text));
    if (p && machines_are_wanted(d->cuda) && atomic_load(&p->state) == PREPARED_COMPILING)
        make_program(d, p, k);
    if (p) {
        p->user = user;
        parts_divide(p, k, members);
    }
    return p;
}

static bool can_be_interpreted(const struct prepared *p)
{
    return p->program && machines_functions(p->cuda, p->device, p->machine) &&
           (!p->rest || atomic_load(&p->rest->state) == PREPARED_READY);
}

/* Whether it is compiled only when it comes again: it is interpreted meanwhile, in no time. */
static bool is_put_off(struct prepared *p)
{
    const bool only = p->cuda->config.interpret == INTERPRET_ONLY && p->program;
    if (!only &&
        (!can_be_interpreted(p) || interp_work(p->program) > p->cuda->config.interpret_steps))
        return false;
    atomic_store(&p->put_off, true);
    return true;
}

static void compile_put_off(struct prepared *p, bool waited_for)
{
    if (atomic_exchange(&p->put_off, false))
        prepared_compile(p, p->user, waited_for);
}

void prepared_was_interpreted(struct prepared *p)
{
    atomic_fetch_add(&p->cuda->interpreted, 1);
    if (p->has_run && p->cuda->config.interpret != INTERPRET_ONLY)
        compile_put_off(p, false);
    p->has_run = true;
}

void prepared_hurry(struct prepared *p)
{
    struct compiler *q = p->cuda->compiler;
    if (atomic_load(&p->state) != PREPARED_COMPILING)
        return;
    compile_put_off(p, true);
    pthread_mutex_lock(&q->lock);
    bring_forward(q, p);
    pthread_mutex_unlock(&q->lock);
}

struct prepared *cuda_prepare(struct cuda_device *d, struct ir_kernel *k, const void *user)
{
    struct prepared *p = atomic_load(&k->prepared);
    if (p)
        return p;
    p = prepared_new(d, k, user);
    if (!p)
        return NULL;
    void *none = NULL;
    if (!atomic_compare_exchange_strong(&k->prepared, &none, p)) {
        prepared_unref(p);
        return none;
    }
    if (atomic_load(&p->state) == PREPARED_COMPILING && !is_put_off(p))
        prepared_compile(p, user, !can_be_interpreted(p));
    if (p->rest && atomic_load(&p->rest->state) == PREPARED_COMPILING)
        prepared_compile(p->rest, user, true); /* the next kernel like this will not wait */
    return p;
}

bool prepared_code(const struct prepared *p, bool compiled, struct launchable *ret)
{
    if (atomic_load(&p->state) == PREPARED_READY) {
        *ret = (struct launchable){.m = {p->emitted}, .functions = {p->functions}, .n = 1};
        return true;
    }
    if (compiled || !can_be_interpreted(p))
        return false;
    *ret =
        (struct launchable){{p->program}, {machines_functions(p->cuda, p->device, p->machine)}, 1};
    if (p->rest) {
        ret->m[1] = p->rest->emitted;
        ret->functions[1] = p->rest->functions;
        ret->n = 2;
    }
    return true;
}

void cuda_prepare_op(struct backend *b, int device, struct ir_kernel *k, const void *user)
{
    struct cuda *c = (struct cuda *)b;
    if (prepare_is_empty(k))
        return;
    struct prepared *p = atomic_load(&k->prepared);
    int state = p ? atomic_load(&p->state) : PREPARED_READY;
    if (!p)
        (void)cuda_prepare(&c->devices[device], k, user);
    else if (state > ERR_OK && kcache_refusal(c->kcache, &p->key) == 0 &&
             atomic_compare_exchange_strong(&p->state, &state, PREPARED_COMPILING))
        prepared_compile(p, user, true);
}

void cuda_release(struct backend *b, struct ir_kernel *k)
{
    struct prepared *p = atomic_exchange(&k->prepared, NULL);
    if (p)
        prepared_unref(p);
    for (struct ir_whole *w = k->whole; w; w = w->next)
        cuda_release(b, w->kernel);
}

/* --- explain --- */

static void describe(struct strb *out, const struct form *f)
{
    strb_addf(out, "// form %s, %u x %u x %u blocks of %u x %u threads, %d elements a chunk",
              form_name(f), f->grid[0], f->grid[1], f->grid[2], f->block[0], f->block[1],
              f->elements);
    if (f->kind == FORM_STENCIL)
        strb_addf(out, ", %d rows of %d planes a thread", f->rows, f->planes);
    if (f->kind == FORM_STEPS)
        strb_addf(out, ", %d steps, %d rows a thread, parts of %lld", f->steps.n, f->rows,
                  (long long)f->steps.part);
    strb_add(out, f->wide ? ", 64-bit indices\n" : "\n");
}

static void attributes(struct cuda *c, CUfunction f, struct kernel_explanation *ret)
{
    const struct driver *v = c->driver;
    const struct {
        int which, *at;
    } wanted[] = {{CU_FUNC_ATTRIBUTE_NUM_REGS, &ret->registers},
                  {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &ret->shared},
                  {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &ret->local}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int value;
        if (v->cuFuncGetAttribute(&value, wanted[i].which, f) == CUDA_SUCCESS)
            *wanted[i].at = value;
    }
}

/* Writes that the kernel is refused, as a comment before its text. */
static void put_refusal(struct strb *out, const struct prepared *p)
{
    char why[CULPRITS_TEXT];
    const struct culprit_verdict v = culprits_judge(p->cuda->culprits, &p->key, 1, &p->key);
    if (v.refusal == 0)
        return;
    culprits_reason(p->cuda->culprits, v.refusal, why);
    strb_addf(out, "// %s\n", why);
}

/* Writes why it cannot run, as comments before its text. */
static void put_failure(struct strb *out, const struct prepared *p, enum err_code code)
{
    char why[KCACHE_REASON] = "";
    kcache_reason(p->cuda->kcache, kcache_refusal(p->cuda->kcache, &p->key), why);
    strb_addf(out, "// not compiled: %s\n", *why ? why : err_title(code));
}

void cuda_explain_prepared(struct cuda *c, struct prepared *p, struct kernel_explanation *ret)
{
    ret->interpreted = p->program != NULL;
    ret->form = form_name(p->emitted->form);
    const struct cuda_device *d = &c->devices[p->device];
    ret->parts = d->n_members == 1 ? 0 : p->divided ? d->n_members : 1;
    ret->remote = p->remote;
    ret->waits = !p->own;
    describe(&ret->source, p->emitted->form);
    put_refusal(&ret->source, p);
    struct err e = ERR_INIT;
    enum err_code code =
        atomic_load(&p->state) == PREPARED_READY ? ERR_OK : make_ready(p, &ret->cached, &e);
    if (code == ERR_OK && cuda_enter(c->devices[p->device].members[0]))
        attributes(c, p->functions[0], ret);
    else if (code != ERR_OK)
        put_failure(&ret->source, p, code);
    strb_add(&ret->source, p->emitted->text);
    prepared_unref(p);
}

void cuda_explain(struct backend *b, int device, const struct ir_kernel *k,
                  struct kernel_explanation *ret)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    *ret = (struct kernel_explanation){
        .form = "flat", .cached = true, .registers = -1, .shared = -1, .local = -1};
    if (prepare_is_empty(k)) {
        strb_add(&ret->source, "// nothing to do\n");
        return;
    }
    struct prepared *p = prepared_new(d, k, NULL);
    if (!p) {
        ret->source.failed = true;
        return;
    }
    cuda_explain_prepared(d->cuda, p, ret);
}
