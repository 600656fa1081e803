/* Opening and closing the engine, and its reports about itself. */
#include "compute/engine/engine.h"
#include "compute/memory/memory_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "compute/backend.h"
#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/run.h"
#include "compute/engine/sums.h"
#include "compute/memory/cells.h"
#include "compute/memory/chunk.h"
#include "compute/memory/export.h"
#include "compute/memory/reclaim.h"
#include "compute/memory/transfer.h"

/* plan_release for the plans of the cache. */
static void release_plan(void *user, struct ir_plan *plan)
{
    kernels_release(user, plan->kernels, plan->n_kernels);
}

static void engine_free(struct engine *g)
{
    struct kept *loops = atomic_load(&g->loops);
    if (loops)
        loops->free(loops);
    plan_cache_free(g->plans);
    sums_free(g->sums);
    mem_free(g->visitors);
    mem_free(g->bytes);
    mover_free(g->mover);
    reclaim_free(g->reclaim);
    chunks_free(g->chunks);
    cells_free(g->cells);
    backend_close(g->backend);
    pthread_mutex_destroy(&g->tasks.lock);
    pthread_mutex_destroy(&g->buffers_lock);
    pthread_mutex_destroy(&g->pins_lock);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

enum err_code engine_open(const struct engine_config *config, struct engine **ret, struct err *e)
{
    struct engine *g = mem_calloc(1, sizeof *g);
    if (!g)
        return err_oom(e);
    g->keep = config->keep;
    g->chunk_own = config->chunk_own;
    g->max_chunks = config->max_chunks;
    g->device = config->device;
    g->asker = config->asker;
    g->asker_unref = config->asker_unref;
    g->close_wait_ms = config->close_wait_ms;
    g->max_cost = config->max_cost;
    g->plan_cache_bytes = config->plan_cache_bytes;
    g->task_freed = run_freed;
    g->fuse = (struct fuse_limits){.max_nodes = config->max_kernel_nodes,
                                   .max_inputs = config->max_kernel_inputs};
    const bool keeps = config->keep.put;
    if (keeps) {
        enum err_code cells = cells_new(config->max_kept, config->cells, &g->cells, e);
        if (cells != ERR_OK) {
            mem_free(g);
            return cells;
        }
        cells_died(g->cells, config->signal, config->ended);
        if (g->keep.cells && cells_are_new(g->cells))
            g->keep.cells(g->keep.user, cells_fd(g->cells));
    }
    struct backend_config device = config->device;
    device.shareable |= keeps;
    g->own_least = keeps ? config->chunk_own : device.shareable_least;
    if (config->device.shareable && device.shareable_least < g->own_least)
        g->own_least = device.shareable_least;
    enum err_code code =
        backend_open(config->backend, &device, &g->backend, g->note, sizeof g->note, e);
    if (code != ERR_OK) {
        cells_free(g->cells);
        mem_free(g);
        return code;
    }
    struct backend_device last;
    g->mesh = engine_device_count(g) - 1;
    engine_device_info(g, g->mesh, &last);
    if (!last.n_parts)
        g->mesh = -1;
    g->fuse.recompute = g->backend->ops->recompute;
    if (!g->max_cost)
        g->max_cost = g->backend->ops->max_cost;
    g->kernel_bytes = g->backend->ops->prepare ? PREPARED_BYTES : 0;
    g->plans = plan_cache_new(&(struct plan_cache_config){.capacity = config->plan_cache,
                                                          .bytes = (size_t)config->plan_cache_bytes,
                                                          .kernel_bytes = g->kernel_bytes,
                                                          .release = release_plan,
                                                          .user = g});
    g->visitors = mem_calloc((size_t)engine_device_count(g), sizeof *g->visitors);
    g->bytes = mem_calloc((size_t)engine_device_count(g), sizeof *g->bytes);
    g->mover = mover_new(g);
    g->reclaim = reclaim_new(g);
    g->chunks = chunks_new(g);
    /* where chunks consist of pages: a larger piece would leave a hole in its chunk in which no
     * other such fits */
    if (keeps && g->chunks && engine_in_host_memory(g) && g->own_least > chunk_size(g) / 2)
        g->own_least = chunk_size(g) / 2 + 1;
    g->host_limit = config->device.host_memory > 0 ? config->device.host_memory : mem_machine() / 2;
    pthread_mutex_init(&g->lock, NULL); /* these cannot fail here */
    pthread_mutex_init(&g->buffers_lock, NULL);
    pthread_mutex_init(&g->tasks.lock, NULL);
    pthread_mutex_init(&g->pins_lock, NULL);
    if (!g->plans || !g->visitors || !g->bytes || !g->mover || !g->reclaim || !g->chunks) {
        engine_free(g);
        return err_oom(e);
    }
    *ret = g;
    return ERR_OK;
}

bool engine_close(struct engine *g)
{
    if (!g)
        return true;
    engine_sums_stop(g);
    mover_stop(g->mover);
    reclaim_stop(g->reclaim);
    /* the last copies of transfers release their memory by themselves, shortly */
    double until = clock_ms() + g->close_wait_ms;
    while (atomic_load(&g->jobs) > 0 && clock_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (atomic_load(&g->jobs) > 0)
        return false; /* a kernel may still use any of it */
    for (int i = 0; i < engine_device_count(g); i++)
        engine_stream_unref(atomic_load(&g->visitors[i]));
    engine_stream_reap(g);
    chunks_adopted(g); /* if taking them over came to nothing */
    assert(!g->oldest && !g->tasks.oldest && engine_bytes_in_use(g) == 0);
    engine_free(g);
    return true;
}

const char *engine_backend(const struct engine *g)
{
    return g->backend->ops->name;
}

const char *engine_note(const struct engine *g)
{
    return g->note;
}

int64_t engine_bytes_in_use(const struct engine *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < engine_device_count(g); i++)
        bytes += engine_bytes_on(g, i);
    return bytes;
}

int64_t engine_bytes_on(const struct engine *g, int device)
{
    return atomic_load(&g->bytes[device]);
}

int64_t engine_host_bytes(const struct engine *g)
{
    return atomic_load(&g->host_bytes);
}

int64_t engine_host_limit(const struct engine *g)
{
    return g->host_limit;
}

int64_t engine_jobs_in_flight(const struct engine *g)
{
    return atomic_load(&g->jobs);
}

int64_t engine_max_cost(const struct engine *g)
{
    return g->max_cost;
}

static void warn(struct backend_report *r, const char *what, const char *why)
{
    const size_t n = strlen(r->warning);
    if (why)
        snprintf(r->warning + n, sizeof r->warning - n, "%s%s: %s", n ? "; " : "", what, why);
}

void engine_report(const struct engine *g, struct backend_report *ret)
{
    const struct backend_ops *ops = g->backend->ops;
    *ret = (struct backend_report){0};
    if (g->cells && cells_are_damaged(g->cells))
        warn(ret, "what the previous process noted of arrays is damaged",
             "contents that are in doubt are lost");
    if (ops->report)
        ops->report(g->backend, ret);
    for (int i = 0; i < engine_single_count(g); i++) {
        if (g->device.shareable)
            warn(ret, "arrays cannot be exported", engine_export_problem(g, i));
        if (g->keep.put)
            warn(ret, "arrays do not outlive the process", engine_keep_problem(g, i));
    }
}

void engine_tidy(struct engine *g)
{
    if (g->backend->ops->tidy)
        g->backend->ops->tidy(g->backend);
}

/* --- the figures as Prometheus text --- */

static void kept_metrics(struct engine *g, struct strb *out)
{
    int64_t kept = 0;
    for (int i = 0; i < engine_device_count(g); i++)
        kept += reclaim_kept(g->reclaim, i);
    strb_addf(out,
              "# HELP arrayd_shareable_kept_bytes Exportable memory kept for new arrays, in "
              "bytes.\n"
              "# TYPE arrayd_shareable_kept_bytes gauge\n"
              "arrayd_shareable_kept_bytes %lld\n",
              (long long)kept);
}

static void chunk_metrics(const struct engine *g, struct strb *out)
{
    struct chunk_figures f;
    chunk_figures(g, &f);
    strb_addf(out,
              "# HELP arrayd_chunks Pieces of memory that the keeper has.\n"
              "# TYPE arrayd_chunks gauge\n"
              "arrayd_chunks %lld\n"
              "# HELP arrayd_chunk_bytes Their size, in bytes.\n"
              "# TYPE arrayd_chunk_bytes gauge\n"
              "arrayd_chunk_bytes %lld\n",
              (long long)f.chunks, (long long)f.bytes);
    if (!g->cells)
        return;
    int64_t n, most;
    cells_count(g->cells, &n, &most);
    strb_addf(out,
              "# HELP arrayd_memory_sums_total Sums made of arrays' memory, to find what a fault "
              "changes.\n"
              "# TYPE arrayd_memory_sums_total counter\n"
              "arrayd_memory_sums_total %lld\n"
              "# HELP arrayd_kept_arrays Arrays' memories that outlive the process.\n"
              "# TYPE arrayd_kept_arrays gauge\n"
              "arrayd_kept_arrays %lld\n"
              "# HELP arrayd_keep_limit_reached Whether new arrays do not outlive the process.\n"
              "# TYPE arrayd_keep_limit_reached gauge\n"
              "arrayd_keep_limit_reached %d\n",
              (long long)sums_made(g->sums), (long long)n, engine_keep_limit(g) != NULL);
}

/* Sharing alone: what clients hold is reported by the server. */
static void sharing_metrics(struct engine *g, struct strb *out)
{
    struct export_figures f;
    engine_export_figures(g, &f);
    strb_addf(out,
              "# HELP arrayd_shareable_bytes Array memory that can be exported in place, in "
              "bytes.\n"
              "# TYPE arrayd_shareable_bytes gauge\n"
              "arrayd_shareable_bytes %lld\n"
              "# HELP arrayd_exports_moved_total Exports for which the array had to be copied "
              "first.\n"
              "# TYPE arrayd_exports_moved_total counter\n"
              "arrayd_exports_moved_total %llu\n",
              (long long)f.shareable, (unsigned long long)f.moved);
}

void engine_metrics(struct engine *g, struct strb *out)
{
    struct plan_counts plans;
    plan_cache_counts(g->plans, &plans);
    strb_addf(
        out,
        "# HELP arrayd_evaluations_total Expressions and copies queued.\n"
        "# TYPE arrayd_evaluations_total counter\n"
        "arrayd_evaluations_total %llu\n"
        "# HELP arrayd_kernels_total Kernels queued.\n"
        "# TYPE arrayd_kernels_total counter\n"
        "arrayd_kernels_total %llu\n"
        "# HELP arrayd_plan_cache_hits_total Expressions whose plan was found in the cache.\n"
        "# TYPE arrayd_plan_cache_hits_total counter\n"
        "arrayd_plan_cache_hits_total %llu\n"
        "# HELP arrayd_plan_cache_misses_total Expressions that had to be checked and lowered.\n"
        "# TYPE arrayd_plan_cache_misses_total counter\n"
        "arrayd_plan_cache_misses_total %llu\n"
        "# HELP arrayd_plan_cache_entries Plans in the cache.\n"
        "# TYPE arrayd_plan_cache_entries gauge\n"
        "arrayd_plan_cache_entries %u\n"
        "# HELP arrayd_plan_cache_bytes Memory used by the plan cache, in bytes.\n"
        "# TYPE arrayd_plan_cache_bytes gauge\n"
        "arrayd_plan_cache_bytes %zu\n"
        "# HELP arrayd_work_failed_total Device jobs that failed, or that read what a failed one "
        "should have written.\n"
        "# TYPE arrayd_work_failed_total counter\n"
        "arrayd_work_failed_total %llu\n"
        "# HELP arrayd_jobs_in_flight Device jobs queued or running.\n"
        "# TYPE arrayd_jobs_in_flight gauge\n"
        "arrayd_jobs_in_flight %lld\n"
        "# HELP arrayd_host_bytes_in_use Memory of arrays that were moved from a device to the "
        "host, in bytes.\n"
        "# TYPE arrayd_host_bytes_in_use gauge\n"
        "arrayd_host_bytes_in_use %lld\n"
        "# HELP arrayd_arrays_evicted_total Arrays moved to host memory to make room.\n"
        "# TYPE arrayd_arrays_evicted_total counter\n"
        "arrayd_arrays_evicted_total %llu\n"
        "# HELP arrayd_evicted_bytes_total Bytes of arrays moved to host memory to make room.\n"
        "# TYPE arrayd_evicted_bytes_total counter\n"
        "arrayd_evicted_bytes_total %llu\n"
        "# HELP arrayd_arrays_fetched_total Arrays moved back to a device because they were used.\n"
        "# TYPE arrayd_arrays_fetched_total counter\n"
        "arrayd_arrays_fetched_total %llu\n",
        (unsigned long long)atomic_load(&g->evaluations),
        (unsigned long long)atomic_load(&g->kernels), (unsigned long long)plans.hits,
        (unsigned long long)plans.misses, plans.entries, plans.bytes,
        (unsigned long long)atomic_load(&g->failures), (long long)atomic_load(&g->jobs),
        (long long)atomic_load(&g->host_bytes), (unsigned long long)atomic_load(&g->evicted),
        (unsigned long long)atomic_load(&g->evicted_bytes),
        (unsigned long long)atomic_load(&g->fetched));
    if (g->device.shareable)
        sharing_metrics(g, out);
    if (g->keep.put)
        chunk_metrics(g, out);
    if (g->keep.put || g->device.shareable)
        kept_metrics(g, out);
    if (g->backend->ops->metrics)
        g->backend->ops->metrics(g->backend, out);
}
