/* What is known of arrays' memory after the process has died: a cell of shared memory for each
 * storage that outlives it. `writing` is not 0 while work that writes the storage may be unfinished
 * or has failed half-way; `owner` is the buffer (array_memory_id) whose contents lie there, and
 * `coming` the one that is about to get them: a place that was written down for another is stale.
 * CELL_COMES in `writing`: the contents are to be copied there from another place, and that has not
 * been done; it goes with the copy's own part, in one step. `ended` of a cell whose contents are
 * lost says how and when the process ended that was writing them (cells_how_text). `sum` is over
 * the memory as it is, if that is known; whatever may change it sets CELL_SUM_NONE first.
 *
 * Called by the engine's files. Thread-safe; the cells themselves are atomic. */
#ifndef ARRAYD_CELLS_H
#define ARRAYD_CELLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

#define CELL_COMES (UINT64_C(1) << 32)

/* What `sum` says: a sum of the memory is at least CELL_SUM_LEAST; CELL_SUM_QUIET: it has not been
 * written since that was set. */
enum { CELL_SUM_NONE, CELL_SUM_QUIET, CELL_SUM_UNDER_WAY, CELL_SUM_LEAST };

/* In an order in which a stray write over a run of memory, which ends within a cell, takes whose
 * contents these are before it takes that they are being written. */
struct cell {
    _Atomic uint64_t owner, coming, writing, ended, sum;
};

/* The copy to there was not made, and nothing else was to be written there: beside CELL_COMES the
 * copy counts for one once it was submitted, and so does work behind it. */
static inline bool cell_merely_comes(const struct cell *c)
{
    return (atomic_load(&c->writing) & ~UINT64_C(1)) == CELL_COMES;
}

struct cells;

/* New ones, or (take_fd ≥ 0) those of a process that is gone and, if those are fewer than `most`,
 * new ones behind them. What cannot be cells is closed, and new ones are made: then no place that
 * was written down is believed. ERR_OUT_OF_MEMORY. */
enum err_code cells_new(uint32_t most, int take_fd, struct cells **ret, struct err *e) must_check;
void cells_free(struct cells *c); /* NULL allowed */
int cells_fd(const struct cells *c);
/* How many are taken, and may be. */
void cells_count(struct cells *c, int64_t *ret, int64_t *ret_most);
/* How this process ends, beside the signals: noted at once, for the next one. */
enum cells_how {
    CELLS_ENDED = 0,
    CELLS_LOST_DEVICE = 128,
    CELLS_ASKED = 129,
    CELLS_UNSEEN = 130,
    CELLS_CHANGED = 131 /* nothing was writing the contents, but they are not what they were */
};
void cells_end(struct cells *c, enum cells_how how);
/* How the previous process ended, if it did not note that: by a signal, or 0; and when, in seconds
 * of Unix time, or 0: not known, but before now. */
void cells_died(struct cells *c, int signal, int64_t when);
/* The contents are lost, by the previous process unless the cell says that an earlier one did:
 * returns its `ended`. `changed`: CELLS_CHANGED. cells_how_text: what happened to it, after "an
 * array". */
uint64_t cells_lose(struct cells *c, uint32_t cell, bool changed);
void cells_how_text(uint64_t ended, char *ret, size_t n);
bool cells_are_new(const struct cells *c);
/* What was taken over had been written to by mistake: each cell is believed as far as it is
 * consistent. */
bool cells_are_damaged(const struct cells *c);

/* A free cell, with zeros; 0: all are taken. */
uint32_t cells_take(struct cells *c);
/* One of a process that is gone, as it is; NULL: it says nothing, or it was taken. cells_settle:
 * there will be no more of this; until then they are nobody else's. */
struct cell *cells_take_at(struct cells *c, uint32_t cell);
void cells_settle(struct cells *c);
void cells_give(struct cells *c, uint32_t cell);
/* A cell of the previous process, to be read: NULL if that number has no cell. */
const struct cell *cells_look(const struct cells *c, uint64_t cell);
struct cell *cells_at(const struct cells *c, uint32_t cell);
/* From here on cells say what they say, also those that are given back. */
void cells_freeze(struct cells *c);

#endif
