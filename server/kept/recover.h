/* Builds a server's contents from the journal of a process that is gone.
 *
 * Called by survive.c before the first request; the server's tables tell an observer that writes to
 * another, new journal, which has all of it afterwards. Also called by state_load.c, for what a
 * restore has to leave out of account. */
#ifndef ARRAYD_SERVER_RECOVER_H
#define ARRAYD_SERVER_RECOVER_H

#include "server/journal/journal.h"
#include "server/kept/kept.h"
#include "server/kept/kept_job.h"
#include "server/store/auth.h"

struct server;

struct recover_config {
    struct server *server; /* config, engine, auth, shares and leases; has had no request yet */
    /* Makes the memory an array's again: *ret is an array of its bytes, of one axis, DT_BOOL or
     * DT_U8 as the record says, charged to `payer`. ERR_CONTENTS_LOST: it ended with that process;
     * any other error says why it is not to be had. */
    enum err_code (*adopt)(void *user, const struct kept_memory *m, struct account *payer,
                           struct array **ret, struct err *e);
    /* Makes the export with that lease continue, of the memory `base`; false: it does not. NULL:
     * none does. */
    bool (*export_again)(void *user, const struct lease_image *lease, struct array *base);
    /* An array is to leave the memory of `base`, which somebody without permission may have mapped,
     * once the next process would find it where it is then. NULL: it stays. ERR_OUT_OF_MEMORY. */
    enum err_code (*leave)(void *user, struct array *base, struct err *e);
    /* All memories that anybody asks for have been adopted; NULL: nobody cares. */
    void (*adopted)(void *user);
    /* A job; what it borrows ends with the call. NULL: jobs are left out. ERR_OUT_OF_MEMORY of host
     * memory, ERR_DEVICE_LOST. */
    enum err_code (*job)(void *user, const struct kept_job *j, struct err *e);
    void *user;
};

struct recover_report {
    int64_t sessions, arrays, functions, shares, leases, jobs; /* that are there again */
    int64_t left_to_state; /* arrays that are not; the last snapshot may have them */
    int64_t passed_over;   /* whatever else is not; it has been logged */
};

/* `from` is only read, and not written meanwhile. With doubtful (journal_damage.missing) nobody
 * regains what may have been taken back: shares are left out. Damage is passed over; the only
 * errors are ERR_OUT_OF_MEMORY of host memory, ERR_BAD_FIELD of auth_check_left, and those of
 * config->job, after which the server must be discarded and the journal is as it was. */
enum err_code recover_all(const struct recover_config *c, struct journal *from, bool doubtful,
                          struct recover_report *ret, struct err *e) must_check;

/* By the beginning of a record's key; "": it is damaged. */
void recover_principal(const struct record_item *x, char ret[PRINCIPAL_SIZE]);

/* What a principal's sessions had, they may have again, whatever their limits: between these two
 * there are none. */
void recover_lift(struct principal *p);
void recover_limit(struct auth *a, struct principal *p);

#endif
