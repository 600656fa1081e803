/* Modules and launches. A cubin of the fake NVRTC is a shared object behind a magic word; it is
 * loaded from a memory file. A launch copies its parameters, whose sizes the module tells, and is
 * then a piece of the stream's work.
 *
 * A module's indices and shared memory are its own variables, so it runs one launch at a time;
 * launches of different modules overlap. */
#include "tests/fake/fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, MAX_PARAMS = 32764 };

/* dlopen takes a path it has seen for the library it loaded from it, and descriptors come again: so
 * a number is written in slashes and dots, which mean nothing to the file system. */
static void unique_path(char *path, int fd)
{
    static unsigned count;
    char *p = path + sprintf(path, "/proc/self/fd/");
    for (unsigned n = ++count; n; n >>= 1)
        p += sprintf(p, n & 1 ? "./" : ".//");
    sprintf(p, "%d", fd);
}

static void *load(const void *image, char **ret_copy, size_t *ret_n)
{
    struct fake_cubin head;
    memcpy(&head, image, sizeof head.magic);
    if (memcmp(head.magic, FAKE_CUBIN, sizeof head.magic))
        return NULL;
    memcpy(&head, image, sizeof head);
    int fd = memfd_create("fake-cubin", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    const char *p = (const char *)image + sizeof head;
    void *handle = NULL;
    ssize_t n = 0;
    for (size_t left = head.size; left && (n = write(fd, p, left)) > 0; left -= (size_t)n)
        p += n;
    if (n > 0) {
        char path[256];
        unique_path(path, fd);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            fake_warn("a module is not loaded: %s", dlerror());
    }
    close(fd);
    if (handle) {
        *ret_n = head.size;
        *ret_copy = fake_alloc(head.size);
        memcpy(*ret_copy, (const char *)image + sizeof head, head.size);
    }
    return handle;
}

static struct CUmod_st *modules; /* with the lock held */

EXPORT CUresult cuModuleLoadData(CUmodule *ret_module, const void *image)
{
    int r = fake_enter("cuModuleLoadData", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!ret_module || !image)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    char *copy = NULL;
    size_t n_copy = 0;
    void *handle = load(image, &copy, &n_copy);
    const struct fake_module *module = handle ? dlsym(handle, "fake_module_") : NULL;
    if (!module || module->abi != FAKE_ABI) {
        if (handle)
            dlclose(handle);
        free(copy);
        return fake_leave(CUDA_ERROR_INVALID_IMAGE);
    }
    struct CUmod_st *m = fake_alloc(sizeof *m);
    m->magic = MAGIC_MODULE;
    m->refs = 1;
    m->context = fake_current;
    m->handle = handle;
    m->image = copy;
    m->n_image = n_copy;
    m->module = module;
    m->threads = dlsym(handle, "fake_uses_threads") != NULL;
    pthread_mutex_init(&m->running, NULL);
    m->functions = fake_alloc(module->n_kernels * sizeof *m->functions);
    for (unsigned i = 0; i < module->n_kernels; i++)
        m->functions[i] = (struct CUfunc_st){.module = m, .kernel = &module->kernels[i]};
    fake.live[FAKE_MODULES]++;
    m->next = modules;
    if (modules)
        modules->prev = m;
    modules = m;
    *ret_module = m;
    return fake_leave(CUDA_SUCCESS);
}

void module_unref(struct CUmod_st *m)
{
    if (--m->refs)
        return;
    m->magic = 0;
    *(m->prev ? &m->prev->next : &modules) = m->next;
    if (m->next)
        m->next->prev = m->prev;
    dlclose(m->handle);
    pthread_mutex_destroy(&m->running);
    free(m->functions);
    free(m->image);
    free(m);
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuModuleUnload", NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    if (!module || module->magic != MAGIC_MODULE)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    fake.live[FAKE_MODULES]--;
    module_unref(module);
    return fake_leave(failure);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    int r = fake_enter("cuModuleGetFunction", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!function || !name)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (!module || module->magic != MAGIC_MODULE)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    for (unsigned i = 0; i < module->module->n_kernels; i++)
        if (!strcmp(module->functions[i].kernel->name, name)) {
            *function = &module->functions[i];
            return fake_leave(CUDA_SUCCESS);
        }
    return fake_leave(CUDA_ERROR_NOT_FOUND);
}

static size_t static_shared(const struct CUfunc_st *f)
{
    const struct fake_module *m = f->module->module;
    return m->shared ? (size_t)(m->shared_end - m->shared) : 0;
}

static int max_threads(const struct CUfunc_st *f)
{
    return f->kernel->max_threads ? f->kernel->max_threads : MAX_THREADS;
}

/* Plausible figures, always the same: nothing is known of registers here. */
EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    int r = fake_enter("cuFuncGetAttribute", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!value || !function)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = max_threads(function);
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)static_shared(function);
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = 0;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
    default:
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    int r = fake_enter("cuFuncSetAttribute", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!function || attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        static_shared(function) + (size_t)value > FAKE_SHARED_ASKED)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    function->asked = static_shared(function) + (size_t)value;
    return fake_leave(CUDA_SUCCESS);
}

/* Appends where in the text a module's code at `from` is, the innermost call first. Without the
 * tool for that, where in the module. */
static void add_place(const struct CUmod_st *m, const void *from, char *text, size_t n_text)
{
    size_t offset = (size_t)((const char *)from - m->module->image) - 1, n = strlen(text);
    char command[128], line[512];
    int fd = memfd_create("fake-module", MFD_CLOEXEC);
    ssize_t wrote = fd < 0 ? -1 : write(fd, m->image, m->n_image);
    snprintf(command, sizeof command, "addr2line -i -s -e /proc/%d/fd/%d 0x%zx 2>/dev/null",
             (int)getpid(), fd, offset);
    FILE *f = wrote == (ssize_t)m->n_image ? popen(command, "re") : NULL;
    bool any = false;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, " \n")] = 0;
        if (*line == '?' || n + strlen(line) + 8 > n_text)
            continue;
        n += (size_t)sprintf(text + n, "%s%s", any ? " < " : ", ", line);
        any = true;
    }
    if (f)
        pclose(f);
    if (fd >= 0)
        close(fd);
    if (!any)
        snprintf(text + n, n_text - n, ", at 0x%zx of its module", offset);
}

static void describe(const struct CUmod_st *m, const struct failure *f, char *text, size_t n)
{
    const struct access *a = &f->access;
    char where[200];
    const char *how = a->how == FAKE_READS ? "reads" : a->how == FAKE_WRITES ? "writes" : "changes";
    bool dynamic = m->module->dynamic && a->at >= m->module->dynamic &&
                   a->at < m->module->dynamic + FAKE_SHARED_ASKED;
    const char *start = dynamic ? m->module->dynamic : m->module->shared;
    size_t size = dynamic ? a->n_dynamic : a->n_static;
    if (f->fault == FAULT_NONE) {
        snprintf(text, n, "%s", f->why);
        return;
    }
    if (f->fault == FAULT_SHARED || f->fault == FAULT_SHARED_UNWRITTEN)
        snprintf(where, sizeof where, "at %zu, of %zu bytes of %s shared memory",
                 (size_t)(a->at - start), size, dynamic ? "dynamic" : "static");
    else
        memory_describe(a->at, a->n, where, sizeof where);
    char denied[64];
    snprintf(denied, sizeof denied, ", that device %d has no access to", a->device);
    snprintf(text, n, "%s %zu bytes %s%s, %s", how, a->n, where,
             f->fault == FAULT_UNWRITTEN || f->fault == FAULT_SHARED_UNWRITTEN
                 ? ", that nobody wrote"
             : f->fault == FAULT_DENIED ? denied
                                        : "",
             f->why);
    add_place(m, a->from, text, n);
}

static int run_launch(struct work *w)
{
    struct CUfunc_st *f = w->launch.function;
    struct CUmod_st *m = f->module;
    struct failure failure = {.why = ""};
    char text[1000];
    if (w->launch.fail)
        return fake_held_failure(w->launch.fail);
    pthread_mutex_lock(&m->running);
    int failed = fiber_launch(m->module, f->kernel, m->threads, fake.reverse, w->launch.params,
                              w->launch.grid, w->launch.block, w->launch.shared, &failure);
    pthread_mutex_unlock(&m->running);
    pthread_mutex_lock(&fake.lock);
    fake.live[FAKE_LAUNCHES]++;
    pthread_mutex_unlock(&fake.lock);
    if (!failed)
        return CUDA_SUCCESS;
    describe(m, &failure, text, sizeof text);
    (failed == FIBER_VIOLATION ? fake_violation : fake_mistake)("kernel %s: %s", f->kernel->name,
                                                                text);
    return failed == FIBER_VIOLATION ? CUDA_ERROR_LAUNCH_FAILED : failed;
}

static void dispose_launch(struct work *w)
{
    module_unref(w->launch.function->module);
    free(w->launch.params);
    free(w->launch.bytes);
}

/* Each parameter in steps that suit the strictest type, a CUtensorMap. */
static size_t room_of(size_t size)
{
    return (size + 63) & ~(size_t)63;
}

static char *alloc_params(size_t n)
{
    char *p = aligned_alloc(64, n ? n : 64);
    if (!p)
        abort();
    memset(p, 0, n);
    return p;
}

void launch_copy(struct work *to, const struct work *from)
{
    const struct fake_kernel *k = from->launch.function->kernel;
    size_t total = 0;
    for (unsigned i = 0; i < k->n_params; i++)
        total += room_of(k->sizes[i]);
    to->launch.params = fake_alloc(k->n_params * sizeof *to->launch.params);
    to->launch.bytes = alloc_params(total);
    memcpy(to->launch.bytes, from->launch.bytes, total);
    for (unsigned i = 0; i < k->n_params; i++)
        to->launch.params[i] =
            to->launch.bytes + ((char *)from->launch.params[i] - from->launch.bytes);
    to->launch.function->module->refs++;
}

static bool sizes_are_fine(const struct CUfunc_st *f, struct fake_dim grid, struct fake_dim block,
                           unsigned shared)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return threads && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
           threads <= (uint64_t)max_threads(f) && grid.x && grid.x <= 0x7fffffff && grid.y &&
           grid.y <= 65535 && grid.z && grid.z <= 65535 &&
           static_shared(f) + shared <= (f->asked ? f->asked : FAKE_SHARED);
}

static bool copy_params(struct work *w, const struct fake_kernel *k, void **params)
{
    size_t total = 0;
    for (unsigned i = 0; i < k->n_params; i++) {
        if (!params || !params[i])
            return false;
        total += room_of(k->sizes[i]);
    }
    if (total > MAX_PARAMS)
        return false;
    w->launch.params = fake_alloc(k->n_params * sizeof *w->launch.params);
    w->launch.bytes = alloc_params(total);
    char *p = w->launch.bytes;
    for (unsigned i = 0; i < k->n_params; i++) {
        memcpy(p, params[i], k->sizes[i]);
        w->launch.params[i] = p;
        p += room_of(k->sizes[i]);
    }
    return true;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared, CUstream stream, void **params,
                               void **extra)
{
    int r = fake_enter("cuLaunchKernel", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    int later, now = fake_launch_failure(&later);
    if (now)
        return fake_leave(now);
    struct CUstream_st *s = stream_of(stream);
    if (!function || !s || function->module->context != s->context)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    struct fake_dim grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    struct work *w = fake_alloc(sizeof *w);
    if (extra || !sizes_are_fine(function, grid, block, shared) ||
        !copy_params(w, function->kernel, params)) {
        fake_warn("cuLaunchKernel %s: grid %u,%u,%u, block %u,%u,%u, %u bytes of shared memory",
                  function->kernel->name, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                  shared);
        free(w);
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    w->run = run_launch;
    w->is_launch = true;
    w->dispose = dispose_launch;
    w->launch.function = function;
    w->launch.grid = grid;
    w->launch.block = block;
    w->launch.shared = shared;
    w->launch.fail = later;
    w->held = !s->capture && fake.hold_left > 0 && fake.hold_left-- > 0;
    function->module->refs++;
    fake.launched += !s->capture;
    stream_push(s, w);
    return fake_leave(CUDA_SUCCESS);
}
