/* Streams are created and freed with sessions, but their device resources are made once: a freed
 * stream waits for its next owner. Its numbering continues: its fences may still be queried. */
#include "compute/gpu/device/stream.h"

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/gpu/device/memory.h"
#include "compute/gpu/device/mesh.h"
#include "compute/gpu/text/emit.h"

enum err_code cuda_stream_new(struct backend *b, int device, bool background,
                              struct backend_stream **ret, struct err *e)
{
    struct cuda *c = (struct cuda *)b;
    struct cuda_device *d = &c->devices[device];
    TRY(cuda_entered(d, e));
    pthread_mutex_lock(&d->lock);
    struct backend_stream *s = d->spare[background];
    if (s) {
        d->spare[background] = s->next;
        s->next = d->streams;
        d->streams = s;
    }
    pthread_mutex_unlock(&d->lock);
    if (s) {
        *ret = s;
        return ERR_OK;
    }
    s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_oom(e);
    s->device = d;
    s->background = background;
    enum err_code code = cuda_stream_create(c, background, &s->cu, e);
    if (code == ERR_OK) {
        code = cuda_alloc_own(d, EMIT_COUNTERS_SIZE, &s->counters, e);
        if (code != ERR_OK)
            (void)c->driver->cuStreamDestroy(s->cu);
    }
    if (code == ERR_OK && d->n_members > 1) {
        code = mesh_stream_open(s, e);
        if (code != ERR_OK) {
            (void)c->driver->cuStreamDestroy(s->cu);
            cuda_free_own(d, s->counters);
        }
    }
    if (code != ERR_OK) {
        mem_free(s);
        return code;
    }
    pthread_mutex_lock(&d->lock);
    s->next = d->streams;
    d->streams = s;
    pthread_mutex_unlock(&d->lock);
    *ret = s;
    return ERR_OK;
}

void cuda_stream_free(struct backend_stream *s)
{
    struct cuda_device *d = s->device;
    pthread_mutex_lock(&d->lock);
    struct backend_stream **at = &d->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    s->next = d->spare[s->background];
    d->spare[s->background] = s;
    pthread_mutex_unlock(&d->lock);
}

void cuda_streams_release(struct cuda_device *d)
{
    for (int i = 0; i < 2; i++)
        while (d->spare[i]) {
            struct backend_stream *s = d->spare[i];
            d->spare[i] = s->next;
            if (s->mesh)
                mesh_stream_close(s);
            (void)d->cuda->driver->cuStreamDestroy(s->cu);
            cuda_free_own(d, s->counters);
            mem_free(s);
        }
}

bool cuda_passed(struct fence f)
{
    return atomic_load(&f.stream->passed) >= f.seq;
}

void cuda_stream_waits(struct backend_stream *s)
{
    lock_held(&s->device->lock);
    s->waits = true;
    if (s->order == MESH_MET)
        s->order = MESH_TOGETHER;
}

enum err_code cuda_stream_wait_event(struct backend_stream *s, CUevent event, struct err *e)
{
    struct cuda *c = s->device->cuda;
    TRY(cuda_entered(s->device, e));
    pthread_mutex_lock(&s->device->lock); /* all of it is before or behind a job */
    enum err_code code =
        cuda_check(c, c->driver->cuStreamWaitEvent(s->cu, event, 0), "cuStreamWaitEvent", e);
    cuda_stream_waits(s);
    pthread_mutex_unlock(&s->device->lock);
    return code;
}
