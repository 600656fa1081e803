/* The validating front: checks once, before the backend sees a job, everything that backends may
 * assume. backends.c alone knows which backends exist. */
#include "compute/backend.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/trace.h"
#include "compute/type/layout.h"

const char *const kernel_forms[KERNEL_FORMS] = {
    "flat",       "rows",      "tile",       "stencil",    "window",       "steps",       "fold",
    "scan-inner", "scan-rows", "scan-outer", "reduce-all", "reduce-inner", "reduce-outer"};

unsigned kernel_form_bit(const char *name)
{
    for (unsigned i = 0; i < KERNEL_FORMS; i++)
        if (!strcmp(kernel_forms[i], name))
            return 1u << i;
    assert(!"a form without a bit");
    return 0;
}

void backend_close(struct backend *b)
{
    if (b)
        b->ops->close(b);
}

#ifndef NDEBUG
static bool apart(int64_t lo, int64_t hi, int64_t out_lo, int64_t out_hi)
{
    return lo >= hi || out_lo >= out_hi || hi <= out_lo || out_hi <= lo;
}

/* Whether a node reads elements of the output's memory that are written at another point than the
 * one they are read for: the result would depend on the order of points. Views that are only read
 * point by point may interleave. */
static bool reads_what_is_written(const struct ir_kernel *k, uint32_t node,
                                  const struct ir_output *out)
{
    const struct ir_node *n = &k->nodes[node];
    const struct ir_input *in = &k->inputs[n->input];
    const int64_t size = (int64_t)dtype_size(in->dtype), out_size = (int64_t)dtype_size(out->dtype);
    bool by_point = out->kind == OUT_STORE && n->kind == IR_LOAD && n->ctx == 0;
    if (by_point && (in->view.offset != out->view.offset || size != out_size))
        return false;
    for (int a = 0; a < k->rank && by_point; a++)
        by_point = k->shape[a] < 2 || in->view.strides[a] == out->view.strides[a];
    int64_t lo, hi, out_lo, out_hi;
    if (n->kind == IR_LOAD)
        ir_load_extent(k, node, &lo, &hi);
    else
        view_extent(&in->view, &lo, &hi);
    view_extent(&out->view, &out_lo, &out_hi);
    return !by_point && !apart(lo * size, hi * size, out_lo * out_size, out_hi * out_size);
}

/* Checks what ir_verify cannot see: the memory behind the slots. A kernel over an empty space reads
 * nothing, wherever its operands lie. */
static const char *wrong_memory(const struct ir_kernel *k, void *const *slots)
{
    bool reads = true;
    for (int a = 0; a < k->rank; a++)
        reads = reads && k->shape[a] > 0;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        if (!slots[k->inputs[i].slot])
            return "an input without memory";
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *out = &k->outputs[i];
        if (!slots[out->slot])
            return "an output without memory";
        for (uint32_t j = 0; j < i; j++)
            if (slots[k->outputs[j].slot] == slots[out->slot])
                return "two outputs in one memory";
        for (uint32_t j = 0; j < k->n_nodes; j++) {
            const struct ir_node *n = &k->nodes[j];
            if ((n->kind != IR_LOAD && n->kind != IR_GATHER) || !reads ||
                slots[k->inputs[n->input].slot] != slots[out->slot])
                continue;
            if (k->n_outputs > 1 || k->steps > 1 || out->kind == OUT_SCAN ||
                reads_what_is_written(k, j, out))
                return "an output over what is read";
        }
    }
    return NULL;
}

/* An invalid kernel is our mistake, never a client's: it ends a debug build with its listing. */
static void validate(const struct backend *b, const struct backend_stream *s, const struct job *job)
{
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        const struct ir_kernel *k = job->kernels[i];
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const char *bad = arena ? ir_verify(k, arena) : NULL;
        if (!bad)
            bad = wrong_memory(k, job_slots(job, i));
        if (bad) {
            _cleanup_strb_ struct strb text = {0};
            ir_print(k, &text);
            fprintf(stderr, "invalid kernel: %s\n%s", bad, text.data ? text.data : "");
        }
        assert(!bad);
    }
    assert(job->loop_n == 0 || (job->repeats && job->loop_from + job->loop_n <= job->n_kernels));
    for (uint32_t i = 0; i < job->n_waits; i++)
        assert(job->waits[i].stream && job->waits[i].stream != s && job->waits[i].seq);
    for (uint32_t i = 0; i < job->n_copies; i++)
        assert(job->copies[i].to && job->copies[i].from && job->copies[i].n > 0);
    assert(!job->fetch || b->ops->download_new);
    assert(!job->next && !job->seq && !job->stream && !job->private_data);
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

uint64_t backend_submit(struct backend *b, struct backend_stream *s, struct job *job)
{
#ifndef NDEBUG
    validate(b, s, job);
#endif
    if (trace_on(TRACE_LAUNCH))
        trace_launch(job);
    return b->ops->submit(s, job);
}
