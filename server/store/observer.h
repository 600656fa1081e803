/* The observer of every change of what clients own: it records what is to outlive the process.
 *
 * The tables of this room call it where their entries are added, changed and removed, after the
 * change and with the table's lock held, so that the calls come in the order of the changes, and
 * each before its change can be known to any client. It is set before a table is used; it must not
 * block, and must not call the tables. NULL: nobody is told. */
#ifndef ARRAYD_SERVER_OBSERVER_H
#define ARRAYD_SERVER_OBSERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/base/err.h"

struct account_months;
struct definition;
struct handle_image;
struct lease_image;
struct session;
struct setting_changes;
struct share_image;

struct observer {
    void *user;
    /* Before something of the principal's (NULL: nobody's) is added, or may grow: whether another
     * `bytes` can be written down. */
    enum err_code (*check_space)(void *user, const char *principal, size_t bytes, struct err *e);
    /* now: the handle as it is from now on, or NULL; gone: the id of one that is removed, or
     * NULL. Both: one takes the other's place. */
    void (*array)(void *user, const char *principal, const struct handle_image *now,
                  const char *gone);
    /* `gone`: it is removed; otherwise it is new, or has changed. */
    void (*session)(void *user, const char *principal, const struct session *s, bool gone);
    void (*function)(void *user, const char *principal, const struct definition *d, bool gone);
    void (*share)(void *user, const struct share_image *s, bool gone);
    /* NULL: nothing of it is changed any more. */
    void (*settings)(void *user, const char *principal, const struct setting_changes *c);
    /* The principal's device time; NULL: the principal is gone. */
    void (*month)(void *user, const char *principal, const struct account_months *m);
    void (*lease)(void *user, const struct lease_image *l, bool gone);
};

/* One principal's tables and whom they tell. */
struct observer_of {
    const struct observer *to;
    const char *principal; /* borrowed, as `to` is, for the life of the table */
};

/* Bytes that a session, share or lease takes at most, and an array but for its labels. */
#define OBSERVER_RECORD 4096

static inline enum err_code observer_check_space(const struct observer *o, const char *principal,
                                                 size_t bytes, struct err *e)
{
    return o ? o->check_space(o->user, principal, bytes, e) : ERR_OK;
}

#endif
