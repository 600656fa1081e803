/* What a restore passed over: functions that this version cannot read, arrays that found no room.
 * Clients do not see them; each snapshot has them again unchanged, until a start can restore them.
 *
 * state_load.c adds them, state_save.c has them written; one thread at a time. */
#ifndef ARRAYD_SERVER_STATE_PASSED_H
#define ARRAYD_SERVER_STATE_PASSED_H

#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"
#include "server/state/state_int.h"
#include "server/store/auth.h"

/* The memory of arrays that were passed over. */
struct passed_memory {
    struct passed_memory *next;
    struct strb text;            /* its members in the manifest, without its location */
    struct state_kept_file file; /* in the last snapshot, and in the one being written: */
    struct state_kept_file again;
    size_t number;
    bool there;
};

struct passed_item {
    struct passed_item *next;
    const struct principal *principal;
    struct passed_memory *memory; /* NULL: a function */
    char session[ID_SIZE];
    struct strb text; /* its members, without the memory */
};

struct state_passed {
    struct passed_item *items, *last;
    struct passed_memory *memories;
    bool labels; /* an array has some */
};

enum err_code passed_add_function(struct state_passed *t, const struct principal *p, struct json v,
                                  struct err *e) must_check;
/* `memory`: the array's; if NULL, made from its entry in the manifest and the file. */
enum err_code passed_add_array(struct state_passed *t, const struct principal *p,
                               const char *session, struct json v, struct passed_memory **memory,
                               struct json entry, const struct state_kept_file *file,
                               struct err *e) must_check;
void passed_free(struct state_passed *t);

/* passed_write: their bytes into the snapshot being written. passed_put_memories: the entries of
 * their memories, the first of which has that number. Then a principal's member "passed_over", if
 * there is any. *ret_missing: how many memories could not be written. */
enum err_code passed_write(struct state_passed *t, struct state_writer *w, size_t number,
                           int64_t *ret_missing, struct err *e) must_check;
void passed_put_memories(const struct state_passed *t, struct json_writer *w);
void passed_put(const struct state_passed *t, const struct principal *p, struct json_writer *w);
/* The snapshot being written is the last one now. */
void passed_written(struct state_passed *t);

#endif
