/* Running a planned run: its units, by what the run makes; and describing it in words. */
#include "compute/cpu/interp/interp_units.h"

int64_t interp_units(const struct interp_run *r)
{
    return r->n_units;
}

void interp_set_watch(struct interp_run *r, struct interp_watch *w)
{
    r->watch = w;
    for (int i = 0; i < 2 && r->steps.n; i++)
        r->steps.levels[i]->watch = w;
    for (uint32_t i = 0; i < r->stages.n; i++)
        r->stages.runs[i]->watch = w;
}

void interp_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    if (r->stages.n)
        interp_whole_unit(r, unit, s);
    else if (r->steps.n)
        interp_steps_unit(r, unit, s);
    else if (r->scan)
        interp_scan_unit(r, unit, s);
    else if (r->reduces)
        interp_reduce_unit(r, unit, s);
    else
        interp_store_unit(r, unit, s);
    if (r->beside)
        interp_unit(r->beside, unit, s);
}

bool interp_is_small(const struct interp_run *r)
{
    return r->small && !r->beside;
}

bool interp_again(struct interp_run *r, struct interp_scratch *s)
{
    return r->rounds && interp_scan_again(r, s);
}

void interp_finish(struct interp_run *r, struct interp_scratch *s)
{
    if (r->reduces)
        interp_reduce_finish(r, s);
    if (r->beside)
        interp_finish(r->beside, s);
}

void interp_rewind(struct interp_run *r)
{
    r->kept.pass++;
    for (int i = 0; i < 2 && r->steps.n; i++)
        r->steps.levels[i]->kept.pass++;
    for (uint32_t i = 0; i < r->stages.n; i++)
        r->stages.runs[i]->kept.pass++;
    r->round = 0;
    if (r->beside)
        interp_rewind(r->beside);
}

/* ---- in words ---- */

const char *interp_shape(const struct interp_run *r)
{
    if (r->stages.n)
        return "fold";
    if (r->reduces) {
        if (r->first_reduced == 0 && r->n_lanes == 0 && r->n_reduced == r->n_order)
            return "reduce-all";
        return r->mode == MODE_INNER ? "reduce-inner" : "reduce-outer";
    }
    if (r->scan)
        return r->first_reduced + 1 == r->n_order ? "scan-inner" : "scan-outer";
    if (r->steps.n)
        return "steps";
    if (r->mode == MODE_TILE)
        return "tile";
    if (r->ctx.any_shift)
        return "stencil";
    return r->flat ? "flat" : "rows";
}

void interp_describe(const struct interp_run *r, struct strb *out)
{
    static const char *const modes[] = {[MODE_LINEAR] = "ranges of points",
                                        [MODE_GROUPED] = "groups of rows",
                                        [MODE_TILE] = "tiles",
                                        [MODE_INNER] = "rows into states",
                                        [MODE_OUTER] = "rows into lanes",
                                        [MODE_SCAN] = "rows through lanes"};
    if (r->stages.n) {
        interp_whole_describe(r, out);
        return;
    }
    strb_addf(out, "# walked in %s", modes[r->mode]);
    if (r->pointwise)
        strb_add(out, ", element by element (too many boundary cases)");
    strb_addf(out, "; %lld unit%s in %lld box%s; axes, slowest first:", (long long)r->n_units,
              r->n_units == 1 ? "" : "s", (long long)r->n_boxes, r->n_boxes == 1 ? "" : "es");
    for (int i = 0; i < r->n_order; i++)
        strb_addf(out, " %d", r->order[i]);
    strb_addc(out, '\n');
    if (r->steps.n)
        interp_steps_describe(r, out);
}
