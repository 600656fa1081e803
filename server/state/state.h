/* Arrays that survive a restart: everything that clients have made is written to the folder of
 * --state-dir and restored at the next start, under the same ids.
 *
 * Saved: sessions, arrays with their names, marks, ghosts and places, views as views of the same
 * memory, functions, shares. Not saved: leases and jobs, whose holders are gone by then.
 * docs/state.md has the format and the guarantees.
 *
 * main.c opens the state, restores it before HTTP starts, and saves it after HTTP has stopped;
 * handlers_state.c takes a snapshot in between. The struct is main's and outlives the last request.
 * Thread-safe. */
#ifndef ARRAYD_SERVER_STATE_H
#define ARRAYD_SERVER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "server/store/accounts.h"
#include "server/store/handles.h"

struct server;
struct state;

struct state_report {
    int64_t taken_us; /* microseconds since 1970: the approximate time of the contents */
    int64_t arrays;   /* handles */
    int64_t earlier;  /* of them, with an earlier snapshot's contents; each has been logged */
    int64_t left_out; /* not among them; each has been logged */
    int64_t missing;  /* of those: still readable, so that something is lost */
    int64_t bytes;    /* of data and manifest */
    int64_t reused;   /* of them: in files shared with the last snapshot */
    int64_t beside;   /* restored: number of an older snapshot that is kept; 0: none */
    double seconds;
};

/* The first of the arrays that a snapshot has with earlier contents, or not at all. */
#define STATE_GAPS 100
struct state_gap {
    char id[ID_SIZE], principal[PRINCIPAL_SIZE];
    const char *reason;
    bool earlier;
};
struct state_gaps {
    struct state_gap items[STATE_GAPS];
    size_t n;
};

/* Opens the folder of the server's configuration; *ret is NULL if it names none. Errors as
 * state_dir_open. */
enum err_code state_open(struct server *s, struct state **ret, struct err *e) must_check;
void state_close(struct state *t); /* NULL allowed */

/* Restores the last snapshot into a server that has had no request yet. Where the snapshot is
 * refused, the error says why, and the server must be discarded; with --state-ignore the refused
 * snapshot is put aside and the start continues without it. Blocks. ERR_STATE,
 * ERR_OUT_OF_MEMORY. */
enum err_code state_restore(struct state *t, struct err *e) must_check;
/* Instead, where the server has been built from a journal: what an earlier start passed over stays
 * in the state. Blocks. */
void state_recovered(struct state *t);
/* The time of the restored snapshot; 0: none was restored. */
int64_t state_restored_us(const struct state *t);

/* Prometheus text; nothing if t is NULL. */
void state_metrics(struct state *t, struct strb *out);

/* Takes a snapshot on a thread of its own while requests continue. Unless this call fails, it calls
 * `done` at the end, with *ret and *gaps written or e set. ERR_CONFLICT while another is under way,
 * ERR_DRAINING, ERR_OUT_OF_MEMORY. */
enum err_code state_snapshot(struct state *t, struct state_report *ret, struct state_gaps *gaps,
                             struct err *ret_e, void (*done)(void *user, enum err_code code),
                             void *user, struct err *e) must_check;
/* Refuses such snapshots from here on and abandons one that is under way. */
void state_stop(struct state *t); /* NULL allowed */

/* The last snapshot, when no requests and no jobs are left; takes --state-timeout seconds at most.
 * Blocks. */
enum err_code state_save(struct state *t, struct state_report *ret, struct err *e) must_check;

#endif
