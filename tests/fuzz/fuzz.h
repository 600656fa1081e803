/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput, built either with
 * libFuzzer (run.sh) or with driver.c. */
#ifndef ARRAYD_FUZZ_H
#define ARRAYD_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As assert, in every build. */
#define FUZZ_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond);               \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
