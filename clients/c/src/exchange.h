/*
 * One request and its reply. Whoever needs one zeroes a struct exchange, says what is asked and
 * where the reply goes, calls exchange_run, and frees it with exchange_free; exchange_run reports
 * what was wrong with the request already (`refused`, memory that ran out), so that nobody else
 * need.
 *
 * Also here: struct arrayd, the client, which client.c makes and the others only pass on.
 */
#ifndef ARRAYD_CLIENT_EXCHANGE_H
#define ARRAYD_CLIENT_EXCHANGE_H

#include <arrayd.h>

#include "clients/c/src/text.h"

struct cJSON;

struct arrayd {
    void *curl;       /* libcurl's handle, with its connection */
    char *base;       /* "http://HOST:PORT", what targets are put behind */
    char *unix_path;  /* of a Unix socket, or NULL */
    char *ca_file;    /* or NULL */
    char *authorize;  /* whole header fields, or NULL */
    char *lease;      /* ... */
    char *session;    /* ... */
    char *session_id; /* or NULL: the default one */
    long connect_ms;
    long timeout_ms;
};

#define JSON_TYPE   "application/json"
#define OCTETS_TYPE "application/octet-stream"
#define NPY_TYPE    "application/x-npy"
#define EVENTS_TYPE "text/event-stream"
#define ANY_TYPE    "*/*" /* the body says which */

struct exchange {
    /* The request. */
    const char *method;
    struct text target;  /* path and query */
    const char *refused; /* a sentence: the caller's arguments are wrong, nothing is sent */
    const char *accept;  /* a media type, or NULL */
    const char *type;    /* of the body; NULL: JSON, where there is one */
    struct text json;    /* a JSON body */
    const void *body;    /* or the caller's memory */
    size_t body_size;
    FILE *from;             /* or a file */
    int64_t from_size;      /* of it, -1 when nobody knows */
    const char *last_event; /* Last-Event-ID, or NULL */
    long wait_s; /* Prefer: wait, which is added to the time that the client allows; 0: none */

    /* The reply. */
    void *into; /* where the data go: the caller's memory, whose size they must have, */
    size_t into_size;
    FILE *to;                                                         /* a file, */
    bool (*receive)(void *receiver, const char *bytes, size_t count); /* called as bytes come;
                                                                         false ends the transfer */
    void *receiver;
    struct text reply; /* or here; errors always do */
    long status;

    /* While it runs. */
    struct arrayd *client;
    size_t sent;
    size_t received;
    bool enough;
    bool file_failed;
    bool wrong_size;
    bool wrong_type;
};

/* A path "HEAD/NAME/TAIL" of the target; an empty or missing name is refused. tail may be "". */
void exchange_path(struct exchange *x, const char *head, const char *name, const char *tail);

/* A query "key=value"; none where value is NULL. */
void exchange_query(struct exchange *x, const char *key, const char *value);

/* Sends, and waits for the reply. Of status 400 and above it is an error. */
int exchange_run(struct arrayd *client, struct exchange *x, struct arrayd_error *err);

void exchange_free(struct exchange *x);

/* exchange_run and exchange_free, for a reply whose body says nothing. */
int exchange_done(struct arrayd *client, struct exchange *x, struct arrayd_error *err);

/* The same for a reply of JSON or other text: for free(). ret_text may be NULL. */
int exchange_text(struct arrayd *client, struct exchange *x, char **ret_text,
                  struct arrayd_error *err);

/* The same for a JSON reply: its tree, for json_free. */
int exchange_json(struct arrayd *client, struct exchange *x, struct cJSON **ret_tree,
                  struct arrayd_error *err);

#endif
