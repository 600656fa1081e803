/* uthash as this house uses it: memory from mem.h, and an insertion that finds none leaves the
 * table as it was, with el->hh.tbl NULL, instead of ending the process.
 *
 * Included instead of <uthash.h> by whoever keeps a hash table; the tables are the caller's, and so
 * is locking them. */
#ifndef ARRAYD_BASE_TABLE_H
#define ARRAYD_BASE_TABLE_H

#include "compute/base/mem.h"

#define HASH_NONFATAL_OOM       1
#define uthash_malloc(n)        mem_alloc(n)
#define uthash_free(p, n)       mem_free(p)
#define uthash_nonfatal_oom(el) ((void)(el))
#include <uthash.h>

#endif
