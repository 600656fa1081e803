/* What identifies code, in this process and in those after it: a kernel's key, or that of all the
 * kernels of a plan together. It changes with arrayd's version. Pure. */
#ifndef ARRAYD_CODE_KEY_H
#define ARRAYD_CODE_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct code_key {
    uint8_t sha[32];
};

/* In hexadecimal, as in file names of the kernel cache, the log and the list of refused work. */
#define CODE_KEY_TEXT 65
void code_key_text(const struct code_key *key, char ret[CODE_KEY_TEXT]);
/* False: these are not 64 hexadecimal digits. */
bool code_key_read(const char *text, struct code_key *ret);

static inline bool code_key_same(const struct code_key *a, const struct code_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Adds a kernel's key to that of its plan, zeros at first. The order does not matter, and the key
 * of a plan of one kernel is that kernel's. */
static inline void code_key_add(struct code_key *plan, const struct code_key *kernel)
{
    uint64_t a[sizeof *plan / 8], b[sizeof *plan / 8];
    memcpy(a, plan, sizeof a);
    memcpy(b, kernel, sizeof b);
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        a[i] += b[i];
    memcpy(plan, a, sizeof a);
}

#endif
