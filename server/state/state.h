/* Arrays that survive: everything that clients have made, written to the folder of --state-dir and
 * there again at the next start, under the same ids.
 *
 * What is kept: sessions, arrays with their names, marks, ghosts and places, views as views of the
 * same memory, functions, shares. What is not: leases and jobs, which are somebody's who is gone.
 * docs/state.md has the format and what is promised.
 *
 * main.c opens, restores before there is HTTP, and writes after it; handlers_state.c has a snapshot
 * made in between. The struct is main.c's; it outlives the last request. Thread-safe. */
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
    int64_t taken_us; /* microseconds since 1970: the moment that it shows, more or less */
    int64_t arrays;   /* handles */
    int64_t earlier;  /* of them, with the contents of an earlier snapshot; each has been logged */
    int64_t left_out; /* not among them, as well */
    int64_t missing;  /* of those: somebody could have read them */
    int64_t bytes;    /* of data and manifest */
    int64_t reused;   /* of them: in files that the last snapshot had already */
    int64_t beside;   /* restored: an older snapshot that stays; 0: none */
    double seconds;
};

/* The first of what a snapshot has earlier contents of, or none. */
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

/* The folder of the server's configuration; *ret is NULL where it names none. Errors as
 * state_dir_open. */
enum err_code state_open(struct server *s, struct state **ret, struct err *e) must_check;
void state_close(struct state *t); /* NULL allowed */

/* Into a server that nobody has used yet: all that the last snapshot has, or, where it is refused,
 * an error that says why; then the server is to be given up. With --state-ignore it goes on
 * without, and what was refused is put aside. Blocks. ERR_STATE, ERR_OUT_OF_MEMORY. */
enum err_code state_restore(struct state *t, struct err *e) must_check;
/* Of the snapshot that was restored; 0: none was. */
int64_t state_restored_us(const struct state *t);

/* Prometheus text; t may be NULL: nothing is said. */
void state_metrics(struct state *t, struct strb *out);

/* A snapshot while requests go on, by a thread of its own; `done` is told at the end, with *ret and
 * *gaps written or e set, unless this call fails: ERR_CONFLICT while there is another,
 * ERR_DRAINING, ERR_OUT_OF_MEMORY. */
enum err_code state_snapshot(struct state *t, struct state_report *ret, struct state_gaps *gaps,
                             struct err *ret_e, void (*done)(void *user, enum err_code code),
                             void *user, struct err *e) must_check;
/* From here on there are no such snapshots; one that is under way is given up. */
void state_stop(struct state *t); /* NULL allowed */

/* The last one, when no requests and no jobs are left; --state-timeout seconds at most. Blocks. */
enum err_code state_save(struct state *t, struct state_report *ret, struct err *e) must_check;

#endif
