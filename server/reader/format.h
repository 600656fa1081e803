/* What each format does, and the two requests that use it.
 *
 * Called by main, read and write; every format has one module that defines its struct format. The
 * file is WIRE_FILE. All of this ends the process by stop() when something is wrong. */
#ifndef ARRAYD_READER_FORMAT_H
#define ARRAYD_READER_FORMAT_H

#include "protocol/json/json.h"
#include "server/reader/content.h"
#include "server/reader/pieces.h"
#include "server/reader/wire.h"

/* The file by a path, for libraries that open files themselves. */
#define WIRE_PATH "/proc/self/fd/4"

/* What the daemon lets this process have. */
struct reader_limits {
    int64_t memory; /* bytes, beside the slabs */
};

struct format {
    /* Whether a file that begins with these bytes is of this format. */
    bool (*is)(const unsigned char *head, size_t n);
    /* Reads what the file holds. The same content is then given to read. */
    struct content *(*open)(const struct reader_limits *limits);
    /* Elements of a region of a variable that is not UNREAD: little-endian, C order, of its dtype.
     */
    void (*read)(struct content *c, struct variable *v, const struct region *r, void *to);
};
extern const struct format format_hdf5, format_netcdf, format_npz, format_npy, format_tiff,
    format_png;

/* Make the file of a content's variables, whose elements come from write_pull, one variable after
 * the other. `deflate` is 0 to 9. UNSUPPORTED for what the format cannot hold. */
void hdf5_write(struct content *c, int deflate);
void netcdf_write(struct content *c, int deflate, bool classic);
/* The elements of a NetCDF-4 file that libnetcdf has made, closed, and put no elements into. */
void hdf5_write_elements(struct content *c, int deflate);
void npz_write(struct content *c, int deflate);
void npy_write(struct content *c);
void tiff_write(struct content *c, int deflate);
void png_write(struct content *c, int deflate);

void request_read(const struct format *f, struct content *c, const struct reader_limits *limits,
                  struct json request);
void request_write(struct json request);

#define WRITE_CHUNK (1 << 20) /* bytes of what is compressed at a time, about */

/* The dtype in which a variable is written, where the format lacks its own: float16 and bfloat16
 * can become float32, bool int8 with the attribute dtype="bool", as xarray does, unsigned integers
 * signed ones with "_Unsigned", and those of 64 bits int32; write_pull stops (UNSUPPORTED) at the
 * first that is not one. To be called before the first write_begin. */
void write_as(struct content *c, struct variable *v, enum dtype dtype);
/* Gives axes without a name one that no dimension has, or another such axis of this length: all of
 * them, or those of variables that have axes with names. */
void write_name_axes(struct content *c, bool all);
/* Whether an axis lies on an unlimited dimension. */
bool write_grows(const struct content *c, const struct variable *v, int d);
/* Sets which variables are in chunks, and in which: whole rows, of about WRITE_CHUNK bytes. After
 * write_as and write_name_axes. */
void write_chunks(struct content *c, bool deflate);
/* The next variable. The first time it tells the daemon that the file can hold all of them. */
void write_begin(const struct variable *v);
/* Some of the next elements of the variable, of its dtype: *ret_n > 0, at most `most`, which is not
 * more than are left. They stay until the next call. */
const unsigned char *write_pull(int64_t most, int64_t *ret_n);

#endif
