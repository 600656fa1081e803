/* What a restore has passed over: functions that this version cannot read, arrays that there is no
 * room for. Nobody sees it, and each snapshot has it again as it was, until a start that can
 * restore it.
 *
 * state_load.c adds to it, state_save.c has it written; one thread at a time. */
#ifndef ARRAYD_SERVER_STATE_PASSED_H
#define ARRAYD_SERVER_STATE_PASSED_H

#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"
#include "server/state/state_int.h"
#include "server/store/auth.h"

/* A memory that arrays which were passed over are on. */
struct passed_memory {
    struct passed_memory *next;
    struct strb text;            /* its members in the manifest, but where it is */
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
    struct strb text; /* its members, but for the memory */
};

struct state_passed {
    struct passed_item *items, *last;
    struct passed_memory *memories;
};

enum err_code passed_add_function(struct state_passed *t, const struct principal *p, struct json v,
                                  struct err *e) must_check;
/* `memory`: of the array; made where it is NULL, from its entry in the manifest and the file. */
enum err_code passed_add_array(struct state_passed *t, const struct principal *p,
                               const char *session, struct json v, struct passed_memory **memory,
                               struct json entry, const struct state_kept_file *file,
                               struct err *e) must_check;
void passed_free(struct state_passed *t);

/* Their bytes into the snapshot being written; then the entries of their memories, the first of
 * which has the number given; then a principal's member "passed_over", where there is any.
 * *ret_missing: how many memories are not there. */
enum err_code passed_write(struct state_passed *t, struct state_writer *w, size_t number,
                           int64_t *ret_missing, struct err *e) must_check;
void passed_put_memories(const struct state_passed *t, struct json_writer *w);
void passed_put(const struct state_passed *t, const struct principal *p, struct json_writer *w);
/* It is the last one now. */
void passed_written(struct state_passed *t);

#endif
