/* The handlers that routes.c names.
 *
 * A handler checks in this order: query, Accept, session and {ref}, body; it changes something only
 * after everything that can fail. What they have in common is in server/body/request.h. */
#ifndef ARRAYD_SERVER_HANDLERS_H
#define ARRAYD_SERVER_HANDLERS_H

#include "protocol/json/json.h"
#include "server/http/http.h"

struct user_job;

/* routes.c */
extern const struct route route_table[];
extern const size_t route_count;

/* handlers_service.c */
handler_fn service_healthz, service_readyz, service_info, service_openapi;

/* handlers_sessions.c */
handler_fn session_post, session_list_get, session_one_get, session_one_delete, session_sync_post;

/* handlers_arrays.c */
handler_fn array_list_get, array_get, array_patch, array_delete, array_resize, array_copy,
    array_swap;

/* handlers_data.c */
handler_fn data_get, data_put, summary_get;

/* handlers_views.c */
handler_fn array_views_post;

/* handlers_shares.c */
handler_fn array_lease_post, array_lease_delete, array_share_post, array_share_list,
    array_share_delete;

/* handlers_export.c */
handler_fn array_export_post;

/* handlers_grid.c */
handler_fn layouts_post, array_fill_ghost;

/* handlers_files.c */
handler_fn files_get, files_folder_get, files_import_post, files_export_post, files_bundle_post;

/* handlers_functions.c */
handler_fn function_post, function_put, function_list_get, function_get, function_delete;

/* handlers_evaluate.c, handlers_explain.c */
handler_fn evaluate_post, explain_post;
/* The part of evaluate_post for a body with "statements" (handlers_statements.c). */
void evaluate_statements(struct request *req, struct json body);

/* handlers_jobs.c */
handler_fn program_post, job_list_get, job_get, job_delete, job_resume_post;
/* The query of a request that begins a job, whose reply may wait for the job's end. */
enum err_code job_wants_wait(struct request *req, bool *ret, struct err *e) must_check;
/* Replies to the request that has begun it, at once or (`wait`) at its end. Takes the reference. */
void job_reply_begun(struct request *req, struct user_job *take_j, bool wait);

/* handlers_faults.c */
handler_fn faults_get, faults_delete, fault_delete;

/* handlers_admin.c; the job's: handlers_jobs.c */
handler_fn admin_sessions_get, admin_session_delete, admin_jobs_get, admin_job_delete,
    admin_arrays_get, admin_array_delete, admin_principals_get, admin_principal_patch,
    admin_principal_delete, admin_audit_get;

/* handlers_state.c */
handler_fn snapshot_post;

/* metrics.c */
handler_fn metrics_get;

/* handlers_create.c: POST /v1/arrays and PUT /v1/arrays/{ref}, streamed */
handler_fn array_create;

#endif
