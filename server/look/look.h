/* A look at an array: an expression of our own over it, whose small result is fetched into the
 * request's memory.
 *
 * Called by summary*.c and picture*.c. It is computed like a client's expression, by the same plans
 * and kernels, for the request's session and charged to its account, but on the array's own device,
 * whichever the session works on. A look is the first
 * member of the request's state; used by the thread that works on the request, after a wait a
 * worker. */
#ifndef ARRAYD_SERVER_LOOK_H
#define ARRAYD_SERVER_LOOK_H

#include "compute/base/meter.h"
#include "compute/check/check.h"
#include "compute/engine/engine.h"
#include "server/http/http.h"
#include "server/http/wakeup.h"
#include "server/store/handles.h"
#include "server/store/session.h"

#define LOOK_NAMES 6

struct look {
    struct request *req;
    struct session *session; /* a reference; it works on the device of what is looked at */
    const struct handle *of; /* the array that is looked at: may it still be read? NULL: nobody's */
    struct {
        const char *name;
        struct array *array; /* a reference */
    } names[LOOK_NAMES];
    size_t n_names;

    /* the result, once `then` is called and until the next look_run or look_free */
    enum dtype dtype;
    struct view view; /* contiguous */
    unsigned char *bytes;
    size_t n;
    struct metered counted; /* the bytes */

    struct expr expr;
    struct check_env env;
    struct wakeup wakeup;
    struct download *download;
    size_t have;
    bool waited;
    enum err_code failed;                       /* in look_let */
    const struct array *unmeasured[LOOK_NAMES]; /* look_measure */
    size_t n_unmeasured;
    void (*then)(struct look *l);
};

/* The array that the path names and the request's session as it works on that array's device
 * (session_on). Errors as request_array, and ERR_OUT_OF_MEMORY. */
enum err_code look_array(struct request *req, struct session **ret_s, struct handle *ret_h,
                         struct err *e) must_check;
/* Waits for the turn of that session's stream. False: the request continues in `again` when it
 * comes, or has its reply. An array that cannot be had is the caller's to report. */
bool look_turn(struct request *req, handler_fn *again);

void look_init(struct look *l, struct request *req, struct session *take_s);
/* What a name means in the expressions; the name is static, the array's reference is taken. */
void look_name(struct look *l, const char *name, struct array *take_a);
/* A new array of the integers 0 … n − 1 under that name. */
enum err_code look_count(struct look *l, const char *name, int64_t n, struct err *e) must_check;

/* Forgets the expression, so that another can be written; the names stay. */
void look_clear(struct look *l);
/* Defines `name` as an infix expression, for those written later. */
void look_let(struct look *l, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Computes the infix expression and fetches the result, then calls `then`, which must cause the
 * reply or run another; perhaps before it returns, as its last action. Errors become the reply.
 * What look_let could not define is an error here, and so is a NULL text (no memory). */
void look_run(struct look *l, const char *text, void (*then)(struct look *l));
/* The elements that ?index= and ?ghost= select of an array. ERR_BAD_FIELD, index_parse's and
 * view_index's errors. */
enum err_code look_region(struct request *req, const struct array *a, struct view *ret,
                          struct err *e) must_check;
/* Computes the infix expression into an array of that name, without waiting. */
enum err_code look_keep(struct look *l, const char *name, const char *text,
                        struct err *e) must_check;
/* The next result is computed from the array, and its own device time belongs to the request's. The
 * array must live until then; at most LOOK_NAMES of them. */
void look_measure(struct look *l, const struct array *a);
/* Releases all but the arena's memory; may be called twice. Part of the request's state_free. */
void look_free(struct look *l);

#endif
