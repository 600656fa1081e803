/* The page at `/`: handlers of its routes.
 *
 * Called through the table of routes. The page is the daemon's own client in a browser: files that
 * are compiled in (asset.h) and are the same for everybody, so they need no token; what they show
 * comes from the other routes, with the visitor's own rights. Stateless; thread-safe. */
#ifndef ARRAYD_SERVER_PAGE_H
#define ARRAYD_SERVER_PAGE_H

#include "server/http/http.h"

handler_fn page_get;      /* GET / */
handler_fn page_file_get; /* GET /page/{file} */

#endif
