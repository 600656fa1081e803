/* FNV-1a, for tables in memory and for marks that only have to differ: nothing but the list of
 * suspected work (ir_identity) relies on a hash alone, and no other hash is stored. Pure. */
#ifndef ARRAYD_BASE_HASH_H
#define ARRAYD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_SEED 14695981039346656037u

/* `h`: HASH_SEED, or the hash of the preceding bytes. */
static inline uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 1099511628211u;
    return h;
}

/* Adds eight bytes at once. */
static inline uint64_t hash_word(uint64_t h, uint64_t w)
{
    h = (h ^ w) * 1099511628211u;
    return h ^ h >> 29;
}

/* The same for long keys, eight bytes a step. */
static inline uint64_t hash_words(const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t h = HASH_SEED;
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t w;
        memcpy(&w, b, 8);
        h = hash_word(h, w);
    }
    return hash_bytes(h, b, n);
}

#endif
