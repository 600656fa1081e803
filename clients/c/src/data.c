/*
 * Array data up and down: from and to the caller's memory, and .npy files.
 *
 * A file whose size is known is sent with its length, so that the daemon can refuse what is too
 * large before it comes; a pipe is sent in chunks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/looks.h"
#include "clients/c/src/members.h"

/* Whether a shape and a type make so many bytes. */
static const char *check_size(enum arrayd_dtype dtype, int rank, const int64_t *shape,
                              size_t nbytes)
{
    uint64_t size = arrayd_itemsize(dtype);
    if (!size)
        return "the data type is missing";
    if (rank < 0 || rank > ARRAYD_MAX_RANK || (rank && !shape))
        return "a shape must have 0 to 32 extents";
    bool overflow = false, empty = false;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return "an extent must be at least 0";
        empty |= shape[i] == 0;
        overflow |= __builtin_mul_overflow(size, (uint64_t)shape[i], &size);
    }
    if (empty ? nbytes != 0 : overflow || size != nbytes)
        return "the size of the data does not match the type and shape";
    return NULL;
}

static void add_shape(struct exchange *x, enum arrayd_dtype dtype, int rank, const int64_t *shape)
{
    exchange_query(x, "dtype", arrayd_dtype_name(dtype));
    text_puts(&x->target, "&shape=");
    for (int i = 0; i < rank && !x->refused; i++) {
        text_puts(&x->target, i ? "," : "");
        text_i64(&x->target, shape[i]);
    }
}

static int send_memory(struct arrayd *client, struct exchange *x, const void *data, size_t nbytes,
                       struct arrayd_array *ret_array, struct arrayd_error *err)
{
    x->type = OCTETS_TYPE;
    x->body = data;
    x->body_size = nbytes;
    if (nbytes && !data)
        x->refused = "the data is missing";
    return members_array_reply(client, x, ret_array, err);
}

int arrayd_upload(struct arrayd *client, const char *name, enum arrayd_dtype dtype, int rank,
                  const int64_t *shape, const void *data, size_t nbytes,
                  struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST", .refused = check_size(dtype, rank, shape, nbytes)};
    text_puts(&x.target, "/v1/arrays");
    add_shape(&x, dtype, rank, shape);
    exchange_query(&x, "name", name);
    return send_memory(client, &x, data, nbytes, ret_array, err);
}

int arrayd_replace(struct arrayd *client, const char *name, enum arrayd_dtype dtype, int rank,
                   const int64_t *shape, const void *data, size_t nbytes,
                   struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "PUT", .refused = check_size(dtype, rank, shape, nbytes)};
    exchange_path(&x, "/v1/arrays", name, "");
    add_shape(&x, dtype, rank, shape);
    return send_memory(client, &x, data, nbytes, ret_array, err);
}

static int read_region(struct arrayd *client, const char *ref, const char *index, const char *ghost,
                       void *data, size_t nbytes, struct arrayd_error *err)
{
    char nothing; /* where nothing is written; libcurl needs to be told where all the same */
    struct exchange x = {.method = "GET", .accept = OCTETS_TYPE, .into_size = nbytes};
    x.into = nbytes ? data : &nothing;
    if (nbytes && !data)
        x.refused = "the memory is missing";
    exchange_path(&x, "/v1/arrays", ref, "/data");
    exchange_query(&x, "index", index);
    exchange_query(&x, "ghost", ghost);
    return exchange_done(client, &x, err);
}

int arrayd_read(struct arrayd *client, const char *ref, const char *index, void *data,
                size_t nbytes, struct arrayd_error *err)
{
    return read_region(client, ref, index, NULL, data, nbytes, err);
}

int arrayd_read_ghost(struct arrayd *client, const char *ref, const char *index, void *data,
                      size_t nbytes, struct arrayd_error *err)
{
    return read_region(client, ref, index, "1", data, nbytes, err);
}

static int write_region(struct arrayd *client, const char *ref, const char *index,
                        const char *ghost, const void *data, size_t nbytes,
                        struct arrayd_error *err)
{
    struct exchange x = {.method = "PUT", .type = OCTETS_TYPE, .body = data, .body_size = nbytes};
    if (nbytes && !data)
        x.refused = "the data is missing";
    exchange_path(&x, "/v1/arrays", ref, "/data");
    exchange_query(&x, "index", index);
    exchange_query(&x, "ghost", ghost);
    return exchange_done(client, &x, err);
}

int arrayd_write(struct arrayd *client, const char *ref, const char *index, const void *data,
                 size_t nbytes, struct arrayd_error *err)
{
    return write_region(client, ref, index, NULL, data, nbytes, err);
}

int arrayd_write_ghost(struct arrayd *client, const char *ref, const char *index, const void *data,
                       size_t nbytes, struct arrayd_error *err)
{
    return write_region(client, ref, index, "1", data, nbytes, err);
}

/* Bytes from where a file stands to its end, -1 where it is no regular file. */
static int64_t rest_of(FILE *file)
{
    struct stat st;
    int64_t at = ftello(file);
    if (at < 0 || fstat(fileno(file), &st) || !S_ISREG(st.st_mode) || st.st_size < at)
        return -1;
    return st.st_size - at;
}

int arrayd_load_npy(struct arrayd *client, const char *name, FILE *file,
                    struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST", .type = NPY_TYPE, .from = file};
    if (file)
        x.from_size = rest_of(file);
    else
        x.refused = "the file is missing";
    text_puts(&x.target, "/v1/arrays");
    exchange_query(&x, "name", name);
    return members_array_reply(client, &x, ret_array, err);
}

int arrayd_save_npy(struct arrayd *client, const char *ref, const char *index, FILE *file,
                    struct arrayd_error *err)
{
    struct exchange x = {.method = "GET", .accept = NPY_TYPE, .to = file};
    if (!file)
        x.refused = "the file is missing";
    exchange_path(&x, "/v1/arrays", ref, "/data");
    exchange_query(&x, "index", index);
    return looks_save(client, &x, file, err);
}

int arrayd_load_npy_path(struct arrayd *client, const char *name, const char *path,
                         struct arrayd_array *ret_array, struct arrayd_error *err)
{
    if (!path)
        return error_set(err, "bad_argument", "the path to read from is missing");
    FILE *file = fopen(path, "rbe");
    if (!file)
        return error_set(err, "file", "'%s' cannot be read: %s", path, strerror(errno));
    int ret = arrayd_load_npy(client, name, file, ret_array, err);
    fclose(file);
    return ret;
}

/* A new file beside the other, whose name nobody else has: no other thread that saves to the same
 * path, nor another process. */
static FILE *open_beside(const char *path, struct text *ret_name, struct arrayd_error *err)
{
    int fd = -1;
    for (int k = 0; k < 1000 && fd < 0; k++) {
        text_free(ret_name);
        text_puts(ret_name, path);
        text_puts(ret_name, ".");
        text_i64(ret_name, getpid());
        text_puts(ret_name, "-");
        text_i64(ret_name, k);
        text_puts(ret_name, ".part");
        if (ret_name->failed) {
            error_no_memory(err);
            return NULL;
        }
        fd = open(ret_name->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (file)
        return file;
    error_set(err, "file", "'%s' cannot be written: %s", ret_name->data, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(ret_name->data);
    }
    return NULL;
}

int arrayd_save_npy_path(struct arrayd *client, const char *ref, const char *index,
                         const char *path, struct arrayd_error *err)
{
    if (!path || !*path)
        return error_set(err, "bad_argument", "the path to write to is missing");
    struct text part = {0};
    FILE *file = open_beside(path, &part, err);
    int ret = file ? arrayd_save_npy(client, ref, index, file, err) : -1;
    if (file) {
        bool closed = !fclose(file);
        if (!ret && (!closed || rename(part.data, path)))
            ret = error_set(err, "file", "'%s' cannot be written: %s", path, strerror(errno));
        if (ret)
            unlink(part.data);
    }
    text_free(&part);
    return ret;
}
