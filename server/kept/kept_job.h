/* Jobs as the journal keeps them, in four kinds of records: what never changes of a job, as long as
 * it is there; its progress, which each slice writes again; the values that it has recorded, in
 * blocks, of which a slice writes those that it adds to; and its snapshots, each before its array
 * is made: those beyond progress.snapshots belong to a slice that was not committed.
 *
 * Called by server/jobs, and by recover_jobs.c. Pure; thread-safe. */
#ifndef ARRAYD_SERVER_KEPT_JOB_H
#define ARRAYD_SERVER_KEPT_JOB_H

#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"
#include "server/body/program_body.h"
#include "server/body/reader.h"

struct kept_series {
    char name[NAME_SIZE];
    enum dtype dtype;
    char *bytes; /* the values */
};

struct kept_snapshot {
    char name[NAME_SIZE]; /* of the copied array */
    char id[ID_SIZE];
    int64_t step;
};

struct kept_progress {
    char state[16]; /* the job's name for it */
    int64_t step;   /* whole steps that the arrays have */
    int64_t values; /* of each series */
    int64_t snapshots;
    int64_t ends;     /* how often it has ended */
    int64_t crashes;  /* since its last whole step, if only its work was running */
    int64_t ended_us; /* 0: it has not */
    double ran_ms, device_ms;
    int64_t bytes; /* that it has read and written */
    bool until;    /* that was true */
    bool copies; /* results are being copied to arrays: until that is over, these have some of them
                  */
    bool behind; /* there was no room for what it recorded: no other process can continue it */
    struct err err; /* ERR_OK: none; then: */
    int64_t failed_in;
    int32_t statement; /* −1: not known */
};

/* A job of another process. */
struct kept_job {
    char id[ID_SIZE], session_id[ID_SIZE];
    uint64_t seq;
    int64_t created_us, steps, record_every;
    bool takes_snapshots;
    struct kept_series *series;
    uint32_t n_series;
    const char *record; /* the record of what never changes */
    size_t record_len;
    struct kept_progress at;
    struct kept_snapshot *snapshots;
    /* for making its program again: */
    struct principal *principal;
    struct session *session;
    const char *text; /* the request's body */
    size_t text_len;
    const char *targets; /* as kept_put_targets writes them; older versions do not: "[]" */
    size_t targets_len;
    struct past past;
    struct err lost; /* not ERR_OK: that cannot be, since one of its arrays is gone */
};

/* What never changes of a job. */
void kept_put_job(struct json_writer *w, const struct program_body *b, uint64_t seq,
                  int64_t created_us);
/* A list of the arrays that it assigns, with the names that the program has for them. */
void kept_put_targets(struct json_writer *w, const struct program_body *b);
void kept_put_progress(struct json_writer *w, const struct kept_progress *at);
void kept_put_snapshot(struct json_writer *w, const struct kept_snapshot *s);

/* Errors are of damage, as in kept.h. */

/* Series, their values' memory included, `text` and `targets` lie in the arena. */
enum err_code kept_read_job(struct json v, struct arena *arena, struct kept_job *ret,
                            struct err *e) must_check;
enum err_code kept_read_progress(struct json v, struct kept_progress *ret,
                                 struct err *e) must_check;
enum err_code kept_read_snapshot(struct json v, struct kept_snapshot *ret,
                                 struct err *e) must_check;
/* One of the job's names: all but the array. Memory and buffer as in struct kept_handle. */
enum err_code kept_read_name(struct json v, struct past_name *ret, int64_t *ret_memory,
                             int64_t *ret_buffer, struct err *e) must_check;

/* How many values of each series a block has, if one of each takes so many bytes. */
int64_t kept_block(size_t row);

#endif
