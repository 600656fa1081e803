/* NVRTC generates machine code (CUBIN), never PTX, so that the driver has nothing left to compile
 * when it loads the module.
 *
 * Measured, a small kernel's compilation spends a third each in the front end, the optimiser and
 * ptxas, nearly all of it fixed costs. Two things reduce it: headers.c passes only the functions
 * that are called, and --minimal leaves out NVRTC's declarations of textures and of the CUDA
 * runtime (a tenth). Precompiled headers save no more than headers.c does, and need a folder and a
 * fixed address; -Ofast-compile makes the kernel slower. NVRTC's own disk cache is switched off:
 * kcache.c has one, whose size limit and place are arrayd's. */
#include "compute/gpu/code/compile.h"

#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/base/trace.h"
#include "compute/gpu/code/headers.h"

/* How much of NVRTC's log an error message includes. */
#define LOG_IN_MESSAGE 700

static bool at_least(const struct nvrtc *nvrtc, int major, int minor)
{
    return nvrtc->major > major || (nvrtc->major == major && nvrtc->minor >= minor);
}

int compile_options(const struct nvrtc *nvrtc, const char *arch, bool fast_math, char *arch_option,
                    const char *ret_options[COMPILE_MAX_OPTIONS])
{
    int n = 0;
    snprintf(arch_option, 64, "--gpu-architecture=%s", arch);
    ret_options[n++] = arch_option;
    ret_options[n++] = fast_math ? "--fmad=true" : "--fmad=false";
    ret_options[n++] = "--std=c++17";
    if (at_least(nvrtc, 12, 4))
        ret_options[n++] = "--minimal";
    if (at_least(nvrtc, 12, 9))
        ret_options[n++] = "--no-cache";
    return n;
}

/* The program's log, or NULL when there is none (also without memory: it is only for people). */
static char *read_log(const struct nvrtc *nvrtc, nvrtcProgram program)
{
    size_t n = 0;
    if (nvrtc->nvrtcGetProgramLogSize(program, &n) != NVRTC_SUCCESS || n <= 1)
        return NULL;
    char *log = mem_calloc(n + 1, 1);
    if (log && nvrtc->nvrtcGetProgramLog(program, log) != NVRTC_SUCCESS)
        log[0] = '\0';
    return log;
}

static enum err_code refused(const struct nvrtc *nvrtc, nvrtcResult code, const char *arch,
                             const char *log, struct err *e)
{
    if (code == NVRTC_ERROR_OUT_OF_MEMORY)
        return err_oom(e);
    if (log && strstr(log, "--gpu-architecture"))
        return err_set(e, ERR_INTERNAL,
                       "NVRTC %d.%d cannot compile for this GPU's architecture %s: one of the two "
                       "is too old for the other; install another version of NVRTC",
                       nvrtc->major, nvrtc->minor, arch);
    return err_set(e, ERR_INTERNAL, "NVRTC failed to compile a kernel for %s (%s): %.*s", arch,
                   nvrtc->nvrtcGetErrorString(code), LOG_IN_MESSAGE, log ? log : "no log");
}

static enum err_code take_code(const struct nvrtc *nvrtc, nvrtcProgram program,
                               struct compiled *ret, struct err *e)
{
    size_t n = 0;
    nvrtcResult code = nvrtc->nvrtcGetCUBINSize(program, &n);
    if (code != NVRTC_SUCCESS || n == 0)
        return err_set(e, ERR_INTERNAL, "NVRTC produced no machine code (%s)",
                       nvrtc->nvrtcGetErrorString(code));
    _cleanup_free_ char *bytes = mem_alloc(n);
    if (!bytes)
        return err_oom(e);
    code = nvrtc->nvrtcGetCUBIN(program, bytes);
    if (code != NVRTC_SUCCESS)
        return err_set(e, ERR_INTERNAL, "NVRTC did not return its machine code (%s)",
                       nvrtc->nvrtcGetErrorString(code));
    *ret = (struct compiled){bytes, n};
    bytes = NULL;
    return ERR_OK;
}

static enum err_code compile_program(const struct nvrtc *nvrtc, nvrtcProgram program,
                                     const char *arch, bool fast_math, struct compiled *ret,
                                     struct err *e)
{
    char arch_option[64];
    const char *options[COMPILE_MAX_OPTIONS];
    int n = compile_options(nvrtc, arch, fast_math, arch_option, options);
    nvrtcResult code = nvrtc->nvrtcCompileProgram(program, n, options);
    _cleanup_free_ char *log =
        code != NVRTC_SUCCESS || trace_on(TRACE_NVRTC) ? read_log(nvrtc, program) : NULL;
    if (log && trace_on(TRACE_NVRTC))
        trace_write(TRACE_NVRTC, log, strlen(log));
    if (code != NVRTC_SUCCESS)
        return refused(nvrtc, code, arch, log, e);
    return take_code(nvrtc, program, ret, e);
}

enum err_code compile_text(const struct nvrtc *nvrtc, const char *arch, const char *source,
                           bool fast_math, struct compiled *ret, struct err *e)
{
    struct headers headers;
    TRY(headers_select(source, &headers, e));
    if (trace_on(TRACE_EMIT))
        trace_write(TRACE_EMIT, source, strlen(source));
    enum err_code code;
    nvrtcProgram program = NULL;
    nvrtcResult rc = nvrtc->nvrtcCreateProgram(&program, source, "kernel.cu", headers.n,
                                               headers.texts, headers.names);
    if (rc == NVRTC_SUCCESS) {
        code = compile_program(nvrtc, program, arch, fast_math, ret, e);
        nvrtc->nvrtcDestroyProgram(&program);
    } else {
        code = refused(nvrtc, rc, arch, NULL, e);
    }
    if (code && code != ERR_OUT_OF_MEMORY)
        trace_write(TRACE_NVRTC, source, strlen(source));
    headers_free(&headers);
    return code;
}
