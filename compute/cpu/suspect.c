/* A job's plan is the sum of its kernels' identities (ir_identity), made wider. It is computed anew
 * wherever it is needed, since that takes some nanoseconds a kernel. */
#include "compute/cpu/suspect.h"

#include <string.h>

static struct code_key key_of(struct ir_kernel *k)
{
    uint64_t lanes[sizeof(struct code_key) / 8], h = ir_identity(k);
    struct code_key key;
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
        lanes[i] = h;
    }
    memcpy(&key, lanes, sizeof key);
    return key;
}

static struct code_key plan_of(const struct job *job)
{
    struct code_key plan = {{0}};
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        const struct code_key key = key_of(job->kernels[i]);
        code_key_add(&plan, &key);
    }
    return plan;
}

enum err_code suspect_judge(const struct suspect_watch *w, struct job *job)
{
    if (!w->culprits || job->n_kernels == 0 || culprits_is_empty(w->culprits))
        return ERR_OK;
    const struct code_key plan = plan_of(job);
    const struct culprit_verdict v = culprits_judge(w->culprits, NULL, 0, &plan);
    job->refusal = v.refusal;
    job->alone = v.alone && v.code == ERR_OK;
    return v.code;
}

void suspect_begins(const struct suspect_watch *w, struct job *job)
{
    if (!w->culprits || job->n_kernels == 0)
        return;
    const struct code_key plan = plan_of(job);
    job->running =
        culprits_begin(w->culprits, &plan, job->n_kernels, "rows",
                       w->who ? w->who(job->asker) : (struct culprit_who){0}, job->alone);
}

void suspect_ends(const struct suspect_watch *w, const struct job *job)
{
    if (!w->culprits)
        return;
    if (job->alone && job->result == ERR_OK) {
        const struct code_key plan = plan_of(job);
        culprits_cleared(w->culprits, NULL, 0, &plan);
    }
    culprits_end(w->culprits, job->running);
}
