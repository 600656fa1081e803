/* uthash as arrayd uses it: memory comes from mem.h, and an insertion without memory leaves the
 * table unchanged, with el->hh.tbl NULL, instead of ending the process.
 *
 * Used instead of <uthash.h> by every file with a hash table. Callers own the tables and lock them.
 */
#ifndef ARRAYD_BASE_TABLE_H
#define ARRAYD_BASE_TABLE_H

#include "compute/base/mem.h"

#define HASH_NONFATAL_OOM       1
#define uthash_malloc(n)        mem_alloc(n)
#define uthash_free(p, n)       mem_free(p)
#define uthash_nonfatal_oom(el) ((void)(el))
#include <uthash.h>
#include <utlist.h>

#endif
