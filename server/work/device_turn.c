/* One per request, in its arena, from its first turn on. */
#include "server/work/device_turn.h"

#include "server/http/wakeup.h"
#include "server/server.h"
#include "server/work/scheduler.h"

struct device_turn {
    struct sched_turn turn;
    struct wakeup wakeup;
    void (*release)(void *holder); /* NULL: nothing is held */
    void *holder;
    handler_fn *then;
};

bool device_turn_asked(const struct request *req)
{
    return req->device_turn && req->device_turn->turn.lane;
}

static void turn_came(struct request *req)
{
    struct device_turn *t = req->device_turn;
    req->abandon = false; /* from here on the handler decides */
    req->late = NULL;
    t->then(req);
}

static enum err_code ask(struct request *req, struct sched_lane *lane, handler_fn *then,
                         bool *ret_now, struct err *e)
{
    struct device_turn *t = req->device_turn;
    if (!t)
        t = arena_alloc(req->arena, sizeof *t);
    if (!t)
        return err_oom(e);
    *t = (struct device_turn){.turn = {.come = wakeup_ring, .user = &t->wakeup}, .then = then};
    wakeup_init(&t->wakeup, req);
    req->device_turn = t;
    return sched_ask(lane, 0, &t->turn, ret_now, e);
}

/* Until the turn comes; returns false. */
static bool wait_for_turn(struct request *req)
{
    http_may_end(req, NULL); /* nothing has begun */
    wakeup_wait(&req->device_turn->wakeup, turn_came);
    return false;
}

bool device_turn_take(struct request *req, struct sched_lane *lane, void (*release)(void *holder),
                      void *holder, handler_fn *then)
{
    struct err e = ERR_INIT;
    bool now = false;
    if (ask(req, lane, then, &now, &e) != ERR_OK) {
        release(holder);
        http_reply_error(req, &e);
        return false;
    }
    req->device_turn->release = release;
    req->device_turn->holder = holder;
    return now || wait_for_turn(req);
}

bool device_turn_renew(struct request *req, handler_fn *then)
{
    struct device_turn *t = req->device_turn;
    struct err e = ERR_INIT;
    bool now = false;
    if (!device_turn_asked(req))
        return true;
    struct sched_lane *lane = t->turn.lane; /* the holder keeps it alive */
    sched_leave(req->server->sched, &t->turn);
    t->turn = (struct sched_turn){.come = wakeup_ring, .user = &t->wakeup, .sure = true};
    t->then = then;
    wakeup_arm(&t->wakeup);
    if (sched_ask(lane, 0, &t->turn, &now, &e) != ERR_OK)
        return true; /* `sure`: it cannot be refused */
    return now || wait_for_turn(req);
}

void device_turn_leave(struct request *req)
{
    struct device_turn *t = req->device_turn;
    if (!t)
        return;
    sched_leave(req->server->sched, &t->turn);
    if (t->release)
        t->release(t->holder);
    t->release = NULL;
}
