/* What another process needs to continue where this one died: a table of keys and values, as a log
 * in shared memory. Whoever holds its descriptor (the keeper) keeps it alive.
 *
 * A write is complete when journal_write returns; if the process is killed during it, all of it or
 * nothing is there. Nothing is promised beyond the machine's memory: for that there is the state on
 * disk. The log is rewritten without what is out of date whenever that is most of it, a little with
 * each write.
 *
 * Called by the rooms that know what the values mean, and by the daemon's start. Thread-safe; one
 * short lock, a leaf. */
#ifndef ARRAYD_JOURNAL_H
#define ARRAYD_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "server/journal/record.h"

struct journal;

/* The last version that this program understands. It rises with every change that an older one
 * would not understand, of the log or its values. */
#define JOURNAL_VERSION 5
/* What a journal says that has nothing newer in it, so that older programs can take it over. */
#define JOURNAL_VERSION_PLAIN 3

struct journal_config {
    size_t most; /* bytes of the log; what is in force may take up to half of it */
    /* What a key of that kind counts for at least: changes of its value that need no more than
     * that always have room. NULL: 0. */
    size_t (*least)(uint8_t kind);
    bool shared; /* by several owners */
    /* The log has been rewritten: from now on `fd` is its descriptor (borrowed; to be duplicated or
     * sent). The old log is whole until this returns, and stays the log after an error. NULL:
     * nobody holds it. Must not call the journal. */
    enum err_code (*moved)(void *user, int fd, struct err *e);
    void *user;
};

/* What was found to be damaged in a log. */
struct journal_damage {
    uint32_t records; /* damaged in part or in whole */
    bool missing; /* changes are missing, nobody knows of which keys: any value may be an old one */
};

/* An empty journal. ERR_OUT_OF_MEMORY, ERR_INTERNAL. */
enum err_code journal_open(const struct journal_config *config, struct journal **ret,
                           struct err *e) must_check;
/* A journal that another process wrote, to be read and not written: all that can be read in the log
 * with that descriptor, which is taken over in any case. *ret_damage may be NULL. ERR_STATE: it is
 * no journal, or of another version; ERR_OUT_OF_MEMORY. */
enum err_code journal_read(int take_fd, struct journal **ret, struct journal_damage *ret_damage,
                           struct err *e) must_check;
void journal_close(struct journal *j); /* NULL allowed */
int journal_fd(struct journal *j);     /* borrowed */
/* Whether this program can read the log with that descriptor (borrowed). ERR_CONFLICT: it is of
 * another version, as for journal_read; ERR_STATE: it is not a journal. */
enum err_code journal_check(int fd, struct err *e) must_check;

/* From now on its values are such as only programs of that version understand (up to
 * JOURNAL_VERSION); not taken back. To be called before they are written. */
void journal_needs(struct journal *j, uint32_t version);
/* Sets or removes the keys, all together. ERR_OUT_OF_MEMORY: nothing was changed; the journal has
 * no more room, which is so only where it would grow, or a value has more than RECORD_VALUE_MOST
 * bytes. */
enum err_code journal_write(struct journal *j, const struct record_item *items, size_t n,
                            struct err *e) must_check;
/* Whether values of n bytes in all can be added, and there is room left for changes of those that
 * are there. `owner`: they are to have keys "owner/…" or so, and where several share the log, one
 * may have as much of it as is free, so that something is always left for the next; NULL:
 * nobody's. ERR_OUT_OF_MEMORY. */
enum err_code journal_check_space(struct journal *j, const char *owner, size_t n,
                                  struct err *e) must_check;
/* Whether the key is there. */
bool journal_has(struct journal *j, uint8_t kind, const char *key, size_t key_len);
/* Calls fn for every key of that kind, in no particular order, with the journal locked. value NULL:
 * it was damaged, and is unknown. */
void journal_each(struct journal *j, uint8_t kind,
                  void (*fn)(void *user, const struct record_item *item), void *user);

struct journal_figures {
    int64_t bytes, live; /* of the log; of them, not out of date (approximately) */
    int64_t keys;
    uint64_t writes, rewrites; /* so far */
};
void journal_figures(struct journal *j, struct journal_figures *ret);

#endif
