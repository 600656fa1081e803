/* The state of a request: its place in processing, and how it waits there. One atomic word holds
 * both, so every step is one compare-and-swap, which one party wins.
 *
 *   place     what happens there                                   next
 *   HEADER    the header arrives                                   CHECK, CUT
 *   CHECK     the header is checked, a route is found              STREAM, BODY, DRAIN, REPLY, CUT
 *   STREAM    a streaming route's handler, before the body         BODY, DRAIN, REPLY, CUT
 *   BODY      the body goes into the buffer or the sink            HANDLER, SINK_END, DRAIN, CUT
 *   SINK_END  the sink failed: its end() replies, the rest waits   DRAIN
 *   DRAIN     there is a reply, the rest of the body is dropped    REPLY, CUT
 *   HANDLER   the body is whole: the handler, or the sink's end()  REPLY
 *   REPLY     libmicrohttpd has the reply, and reads its source    (the end)
 *   CUT       a last reply was written by hand, the rest dropped   (the end)
 *
 * The listener's thread advances it, inside libmicrohttpd's callbacks. The watch thread may move it
 * from HEADER, BODY and DRAIN to CUT unless it waits; so steps from these may fail (state_move),
 * and the others cannot (state_go). After CUT nothing else writes to the socket.
 *
 * Waiting means that the connection is suspended, which only the listener's thread may do, inside a
 * callback; any thread may resume it. The wake may come between the decision to wait and the
 * suspension, so both are steps of their own:
 *
 *   - in STREAM, SINK_END and HANDLER a continuation waits for http_wake:
 *       RUNS → ARMED (http_wait) → PARKED (suspended, or its worker has left it) → WOKEN → RUNS
 *                 └─────────────────────── the wake came first: no suspension ──────┘
 *       PARKED → HELD (the watch thread checks the client) → PARKED, or WOKEN
 *   - in BODY and REPLY the sink or the source waits for its wake:
 *       RUNS → PARKED (suspended) → RUNS (the wake);  RUNS → WOKEN (the wake came first) → RUNS
 *
 * A wake of one kind does nothing in the places of the other: it is late, and nothing waits for it.
 * It writes the word even so, which orders its caller's earlier writes before the next step. Only
 * the party that takes a request out of PARKED resumes the connection. So a connection is never
 * resumed twice and never after it was freed: a suspended connection cannot be freed. */
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

/* Where a handler or its continuation runs. */
static inline bool place_works(enum place p)
{
    return p == PLACE_CHECK || p == PLACE_STREAM || p == PLACE_SINK_END || p == PLACE_HANDLER;
}
/* Where bytes arrive or leave. */
static inline bool place_flows(enum place p)
{
    return p == PLACE_BODY || p == PLACE_REPLY;
}

/* From a place where the watch thread never cuts. */
static inline void state_go(struct http_state *s, enum place to)
{
    int was = atomic_exchange(&s->word, state_word(to, RUNS));
    assert(place_works(word_place(was)));
    (void)was;
}

/* False: it is no longer in `from`, or waits there. */
static inline bool state_move(struct http_state *s, enum place from, enum place to)
{
    int word = atomic_load(&s->word);
    do
        if (word_place(word) != from || word_waits(word) == PARKED)
            return false;
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(to, RUNS)));
    return true;
}

/* One step of a continuation's wait; false: it does not wait as `from`. */
static inline bool state_step(struct http_state *s, enum waits from, enum waits to)
{
    int word = atomic_load(&s->word);
    do
        if (!place_works(word_place(word)) || word_waits(word) != from)
            return false;
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(word_place(word), to)));
    return true;
}

/* The same for a sink or a source. */
static inline bool state_step_flow(struct http_state *s, enum waits from, enum waits to)
{
    int word = atomic_load(&s->word);
    do
        if (!place_flows(word_place(word)) || word_waits(word) != from)
            return false;
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(word_place(word), to)));
    return true;
}

/* Sets RUNS or ARMED whatever it was; by the thread that works on the request. */
static inline void state_set(struct http_state *s, enum waits to)
{
    int word = atomic_load(&s->word);
    assert(place_works(word_place(word)));
    while (!atomic_compare_exchange_weak(&s->word, &word, state_word(word_place(word), to)))
        ;
}

/* Wakes a continuation; returns how it waited, RUNS if none waits. */
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

/* Wakes a sink or a source; true: it was parked, and the caller resumes the connection. */
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

/* Whether a sink or a source waits. */
static inline bool state_flow_parked(const struct http_state *s)
{
    int word = atomic_load(&s->word);
    return place_flows(word_place(word)) && word_waits(word) == PARKED;
}

#endif
