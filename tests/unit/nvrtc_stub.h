/* An NVRTC that compiles nothing, for the tests of what is around it: its code is the text and the
 * options, behind ELF's magic. A text with "FAIL" in it is refused; one with "SLOW" takes a while,
 * with "SLOWER" a longer one. */
#ifndef ARRAYD_TESTS_NVRTC_STUB_H
#define ARRAYD_TESTS_NVRTC_STUB_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compute/gpu/api/loader.h"

struct stub_program {
    char *source, *scalar, *code;
    size_t n;
};

static struct {
    atomic_int programs; /* not destroyed */
    atomic_int compiles; /* ever */
    atomic_int running, most_running;
    nvrtcResult create_code, compile_code, size_code, cubin_code; /* to be returned, if not 0 */
    const char *log;                                              /* of the next failure */
    char scalar[65536]; /* scalar.h as the last program was given it */
    char options[512];  /* of the last one, with blanks between */
} stub;

static nvrtcResult stub_version(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}

static nvrtcResult stub_create(nvrtcProgram *program, const char *source, const char *name, int n,
                               const char *const *headers, const char *const *names)
{
    (void)name;
    if (stub.create_code)
        return stub.create_code;
    struct stub_program *p = calloc(1, sizeof *p);
    p->source = strdup(source);
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], "compute/kernels/scalar/scalar.h") == 0)
            p->scalar = strdup(headers[i]);
    atomic_fetch_add(&stub.programs, 1);
    *program = (nvrtcProgram)p;
    return NVRTC_SUCCESS;
}

static nvrtcResult stub_destroy(nvrtcProgram *program)
{
    struct stub_program *p = (struct stub_program *)*program;
    free(p->source);
    free(p->scalar);
    free(p->code);
    free(p);
    *program = NULL;
    atomic_fetch_sub(&stub.programs, 1);
    return NVRTC_SUCCESS;
}

static nvrtcResult stub_compile(nvrtcProgram program, int n, const char *const *options)
{
    struct stub_program *p = (struct stub_program *)program;
    int running = atomic_fetch_add(&stub.running, 1) + 1;
    int most = atomic_load(&stub.most_running);
    while (running > most && !atomic_compare_exchange_weak(&stub.most_running, &most, running))
        ;
    atomic_fetch_add(&stub.compiles, 1);
    if (strstr(p->source, "SLOW"))
        nanosleep(&(struct timespec){.tv_nsec = strstr(p->source, "SLOWER") ? 300000000 : 30000000},
                  NULL);
    char all[512] = "";
    for (int i = 0; i < n; i++)
        strcat(strcat(all, options[i]), " ");
    p->n = 4 + strlen(p->source) + strlen(all);
    p->code = malloc(p->n + 1);
    strcat(strcat(strcpy(p->code, "\177ELF"), p->source), all);
    atomic_fetch_sub(&stub.running, 1);
    if (strstr(p->source, "FAIL"))
        return NVRTC_ERROR_COMPILATION;
    if (stub.compile_code)
        return stub.compile_code;
    if (strstr(p->source, "LOOK")) { /* only these: others may run side by side */
        strcpy(stub.options, all);
        strcpy(stub.scalar, p->scalar);
    }
    return NVRTC_SUCCESS;
}

static nvrtcResult stub_log_size(nvrtcProgram program, size_t *n)
{
    (void)program;
    *n = stub.log ? strlen(stub.log) + 1 : 1;
    return NVRTC_SUCCESS;
}

static nvrtcResult stub_log(nvrtcProgram program, char *log)
{
    (void)program;
    strcpy(log, stub.log ? stub.log : "");
    return NVRTC_SUCCESS;
}

static nvrtcResult stub_cubin_size(nvrtcProgram program, size_t *n)
{
    *n = ((struct stub_program *)program)->n;
    return stub.size_code;
}

static nvrtcResult stub_cubin(nvrtcProgram program, char *cubin)
{
    struct stub_program *p = (struct stub_program *)program;
    memcpy(cubin, p->code, p->n);
    return stub.cubin_code;
}

static const char *stub_error_string(nvrtcResult code)
{
    return code == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_OTHER";
}

static const struct nvrtc stub_nvrtc = {
    .nvrtcVersion = stub_version,
    .nvrtcCreateProgram = stub_create,
    .nvrtcDestroyProgram = stub_destroy,
    .nvrtcCompileProgram = stub_compile,
    .nvrtcGetProgramLogSize = stub_log_size,
    .nvrtcGetProgramLog = stub_log,
    .nvrtcGetCUBINSize = stub_cubin_size,
    .nvrtcGetCUBIN = stub_cubin,
    .nvrtcGetErrorString = stub_error_string,
    .major = 13,
    .minor = 0,
};

#endif
