/*
 * Leases, shares and exports of arrays, read-only links, and what operators do. An export maps an
 * array's memory into this process. arrayd.h, which includes this, has what holds of all functions.
 */
#ifndef ARRAYD_ACCESS_H
#define ARRAYD_ACCESS_H

#include <arrayd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- leases --- */

struct arrayd_lease {
    char token[ARRAYD_MAX_NAME + 1]; /* for arrayd_lease_use */
    char expires[40];                /* RFC 3339 */
    bool write;
};

/*
 * Takes a lease on an array's memory, for `ttl_s` seconds (0: 60). With `write` only requests with
 * the lease's token can use the memory; otherwise others can read it, and only a sole holder can
 * write. Other requests fail with 409 "locked", as this does while another client's lease is in the
 * way.
 *
 * The client does not use the lease by itself: see arrayd_lease_use. If it uses one of this memory,
 * that one is renewed, for `ttl_s` seconds from now, and with this mode.
 */
ARRAYD_API int arrayd_lease(struct arrayd *client, const char *ref, bool write, double ttl_s,
                            struct arrayd_lease *ret_lease, struct arrayd_error *err);

/*
 * The client's further requests use this lease, or those whose tokens are given, separated by
 * commas; with NULL none. Sends nothing.
 */
ARRAYD_API int arrayd_lease_use(struct arrayd *client, const char *tokens,
                                struct arrayd_error *err);

/* Ends the lease on this array that the client uses. One that nobody holds is 404 "not_found". */
ARRAYD_API int arrayd_lease_end(struct arrayd *client, const char *ref, struct arrayd_error *err);

/* --- shares --- */

struct arrayd_share {
    char principal[ARRAYD_MAX_NAME + 1]; /* the name of an account */
    bool write;
};

/*
 * Lets another account of the daemon use an array, by its id: for reading or, with `write`, for
 * writing too. An account that has it already has it with this access from now on.
 */
ARRAYD_API int arrayd_share(struct arrayd *client, const char *ref, const char *principal,
                            bool write, struct arrayd_error *err);

/* Takes a share back, which also ends that account's leases, programs and downloads of it. */
ARRAYD_API int arrayd_unshare(struct arrayd *client, const char *ref, const char *principal,
                              struct arrayd_error *err);

/* Whom an array is shared with: the first `capacity` of them. *ret_count says how many there are.
 */
ARRAYD_API int arrayd_shares(struct arrayd *client, const char *ref, struct arrayd_share *shares,
                             size_t capacity, size_t *ret_count, struct arrayd_error *err);

/* --- read-only links --- */

struct arrayd_link {
    char id[ARRAYD_MAX_NAME + 1];
    char url[ARRAYD_MAX_NAME + 1]; /* behind the daemon's address; "" where it is not told */
    char created[40];              /* RFC 3339 */
    char expires[40];
    int64_t arrays; /* how many it shows; -1: not only some */
    int64_t jobs;
};

/* What a link shows: refs of arrays and ids of jobs; with neither all that is the account's. */
struct arrayd_link_options {
    double expires_s; /* seconds from now */
    const char *const *arrays;
    size_t array_count;
    const char *const *jobs;
    size_t job_count;
};

/* Makes a read-only link for people without an account: a browser that opens it can look, and
 * change nothing. */
ARRAYD_API int arrayd_link_create(struct arrayd *client, const struct arrayd_link_options *options,
                                  struct arrayd_link *ret_link, struct arrayd_error *err);

/* The account's links: the first `capacity` of them. *ret_count says how many there are. */
ARRAYD_API int arrayd_links(struct arrayd *client, struct arrayd_link *links, size_t capacity,
                            size_t *ret_count, struct arrayd_error *err);

/* Ends a link. */
ARRAYD_API int arrayd_link_delete(struct arrayd *client, const char *id, struct arrayd_error *err);

/* --- accounts --- */

/* Who the client is. */
struct arrayd_login {
    bool required;                       /* the daemon has accounts */
    char principal[ARRAYD_MAX_NAME + 1]; /* "" where the daemon does not know the client */
    char role[16];                       /* "user", "operator", "viewer" or "" */
};

ARRAYD_API int arrayd_login(struct arrayd *client, struct arrayd_login *ret_login,
                            struct arrayd_error *err);

/*
 * For operators, else it is 403 "forbidden". The lists of what everybody has are GET
 * /v1/admin/sessions, jobs, arrays, principals and audit: arrayd_request.
 */

/* Ends anybody's session; deletes anybody's array; cancels a job, or removes one that has ended. */
ARRAYD_API int arrayd_end_session(struct arrayd *client, const char *id, struct arrayd_error *err);
ARRAYD_API int arrayd_end_array(struct arrayd *client, const char *id, struct arrayd_error *err);
ARRAYD_API int arrayd_end_job(struct arrayd *client, const char *id, struct arrayd_error *err);

/* Ends an account and all that it has, until the accounts file is read again. */
ARRAYD_API int arrayd_end_principal(struct arrayd *client, const char *principal,
                                    struct arrayd_error *err);

/*
 * Changes an account's weight and quotas, for example {"weight": 3, "quotas": {"arrays": 100}};
 * null is what the accounts file says.
 */
ARRAYD_API int arrayd_set_principal(struct arrayd *client, const char *principal, const char *json,
                                    struct arrayd_error *err);

/* --- exports --- */

/* An array's memory in this process. */
struct arrayd_export {
    void *data;  /* the element whose indices are all 0; NULL on CUDA */
    int fd;      /* on CUDA: for cuMemImportFromShareableHandle, closed with the export; else -1 */
    size_t size; /* bytes of all the memory, of which the array is a part */
    int64_t offset;                   /* in elements, from its start to `data` */
    enum arrayd_dtype dtype;          /* of the elements */
    int rank;                         /* of the array */
    int64_t shape[ARRAYD_MAX_RANK];   /* ... */
    int64_t strides[ARRAYD_MAX_RANK]; /* in elements */
    int device;                       /* as the daemon numbers them */
    char uuid[64];                    /* of the GPU; "" on the CPU backend */
    char lease[ARRAYD_MAX_NAME + 1];  /* for arrayd_lease_use */
    bool write;
    void *mapping;  /* the library's own */
    int connection; /* ... */
};

/*
 * Maps an array's memory into this process, without a copy; earlier work on it has finished. The
 * daemon must allow it (--allow-export), and the client must be connected to its Unix socket: else
 * it is 403 "forbidden". Until arrayd_export_end the memory is leased. With `write` no other client
 * can use it; else others can read it, and the memory must not be written to. With the export's
 * lease in use, requests of this client can use the array meanwhile.
 */
ARRAYD_API int arrayd_export_begin(struct arrayd *client, const char *ref, bool write,
                                   struct arrayd_export *ret_export, struct arrayd_error *err);

/*
 * Unmaps the memory, and returns when other clients can use it and see what was written. On CUDA
 * the caller first waits for its own work on the memory, and unmaps it. That the daemon ended an
 * export for writing before is the error "connection": what was written may be lost. The export
 * has ended in any case; an export that has ended, and NULL, are allowed.
 */
ARRAYD_API int arrayd_export_end(struct arrayd_export *e, struct arrayd_error *err);

#ifdef __cplusplus
}
#endif
#endif
