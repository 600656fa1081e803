/* The threads of server/files, and which of the waiting tasks they take. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/config/config.h"
#include "server/files/files_int.h"
#include "server/jobs/jobs.h"
#include "server/reader/wire.h"
#include "server/store/auth.h"
#include "server/store/session.h"

#define ENDS_SEEN_S   0.1        /* seconds until a task that waits in vain is seen */
#define DEFAULT_SPOOL "/dev/shm" /* the option's */

/* --- the threads --- */

/* With the lock held: how many tasks run, of that user or (NULL) of all. */
static int running(const struct lane *l, const struct principal *p)
{
    int n = 0;
    for (size_t i = 0; i < LANE_MOST; i++)
        n += l->running[i] && (!p || l->running[i] == p);
    return n;
}

/* The same: the first task that is not wanted any more, else of the user with the fewest. */
static struct file_task *take(struct lane *l)
{
    struct file_task **best = NULL, *t;
    int fewest = running(l, NULL) < l->most ? l->most_of_one : 0;
    for (struct file_task **at = &l->first; *at; at = &(*at)->next) {
        const int n = file_task_goes_on(*at) ? running(l, (*at)->who) : -1;
        if (n < fewest) {
            best = at;
            fewest = n;
        }
    }
    if (!best)
        return NULL;
    t = *best;
    *best = t->next;
    if (l->last == &t->next)
        l->last = best;
    return t;
}

/* Its memory is the user's. */
static void run(const struct files *f, struct file_task *t)
{
    struct cause cause = {.within = t->who->memory,
                          .limit = f->server->config->max_request_memory,
                          .name = "max_request_memory"};
    meter_enter(&cause);
    t->run(t);
    meter_enter(NULL);
    meter_unref(cause.meter);
}

static double step(struct files *f, struct lane *l)
{
    struct file_task *t = take(l);
    size_t place = 0;
    if (!t)
        return l->first ? ENDS_SEEN_S : WORKER_RESTS;
    while (place < LANE_MOST && l->running[place])
        place++;
    if (place < LANE_MOST)
        l->running[place] = t->who;
    pthread_mutex_unlock(&f->lock);
    run(f, t);
    pthread_mutex_lock(&f->lock);
    if (place < LANE_MOST)
        l->running[place] = NULL;
    return WORKER_AGAIN;
}

static double step_looks(void *user)
{
    struct files *f = user;
    return step(f, &f->lanes[LANE_LOOKS]);
}

static double step_bodies(void *user)
{
    struct files *f = user;
    return step(f, &f->lanes[LANE_BODIES]);
}

static double step_moves(void *user)
{
    struct files *f = user;
    return step(f, &f->lanes[LANE_MOVES]);
}

enum err_code files_submit(struct files *f, enum file_lane lane, struct file_task *t, struct err *e)
{
    struct lane *l = &f->lanes[lane];
    bool runs = worker_start(&l->worker);
    pthread_mutex_lock(&f->lock);
    runs |= l->worker.running > 0;
    if (runs) {
        t->next = NULL;
        *l->last = t;
        l->last = &t->next;
        worker_wake(&l->worker);
    }
    pthread_mutex_unlock(&f->lock);
    return runs ? ERR_OK : err_set(e, ERR_OVERLOADED, "a thread for files cannot be started");
}

enum err_code files_job(struct request *req, struct session *s, const char *kind, struct json body,
                        const struct folder *folder, const char *path, struct file_task *t,
                        struct err *e)
{
    _cleanup_strb_ struct strb whole = {0}, brief = {0};
    struct json_writer w = JSON_WRITER(&whole);
    json_put_value(&w, body);
    w = JSON_WRITER(&brief);
    json_open_object(&w);
    json_put_member_string(&w, "folder", folder->name);
    json_put_member_string(&w, "path", path);
    json_close_object(&w);
    return jobs_transfer(req->server->jobs, req->principal, s->whole, kind, &whole, &brief, &t->job,
                         e);
}

enum err_code files_begin(struct files *f, struct file_task *t, struct user_job **ret,
                          struct err *e)
{
    struct user_job *j = t->job; /* the task may have ended before this has */
    const enum err_code code = files_submit(f, LANE_MOVES, t, e);
    if (code == ERR_OK) {
        *ret = j;
        return code;
    }
    t->job = NULL;
    job_transfer_end(j, e);
    job_unref(j);
    return code;
}

void files_why_not(const struct file_task *t, struct err *e)
{
    if (http_cuts(t->req->server->http))
        err_draining(e);
    else
        err_set(e, ERR_DEADLINE, "the client has closed the connection, or its side of it");
}

bool file_task_goes_on(const struct file_task *t)
{
    return t->job ? job_transfer_goes_on(t->job)
                  : !http_cuts(t->req->server->http) && !http_client_left(t->req);
}

/* --- what requests say --- */

enum err_code files_get_bool(struct json of, const char *name, bool *ret, struct err *e)
{
    const struct json v = json_member(of, name);
    return json_given(v) ? json_get_bool(v, ret, e) : ERR_OK;
}

/* NULL: it is not said. */
static bool read_ghosts(const char *text, bool *ret)
{
    *ret = text && !strcmp(text, "keep");
    return !text || *ret || !strcmp(text, "leave");
}

enum err_code files_get_ghosts(struct json v, bool *ret, struct err *e)
{
    const char *text = NULL;
    size_t n;
    if (json_given(v))
        text = json_kind(v) == JSON_STRING ? json_text(v, &n) : "";
    return read_ghosts(text, ret)
               ? ERR_OK
               : json_err(v, e, ERR_BAD_FIELD, "ghosts must be \"keep\" or \"leave\"");
}

enum err_code files_keeps_ghosts(struct request *req, bool *ret, struct err *e)
{
    return read_ghosts(http_query(req, "ghosts"), ret)
               ? ERR_OK
               : err_set(e, ERR_BAD_QUERY, "ghosts must be keep or leave");
}

/* --- the program --- */

/* Beside this one, unless the option says where. */
enum err_code files_find_program(const struct config *c, char **ret, struct err *e)
{
    char self[4096];
    struct strb path = {0};
    if (c->file_reader) {
        strb_add(&path, c->file_reader);
    } else {
        const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        self[n > 0 ? n : 0] = '\0';
        const char *slash = strrchr(self, '/');
        strb_addn(&path, self, slash ? (size_t)(slash - self) : 0);
        strb_add(&path, "/" WIRE_PROGRAM);
    }
    if (path.failed)
        return err_oom(e);
    if (access(path.data, X_OK) < 0)
        strb_free(&path);
    *ret = path.data;
    return ERR_OK;
}

/* What is wrong with the folder is nothing that the request has named. */
enum err_code files_spool(const struct files *f, struct new_file *ret, struct err *e)
{
    struct err why = ERR_INIT;
    enum err_code code = spool_file(f->spool, ret, &why);
    if (code == ERR_OK)
        return code;
    if (code == ERR_NOT_FOUND || code == ERR_FORBIDDEN || code == ERR_READ_ONLY)
        code = ERR_FILE_IO;
    return err_set(e, code, "%s", why.message);
}

enum err_code files_too_large(struct err *e)
{
    struct err why = ERR_INIT;
    err_oom(&why);
    return err_set(e, why.code,
                   "%s; files in a folder of the daemon's machine (GET /v1/files) are imported and "
                   "exported without that",
                   why.message);
}

struct process_spec files_process(const struct files *f, bool moves)
{
    const struct config *c = f->server->config;
    return (struct process_spec){.program = f->program,
                                 .unsandboxed = c->unsandboxed_files,
                                 .memory = c->file_memory,
                                 .cpu = c->file_time,
                                 .silence = c->file_timeout,
                                 .slab =
                                     moves ? (size_t)c->file_slab & ~(size_t)4095 : WIRE_SLAB_MIN,
                                 .slabs = moves ? (int)c->file_slabs : 1,
                                 .threads = moves ? (int)c->file_threads : 1};
}

/* --- opening --- */

/* One thread more than tasks may run at a time ends those that are not wanted while they wait. */
static void open_lanes(struct files *f)
{
    const struct config *c = f->server->config;
    const struct {
        worker_step *step;
        const char *name;
        int most;
    } of[LANES] = {[LANE_LOOKS] = {step_looks, "arrayd-looks", LOOK_THREADS},
                   [LANE_BODIES] = {step_bodies, "arrayd-bodies", BODY_THREADS},
                   [LANE_MOVES] = {step_moves, "arrayd-moves", (int)c->file_jobs}};
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &f->lanes[i];
        l->last = &l->first;
        l->most = of[i].most;
        /* without accounts there is one user */
        l->most_of_one = c->accounts && l->most > 1 ? l->most - 1 : l->most;
        l->worker = (struct worker){.name = of[i].name,
                                    .lock = &f->lock,
                                    .step = of[i].step,
                                    .user = f,
                                    .n = of[i].most + 1};
        worker_init(&l->worker);
    }
}

/* A wrong option is told at once; a machine without the default may never need it. */
static enum err_code open_spool(struct files *f, struct err *e)
{
    const char *path = f->server->config->file_spool;
    f->spool = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->spool >= 0 && faccessat(f->spool, ".", W_OK | X_OK, AT_EACCESS) == 0) {
        spool_sweep(f->spool);
        return ERR_OK;
    }
    if (strcmp(path, DEFAULT_SPOOL) != 0)
        return err_set(e, ERR_BAD_FIELD, "file-spool: %.200s: %s", path, strerror(errno));
    log_event(LOG_WARN, "file-spool cannot be used: no files can be sent and received", "folder",
              path, "why", strerror(errno), NULL);
    return ERR_OK;
}

enum err_code files_open(struct server *s, struct files **ret, struct err *e)
{
    const struct config *c = s->config;
    struct files *f = mem_calloc(1, sizeof *f);
    if (!f)
        return err_oom(e);
    f->server = s;
    f->spool = -1;
    pthread_mutex_init(&f->lock, NULL);
    open_lanes(f);
    enum err_code code = folders_open(&c->files, c->accounts, &f->folders, e);
    if (code == ERR_OK)
        code = open_spool(f, e);
    if (code == ERR_OK)
        code = files_find_program(c, &f->program, e);
    if (code == ERR_OK && !f->program && c->file_reader) /* everything else works without it */
        log_event(LOG_WARN, "file-reader is no program that can be run: files are not opened",
                  "program", c->file_reader, NULL);
    if (code != ERR_OK) {
        files_free(f);
        return code;
    }
    *ret = f;
    return ERR_OK;
}

void files_free(struct files *f)
{
    if (!f)
        return;
    for (int i = 0; i < LANES; i++) {
        worker_stop(&f->lanes[i].worker);
        worker_destroy(&f->lanes[i].worker);
    }
    pthread_mutex_destroy(&f->lock);
    if (f->spool >= 0)
        close(f->spool);
    folders_free(f->folders);
    mem_free(f->program);
    mem_free(f);
}

void files_put_folders(const struct files *f, struct json_writer *w)
{
    json_put_key(w, "folders");
    json_open_list(w);
    for (size_t i = 0; i < folders_count(f->folders); i++) {
        const struct folder *x = folders_at(f->folders, i);
        json_open_object(w);
        json_put_member_string(w, "name", x->name);
        json_put_member_bool(w, "read_only", x->read_only);
        json_put_member_bool(w, "shared", x->shared);
        json_close_object(w);
    }
    json_close_list(w);
    json_put_member_bool(w, "reader", f->program);
}
