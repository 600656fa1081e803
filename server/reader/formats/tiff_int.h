/* What reading and writing of TIFF share: the tags of GeoTIFF and GDAL, which are attributes here.
 *
 * Called by tiff.c and tiff_write.c alone. */
#ifndef ARRAYD_READER_TIFF_INT_H
#define ARRAYD_READER_TIFF_INT_H

#include <tiffio.h>

#include "server/reader/content.h"
#include "server/reader/wire.h"

#define TIFF_TEXT (-1)
struct tiff_tag {
    uint32_t tag;
    int dtype; /* DT_F64, DT_U16, TIFF_TEXT */
    const char *name;
};
extern const struct tiff_tag tiff_tags[];
extern const int tiff_n_tags;
/* A number as a text: the attribute _FillValue, if samples can be that. */
#define TAG_NODATA 42113

/* Opens WIRE_FILE; no allocation of the library is larger than `most`. */
TIFF *tiff_open(const char *mode, int64_t most);
/* Ends the process with what the library complained of last. */
_Noreturn void tiff_stop(enum wire_error code, const char *what);

#endif
