/* The forms that have separate files; form.c has the others and chooses. Private to
 * compute/gpu/text. */
#ifndef ARRAYD_CUDA_FORM_KINDS_H
#define ARRAYD_CUDA_FORM_KINDS_H

#include "compute/gpu/text/form_operands.h"

/* form_reduce.c */
void form_make_reduce(struct analysis *z);
/* Makes the form of several reductions in one kernel go over the points as those of its parts do,
 * one by one. NULL, or why it cannot. */
const char *form_adapt_siblings(const struct ir_kernel *k, struct form *f,
                                const struct form *const *parts, uint32_t n);
/* How many threads share a row of so many chunks. */
int form_row_lanes(int64_t chunks);

#define FORM_ROW_TOO_LONG "a row is too long for a block"
/* form_fold.c: for chunks of f->elements, by blocks that have at most so much shared memory, in
 * bytes. NULL if the form is filled in, else why it does not fit. */
const char *form_make_fold(struct analysis *z, int64_t shared);

/* form.c: puts the axes in order and merges them. */
void form_arrange(struct analysis *z);

/* form_scan.c */
void form_make_scan(struct analysis *z);

/* form_steps.c, after form_begin(). NULL if the form fits and is filled in, else why it does not,
 * "" without memory. */
const char *form_make_steps(struct analysis *z);
/* Parts of so much width that an axis is cut into; elements that are copied at once. */
int64_t form_steps_spans(int64_t n, bool wraps, int width, int halo);
int form_steps_piece(const struct analysis *z, int elements);
/* What a GPU has of the slowest axis, of which `form->members` have all. */
static inline int64_t form_steps_rows(const struct form *f)
{
    return (f->shape[0] + f->members - 1) / f->members;
}
/* An H200's: others are similar enough for choosing among options. */
#define FORM_PROCESSORS  132
#define FORM_CACHE_RATE  4400.0 /* bytes per cycle */
#define FORM_CACHE_BYTES (40 << 20)

/* form_passes.c, in three dimensions: sets a thread's patch and what follows from it, or does not
 * fit; chooses the planes of a block and returns the cycles of a pass. */
bool form_pass3d_patch(struct analysis *z, int steps, int elements, int rows);
double form_pass3d_part(struct form *f, double work);

/* The same file: instructions per point and step that tell by its position whether a context's
 * shift stays inside, approximately. */
double form_pass_asking(const struct form *f, const struct ir_kernel *k, uint32_t ctx);

/* The same file, in two dimensions: instructions per point and step, approximately;
 * registers of a thread; rows in the queue; and how many rows a block has, for a pass over so many
 * bytes: returns its cycles. */
double form_pass2d_work(const struct analysis *z);
int form_pass2d_registers(const struct analysis *z, int steps, int elements);
int form_pass2d_ahead(const struct analysis *z);
double form_pass2d_part(const struct analysis *z, double point, double bytes);

/* form_window.c: whether the form window fits; if so it is filled in. */
bool form_try_window(struct analysis *z);

/* form_stencil.c: whether the form stencil fits; if so it is filled in. Neighbours further away
 * than FORM_FAR are not shared in registers. */
#define FORM_FAR 4
bool form_try_stencil(struct analysis *z);

#endif
