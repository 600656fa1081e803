/* What scheduler.c (whose turn it is), scheduler_work.c (what work took) and scheduler_open.c (what
 * makes them) share: users on devices and their lanes. A mesh is a device on which users only wait
 * and are counted: what they have there is out, and is charged, on each of its parts. Every other
 * device is its own only part. The scheduler's one lock guards everything that is not constant;
 * each function here is called with it held. */
#ifndef ARRAYD_SERVER_SCHEDULER_INT_H
#define ARRAYD_SERVER_SCHEDULER_INT_H

#include <pthread.h>

#include "compute/base/worker.h"
#include "server/work/scheduler.h"

/* Turns held, and pieces of work submitted. Usually a turn ends before its work, or the work before
 * the turn, so what is out is the larger of the two. */
struct out {
    int64_t n_turns, n_tasks;
    int64_t n_long;          /* turns of at least LONG_MS */
    double turn_ms, task_ms; /* their expected cost */
    double mean;             /* of a piece of work */
    int64_t most;            /* limit on their number, however cheap they are */
};

struct flow {
    struct flow *prev, *next;
    struct device *device;
    struct flow *parts[BACKEND_PARTS]; /* the user's on the device's parts */
    struct flow *mesh;            /* the user's on a mesh of which the device is part, or NULL */
    const _Atomic uint32_t *user; /* the weight's address; read only by sched_ask */
    double weight;
    struct out out;
    double took; /* like a lane's, over all its lanes: the first value of new ones */
    double start;
    uint64_t last_ns; /* of its last event */
    struct sched_turn *waiting;
    struct sched_counts counts;
};

struct device {
    struct flow *flows; /* never removed: a user who returns continues from its old `start` */
    struct device *parts[BACKEND_PARTS];
    int n_parts;
    bool shares; /* it is the mesh, or part of it */
    double now;
    struct lane_part *busy; /* of lanes with work on it */
    uint64_t since_ns;      /* up to when the busy lanes' `part`s are computed */
};

/* A lane on a part of its device. */
struct lane_part {
    struct sched_lane *lane;
    struct flow *flow;
    struct lane_part *prev, *next; /* device->busy */
    double part;                   /* its share of the time since the last charge, ms */
    double withheld;               /* and its share while it seemed to wait */
};

struct sched_lane {
    uint32_t refs;
    struct sched *sched;
    struct flow *flow;
    struct out out;
    double took;       /* recent cost of a piece of work, as the device reports it */
    uint64_t waits_ns; /* when the next piece is overdue: it waits, rather than works */
    int n_parts;
    struct lane_part parts[];
};

struct sched {
    uint64_t refs; /* the owner's, and one per lane */
    struct sched_config config;
    pthread_mutex_t lock;
    struct worker worker; /* woken when the first turn begins to wait */
    bool open;
    struct sched_counts counts;
    struct device devices[];
};

/* scheduler.c: sched_touch records an event of the flow, of a part; sched_serve gives the turns
 * that are due, on all devices that share something with that one. */
void sched_touch(const struct sched *s, struct flow *f, uint64_t now_ns);
void sched_serve(struct sched *s, struct device *d);
double sched_look_after(void *user); /* worker.step */
/* scheduler_open.c: gives up a reference. */
void sched_lane_drop(struct sched_lane *l);
/* scheduler_work.c: the lane's work on the device was running then, and not waiting. */
bool sched_is_working(const struct sched_lane *l, uint64_t since_ns);

#endif
