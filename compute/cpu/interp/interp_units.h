/* The units of a run, by what it makes: planned before the first one runs, run by any thread, and
 * finished by one thread. Private to compute/cpu/interp: called by interp_plan.c and interp_run.c.
 */
#ifndef ARRAYD_CPU_INTERP_UNITS_H
#define ARRAYD_CPU_INTERP_UNITS_H

#include "compute/cpu/interp/interp_bind.h"

/* The most lanes of a reduction or a scan handled together. */
#define LANES_TILE 1024

/* Storing kernels (interp_store.c). */
void interp_store_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
/* MODE_GROUPED: rows [from, to) of a box. MODE_LINEAR: its points. */
void interp_store_rows(struct interp_run *r, int64_t box, int64_t from, int64_t to,
                       struct interp_scratch *s);
uint64_t interp_next_id(void); /* of a run, unique in this process */
/* Whether what the run is for is not wanted any more, as far as that was asked. */
static inline bool interp_given_up(const struct interp_run *r)
{
    return r->watch && atomic_load_explicit(&r->watch->is_over, memory_order_relaxed);
}
int64_t interp_item_bytes(const struct interp_run *r); /* bytes of a point in all outputs */
/* MODE_GROUPED: bytes of the end columns of `rows` rows, in all outputs. */
size_t interp_ends_bytes(const struct interp_run *r, int64_t rows);

/* Rows that several runs go over (interp_abreast.c). Whether each of its outputs depends on one row
 * alone, if its operands do; whether it goes through the rows of the reduction `first`. Cuts the
 * run into units of `at_once` rows, `row` points each. */
bool interp_is_row_wise(const struct interp_run *r);
bool interp_has_rows_of(const struct interp_run *r, const struct interp_run *first);
void interp_cut_rows(struct interp_run *r, int64_t rows, int64_t row, int64_t at_once);

/* Several steps in a pass (interp_steps.c). Cuts the planned run of a kernel of several steps into
 * tiles, its units; false without memory. */
bool interp_steps_plan(struct interp_run *r, int threads);
void interp_steps_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
void interp_steps_describe(const struct interp_run *r, struct strb *out);

/* Wholes (interp_whole.c). */
void interp_whole_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
void interp_whole_describe(const struct interp_run *r, struct strb *out);

/* Reductions (interp_reduce_plan.c, interp_reduce.c). */
bool interp_reduce_open(struct interp_run *r); /* what is reduced and how; false without memory */
bool interp_reduce_plan(struct interp_run *r);
void interp_reduce_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
void interp_reduce_finish(struct interp_run *r, struct interp_scratch *s);

/* Scans (interp_scan.c). Call interp_scan_again between two rounds of units; false: no more rounds.
 */
void interp_scan_open(struct interp_run *r);
bool interp_scan_plan(struct interp_run *r);
void interp_scan_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
bool interp_scan_again(struct interp_run *r, struct interp_scratch *s);

#endif
