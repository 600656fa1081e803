/* `arrayd doctor`: looks at everything the daemon needs and says what to do about what is missing.
 *
 * Called by main.c instead of running the daemon, with the same options and configuration file. It
 * changes nothing: files it makes to try a folder are removed, addresses are given back. One thread
 * but for the self-test's. doctor.c has the report, the configuration and the self-test,
 * doctor_machine.c what is read of the machine, from files under `root` ("" but in tests). */
#ifndef ARRAYD_SERVER_DOCTOR_H
#define ARRAYD_SERVER_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "compute/backend.h"
#include "compute/base/strb.h"

struct config;

struct doctor {
    struct strb text; /* one line a check, one more where there is something to do */
    struct strb json; /* the same, objects separated by commas */
    int n[FINDING_FAIL + 1];
    /* What a missing GPU is: FINDING_FAIL where CUDA was asked for, FINDING_WARN where one seems
     * to be in the machine, FINDING_OK where there is none. */
    enum finding without_gpu;
};

void doctor_free(struct doctor *d);

/* Adds a line. A finding_fn: `user` is the struct doctor. */
void doctor_say(void *user, enum finding level, const char *what, const char *text,
                const char *advice);

/* Whether anything says that an NVIDIA GPU is or should be in this machine. */
bool doctor_gpu_expected(const char *root);

/* Container or not; the device files and who may use them. */
void doctor_devices(struct doctor *d, const char *root);

/* Descriptors and locked memory of this process against what the configuration may need. */
void doctor_limits(struct doctor *d, const struct config *c);

/* The control group's bound on memory against what the configuration lets arrays have. */
void doctor_memory(struct doctor *d, const struct config *c, const char *root);
void doctor_request_memory(struct doctor *d, const struct config *c);

/* A folder the daemon writes to: `unfit` is how bad it is where it cannot. `own`: it is used only
 * where nobody else may write. */
void doctor_folder(struct doctor *d, const char *what, const char *path, bool own,
                   enum finding unfit);

/* u + 1 on a backend, the result compared. `unfit` as above. */
void doctor_self_test(struct doctor *d, const struct config *c, const char *backend,
                      enum finding unfit);

/* `arrayd doctor [--json] [option]...`: the options are the daemon's. Exit status: 0, 1 where a
 * check failed, 2 for a wrong option. */
int doctor_main(int argc, char **argv);

#endif
