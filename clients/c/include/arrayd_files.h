/*
 * Files of the daemon's machine: NetCDF, HDF5, .npz and others, in folders that its operator has
 * named (docs/files.md). arrayd.h, which includes this, has what holds of all functions.
 */
#ifndef ARRAYD_FILES_H
#define ARRAYD_FILES_H

#include <arrayd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct arrayd_folder {
    char name[ARRAYD_MAX_NAME + 1];
    bool read_only;
    bool shared; /* all users have all of it; else each has a part of their own */
};

/* The folders: the first `capacity` of them. *ret_count says how many there are. */
ARRAYD_API int arrayd_folders(struct arrayd *client, struct arrayd_folder *folders, size_t capacity,
                              size_t *ret_count, struct arrayd_error *err);

/*
 * What a file has in it (its format, dimensions, variables and attributes), or what is in a folder,
 * as JSON for the caller to free(). `path` has names separated by "/"; NULL is the folder itself.
 * A daemon without the program that opens files is 501 "library_missing".
 */
ARRAYD_API int arrayd_file_look(struct arrayd *client, const char *folder, const char *path,
                                char **ret_text, struct arrayd_error *err);

/*
 * Begins to make arrays of a file's variables, as the body of POST /v1/files/import says: for
 * example
 *   {"folder": "data", "path": "air.nc",
 *    "variables": [{"variable": "t2m", "name": "t", "index": "5:8, ::2"}]}
 * The reply comes at once; arrayd_job_wait waits for the job, whose steps are bytes, and
 * arrayd_job_cancel ends it. A job that fails leaves nothing, and its `error` says why.
 */
ARRAYD_API int arrayd_file_import(struct arrayd *client, const char *json,
                                  struct arrayd_job *ret_job, struct arrayd_error *err);

/*
 * Begins to write arrays to a file there, as the body of POST /v1/files/export says: for example
 *   {"folder": "data", "path": "run1.nc", "arrays": ["u", {"array": "v", "name": "speed"}],
 *    "overwrite": true}
 */
ARRAYD_API int arrayd_file_export(struct arrayd *client, const char *json,
                                  struct arrayd_job *ret_job, struct arrayd_error *err);

/*
 * Writes several arrays to `file`, which is of this machine and stays open, as the body of POST
 * /v1/files/bundle says: {"arrays": ["u", "v"], "format": "netcdf4"}
 */
ARRAYD_API int arrayd_file_bundle(struct arrayd *client, const char *json, FILE *file,
                                  struct arrayd_error *err);

#ifdef __cplusplus
}
#endif
#endif
