/* PNG files, by libpng.
 *
 * Called by picture.c. Pure; may take some ten milliseconds: call it on a worker. */
#ifndef ARRAYD_SERVER_LOOK_PNG_H
#define ARRAYD_SERVER_LOOK_PNG_H

#include <stdint.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"

struct png_image {
    int64_t width, height;
    int channels;                /* 1: numbers of palette colours; 3: RGB; 4: RGBA */
    const unsigned char *pixels; /* row after row */
    const uint32_t *palette;     /* 256 of 0xRRGGBB */
    int transparent;             /* a palette colour's number; −1: none */
};

/* Appends the file. ERR_OUT_OF_MEMORY. */
enum err_code png_put(const struct png_image *image, struct strb *out, struct err *e) must_check;

#endif
