/* The sink of an upload, shared by its two files: data_upload.c takes the body's bytes,
 * data_publish.c makes them the contents of an array when the body has ended. A sink lives in its
 * request's arena, and one thread at a time works on it. */
#ifndef ARRAYD_SERVER_DATA_SINK_H
#define ARRAYD_SERVER_DATA_SINK_H

#include "protocol/json/json_array.h"
#include "protocol/wire/npy.h"
#include "server/body/data.h"
#include "server/http/wakeup.h"

struct upload_sink {
    struct http_sink sink; /* first: http.c knows the object by it */
    struct request *req;
    struct wakeup wakeup;
    void *caller_state; /* req->state while the sink waits in its place */
    void (*caller_state_free)(void *state);
    struct engine_stream *stream;
    struct account *account;
    data_created *created;   /* a new array, or: */
    struct session *session; /* a region of target's array (a reference each) */
    struct handle target;
    struct view region;

    enum data_format format;
    bool typed, shaped; /* dtype, shape are known beforehand */
    enum dtype dtype;
    int rank;
    const int64_t *shape;
    bool fortran, swap;
    unsigned char head[NPY_MAGIC_LEN]; /* DATA_SNIFF: the first bytes */
    size_t n_head;
    struct npy_reader npy;
    struct npy_header header;
    struct json_array *json;
    struct json_array_data elements; /* from JSON; the sink owns the data until they are pushed */
    struct data_staging staging;

    struct upload *upload;  /* once the length is known and there is room */
    bool waits;             /* for that room; see sink_begin */
    int64_t before;         /* bytes of the body before the data */
    int64_t taken;          /* bytes of the body so far */
    int64_t nbytes, got;    /* of the data */
    unsigned char *stage;   /* [pos, ready) is to be pushed, [ready, len) is part of an element */
    size_t pos, ready, len; /* into stage */
    _Atomic bool ending;
    bool failed;
    struct err err;
};

/* --- data_upload.c --- */

/* Called when dtype and shape are known, and `before` bytes of the body came before the data. If
 * the device is full and room can be made for it, the sink waits. */
enum err_code sink_begin(struct upload_sink *s, int64_t before, struct err *e) must_check;
/* Whether the sink need not wait any more: there is room, or it has failed. */
bool sink_has_memory(struct upload_sink *s);
/* The first bytes are not a .npy header: takes them as data. */
void sink_take_head(struct upload_sink *s);
/* Pushes the stage's complete elements; false if the engine has no room now. */
bool sink_flush(struct upload_sink *s);
void sink_fail(struct upload_sink *s, const struct err *e);
enum err_code sink_length_error(const struct upload_sink *s, int64_t is, bool at_least,
                                struct err *e);

/* --- data_publish.c --- */

void sink_end(struct http_sink *sink, struct request *req);
/* Releases everything it has; the sink must not be used afterwards. */
void sink_release(struct upload_sink *s);
void sink_reply_failed(struct upload_sink *s, const struct err *e);

#endif
