/* /v1/files: folders of this machine, what is in them and in their files, and the jobs that move
 * arrays between files and the device. */
#include "protocol/json/json_writer.h"
#include "protocol/wire/media.h"
#include "server/api/handlers.h"
#include "server/body/request.h"
#include "server/files/files.h"
#include "server/server.h"

void files_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    if (request_plain(req, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    json_open_object(&w);
    files_put_folders(req->server->files, &w);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
}

/* A path is a parameter, since names of files have characters that the daemon's paths have not. */
void files_folder_get(struct request *req)
{
    static const char *const query[] = {"path", NULL};
    struct err e = ERR_INIT;
    enum err_code code = http_query_only(req, query, &e);
    if (code == ERR_OK)
        code = request_accepts_json(req, &e);
    if (code != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    const char *path = http_query(req, "path");
    files_look(req, req->param[0], path ? path : "");
}

static void begin_job(struct request *req,
                      enum err_code (*begin)(struct request *req, struct user_job **ret,
                                             struct err *e))
{
    struct err e = ERR_INIT;
    struct user_job *j;
    bool wait;
    enum err_code code = job_wants_wait(req, &wait, &e);
    if (code == ERR_OK)
        code = media_require_json(http_header(req, "Content-Type"), &e);
    if (code == ERR_OK)
        code = begin(req, &j, &e);
    if (code != ERR_OK)
        http_reply_error(req, &e);
    else
        job_reply_begun(req, j, wait);
}

void files_bundle_post(struct request *req)
{
    struct err e = ERR_INIT;
    static const char *const none[] = {NULL};
    if (http_query_only(req, none, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        files_bundle(req);
}

void files_import_post(struct request *req)
{
    begin_job(req, files_import);
}

void files_export_post(struct request *req)
{
    begin_job(req, files_export);
}
