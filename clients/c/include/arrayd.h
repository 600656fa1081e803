/*
 * arrayd: a client of the array daemon, in C.
 *
 * A client (struct arrayd) is a base address, a token, a session and one kept-alive connection.
 * Every call below is one request and returns when its reply is there, unless it says otherwise.
 *
 * Threads. There is no global state except libcurl's own, which it initializes once. A client may
 * be used by one thread at a time; several threads can use different clients at the same time.
 *
 * Results. Functions that can fail return 0, or -1 with *err filled; err may be NULL. What a
 * `ret_` argument points to is written only on success, except a caller's memory
 * for array data (arrayd_read, arrayd_evaluate_into), whose contents are unspecified after a
 * failure.
 *
 * Memory. Structures are the caller's and hold no pointers to the library's memory, with four
 * exceptions that say so: struct arrayd (arrayd_close), struct arrayd_list (arrayd_list_free),
 * struct arrayd_export (arrayd_export_end), and text that arrayd_request returns (free). Strings
 * and data that are passed in need to live only during the call.
 *
 * References. `ref` is an array's id or its name; ids hold in every session of a user, names in
 * one. `index` is a region in NumPy's basic indexing ("1:-1, ::2", "3, 4", "..."), NULL the whole
 * array.
 *
 * Data are little-endian, in C order (last axis fastest), without padding; bool is one byte 0 or 1,
 * complex numbers are (re, im), float16 and bfloat16 are 2 raw bytes. Sizes are 64 bits and
 * checked.
 *
 * Retries. None: after 429 and 503, retry_after_s says when to try again. (If a kept-alive
 * connection turns out to be closed, libcurl sends a request without a body once more.)
 */
#ifndef ARRAYD_H
#define ARRAYD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ARRAYD_API __attribute__((visibility("default")))

#define ARRAYD_MAX_RANK 32
#define ARRAYD_MAX_NAME 64 /* characters of a name or id, the ending zero not counted */

/* A client: opaque, made by arrayd_connect. */
struct arrayd;

/*
 * An error. `status` is that of the daemon's reply, and `code` its stable token
 * ("unknown_name", "quota_exceeded", ...; docs/errors.md lists them). With status 0 there was no
 * such reply, and code is one of the library's own:
 *
 * - "connection": the daemon cannot be reached, or the connection ended too early
 *
 * - "timeout": the client's own timeout has passed
 *
 * - "tls": no trusted connection could be made
 *
 * - "bad_argument": the call itself is wrong; nothing was sent
 *
 * - "bad_result": the reply is not what was asked for (its size, its kind, or it is not arrayd's)
 *
 * - "file": the caller's file could not be read or written
 *
 * - "out_of_memory": of this process
 */
struct arrayd_error {
    int status; /* HTTP status of the reply, 0 without one */
    int64_t
        retry_after_s; /* seconds to wait before the next try, -1 where the reply does not say */
    int64_t offset;    /* character in an infix expression, -1 where there is none */
    char code[48];
    char pointer[192]; /* JSON pointer to the offending part of the request, "" where there is none
                        */
    char detail[768];  /* a sentence for a person */
};

/* --- the client --- */

/* All may be left 0. */
struct arrayd_options {
    const char *token;   /* sent as "Authorization: Bearer" */
    const char *session; /* id of the session to work in; NULL: the user's default */
    const char *lease;   /* sent as "Arrayd-Lease": see arrayd_lease_use */
    const char *ca_file; /* PEM file of the authorities trusted with https; NULL: the system's */
    long connect_timeout_ms; /* until a connection is made; 0: 10 seconds */
    long timeout_ms;         /* for a whole request and its reply; 0: as long as it takes */
};

/*
 * Makes a client of the daemon at `url`: "http://HOST:PORT", "https://HOST:PORT", or "unix:PATH"
 * for a Unix socket. options may be NULL. Nothing is sent yet: see arrayd_ping. The client is the
 * caller's: arrayd_close. Errors: bad_argument, out_of_memory.
 */
ARRAYD_API int arrayd_connect(const char *url, const struct arrayd_options *options,
                              struct arrayd **ret_client, struct arrayd_error *err);

/* Closes the connection and frees the client; what it made on the daemon stays. NULL is allowed. */
ARRAYD_API void arrayd_close(struct arrayd *client);

/* Whether the daemon answers, can serve, and knows the token. */
ARRAYD_API int arrayd_ping(struct arrayd *client, struct arrayd_error *err);

/*
 * Any request: method and path ("/v1/info", with its query), a JSON body or NULL. The reply's body,
 * JSON or other text, is *ret_text, ended by a zero, for the caller to free(); ret_text may be
 * NULL. Replies of 400 and above are errors.
 */
ARRAYD_API int arrayd_request(struct arrayd *client, const char *method, const char *path,
                              const char *body, char **ret_text, struct arrayd_error *err);

/* --- sessions --- */

struct arrayd_session {
    char id[ARRAYD_MAX_NAME + 1];
    char name[ARRAYD_MAX_NAME + 1]; /* "" where it has none */
    int device;
    int64_t arrays;
    int64_t bytes_in_use;
};

/* All may be left 0. */
struct arrayd_session_options {
    const char *name;
    double ttl_s;         /* seconds without a request after which it is deleted; 0: never */
    int64_t memory_limit; /* bytes; 0: no limit of its own */
    const int *device;    /* NULL: the one with most free memory */
};

/* Creates a session; the client stays in its current one. options may be NULL. */
ARRAYD_API int arrayd_session_create(struct arrayd *client,
                                     const struct arrayd_session_options *options,
                                     struct arrayd_session *ret_session, struct arrayd_error *err);

/* The client's further requests are of session `id`, or of the default one with NULL. Sends
 * nothing. */
ARRAYD_API int arrayd_session_use(struct arrayd *client, const char *id, struct arrayd_error *err);

/* Deletes a session and releases all its arrays. A client that is in it continues in the default
 * one.
 */
ARRAYD_API int arrayd_session_delete(struct arrayd *client, const char *id,
                                     struct arrayd_error *err);

/* Returns when all work sent so far in session `id` (NULL: the client's) is done. */
ARRAYD_API int arrayd_session_sync(struct arrayd *client, const char *id, struct arrayd_error *err);

/* --- arrays --- */

enum arrayd_dtype {
    ARRAYD_NONE, /* where a type may be left out */
    ARRAYD_BOOL,
    ARRAYD_INT8,
    ARRAYD_INT16,
    ARRAYD_INT32,
    ARRAYD_INT64,
    ARRAYD_UINT8,
    ARRAYD_UINT16,
    ARRAYD_UINT32,
    ARRAYD_UINT64,
    ARRAYD_FLOAT16,
    ARRAYD_BFLOAT16,
    ARRAYD_FLOAT32,
    ARRAYD_FLOAT64,
    ARRAYD_COMPLEX64,
    ARRAYD_COMPLEX128,
};

/* "float32" and so on; "" for ARRAYD_NONE and unknown types. Static. */
ARRAYD_API const char *arrayd_dtype_name(enum arrayd_dtype dtype);

/* Bytes of an element; 0 for ARRAYD_NONE and unknown types. */
ARRAYD_API size_t arrayd_itemsize(enum arrayd_dtype dtype);

/* An array as the daemon described it; it does not follow what happens to the array afterwards. */
struct arrayd_array {
    char id[ARRAYD_MAX_NAME + 1];
    char name[ARRAYD_MAX_NAME + 1]; /* "" where it has none */
    char session[ARRAYD_MAX_NAME + 1];
    char view_of[ARRAYD_MAX_NAME + 1]; /* id of the array it is a view of, or "" */
    char created[40];                  /* RFC 3339 */
    enum arrayd_dtype dtype;
    int rank;
    int64_t shape[ARRAYD_MAX_RANK];
    int64_t strides[ARRAYD_MAX_RANK]; /* in elements */
    int64_t ghost[ARRAYD_MAX_RANK];   /* ghost cells on either side of each axis */
    int64_t offset;                   /* in elements from the start of the buffer */
    int64_t size;                     /* elements */
    int64_t nbytes;                   /* bytes of data, as arrayd_read wants them */
    int64_t itemsize;                 /* bytes of an element */
    int64_t references;
    int device;
    bool read_only;
    bool on_host; /* its contents were moved to the host's memory */
};

/*
 * Makes an array of zeros; name may be NULL. A taken name is 409 "conflict".
 * dtype ARRAYD_NONE is float64.
 */
ARRAYD_API int arrayd_zeros(struct arrayd *client, const char *name, enum arrayd_dtype dtype,
                            int rank, const int64_t *shape, struct arrayd_array *ret_array,
                            struct arrayd_error *err);

/* As arrayd_zeros, every element being `value`, which must fit the type. */
ARRAYD_API int arrayd_fill(struct arrayd *client, const char *name, enum arrayd_dtype dtype,
                           int rank, const int64_t *shape, double value,
                           struct arrayd_array *ret_array, struct arrayd_error *err);

/*
 * Makes an array of the caller's memory, which is sent from where it lies. nbytes must be what
 * dtype and shape say, else nothing is sent (bad_argument).
 */
ARRAYD_API int arrayd_upload(struct arrayd *client, const char *name, enum arrayd_dtype dtype,
                             int rank, const int64_t *shape, const void *data, size_t nbytes,
                             struct arrayd_array *ret_array, struct arrayd_error *err);

/* As arrayd_upload; an array of that name is replaced. name must be given. */
ARRAYD_API int arrayd_replace(struct arrayd *client, const char *name, enum arrayd_dtype dtype,
                              int rank, const int64_t *shape, const void *data, size_t nbytes,
                              struct arrayd_array *ret_array, struct arrayd_error *err);

/* Makes zeros with another array's shape, type, ghosts, boundary and spacing. name may be NULL. */
ARRAYD_API int arrayd_like(struct arrayd *client, const char *ref, const char *name,
                           struct arrayd_array *ret_array, struct arrayd_error *err);

/*
 * Makes an array by any creator of POST /v1/arrays, whose body is `json`: for example
 *   {"name": "x", "linspace": {"start": 0, "stop": 1, "num": 11}}
 *   {"arange": {"stop": 10}}
 *   {"shape": [3, 4], "random": {"distribution": "normal", "seed": 1}}
 */
ARRAYD_API int arrayd_create(struct arrayd *client, const char *json,
                             struct arrayd_array *ret_array, struct arrayd_error *err);

/* A view of a region: another array on the same memory. index NULL: another reference. */
ARRAYD_API int arrayd_view(struct arrayd *client, const char *ref, const char *index,
                           const char *name, struct arrayd_array *ret_array,
                           struct arrayd_error *err);

/* A deep copy. name may be NULL. */
ARRAYD_API int arrayd_copy(struct arrayd *client, const char *ref, const char *name,
                           struct arrayd_array *ret_array, struct arrayd_error *err);

/* Looks an array up. */
ARRAYD_API int arrayd_find(struct arrayd *client, const char *ref, struct arrayd_array *ret_array,
                           struct arrayd_error *err);

/* A page of the session's arrays, in the order they were made. */
struct arrayd_list {
    struct arrayd_array *arrays; /* the library's memory: arrayd_list_free */
    size_t count;
    char next[ARRAYD_MAX_NAME + 1]; /* where the next page begins; "" on the last one */
};

/*
 * Lists arrays, up to `limit` of them (1 to 1,000; 0: 100), after those that `after` tells: NULL or
 * "" for the first page, then the page's `next`.
 */
ARRAYD_API int arrayd_list(struct arrayd *client, const char *after, int limit,
                           struct arrayd_list *ret_list, struct arrayd_error *err);

/* Frees a page's arrays. */
ARRAYD_API void arrayd_list_free(struct arrayd_list *list);

/* Lets go of an array; its memory returns when views and work in flight have ended, too. */
ARRAYD_API int arrayd_delete(struct arrayd *client, const char *ref, struct arrayd_error *err);

/* Gives an array another name. */
ARRAYD_API int arrayd_rename(struct arrayd *client, const char *ref, const char *name,
                             struct arrayd_error *err);

/* Refuses writes to an array and its deletion (409 "read_only"), or allows them again. */
ARRAYD_API int arrayd_set_read_only(struct arrayd *client, const char *ref, bool read_only,
                                    struct arrayd_error *err);

/*
 * Changes what PATCH /v1/arrays/{ref} can change, whose body is `json`: for example
 *   {"boundary": ["periodic"], "spacing": [0.5]}
 *   {"dims": ["lat", "lon"], "units": "K", "attrs": {"source": "station 12"}}
 * Attributes, names of axes, units and coordinates are not in struct arrayd_array: arrayd_request
 * with "GET" has them.
 */
ARRAYD_API int arrayd_patch(struct arrayd *client, const char *ref, const char *json,
                            struct arrayd_array *ret_array, struct arrayd_error *err);

/* Any view of POST /v1/arrays/{ref}/views, whose body is `json`: {"index": "1:", "permute": [1, 0]}
 */
ARRAYD_API int arrayd_view_json(struct arrayd *client, const char *ref, const char *json,
                                struct arrayd_array *ret_array, struct arrayd_error *err);

/*
 * Changes the shape. The data stay if the number of elements does; otherwise the array gets new,
 * zeroed memory. While it has views this is 409 "conflict".
 */
ARRAYD_API int arrayd_resize(struct arrayd *client, const char *ref, int rank, const int64_t *shape,
                             struct arrayd_array *ret_array, struct arrayd_error *err);

/* Exchanges the memory of two arrays of one type, shape and layout, else 409 "conflict". */
ARRAYD_API int arrayd_swap(struct arrayd *client, const char *ref, const char *with,
                           struct arrayd_error *err);

/* Moves the contents to host memory, or back to the device; returns when they are there. */
ARRAYD_API int arrayd_set_on_host(struct arrayd *client, const char *ref, bool on_host,
                                  struct arrayd_error *err);

/* Fills an array's ghost cells from its boundary. arrayd_create makes arrays with ghost cells. */
ARRAYD_API int arrayd_fill_ghost(struct arrayd *client, const char *ref, struct arrayd_error *err);

/*
 * Finds extents that fit `count` shapes of one rank: arrays that are created with them as "padded"
 * have the same strides. `shapes` and `ghosts` (NULL: none) have count*rank numbers, those of the
 * first array first; `ret_padded` gets rank numbers.
 */
ARRAYD_API int arrayd_layout(struct arrayd *client, size_t count, int rank, const int64_t *shapes,
                             const int64_t *ghosts, int64_t *ret_padded, struct arrayd_error *err);

/* --- data --- */

/*
 * Reads an array or a region of it into the caller's memory. nbytes must be the size of what is
 * read, to the byte: anything else is bad_result before a byte is written.
 */
ARRAYD_API int arrayd_read(struct arrayd *client, const char *ref, const char *index, void *data,
                           size_t nbytes, struct arrayd_error *err);

/*
 * Writes an array or a region of it from the caller's memory, which is sent from where it lies;
 * another size than the region's is 422 "length_mismatch". An upload that is cut off leaves the old
 * contents.
 */
ARRAYD_API int arrayd_write(struct arrayd *client, const char *ref, const char *index,
                            const void *data, size_t nbytes, struct arrayd_error *err);

/*
 * As arrayd_read and arrayd_write, but with ghost cells: an index counts from the interior's first
 * cell, so that -1 is the ghost cell before it, and an open end includes the ghost cells.
 */
ARRAYD_API int arrayd_read_ghost(struct arrayd *client, const char *ref, const char *index,
                                 void *data, size_t nbytes, struct arrayd_error *err);
ARRAYD_API int arrayd_write_ghost(struct arrayd *client, const char *ref, const char *index,
                                  const void *data, size_t nbytes, struct arrayd_error *err);

/*
 * Makes an array of an .npy file (versions 1 to 3), read from where `file` stands to its end. It
 * may be a pipe. The file stays open. name may be NULL; a taken one is 409 "conflict".
 */
ARRAYD_API int arrayd_load_npy(struct arrayd *client, const char *name, FILE *file,
                               struct arrayd_array *ret_array, struct arrayd_error *err);

/* Writes an array or a region of it to `file` as .npy. The file stays open, and is flushed. */
ARRAYD_API int arrayd_save_npy(struct arrayd *client, const char *ref, const char *index,
                               FILE *file, struct arrayd_error *err);

/* As arrayd_load_npy, of the file at `path`. */
ARRAYD_API int arrayd_load_npy_path(struct arrayd *client, const char *name, const char *path,
                                    struct arrayd_array *ret_array, struct arrayd_error *err);

/*
 * As arrayd_save_npy, to the file at `path`: written beside it under a name of its own that
 * ends in .part, and renamed when it is complete, so that what was there before stays where this
 * fails.
 */
ARRAYD_API int arrayd_save_npy_path(struct arrayd *client, const char *ref, const char *index,
                                    const char *path, struct arrayd_error *err);

/* --- evaluation --- */

/*
 * What a name in an expression means: an array, or a number. Numbers are weak (they take the type
 * of the arrays they meet), except integers beyond +-2^53, which are int64. Names that are not
 * bound are the session's arrays.
 */
struct arrayd_bind {
    const char *name;
    const char *ref; /* an array; NULL: a number */
    bool is_int;     /* which of the two numbers it is */
    int64_t integer;
    double real; /* also NaN and the infinities */
};

static inline struct arrayd_bind arrayd_bind_array(const char *name, const char *ref)
{
    struct arrayd_bind bind = {name, ref, false, 0, 0};
    return bind;
}

static inline struct arrayd_bind arrayd_bind_double(const char *name, double value)
{
    struct arrayd_bind bind = {name, NULL, false, 0, value};
    return bind;
}

static inline struct arrayd_bind arrayd_bind_int(const char *name, int64_t value)
{
    struct arrayd_bind bind = {name, NULL, true, value, 0};
    return bind;
}

/* An expression to be evaluated; all but `expr` may be left 0. */
struct arrayd_expr {
    const char *expr; /* infix, in Python's syntax: docs/expressions.md */
    const struct arrayd_bind *binds;
    size_t bind_count;
    const char *name;        /* of the new array */
    const char *out;         /* an array that takes the result instead of a new one */
    const char *index;       /* the region of `out` that is written */
    enum arrayd_dtype dtype; /* the result is cast to it */
    bool fast_math;
};

/* A single number. */
struct arrayd_scalar {
    enum arrayd_dtype dtype;
    double re;       /* the value as a double, whatever its type (bool: 0 or 1) */
    double im;       /* 0 unless the type is complex */
    int64_t integer; /* exact for bool and integers (uint64: its bits), else 0 */
};

/*
 * Evaluates into a new array, or into `out`. The reply does not wait for the work; later
 * requests that use the result do. *ret_array (which may be NULL) is the result. A single number
 * without `name` or `out` creates no array, and its id is "": use arrayd_evaluate_scalar. Errors
 * have their place: err->pointer "/expr", err->offset the character.
 */
ARRAYD_API int arrayd_evaluate(struct arrayd *client, const struct arrayd_expr *expr,
                               struct arrayd_array *ret_array, struct arrayd_error *err);

/* Evaluates to a single number and waits for it. A result of another shape is bad_result. */
ARRAYD_API int arrayd_evaluate_scalar(struct arrayd *client, const struct arrayd_expr *expr,
                                      struct arrayd_scalar *ret_scalar, struct arrayd_error *err);

/*
 * Evaluates into the caller's memory; no array is made. nbytes must be the size of the result, to
 * the byte: anything else is bad_result before a byte is written.
 */
ARRAYD_API int arrayd_evaluate_into(struct arrayd *client, const struct arrayd_expr *expr,
                                    void *data, size_t nbytes, struct arrayd_error *err);

/* What a name holds after the last statement. */
struct arrayd_result {
    const char *name;          /* the caller's: which one is asked for */
    bool is_array;             /* else a single number */
    struct arrayd_array array; /* the new array that holds it */
    struct arrayd_scalar scalar;
};

/* Statements that are run as one step; all but the first two may be left 0. */
struct arrayd_statements {
    const char *const *statements; /* "t = u + v", "v[1:-1] = t[1:-1]": docs/programs.md */
    size_t count;
    const struct arrayd_bind *binds;
    size_t bind_count;
    bool fast_math;
};

/*
 * Runs statements, all or none of them. For each of `results`, whose names the caller has set, the
 * value is filled in. Waits for the work. Mistakes have their place: err->pointer "/statements/1",
 * err->offset.
 */
ARRAYD_API int arrayd_run_statements(struct arrayd *client,
                                     const struct arrayd_statements *statements,
                                     struct arrayd_result *results, size_t result_count,
                                     struct arrayd_error *err);

/* Defines a function of the session, for expressions to call, or defines it anew. */
ARRAYD_API int arrayd_function_define(struct arrayd *client, const char *name,
                                      const char *const *params, size_t param_count,
                                      const char *expr, struct arrayd_error *err);

/* Forgets a function. */
ARRAYD_API int arrayd_function_delete(struct arrayd *client, const char *name,
                                      struct arrayd_error *err);

/* --- programs --- */

/* A name and what it stands for. */
struct arrayd_pair {
    const char *name;
    const char *expr;
};

/* A loop that runs on the daemon: docs/programs.md. All but `body`, `body_count` and `steps` may be
 * 0. */
struct arrayd_program {
    const char *const *body; /* statements of a step */
    size_t body_count;
    int64_t steps;
    const struct arrayd_bind *binds;
    size_t bind_count;
    const struct arrayd_pair *records; /* numbers that are recorded: name and expression */
    size_t record_count;
    int64_t record_every; /* steps; 0: each */
    const char *until;    /* ends after the step at which it is true */
    int64_t until_every;  /* steps; 0: each */
    bool stop_on_nan;
    bool fast_math;
};

enum arrayd_state {
    ARRAYD_QUEUED,
    ARRAYD_RUNNING,
    ARRAYD_DONE,
    ARRAYD_FAILED,
    ARRAYD_CANCELLED,
};

/* A job as it was when the daemon was asked. */
struct arrayd_job {
    char id[ARRAYD_MAX_NAME + 1];
    enum arrayd_state state;
    int64_t step; /* whole steps that the arrays have seen */
    int64_t steps;
    double steps_per_s;
    double eta_s;     /* seconds that are left, -1 where that is not known */
    double elapsed_s; /* since it was begun, without rests */
    double device_s;  /* seconds that the device worked for it */
    bool stopped_by_until;
    int64_t failed_step;       /* -1 where none failed */
    int64_t failed_statement;  /* its place in the body, -1 where it is not known */
    struct arrayd_error error; /* of a failed job; else its code is "" */
};

/* Starts a program; the reply comes at once. */
ARRAYD_API int arrayd_program_start(struct arrayd *client, const struct arrayd_program *program,
                                    struct arrayd_job *ret_job, struct arrayd_error *err);

/* Starts a program whose whole body, with everything POST /v1/programs knows, is `json`. */
ARRAYD_API int arrayd_program_start_json(struct arrayd *client, const char *json,
                                         struct arrayd_job *ret_job, struct arrayd_error *err);

/* The current state of a job. */
ARRAYD_API int arrayd_job_poll(struct arrayd *client, const char *id, struct arrayd_job *ret_job,
                               struct arrayd_error *err);

/*
 * Waits until the job has ended, at most `timeout_s` seconds, or without limit if that is
 * negative. It is not an error if the job has not ended by then: check its state. The client's
 * timeout_ms also applies.
 */
ARRAYD_API int arrayd_job_wait(struct arrayd *client, const char *id, double timeout_s,
                               struct arrayd_job *ret_job, struct arrayd_error *err);

/*
 * The values that a job has recorded under `name`, from value number `from` on: up to `capacity` of
 * them are written to `values`, and their count to *ret_count. Value k is that after step (k +
 * 1)*record_every. Values that the daemon does not keep any more, and names that nothing records,
 * are bad_result.
 */
ARRAYD_API int arrayd_job_records(struct arrayd *client, const char *id, const char *name,
                                  int64_t from, double *values, size_t capacity, size_t *ret_count,
                                  struct arrayd_error *err);

/* Stops a job between two steps; one that has ended is forgotten. */
ARRAYD_API int arrayd_job_cancel(struct arrayd *client, const char *id, struct arrayd_error *err);

/* Goes on with a job that was cancelled or has failed, from its last whole step. */
ARRAYD_API int arrayd_job_resume(struct arrayd *client, const char *id, struct arrayd_job *ret_job,
                                 struct arrayd_error *err);

/* True for the three states a job ends in. */
static inline bool arrayd_job_ended(const struct arrayd_job *job)
{
    return job->state != ARRAYD_QUEUED && job->state != ARRAYD_RUNNING;
}

#ifdef __cplusplus
}
#endif

#include <arrayd_access.h> /* leases, shares, exports, links, what operators do */
#include <arrayd_events.h> /* changes of arrays and of the lists, frames */
#include <arrayd_files.h>  /* files of the daemon's machine */
#include <arrayd_looks.h>  /* figures, pictures */

#endif
