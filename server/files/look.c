/* GET /v1/files/{folder}: what is in a folder, or in a file. The request waits, whatever happens to
 * its client, for arrayd-file to have ended. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/body/request.h"
#include "server/config/config.h"
#include "server/files/describe.h"
#include "server/files/files_int.h"
#include "server/http/wakeup.h"
#include "server/store/auth.h"

struct look_task {
    struct file_task task; /* first */
    struct request *req;
    struct wakeup wakeup;
    const struct folder *folder;
    const char *path;
    struct strb out;
    struct err err; /* ERR_OK: none */
};

static void release(void *state)
{
    struct look_task *t = state;
    strb_free(&t->out);
}

static bool goes_on(void *user)
{
    const struct look_task *t = user;
    return file_task_goes_on(&t->task);
}

static enum err_code describe_file(struct look_task *t, int fd, struct json_writer *w,
                                   struct err *e)
{
    const struct files *f = t->req->server->files;
    struct process_spec spec = files_process(f, false);
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct file_process *p;
    struct file_description d;
    if (!arena)
        return err_oom(e);
    spec.file = fd;
    spec.goes_on = goes_on;
    spec.user = t;
    TRY(process_start(&spec, &p, e));
    enum err_code code = describe(p, arena, &d, e);
    process_end(p);
    if (code == ERR_OK)
        describe_put(&d, w);
    return code;
}

static enum err_code put(struct look_task *t, int fd, const struct stat *st, struct err *e)
{
    struct json_writer w = JSON_WRITER(&t->out);
    const bool folder = S_ISDIR(st->st_mode);
    json_open_object(&w);
    json_put_member_string(&w, "folder", t->folder->name);
    json_put_member_string(&w, "path", t->path);
    json_put_member_string(&w, "kind", folder ? "folder" : "file");
    if (folder) {
        TRY(folder_list(fd, (size_t)t->req->server->config->max_file_entries, &w, e));
    } else {
        json_put_member_i64(&w, "size", st->st_size);
        file_put_modified(&w, st);
        TRY(describe_file(t, fd, &w, e));
    }
    json_close_object(&w);
    return ERR_OK;
}

static void run(struct file_task *task)
{
    struct look_task *t = (struct look_task *)task;
    struct stat st;
    struct err why = ERR_INIT;
    int fd = -1;
    enum err_code code = folder_open(t->folder, t->req->principal->name, t->path, &fd, &st, &why);
    /* a user's own folder is made when something is written there: until then it is empty */
    if (code == ERR_NOT_FOUND && !t->folder->shared && !*t->path) {
        st.st_mode = S_IFDIR;
        code = ERR_OK;
    }
    if (code == ERR_OK)
        code = put(t, fd, &st, &t->err);
    else
        t->err = why;
    if (fd >= 0)
        close(fd);
    if (code == ERR_DEADLINE)
        files_why_not(task, &t->err);
    wakeup_ring(&t->wakeup);
}

static void reply(struct request *req)
{
    struct look_task *t = req->state;
    if (t->err.code != ERR_OK)
        http_reply_error(req, &t->err);
    else
        http_reply_json(req, 200, &t->out);
}

void files_look(struct request *req, const char *folder, const char *path)
{
    struct files *f = req->server->files;
    struct look_task *t = request_begin(req, sizeof *t, release);
    if (!t)
        return;
    t->task = (struct file_task){.run = run, .req = req, .who = req->principal};
    t->req = req;
    t->path = path;
    t->err = (struct err)ERR_INIT;
    wakeup_init(&t->wakeup, req);
    wakeup_arm(&t->wakeup);
    if (folders_find(f->folders, folder, &t->folder, &t->err) != ERR_OK ||
        files_submit(f, LANE_LOOKS, &t->task, &t->err) != ERR_OK)
        http_reply_error(req, &t->err);
    else
        wakeup_wait(&t->wakeup, reply);
}
