/* Imports: a job on a thread of its own.
 *
 * All arrays' memory is there, and counted, before the first byte is read; they get their handles
 * when all bytes are there. The bytes go from the reader's slabs straight into the engine's staging
 * memory, which is pinned where there is a GPU. An import that ends otherwise leaves nothing. */
#include "server/files/import.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/jobs/jobs.h"
#include "server/labels/labels.h"
#include "server/store/auth.h"
#include "server/store/session.h"
#include "server/work/asker.h"
#include "server/work/memory_retry.h"

#define COPY_PIECE (1 << 20) /* bytes between looks whether it goes on */

bool import_init(struct import *x, struct request *req)
{
    x->server = req->server;
    x->task.who = req->principal;
    bell_init(&x->bell);
    x->arena = arena_new(0);
    return x->arena;
}

void import_clear(struct import *x)
{
    for (size_t i = 0; i < x->n_pieces; i++) {
        upload_abort(x->pieces[i].upload);
        array_unref(x->pieces[i].array);
        labels_unref(x->pieces[i].labels);
    }
    x->n_pieces = 0;
    HASH_CLEAR(hh, x->places);
    HASH_CLEAR(hh, x->names);
    process_end(x->process);
    x->process = NULL;
    arena_free(x->arena);
    x->arena = NULL;
}

static void import_free(struct import *x)
{
    import_clear(x);
    mem_free(x);
}

static bool goes_on(void *user)
{
    const struct import *x = user;
    return file_task_goes_on(&x->task);
}

enum err_code import_goes_on(const struct import *x, struct err *e)
{
    return file_task_goes_on(&x->task) ? ERR_OK
                                       : err_set(e, ERR_DEADLINE, "the import was cancelled");
}

/* --- memory --- */

/* The import may end as soon as it has seen the answer. */
static void answered(void *user)
{
    struct import *x = user;
    bell_ring(&x->bell);
    atomic_store(&x->answered, true);
}

/* After a lack of memory: waits until there may be more. False: there will not be. Until it has
 * answered the engine has what it was asked with. */
static bool await_memory(struct import *x, struct memory_retry *retry, const struct err *e)
{
    atomic_store(&x->answered, false);
    if (!lacks_memory(e) || !goes_on(x) ||
        !memory_retry_ask(retry, x->server->engine, x->server->config->evict, e, answered, x))
        return false;
    while (!atomic_load(&x->answered))
        bell_wait(&x->bell);
    return true;
}

/* An array with ghosts is there before its contents, which are then copied into it. */
static enum err_code take_memory(struct import *x, struct import_piece *p, struct err *e)
{
    if (grid_has_ghosts(p->grid) && !p->array)
        TRY(engine_zeros_grid(x->stream, x->session->account, p->dtype, p->inside.rank,
                              p->inside.shape, p->grid, &p->array, e));
    return upload_new(x->stream, x->session->account, p->nbytes, bell_ring, &x->bell, &p->upload,
                      e);
}

static enum err_code reserve(struct import *x, struct import_piece *p, struct err *e)
{
    struct memory_retry retry = {0};
    enum err_code code;
    do
        code = take_memory(x, p, e);
    while (code != ERR_OK && await_memory(x, &retry, e));
    return code;
}

/* --- the bytes --- */

/* What there is room for; bools are 0 or 1 on the device, whatever the reader says. */
static size_t push(struct import_piece *p, const unsigned char *from, size_t n)
{
    unsigned char bools[4096];
    size_t room;
    if (p->dtype == DT_BOOL) {
        const size_t k = n < sizeof bools ? n : sizeof bools;
        for (size_t i = 0; i < k; i++)
            bools[i] = from[i] != 0;
        return upload_push(p->upload, bools, k);
    }
    const size_t k = n < COPY_PIECE ? n : COPY_PIECE;
    unsigned char *to = upload_reserve(p->upload, &room);
    if (!to)
        return upload_push(p->upload, from, k);
    room = room < k ? room : k;
    mem_copy_away(to, from, room);
    upload_advance(p->upload, room);
    return room;
}

static enum err_code take_bytes(struct import *x, struct import_piece *p, const unsigned char *from,
                                size_t n, struct err *e)
{
    while (n > 0) {
        const size_t took = push(p, from, n);
        if (!took)
            bell_wait(&x->bell);
        if (!took)
            TRY(import_goes_on(x, e));
        from += took;
        n -= took;
    }
    return ERR_OK;
}

/* Whether the piece's elements lie in the file one after another, as they are to be; *ret_at is
 * the first one's byte. What the reader says of it need not be true: then they are other bytes of
 * a file that the user may read. */
static bool lies_in_file(const struct import_piece *p, int64_t *ret_at)
{
    const struct file_variable *v = p->variable;
    int64_t first = 0;
    bool whole = true; /* of the axes behind this one */
    if (!v->at || (p->decode && v->decodes))
        return false;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (p->count[d] > 1 && (p->step[d] != 1 || !whole))
            return false;
        whole = whole && p->count[d] == v->shape[d];
    }
    for (int d = 0; d < v->rank; d++)
        first = first * v->shape[d] + p->start[d];
    return !__builtin_mul_overflow(first, (int64_t)dtype_size(v->dtype), &first) &&
           !__builtin_add_overflow(v->at, first, ret_at);
}

/* The file's next bytes, as far as there is room for them: into staging memory or, where that has
 * none or they are to be looked at, by way of a buffer. */
static enum err_code copy_some(struct import *x, struct import_piece *p, int64_t at, int64_t left,
                               int64_t *ret_n, struct err *e)
{
    unsigned char buffer[4096];
    size_t room;
    unsigned char *to = p->dtype == DT_BOOL ? NULL : upload_reserve(p->upload, &room);
    const bool staged = to;
    if (!staged) {
        to = buffer;
        room = sizeof buffer;
    }
    const size_t most = staged ? COPY_PIECE : sizeof buffer;
    room = room < most ? room : most;
    const ssize_t n = pread(x->file, to, (int64_t)room < left ? room : (size_t)left, at);
    *ret_n = n > 0 ? n : 0;
    if (n == 0)
        return err_set(e, ERR_BAD_FILE, "the file ends within the values of '%s'",
                       p->variable->name);
    if (n < 0)
        return errno == EINTR ? ERR_OK
                              : err_set(e, ERR_FILE_IO, "reading the file: %s", strerror(errno));
    if (staged)
        upload_advance(p->upload, (size_t)n);
    else
        TRY(take_bytes(x, p, buffer, (size_t)n, e));
    return ERR_OK;
}

static void at_bytes(struct import *x, int64_t n)
{
    x->done += n;
    if (x->task.job)
        job_transfer_at(x->task.job, x->done, x->nbytes);
}

static enum err_code copy_piece(struct import *x, struct import_piece *p, int64_t at, struct err *e)
{
    for (int64_t left = p->nbytes, n; left > 0; left -= n, at += n) {
        TRY(import_goes_on(x, e));
        TRY(copy_some(x, p, at, left, &n, e));
        at_bytes(x, n);
    }
    return ERR_OK;
}

static void put_list(struct json_writer *w, const char *name, int n, const int64_t *list)
{
    json_put_key(w, name);
    json_put_i64_list(w, (size_t)n, list);
}

static enum err_code ask(struct import *x, const struct import_piece *p, struct err *e)
{
    _cleanup_strb_ struct strb line = {0};
    struct json_writer w = JSON_WRITER(&line);
    int64_t start[MAX_RANK], step[MAX_RANK];
    for (int k = 0; k < p->variable->rank; k++) { /* forwards, see turn */
        const bool back = p->step[k] < 0 && p->count[k] > 0;
        start[k] = p->start[k] + (back ? p->step[k] * (p->count[k] - 1) : 0);
        step[k] = p->step[k] < 0 ? -p->step[k] : p->step[k];
    }
    json_open_object(&w);
    json_put_member_string(&w, "do", "read");
    json_put_member_string(&w, "variable", p->variable->name);
    put_list(&w, "start", p->variable->rank, start);
    put_list(&w, "count", p->variable->rank, p->count);
    put_list(&w, "step", p->variable->rank, step);
    json_put_member_bool(&w, "decode", p->decode);
    json_close_object(&w);
    return process_ask(x->process, &line, e);
}

/* Whether the answer's dtype and number of elements are those that were asked for. */
static enum err_code check_answer(const struct import_piece *p, struct json answer, struct err *e)
{
    struct err why = ERR_INIT;
    enum dtype dtype;
    int rank;
    int64_t shape[MAX_RANK];
    struct view v;
    if (json_get_dtype(json_member(answer, "dtype"), &dtype, &why) != ERR_OK || dtype != p->dtype)
        return process_lies(e, "values of another type than it had described");
    if (json_get_shape(json_member(answer, "shape"), 0, &rank, shape, &why) != ERR_OK ||
        view_contiguous(rank, shape, dtype_size(dtype), &v, &why) != ERR_OK ||
        view_size(&v) != view_size(&p->view))
        return process_lies(e, "values of another shape than was asked for");
    return ERR_OK;
}

static enum err_code give_back(struct import *x, int64_t slab, struct err *e)
{
    _cleanup_strb_ struct strb line = {0};
    strb_addf(&line, "{\"free\":%d}", (int)slab);
    return process_say(x->process, &line, e);
}

/* A slab, or the end (*ret_done). */
static enum err_code take_slab(struct import *x, struct import_piece *p, int64_t left,
                               int64_t *ret_n, bool *ret_done, struct err *e)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct json answer;
    struct err why = ERR_INIT;
    int64_t slab, n, most = (int64_t)process_slab_size(x->process);
    if (!arena)
        return err_oom(e);
    TRY(process_hear(x->process, arena, &answer, e));
    if (process_says(answer, "done")) {
        *ret_done = true;
        return left ? process_lies(e, "fewer values than it had described") : ERR_OK;
    }
    if (json_get_i64(json_member(answer, "slab"), 0, process_slabs(x->process) - 1, &slab, &why) !=
            ERR_OK ||
        json_get_i64(json_member(answer, "bytes"), 1, left < most ? left : most, &n, &why) !=
            ERR_OK)
        return process_lies(e, left ? "a slab that does not exist, or of a wrong size"
                                    : "more values than it had described");
    process_moved(x->process, (size_t)n);
    TRY(take_bytes(x, p, process_slab(x->process, (int)slab), (size_t)n, e));
    *ret_n = n;
    return give_back(x, slab, e);
}

static enum err_code read_piece(struct import *x, struct import_piece *p, struct err *e)
{
    struct json answer;
    bool done = false;
    int64_t at;
    if (!p->nbytes)
        return ERR_OK;
    if (lies_in_file(p, &at))
        return copy_piece(x, p, at, e);
    TRY(ask(x, p, e));
    TRY(process_hear(x->process, x->arena, &answer, e));
    TRY(check_answer(p, answer, e));
    for (int64_t left = p->nbytes, n = 0; !done; left -= n) {
        n = 0;
        TRY(import_goes_on(x, e));
        TRY(take_slab(x, p, left, &n, &done, e));
        at_bytes(x, n);
    }
    return ERR_OK;
}

/* --- the end --- */

static enum err_code finish(struct import_piece *p, struct upload *u, struct err *e)
{
    struct view whole;
    if (!p->array)
        return upload_finish_new(u, p->dtype, p->view.rank, p->view.shape, false, &p->array, e);
    grid_whole(p->array->grid, &p->array->view, &whole);
    return upload_finish_into(u, p->array, &whole, false, NULL, NULL, e);
}

/* Spacing and boundary, which take no memory. */
static enum err_code describe_grid(const struct import *x, struct import_piece *p, struct err *e)
{
    struct array *with;
    if (!p->grid || p->array->grid)
        return ERR_OK;
    TRY(engine_embed(x->stream, x->session->account, p->array, p->grid, &with, e));
    array_unref(p->array);
    p->array = with;
    return ERR_OK;
}

/* Files are read forwards: an axis that is taken backwards is one of a view. */
static enum err_code turn(struct import_piece *p, struct err *e)
{
    struct view v = p->array->view;
    bool any = false;
    for (int r = 0; r < p->map.rank; r++) {
        if (p->map.axis[r] < 0 || p->step[p->map.axis[r]] > 0 || v.shape[r] < 2)
            continue;
        v.offset += (v.shape[r] - 1) * v.strides[r];
        v.strides[r] = -v.strides[r];
        any = true;
    }
    struct array *turned = any ? array_view(p->array, p->dtype, &v) : array_ref(p->array);
    if (!turned)
        return err_oom(e);
    array_unref(p->array);
    p->array = turned;
    return ERR_OK;
}

enum err_code import_make(struct import *x, struct import_piece *p, struct err *e)
{
    struct memory_retry retry = {0};
    enum err_code code;
    for (;;) {
        struct upload *u = p->upload;
        p->upload = NULL;
        upload_keep(u);
        code = finish(p, u, e);
        if (code == ERR_OUT_OF_MEMORY && e->wanted)
            p->upload = u; /* not consumed */
        if (code == ERR_OK)
            return p->grid ? describe_grid(x, p, e) : turn(p, e);
        if (!p->upload || !await_memory(x, &retry, e))
            return code;
    }
}

/* All arrays appear at one moment, coordinates first, or none does: what `all` is asked for. */
static enum err_code for_all(struct import *x,
                             enum err_code (*all)(struct handle_space *s,
                                                  const struct handle_new *list, size_t n,
                                                  struct err *e),
                             struct err *e)
{
    const struct handle_guard guard = {lease_guard, x->server->leases};
    struct handle_new *list = arena_alloc_array(x->arena, x->n_pieces, sizeof *list);
    if (!list)
        return err_oom(e);
    for (size_t i = 0; i < x->n_pieces; i++) {
        const struct import_piece *p = &x->pieces[x->n_pieces - 1 - i];
        const bool named = p->name[0];
        list[i] = (struct handle_new){p->array,
                                      {.name = named ? p->name : NULL,
                                       .policy = x->overwrite ? NAME_REPLACE : NAME_NEW,
                                       .id = p->id,
                                       .coordinate = true,
                                       .guard = named && x->overwrite ? &guard : NULL,
                                       .labels = p->labels}};
    }
    return all(x->session->handles, list, x->n_pieces, e);
}

static enum err_code may_publish(struct import *x, struct err *e)
{
    return for_all(x, handle_check_all, e);
}

static enum err_code add_all(struct handle_space *s, const struct handle_new *list, size_t n,
                             struct err *e)
{
    return handle_add_all(s, list, n, NULL, NULL, e);
}

static enum err_code publish(struct import *x, struct err *e)
{
    TRY(import_goes_on(x, e));
    return for_all(x, add_all, e);
}

enum err_code import_take(struct import *x, int file, struct engine_stream *stream,
                          enum err_code (*check)(struct import *x, struct err *e), struct err *e)
{
    struct process_spec spec = files_process(x->server->files, true);
    x->stream = stream;
    x->file = spec.file = file;
    spec.goes_on = goes_on;
    spec.user = x;
    TRY(process_start(&spec, &x->process, e));
    TRY(describe(x->process, x->arena, &x->description, e));
    TRY(import_plan(x, e));
    if (x->task.job)
        job_transfer_at(x->task.job, 0, x->nbytes);
    for (size_t i = 0; i < x->n_pieces; i++) {
        TRY(import_goes_on(x, e));
        TRY(import_labels(x, &x->pieces[i], e));
    }
    TRY(check(x, e));
    for (size_t i = 0; i < x->n_pieces; i++)
        TRY(reserve(x, &x->pieces[i], e));
    for (size_t i = 0; i < x->n_pieces; i++)
        TRY(read_piece(x, &x->pieces[i], e));
    return ERR_OK;
}

static enum err_code work(struct import *x, struct err *e)
{
    struct session_stream *stream;
    struct stat st;
    int file;
    TRY(session_background(x->session, &stream, e));
    TRY(folder_open_file(x->folder, x->task.who->name, x->path, &file, &st, e));
    enum err_code code = import_take(x, file, stream->stream, may_publish, e);
    close(file);
    for (size_t i = 0; i < x->n_pieces && code == ERR_OK; i++)
        code = import_make(x, &x->pieces[i], e);
    return code == ERR_OK ? publish(x, e) : code;
}

static void run(struct file_task *task)
{
    struct import *x = (struct import *)task;
    struct user_job *j = x->task.job;
    struct err e = ERR_INIT;
    enum err_code code = ERR_DEADLINE;
    x->session = job_session(j);
    if (goes_on(x)) {
        job_transfer_begin(j);
        asker_begin(job_asker(j));
        code = work(x, &e);
        asker_begin(NULL);
        memory_explain(x->server->engine, x->server->config->evict, &e);
    }
    import_free(x);
    job_transfer_end(j, code == ERR_OK ? NULL : &e);
}

/* --- the beginning --- */

static enum err_code begin(struct request *req, struct import *x, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    struct json body;
    const struct json_limits limits = request_json_limits(req);
    /* the request and its text may end before the job does */
    TRY(json_parse(x->arena, req->body, req->body_len, &limits, &body, e));
    TRY(import_read(x, body, e));
    TRY(session_of(req, &s, e));
    return files_job(req, s, "import", body, x->folder, x->path, &x->task, e);
}

enum err_code files_import(struct request *req, struct user_job **ret, struct err *e)
{
    struct import *x = mem_calloc(1, sizeof *x);
    if (!x)
        return err_oom(e);
    x->task.run = run;
    enum err_code code = import_init(x, req) ? begin(req, x, e) : err_oom(e);
    if (code == ERR_OK)
        code = files_begin(req->server->files, &x->task, ret, e);
    if (code != ERR_OK)
        import_free(x);
    return code;
}
