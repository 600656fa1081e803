/* The lane is that of the session which the request names, which does not expire while its request
 * waits. Where there is none the handler says so: it goes on without a turn. A request that runs
 * again (http_repeat) has its turn still. */
#include "server/work/device_turn.h"

#include "server/http/wakeup.h"
#include "server/store/auth.h"
#include "server/work/scheduler.h"

struct device_turn {
    struct sched_turn turn;
    struct wakeup wakeup;
    struct session *session; /* a reference */
    handler_fn *then;
};

static void turn_came(struct request *req)
{
    struct device_turn *t = req->device_turn;
    req->abandon = false; /* from here on it is the handler's to say */
    req->late = NULL;
    t->then(req);
}

static enum err_code ask(struct request *req, struct session *s, handler_fn *then, bool *ret_now,
                         struct err *e)
{
    struct device_turn *t =
        req->device_turn ? req->device_turn : arena_alloc(req->arena, sizeof *t);
    if (!t)
        return err_oom(e);
    *t = (struct device_turn){.turn = {.come = wakeup_ring, .user = &t->wakeup}, .then = then};
    wakeup_init(&t->wakeup, req);
    req->device_turn = t;
    enum err_code code = sched_ask(s->lane, 0, &t->turn, ret_now, e);
    if (code == ERR_OK)
        t->session = session_ref(s);
    return code;
}

bool device_turn_take(struct request *req, handler_fn *then)
{
    _cleanup_session_ struct session *s = NULL;
    struct err e = ERR_INIT;
    if ((req->device_turn && req->device_turn->turn.lane) || session_of(req, &s, &e) != ERR_OK ||
        !s->lane)
        return true;
    bool now = false;
    if (ask(req, s, then, &now, &e) != ERR_OK)
        http_reply_error(req, &e);
    else if (!now) {
        http_may_end(req, NULL); /* nothing has begun */
        wakeup_wait(&req->device_turn->wakeup, turn_came);
    }
    return now;
}

void device_turn_leave(struct request *req)
{
    struct device_turn *t = req->device_turn;
    if (!t)
        return;
    sched_leave(req->server->sched, &t->turn);
    session_unref(t->session);
    t->session = NULL;
}
