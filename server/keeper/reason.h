/* Why the last upgrade failed, or what the new daemon could not take over: the keeper writes it to
 * a file in memory, which `arrayd upgrade` finds among the keeper's descriptors. */
#ifndef ARRAYD_KEEPER_REASON_H
#define ARRAYD_KEEPER_REASON_H

#include <stdbool.h>
#include <sys/types.h>

#define REASON_SIZE 1024

/* The keeper's side. Returns a descriptor (close-on-exec), to be used as the checker's standard
 * error, or −1: the system has no such files, and the reason is in the log alone. */
int reason_open(void);
void reason_reset(int fd);
void reason_set(int fd, const char *text);
/* The reason as one line, without "arrayd: ". False if no reason was set. */
bool reason_read(int fd, char ret[REASON_SIZE]);

/* The reason that the keeper, another process, holds. False if it has none or may not be read. */
bool reason_of(pid_t keeper, char ret[REASON_SIZE]);

/* How a process ended, by waitpid's status of it: "exit status 1", "signal 9 (Killed)". */
void reason_of_end(int status, char ret[64]);

#endif
