/* Several steps in a pass: planned after the run of a single step, and run by tiles. Private to
 * compute/cpu/interp. */
#ifndef ARRAYD_CPU_INTERP_STEPS_H
#define ARRAYD_CPU_INTERP_STEPS_H

#include "compute/cpu/interp/interp_units.h"

/* Cuts the planned run of a kernel of several steps into tiles, its units; false without memory. */
bool interp_steps_plan(struct interp_run *r, int threads);
void interp_steps_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
void interp_steps_describe(const struct interp_run *r, struct strb *out);

#endif
