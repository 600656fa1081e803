/* `arrayd doctor`: checks everything the daemon needs and says how to fix what is missing.
 *
 * Called by main.c instead of running the daemon, with the same options and configuration file. It
 * changes nothing: files it makes to try a folder are removed, addresses are released. One thread
 * but for the self-test's. doctor.c has the report, the configuration and the self-test;
 * doctor_machine.c has the checks of the machine, read from files under `root` ("" but in
 * tests); doctor_files.c is about files. */
#ifndef ARRAYD_SERVER_DOCTOR_H
#define ARRAYD_SERVER_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "compute/backend.h"
#include "compute/base/strb.h"

struct config;

struct doctor {
    struct strb text; /* one line per check, another where there is a remedy */
    struct strb json; /* the same, objects separated by commas */
    int n[FINDING_FAIL + 1];
    /* How bad a missing GPU is: FINDING_FAIL where CUDA was configured, FINDING_WARN where the
     * machine seems to have one, FINDING_OK where it has none. */
    enum finding without_gpu;
};

void doctor_free(struct doctor *d);

/* Adds a line. A finding_fn: `user` is the struct doctor. */
void doctor_say(void *user, enum finding level, const char *what, const char *text,
                const char *advice);

/* Whether there is any sign that this machine has, or should have, an NVIDIA GPU. */
bool doctor_gpu_expected(const char *root);

/* Whether this is a container; the device files and their permissions. */
void doctor_devices(struct doctor *d, const char *root);

/* This process's limits on descriptors and locked memory against what the configuration may
 * need. */
void doctor_limits(struct doctor *d, const struct config *c);

/* The control group's memory limit against what the configuration allows for arrays. */
void doctor_memory(struct doctor *d, const struct config *c, const char *root);
void doctor_huge_pages(struct doctor *d, const struct config *c, const char *root);
void doctor_request_memory(struct doctor *d, const struct config *c);

/* A folder the daemon writes to: `unfit` is the level if it cannot. `own`: the daemon uses the
 * folder only if nobody else may write to it. */
void doctor_folder(struct doctor *d, const char *what, const char *path, bool own,
                   enum finding unfit);

/* Writes a file into a folder and removes it: permissions, a read-only mount and a full disk all
 * show. 0, or errno. */
int doctor_try_write(const char *folder);

/* The folders of files that users may use, what opens them, and where those lie that are sent. */
void doctor_files(struct doctor *d, const struct config *c);

/* Computes u + 1 on a backend and compares the result. `unfit` as above. */
void doctor_self_test(struct doctor *d, const struct config *c, const char *backend,
                      enum finding unfit);

/* `arrayd doctor [--json] [option]...`: the options are the daemon's. Exit status: 0, 1 where a
 * check failed, 2 for a wrong option. */
int doctor_main(int argc, char **argv);

#endif
