/* What the parts of the module for HDF5 share: types, attributes, and how a failed call ends.
 *
 * Called by the modules of this folder alone. */
#ifndef ARRAYD_READER_HDF5_INT_H
#define ARRAYD_READER_HDF5_INT_H

#define H5_USE_110_API /* whichever version is newer: what its calls were in Debian 12 */
#include <hdf5.h>

#include "server/reader/content.h"
#include "server/reader/format.h"

/* How the NAME of a scale begins that stands for a dimension alone, as libnetcdf writes it. */
#define HDF5_NO_VARIABLE "This is a netCDF dimension but not a netCDF variable"

/* A variable's own part. */
struct hdf5_variable {
    const char *path; /* in the file */
    hid_t memory;     /* the type that it is read as */
    int64_t
        extents[MAX_RANK];   /* of the dataset, which may end before an unlimited dimension does */
    bool shorter;            /* it does */
    bool deflated, shuffled; /* its chunks are just that, of elements as they lie in memory */
    unsigned long long address;
    bool scale;     /* a dimension scale of HDF5, which names a dimension */
    bool alone;     /* and no variable has this name */
    int64_t number; /* NetCDF-4's number of it, −1 */
};

/* Ends the process because of the library's error: out of memory, or, unless a file is being
 * written, a bad file. */
extern bool hdf5_writing;
_Noreturn void hdf5_stop(const char *what, const char *name);
hid_t hdf5_must(hid_t id, const char *what, const char *name);

/* The dtype that elements of a type are read as, or UNREAD with *ret_why; *ret_memory is the type
 * to read them with, *ret_stored says how they lie in the file. */
int hdf5_type(struct content *c, hid_t type, hid_t *ret_memory, const char **ret_stored,
              const char **ret_why);
/* The type of elements of a dtype in memory and in files: bool and complex as h5py has them. */
hid_t hdf5_type_of(enum dtype t);

/* The attributes of an object, but those by which HDF5 and NetCDF mark dimensions. Those that
 * cannot be read are left out. */
void hdf5_attrs(struct content *c, hid_t object, struct attrs *ret);
/* What an enum's numbers mean, as CF has it: flag_values and flag_meanings, unless there are some.
 */
void hdf5_flags(struct content *c, hid_t type, enum dtype dtype, struct attrs *ret);
/* The first n bytes of a text attribute; false without it. */
bool hdf5_attr_text(hid_t object, const char *name, char *ret, size_t n);

/* The elements of a region by the library: of indices first[d] to first[d] + count[d] along each of
 * its axes, into memory for all of it. */
void hdf5_read_box(hid_t dataset, const struct variable *v, const struct region *r,
                   const int64_t *first, const int64_t *count, void *to);
/* The region, chunk by chunk on the crew's threads; false if that is not possible or no faster. */
bool hdf5_read_chunks(hid_t dataset, const struct variable *v, const struct region *r, void *to,
                      const struct reader_limits *limits);

/* All elements of a variable whose dataset is in the chunks of write_chunks, shuffled (if they have
 * several bytes) and deflated at this level: by the crew. */
void hdf5_write_chunks(hid_t dataset, const struct variable *v, int level);

/* Names of dimensions, from scales and labels; a scale that stands for a dimension alone is taken
 * off the variables. To be called when all variables are known. */
void hdf5_dims(struct content *c, hid_t file);

#endif
