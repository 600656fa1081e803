/* The start of a log: what it is, of which version, and how far it goes.
 *
 * Called by journal.c. The caller has the log to itself, but for processes that only read it. */
#ifndef ARRAYD_JOURNAL_OPENING_H
#define ARRAYD_JOURNAL_OPENING_H

#include <stdatomic.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "server/journal/area.h"

/* What never changes is there twice, and so is what does, so that no single damaged byte hides a
 * whole log. */
struct mark {
    char magic[8];
    uint32_t version, version_again;
    uint64_t salt, salt_again;
};
struct opening {
    struct mark marks[2];
    _Atomic uint64_t end, end_again; /* bytes of records behind the opening */
};

/* Of a log without records. */
void opening_write(struct opening *o, uint32_t version, uint64_t salt);
/* The log gets another version. */
void opening_needs(struct opening *o, uint32_t version);
/* Of a mapped log. ERR_STATE: it is no journal; ERR_CONFLICT: this program does not know its
 * version. */
enum err_code opening_check(const struct area *a, uint64_t *ret_salt, struct err *e) must_check;

#endif
