/* The agreement between the daemon and arrayd-file, the program that opens people's files.
 *
 * Included by both sides (server/files and server/reader); holds no code. The daemon starts
 * arrayd-file with these descriptors and no other, an empty environment but LC_ALL=C, and argv
 * {"arrayd-file"}; both then speak JSON texts, one a line, over WIRE_SOCKET. What is written here
 * is what the daemon may rely on while the reader is sound; it trusts none of it, for a bad file
 * may have taken the reader over.
 *
 * daemon → reader, first line: {"limits":{"memory":bytes,"seconds":n,"sandbox":"require"|
 *     "allow_none","slab":bytes,"slabs":n,"threads":n,"file":bytes},"write":bool}
 *     `memory` includes the slabs. `file` is what a file to be written may become at most, and is
 *     left out if it is to be read.
 * reader → daemon: {"ready":true,"sandbox":"landlock+seccomp"|"none: why","formats":["hdf5",…]}
 *
 * Then requests, one at a time. Each is answered, or the answer is WIRE_ERROR and the reader ends
 * with status 0. The end of the socket ends the reader.
 *
 * {"do":"describe"} → {"format":"netcdf4","attrs":{…},"dims":{"time":{"length":12,
 *     "unlimited":true}},"variables":[{"name":"group/t2m","dtype":"int16"|null,"stored":"int16
 *     big-endian","why":"…" (only with dtype null),"shape":[…],"dims":["time","lat"]|null,
 *     "chunks":[…]|null,"filters":["shuffle","deflate 4"],"attrs":{…},"decoded":{"dtype":"float32",
 *     "scale":…,"offset":…,"fill":[…],"attrs":{…}} (only if decoding changes values),"nbytes":n}]}
 *     `dims` of a variable are keys of `dims` of the file, null where an axis has no name. `attrs`
 *     of what is decoded has those that read otherwise then.
 *     `nbytes` is of the elements as they are stored, −1 with dtype null and no fixed size. "at":n
 *     is there if the file has, from its byte n on, just what reading the variable without decoding
 *     gives: the daemon, which has the file, may copy that itself.
 * {"do":"read","variable":"t2m","start":[…],"count":[…],"step":[…],"decode":true} → {"dtype":…,
 *     "shape":[…],"nbytes":n}, then {"slab":i,"bytes":n} for each slab filled, which the daemon
 * gives back by {"free":i} when it has taken it; at the end {"done":true}. All slabs are free at
 * the start of each request. start, count and step may be left out (the whole variable); counts are
 *     of elements taken, steps ≥ 1. The elements come in C order, little-endian, in arrayd's
 * dtypes; a slab's bytes are whole elements.
 * {"do":"write","format":"netcdf4",…,"attrs":{…},"variables":[{"name","dtype","shape","dims":[…]|
 *     null,"attrs":{…}}],"deflate":0…9,"unlimited":["time"]} → {"ready":true} once the file can
 *     hold it; then the daemon sends {"slab":i,"bytes":n} with the next bytes of the variables, one
 *     after the other without gaps (a slab may end anywhere), and the reader answers {"free":i}; at
 *     the end, when the file is closed and complete, {"done":true}. Each of a variable's dims may
 *     be null. A variable that is called as one of its own dimensions and has no other is that
 *     dimension's coordinate. One write a process.
 * {"error":{"code":…,"detail":"plain English"}} at any time, see enum wire_error. A library's crash
 * is bad_file, too, where the process can still say so; else it ends without a word. */
#ifndef ARRAYD_READER_WIRE_H
#define ARRAYD_READER_WIRE_H

#define WIRE_PROGRAM "arrayd-file"

/* Descriptors: 0 to 2 are /dev/null (2 may be the daemon's log). The file is O_RDONLY, or O_RDWR,
 * empty, if it is to be written. The slabs are a memfd of slabs × slab bytes. */
#define WIRE_SOCKET 3
#define WIRE_FILE   4
#define WIRE_SLABS  5

#define WIRE_LINE_MAX  (16 << 20) /* bytes of a line, its newline included */
#define WIRE_SLAB_MIN  (64 << 10) /* of the limits' slab, a multiple of a page */
#define WIRE_SLAB_MAX  (256 << 20)
#define WIRE_SLABS_MAX 64

/* What axes without a name are called in files whose axes must have names: this and a number, as in
 * libnetcdf. */
#define WIRE_PHONY_DIM "phony_dim_"

/* Errors by their code on the wire. */
#define WIRE_ERRORS(X)                                                                             \
    X(BAD_FILE, "bad_file")       /* damaged, or no file of a format that is known */              \
    X(UNSUPPORTED, "unsupported") /* sound, but this is not read or written: says what */          \
    X(NOT_FOUND, "not_found")     /* no variable of that name */                                   \
    X(TOO_LARGE, "too_large")     /* the description, a header, a chunk */                         \
    X(OUT_OF_MEMORY, "out_of_memory")                                                              \
    X(TIMEOUT, "timeout")         /* the limit of processor time */                                \
    X(IO, "io")                   /* the file system: errno's text */                              \
    X(NO_SPACE, "no_space")       /* for a file to be written: a full disk, a quota, a limit */    \
    X(BAD_REQUEST, "bad_request") /* a line that is not as above, a region outside the variable */ \
    X(NO_SANDBOX, "no_sandbox")   /* the kernel lacks it, and the limits require it */

enum wire_error {
#define X(id, name) WIRE_##id,
    WIRE_ERRORS(X)
#undef X
        WIRE_ERROR_COUNT
};

/* Formats by their name on the wire. */
#define WIRE_FORMATS(X)                                                                            \
    X(NETCDF4, "netcdf4")                                                                          \
    X(NETCDF3, "netcdf3")                                                                          \
    X(HDF5, "hdf5")                                                                                \
    X(NPZ, "npz")                                                                                  \
    X(NPY, "npy")                                                                                  \
    X(TIFF, "tiff")                                                                                \
    X(PNG, "png")

enum wire_format {
#define X(id, name) WIRE_FORMAT_##id,
    WIRE_FORMATS(X)
#undef X
        WIRE_FORMAT_COUNT
};

#endif
