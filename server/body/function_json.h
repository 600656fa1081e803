/* Definitions of functions as JSON: the body of POST /v1/functions, and the reply of GET.
 *
 * Called by handlers_functions.c, and by kept_read.c and kept_write.c, which store functions in the
 * same form. Pure; thread-safe. */
#ifndef ARRAYD_SERVER_FUNCTION_JSON_H
#define ARRAYD_SERVER_FUNCTION_JSON_H

#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"
#include "server/config/config.h"
#include "server/store/functions.h"

/* Reads name (or in_path, if it is not NULL), params and expr or tree. Checks everything but the
 * calls of other functions. The caller gets the function's reference; the definition lives with
 * it. */
enum err_code function_json_read(const struct config *config, struct json body, const char *in_path,
                                 struct definition **ret, struct err *e) must_check;

/* Writes the definition as one value. */
void function_json_put(struct json_writer *w, const struct definition *d);

#endif
