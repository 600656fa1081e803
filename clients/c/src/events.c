/*
 * Streams of Server-Sent Events, which are read line by line as they come.
 *
 * An event's data are one line of JSON. Its tree is read by the function of its stream, which calls
 * the caller's with what it holds. Where that is wrong, or is the daemon's reason to tell no more,
 * the error is set at once, and the exchange is given up.
 */
#include <stdlib.h>
#include <string.h>

#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/jobs.h"
#include "clients/c/src/json.h"
#include "clients/c/src/looks.h"
#include "clients/c/src/members.h"

struct listener {
    struct arrayd_watch *watch;
    struct text line; /* whose end is to come */
    struct text data; /* of the event */
    char name[16];
    char id[sizeof(((struct arrayd_watch *)0)->last)];
    bool over;   /* nothing more is wanted */
    bool failed; /* err says why */
    struct arrayd_error *err;

    /* Of the stream: tells the event to the caller. False where it is not what it should be. */
    bool (*read)(struct listener *l, const struct cJSON *tree);
    union {
        bool (*change)(void *user, const struct arrayd_array *array);
        bool (*frame)(void *user, const struct arrayd_frame *frame);
        bool (*news)(void *user, const struct arrayd_news *news);
    } take;
    void *user;
};

/* The last event: an end, or a problem, that of the next request. */
static void read_end(struct listener *l, const struct cJSON *tree)
{
    static const struct {
        const char *reason;
        long status;
        const char *problem;
    } taken[] = {
        {"login_ended", 401,
         "{\"code\":\"unauthorized\",\"detail\":\"the login, the token or the account that "
         "listened has ended\"}"},
        {"not_shared", 404,
         "{\"code\":\"not_found\",\"detail\":\"the array is no longer shared with this user\"}"},
        {"out_of_memory", 507,
         "{\"code\":\"out_of_memory\",\"detail\":\"the daemon has no memory for what there is to "
         "tell of so many arrays and jobs\"}"},
    };
    const char *reason = json_string(tree, "reason");
    l->over = true;
    for (size_t i = 0; reason && i < sizeof(taken) / sizeof(taken[0]); i++) {
        if (strcmp(reason, taken[i].reason))
            continue;
        error_from_reply(l->err, taken[i].status, -1, taken[i].problem, strlen(taken[i].problem));
        l->failed = true;
    }
    if (reason && !strcmp(reason, "stopping")) {
        error_set(l->err, "connection", "the daemon stops");
        l->failed = true;
    }
}

static void end_event(struct listener *l)
{
    struct cJSON *tree = json_read(text_get(&l->data), l->data.length);
    if (!strcmp(l->name, "end")) {
        read_end(l, tree);
    } else if (!strcmp(l->name, "error")) {
        int64_t status = 0;
        json_i64(tree, "status", &status);
        error_from_reply(l->err, (long)status, -1, text_get(&l->data), l->data.length);
        l->failed = true;
    } else if (!tree || !l->read(l, tree)) {
        if (!l->failed)
            error_set(l->err, "bad_result", "an event is not what was asked for");
        l->failed = true;
    } else if (l->watch && l->id[0]) {
        memcpy(l->watch->last, l->id, sizeof(l->id));
    }
    json_free(tree);
}

static void end_line(struct listener *l)
{
    char *line = l->line.data;
    if (l->line.length && line[l->line.length - 1] == '\r')
        line[--l->line.length] = 0;
    if (!l->line.length) {
        if (l->data.length)
            end_event(l);
        l->data.length = l->name[0] = l->id[0] = 0;
    } else if (!strncmp(line, "data: ", 6)) {
        text_add(&l->data, line + 6, l->line.length - 6);
    } else if (!strncmp(line, "event: ", 7)) {
        snprintf(l->name, sizeof(l->name), "%s", line + 7);
    } else if (!strncmp(line, "id: ", 4) && l->line.length - 4 < sizeof(l->id)) {
        memcpy(l->id, line + 4, l->line.length - 3);
    }
    l->line.length = 0;
}

/* The exchange's. */
static bool receive(void *user, const char *bytes, size_t count)
{
    struct listener *l = user;
    while (count && !l->over && !l->failed) {
        const char *end = memchr(bytes, '\n', count);
        size_t n = end ? (size_t)(end - bytes) : count;
        text_add(&l->line, bytes, n);
        if (end && !l->line.failed)
            end_line(l);
        if (l->line.failed || l->data.failed) {
            error_no_memory(l->err);
            l->failed = true;
        }
        bytes += end ? n + 1 : n;
        count -= end ? n + 1 : n;
    }
    return !l->over && !l->failed;
}

static int listen_to(struct arrayd *client, struct exchange *x, struct listener *l)
{
    x->accept = EVENTS_TYPE;
    x->receive = receive;
    x->receiver = l;
    if (l->watch && l->watch->last[0])
        x->last_event = l->watch->last;
    if (l->watch && l->watch->interval_s != 0) {
        struct text interval = {0};
        text_real(&interval, l->watch->interval_s);
        x->target.failed |= interval.failed;
        exchange_query(x, "interval", text_get(&interval));
        text_free(&interval);
    }
    int ret = exchange_done(client, x, l->err);
    if (!ret && l->failed)
        ret = -1;
    else if (!ret && !l->over)
        ret = error_set(l->err, "connection", "the events ended too early");
    text_free(&l->line);
    text_free(&l->data);
    return ret;
}

/* --- an array --- */

static bool read_change(struct listener *l, const struct cJSON *tree)
{
    struct arrayd_array array;
    if (!members_array(tree, &array))
        return false;
    l->over = !l->take.change(l->user, &array);
    return true;
}

int arrayd_changes(struct arrayd *client, const char *ref, struct arrayd_watch *watch,
                   bool (*take)(void *user, const struct arrayd_array *array), void *user,
                   struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct listener l = {
        .watch = watch, .err = err, .read = read_change, .take.change = take, .user = user};
    exchange_path(&x, "/v1/arrays", ref, "/events");
    return listen_to(client, &x, &l);
}

/* Decodes Base64 in place: the bytes begin where the text does. False if it is not Base64. */
static bool decode(char *text, size_t *ret_count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char values[256];
    size_t length = strlen(text), padding = 0, count = 0;
    memset(values, 0xff, sizeof(values));
    for (unsigned char i = 0; i < 64; i++)
        values[(unsigned char)digits[i]] = i;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
        padding++;
    if (length % 4)
        return false;
    uint32_t bits = 0;
    for (size_t i = 0; i < length - padding; i++) {
        unsigned char value = values[(unsigned char)text[i]];
        if (value == 0xff)
            return false;
        bits = bits << 6 | value;
        if (i % 4)
            text[count++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    *ret_count = count;
    return true;
}

static bool read_frame(struct listener *l, const struct cJSON *tree)
{
    struct arrayd_frame frame;
    const struct cJSON *range = json_get(tree, "range");
    const char *coded = json_string(tree, "png");
    int64_t size;
    if (!coded || !json_i64(tree, "bytes", &size) || !json_is_list(range) ||
        json_count(range) != 2 || !json_value_real(json_first(range), &frame.range[0]) ||
        !json_value_real(json_next(json_first(range)), &frame.range[1]))
        return false;
    struct text png = {0}; /* the tree's text is not ours */
    text_puts(&png, coded);
    bool ok = !png.failed && decode(png.data, &frame.size) && (int64_t)frame.size == size;
    frame.png = png.data;
    if (ok)
        l->over = !l->take.frame(l->user, &frame);
    if (png.failed) {
        error_no_memory(l->err);
        l->failed = true;
    }
    text_free(&png);
    return ok;
}

int arrayd_frames(struct arrayd *client, const char *ref, const struct arrayd_picture *how,
                  struct arrayd_watch *watch,
                  bool (*take)(void *user, const struct arrayd_frame *frame), void *user,
                  struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct listener l = {
        .watch = watch, .err = err, .read = read_frame, .take.frame = take, .user = user};
    exchange_path(&x, "/v1/arrays", ref, "/events");
    exchange_query(&x, "frames", "true");
    exchange_query(&x, "index", how ? how->index : NULL);
    looks_query(&x, how);
    return listen_to(client, &x, &l);
}

/* --- lists --- */

/* The strings of a list, which may be missing, into memory for free(). */
static bool read_strings(const struct cJSON *list, const char *const **ret, size_t *ret_count)
{
    const char **strings = calloc(json_count(list) + 1, sizeof(*strings));
    size_t count = 0;
    *ret = strings;
    for (const struct cJSON *at = strings ? json_first(list) : NULL; at; at = json_next(at))
        if (!(strings[count++] = json_value_string(at)))
            return false;
    *ret_count = count;
    return strings;
}

static bool read_arrays(const struct cJSON *list, struct arrayd_array *ret)
{
    for (const struct cJSON *at = json_first(list); at; at = json_next(at))
        if (!members_array(at, ret++))
            return false;
    return true;
}

static bool read_jobs(const struct cJSON *list, struct arrayd_job *ret)
{
    for (const struct cJSON *at = json_first(list); at; at = json_next(at))
        if (!jobs_read(at, ret++))
            return false;
    return true;
}

static bool read_news(struct listener *l, const struct cJSON *tree)
{
    const struct cJSON *arrays = json_get(tree, "arrays"), *jobs = json_get(tree, "jobs");
    struct arrayd_news news = {.array_count = json_count(arrays),
                               .job_count = json_count(jobs),
                               .first = json_true(tree, "first"),
                               .more = json_true(tree, "more")};
    struct arrayd_array *array = calloc(news.array_count + 1, sizeof(*array));
    struct arrayd_job *job = calloc(news.job_count + 1, sizeof(*job));
    bool ok = (arrays || jobs) && array && job && read_arrays(arrays, array) &&
              read_jobs(jobs, job) &&
              read_strings(json_get(tree, "written"), &news.written, &news.written_count) &&
              read_strings(json_get(tree, "gone"), &news.gone, &news.gone_count);
    news.arrays = array;
    news.jobs = job;
    if (ok)
        l->over = !l->take.news(l->user, &news);
    free(array);
    free(job);
    free((void *)news.written);
    free((void *)news.gone);
    return ok;
}

int arrayd_list_changes(struct arrayd *client, struct arrayd_watch *watch,
                        bool (*take)(void *user, const struct arrayd_news *news), void *user,
                        struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct listener l = {
        .watch = watch, .err = err, .read = read_news, .take.news = take, .user = user};
    text_puts(&x.target, "/v1/events");
    return listen_to(client, &x, &l);
}
