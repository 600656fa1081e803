/* Ids, and which names arrays may have. */
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/random.h>

#include "server/store/handles.h"

void id_make(char prefix, char ret[ID_SIZE])
{
    static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned __int128 v = 0;
    unsigned char *p = (unsigned char *)&v;
    for (size_t got = 0; got < sizeof v;) {
        ssize_t n = getrandom(p + got, sizeof v - got, 0);
        if (n > 0) /* fails only when a signal comes before the kernel's pool is ready */
            got += (size_t)n;
    }
    ret[0] = prefix;
    ret[1] = '-';
    for (int i = 2; i < ID_SIZE - 1; i++, v /= 62)
        ret[i] = digit[v % 62];
    ret[ID_SIZE - 1] = '\0';
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool id_is(char prefix, const char *s)
{
    if (s[0] != prefix || s[1] != '-')
        return false;
    for (int i = 2; i < ID_SIZE - 1; i++)
        if (!is_alnum(s[i]))
            return false;
    return s[ID_SIZE - 1] == '\0';
}

void id_digest(const char id[ID_SIZE], char ret[ID_DIGEST])
{
    struct sha256_ctx sum;
    uint8_t bytes[ID_DIGEST / 2];
    sha256_init(&sum);
    sha256_update(&sum, ID_SIZE, (const uint8_t *)id);
    sha256_digest(&sum, sizeof bytes, bytes);
    base16_encode_update(ret, sizeof bytes, bytes);
    ret[ID_DIGEST - 1] = '\0';
}

enum err_code name_check(const char *name, struct err *e)
{
    size_t n = 0;
    while ((is_alnum(name[n]) || name[n] == '_') && n <= NAME_MAX_LEN)
        n++;
    if (n == 0 || n > NAME_MAX_LEN || name[n] || (name[0] >= '0' && name[0] <= '9'))
        return err_set(e, ERR_BAD_NAME,
                       "a name must be a letter or _, followed by up to %d letters, digits or _",
                       NAME_MAX_LEN - 1);
    return ERR_OK;
}
