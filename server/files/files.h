/* Files: the folders of this machine that the operator lets users read from and write to, and the
 * program that opens what lies in them.
 *
 * The daemon opens no such file itself: it hands an open descriptor to arrayd-file
 * (server/reader/wire.h says how they speak), which can do nothing but answer. It trusts nothing of
 * the answers. Whatever waits for a disk or for that program runs on the threads of `struct files`,
 * which are started when they are first needed: those of short looks (listings, descriptions), and
 * those of moves (imports, exports), of which each is a job of server/jobs.
 *
 * Called by the handlers. main.c makes one, after the jobs, and frees it before them. Thread-safe.
 */
#ifndef ARRAYD_SERVER_FILES_H
#define ARRAYD_SERVER_FILES_H

#include "compute/base/err.h"
#include "protocol/json/json_writer.h"
#include "protocol/wire/media.h"
#include "server/http/http.h"

struct array;
struct config;
struct files;
struct handle;
struct handle_new;
struct session;
struct view;
struct user_job;

/* Where the program is, for mem_free(): NULL: nowhere. */
enum err_code files_find_program(const struct config *c, char **ret, struct err *e) must_check;

/* By the options of s->config. ERR_BAD_FIELD: a folder that cannot be. */
enum err_code files_open(struct server *s, struct files **ret, struct err *e) must_check;
/* Waits for what is under way, which ends at once: nobody wants it any more. NULL allowed. */
void files_free(struct files *f);

/* Writes the members "folders" and "reader", whether there is a program for files, into an open
 * object. */
void files_put_folders(const struct files *f, struct json_writer *w);

/* Replies with a folder's contents, or what a file has in it: the file in `folder` at `path`, for
 * whoever sent the request, which waits. */
void files_look(struct request *req, const char *folder, const char *path);

/* Begins an import or an export as the request's body says, for its user and session. The caller
 * gets a reference to the job. Errors of the body, with a place; of jobs_transfer; ERR_OVERLOADED.
 */
enum err_code files_import(struct request *req, struct user_job **ret, struct err *e) must_check;
enum err_code files_export(struct request *req, struct user_job **ret, struct err *e) must_check;

/* Replies with a file of several arrays, as the request's body says. */
void files_bundle(struct request *req);
/* Replies with a file of that type (MEDIA_NPZ, MEDIA_NETCDF, MEDIA_HDF5) with one array and its
 * coordinates, elements of the handle's that ?index= and ?ghost= name; `ghosts`: with those of all
 * of it, by name. Uses req->state. */
void files_reply(struct request *req, struct session *s, const struct handle *h,
                 struct array *take_a, enum media type, bool ghosts);

/* Whether ?ghosts= is "keep"; by default, and with "leave", not. ERR_BAD_QUERY. */
enum err_code files_keeps_ghosts(struct request *req, bool *ret, struct err *e) must_check;

/* Whether the request's Content-Type is one of these three. */
bool files_is_body(struct request *req, enum media *ret_type);
/* For streamed handlers: takes the body, a file, and of it the variable that ?variable= names or
 * the only one, decoded unless ?decode=false, as a new array or into a region of one (data.h has
 * the same for elements). Errors become the reply: ERR_UNKNOWN_NAME with the variables that there
 * are. created() must reply; it gets the coordinates, unless the query names others or other axes,
 * and behind them the array; references are its own, the list is the request's. The session
 * lasts as long as the request. */
typedef void file_created(struct request *req, struct handle_new *take, size_t n);
void files_accept_create(struct request *req, struct session *s, enum media type,
                         file_created *created);
void files_accept_into(struct request *req, struct session *take_s, struct handle *take_h,
                       const struct view *region, enum media type);

#endif
