/* What is UTF-8, for every room that reads text. Pure functions over bytes; thread-safe. */
#ifndef ARRAYD_BASE_UTF8_H
#define ARRAYD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length (1 to 4) of the character at p, whose bytes are within the first n; 0 where they are none.
 * A text that ends with NUL may be given as longer than it is. */
static inline size_t utf8_length(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    if (n == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4)
        return 0;
    size_t length = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    if (n < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((u[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (u[0] == 0xE0 && u[1] < 0xA0) || (u[0] == 0xF0 && u[1] < 0x90);
    bool surrogate = u[0] == 0xED && u[1] > 0x9F, beyond = u[0] == 0xF4 && u[1] > 0x8F;
    return overlong || surrogate || beyond ? 0 : length;
}

static inline bool utf8_valid(const char *p, size_t n)
{
    for (size_t i = 0, length; i < n; i += length) {
        length = utf8_length(p + i, n - i);
        if (length == 0)
            return false;
    }
    return true;
}

#endif
