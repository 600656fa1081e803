/* Runs the host compiler in a directory of its own and brings back the shared object.
 *
 * One process a compilation and no header but the prelude, which is compiled once (below): some
 * 30 ms.
 * -O1 because it takes no longer than -O0 and the result runs several times faster; the C library
 * is not linked (the program that loads the module has it), only its mathematics, so that symbol
 * versions are the present ones. Alignment and array bounds are checked, and every access to memory
 * is told to the driver (device_access.h): the GPU traps a misaligned vector access and one outside
 * of an allocation, which the host's CPU would let through.
 *
 * With ARRAYD_FAKE_CACHE a module is kept under a hash of all that goes into it, and the prelude
 * as a precompiled header, which takes a fifth off each compilation. */
#include "tests/fake/nvrtc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fake/fake_cuda.h"

#define ROOT FAKE_SOURCE_ROOT "/"

static const char *const flags[] = {"-x",
                                    "c++",
                                    "-O1",
                                    "-std=c++17",
                                    "-shared",
                                    "-fPIC",
                                    "-w",
                                    "-nostdlib",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fno-strict-aliasing",
                                    "-fno-exceptions",
                                    "-fno-rtti",
                                    "-fno-asynchronous-unwind-tables",
                                    "-fno-stack-protector",
                                    "-fno-threadsafe-statics",
                                    "-fvisibility=hidden",
                                    "-fsanitize=alignment,bounds,thread",
                                    "-fno-sanitize-recover=all",
                                    "--param",
                                    "tsan-instrument-func-entry-exit=0",
                                    "-g1",
                                    "-fdiagnostics-color=never",
                                    "-fmax-errors=20",
                                    NULL};

static atomic_long compiled;

EXPORT long fake_nvrtc_compiled(void)
{
    return atomic_load(&compiled);
}

bool text_read(struct text *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    char buffer[16384];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;)
        text_add(t, buffer, n);
    bool fine = !ferror(f);
    fclose(f);
    return fine;
}

bool text_write(const struct text *t, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return false;
    bool fine = fwrite(t->s, 1, t->n, f) == t->n;
    return (fclose(f) == 0) & fine;
}

/* The prelude */

static struct text prelude;

static void include(const char *path)
{
    struct text t = {0};
    if (!text_read(&t, path)) {
        fprintf(stderr, "fake nvrtc: %s is missing\n", path);
        abort();
    }
    static const char start[] = "#include \"";
    for (char *p = t.s; *p;) {
        size_t n = strcspn(p, "\n");
        if (!strncmp(p, start, sizeof start - 1)) {
            char *name = p + sizeof start - 1, whole[512];
            snprintf(whole, sizeof whole, ROOT "%.*s", (int)strcspn(name, "\""), name);
            include(whole);
        } else {
            text_add(&prelude, p, n);
            text_add(&prelude, "\n", 1);
        }
        p += n + (p[n] == '\n');
    }
    text_free(&t);
}

static void make_prelude(void)
{
    text_addf(&prelude, "#line 1 \"tests/fake/device.h\"\n");
    include(ROOT "tests/fake/device.h");
}

/* device.h with what it includes. */
static const struct text *the_prelude(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_prelude);
    return &prelude;
}

/* The cache */

static unsigned __int128 hash_more(unsigned __int128 h, const char *s, size_t n)
{
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * prime;
    return (h ^ 0xff) * prime;
}

/* What is linked into each module. */
static struct text calls;

static void read_calls(void)
{
    if (!text_read(&calls, FAKE_DEVICE_CALLS)) {
        fputs("fake nvrtc: " FAKE_DEVICE_CALLS " is missing\n", stderr);
        abort();
    }
}

static const struct text *device_calls(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_calls);
    return &calls;
}

static const char *compiler(void)
{
    const char *name = getenv("ARRAYD_FAKE_CXX");
    return name && *name ? name : "g++";
}

/* Of what every compilation has. */
static unsigned __int128 hash_begin(void)
{
    unsigned __int128 h = ((unsigned __int128)0x6c62272e07bb0142 << 64) + 0x62b821756295c58d;
    h = hash_more(h, compiler(), strlen(compiler()));
    for (int i = 0; flags[i]; i++)
        h = hash_more(h, flags[i], strlen(flags[i]));
    return hash_more(h, the_prelude()->s, the_prelude()->n);
}

static char *cached(const char *dir, unsigned __int128 h, const char *ending)
{
    mkdir(dir, 0777);
    struct text path = {0};
    text_addf(&path, "%s/%016llx%016llx%s", dir, (unsigned long long)(h >> 64),
              (unsigned long long)h, ending);
    return path.s;
}

static const char *cache(void)
{
    const char *dir = getenv("ARRAYD_FAKE_CACHE");
    return dir && *dir ? dir : NULL;
}

/* The file a unit is kept in, or NULL. */
static char *cached_path(const struct unit *u)
{
    if (!cache())
        return NULL;
    unsigned __int128 h = hash_more(hash_begin(), device_calls()->s, device_calls()->n);
    for (int i = 0; u->options[i]; i++)
        h = hash_more(h, u->options[i], strlen(u->options[i]));
    h = hash_more(h, u->main.s, u->main.n);
    for (int i = 0; i < u->n_headers; i++) {
        h = hash_more(h, u->names[i], strlen(u->names[i]));
        h = hash_more(h, u->headers[i].s, u->headers[i].n);
    }
    return cached(cache(), h, ".so");
}

static void keep(const struct text *binary, const char *path)
{
    struct text temporary = {0};
    static atomic_int count;
    text_addf(&temporary, "%s.%d.%d", path, (int)getpid(), atomic_fetch_add(&count, 1));
    if (!text_write(binary, temporary.s) || rename(temporary.s, path))
        unlink(temporary.s);
    text_free(&temporary);
}

/* The compiler */

static bool write_below(const char *dir, const char *name, const struct text *content)
{
    struct text path = {0};
    text_addf(&path, "%s/%s", dir, name);
    for (char *p = path.s + strlen(dir) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = 0;
        mkdir(path.s, 0777);
    }
    bool fine = text_write(content, path.s);
    text_free(&path);
    return fine;
}

static void remove_below(const char *dir, const char *name)
{
    struct text path = {0};
    text_addf(&path, "%s/%s", dir, name);
    unlink(path.s);
    for (char *p; (p = strrchr(path.s, '/')) != NULL && (size_t)(p - path.s) > strlen(dir);) {
        *p = 0;
        rmdir(path.s); /* goes when it is empty */
    }
    text_free(&path);
}

/* Without what a test's surroundings use to find mistakes of the program under test. */
static char **environment_of_compiler(void)
{
    static const char *const out[] = {"LD_PRELOAD=", "MALLOC_PERTURB_=", "ASAN_OPTIONS=", NULL};
    extern char **environ;
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **e = calloc(n + 1, sizeof *e);
    if (!e)
        abort();
    for (size_t i = 0; i < n; i++) {
        bool drop = false;
        for (int k = 0; out[k]; k++)
            drop |= !strncmp(environ[i], out[k], strlen(out[k]));
        if (!drop)
            e[kept++] = environ[i];
    }
    return e;
}

static int spawn(char **argv, const char *log)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    char **environment = environment_of_compiler();
    pid_t pid = 0;
    int failed = posix_spawnp(&pid, argv[0], &actions, &attr, argv, environment), status = 0;
    free(environment);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 0; /* the program ignores SIGCHLD: the file tells */
    return status;
}

/* `path`.gch, beside the prelude's text, which a compiler takes where it cannot use that. */
static bool precompile(const char *path, const char *ready)
{
    char *argv[64];
    size_t n = 0;
    struct text made = {0};
    text_addf(&made, "%s.%d", ready, (int)getpid());
    keep(the_prelude(), path);
    argv[n++] = (char *)compiler();
    for (int i = 0; flags[i]; i++)
        argv[n++] = (char *)flags[i];
    argv[n++] = "-xc++-header";
    argv[n++] = (char *)path;
    argv[n++] = "-o";
    argv[n++] = made.s;
    argv[n] = NULL;
    bool fine = spawn(argv, "/dev/null") == 0 && rename(made.s, ready) == 0;
    text_free(&made);
    return fine;
}

/* The precompiled prelude's file without `.gch`, or NULL. */
static char *prelude_path(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!cache())
        return NULL;
    char *path = cached(cache(), hash_begin(), ".h");
    struct text ready = {0};
    text_addf(&ready, "%s.gch", path);
    pthread_mutex_lock(&lock);
    if (access(ready.s, R_OK) != 0 && !precompile(path, ready.s)) {
        free(path);
        path = NULL;
    }
    pthread_mutex_unlock(&lock);
    text_free(&ready);
    return path;
}

static void add_prelude(struct text *program)
{
    char *path = prelude_path();
    if (path)
        text_addf(program, "#include \"%s\"\n", path);
    else
        text_add(program, the_prelude()->s, the_prelude()->n);
    free(path);
}

static int run_compiler(const struct unit *u, const char *dir, struct text *ret_binary,
                        struct text *log)
{
    char *argv[128], source[300], object[300], messages[300], where[300];
    size_t n = 0;
    snprintf(source, sizeof source, "%s/program.cu", dir);
    snprintf(object, sizeof object, "%s/program.so", dir);
    snprintf(messages, sizeof messages, "%s/log", dir);
    snprintf(where, sizeof where, "-I%s", dir);
    argv[n++] = (char *)compiler();
    for (int i = 0; flags[i]; i++)
        argv[n++] = (char *)flags[i];
    argv[n++] = where;
    for (int i = 0; u->options[i] && n < 120; i++)
        argv[n++] = u->options[i];
    argv[n++] = source;
    argv[n++] = "-xnone";
    argv[n++] = FAKE_DEVICE_CALLS;
    argv[n++] = "-o";
    argv[n++] = object;
    argv[n++] = "-lm";
    argv[n] = NULL;
    struct text program = {0};
    add_prelude(&program);
    text_add(&program, u->main.s, u->main.n);
    int result = write_below(dir, "program.cu", &program) ? 0 : 11;
    text_free(&program);
    for (int i = 0; i < u->n_headers; i++)
        if (u->names[i][0] == '/' || strstr(u->names[i], "..") ||
            !write_below(dir, u->names[i], &u->headers[i]))
            result = 11;
    int status = result ? 0 : spawn(argv, messages);
    atomic_fetch_add(&compiled, 1);
    if (status < 0) {
        text_addf(log, "fake nvrtc: %s cannot be run\n", argv[0]);
        result = 11;
    }
    text_read(log, messages);
    if (!result && (status || !text_read(ret_binary, object)))
        result = 6;
    for (int i = 0; i < u->n_headers; i++)
        remove_below(dir, u->names[i]);
    unlink(source);
    unlink(object);
    unlink(messages);
    return result;
}

static int compile_once(const struct unit *u, struct text *ret_binary, struct text *log)
{
    const char *base = getenv("TMPDIR");
    char dir[256];
    snprintf(dir, sizeof dir, "%s/arrayd-fake-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(dir)) {
        text_addf(log, "fake nvrtc: no temporary directory %s\n", dir);
        return 11;
    }
    int result = run_compiler(u, dir, ret_binary, log);
    rmdir(dir);
    return result;
}

int compile_unit(const struct unit *u, struct text *ret_binary, struct text *log)
{
    char *path = cached_path(u);
    int result = 0;
    if (!path || !text_read(ret_binary, path)) {
        result = compile_once(u, ret_binary, log);
        if (result == 6 && strstr(log->s ? log->s : "", "section type conflict")) {
            /* shared memory in a template: has to do without its section */
            struct unit plain = *u;
            char *options[128] = {"-DFAKE_PLAIN_SHARED"};
            for (int i = 0; u->options[i] && i < 126; i++)
                options[i + 1] = u->options[i];
            plain.options = options;
            text_free(log);
            result = compile_once(&plain, ret_binary, log);
        }
        if (!result && path)
            keep(ret_binary, path);
    }
    free(path);
    return result;
}
