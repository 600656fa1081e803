/* What is done with a run once it is planned: its units by what it makes, and whether to go on. */
#include "compute/cpu/interp/interp_int.h"

int64_t interp_units(const struct interp_run *r)
{
    return r->n_units;
}

int64_t interp_part(const struct interp_run *r, int64_t n, int64_t unit)
{
    int64_t lo = 0, hi = n;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (r->first_unit[mid] <= unit)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

void interp_set_watch(struct interp_run *r, struct interp_watch *w)
{
    r->watch = w;
}

bool interp_ask(const struct interp_run *r)
{
    struct interp_watch *w = r->watch;
    if (w && !atomic_load(&w->is_over) && w->ask(w->user))
        atomic_store(&w->is_over, true);
    return w && atomic_load(&w->is_over);
}

void interp_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    if (r->scan)
        interp_scan_unit(r, unit, s);
    else if (r->reduces)
        interp_reduce_unit(r, unit, s);
    else
        interp_store_unit(r, unit, s);
}

bool interp_is_small(const struct interp_run *r)
{
    return r->small;
}

bool interp_again(struct interp_run *r, struct interp_scratch *s)
{
    return r->rounds && interp_scan_again(r, s);
}

void interp_finish(struct interp_run *r, struct interp_scratch *s)
{
    if (r->reduces)
        interp_reduce_finish(r, s);
}

void interp_rewind(struct interp_run *r)
{
    r->pass++;
    r->round = 0;
}
