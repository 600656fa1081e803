/* Attributes and dimensions of files that are written: the types that programs expect there, and
 * names that the format allows.
 *
 * Attributes come as JSON, whose integers have 64 bits; attrs_parse leaves them so. */
#ifndef ARRAYD_READER_FIT_H
#define ARRAYD_READER_FIT_H

#include "server/reader/content.h"

/* Gives the attributes that are numbers their types: that of the variable's elements (UNREAD: it is
 * no variable) where the conventions say so, int32 to other integers; each only if it can hold the
 * numbers. */
void fit_attrs(struct content *c, struct attrs *list, int elements);
/* Gives one that type, if it can hold its numbers. */
bool fit_attr(struct content *c, struct attr *a, enum dtype t);
/* Whether a number is still the same after scalar_cast. A float is the same as what its decimal
 * text says. */
bool fit_is_same(struct scalar from, struct scalar to);

/* Makes the names fit: an underscore stands for each character that is not allowed, and at the end
 * of a name that is taken, by another attribute or by the libraries. */
enum fit_rules {
    FIT_NETCDF = 1,  /* NetCDF's characters */
    FIT_LIBRARY = 2, /* names by which libhdf5 and libnetcdf know dimensions, or what a file is, */
    FIT_SCALE = 4,   /* and those of a variable that is a dimension in HDF5 */
};
bool fit_is_taken(const char *name, int rules); /* by the libraries */
void fit_attr_names(struct content *c, struct attrs *list, int rules);
/* The same for NetCDF's dimensions, and the variables of their names. */
void fit_dim_names(struct content *c);

#endif
