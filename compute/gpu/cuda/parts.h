/* How a kernel's work is divided between the members of a mesh, and what each part touches. Pure,
 * but for parts_divide.
 *
 * Called by prepare.c, whole.c and launch_kernel.c. */
#ifndef ARRAYD_CUDA_PARTS_H
#define ARRAYD_CUDA_PARTS_H

#include "compute/gpu/device/device.h"
#include "compute/gpu/text/form.h"

struct prepared;

/* Of the device's members, those that share a kernel: all, or one, because it is small. */
int parts_members(const struct cuda_device *d, const struct ir_kernel *k);
/* Sets how the work of k, prepared as p, is divided between so many members. */
void parts_divide(struct prepared *p, const struct ir_kernel *k, int members);
/* The form in which k, prepared as p, is interpreted, by one member; NULL: it is not. What several
 * combine in an order of their own has the bits of one only if the order is of no matter. */
const struct form *parts_form_of_program(const struct cuda_device *d, const struct prepared *p,
                                         const struct ir_kernel *k);

/* A stretch: of blocks of the grid, along form_along, or of elements. */
struct part {
    int64_t from, n;
};

/* Whether a point of the kernel touches the elements of its own number, and single ones, so that
 * members' parts can be far apart: parts_elements says which. */
bool parts_are_own(const struct ir_kernel *k, const struct form *f);
bool parts_is_single(const struct view *v); /* one element, for all points */
/* Member number `member`'s blocks, in groups of form_group. */
struct part parts_of(const struct form *f, bool own, int member, int members);
/* If they are its own: the elements of a part, [from, from + n). */
struct part parts_elements(const struct form *f, struct part blocks);

/* About how many bytes d's members, which share the kernel or leave it to the first, read and write
 * of each other's memory, if each operand is an array of its own. */
int64_t parts_remote(const struct cuda_device *d, const struct ir_kernel *k, const struct form *f,
                     bool shared);

#endif
