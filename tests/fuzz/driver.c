/* Runs a fuzz target where libFuzzer is not available: every file of the corpora given, then random
 * mutations of them for a bounded number of runs or seconds, from a seed so that a failure comes
 * again: that of the command, or ARRAYD_SLICE. The input of a crash is written to
 * crash-<target>.bin. --long is how many seconds instead if ARRAYD_LONG is set.
 *
 *   fuzz_infix [--runs N] [--seconds S] [--long S] [--seed N] FILE|FOLDER… */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define LARGEST   16384
#define MAX_FILES 4096

struct input {
    uint8_t *data;
    size_t size;
};

static struct input inputs[MAX_FILES];
static size_t n_inputs;
static const uint8_t *current;
static size_t current_size;
static char crash_name[256];
static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t n)
{
    return n ? (size_t)(next_random() % n) : 0;
}

/* Also what the sanitizers call before they end the process. */
static void save_current(void)
{
    int fd = open(crash_name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return;
    ssize_t n = write(fd, current, current_size);
    close(fd);
    static const char note[] = "the input is in ";
    n = write(2, note, sizeof note - 1);
    n = write(2, crash_name, strlen(crash_name));
    n = write(2, "\n", 1);
    (void)n;
}

static void on_signal(int number)
{
    save_current();
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void run(const uint8_t *data, size_t size)
{
    /* a copy of its exact size, so that reading past the end is seen */
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    current = copy;
    current_size = size;
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void load_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || n_inputs == MAX_FILES) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    uint8_t *data = malloc(LARGEST);
    if (!data)
        exit(2);
    inputs[n_inputs++] = (struct input){data, fread(data, 1, LARGEST, f)};
    fclose(f);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* the same order everywhere */
}

static void load(const char *path)
{
    struct stat st;
    struct dirent **names;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        load_file(path);
        return;
    }
    int n = scandir(path, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char full[4096];
        snprintf(full, sizeof full, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            load_file(full);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

/* One small change: a byte, a bit, a piece cut, doubled, moved, or taken from another input. */
static size_t mutate(uint8_t *b, size_t n)
{
    static const char interesting[] = "\"\\{}[](),:.-+*/<>=&|~^%_eE0129 \n\0\x80\xff\xc3'xjaNn;q";
    size_t at = below(n + 1), len = below(n - at < 32 ? n - at + 1 : 32);
    switch (below(9)) {
    case 0:
        if (n > 0)
            b[at % n] = (uint8_t)next_random();
        return n;
    case 1:
        if (n > 0)
            b[at % n] ^= (uint8_t)(1u << below(8));
        return n;
    case 2:
        memmove(b + at, b + at + len, n - at - len);
        return n - len;
    case 3: /* double a piece, several times at most */
        for (size_t times = below(20) + 1; times-- > 0 && n + len <= LARGEST;) {
            memmove(b + at + len, b + at, n - at);
            n += len;
        }
        return n;
    case 4:
    case 5:
    case 6:
        if (n < LARGEST) {
            memmove(b + at + 1, b + at, n - at);
            b[at] = (uint8_t)interesting[below(sizeof interesting - 1)];
            n++;
        }
        return n;
    case 7:
        if (n > 0)
            b[at % n] = (uint8_t)interesting[below(sizeof interesting - 1)];
        return n;
    default: {
        const struct input *other = &inputs[below(n_inputs)];
        size_t from = below(other->size + 1), take = below(other->size - from + 1);
        if (take > 64)
            take = 64;
        if (n + take > LARGEST)
            return n;
        memmove(b + at + take, b + at, n - at);
        memcpy(b + at, other->data + from, take);
        return n + take;
    }
    }
}

/* A target that knows its format better has a mutator of its own, as for libFuzzer. */
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                                                     unsigned seed);

static size_t change(uint8_t *b, size_t n)
{
    if (LLVMFuzzerCustomMutator && below(10) > 0)
        return LLVMFuzzerCustomMutator(b, n, LARGEST, (unsigned)next_random());
    return mutate(b, n);
}

static void set_seed(const char *text)
{
    state ^= strtoull(text, NULL, 10) * 0x9E3779B97F4A7C15u;
}

int main(int argc, char **argv)
{
    static uint8_t b[LARGEST];
    const char *seed = getenv("ARRAYD_SLICE");
    long runs = 200000;
    double seconds = 5;
    struct timespec start, now;
    const char *name = strrchr(argv[0], '/');
    snprintf(crash_name, sizeof crash_name, "crash-%.200s.bin", name ? name + 1 : argv[0]);
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--runs") == 0)
            runs = atol(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            seed = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--long") == 0)
            seconds = getenv("ARRAYD_LONG") ? atof(argv[++i]) : (++i, seconds);
        else
            load(argv[i]);
    }
    if (seed)
        set_seed(seed);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(save_current);
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!__sanitizer_set_death_callback || signals[i] == SIGABRT)
            signal(signals[i], on_signal);
    for (size_t i = 0; i < n_inputs; i++)
        run(inputs[i].data, inputs[i].size);
    run(b, 0);
    clock_gettime(CLOCK_MONOTONIC, &start);
    long done = 0;
    for (; done < runs; done++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9 >
            seconds)
            break;
        size_t n = 0;
        if (n_inputs > 0) {
            const struct input *in = &inputs[below(n_inputs)];
            n = in->size;
            memcpy(b, in->data, n);
        }
        for (size_t k = LLVMFuzzerCustomMutator && below(2) ? 1 : below(8) + 1; k-- > 0;)
            n = change(b, n);
        run(b, n);
    }
    printf("%zu files, %ld random inputs, seed %s\n", n_inputs, done, seed ? seed : "0");
    for (size_t i = 0; i < n_inputs; i++)
        free(inputs[i].data);
    return n_inputs > 0 ? 0 : 2;
}
