/* Keys as text. */
#include "compute/culprit/key.h"

#include <stdio.h>

void code_key_text(const struct code_key *key, char ret[CODE_KEY_TEXT])
{
    for (size_t i = 0; i < sizeof key->sha; i++)
        snprintf(ret + 2 * i, 3, "%02x", key->sha[i]);
}

bool code_key_read(const char *text, struct code_key *ret)
{
    if (strlen(text) != CODE_KEY_TEXT - 1 || strspn(text, "0123456789abcdef") != CODE_KEY_TEXT - 1)
        return false;
    for (size_t i = 0; i < sizeof ret->sha; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        ret->sha[i] = (uint8_t)byte;
    }
    return true;
}
