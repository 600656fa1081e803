/* The state of a request: its place on its way, and how it waits there. One atomic word holds both,
 * so every step is one compare-and-swap, which one party wins.
 *
 *     place       what happens there                                  it goes on to
 *     HEADER      the header arrives                                  CHECK, CUT
 *     CHECK       the header is looked at, a route is found           STREAM, BODY, DRAIN, REPLY,
 * CUT STREAM      a streaming route's handler, before the body        BODY, DRAIN, REPLY, CUT BODY
 * the body goes into the buffer or the sink           HANDLER, SINK_END, DRAIN, CUT SINK_END    the
 * sink failed: its end() replies, the rest waits  DRAIN DRAIN       the reply is there, the body's
 * rest is dropped      REPLY, CUT HANDLER     the body is whole: the handler, or the sink's end()
 * REPLY REPLY       libmicrohttpd has the reply, and reads its source   (the end) CUT         a
 * last reply was written by hand, all else dropped  (the end)
 *
 * The listener's thread moves it on, inside libmicrohttpd's callbacks. The watch thread may move it
 * from HEADER, BODY and DRAIN to CUT, where it does not wait; so steps from these may fail
 * (state_move), and the others cannot (state_go). After CUT nobody else writes to the socket.
 *
 * To wait is to have the connection suspended, which only the listener's thread may do, inside a
 * callback; anybody may resume it. Between the wish to wait and the suspension the wake may already
 * have come, so both are steps of their own:
 *
 *   - in STREAM, SINK_END and HANDLER a continuation waits for http_wake:
 *       RUNS → ARMED (http_wait) → PARKED (suspended, or its worker has left it) → WOKEN → RUNS
 *                 └─────────────────────── the wake came first: no suspension ──────┘
 *       PARKED → HELD (the watch thread looks at the client) → PARKED, or WOKEN
 *   - in BODY and REPLY the sink or the source waits for its wake:
 *       RUNS → PARKED (suspended) → RUNS (the wake);  RUNS → WOKEN (the wake came first) → RUNS
 *
 * A wake of the one kind does nothing in the places of the other: it comes late, and nobody waits
 * for it. It writes the word even so, which orders what its caller wrote before the next step.
 * The party that takes a request out of PARKED resumes the connection, and that party alone, so a
 * connection is never resumed twice and never after it has gone: while it is suspended nobody can
 * free it. */
#ifndef ARRAYD_SERVER_HTTP_STATE_H
#define ARRAYD_SERVER_HTTP_STATE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

enum place {
    PLACE_HEADER,
    PLACE_CHECK,
    PLACE_STREAM,
    PLACE_BODY,
    PLACE_SINK_END,
    PLACE_DRAIN,
    PLACE_HANDLER,
    PLACE_REPLY,
    PLACE_CUT
};
enum waits { RUNS, ARMED, PARKED, HELD, WOKEN };

struct http_state {
    _Atomic int word; /* place * 8 + waits; zeroed: HEADER, RUNS */
};

static inline int state_word(enum place p, enum waits w)
{
    return (int)p * 8 + (int)w;
}
static inline enum place word_place(int word)
{
    return (enum place)(word / 8);
}
static inline enum waits word_waits(int word)
{
    return (enum waits)(word % 8);
}
static inline enum place state_place(const struct http_state *s)
{
    return word_place(atomic_load(&s->word));
}
static inline enum waits state_waits(const struct http_state *s)
{
    return word_waits(atomic_load(&s->word));
}

/* Where a handler, or what follows it, is at work. */
static inline bool place_works(enum place p)
{
    return p == PLACE_CHECK || p == PLACE_STREAM || p == PLACE_SINK_END || p == PLACE_HANDLER;
}
/* Where bytes come in or go out. */
static inline bool place_flows(enum place p)
{
    return p == PLACE_BODY || p == PLACE_REPLY;
}

/* From a place that the watch thread cuts nothing in. */
static inline void state_go(struct http_state *s, enum place to)
{
    int was = atomic_exchange(&s->word, state_word(to, RUNS));
    assert(place_works(word_place(was)));
    (void)was;
}

/* False: it is not in `from` any more, or waits there. */
static inline bool state_move(struct http_state *s, enum place from, enum place to)
{
    int word = atomic_load(&s->word);
    do
        if (word_place(word) != from || word_waits(word) == PARKED)
            return false;
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(to, RUNS)));
    return true;
}

/* A continuation's wait goes on; false: it is not as `from` says. */
static inline bool state_step(struct http_state *s, enum waits from, enum waits to)
{
    int word = atomic_load(&s->word);
    do
        if (!place_works(word_place(word)) || word_waits(word) != from)
            return false;
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(word_place(word), to)));
    return true;
}

/* The same of a sink's or a source's. */
static inline bool state_step_flow(struct http_state *s, enum waits from, enum waits to)
{
    int word = atomic_load(&s->word);
    do
        if (!place_flows(word_place(word)) || word_waits(word) != from)
            return false;
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(word_place(word), to)));
    return true;
}

/* What waits from now on, however it was: RUNS or ARMED, by the thread that works on the request.
 */
static inline void state_set(struct http_state *s, enum waits to)
{
    int word = atomic_load(&s->word);
    assert(place_works(word_place(word)));
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(word_place(word), to)))
        ;
}

/* A continuation is woken; what it waited as is returned, RUNS where none waits. */
static inline enum waits state_wake(struct http_state *s)
{
    int word = atomic_load(&s->word), woken;
    do {
        enum waits w = word_waits(word);
        bool waits = place_works(word_place(word)) && (w == ARMED || w == PARKED || w == HELD);
        woken = waits ? state_word(word_place(word), WOKEN) : word;
    } while (!atomic_compare_exchange_weak(&s->word, &word, woken));
    return woken == word ? RUNS : word_waits(word);
}

/* A sink or a source is woken; true: it was parked, and its connection is the caller's to resume.
 */
static inline bool state_wake_flow(struct http_state *s)
{
    int word = atomic_load(&s->word), woken;
    do {
        bool flows = place_flows(word_place(word));
        enum waits to = word_waits(word) == PARKED ? RUNS : WOKEN;
        woken = flows ? state_word(word_place(word), to) : word;
    } while (!atomic_compare_exchange_weak(&s->word, &word, woken));
    return place_flows(word_place(word)) && word_waits(word) == PARKED;
}

/* It waits, as a flow does. */
static inline bool state_flow_parked(const struct http_state *s)
{
    int word = atomic_load(&s->word);
    return place_flows(word_place(word)) && word_waits(word) == PARKED;
}

#endif
