/* Writes what clients have to the journal, as it changes: the observer of the store's tables, and
 * the door for where the engine puts arrays' memory.
 *
 * What is added or may grow is refused beforehand if the journal is full (ERR_OUT_OF_MEMORY, status
 * 507). Changes of what keeps its size always have room. Where one cannot be written for all that,
 * which takes a lack of memory, it is counted, and logged the first time: the journal is behind
 * from then on. An array's place is removed then, since what is there now may be another's.
 *
 * Made by survive.c before the tables, and freed after them. Thread-safe; one short lock, below
 * those of the tables and of the engine. */
#ifndef ARRAYD_SERVER_JOURNAL_WRITER_H
#define ARRAYD_SERVER_JOURNAL_WRITER_H

#include "compute/base/strb.h"
#include "server/journal/journal.h"
#include "server/kept/kept.h"
#include "server/store/observer.h"

/* Kinds of the journal's records, and their keys. */
enum record_kind {
    RECORD_SESSION = 1, /* principal/id */
    RECORD_ARRAY,       /* principal/id */
    RECORD_FUNCTION,    /* principal/name */
    RECORD_SHARE,       /* owner/id/principal */
    RECORD_LEASE,       /* token */
    RECORD_MEMORY,      /* number */
    RECORD_JOB,         /* principal/id; kept_job.h, as the next three */
    RECORD_PROGRESS,    /* principal/id */
    RECORD_VALUES,      /* principal/id/number of the block */
    RECORD_SNAPSHOT,    /* principal/id/number */
    RECORD_PASSED,      /* principal/id or name */
    RECORD_SETTINGS,    /* principal/ */
    RECORD_MONTH,       /* principal/ */
    RECORD_LINK,        /* principal/id */
    RECORD_KINDS
};

struct journal_writer;

/* For journal_config: where an array's memory is, and how far a job is, can always be written. */
size_t writer_least(uint8_t kind);
/* `journal` is borrowed. NULL without memory. */
struct journal_writer *writer_new(struct journal *journal);
void writer_free(struct journal_writer *k); /* NULL allowed */
/* For session_limits, shares_observe and leases_observe. */
const struct observer *writer_observer(const struct journal_writer *k);
/* Nothing is written from here on: what ends with this process is to continue in the next one. */
void writer_stop(struct journal_writer *k);

/* What belongs to a job: its record, or (part ≥ 0) a block or a snapshot. Returns the length. */
size_t writer_job_key(char ret[RECORD_KEY_MOST + 1], const char *principal, const char *id,
                      int64_t part);
/* A link is new, or ends. Its table has asked for space (OBSERVER_RECORD). k NULL allowed. */
void writer_link(struct journal_writer *k, const char *principal, const struct kept_link *l,
                 bool gone);
/* Whether another `bytes` of the principal's can be written. ERR_OUT_OF_MEMORY. */
enum err_code writer_check_space(struct journal_writer *k, const char *principal, size_t bytes,
                                 struct err *e) must_check;
/* What is written from now on was in another journal: there is room for it, as far as there is any.
 * k NULL allowed. */
void writer_recovers(struct journal_writer *k, bool yes);
/* Writes a job's items, all together. ERR_OUT_OF_MEMORY. */
struct record_items {
    const struct record_item *items;
    size_t n;
};
enum err_code writer_write(struct journal_writer *k, const struct record_items *x,
                           struct err *e) must_check;

/* An array's memory lies there from now on; several change together, and `with` them a job's items
 * (NULL: none). To be called before an array on it is given to a table, and again when something of
 * it changes. ERR_OUT_OF_MEMORY: the next process will not find any of them. */
enum err_code writer_placed(struct journal_writer *k, const struct kept_memory *m, size_t n,
                            const struct record_items *with, struct err *e) must_check;
void writer_unplaced(struct journal_writer *k, uint64_t number); /* no array's any more */

/* An array, or a function, that a start passed over: the state on disk alone has it, if `found`
 * certainly. k NULL allowed: nobody is told, and nothing was passed over. */
void writer_passed(struct journal_writer *k, const char *principal, const char *id, bool found);
void writer_passed_no_more(struct journal_writer *k, const char *principal, const char *id);
bool writer_has_passed(struct journal_writer *k, const char *principal, const char *id);
/* The state has been read: forgets the arrays that were not found there; how many. */
uint64_t writer_forget_passed(struct journal_writer *k);

/* How many changes could not be written: the next process will not know of them. */
uint64_t writer_refused(struct journal_writer *k);
/* Prometheus text; nothing if k is NULL. */
void writer_metrics(struct journal_writer *k, struct strb *out);

#endif
