/* Fair time on a device: who may give it work now, and who waits for his turn.
 *
 * Weighted fair queueing over measured device time. Whoever has work for a device asks for a turn,
 * holds it until the work has been submitted or is done, and leaves it; what the work then took is
 * charged to its user. Users who want more than there is get it in the proportion of their weights;
 * one who asks seldom finds his turn at once, however much others have waiting.
 *
 * handlers ask through server/work/device_turn.h, jobs.c for each slice; session.c makes a lane for
 * each stream, through which the engine tells what its work took. Thread-safe. Times are
 * milliseconds of device time unless they say otherwise. */
#ifndef ARRAYD_SERVER_SCHEDULER_H
#define ARRAYD_SERVER_SCHEDULER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/engine/engine.h"

struct sched;
struct sched_lane; /* of one stream: reference-counted */

struct sched_config {
    int n_devices;
    bool side_by_side;   /* work of several streams runs so: a device has room for more than one */
    double window;       /* work that a session may have on a device; see scheduler.c */
    int64_t max_waiting; /* turns of a user that wait */
    int64_t max_waiting_all;    /* of all users */
    uint64_t (*clock_ns)(void); /* NULL: the monotonic clock; else see sched_look */
};

enum err_code sched_new(const struct sched_config *config, struct sched **ret,
                        struct err *e) must_check;
/* From now on every turn comes at once, and so do those that are waited for. */
void sched_open(struct sched *s);
/* Gives turns that have become due as time went by. Who has a clock of his own calls it as that
 * goes on; else the scheduler does, each millisecond. */
void sched_look(struct sched *s);
void sched_free(struct sched *s); /* NULL allowed; lanes may still be there, asks may not */

/* weight: of the user, who is known by its address; read while somebody asks. ERR_OUT_OF_MEMORY. */
enum err_code sched_lane_new(struct sched *s, const _Atomic uint32_t *weight, int device,
                             struct sched_lane **ret, struct err *e) must_check;
/* For engine_stream_watch, with the lane's reference that goes with the stream as its user: what
 * the stream's work takes. */
extern const struct work_watch sched_watch;
struct sched_lane *sched_lane_ref(struct sched_lane *l); /* returns l */
void sched_lane_unref(struct sched_lane *l);             /* NULL allowed */
/* Turns of it are out, or waited for, or its stream has work that is not done. */
bool sched_lane_is_busy(const struct sched_lane *l);

/* Belongs to who asks: zeroed, with come and user set, before the first ask. */
struct sched_turn {
    /* The turn has come: any thread; must neither block nor call this module. */
    void (*come)(void *user);
    void *user;
    bool sure; /* it is never refused */
    /* the scheduler's own */
    struct sched_lane *lane; /* a reference; NULL: neither asked for nor held */
    bool held;
    double ms;
    uint64_t asked_ns;
    struct sched_turn *prev, *next;
};

/* *ret_now: whether the turn is there; else come() tells, once. ms: what the work is going to take;
 * 0: as the lane's did lately. ERR_QUOTA: too many of the user's wait already; ERR_OVERLOADED: too
 * many of all; the turn is as it was then. */
enum err_code sched_ask(struct sched_lane *l, double ms, struct sched_turn *t, bool *ret_now,
                        struct err *e) must_check;
bool sched_held(struct sched *s, const struct sched_turn *t);
/* Neither waits nor holds: come() is not told from here on. No harm where it never asked. */
void sched_leave(struct sched *s, struct sched_turn *t);

struct sched_counts {
    int64_t waiting;        /* turns waited for now */
    uint64_t turns, waited; /* that came, and those among them that had to be waited for */
    double waited_s;        /* seconds that these waited in all */
};
/* Of all users; weight: of the one (NULL: all of them). */
void sched_count(struct sched *s, const _Atomic uint32_t *weight, struct sched_counts *ret);

#endif
