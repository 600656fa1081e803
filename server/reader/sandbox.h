/* The walls around a process that opens files of strangers.
 *
 * Called once by main, before the file is looked at. See sandbox.c for what is left to the process.
 */
#ifndef ARRAYD_READER_SANDBOX_H
#define ARRAYD_READER_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox {
    int64_t memory;  /* bytes that the process may allocate from now on */
    int64_t seconds; /* of processor time */
    int64_t file;    /* bytes that WIRE_FILE may become, if it is to be written */
    bool write;      /* it is */
    int threads;     /* of the crew: there are no others */
    bool required;   /* the end with NO_SANDBOX where the kernel lacks a part */
};

/* Ends the process where a wall cannot be built, unless it is not required: then those that can be
 * built are, and `ret` says what is missing ("none: …"). Else it is "landlock+seccomp". */
void sandbox_enter(const struct sandbox *s, char *ret, size_t n);

#endif
