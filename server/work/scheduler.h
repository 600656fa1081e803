/* Fair sharing of a device's time: which work may be submitted now, and which waits for its turn.
 *
 * Weighted fair queueing over measured device time. A client with work for a device asks for a
 * turn, holds it until the work has been submitted or is done, and leaves it; the device time of
 * the work is charged to its user. Users who together want more than the device can do share it in
 * proportion to their weights; a user who asks seldom gets a turn at once, however much work of
 * others waits.
 *
 * The mesh's work is work on each of the devices that it consists of: its turn comes once it may
 * on all of them, and it is charged there.
 *
 * Called by handlers through server/work/device_turn.h and by jobs_slice.c for each slice;
 * session_sides.c creates a lane for each stream, through which the engine reports what its work
 * took. Thread-safe. Times are milliseconds of device time unless noted otherwise. */
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
    struct sched_mesh { /* the last device, which consists of others */
        int n;          /* 0: no mesh */
        int parts[BACKEND_PARTS];
    } mesh;
    bool side_by_side;       /* streams run in parallel: a device can run more than one at once */
    double window;           /* work of a session out on a device at once; see scheduler.c */
    int64_t max_waiting;     /* waiting turns per user */
    int64_t max_waiting_all; /* of all users */
    uint64_t (*clock_ns)(void); /* NULL: the monotonic clock; else see sched_look */
};

enum err_code sched_new(const struct sched_config *config, struct sched **ret,
                        struct err *e) must_check;
/* From now on every turn comes at once; waiting ones come now. */
void sched_open(struct sched *s);
/* Gives turns that have become due as time passed. A caller with its own clock calls it as that
 * clock advances; otherwise the scheduler does, each millisecond. */
void sched_look(struct sched *s);
void sched_free(struct sched *s); /* NULL allowed; lanes may outlive it, but must not be asked */

/* weight: the user's, whose address identifies the user; read by each sched_ask.
 * ERR_OUT_OF_MEMORY. */
enum err_code sched_lane_new(struct sched *s, const _Atomic uint32_t *weight, int device,
                             struct sched_lane **ret, struct err *e) must_check;
/* For engine_stream_watch: reports what the stream's work takes. Its user is a lane, with a
 * reference that the stream owns. */
extern const struct work_watch sched_watch;
struct sched_lane *sched_lane_ref(struct sched_lane *l); /* returns l */
void sched_lane_unref(struct sched_lane *l);             /* NULL allowed */
/* A turn of the lane is held or waited for, or its stream has unfinished work. */
bool sched_lane_is_busy(const struct sched_lane *l);

/* Owned by the caller: zeroed, with come and user set, before the first sched_ask. */
struct sched_turn {
    /* The turn has come. Called by any thread; must neither block nor call this module. */
    void (*come)(void *user);
    void *user;
    bool sure; /* never refused */
    /* the scheduler's own */
    struct sched_lane *lane; /* a reference; NULL: neither asked for nor held */
    bool held;
    double ms;
    uint64_t asked_ns;
    struct sched_turn *prev, *next;
};

/* *ret_now: the turn is held now; otherwise come() is called once, later. ms: expected cost of the
 * work; 0: as the lane's lately. ERR_QUOTA: too many of the user's turns wait already;
 * ERR_OVERLOADED: too many of all users'; after an error the turn is unchanged. */
enum err_code sched_ask(struct sched_lane *l, double ms, struct sched_turn *t, bool *ret_now,
                        struct err *e) must_check;
bool sched_held(struct sched *s, const struct sched_turn *t);
/* Stops waiting or holding: come() is not called from here on. Does nothing if it never asked. */
void sched_leave(struct sched *s, struct sched_turn *t);

/* The part of the device's time that the user whose weight this is would get of it now: its own
 * weight among those of all users who had work there in the last fifth of a second. Of the mesh:
 * the least part of those of its devices. */
double sched_share(struct sched *s, const _Atomic uint32_t *weight, int device);

struct sched_counts {
    int64_t waiting;        /* turns that wait now */
    uint64_t turns, waited; /* turns given, and those of them that had to wait */
    double waited_s;        /* total waiting time, in seconds */
};
/* weight: of that user; NULL: of all users. */
void sched_count(struct sched *s, const _Atomic uint32_t *weight, struct sched_counts *ret);

#endif
