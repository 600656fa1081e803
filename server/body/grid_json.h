/* Grids as JSON: "ghost", "boundary" and "spacing" in a body and in an array's metadata.
 *
 * Called by the handlers that create, change and describe arrays. Pure; thread-safe. */
#ifndef ARRAYD_SERVER_GRID_JSON_H
#define ARRAYD_SERVER_GRID_JSON_H

#include "compute/type/dtype.h"
#include "compute/type/grid.h"
#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"

/* Reads the members that `body` has into *g, an initialised description (rank and all) of an array
 * of type t; members that are absent leave it unchanged. Does not check ghost widths against a
 * shape. ERR_BAD_BOUNDARY, ERR_SHAPE_MISMATCH for a list without exactly one entry per axis,
 * ERR_BAD_FIELD. */
enum err_code grid_json_read(struct json body, enum dtype t, struct grid *g,
                             struct err *e) must_check;

/* Writes the three members; g may be NULL. */
void grid_json_put(struct json_writer *w, const struct grid *g, int rank);

#endif
