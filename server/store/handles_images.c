/* Saving and restoring handles. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/store/handles_int.h"

/* The table of ids iterates in the order of insertion. */
enum err_code handles_images(struct handles *t, struct handle_image **ret, size_t *ret_n,
                             struct err *e)
{
    size_t n = 0;
    struct entry *x, *tmp;
    pthread_mutex_lock(&t->lock);
    struct handle_image *images = mem_calloc(t->count, sizeof *images);
    if (images)
        HASH_ITER (hh, t->by_id, x, tmp) {
            struct handle_image *i = &images[n++];
            memcpy(i->id, x->id, ID_SIZE);
            if (x->name)
                memcpy(i->name, x->name->key.name, NAME_SIZE);
            memcpy(i->session, x->space->session, ID_SIZE);
            memcpy(i->view_of, x->view_of, ID_SIZE);
            memcpy(i->base, x->base, ID_SIZE);
            i->read_only = x->read_only;
            i->created_us = x->created_us;
            i->seq = x->seq;
            i->array = array_ref(x->array);
        }
    pthread_mutex_unlock(&t->lock);
    if (!images)
        return err_oom(e);
    *ret = images;
    *ret_n = n;
    return ERR_OK;
}

enum err_code handle_restore(struct handle_space *s, const struct handle_image *image,
                             int64_t restored_us, struct err *e)
{
    struct handles *t = s->table;
    struct entry *x = mem_calloc(1, sizeof *x), *old = NULL;
    if (!x)
        return err_oom(e);
    memcpy(x->id, image->id, ID_SIZE);
    memcpy(x->view_of, image->view_of, ID_SIZE);
    memcpy(x->base, image->base, ID_SIZE);
    x->read_only = image->read_only;
    x->created_us = image->created_us;
    x->restored_us = restored_us;
    x->array = array_ref(image->array);
    x->space = s;
    const char *name = image->name[0] ? image->name : NULL;
    pthread_mutex_lock(&t->lock);
    enum err_code code = handles_check_name(s, name, NAME_NEW, e);
    if (code == ERR_OK && handles_find(t, x->id))
        code = err_set(e, ERR_CONFLICT, "the array '%s' is there already", x->id);
    if (code == ERR_OK) {
        if (t->next_seq < image->seq)
            t->next_seq = image->seq;
        code = handles_insert(s, x, name, &old, e);
    }
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        handles_entry_free(x);
    return code;
}
