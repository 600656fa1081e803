/* Arrays of float32 sent and fetched through the engine's own door, whatever becomes of it, for
 * tests of the CUDA backend on the fake driver in which calls fail. Any thread may call. */
#ifndef ARRAYD_TESTS_CUDA_ARRAYS_H
#define ARRAYD_TESTS_CUDA_ARRAYS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compute/engine/engine.h"

/* For somebody who asks again and again; ends the process where that lasts for ever. */
static inline void pause_a_little(int *tries)
{
    if (++*tries > 400000) {
        fprintf(stderr, "something is waited for that does not come\n");
        abort();
    }
    usleep(50);
}

static inline void push_all(struct upload *u, const void *bytes, size_t n)
{
    int tries = 0;
    for (size_t at = 0, took; at < n; at += took)
        if (!(took = upload_push(u, (const char *)bytes + at, n - at)))
            pause_a_little(&tries);
}

static inline enum err_code put_array(struct engine_stream *s, struct account *account,
                                      const float *values, int rank, const int64_t *shape,
                                      struct array **ret)
{
    struct upload *u = NULL;
    struct err e = ERR_INIT;
    int64_t n = 4;
    for (int k = 0; k < rank; k++)
        n *= shape[k];
    enum err_code code = upload_new(s, account, n, NULL, NULL, &u, &e);
    if (code != ERR_OK)
        return code;
    push_all(u, values, (size_t)n);
    return upload_finish_new(u, DT_F32, rank, shape, false, ret, &e);
}

static inline enum err_code get_array(struct engine_stream *s, struct array *a, float *to)
{
    struct download *d = NULL;
    struct err e = ERR_INIT;
    enum err_code code = download_new(s, a, NULL, NULL, &d, &e);
    if (code != ERR_OK)
        return code;
    int tries = 0;
    int64_t n = array_nbytes(a);
    for (int64_t at = 0; at < n && code == ERR_OK;) {
        int64_t got = download_pull(d, at, (char *)to + at, (size_t)(n - at));
        if (got < 0 && (code = download_result(d)) == ERR_OK)
            abort(); /* it failed, and does not say why */
        else if (got == 0)
            pause_a_little(&tries);
        else
            at += got;
    }
    download_free(d);
    return code;
}

#endif
