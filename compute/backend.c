/* The validating front: what every backend may take for granted is checked here, once, before it
 * sees the work. Which backends there are is backends.c's to know. */
#include "compute/backend.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/trace.h"

void backend_close(struct backend *b)
{
    if (b)
        b->ops->close(b);
}

#ifndef NDEBUG
/* A broken kernel is our mistake, never a client's: it ends a debug build with its listing. */
static void validate(const struct job *job)
{
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        const struct ir_kernel *k = job->kernels[i];
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const char *bad = arena ? ir_verify(k, arena) : NULL;
        if (bad) {
            _cleanup_strb_ struct strb text = {0};
            ir_print(k, &text);
            fprintf(stderr, "invalid kernel: %s\n%s", bad, text.data ? text.data : "");
        }
        assert(!bad);
        for (uint32_t a = 0; a < k->n_inputs; a++)
            assert(job_slots(job, i)[k->inputs[a].slot]);
        for (uint32_t a = 0; a < k->n_outputs; a++)
            assert(job_slots(job, i)[k->outputs[a].slot]);
    }
    assert(job->loop_n == 0 || (job->repeats && job->loop_from + job->loop_n <= job->n_kernels));
    assert(job->done);
}
#endif

static void trace_launch(const struct job *job)
{
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        const struct ir_kernel *k = job->kernels[i];
        _cleanup_strb_ struct strb b = {0};
        char shape[SHAPE_TEXT_MAX];
        strb_addf(&b,
                  "kernel %u of %u over %s: %u nodes, %u inputs, %u outputs, %lld bytes read, %lld "
                  "written",
                  i + 1, job->n_kernels, shape_text(k->rank, k->shape, shape, sizeof shape),
                  k->n_nodes, k->n_inputs, k->n_outputs, (long long)ir_bytes_read(k),
                  (long long)ir_bytes_written(k));
        trace_write(TRACE_LAUNCH, b.data ? b.data : "", b.len);
    }
}

uint64_t backend_submit(struct backend *b, struct stream *s, struct job *job)
{
#ifndef NDEBUG
    validate(job);
#endif
    if (trace_on(TRACE_LAUNCH))
        trace_launch(job);
    return b->ops->submit(s, job);
}
