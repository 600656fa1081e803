/* The reader's end of the wire: lines, slabs, and the end of the process.
 *
 * Called by every part of the reader. There is one link, because the process has one peer; it is
 * set up once by link_open. Any mistake of the file or of the peer ends the process by stop(), so
 * that nothing here returns errors: what is owned goes with the process. Not thread-safe. */
#ifndef ARRAYD_READER_LINK_H
#define ARRAYD_READER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/base/strb.h"
#include "protocol/json/json.h"
#include "server/reader/wire.h"

/* Says why, and ends the process with status 0. */
_Noreturn void stop(enum wire_error code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void stop_oom(void);
/* The file cannot be read: errno's text. */
_Noreturn void stop_reading(void);
/* The file cannot be written on: NO_SPACE if the disk is full, else IO and the text. */
_Noreturn void stop_writing(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Memory, or the end. Freed with mem_free. */
void *must_alloc(size_t n);
void *must_array(size_t n, size_t size);
/* p, unless it is NULL: the end. For arenas. */
void *must(void *p);

/* Bytes of the file from `offset` on: n, unless it ends before. */
size_t file_read_some(void *to, size_t n, int64_t offset);
/* All n bytes of it, or the end with BAD_FILE. */
void file_read(void *to, size_t n, int64_t offset);
void file_write(const void *from, size_t n, int64_t offset);

/* Maps the slabs, `count` of `size` bytes each: BAD_REQUEST if WIRE_SLABS has another size. */
void link_open(size_t size, size_t count);
size_t link_slab_bytes(void);

/* The next line as a document in `arena`; false at the end of the socket. */
bool link_read(struct arena *arena, struct json *ret);
/* Sends the text as one line, and empties it: TOO_LARGE past WIRE_LINE_MAX. */
void link_send(struct strb *text);

/* Slabs to the daemon: link_slab waits until one is free, link_filled sends its first n bytes. One
 * at a time. link_done waits until all are free again and says that the request is answered. */
unsigned char *link_slab(void);
void link_filled(size_t n);
void link_done(void);

/* Slabs from the daemon: the next n > 0 bytes, which stay until the next call gives their slab
 * back. link_taken gives back the last one. */
const unsigned char *link_pull(size_t *ret_n);
void link_taken(void);

#endif
