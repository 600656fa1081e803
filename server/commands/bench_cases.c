/* The cases of `arrayd bench`, and the client that asks for them.
 *
 * Work is measured as it is best sent: several evaluations one after the other, whose end is waited
 * for once by fetching a number, with the time of such a fetch taken off; the least of some rounds,
 * as noise only adds. Results are compared at a few places with what is computed here, before
 * anything is timed. */
#include "server/commands/bench.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compute/base/clock.h"

#define ROUNDS     3
#define ROUND_MS   200
#define MOST_CALLS 200
#define LEAST_MS   1e-4 /* of a small case's work, the rest of its time being the fetch's */
#define PLACES     5
#define SMALL      1024
#define LATENCIES  1000
#define STEPS      100
#define SEVERAL    9 /* steps that are compared */

void bench_fail(struct bench *b, const char *what, const char *detail)
{
    if (!b->failed)
        fprintf(stderr, "arrayd bench: %s%s: %.600s\n", b->called, what, detail);
    b->failed = true;
}

/* --- the client --- */

/* The end of the reply's header, once the whole reply is there. */
static char *whole(struct bench *b, size_t n)
{
    b->reply[n] = '\0';
    char *end = strstr(b->reply, "\r\n\r\n"), *length = strcasestr(b->reply, "\r\ncontent-length:");
    size_t body = length && length < end ? (size_t)atol(length + 17) : 0;
    return end && n >= (size_t)(end + 4 - b->reply) + body ? end + 4 : NULL;
}

static const char *gone(struct bench *b)
{
    b->gone = !b->failed;
    bench_fail(b, "the daemon has gone", strerror(errno));
    return "";
}

const char *bench_ask(struct bench *b, const char *method, const char *path, const char *format,
                      ...)
{
    char body[2048], text[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(body, sizeof body, format, args);
    va_end(args);
    n = snprintf(text, sizeof text,
                 "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "%s%s%sContent-Length: %d\r\n\r\n%s",
                 method, path, *b->session ? "Arrayd-Session: " : "", b->session,
                 *b->session ? "\r\n" : "", n, body);
    if (b->failed)
        return "";
    if (send(b->fd, text, (size_t)n, MSG_NOSIGNAL) != n)
        return gone(b);
    char *end = NULL;
    for (size_t have = 0; !end;) {
        ssize_t k = recv(b->fd, b->reply + have, sizeof b->reply - 1 - have, 0);
        if (k <= 0)
            return gone(b);
        have += (size_t)k;
        end = whole(b, have);
    }
    if (b->reply[9] == '2')
        return end;
    bench_fail(b, body, end);
    return "";
}

static double number(struct bench *b, const char *expr)
{
    const char *value =
        strstr(bench_ask(b, "POST", "/v1/evaluate", "{\"expr\":\"%s\"}", expr), "\"value\":");
    return value ? atof(value + 8) : NAN;
}

static double at(struct bench *b, const char *name, const int64_t i[3])
{
    char expr[128];
    snprintf(expr, sizeof expr, "%s[%lld,%lld,%lld]", name, (long long)i[0], (long long)i[1],
             (long long)i[2]);
    return number(b, expr);
}

/* --- the cases --- */

/* What the result is at a place, from the operands' elements. */
typedef double wanted(struct bench *b, const int64_t i[3]);

#define WANT(name, value)                                                                          \
    static double want_##name(struct bench *b, const int64_t i[3])                                 \
    {                                                                                              \
        return value;                                                                              \
    }
WANT(copy, at(b, "a", i))
WANT(add, at(b, "a", i) + at(b, "b", i))
WANT(poly, at(b, "c", i) + 1 / at(b, "a", i) + 2 * at(b, "a", i) * at(b, "b", i))
WANT(relu, fmax(at(b, "a", i), 0))
WANT(power, pow(at(b, "b", i), 2.5))
WANT(transposed, at(b, "a", i) + at(b, "b", (const int64_t[]){i[2], i[1], i[0]}))

static double want_laplacian(struct bench *b, const int64_t i[3])
{
    double sum = -6 * at(b, "a", i);
    for (int d = 0; d < 3; d++)
        for (int by = -1; by <= 1; by += 2) {
            int64_t j[] = {i[0], i[1], i[2]};
            j[d] += by;
            j[d] = j[d] < 0 ? 0 : j[d] < b->n ? j[d] : b->n - 1;
            sum += at(b, "a", j);
        }
    return at(b, "a", i) + 0.1 * sum;
}

/* Of the row, or the whole array, that element i is in, as the daemon sees it by itself: f of the
 * elements, read in small pieces. */
static double over(struct bench *b, const char *format, const int64_t i[3])
{
    char expr[256];
    snprintf(expr, sizeof expr, format, (long long)i[0], (long long)i[1]);
    return number(b, expr);
}
static double want_softmax(struct bench *b, const int64_t i[3])
{
    return exp(at(b, "a", i)) / over(b, "sum(astype(exp(a[%lld,%lld]),float64))", i);
}
static double want_norm(struct bench *b, const int64_t i[3])
{
    double mean = over(b, "mean(astype(a[%lld,%lld],float64))", i);
    double var = over(b, "var(astype(a[%lld,%lld],float64))", i);
    return (at(b, "a", i) - mean) / sqrt(var + 1e-5);
}
static double want_normal(struct bench *b, const int64_t i[3])
{
    double mean = number(b, "mean(astype(a,float64))");
    return (at(b, "a", i) - mean) / number(b, "std(astype(a,float64))");
}
static double want_scan(struct bench *b, const int64_t i[3])
{
    double sum = 0;
    for (int64_t k = 0; k <= i[2] && !b->failed; k++)
        sum += at(b, "a", (const int64_t[]){i[0], i[1], k});
    return sum;
}
static double want_window(struct bench *b, const int64_t i[3])
{
    double sum = 0;
    for (int64_t w = 0; w < 125 && !b->failed; w++) {
        int64_t j[] = {i[0] + w / 25 - 2, i[1] + w / 5 % 5 - 2, i[2] + w % 5 - 2};
        bool inside = true;
        for (int d = 0; d < 3; d++)
            inside = inside && j[d] >= 0 && j[d] < b->n;
        sum += inside ? at(b, "a", j) * (double)(w % 7 + 1) : 0;
    }
    return sum;
}

/* `out`: what it is written to, an array of the operands' shape, of two axes, or a number. */
static const struct bench_case {
    const char *name, *expr, *out;
    double bytes; /* fewest, of an element */
    wanted *want;
} cases[] = {
    {"copy", "a", "o", 8, want_copy},
    {"a + b", "a+b", "o", 12, want_add},
    {"c + 1/a + 2ab", "c+1/a+2*a*b", "o", 16, want_poly},
    {"where(a > 0, a, 0)", "where(a>0,a,0)", "o", 8, want_relu},
    {"a step of heat", "a+0.1*laplacian(a,boundary=\\\"clamp\\\")", "o", 8, want_laplacian},
    {"sum", "sum(a)", NULL, 4, NULL},
    {"sum, last axis", "sum(a,axis=2)", "p", 4, NULL},
    {"mean, first axis", "mean(a,axis=0)", "p", 4, NULL},
    {"a + transpose(b)", "a+permute_dims(b,[2,1,0])", "o", 12, want_transposed},
    {"softmax of rows",
     "exp(a-max(a,2,keepdims=True))/sum(exp(a-max(a,2,keepdims=True)),2,keepdims=True)", "o", 8,
     want_softmax},
    {"layer norm", "(a-mean(a,2,keepdims=True))/sqrt(var(a,2,keepdims=True)+1e-5)", "o", 8,
     want_norm},
    {"(a - mean) / std", "(a-mean(a))/std(a)", "o", 12, want_normal},
    {"cumulative sum of rows", "cumulative_sum(a,2)", "o", 8, want_scan},
    {"correlate 5x5x5", NULL, "o", 8, want_window},
    {"b**2.5", "b**2.5", "o", 8, want_power},
};

/* Literal weights 1 to 7, over and over. */
static void window(char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "correlate(a,[");
    for (int w = 0; w < 125; w++)
        n += (size_t)snprintf(text + n, size - n, "%s%s%d%s",
                              w % 25 == 0 ? w ? ",[" : "["
                              : w         ? ","
                                          : "",
                              w % 5 == 0 ? "[" : "", w % 7 + 1,
                              w % 25 == 24 ? "]]"
                              : w % 5 == 4 ? "]"
                                           : "");
    snprintf(text + n, size - n, "],boundary=\\\"constant\\\")");
}

static void evaluate(struct bench *b, const struct bench_case *c)
{
    char text[1024];
    if (!c->expr)
        window(text, sizeof text);
    (void)bench_ask(b, "POST", "/v1/evaluate", "{\"expr\":\"%s\"%s%s%s}", c->expr ? c->expr : text,
                    c->out ? ",\"out\":\"" : "", c->out ? c->out : "", c->out ? "\"" : "");
}

static bool near(double got, double want, double scale)
{
    return fabs(got - want) <= 1e-4 * (fabs(want) + scale);
}

/* Reductions are compared with those of the result of another one. */
static void check(struct bench *b, const struct bench_case *c)
{
    double got = 0, want = 0;
    evaluate(b, c);
    for (int k = 0; c->want && k < PLACES && !b->failed; k++) {
        int64_t last = b->n - 1, i[] = {k * last / (PLACES - 1), (k * 7 + 3) % b->n, k * last / 4};
        got = at(b, "o", i);
        want = c->want(b, i);
        if (!near(got, want, 1))
            break;
    }
    if (!c->want) {
        double n = (double)b->n * (double)b->n * (double)b->n;
        got = c->out ? number(b, "sum(astype(p,float64))") : number(b, c->expr);
        want =
            number(b, "sum(astype(a,float64))") / (strncmp(c->expr, "mean", 4) ? 1 : (double)b->n);
        if (near(got, want, c->out ? sqrt(n) : n / 100))
            return;
    } else if (near(got, want, 1)) {
        return;
    }
    char text[100];
    snprintf(text, sizeof text, "%.9g is wrong, it should be %.9g", got, want);
    bench_fail(b, c->name, text);
}

/* --- time loops --- */

#define WRAPPED(x) "laplacian(" x ",boundary=\\\"wrap\\\")"
#define CLAMPED(x) "laplacian(" x ",boundary=\\\"clamp\\\")"

/* Bodies of programs, on o and q, of N^3 elements, or on g and h, of (16 N)^2. */
static const struct bench_loop {
    const char *name, *begin, *body, *sum;
    double bytes; /* fewest, of an element and a step */
} loops[] = {
    {"heat, 100 steps", "\"o = a\"", "\"o += 0.1*" CLAMPED("o") "\"", "sum(abs(o))", 8},
    {"wave, 100 steps", "\"o = a\",\"q = a\"",
     "\"n = 2*o - q + 0.1*" CLAMPED("o") "\",\"q = o\",\"o = n\"", "sum(abs(o))", 16},
    {"Gray-Scott (16 N)^2, 100 steps", "\"h = 0*h + 0.25*(sin(index(0)) > 0.5)\",\"g = 1 - 2*h\"",
     "\"r = g*h*h\",\"d = 0.16*" WRAPPED("g") " - r + 0.06*(1 - g)\",\"h += 0.08*" WRAPPED(
         "h") " + r - 0.122*h\",\"g += d\"",
     "sum(g)", 16},
};

/* Milliseconds. */
static double step(struct bench *b, const char *body, int steps)
{
    double begun = clock_ms();
    (void)bench_ask(b, "POST", "/v1/programs?wait=1", "{\"body\":[%s],\"steps\":%d}", body, steps);
    return clock_ms() - begun;
}

/* A program, of which a pass over memory makes several steps, beside one of each step. */
static void check_loop(struct bench *b, const struct bench_loop *l)
{
    double sums[2] = {0};
    for (int singly = 0; singly < 2; singly++) {
        (void)step(b, l->begin, 1);
        for (int i = 0; i < (singly ? SEVERAL : 1); i++)
            (void)step(b, l->body, singly ? 1 : SEVERAL);
        sums[singly] = number(b, l->sum);
    }
    if (!near(sums[0], sums[1], 0))
        bench_fail(b, l->name, "several steps at a time differ from single ones");
}

/* --- the first table --- */

static double wait_for_all(struct bench *b)
{
    double begun = clock_ms();
    (void)number(b, "o[0,0,0]");
    return clock_ms() - begun;
}

static double once(struct bench *b, const struct bench_case *c, int calls)
{
    double begun = clock_ms();
    for (int i = 0; i < calls && !b->failed; i++)
        evaluate(b, c);
    (void)wait_for_all(b);
    double ms = (clock_ms() - begun - b->fetch_ms) / calls;
    return fmax(ms, LEAST_MS);
}

static double best(struct bench *b, const struct bench_case *c)
{
    double ms = once(b, c, 1), least;
    least = ms = fmin(ms, once(b, c, 1));
    int calls = ms * MOST_CALLS > ROUND_MS ? (int)ceil(ROUND_MS / ms) : MOST_CALLS;
    for (int i = 0; i < ROUNDS; i++)
        least = fmin(least, once(b, c, calls));
    return least;
}

/* `bytes`: of an element of the N^3. */
static void say(struct bench *b, const char *name, double ms, double bytes)
{
    double elements = (double)b->n * (double)b->n * (double)b->n, rate = 8 * elements / b->copy_ms;
    double copies = ms / b->copy_ms, fraction = bytes * elements / ms / rate;
    if (b->failed)
        return;
    if (b->json)
        printf("{\"device\":%s,\"case\":\"%s\",\"ms\":%.6g,\"fewest_bytes\":%.0f,\"copies\":%.6g,"
               "\"fraction\":%.6g}\n",
               b->device, name, ms, bytes * elements, copies, fraction);
    else
        printf("| %-30s | %9.3f | %9.1f | %8.2f | %8.2f |\n", name, ms, 1e-6 * bytes * elements,
               copies, fraction);
    fflush(stdout);
}

static void say_us(const struct bench *b, const char *name, double us)
{
    if (b->failed)
        return;
    if (b->json)
        printf("{\"device\":%s,\"case\":\"%s\",\"us\":%.1f}\n", b->device, name, us);
    else
        printf("| %-48s | %8.1f |\n", name, us);
}

void bench_large(struct bench *b)
{
    const size_t n_cases = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < n_cases && !b->failed; i++)
        check(b, &cases[i]);
    const size_t n_loops = sizeof loops / sizeof *loops;
    for (size_t i = 0; i < n_loops && !b->failed; i++)
        check_loop(b, &loops[i]);
    b->fetch_ms = wait_for_all(b);
    for (int i = 0; i < 20; i++)
        b->fetch_ms = fmin(b->fetch_ms, wait_for_all(b));
    b->copy_ms = best(b, &cases[0]);
    double elements = (double)b->n * (double)b->n * (double)b->n;
    if (!b->json && !b->failed)
        printf("float32, %lld^3 elements; a copy: %.3f ms, %.1f GB/s\n\n"
               "| %-30s | %9s | %9s | %8s | %8s |\n| --- | --- | --- | --- | --- |\n",
               (long long)b->n, b->copy_ms, 8e-6 * elements / b->copy_ms, "case", "ms", "fewest MB",
               "copies", "fraction");
    for (size_t i = 0; i < n_cases && !b->failed; i++)
        say(b, cases[i].name, i ? best(b, &cases[i]) : b->copy_ms, cases[i].bytes);
    for (size_t i = 0; i < n_loops && !b->failed; i++) {
        double part = loops[i].begin[1] == 'o' ? 1 : 256 / (double)b->n, least = INFINITY;
        (void)step(b, loops[i].body, STEPS); /* compiles */
        for (int k = 0; k < ROUNDS; k++)
            least = fmin(least, step(b, loops[i].body, STEPS));
        say(b, loops[i].name, least, loops[i].bytes * STEPS * part);
    }
}

/* --- small requests --- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_us(struct bench *b, const char *method, const char *path, const char *body)
{
    static double us[LATENCIES];
    for (int i = -LATENCIES / 10; i < LATENCIES && !b->failed; i++) {
        uint64_t begun = clock_ns();
        (void)bench_ask(b, method, path, "%s", body);
        us[i < 0 ? 0 : i] = (double)(clock_ns() - begun) * 1e-3;
    }
    qsort(us, LATENCIES, sizeof *us, ascending);
    return us[LATENCIES / 2];
}

/* An expression that this machine has not seen before. */
static void novel(char *text, size_t size)
{
    static const char *const functions[] = {"sin", "cos", "tanh", "exp", "sqrt(abs", "atan"};
    uint64_t r = clock_ns() / 1000 ^ (uint64_t)getpid() << 20;
    size_t n = (size_t)snprintf(text, size, "sum(s");
    for (int i = 0; i < 12; i++, r /= 6)
        n += (size_t)snprintf(text + n, size - n, "%s%s(s)%s", i % 2 ? "*" : "+", functions[r % 6],
                              r % 6 == 4 ? ")" : "");
    snprintf(text + n, size - n, ")");
}

void bench_small(struct bench *b)
{
    char expr[512], body[600];
    (void)bench_ask(b, "PUT", "/v1/arrays/s", "{\"shape\":[%d],\"dtype\":\"float32\",\"fill\":0.5}",
                    SMALL);
    if (!near(number(b, "sum(s)"), SMALL / 2, 1))
        bench_fail(b, "sum of 1,024 elements", b->reply);
    if (!b->json && !b->failed)
        printf("\n| %-48s | %8s |\n| --- | --- |\n", "1,024 float32 over the Unix socket, median",
               "us");
    say_us(b, "an answer without work (/healthz)", median_us(b, "GET", "/healthz", ""));
    say_us(b, "a number: sum(s)", median_us(b, "POST", "/v1/evaluate", "{\"expr\":\"sum(s)\"}"));
    say_us(b, "the numbers: s*2+1, as JSON",
           median_us(b, "POST", "/v1/evaluate", "{\"expr\":\"s*2+1\",\"inline\":true}"));
    novel(expr, sizeof expr);
    uint64_t begun = clock_ns();
    (void)number(b, expr);
    say_us(b, "a number of a new expression, the first time", (double)(clock_ns() - begun) * 1e-3);
    snprintf(body, sizeof body, "{\"expr\":\"%s\"}", expr);
    say_us(b, "and repeated", median_us(b, "POST", "/v1/evaluate", body));
}
