/* Threads for codecs. They are started before the file is touched, so that the sandbox need allow
 * no further ones.
 *
 * Started by sandbox_enter, given work by hdf5_chunks and hdf5_pack. There is one crew, whose work
 * one thread gives out at a time. Its threads must not end the process: the thread that waits for
 * the work reports their mistakes. */
#ifndef ARRAYD_READER_CREW_H
#define ARRAYD_READER_CREW_H

#include <stdbool.h>

/* Threads until there are so many, the caller included; fewer where there is no room for them. */
void crew_start(int threads);
/* How many there are, the caller included: 1 without crew_start. */
int crew_size(void);
/* So many pieces of work at a time keep it busy: at most CREW_WORK. */
#define CREW_WORK 64
int crew_work(void);
/* job(i) for each i < n, on all threads at once; returns when all are done. False if one was. Jobs
 * allocate no memory. */
bool crew_run(int n, bool (*job)(int i));

#endif
