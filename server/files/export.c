/* Exports: arrays become a file, by a job on a thread of its own.
 *
 * The arrays are those at the moment of the request: from then on downloads hold their contents,
 * and writers get other memory. The file has its name when all of it is on the disk; an export that
 * ends otherwise leaves nothing. */
#include <string.h>
#include <sys/stat.h>

#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/files/bell.h"
#include "server/files/export.h"
#include "server/files/files_int.h"
#include "server/jobs/jobs.h"
#include "server/labels/labels.h"
#include "server/reader/wire.h"
#include "server/store/auth.h"
#include "server/work/asker.h"

bool export_init(struct export_task *x, struct request *req)
{
    x->server = req->server;
    bell_init(&x->bell);
    x->file = (struct new_file){.fd = -1, .folder = -1};
    x->task.who = req->principal;
    x->coords = x->labels = true;
    x->arena = arena_new(0);
    return x->arena;
}

static void end_comparison(struct export_twin *t)
{
    if (t->own)
        download_free(t->own);
    if (t->other)
        download_free(t->other);
    t->own = t->other = NULL;
}

void export_clear(struct export_task *x)
{
    for (size_t i = 0; i < x->n_pieces; i++) {
        if (x->pieces[i].download)
            download_free(x->pieces[i].download);
        array_unref(x->pieces[i].array);
        labels_unref(x->pieces[i].labels);
        strb_free(&x->pieces[i].coordinates);
    }
    for (struct export_twin *t = x->twins; t; t = t->next) {
        end_comparison(t);
        array_unref(t->array);
    }
    x->twins = NULL;
    HASH_CLEAR(hh, x->by_name);
    HASH_CLEAR(hh, x->dims);
    x->n_pieces = 0;
    process_end(x->process);
    x->process = NULL;
    new_file_drop(&x->file);
    arena_free(x->arena);
    x->arena = NULL;
}

static void export_free(struct export_task *x)
{
    export_clear(x);
    mem_free(x);
}

/* A file in memory is not to grow, whatever the reader does. */
static bool goes_on(void *user)
{
    const struct export_task *x = user;
    struct stat st;
    return file_task_goes_on(&x->task) &&
           (x->task.job || (fstat(x->file.fd, &st) == 0 && st.st_size <= x->most));
}

static enum err_code cancelled(struct err *e)
{
    return err_set(e, ERR_DEADLINE, "the export was cancelled");
}

/* --- what is asked --- */

static enum err_code ask(struct export_task *x, struct err *e)
{
    _cleanup_strb_ struct strb line = {0};
    struct json_writer w = JSON_WRITER(&line);
    json_open_object(&w);
    json_put_member_string(&w, "do", "write");
    json_put_member_string(&w, "format", export_format_name(x->format));
    json_put_key(&w, "attrs");
    if (json_given(x->attrs))
        json_put_value(&w, x->attrs);
    else
        json_put_raw(&w, "{}", 2);
    json_put_member_i64(&w, "deflate", x->deflate);
    if (json_given(x->unlimited)) {
        json_put_key(&w, "unlimited");
        json_put_value(&w, x->unlimited);
    }
    json_put_key(&w, "variables");
    json_open_list(&w);
    for (size_t i = 0; i < x->n_pieces; i++)
        TRY(export_put_variable(x, &x->pieces[i], &w, e));
    json_close_list(&w);
    json_close_object(&w);
    return process_ask(x->process, &line, e);
}

/* --- the bytes --- */

static enum err_code pull(struct export_task *x, struct download *d, int64_t at, unsigned char *to,
                          size_t n, struct err *e)
{
    for (size_t have = 0; have < n;) {
        const int64_t got = download_pull(d, at + (int64_t)have, to + have, n - have);
        if (got < 0) {
            data_error(d, e);
            return e->code;
        }
        if (!got)
            bell_wait(&x->bell);
        if (!goes_on(x))
            return cancelled(e);
        have += (size_t)got;
    }
    return ERR_OK;
}

/* An answer while slabs are with the reader: one is free again, or (*ret_done) all is done. */
static enum err_code hear(struct export_task *x, uint64_t *used, bool *ret_done, struct err *e)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct json answer;
    struct err why = ERR_INIT;
    int64_t slab;
    if (!arena)
        return err_oom(e);
    TRY(process_hear(x->process, arena, &answer, e));
    if (process_says(answer, "done")) {
        *ret_done = true;
        return ERR_OK;
    }
    if (json_get_i64(json_member(answer, "free"), 0, process_slabs(x->process) - 1, &slab, &why) !=
            ERR_OK ||
        !(*used >> slab & 1))
        return process_lies(e, "that it is done with a slab that it was not given");
    *used &= ~((uint64_t)1 << slab);
    return ERR_OK;
}

static enum err_code send_slab(struct export_task *x, int slab, size_t n, struct err *e)
{
    _cleanup_strb_ struct strb line = {0};
    strb_addf(&line, "{\"slab\":%d,\"bytes\":%zu}", slab, n);
    process_moved(x->process, n);
    return process_say(x->process, &line, e);
}

static enum err_code send_piece(struct export_task *x, struct export_piece *p, uint64_t *used,
                                struct err *e)
{
    const int slabs = process_slabs(x->process);
    const int64_t size = (int64_t)process_slab_size(x->process);
    bool done = false;
    for (int64_t at = 0, n; at < p->nbytes; at += n) {
        while (*used == UINT64_MAX >> (64 - slabs))
            TRY(hear(x, used, &done, e));
        if (done)
            return process_lies(e, "that it is done before it had all values");
        const int slab = __builtin_ctzll(~*used);
        n = p->nbytes - at < size ? p->nbytes - at : size;
        if (p->shared && !share_lasts(x->server->shares, p->id, x->task.who, false))
            return err_set(e, ERR_NOT_FOUND, "there is no array '%s'", p->id);
        TRY(pull(x, p->download, at, process_slab(x->process, slab), (size_t)n, e));
        TRY(send_slab(x, slab, (size_t)n, e));
        *used |= (uint64_t)1 << slab;
        x->done += n;
        if (x->task.job)
            job_transfer_at(x->task.job, x->done, x->nbytes);
    }
    if (p->download)
        download_free(p->download);
    p->download = NULL;
    return ERR_OK;
}

static enum err_code compare(struct export_task *x, struct export_twin *t, struct err *e)
{
    unsigned char a[8192], b[sizeof a];
    for (int64_t at = 0, n; at < t->nbytes; at += n) {
        n = t->nbytes - at < (int64_t)sizeof a ? t->nbytes - at : (int64_t)sizeof a;
        TRY(pull(x, t->own, at, a, (size_t)n, e));
        TRY(pull(x, t->other, at, b, (size_t)n, e));
        if (memcmp(a, b, (size_t)n) != 0)
            return export_another_coordinate(x, t->with, x->pieces[t->of].name, e);
    }
    end_comparison(t);
    return ERR_OK;
}

/* Bytes that the file may become: elements can be widened, labels become what their format needs.
 */
static int64_t most_of(const struct export_task *x)
{
    const int64_t labels = x->server->config->max_attrs + (4 << 10);
    if (!x->task.job)
        return x->most;
    return x->nbytes > 1ll << 50 ? 1ll << 53
                                 : 2 * x->nbytes + (16 << 20) + 16 * labels * (int64_t)x->n_pieces;
}

enum err_code export_write(struct export_task *x, struct err *e)
{
    struct process_spec spec = files_process(x->server->files, true);
    struct json answer;
    bool done = false;
    uint64_t used = 0;
    spec.file = x->file.fd;
    spec.write = true;
    spec.most = most_of(x);
    spec.goes_on = goes_on;
    spec.user = x;
    for (struct export_twin *t = x->twins; t; t = t->next)
        TRY(compare(x, t, e));
    TRY(process_start(&spec, &x->process, e));
    TRY(ask(x, e));
    TRY(process_hear(x->process, x->arena, &answer, e));
    if (!process_says(answer, "ready"))
        return process_lies(e, "something other than that it can write the file");
    for (size_t i = 0; i < x->n_pieces; i++)
        TRY(send_piece(x, &x->pieces[i], &used, e));
    process_patience(x->process);
    while (!done)
        TRY(hear(x, &used, &done, e));
    process_end(x->process); /* it has the file no more */
    x->process = NULL;
    return goes_on(x) ? ERR_OK : cancelled(e);
}

static enum err_code work(struct export_task *x, struct err *e)
{
    TRY(folder_new_file(x->folder, x->task.who->name, x->path, x->overwrite, &x->file, e));
    TRY(export_write(x, e));
    return new_file_publish(&x->file, x->overwrite, e);
}

static void run(struct file_task *task)
{
    struct export_task *x = (struct export_task *)task;
    struct user_job *j = x->task.job;
    struct err e = ERR_INIT;
    enum err_code code = ERR_DEADLINE;
    if (goes_on(x)) {
        job_transfer_begin(j);
        job_transfer_at(j, 0, x->nbytes);
        asker_begin(job_asker(j));
        code = work(x, &e);
        asker_begin(NULL);
    }
    export_free(x);
    job_transfer_end(j, code == ERR_OK ? NULL : &e);
}

/* --- the beginning --- */

enum err_code export_hold(struct export_task *x, struct session *s, struct err *e)
{
    for (size_t i = 0; i < x->n_pieces; i++)
        if (x->pieces[i].nbytes)
            TRY(download_new(s->stream, x->pieces[i].array, bell_ring, &x->bell,
                             &x->pieces[i].download, e));
    for (struct export_twin *t = x->twins; t; t = t->next) {
        if (!t->nbytes)
            continue;
        TRY(download_new(s->stream, t->array, bell_ring, &x->bell, &t->own, e));
        TRY(download_new(s->stream, x->pieces[t->of].array, bell_ring, &x->bell, &t->other, e));
    }
    return ERR_OK;
}

static enum err_code begin(struct request *req, struct export_task *x, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    _cleanup_session_ struct session *s = NULL;
    struct json body;
    const struct json_limits limits = request_json_limits(req);
    TRY(json_parse(x->arena, req->body, req->body_len, &limits, &body, e));
    TRY(session_of(req, &s, e));
    TRY(export_read(x, req, s, body, e));
    TRY(export_hold(x, s, e));
    return files_job(req, s, "export", body, x->folder, x->path, &x->task, e);
}

enum err_code files_export(struct request *req, struct user_job **ret, struct err *e)
{
    struct export_task *x = mem_calloc(1, sizeof *x);
    if (!x)
        return err_oom(e);
    x->task.run = run;
    enum err_code code = export_init(x, req) ? begin(req, x, e) : err_oom(e);
    if (code == ERR_OK)
        code = files_begin(req->server->files, &x->task, ret, e);
    if (code != ERR_OK)
        export_free(x);
    return code;
}
