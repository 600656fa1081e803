/* What was passed over is stored as its text in the manifest, without the members that differ in
 * each snapshot. It is dropped when its owner's account or the array's session is. */
#include "server/state/state_passed.h"

#include <string.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/labels/labels.h"

/* --- as text --- */

/* An object without two of its members, and still open, so that others can be added in their
 * place. */
static enum err_code keep_text(struct strb *text, struct json v, const char *but, const char *and,
                               struct err *e)
{
    struct json_writer w = JSON_WRITER(text);
    json_open_object(&w);
    for (struct json x = json_first(v); json_present(x); x = json_next(x)) {
        if (!strcmp(json_key(x), but) || !strcmp(json_key(x), and))
            continue;
        json_put_key(&w, json_key(x));
        json_put_value(&w, x);
    }
    return text->failed ? err_oom(e) : ERR_OK;
}

/* --- adding --- */

static void free_item(struct passed_item *x)
{
    strb_free(&x->text);
    mem_free(x);
}

static enum err_code add(struct state_passed *t, const struct principal *p, struct json v,
                         struct passed_memory *memory, const char *session, struct err *e)
{
    struct passed_item *x = mem_calloc(1, sizeof *x);
    if (!x)
        return err_oom(e);
    *x = (struct passed_item){.principal = p, .memory = memory};
    if (memory)
        memcpy(x->session, session, ID_SIZE);
    enum err_code code = keep_text(&x->text, v, "memory", "", e);
    if (code != ERR_OK) {
        free_item(x);
        return code;
    }
    *(t->last ? &t->last->next : &t->items) = x;
    t->last = x;
    return ERR_OK;
}

enum err_code passed_add_function(struct state_passed *t, const struct principal *p, struct json v,
                                  struct err *e)
{
    return add(t, p, v, NULL, NULL, e);
}

enum err_code passed_add_array(struct state_passed *t, const struct principal *p,
                               const char *session, struct json v, struct passed_memory **memory,
                               struct json entry, const struct state_kept_file *file, struct err *e)
{
    if (!*memory) {
        struct passed_memory *m = mem_calloc(1, sizeof *m);
        if (!m)
            return err_oom(e);
        m->file = *file;
        m->next = t->memories;
        *memory = t->memories = m;
        TRY(keep_text(&m->text, entry, "file", "at", e));
    }
    t->labels |= labels_in(v);
    return add(t, p, v, *memory, session, e);
}

void passed_free(struct state_passed *t)
{
    for (struct passed_item *x = t->items, *next; x; x = next) {
        next = x->next;
        free_item(x);
    }
    for (struct passed_memory *m = t->memories, *next; m; m = next) {
        next = m->next;
        strb_free(&m->text);
        mem_free(m);
    }
    *t = (struct state_passed){0};
}

/* --- writing --- */

/* Its owner still exists. */
static bool is_wanted(const struct passed_item *x)
{
    if (atomic_load(&x->principal->gone))
        return false;
    _cleanup_session_ struct session *s = NULL;
    return !x->memory || session_get(x->principal->sessions, x->session, false, &s, NULL) == ERR_OK;
}

static void drop_unwanted(struct state_passed *t)
{
    struct passed_item **at = &t->items;
    t->last = NULL;
    for (struct passed_item *x = *at; x; x = *at) {
        if (is_wanted(x)) {
            t->last = x;
            at = &x->next;
        } else {
            *at = x->next;
            free_item(x);
        }
    }
}

static void drop_unused(struct state_passed *t)
{
    struct passed_memory **at = &t->memories;
    for (struct passed_memory *m = *at; m; m = m->next)
        m->there = false;
    for (struct passed_item *x = t->items; x; x = x->next)
        if (x->memory)
            x->memory->there = true;
    for (struct passed_memory *m = *at; m; m = *at) {
        if (m->there) {
            at = &m->next;
        } else {
            *at = m->next;
            strb_free(&m->text);
            mem_free(m);
        }
    }
}

/* A memory that cannot be copied stays in the list, and in the snapshot that has it. */
enum err_code passed_write(struct state_passed *t, struct state_writer *w, size_t number,
                           int64_t *ret_missing, struct err *e)
{
    enum err_code code = ERR_OK;
    bool linked;
    drop_unwanted(t);
    drop_unused(t);
    for (struct passed_memory *m = t->memories; code == ERR_OK && m; m = m->next) {
        code = state_kept_again(w, &m->file, &m->again, &m->there, &linked, e);
        m->number = number++;
        if (code == ERR_OK && !m->there) {
            log_event(LOG_WARN,
                      "a file that was not restored at the start is damaged or cannot be read",
                      "file", m->file.name, NULL);
            ++*ret_missing;
        }
    }
    return code;
}

void passed_put_memories(const struct state_passed *t, struct json_writer *w)
{
    for (const struct passed_memory *m = t->memories; m; m = m->next) {
        if (!m->there) {
            json_put_null(w);
            continue;
        }
        json_put_raw(w, m->text.data, m->text.len);
        json_put_member_string(w, "file", m->again.name);
        json_put_member_i64(w, "at", m->again.at);
        json_close_object(w);
    }
}

static void put_list(const struct state_passed *t, const struct principal *p, bool arrays,
                     struct json_writer *w)
{
    json_put_key(w, arrays ? "arrays" : "functions");
    json_open_list(w);
    for (const struct passed_item *x = t->items; x; x = x->next) {
        if (x->principal != p || !x->memory == arrays || (arrays && !x->memory->there))
            continue;
        json_put_raw(w, x->text.data, x->text.len);
        if (arrays)
            json_put_member_i64(w, "memory", (int64_t)x->memory->number);
        json_close_object(w);
    }
    json_close_list(w);
}

void passed_put(const struct state_passed *t, const struct principal *p, struct json_writer *w)
{
    const struct passed_item *x = t->items;
    while (x && x->principal != p)
        x = x->next;
    if (!x)
        return;
    json_put_key(w, "passed_over");
    json_open_object(w);
    put_list(t, p, false, w);
    put_list(t, p, true, w);
    json_close_object(w);
}

void passed_written(struct state_passed *t)
{
    for (struct passed_memory *m = t->memories; m; m = m->next)
        if (m->there)
            m->file = m->again;
}
