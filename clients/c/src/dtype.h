/* The element type of a name; arrayd.h has the rest. */
#ifndef ARRAYD_CLIENT_DTYPE_H
#define ARRAYD_CLIENT_DTYPE_H

#include <arrayd.h>

/* ARRAYD_NONE where there is no such type, or name is NULL. */
enum arrayd_dtype dtype_named(const char *name);

#endif
