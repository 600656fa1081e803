/* What the conventions for climate and forecast data (CF) say of a variable's values: scale and
 * offset of packed integers, fill values, unsigned integers in formats that have none.
 *
 * Called by describe and read. The resulting dtype follows xarray's open_dataset: see cf_plan. Pure
 * functions. */
#ifndef ARRAYD_READER_CF_H
#define ARRAYD_READER_CF_H

#include "server/reader/content.h"

#define FILLS_MAX 16 /* of missing_value's list; more are ignored */

struct cf {
    enum dtype raw;   /* the elements as they lie in the file, after _Unsigned */
    enum dtype dtype; /* of the decoded elements */
    bool computed;    /* not just the same bytes */
    bool wide;        /* float32 by a scale or an offset of 64 bits */
    bool has_scale, has_offset;
    double scale, offset;
    int n_fills;
    struct scalar fills[FILLS_MAX]; /* of dtype raw: become NaN */
    bool zero_is_fill;              /* of floats: -0, too */
};

/* Whether decoding changes anything, and how: integers and floats with scale_factor or add_offset
 * become float32 or float64 (floats whose fill value is NaN stay what they are), integers with
 * _FillValue or missing_value alone the float that holds them (up to 16 bits: float32), even if no
 * element can have that value; `_Unsigned` alone makes an unsigned integer, int8 with dtype="bool"
 * bool. bool, complex and variables without these attributes are left as they are. */
bool cf_plan(const struct variable *v, struct cf *ret);

/* n elements of v's dtype at `from` to ret's dtype at `to`; the two do not overlap. */
void cf_decode(const struct cf *cf, int64_t n, const void *from, void *to);

/* The member "decoded". */
void cf_describe(struct json_writer *w, const struct variable *v, const struct cf *cf);

#endif
