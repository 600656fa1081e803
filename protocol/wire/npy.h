/* .npy files (versions 1 to 3): header reader for bytes as they arrive, header writer, byte swap.
 *
 * Called by the handlers for application/x-npy. The reader is a plain struct that owns a growing
 * header text until npy_reader_free. Not thread-safe. */
#ifndef ARRAYD_NPY_H
#define ARRAYD_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"

#define NPY_MAGIC      "\x93NUMPY"
#define NPY_MAGIC_LEN  6
#define NPY_HEADER_MAX 65536 /* longest header text accepted */

struct npy_header {
    enum dtype dtype;
    bool big_endian;    /* elements need npy_swap */
    bool fortran_order; /* first axis fastest */
    int rank;
    int64_t shape[MAX_RANK];
    int64_t size, nbytes; /* elements and data bytes, overflow-checked */
};

struct npy_reader {
    bool want_bfloat16; /* read two raw bytes (|V2) as bfloat16; else they are refused */
    unsigned char fixed[12];
    size_t have, need; /* of the bytes before the header text, then of the text */
    char *text;
    bool done;
};

/* A zeroed struct (want_bfloat16 set as needed) is a fresh reader. */
void npy_reader_free(struct npy_reader *r);

/* Takes bytes up to the header's end: *ret_used ≤ n are consumed; *ret_done: *ret_header is filled
 * and data follows. ERR_BAD_NPY: malformed, an object or structured dtype, byte sizes that
 * overflow. */
enum err_code npy_feed(struct npy_reader *r, const void *p, size_t n, size_t *ret_used,
                       bool *ret_done, struct npy_header *ret_header, struct err *e) must_check;

/* Whether n bytes begin as a .npy file does (fewer bytes than the magic: as far as they go). */
bool npy_is_magic(const void *p, size_t n);

/* A version 1.0 header, little-endian, C order, padded to 64 bytes as NumPy does; returns its
 * length, at most NPY_WRITE_MAX. */
#define NPY_WRITE_MAX 1024
size_t npy_write_header(enum dtype dtype, int rank, const int64_t *shape, char *buf);

/* Reverses the bytes of each number in place; complex parts one by one. `nbytes` is a multiple of
 * the element size. */
void npy_swap(enum dtype dtype, void *p, size_t nbytes);

#endif
