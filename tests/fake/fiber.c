/* Runs a launch block after block; the threads of a block are fibers, so that barriers and shuffles
 * mean what they mean.
 *
 * Every thread runs until it waits or ends, then the next one of its warp, and a warp until all of
 * it wait for others or have ended; a barrier opens when all that have not ended stand at it, a
 * warp operation when all lanes of its mask that have not ended do, and when neither can happen any
 * more the launch ends with a report of who waits where. Switching is a handful of instructions:
 * ucontext's makes two system calls each time. A module without barriers needs none of that and
 * runs as a loop.
 *
 * This file is compiled without sanitizers: they follow one stack a thread. Modules call no
 * sanitizer's run-time either, so none of the instrumented code ever runs on a fiber. */
#include "tests/fake/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

enum state { READY, AT_BARRIER, AT_WARP, AT_PHASE, ENDED };
enum { STACK = 256 << 10, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32, CANARY = 0x5ac0ffee };

/* From one stack to the next: were it a power of two, the tops of all would fight for the same few
 * lines of every cache. */
enum { STRIDE = STACK + 17 * 64 };

struct fiber {
    void *sp;
    struct fake_dim place;
    enum state state;
    int line;
    /* what it brought to where it waits, and what it takes away */
    enum fake_warp kind;
    unsigned mask;
    int source, reduction;
    unsigned long long value, result;
    const void *phase; /* it waits for the end of one of parity `value` */
    struct copies copies;
};

struct launch {
    const struct fake_module *module;
    const struct fake_kernel *kernel;
    void *const *params;
    struct fake_dim block;
    bool fibers, reverse;
    void *scheduler;
    char *stacks;
    int n, current, live;
    struct fiber *fiber;
    unsigned waiting[MAX_WARPS], ended[MAX_WARPS]; /* lanes AT_WARP, lanes that are no more */
    jmp_buf abandon;
    int failed;
    struct failure *failure;
    struct access access;
    struct launch *next; /* unused ones are kept for their stacks */
};

static _Thread_local struct launch *running;

/* Saves what a call must preserve on the stack it leaves, and returns on the other one. */
#if defined(__x86_64__)
void fake_swap(void **save, void *to) __attribute__((visibility("hidden")));
__asm__(".text\n.globl fake_swap\n.hidden fake_swap\n.type fake_swap,@function\nfake_swap:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size fake_swap,.-fake_swap\n");
static void *fresh(char *top, void (*entry)(void))
{
    void **sp = (void **)top;
    *--sp = NULL; /* where entry would return to; also makes the alignment a call's */
    void *address;
    memcpy(&address, &entry, sizeof address);
    *--sp = address;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    return sp;
}
#elif defined(__aarch64__)
void fake_swap(void **save, void *to) __attribute__((visibility("hidden")));
__asm__(".text\n.globl fake_swap\n.hidden fake_swap\n.type fake_swap,%function\nfake_swap:\n"
        "stp x19,x20,[sp,#-160]!\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\n"
        "stp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
        "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\n"
        "stp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
        "ldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
        "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\n"
        "ldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
        "ldp x19,x20,[sp],#160\nret\n.size fake_swap,.-fake_swap\n");
static void *fresh(char *top, void (*entry)(void))
{
    char *sp = top - 160;
    memset(sp, 0, 160);
    memcpy(sp + 88, &entry, sizeof entry); /* x30 */
    return sp;
}
#else
static void fake_swap(void **save, void *to)
{
    ucontext_t here;
    *save = &here;
    swapcontext(&here, to);
}
static void *fresh(char *top, void (*entry)(void))
{
    ucontext_t *c = (ucontext_t *)(top - sizeof *c - 64);
    getcontext(c);
    c->uc_stack.ss_sp = top - STACK;
    c->uc_stack.ss_size = STACK - sizeof *c - 128;
    makecontext(c, entry, 0);
    return c;
}
#endif

static void leave_fiber(struct launch *l)
{
    fake_swap(&l->fiber[l->current].sp, l->scheduler);
}

static void report(struct launch *l, int code, const char *format, ...)
{
    if (l->failed)
        return;
    l->failed = code;
    va_list args;
    va_start(args, format);
    vsnprintf(l->failure->why, sizeof l->failure->why, format, args);
    va_end(args);
}

static struct fake_dim place(const struct launch *l, int i)
{
    unsigned u = (unsigned)i;
    return (struct fake_dim){u % l->block.x, u / l->block.x % l->block.y,
                             u / l->block.x / l->block.y};
}

/* Warps */

/* Lets the warp of thread i go when all its mask asks for are there. */
static void try_warp(struct launch *l, int i)
{
    struct fiber *f = &l->fiber[i], *lanes = &l->fiber[i & ~31];
    unsigned *waiting = &l->waiting[i / 32], here = f->mask & ~l->ended[i / 32], ballot = 0;
    if ((*waiting & here) != here)
        return;
    for (unsigned left = here; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        if (lanes[k].mask != f->mask || lanes[k].kind != f->kind)
            return;
        ballot |= lanes[k].value ? 1u << k : 0;
    }
    *waiting &= ~here;
    for (unsigned left = here; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        int source = lanes[k].source & 31;
        if (lanes[k].kind == FAKE_WARP_BALLOT)
            lanes[k].result = ballot;
        else if (here >> source & 1)
            lanes[k].result = lanes[source].value;
        else /* a lane that ended, never was or is not in the mask: undefined */
            lanes[k].result = 0xa5a5a5a5a5a5a5a5;
        lanes[k].state = READY;
    }
}

/* Straight to the next thread of the warp that can run, if there is one behind this: half the
 * switches of going by way of the scheduler, which sees to the first of the warp again. */
static void pass_on(struct launch *l)
{
    const int i = l->current, step = l->reverse ? -1 : 1;
    int next = i + step;
    while (next / 32 == i / 32 && next >= 0 && next < l->n && l->fiber[next].state != READY)
        next += step;
    if (next / 32 != i / 32 || next < 0 || next >= l->n) {
        leave_fiber(l);
        return;
    }
    l->current = next;
    *l->module->thread_idx = l->fiber[next].place;
    fake_swap(&l->fiber[i].sp, l->fiber[next].sp);
}

static unsigned long long warp(enum fake_warp kind, unsigned mask, unsigned long long value,
                               int source, int line)
{
    struct launch *l = running;
    struct fiber *f = &l->fiber[l->current];
    if (!(mask >> (l->current & 31) & 1)) {
        report(l, FIBER_VIOLATION,
               "line %d: lane %d takes part in a warp operation whose mask %08x is without it",
               line, l->current & 31, mask);
        f->state = AT_WARP;
        leave_fiber(l);
    }
    f->kind = kind;
    f->mask = mask;
    f->value = value;
    f->source = source;
    f->line = line;
    f->state = AT_WARP;
    l->waiting[l->current / 32] |= 1u << (l->current & 31);
    try_warp(l, l->current);
    if (f->state != READY)
        pass_on(l);
    return f->result;
}

static unsigned active(void)
{
    struct launch *l = running;
    return ~l->ended[l->current / 32];
}

/* Barriers */

static unsigned barrier(int line, int predicate, int reduction)
{
    struct launch *l = running;
    struct fiber *f = &l->fiber[l->current];
    f->line = line;
    f->value = (unsigned)predicate;
    f->reduction = reduction;
    f->state = AT_BARRIER;
    leave_fiber(l);
    return (unsigned)f->result;
}

static const char *name_of(const struct fiber *f)
{
    static const char *const kinds[] = {"__syncwarp", "a shuffle", "a vote"};
    return f->state == AT_BARRIER ? "__syncthreads"
           : f->state == AT_PHASE ? "a phase's end"
                                  : kinds[f->kind];
}

/* A barrier in two halves: how many are still to come, of how many, and what number the phase has.
 */
struct phase {
    uint16_t missing, all;
    uint32_t number;
};

static void reach(struct launch *l, void *state)
{
    struct phase p;
    memcpy(&p, state, sizeof p);
    if (--p.missing == 0) {
        p.missing = p.all;
        p.number++;
        for (int i = 0; i < l->n; i++)
            if (l->fiber[i].state == AT_PHASE && l->fiber[i].phase == state &&
                l->fiber[i].value != (p.number & 1))
                l->fiber[i].state = READY;
    }
    memcpy(state, &p, sizeof p);
}

static void phase(enum fake_phase what, void *state, unsigned number, int line)
{
    struct launch *l = running;
    struct fiber *f = &l->fiber[l->current];
    struct phase p = {(uint16_t)number, (uint16_t)number, 0};
    access_check(state, sizeof p,
                 what == FAKE_PHASE_OPEN   ? FAKE_WRITES
                 : what == FAKE_PHASE_WAIT ? FAKE_READS
                                           : FAKE_READS | FAKE_WRITES,
                 __builtin_return_address(0));
    if (what == FAKE_PHASE_OPEN) {
        memcpy(state, &p, sizeof p);
        return;
    }
    if (what == FAKE_PHASE_REACH) {
        reach(l, state);
        return;
    }
    memcpy(&p, state, sizeof p);
    if ((p.number & 1) != number)
        return;
    f->line = line;
    f->phase = state;
    f->value = number;
    f->state = AT_PHASE;
    pass_on(l);
}

static void copy(void *to, const void *from, unsigned n, const void *code)
{
    struct launch *l = running;
    struct copies now = {0}, *c = l->fibers ? &l->fiber[l->current].copies : &now;
    copies_add(c, to, from, n, code);
    if (l->fibers)
        return;
    now.batch++;
    copies_arrived(&now, 0);
    free(now.list);
}

static void copies_are_sent(void)
{
    struct launch *l = running;
    if (l->fibers)
        l->fiber[l->current].copies.batch++;
}

static void copies_have_arrived(unsigned left)
{
    struct launch *l = running;
    if (l->fibers)
        copies_arrived(&l->fiber[l->current].copies, left);
}

/* Nobody can run: everyone stands at one barrier, or never will. */
static void open_barrier(struct launch *l)
{
    const struct fiber *first = NULL;
    unsigned count = 0, all = 1;
    for (int i = 0; i < l->n; i++) {
        struct fiber *f = &l->fiber[i];
        if (f->state == ENDED)
            continue;
        first = first ? first : f;
        if (f->state != first->state || f->state != AT_BARRIER || f->line != first->line) {
            const struct fiber *w = f->state != AT_BARRIER ? f : first;
            struct fake_dim a = place(l, (int)(first - l->fiber)), b = place(l, i);
            report(
                l, FIBER_VIOLATION,
                "threads wait for each other for ever: (%u,%u,%u) at %s of line %d, (%u,%u,%u) at "
                "%s of line %d%s",
                a.x, a.y, a.z, name_of(first), first->line, b.x, b.y, b.z, name_of(f), f->line,
                w->state == AT_WARP ? ", whose mask names a lane that never comes" : "");
            return;
        }
        count += f->value != 0;
        all &= f->value != 0;
    }
    for (int i = 0; i < l->n; i++) {
        struct fiber *f = &l->fiber[i];
        if (f->state == ENDED)
            continue;
        f->result = f->reduction == 0 ? count : f->reduction == 1 ? count != 0 : all;
        f->state = READY;
    }
}

/* Never comes back. */
static void abandon(struct launch *l)
{
    if (!l->fibers)
        longjmp(l->abandon, 1);
    leave_fiber(l);
}

static void trap(int code, const char *why, const char *file, int line)
{
    struct launch *l = running;
    struct fake_dim t = *l->module->thread_idx, b = *l->module->block_idx;
    report(l, code, "%s:%d: %s in thread (%u,%u,%u) of block (%u,%u,%u)", file, line, why, t.x, t.y,
           t.z, b.x, b.y, b.z);
    abandon(l);
}

void fiber_fault(enum fault fault)
{
    struct launch *l = running;
    struct fake_dim t = *l->module->thread_idx, b = *l->module->block_idx;
    bool outside = fault == FAULT_OUTSIDE || fault == FAULT_DENIED || fault == FAULT_SHARED;
    if (!l->failed) {
        l->failure->fault = fault;
        l->failure->access = l->access;
    }
    report(l, outside ? CUDA_ERROR_ILLEGAL_ADDRESS : FIBER_VIOLATION,
           "in thread (%u,%u,%u) of block (%u,%u,%u)", t.x, t.y, t.z, b.x, b.y, b.z);
    abandon(l);
}

static const struct fake_host host = {
    barrier, warp, active, phase, copy, copies_are_sent, copies_have_arrived, access_check, trap};

/* Blocks */

static unsigned *canary(const struct launch *l, int i)
{
    return (unsigned *)(l->stacks + (size_t)i * STRIDE);
}

static void entry(void)
{
    struct launch *l = running;
    l->kernel->thread(l->params);
    l->fiber[l->current].state = ENDED;
    leave_fiber(l);
}

static void resume(struct launch *l, int i)
{
    l->current = i;
    *l->module->thread_idx = l->fiber[i].place;
    fake_swap(&l->scheduler, l->fiber[i].sp);
    i = l->current; /* who has come back */
    if (l->fiber[i].state != AT_WARP && *canary(l, i) != CANARY)
        report(l, FIBER_VIOLATION, "a thread uses more than %d bytes of stack", STACK);
    if (l->fiber[i].state != ENDED || l->failed)
        return;
    l->live--;
    l->ended[i / 32] |= 1u << (i & 31);
    for (int k = i & ~31; k < l->n && k <= (i | 31); k++)
        if (l->fiber[k].state == AT_WARP)
            try_warp(l, k);
}

/* Every thread of a warp that can, round after round as long as any can: the stacks of one warp
 * stay in the nearest cache, those of a block do not. Not for ever, should it wait for another
 * warp. */
static bool run_warp(struct launch *l, int w, bool reverse)
{
    int first = w * 32, n = l->n - first < 32 ? l->n - first : 32;
    bool ever = false, progress = true;
    for (int round = 0; progress && round < 64; round++) {
        progress = false;
        for (int k = 0; k < n && !l->failed; k++) {
            int i = first + (reverse ? n - 1 - k : k);
            if (l->fiber[i].state == READY) {
                progress = ever = true;
                resume(l, i);
            }
        }
    }
    return ever;
}

static void run_fibers(struct launch *l, bool reverse)
{
    int warps = (l->n + 31) / 32;
    for (int i = 0; i < l->n; i++) {
        l->fiber[i].state = READY;
        l->fiber[i].place = place(l, i);
        l->fiber[i].copies.n = l->fiber[i].copies.batch = 0;
        l->fiber[i].sp = fresh(l->stacks + (size_t)i * STRIDE + STACK, entry);
        *canary(l, i) = CANARY;
    }
    for (int w = 0; w < warps; w++) {
        l->waiting[w] = 0;
        l->ended[w] = l->n - w * 32 < 32 ? ~0u << (l->n - w * 32) : 0;
    }
    l->live = l->n;
    while (l->live && !l->failed) {
        bool progress = false;
        for (int w = 0; w < warps; w++)
            progress |= run_warp(l, reverse ? warps - 1 - w : w, reverse);
        if (!progress && !l->failed)
            open_barrier(l);
    }
}

static void run_block(struct launch *l, unsigned shared, bool reverse)
{
    const struct fake_module *m = l->module;
    access_begin_block(&l->access);
    if (m->shared)
        memset(m->shared, FAKE_POISON, (size_t)(m->shared_end - m->shared));
    if (m->dynamic)
        memset(m->dynamic, FAKE_POISON, shared);
    if (l->fibers)
        run_fibers(l, reverse);
    else if (!setjmp(l->abandon))
        l->kernel->block(l->params, reverse);
}

/* Stacks are kept: mapping a thousand of them anew costs more than most kernels. */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct launch *spare;

static struct launch *take_launch(bool fibers)
{
    pthread_mutex_lock(&spare_lock);
    struct launch *l = spare;
    if (l)
        spare = l->next;
    pthread_mutex_unlock(&spare_lock);
    if (!l)
        l = fake_alloc(sizeof *l);
    if (fibers && !l->stacks) {
        l->stacks = mmap(NULL, (size_t)STRIDE * MAX_THREADS, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (l->stacks == MAP_FAILED)
            abort();
        l->fiber = fake_alloc(MAX_THREADS * sizeof *l->fiber);
    }
    return l;
}

static void put_launch(struct launch *l)
{
    pthread_mutex_lock(&spare_lock);
    l->next = spare;
    spare = l;
    pthread_mutex_unlock(&spare_lock);
}

/* The threads' stacks: theirs, or that of this thread, which runs them all. */
static void begin_access(struct launch *l, unsigned shared)
{
    static _Thread_local char *own;
    static _Thread_local size_t n_own;
    if (l->fibers) {
        access_begin(&l->access, l->module, l->stacks, (size_t)STRIDE * MAX_THREADS, shared);
        return;
    }
    if (!own) {
        pthread_attr_t attr;
        void *start = NULL;
        if (pthread_getattr_np(pthread_self(), &attr) ||
            pthread_attr_getstack(&attr, &start, &n_own))
            abort();
        pthread_attr_destroy(&attr);
        own = start;
    }
    access_begin(&l->access, l->module, own, n_own, shared);
}

int fiber_launch(const struct fake_module *module, const struct fake_kernel *kernel, bool threads,
                 bool reverse, void *const *params, struct fake_dim grid, struct fake_dim block,
                 unsigned shared, struct failure *ret)
{
    struct launch *l = take_launch(threads);
    l->module = module;
    l->kernel = kernel;
    l->params = params;
    l->block = block;
    l->fibers = threads;
    l->reverse = reverse;
    l->n = (int)(block.x * block.y * block.z);
    l->failed = 0;
    l->failure = ret;
    ret->fault = FAULT_NONE;
    running = l;
    begin_access(l, shared);
    *module->host = &host;
    *module->grid_dim = grid;
    *module->block_dim = block;
    unsigned long n = (unsigned long)grid.x * grid.y * grid.z;
    for (unsigned long i = 0; i < n && !l->failed; i++) {
        unsigned long at = reverse ? n - 1 - i : i;
        *module->block_idx =
            (struct fake_dim){(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                              (unsigned)(at / grid.x / grid.y)};
        run_block(l, shared, reverse);
    }
    running = NULL;
    int failed = l->failed;
    put_launch(l);
    return failed;
}
