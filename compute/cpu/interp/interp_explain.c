/* How a run is walked, in words. */
#include "compute/cpu/interp/interp_int.h"

const char *interp_shape(const struct interp_run *r)
{
    if (r->reduces) {
        if (r->first_reduced == 0 && r->n_lanes == 0 && r->n_reduced == r->n_order)
            return "reduce-all";
        return r->mode == MODE_INNER ? "reduce-inner" : "reduce-outer";
    }
    if (r->scan)
        return r->first_reduced + 1 == r->n_order ? "scan-inner" : "scan-outer";
    if (r->mode == MODE_TILE)
        return "tile";
    if (r->any_shift)
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
    strb_addf(out, "# walked in %s", modes[r->mode]);
    if (r->pointwise)
        strb_add(out, ", element by element (too many boundary cases)");
    strb_addf(out, "; %lld unit%s in %lld box%s; axes, slowest first:", (long long)r->n_units,
              r->n_units == 1 ? "" : "s", (long long)r->n_boxes, r->n_boxes == 1 ? "" : "es");
    for (int i = 0; i < r->n_order; i++)
        strb_addf(out, " %d", r->order[i]);
    strb_addc(out, '\n');
}
