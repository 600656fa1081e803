/*
 * What the daemon tells by itself: changes of an array, frames of its picture, changes of the lists
 * of arrays and jobs. arrayd.h, which includes this, has what holds of all functions.
 *
 * A call returns when there is nothing more to be told: 0 when the array, or the session, is gone,
 * or when `take`, which it calls in the same thread for each event, has returned false. What `take`
 * is given it has until it returns. It must not use the client that listens; another one can.
 *
 * A stream that is cut is -1 with "connection", also when the daemon stops; one that the client's
 * timeout_ms is over for, "timeout". The call can then be made again.
 */
#ifndef ARRAYD_EVENTS_H
#define ARRAYD_EVENTS_H

#include <arrayd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct arrayd_picture; /* arrayd_looks.h */

/* How one listens; zero at first. A call that is given it again goes on behind the last event. */
struct arrayd_watch {
    double interval_s; /* seconds between two events, at least; 0: the daemon's least */
    char last[80];     /* the library's */
};

/*
 * Tells an array, now and whenever its contents or what is known of it have changed. watch may be
 * NULL. Errors: 404 "not_found" when it is no longer shared, 401 "unauthorized" when the login
 * ends.
 */
ARRAYD_API int arrayd_changes(struct arrayd *client, const char *ref, struct arrayd_watch *watch,
                              bool (*take)(void *user, const struct arrayd_array *array),
                              void *user, struct arrayd_error *err);

/* A picture, and the values of its first and its last colour. */
struct arrayd_frame {
    const void *png;
    size_t size;
    double range[2];
};

/*
 * Tells pictures of an array, now and whenever its contents have changed; how and watch may be
 * NULL. The daemon makes one when the last has been read. One that cannot be made is an error, too.
 */
ARRAYD_API int arrayd_frames(struct arrayd *client, const char *ref,
                             const struct arrayd_picture *how, struct arrayd_watch *watch,
                             bool (*take)(void *user, const struct arrayd_frame *frame), void *user,
                             struct arrayd_error *err);

/* What is new in one of the two lists; what is of the other is empty. */
struct arrayd_news {
    const struct arrayd_array *arrays; /* new ones, and those of which not the contents alone are */
    size_t array_count;
    const char *const *written; /* ids of other arrays whose contents are */
    size_t written_count;
    const struct arrayd_job *jobs; /* new ones and others */
    size_t job_count;
    const char *const *gone; /* ids of those that are no longer there */
    size_t gone_count;
    bool first; /* the first of its list, which begins with all there is, after a cut again */
    bool more;  /* more of what there is at first is to come */
};

/* Tells what changes in the lists of the session's arrays and the user's jobs. watch may be NULL.
 */
ARRAYD_API int arrayd_list_changes(struct arrayd *client, struct arrayd_watch *watch,
                                   bool (*take)(void *user, const struct arrayd_news *news),
                                   void *user, struct arrayd_error *err);

#ifdef __cplusplus
}
#endif
#endif
