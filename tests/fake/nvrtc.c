/* NVRTC's functions over the host compiler: programs, options, logs.
 *
 * Options are those of NVRTC that arrayd or its tests may pass; an unknown one is refused as NVRTC
 * refuses it, so that a misspelt option is not found out on a GPU. A cubin is made for a real
 * architecture (sm_90) only; without one there is none, as with NVRTC. */
#include "tests/fake/nvrtc.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gpu/api/cuda_api.h"
#include "tests/fake/fake_cuda.h"
#include "tests/fake/module.h"

#define NVRTC(name, args) nvrtcResult name args;
#include "compute/gpu/api/nvrtc.def"
#undef NVRTC
const char *nvrtcGetErrorString(nvrtcResult code);

enum {
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_INTERNAL_ERROR = 11
};
enum { MAX_OPTIONS = 60 };

struct _nvrtcProgram {
    char *source, *name;
    int n_headers;
    char **headers, **names;
    struct text log, cubin;
};

static atomic_long calls;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER;
static int may_pass = -1; /* all */
static atomic_int fail_at, fail_code;

EXPORT void fake_nvrtc_fail(int nth, int code)
{
    atomic_store(&fail_code, code ? code : NVRTC_ERROR_COMPILATION);
    atomic_store(&fail_at, nth);
}

static void open_gate(int n)
{
    pthread_mutex_lock(&gate_lock);
    may_pass = n;
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&gate_lock);
}

EXPORT void fake_nvrtc_hold(void)
{
    open_gate(0);
}

EXPORT void fake_nvrtc_pass(int n)
{
    open_gate(n);
}

static void pass_gate(void)
{
    pthread_mutex_lock(&gate_lock);
    while (may_pass == 0)
        pthread_cond_wait(&gate, &gate_lock);
    may_pass -= may_pass > 0;
    pthread_mutex_unlock(&gate_lock);
}

EXPORT long fake_nvrtc_calls(void)
{
    return atomic_load(&calls);
}

static char *copy_of(const char *s)
{
    char *copy = strdup(s);
    if (!copy)
        abort();
    return copy;
}

EXPORT nvrtcResult nvrtcVersion(int *major, int *minor)
{
    if (!major || !minor)
        return NVRTC_ERROR_INVALID_INPUT;
    const char *given = getenv("ARRAYD_FAKE_NVRTC");
    if (!given || sscanf(given, "%d.%d", major, minor) != 2) {
        *major = 13;
        *minor = 0;
    }
    return NVRTC_SUCCESS;
}

EXPORT const char *nvrtcGetErrorString(nvrtcResult code)
{
    static const char *const names[] = {
        "NVRTC_SUCCESS",
        "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM",
        "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "NVRTC_ERROR_INTERNAL_ERROR",
    };
    return code >= 0 && code < (int)(sizeof names / sizeof *names) ? names[code]
                                                                   : "NVRTC_ERROR unknown";
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name,
                                      int n_headers, const char *const *headers,
                                      const char *const *names)
{
    if (!program || !source || n_headers < 0 || (n_headers && (!headers || !names)))
        return NVRTC_ERROR_INVALID_INPUT;
    struct _nvrtcProgram *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    p->source = copy_of(source);
    p->name = copy_of(name ? name : "default_program");
    p->n_headers = n_headers;
    p->headers = calloc((size_t)n_headers + 1, sizeof *p->headers);
    p->names = calloc((size_t)n_headers + 1, sizeof *p->names);
    if (!p->headers || !p->names)
        abort();
    for (int i = 0; i < n_headers; i++) {
        p->headers[i] = copy_of(headers[i]);
        p->names[i] = copy_of(names[i]);
    }
    *program = p;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    if (!program || !*program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    struct _nvrtcProgram *p = *program;
    for (int i = 0; i < p->n_headers; i++) {
        free(p->headers[i]);
        free(p->names[i]);
    }
    free(p->headers);
    free(p->names);
    free(p->source);
    free(p->name);
    text_free(&p->log);
    text_free(&p->cubin);
    free(p);
    *program = NULL;
    return NVRTC_SUCCESS;
}

/* Options */

struct options {
    char *list[MAX_OPTIONS * 2 + 2]; /* for the host compiler, each malloc'ed */
    int n;
    int arch;  /* 90; 0 without */
    bool real; /* sm_, not compute_ */
};

static void pass(struct options *o, const char *flag, const char *value)
{
    struct text t = {0};
    text_addf(&t, "%s%s", flag, value);
    o->list[o->n++] = t.s;
}

/* The value of option `name`, in the same word or the next; NULL when it is another option. */
static const char *value_of(const char *const *options, int n, int *i, const char *name,
                            char separator)
{
    size_t length = strlen(name);
    if (strncmp(options[*i], name, length))
        return NULL;
    const char *rest = options[*i] + length;
    if (!*rest)
        return *i + 1 < n ? options[++*i] : NULL;
    if (separator)
        return *rest == separator ? rest + 1 : NULL;
    return rest;
}

static bool take_arch(struct options *o, const char *value)
{
    static const int known[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
    char *end = NULL;
    o->real = !strncmp(value, "sm_", 3);
    if (!o->real && strncmp(value, "compute_", 8))
        return false;
    o->arch = (int)strtol(strchr(value, '_') + 1, &end, 10);
    if (*end == 'a' || *end == 'f')
        end++;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == o->arch)
            return !*end;
    return false;
}

/* Those that change nothing here; a name that ends in '=' takes any value. */
static bool ignored(const char *option)
{
    static const char *const names[] = {"-default-device",
                                        "--device-as-default-execution-space",
                                        "--fmad=",
                                        "-fmad=",
                                        "--ftz=",
                                        "-ftz=",
                                        "--prec-div=",
                                        "-prec-div=",
                                        "--prec-sqrt=",
                                        "-prec-sqrt=",
                                        "--use_fast_math",
                                        "-use_fast_math",
                                        "--extra-device-vectorization",
                                        "-extra-device-vectorization",
                                        "--generate-line-info",
                                        "-lineinfo",
                                        "--device-debug",
                                        "-G",
                                        "--maxrregcount=",
                                        "-maxrregcount=",
                                        "--disable-warnings",
                                        "-w",
                                        "--restrict",
                                        "-restrict",
                                        "--dopt=",
                                        "-dopt=",
                                        "--ptxas-options=",
                                        "-Xptxas=",
                                        "--minimal",
                                        "-minimal",
                                        "--no-source-include",
                                        "-no-source-include",
                                        "--device-int128",
                                        "-device-int128",
                                        "--split-compile=",
                                        "-split-compile=",
                                        "--no-cache",
                                        "-no-cache",
                                        "--relocatable-device-code=",
                                        "-rdc=",
                                        "--diag-suppress=",
                                        "-diag-suppress=",
                                        NULL};
    for (int i = 0; names[i]; i++) {
        size_t n = strlen(names[i]);
        if (names[i][n - 1] == '=' ? !strncmp(option, names[i], n) && option[n]
                                   : !strcmp(option, names[i]))
            return true;
    }
    return false;
}

static bool take_option(struct options *o, const char *const *options, int n, int *i)
{
    const char *value = NULL;
    if ((value = value_of(options, n, i, "--gpu-architecture", '=')) ||
        (value = value_of(options, n, i, "-arch", '=')))
        return take_arch(o, value);
    if ((value = value_of(options, n, i, "--std", '=')) ||
        (value = value_of(options, n, i, "-std", '='))) {
        static const char *const known = " c++11 c++14 c++17 c++20 ";
        const char *at = strstr(known, value);
        return at && at[-1] == ' ' && at[strlen(value)] == ' '; /* all get the prelude's c++17 */
    }
    if ((value = value_of(options, n, i, "--define-macro", '=')) ||
        (value = value_of(options, n, i, "-D", 0)))
        return pass(o, "-D", value), true;
    if ((value = value_of(options, n, i, "--undefine-macro", '=')) ||
        (value = value_of(options, n, i, "-U", 0)))
        return pass(o, "-U", value), true;
    if ((value = value_of(options, n, i, "--include-path", '=')) ||
        (value = value_of(options, n, i, "-I", 0)))
        return pass(o, "-I", value), true;
    if (!strcmp(options[*i], "-Xptxas") && *i + 1 < n)
        return ++*i, true;
    return ignored(options[*i]);
}

/* Bytes of the section that shared memory is compiled into, for all kernels together: a device
 * counts them one by one, but arrayd's have it in one only. */
static size_t shared_size(const struct text *binary)
{
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    memcpy(&head, binary->s, sizeof head);
    const char *table = binary->s + head.e_shoff;
    memcpy(&names, table + head.e_shstrndx * sizeof names, sizeof names);
    for (int i = 0; i < head.e_shnum; i++) {
        memcpy(&section, table + (size_t)i * sizeof section, sizeof section);
        if (!strcmp(binary->s + names.sh_offset + section.sh_name, "fake_shared"))
            return section.sh_size;
    }
    return 0;
}

/* The fake driver hears of what will not be written, if there is one in the process. */
static void excuse(void)
{
    const char *path = getenv("ARRAYD_LIBCUDA");
    void *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL, *address;
    void (*say)(void);
    if (!driver)
        return;
    if ((address = dlsym(driver, "fake_cuda_excuse"))) {
        memcpy(&say, &address, sizeof say);
        say();
    }
    dlclose(driver);
}

static int compile(struct _nvrtcProgram *p, const struct options *o)
{
    struct translation t = {0};
    struct unit u = {.names = (const char *const *)p->names, .n_headers = p->n_headers};
    u.options = (char **)o->list;
    u.headers = calloc((size_t)p->n_headers + 1, sizeof *u.headers);
    if (!u.headers)
        abort();
    text_addf(&u.main, "#line 1 \"%s\"\n", p->name);
    for (int i = 0; i < p->n_headers; i++) {
        text_add(&u.headers[i], "", 0);
        translate(&t, p->headers[i], p->names[i], &u.headers[i]);
    }
    translate(&t, p->source, p->name, &u.main);
    translate_end(&t, &u.main);
    struct text binary = {0};
    int result = compile_unit(&u, &binary, &p->log);
    size_t shared = result ? 0 : shared_size(&binary);
    if (shared > FAKE_SHARED) {
        text_addf(
            &p->log,
            "ptxas error   : Entry function uses too much shared data (0x%zx bytes, 0x%x max)\n",
            shared, FAKE_SHARED);
        result = NVRTC_ERROR_COMPILATION;
    }
    text_free(&p->cubin);
    if (!result && o->real) {
        struct fake_cubin head = {.size = binary.n};
        memcpy(head.magic, FAKE_CUBIN, sizeof head.magic);
        text_add(&p->cubin, (const char *)&head, sizeof head);
        text_add(&p->cubin, binary.s, binary.n);
    }
    text_free(&binary);
    text_free(&u.main);
    for (int i = 0; i < p->n_headers; i++)
        text_free(&u.headers[i]);
    free(u.headers);
    translation_free(&t);
    return result;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n_options, const char *const *options)
{
    if (!p)
        return NVRTC_ERROR_INVALID_PROGRAM;
    if (n_options < 0 || n_options > MAX_OPTIONS || (n_options && !options))
        return NVRTC_ERROR_INVALID_INPUT;
    text_free(&p->log);
    atomic_fetch_add(&calls, 1);
    pass_gate();
    if (atomic_load(&fail_at) > 0 && atomic_fetch_sub(&fail_at, 1) == 1) {
        text_addf(&p->log, "%s(1): error: failed on demand\n", p->name);
        excuse();
        return atomic_load(&fail_code);
    }
    struct options o = {0};
    int result = NVRTC_SUCCESS;
    for (int i = 0; i < n_options && !result; i++)
        if (!take_option(&o, options, n_options, &i)) {
            int at = i < n_options ? i : n_options - 1;
            text_addf(&p->log, "nvrtc: error: unrecognized option %s found\n", options[at]);
            result = NVRTC_ERROR_INVALID_OPTION;
        }
    if (!result) {
        char arch[16];
        snprintf(arch, sizeof arch, "%d0", o.arch ? o.arch : 75);
        pass(&o, "-D__CUDA_ARCH__=", arch);
        pass(&o, "-DAR_PLAIN=", "1");
        result = compile(p, &o);
    }
    if (result)
        excuse();
    for (int i = 0; i < o.n; i++)
        free(o.list[i]);
    return result;
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n)
{
    if (!p || !n)
        return p ? NVRTC_ERROR_INVALID_INPUT : NVRTC_ERROR_INVALID_PROGRAM;
    *n = p->log.n + 1;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
    if (!p || !log)
        return p ? NVRTC_ERROR_INVALID_INPUT : NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(log, p->log.n ? p->log.s : "", p->log.n + 1);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *n)
{
    if (!p || !n)
        return p ? NVRTC_ERROR_INVALID_INPUT : NVRTC_ERROR_INVALID_PROGRAM;
    *n = p->cubin.n;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *cubin)
{
    if (!p || !cubin)
        return p ? NVRTC_ERROR_INVALID_INPUT : NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(cubin, p->cubin.n ? p->cubin.s : "", p->cubin.n);
    return NVRTC_SUCCESS;
}
