/* The operator's folders, and paths in them that cannot leave them.
 *
 * A path is names separated by "/". It is resolved by openat2(2) below the folder's own descriptor,
 * without following any symbolic link, so that neither a link nor a name that changes meanwhile
 * leads out of the folder. With accounts each user has a folder of the same name as the account in
 * it, unless the operator says that all share it. Only regular files are opened, and folders.
 *
 * Called within server/files. Constant after the start; what is opened is the caller's. All
 * functions wait for the disk. */
#ifndef ARRAYD_SERVER_FOLDERS_H
#define ARRAYD_SERVER_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "compute/base/err.h"
#include "server/config/config.h"

struct folders;
struct json_writer;

#define FOLDER_NAME_SIZE 65
#define FILE_PATH_MOST   1024 /* bytes */
#define FILE_NAME_MOST   255

struct swept;

struct folder {
    char name[FOLDER_NAME_SIZE];
    bool read_only, shared;
    int fd;
    struct swept *swept; /* of all folders */
};

/* By the values of --files, "NAME=PATH" and then ":ro", ":shared". `accounts`: users have parts of
 * their own. ERR_BAD_FIELD: a malformed value, a name twice, a path that is no folder. */
enum err_code folders_open(const struct config_list *options, bool accounts, struct folders **ret,
                           struct err *e) must_check;
void folders_free(struct folders *f); /* NULL allowed */
size_t folders_count(const struct folders *f);
const struct folder *folders_at(const struct folders *f, size_t i);
/* ERR_NOT_FOUND. */
enum err_code folders_find(const struct folders *f, const char *name, const struct folder **ret,
                           struct err *e) must_check;

/* ERR_BAD_NAME unless names of 1 to 255 bytes, none of them "." or ".." or of our own (see
 * folder_new_file), without control characters. Pure. */
enum err_code file_path_check(const char *path, struct err *e) must_check;

/* What is at the path ("": the user's part itself): *ret_fd is open for reading. ERR_NOT_FOUND,
 * also for a link or a device; ERR_FORBIDDEN; ERR_BAD_NAME; ERR_OVERLOADED; ERR_FILE_IO. */
enum err_code folder_open(const struct folder *f, const char *user, const char *path, int *ret_fd,
                          struct stat *ret, struct err *e) must_check;
/* The same for a regular file: ERR_BAD_NAME for a folder. */
enum err_code folder_open_file(const struct folder *f, const char *user, const char *path,
                               int *ret_fd, struct stat *ret, struct err *e) must_check;

/* Writes what is in an open folder (−1: nothing), by name, as the member "entries", of at most
 * `most`, and whether there are more. */
enum err_code folder_list(int fd, size_t most, struct json_writer *w, struct err *e) must_check;

/* The member "modified". */
void file_put_modified(struct json_writer *w, const struct stat *st);

/* A file that is to be at a path once it is complete: until then it has a name of our own, in the
 * same folder (".arrayd-" and an id), which is not listed. One that a daemon leaves that was killed
 * is removed when another process of the same user makes its first file there. */
struct new_file {
    int fd;     /* open for reading and writing; −1: no file is open */
    int folder; /* that it will be in */
    char name[FILE_NAME_MOST + 1];
    char own[48]; /* "": it has its own name no more */
};
/* ERR_READ_ONLY: the folder is; ERR_CONFLICT: something has the name (`overwrite`: something that
 * is no regular file); ERR_NOT_FOUND: the folder it is to be in; ERR_DISK_FULL, and as above. */
enum err_code folder_new_file(const struct folder *f, const char *user, const char *path,
                              bool overwrite, struct new_file *ret, struct err *e) must_check;
/* Its contents are on the disk, and it has its name. ERR_CONFLICT: something has it by now. */
enum err_code new_file_publish(struct new_file *n, bool overwrite, struct err *e) must_check;
/* One that is nowhere, on the file system of an open folder, for the daemon's user alone: only its
 * descriptor leads to it. Errors as above. */
enum err_code spool_file(int folder, struct new_file *ret, struct err *e) must_check;
/* Removes what a daemon has left in a spool that was killed while it made one. */
void spool_sweep(int folder);
/* Without that it never was. May be called twice. */
void new_file_drop(struct new_file *n);

/* The error of a file system's call with that errno. */
enum err_code file_error(int number, const char *what, struct err *e);

#endif
