/* GET /v1/arrays/{ref}/events: that an array has changed, or a frame of its picture.
 *
 * The array is followed by its id. Some fifty times a second the HTTP front asks whether its
 * version or its description is another, which is a look into a table and costs a program nothing.
 *
 * A frame is the reply to GET /v1/arrays/{id}/data with the stream's query, made by an inner
 * request (http.h): so a frame is what that picture is, with its rights, turns, limits and costs.
 * One is begun when the last has been read, the array is another, and the time has come. That time
 * is the stream's interval after the last, or later: as long as the bytes of the last take at the
 * most bytes a second, or until what it cost is no more than the share of the time that frames may
 * take.
 *
 * The array itself is not held: neither its memory, when it is deleted, nor its name. */
#include <math.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/body/condition.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/live/events.h"
#include "server/live/live.h"
#include "server/look/look.h"
#include "server/look/picture.h"
#include "server/look/query.h"
#include "server/store/auth.h"

#define MOST_TROUBLE_MS  16000 /* between two attempts at a frame */
#define LEAST_TROUBLE_MS 1000

struct watch {
    struct events events;
    struct principal *who;
    struct shares *shares; /* the array is shared with them; NULL: it is their own */
    const char *owner;     /* then whose it is */
    char id[ID_SIZE], session[ID_SIZE];
    const char *uri; /* of a frame; NULL: none are wanted */
    _Atomic bool told;
    _Atomic uint64_t version, look; /* of what was told last */

    struct http_inner *inner;
    _Atomic bool making; /* until then these are the inner request's: */
    int status;
    struct strb frame; /* its event, or the problem */
    char etag[ETAG_MAX];
    double cost_ms;
    int64_t begun_ms;
    int troubles; /* in a row */
};

/* Whose table the array is in, and whether they may write it; NULL: it is shared no more. */
static struct handles *table(const struct watch *s, bool *ret_write)
{
    *ret_write = true;
    return s->shares ? share_table(s->shares, s->id, s->who, ret_write) : s->who->handles;
}

static bool see(const struct watch *s, struct handle_sight *ret)
{
    bool write;
    struct handles *t = table(s, &write);
    if (!t || !handle_see(t, s->id, ret))
        return false;
    ret->look = ret->look << 1 | !write;
    return true;
}

static bool is_new(const struct watch *s, const struct handle_sight *now)
{
    return !atomic_load(&s->told) || now->outside || now->version != atomic_load(&s->version) ||
           now->look != atomic_load(&s->look);
}

static bool due(const struct http_source *source)
{
    const struct watch *s = (const struct watch *)source;
    struct handle_sight now;
    if (atomic_load(&s->making))
        return false;
    return events_due(&s->events) || !see(s, &now) || (is_new(s, &now) && !events_wait(&s->events));
}

/* --- how it ends --- */

static const char *why_gone(const struct watch *s)
{
    struct session *session = NULL;
    bool write;
    if (s->shares)
        return table(s, &write) ? "deleted" : "not_shared";
    const bool lasts = session_get(s->who->sessions, s->session, false, &session, NULL) == ERR_OK;
    session_unref(session);
    return lasts ? "deleted" : "session_ended";
}

/* --- frames --- */

static void put_base64(struct strb *out, const char *bytes, size_t n)
{
    char *to = strb_reserve(out, BASE64_ENCODE_RAW_LENGTH(n));
    if (!to)
        return;
    base64_encode_raw(to, n, (const uint8_t *)bytes);
    out->len += BASE64_ENCODE_RAW_LENGTH(n);
}

/* The event is written here, on a worker: an HTTP thread has no time for a picture's bytes. */
static void write_frame(struct watch *s, const struct http_inner_reply *r)
{
    const char *etag = http_inner_header(r, "ETag"), *range = http_inner_header(r, "Arrayd-Range");
    struct strb *out = &s->frame;
    char *end;
    const double lo = range ? strtod(range, &end) : 0, hi = range ? strtod(end, NULL) : 0;
    struct json_writer w = JSON_WRITER(out);
    strb_add(out, "event: frame\n");
    s->etag[0] = '\0';
    if (etag) {
        snprintf(s->etag, sizeof s->etag, "%s", etag);
        strb_addf(out, "id: %.*s\n", (int)strlen(etag) - 2, etag + 1);
    }
    strb_add(out, "data: ");
    json_open_object(&w);
    json_put_key(&w, "range");
    json_open_list(&w);
    json_put_double(&w, lo);
    json_put_double(&w, hi);
    json_close_list(&w);
    json_put_member_i64(&w, "bytes", (int64_t)r->body->len);
    json_put_key(&w, "png");
    strb_addc(out, '"');
    put_base64(out, r->body->data, r->body->len);
    strb_add(out, "\"}\n\n");
}

/* In place of an event there is no memory for. */
static void lack_memory(struct watch *s)
{
    strb_free(&s->frame);
    strb_add(&s->frame,
             "{\"type\":\"urn:arrayd:problem:out_of_memory\",\"title\":\"Out of memory\","
             "\"status\":507,\"code\":\"out_of_memory\",\"detail\":\"there is no memory for "
             "the event of the next frame\"}");
    s->status = 507;
    s->etag[0] = '\0';
}

static void made(void *user, const struct http_inner_reply *r)
{
    struct watch *s = user;
    s->status = r->status;
    /* kernels are compiled once, and kept for the next */
    s->cost_ms = fmax(r->worked_ms - fmax(r->req->t_compile, 0), 0) + fmax(r->req->t_device, 0);
    strb_free(&s->frame);
    if (r->status == 200)
        write_frame(s, r);
    else if (r->status >= 400)
        strb_addn(&s->frame, r->body->data, r->body->len);
    if (s->frame.failed)
        lack_memory(s);
    atomic_store(&s->making, false);
    http_source_wake(&s->events.source);
}

/* When the next one may begin. */
static void set_due(struct watch *s, size_t bytes)
{
    const struct config *c = s->events.source.req->server->config;
    double ms = fmax(s->events.interval_ms, s->cost_ms / c->frame_time);
    if (c->event_bandwidth)
        ms = fmax(ms, (double)bytes * 1000 / (double)c->event_bandwidth);
    atomic_store(&s->events.due_ms, s->begun_ms + (int64_t)ms);
}

/* A frame that cannot be made may be later. The client is told once. */
static void trouble(struct watch *s)
{
    const double ms = ldexp(LEAST_TROUBLE_MS, s->troubles < 8 ? s->troubles : 8);
    atomic_store(&s->told, false);
    atomic_store(&s->events.due_ms, events_now() + (int64_t)fmin(ms, MOST_TROUBLE_MS));
    if (s->troubles++)
        return;
    struct json_writer w = events_open(&s->events, "error", NULL);
    json_put_raw(&w, s->frame.len ? s->frame.data : "{}", s->frame.len ? s->frame.len : 2);
    events_close(&s->events);
}

static void begin_frame(struct watch *s)
{
    s->begun_ms = events_now();
    atomic_store(&s->making, true);
    s->inner = http_inner_begin(&s->events.source, s->uri, "image/png", s->etag[0] ? s->etag : NULL,
                                made, s);
    if (s->inner)
        return;
    atomic_store(&s->making, false);
    lack_memory(s);
    trouble(s);
}

static void take_frame(struct watch *s)
{
    http_inner_end(s->inner);
    s->inner = NULL;
    if (s->status == 401 || s->status == 403) {
        events_end(&s->events, "login_ended");
    } else if (s->status == 404) {
        events_end(&s->events, why_gone(s));
    } else if (s->status >= 400) {
        trouble(s);
    } else {
        s->troubles = 0;
        set_due(s, s->frame.len);
        s->events.text = s->frame;
        s->frame = (struct strb){0};
    }
}

/* --- changes --- */

static enum err_code find(const struct watch *s, struct handle *ret)
{
    bool write;
    struct handles *t = table(s, &write);
    if (!t)
        return ERR_NOT_FOUND;
    TRY(handle_get_id(t, s->id, ret, NULL));
    ret->read_only |= !write;
    ret->owner = s->owner;
    return ERR_OK;
}

static void put_change(struct watch *s)
{
    _cleanup_handle_ struct handle h = {0};
    char etag[ETAG_MAX];
    if (find(s, &h) != ERR_OK) {
        events_end(&s->events, why_gone(s));
        return;
    }
    etag_make(h.array->dtype, &h.array->view, array_version(h.array), MEDIA_OCTETS, etag);
    etag[strlen(etag) - 1] = '\0';
    struct json_writer w = events_open(&s->events, "changed", etag + 1);
    meta_put(&w, &h, false);
    events_close(&s->events);
    atomic_store(&s->events.due_ms, events_now() + (int64_t)s->events.interval_ms);
}

static void next(struct events *events)
{
    struct watch *s = (struct watch *)events;
    struct handle_sight now;
    if (atomic_load(&s->making) || events_stop(events))
        return;
    if (s->inner) {
        take_frame(s);
        if (events->text.len)
            return;
    }
    if (!see(s, &now)) {
        events_end(events, why_gone(s));
    } else if (is_new(s, &now) && !events_wait(events)) {
        /* what is written from here on is new again */
        atomic_store(&s->version, now.version);
        atomic_store(&s->look, now.look);
        atomic_store(&s->told, true);
        if (s->uri)
            begin_frame(s);
        else
            put_change(s);
    } else {
        events_comment(events);
    }
}

static void release(struct events *events)
{
    struct watch *s = (struct watch *)events;
    http_inner_end(s->inner);
    strb_free(&s->frame);
}

/* --- the request --- */

static const char *const picture_keys[] = {"index", "ghost", PICTURE_QUERY, NULL};

static void put_escaped(struct strb *out, const char *text)
{
    for (const char *p = text; *p; p++)
        strb_addf(out, "%%%02X", (unsigned char)*p);
}

/* The path and query of a frame. */
static const char *frame_uri(struct request *req, const char *id)
{
    _cleanup_strb_ struct strb out = {0};
    strb_addf(&out, "/v1/arrays/%s/data", id);
    char sign = '?';
    for (size_t i = 0; picture_keys[i]; i++) {
        const char *value = http_query(req, picture_keys[i]);
        if (!value)
            continue;
        strb_addf(&out, "%c%s=", sign, picture_keys[i]);
        put_escaped(&out, value);
        sign = '&';
    }
    return out.failed ? NULL : arena_strndup(req->arena, out.data, out.len);
}

static enum err_code no_frames(const struct request *req, struct err *e)
{
    for (size_t i = 0; picture_keys[i]; i++)
        if (http_query(req, picture_keys[i]))
            return err_set(e, ERR_BAD_FIELD, "%s is for frames: ask for them by frames=true",
                           picture_keys[i]);
    return ERR_OK;
}

/* A client that comes back names the last event that it has. */
static void go_on(struct watch *s, struct request *req, const struct handle *h)
{
    const char *last = http_header(req, "Last-Event-ID");
    char now[ETAG_MAX];
    if (!last || strlen(last) + 3 > sizeof s->etag ||
        strspn(last, "0123456789abcdefnopj-") != strlen(last))
        return;
    snprintf(s->etag, sizeof s->etag, "\"%s\"", last);
    etag_make(h->array->dtype, &h->array->view, array_version(h->array), MEDIA_OCTETS, now);
    struct handle_sight sight;
    if (s->uri || strcmp(now, s->etag) != 0 || !see(s, &sight))
        return;
    atomic_store(&s->version, sight.version);
    atomic_store(&s->look, sight.look);
    atomic_store(&s->told, true);
}

static enum err_code begin(struct request *req, struct watch **ret, struct err *e)
{
    static const char *const query[] = {"interval", "frames",      "index",
                                        "ghost",    PICTURE_QUERY, NULL};
    _cleanup_session_ struct session *session = NULL;
    _cleanup_handle_ struct handle h = {0};
    double interval_ms;
    bool frames = false;
    TRY(events_asked(req, query, &interval_ms, e));
    TRY(query_flag(req, "frames", &frames, e));
    TRY(frames ? picture_check(req, e) : no_frames(req, e));
    TRY(request_array(req, frames ? LEASE_READ : LEASE_LOOK, &session, &h, e));
    const char *uri = frames ? frame_uri(req, h.id) : NULL;
    struct watch *s = !frames || uri ? events_new(sizeof *s) : NULL;
    if (!s)
        return err_oom(e);
    s->events.next = next;
    s->events.release = release;
    s->events.source.due = due;
    s->events.source.expired = events_expired;
    s->events.interval_ms = interval_ms;
    s->who = req->principal;
    s->shares = h.shared ? req->server->shares : NULL;
    s->owner = h.owner;
    s->uri = uri;
    memcpy(s->id, h.id, ID_SIZE);
    memcpy(s->session, h.session, ID_SIZE);
    atomic_store(&s->events.comment_ms, events_now() + KEEP_ALIVE_MS);
    go_on(s, req, &h);
    *ret = s;
    return ERR_OK;
}

void array_events_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct watch *s;
    if (begin(req, &s, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        events_reply(req, &s->events);
}
