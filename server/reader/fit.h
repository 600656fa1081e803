/* Types of attributes in files that are written: those that programs expect there.
 *
 * Attributes come as JSON, whose integers have 64 bits; attrs_parse leaves them so. */
#ifndef ARRAYD_READER_FIT_H
#define ARRAYD_READER_FIT_H

#include "server/reader/content.h"

/* Gives the attributes that are numbers their types: that of the variable's elements (UNREAD: it is
 * no variable) where the conventions say so, int32 to other integers; each only if it can hold the
 * numbers. */
void fit_attrs(struct content *c, struct attrs *list, int elements);
/* Gives one that type, if it can hold its numbers; of a float the nearest will do. */
bool fit_attr(struct content *c, struct attr *a, enum dtype t);

#endif
