/* The elements json_array.c reads: a growing typed buffer, the dtype found from the content, exact
 * conversion afterwards. Private to protocol/json/json_array.c and json_elems.c. Errors have no
 * pointer yet: the reader knows the place. */
#ifndef ARRAYD_JSON_ELEMS_H
#define ARRAYD_JSON_ELEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "compute/type/dtype.h"

/* An element whose double lacks information that a later conversion needs: its text is kept. */
struct json_elem_text {
    size_t index, pos, len;
};

struct json_elems {
    enum dtype store; /* what `data` holds; complex types are read as their parts */
    bool infer;       /* store is chosen by the content */
    bool any;         /* infer: something was read */
    bool fractions;   /* infer: including a float */
    bool negative;    /* infer: including a negative integer */
    bool too_big;     /* infer: including an integer that no type holds together with the others */
    size_t too_big_at;
    void *data;
    size_t n, cap;
    size_t max_bytes;
    struct strb texts;
    struct metered counted; /* the data and the kept elements, without their texts */
    struct json_elem_text *kept;
    size_t n_kept, cap_kept;
};

void json_elems_init(struct json_elems *x, int dtype, int64_t max_bytes);
void json_elems_free(struct json_elems *x);

/* A well-formed JSON number; true or false; NaN or an infinity. */
enum err_code json_elems_number(struct json_elems *x, const char *p, size_t n,
                                struct err *e) must_check;
enum err_code json_elems_bool(struct json_elems *x, bool v, struct err *e) must_check;
enum err_code json_elems_special(struct json_elems *x, double v, struct err *e) must_check;

/* Converts the elements to `dtype` (a part's, for complex; -1: the dtype by content). On an error
 * *ret_at is the element's number. */
enum err_code json_elems_convert(struct json_elems *x, int dtype, size_t *ret_at,
                                 struct err *e) must_check;

#endif
