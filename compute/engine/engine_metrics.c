/* The engine's figures as Prometheus text. */
#include "compute/engine/engine_int.h"
#include "compute/engine/export.h"
#include "compute/engine/reclaim.h"

/* What clients have is the server's to tell. */
static void sharing_metrics(struct engine *g, struct strb *out)
{
    struct export_figures f;
    int64_t kept = 0;
    engine_export_figures(g, &f);
    for (int i = 0; i < engine_device_count(g); i++)
        kept += reclaim_kept(g->reclaim, i);
    strb_addf(out,
              "# HELP arrayd_shareable_bytes Array memory that can be exported where it is.\n"
              "# TYPE arrayd_shareable_bytes gauge\n"
              "arrayd_shareable_bytes %lld\n"
              "# HELP arrayd_shareable_kept_bytes Such memory kept for new arrays.\n"
              "# TYPE arrayd_shareable_kept_bytes gauge\n"
              "arrayd_shareable_kept_bytes %lld\n"
              "# HELP arrayd_exports_moved_total Exports that had to copy the array first.\n"
              "# TYPE arrayd_exports_moved_total counter\n"
              "arrayd_exports_moved_total %llu\n",
              (long long)f.shareable, (long long)kept, (unsigned long long)f.moved);
}

void engine_metrics(struct engine *g, struct strb *out)
{
    struct plan_counts plans;
    plan_cache_counts(g->plans, &plans);
    strb_addf(out,
              "# HELP arrayd_evaluations_total Expressions and copies queued.\n"
              "# TYPE arrayd_evaluations_total counter\n"
              "arrayd_evaluations_total %llu\n"
              "# HELP arrayd_kernels_total Kernels queued.\n"
              "# TYPE arrayd_kernels_total counter\n"
              "arrayd_kernels_total %llu\n"
              "# HELP arrayd_plan_cache_hits_total Expressions whose plan was there already.\n"
              "# TYPE arrayd_plan_cache_hits_total counter\n"
              "arrayd_plan_cache_hits_total %llu\n"
              "# HELP arrayd_plan_cache_misses_total Expressions that were checked and lowered.\n"
              "# TYPE arrayd_plan_cache_misses_total counter\n"
              "arrayd_plan_cache_misses_total %llu\n"
              "# HELP arrayd_plan_cache_entries Plans kept.\n"
              "# TYPE arrayd_plan_cache_entries gauge\n"
              "arrayd_plan_cache_entries %u\n"
              "# HELP arrayd_plan_cache_bytes Memory they take.\n"
              "# TYPE arrayd_plan_cache_bytes gauge\n"
              "arrayd_plan_cache_bytes %zu\n"
              "# HELP arrayd_work_failed_total Pieces of device work that failed, or read what "
              "failed work should have written.\n"
              "# TYPE arrayd_work_failed_total counter\n"
              "arrayd_work_failed_total %llu\n"
              "# HELP arrayd_jobs_in_flight Pieces of device work queued or running.\n"
              "# TYPE arrayd_jobs_in_flight gauge\n"
              "arrayd_jobs_in_flight %lld\n"
              "# HELP arrayd_host_bytes_in_use Array memory moved from devices to the host.\n"
              "# TYPE arrayd_host_bytes_in_use gauge\n"
              "arrayd_host_bytes_in_use %lld\n"
              "# HELP arrayd_arrays_evicted_total Arrays moved to host memory to make room.\n"
              "# TYPE arrayd_arrays_evicted_total counter\n"
              "arrayd_arrays_evicted_total %llu\n"
              "# HELP arrayd_evicted_bytes_total Their bytes.\n"
              "# TYPE arrayd_evicted_bytes_total counter\n"
              "arrayd_evicted_bytes_total %llu\n"
              "# HELP arrayd_arrays_fetched_total Arrays brought back because they were used.\n"
              "# TYPE arrayd_arrays_fetched_total counter\n"
              "arrayd_arrays_fetched_total %llu\n",
              (unsigned long long)atomic_load(&g->evaluations),
              (unsigned long long)atomic_load(&g->kernels), (unsigned long long)plans.hits,
              (unsigned long long)plans.misses, plans.entries, plans.bytes,
              (unsigned long long)atomic_load(&g->failures), (long long)atomic_load(&g->jobs),
              (long long)atomic_load(&g->host_bytes), (unsigned long long)atomic_load(&g->evicted),
              (unsigned long long)atomic_load(&g->evicted_bytes),
              (unsigned long long)atomic_load(&g->fetched));
    if (g->config.device.shareable)
        sharing_metrics(g, out);
    if (g->backend->ops->metrics)
        g->backend->ops->metrics(g->backend, out);
}
