/* The end of an upload: the body is complete and becomes the contents of an array. See
 * data_upload.c. */
#include "server/body/data_sink.h"
#include "server/body/request.h"

#include "compute/base/mem.h"
#include "server/body/condition.h"
#include "server/work/memory_pressure.h"

#define OFFLOAD_COPY_SIZE (1 << 20)
#define COPY_PIECE        (1 << 18) /* far less than a slice of work */

void sink_release(struct upload_sink *s)
{
    if (s->upload)
        upload_abort(s->upload);
    s->upload = NULL;
    npy_reader_free(&s->npy);
    json_array_free(s->json);
    s->json = NULL;
    mem_free(s->elements.data);
    s->elements.data = NULL;
    handle_clear(&s->target);
    session_unref(s->session);
    s->session = NULL;
}

void sink_reply_failed(struct upload_sink *s, const struct err *e)
{
    struct err copy = *e; /* it may be in the sink */
    sink_release(s);
    http_reply_error(s->req, &copy);
}

/* Writes the staged bytes, if the request's condition holds. If it names tags, the write itself
 * checks the version that they were compared with. */
static enum err_code publish(struct request *req, struct upload *take_u, struct array *a,
                             const struct view *region, bool fortran, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct condition condition = condition_of(req);
    uint64_t version = array_version(a);
    enum err_code code = condition_check(&condition, a, region, e);
    code = code != ERR_OK ? code : request_leased(req, a, LEASE_WRITE, e);
    if (code != ERR_OK) {
        upload_abort(take_u);
        return code;
    }
    if (condition_names_tags(&condition))
        upload_expect(take_u, version);
    return upload_finish_into(take_u, a, region, fortran, request_work_done, NULL, e);
}

enum err_code data_write(struct request *req, struct session *s, const struct handle *target,
                         const struct view *region, struct upload *take_u, bool fortran,
                         struct err *e)
{
    /* The handle may have changed during the upload. */
    _cleanup_handle_ struct handle now = {0};
    enum err_code code = request_find(req, s, target->id, &now, e);
    if (code == ERR_OK)
        code = handle_writable(&now, e);
    if (code == ERR_OK && !array_same_elements(now.array, target->array))
        code = err_set(e, ERR_CONFLICT, "the array was resized during the upload");
    if (code == ERR_OK)
        return publish(req, take_u, now.array, region, fortran, e);
    upload_abort(take_u);
    return code;
}

/* Lets the request wait for the sink: its state is the sink until return_state. */
static void borrow_state(struct upload_sink *s)
{
    struct request *req = s->req;
    s->caller_state = req->state;
    s->caller_state_free = req->state_free;
    req->state = s;
    req->state_free = NULL;
}

static void return_state(struct upload_sink *s)
{
    s->req->state = s->caller_state;
    s->req->state_free = s->caller_state_free;
}

static void finish(struct upload_sink *s);

/* Everything has been pushed. */
static enum err_code create(struct upload_sink *s, struct upload *take_u, struct array **ret,
                            struct err *e)
{
    return upload_finish_new(take_u, s->dtype, s->rank, s->shape, s->fortran, ret, e);
}

static enum err_code overwrite(struct upload_sink *s, struct upload *take_u, struct err *e)
{
    return data_write(s->req, s->session, &s->target, &s->region, take_u, s->fortran, e);
}

static void finish_again(struct request *req)
{
    struct upload_sink *s = req->state;
    return_state(s);
    finish(s);
}

static void finish(struct upload_sink *s)
{
    struct request *req = s->req;
    struct err e = ERR_INIT;
    struct upload *u = s->upload;
    struct array *a = NULL;
    uint64_t begun = clock_ns();
    s->upload = NULL;
    upload_keep(u);
    enum err_code code = s->created ? create(s, u, &a, &e) : overwrite(s, u, &e);
    http_took(&req->t_copy, begun);
    if (code == ERR_OUT_OF_MEMORY && e.wanted)
        s->upload = u; /* not consumed */
    if (s->upload && memory_pressure_retry(req, &e, finish_again)) {
        borrow_state(s);
        return;
    }
    if (code != ERR_OK) {
        sink_reply_failed(s, &e);
        return;
    }
    data_created *created = s->created;
    sink_release(s);
    if (created)
        created(req, a);
    else
        http_reply_empty(req, 204);
}

bool data_stage(struct data_staging *s, handler_fn *again)
{
    uint64_t begun = clock_ns();
    bool over = false;
    while (s->pushed < s->n && !over) {
        wakeup_arm(s->wakeup);
        size_t left = s->n - s->pushed, took = upload_push(s->upload, s->from + s->pushed,
                                                           left < COPY_PIECE ? left : COPY_PIECE);
        if (!took) {
            http_took(&s->req->t_copy, begun);
            wakeup_wait(s->wakeup, again);
            return false;
        }
        s->pushed += took;
        over = http_slice_over(&begun);
    }
    http_took(&s->req->t_copy, begun);
    if (s->pushed < s->n)
        http_offload_long(s->req, again);
    return s->pushed == s->n;
}

/* Pushes the JSON's elements; the request continues here after a wait. */
static void push_elements(struct request *req)
{
    struct upload_sink *s = req->state;
    if (!data_stage(&s->staging, push_elements))
        return;
    return_state(s);
    finish(s);
}

/* The rest of the stage may have to wait for room. */
static void push_stage(struct request *req)
{
    struct upload_sink *s = req->state;
    wakeup_arm(&s->wakeup);
    if (!sink_flush(s)) {
        wakeup_wait(&s->wakeup, push_stage);
        return;
    }
    return_state(s);
    finish(s);
}

/* Whether the list's shape is the region's. Nested lists cannot spell what comes after an extent of
 * 0: [] is (0,), and stands for (0, 3) too. */
static bool json_shape_fits(const struct upload_sink *s)
{
    const struct json_array_data *d = &s->elements;
    if (d->rank > s->rank || (d->rank < s->rank && (!d->rank || d->shape[d->rank - 1] != 0)))
        return false;
    for (int k = 0; k < d->rank; k++)
        if (d->shape[k] != s->shape[k])
            return false;
    return true;
}

/* Takes the JSON's elements when the body is complete. */
static enum err_code read_elements(struct upload_sink *s, struct err *e)
{
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    TRY(json_array_finish(s->json, e));
    TRY(json_array_take(s->json, -1, &s->elements, e));
    if (!json_shape_fits(s))
        return err_set(e, ERR_SHAPE_MISMATCH, "the data has shape %s, but %s is expected",
                       shape_text(s->elements.rank, s->elements.shape, have, sizeof have),
                       shape_text(s->rank, s->shape, want, sizeof want));
    return sink_begin(s, 0, e);
}

static void begin_elements(struct upload_sink *s)
{
    s->staging = (struct data_staging){
        .req = s->req,
        .wakeup = &s->wakeup,
        .upload = s->upload,
        .from = s->elements.data,
        .n = (size_t)s->nbytes,
    };
    if (s->nbytes > OFFLOAD_COPY_SIZE)
        http_offload_long(s->req, push_elements);
    else
        push_elements(s->req);
}

static enum err_code check_end(const struct upload_sink *s, struct err *e)
{
    if (s->format != DATA_JSON && !s->upload)
        return err_set(e, ERR_BAD_NPY, "the body ends inside the .npy header");
    if (s->format != DATA_JSON && s->got != s->nbytes)
        return sink_length_error(s, s->got, false, e);
    return ERR_OK;
}

/* From here on the request waits for the sink: for room on the device, for staging memory. */
static void end_body(struct request *req)
{
    struct upload_sink *s = req->state;
    struct err e = ERR_INIT;
    wakeup_arm(&s->wakeup);
    if (!sink_has_memory(s)) {
        wakeup_wait(&s->wakeup, end_body);
        return;
    }
    if (!s->failed && check_end(s, &e))
        sink_fail(s, &e);
    if (s->failed) {
        return_state(s);
        sink_reply_failed(s, &s->err);
    } else if (s->format == DATA_JSON) {
        begin_elements(s);
    } else {
        push_stage(req);
    }
}

void sink_end(struct http_sink *sink, struct request *req)
{
    struct upload_sink *s = (struct upload_sink *)sink;
    struct err e = ERR_INIT;
    atomic_store(&s->ending, true);
    if (!s->failed && s->format == DATA_SNIFF)
        sink_take_head(s); /* shorter than the magic */
    else if (!s->failed && s->format == DATA_JSON && read_elements(s, &e))
        sink_fail(s, &e);
    borrow_state(s);
    end_body(req);
}
