/* What clients have made, as JSON: one writer and one reader for each kind of thing, for the state
 * on disk and for the journal. Leases and the places of memories are in the journal only.
 *
 * Called by server/state, and by journal_writer.c and recover.c. Pure, but for the arrays made;
 * thread-safe. */
#ifndef ARRAYD_SERVER_KEPT_H
#define ARRAYD_SERVER_KEPT_H

#include "compute/engine/engine.h"
#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"
#include "server/store/accounts.h"
#include "server/store/functions.h"
#include "server/store/handles.h"
#include "server/store/lease.h"
#include "server/store/session.h"

struct principal;

/* A read-only link: its key's hash, and what it shows. */
#define KEPT_LINK_REFS 64
struct kept_link {
    char id[ID_SIZE];
    uint8_t hash[TOKEN_HASH_SIZE];
    bool whole; /* all that its owner sees, or */
    size_t n_refs;
    char refs[KEPT_LINK_REFS][ID_SIZE]; /* these arrays and jobs */
    int64_t created_us, expires_us;
};
/* Their table, of server/login, which this room cannot see. each: oldest first, with the table's
 * lock held. restore: unless it is over; ERR_OUT_OF_MEMORY. */
struct kept_links {
    void *table;
    void (*each)(void *table, const struct principal *who,
                 void (*visit)(void *user, const struct kept_link *l), void *user);
    enum err_code (*restore)(void *table, struct principal *who, const struct kept_link *l,
                             struct err *e);
};

/* A place in memory that outlives the process; chunk 0: none. */
struct kept_place {
    uint64_t chunk, cell;
    int64_t offset;           /* in the chunk */
    bool host;                /* moved to host memory */
    bool own;                 /* nothing else lies in the chunk */
    bool exported, outstayed; /* as in struct engine_place */
};
/* Where an array's memory is; its number in the journal is array_memory_id. */
struct kept_memory {
    uint64_t number;
    int64_t bytes;
    int device;
    struct kept_place at, was; /* as in struct engine_placed */
};

/* Each writes one object. `memory`: the number of the array's memory. `live`: for the journal, with
 * what only the next process cares about. */
void kept_put_session(struct json_writer *w, const struct session *s, bool live);
void kept_put_array(struct json_writer *w, const struct handle_image *h, int64_t memory, bool live);
/* Of an array's members those that say which elements it has (kept_read_array). */
void kept_put_elements(struct json_writer *w, const struct array *a, int64_t memory, bool live);
void kept_put_function(struct json_writer *w, const struct definition *d);
void kept_put_share(struct json_writer *w, const char *id, const char *owner, const char *who,
                    bool write);
void kept_put_settings(struct json_writer *w, const struct setting_changes *c);
void kept_put_link(struct json_writer *w, const struct kept_link *l);
void kept_put_months(struct json_writer *w, const struct account_months *m);
void kept_put_lease(struct json_writer *w, const struct lease_image *l);
void kept_put_memory(struct json_writer *w, const struct kept_memory *m);

/* Each reads one object. Errors are of damage, with the place in the text, or ERR_OUT_OF_MEMORY. */

/* The members that session_restore needs; its device as engine_device_kept says, and its
 * kept_device as engine_kept_again. */
enum err_code kept_read_session(struct json v, const struct engine *g, struct session *ret,
                                struct err *e) must_check;
/* All but the array itself; the labels are a reference (handle_image_clear). */
struct kept_handle {
    struct handle_image image;
    int64_t memory; /* its number */
    int64_t buffer; /* array_buffer_id, in that process; only in the journal */
};
static inline void kept_handle_clear(struct kept_handle *h)
{
    handle_image_clear(&h->image);
}
#define _cleanup_kept_handle_ __attribute__((cleanup(kept_handle_clear)))
enum err_code kept_read_handle(struct json v, struct kept_handle *ret, struct err *e) must_check;
/* The array; `base`: its memory, as an array of bytes. */
enum err_code kept_read_array(struct json v, struct array *base, struct array **ret,
                              struct err *e) must_check;
/* *ret NULL: this version reads the function differently from the one that saved it, since its name
 * may be an operation's now: *ret_why. Limits are the largest that it may have been defined under.
 * The caller gets the function's reference. */
enum err_code kept_read_function(const struct config *config, struct json v,
                                 struct definition **ret, struct err *ret_why,
                                 struct err *e) must_check;
struct kept_share {
    char id[ID_SIZE], owner[PRINCIPAL_SIZE], who[PRINCIPAL_SIZE];
    bool write;
};
enum err_code kept_read_share(struct json v, struct kept_share *ret, struct err *e) must_check;
enum err_code kept_read_settings(struct json v, struct setting_changes *ret,
                                 struct err *e) must_check;
enum err_code kept_read_link(struct json v, struct kept_link *ret, struct err *e) must_check;
enum err_code kept_read_months(struct json v, struct account_months *ret, struct err *e) must_check;
struct kept_lease {
    struct lease_image image; /* `buffer` is that of the other process */
    char who[PRINCIPAL_SIZE]; /* "": nobody */
};
enum err_code kept_read_lease(struct json v, struct kept_lease *ret, struct err *e) must_check;
/* All but the number, which is the key. */
enum err_code kept_read_memory(struct json v, struct kept_memory *ret, struct err *e) must_check;

#endif
