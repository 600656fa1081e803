/* The interpreter's kernels take a minute to compile, so the daemon has them compiled by `arrayd
 * precompile` in a process of its own: it can be ended at any time, has the least priority, and is
 * what an image's build runs, too. It ends with the thread that started it. */
#include "server/commands/device.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "compute/engine/engine.h"
#include "server/store/session.h"

#define NICEST 19

void device_configure(const struct config *c, struct backend_config *ret)
{
    static const char *const precompile[] = {"/proc/self/exe", "precompile", NULL};
    ret->threads = (int)c->threads;
    ret->memory_limit = c->memory_limit;
    ret->host_memory = c->host_memory;
    ret->inline_elements = c->inline_elements;
    ret->kernel_cache = c->kernel_cache;
    ret->ready_kernels = c->ready_kernels;
    ret->kernel_cache_bytes = c->kernel_cache_size;
    ret->kernel_cache_entries = c->kernel_cache_entries;
    ret->slab_memory = c->slab_memory;
    ret->compile_threads = (int)c->compile_threads;
    ret->mesh = c->mesh;
    ret->mesh_least = c->mesh_least;
    ret->interpret = c->interpreter ? INTERPRET_FIRST : INTERPRET_NEVER;
    ret->interpret_bytes = c->interpreter_memory;
    ret->interpret_steps = c->interpreter_work;
    ret->precompile = precompile;
}

enum err_code device_default(const struct config *c, const struct engine *g, int *ret,
                             struct err *e)
{
    const char *const text = c->default_device;
    const int n = g ? engine_single_count(g) : INT_MAX;
    const bool mesh = g ? engine_mesh(g) >= 0 : c->mesh && strcmp(c->backend, "cpu") != 0;
    const bool number = *text && strlen(text) < 9 && strspn(text, "0123456789") == strlen(text);
    *ret = number ? atoi(text) : !strcmp(text, "mesh") ? SESSION_MESH : SESSION_ANY_DEVICE;
    if (!number && *ret == SESSION_ANY_DEVICE && strcmp(text, "any") != 0)
        return err_set(e, ERR_BAD_FIELD,
                       "default-device: \"%.40s\" is neither a device's number nor any nor mesh",
                       text);
    if (*ret == SESSION_MESH && !mesh)
        return err_set(e, ERR_BAD_FIELD, "default-device: there is no mesh without --mesh");
    if (*ret >= n)
        return err_set(e, ERR_BAD_FIELD, "default-device: there is no device %d: %s", *ret,
                       n == 1 ? "the only one is 0" : "so many GPUs are not there");
    return ERR_OK;
}

int precompile_main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: arrayd precompile FOLDER ARCHITECTURE...\n");
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpriority(PRIO_PROCESS, 0, NICEST);
    for (int i = 2; i < argc; i++) {
        struct err e = ERR_INIT;
        if (backend_precompile(argv[1], argv[i], &e) != ERR_OK) {
            fprintf(stderr, "arrayd precompile: %s: %s\n", argv[i], e.message);
            return 1;
        }
    }
    return 0;
}
