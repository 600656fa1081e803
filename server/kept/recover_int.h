/* Shared by recover.c and recover_jobs.c. */
#ifndef ARRAYD_SERVER_RECOVER_INT_H
#define ARRAYD_SERVER_RECOVER_INT_H

#include "compute/base/table.h"
#include "server/kept/journal_writer.h"
#include "server/kept/recover.h"

struct recovered_job;

/* A record of the journal, in which key and value lie. */
struct item {
    struct record_item record;
    uint64_t seq;
};

struct items {
    struct item *items;
    size_t n, cap;
    bool failed;
};

struct owner {
    char name[PRINCIPAL_SIZE];
    struct principal *principal; /* NULL: it has no account */
    UT_hash_handle hh;
};

/* A memory of the journal. */
struct memory {
    uint64_t number;
    const struct record_item *record;
    struct array *base; /* once an array lies on it */
    struct err why;     /* it is not to be had */
    bool tried;
    bool outstayed; /* a process that has lost its permission may have it mapped */
    UT_hash_handle hh;
};

/* What leases are of: array_buffer_id in the other process, and an array with it in this one. */
struct leasable {
    uint64_t buffer;
    struct array *base; /* borrowed from its memory */
    UT_hash_handle hh;
};

struct recovery {
    const struct recover_config *config;
    struct server *server;
    struct journal *from;
    struct items all[RECORD_KINDS]; /* by kind */
    struct owner *owners;
    struct memory *memories;
    struct leasable *leasables;
    struct arena *arena; /* for jobs; NULL: there are none */
    struct recovered_job *jobs, **last_job;
    struct recover_report report;
    int64_t n_without; /* arrays that cannot be taken over, */
    char without[160]; /* and why, of the first */
    bool doubtful;     /* changes are missing */
    struct err *e;
};

typedef enum err_code restore_fn(struct recovery *r, const struct item *x, struct json v,
                                 struct err *why);

/* Parses the record and calls fn; passes it over if it cannot be used. The only error is a lack of
 * memory. */
enum err_code recover_with(struct recovery *r, const struct item *x, restore_fn *fn) must_check;
void recover_pass_over(struct recovery *r, const struct item *x, const char *why);
/* Keeps the records that can be read, in the order of their "seq". */
enum err_code recover_sort(struct recovery *r, struct items *t) must_check;
/* The one whose the record is, by the beginning of its key; *ret NULL: it has no account. */
enum err_code recover_owner(struct recovery *r, const struct item *x, struct principal **ret,
                            struct err *e) must_check;
/* An array's memory (struct kept_handle), borrowed, charged to that account if nothing else lies
 * there. ERR_CONTENTS_LOST: it ended with that process; ERR_STATE: it is not to be had. */
enum err_code recover_memory(struct recovery *r, int64_t memory, int64_t buffer,
                             struct account *payer, struct array **ret, struct err *why) must_check;

/* Jobs, in two steps: what they need of the other process is taken over with everything else, but
 * they themselves are made once new memory may be allocated. The only error is a lack of memory. */
enum err_code recover_jobs_read(struct recovery *r) must_check;
enum err_code recover_jobs_make(struct recovery *r) must_check;
void recover_jobs_release(struct recovery *r);

#endif
