/* The tables embed_headers makes at build time, read by headers.c only. Constant, so thread-safe.
 */
#ifndef ARRAYD_CUDA_HEADERS_DATA_H
#define ARRAYD_CUDA_HEADERS_DATA_H

#include <stdint.h>

/* One device header: its name as written in #include, and its text. Sorted as in meson.build. */
extern const char *const header_names[];
extern const char *const header_texts[];
extern const int header_count;

/* One function of scalar.h with every template expanded. */
struct scalar_function {
    const char *name, *text;
    uint32_t first_need, n_needs; /* into scalar_needs: functions it calls, all of them earlier */
};

extern const struct scalar_function scalar_functions[]; /* in the order of definition */
extern const uint16_t scalar_by_name[];                 /* indices, sorted by name */
extern const uint16_t scalar_needs[];
extern const char scalar_rest[]; /* what scalar.h defines besides functions: structs */
extern const int scalar_count;

#endif
