/* Numbers are read as everywhere else in the daemon: the shortest text of a double gives that
 * double. */
#include "server/look/query.h"

#include <math.h>
#include <string.h>

#include "protocol/number/numtext.h"

/* A decimal number of n bytes: sign, digits with at most one point, exponent. */
static bool is_number(const char *p, size_t n)
{
    const char *end = p + n;
    size_t digits = 0;
    bool point = false;
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    for (; p < end && ((*p >= '0' && *p <= '9') || (*p == '.' && !point)); p++) {
        point |= *p == '.';
        digits += *p != '.';
    }
    if (!digits)
        return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '-' || *p == '+'))
            p++;
        const char *first = p;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        if (p == first)
            return false;
    }
    return p == end;
}

static bool number(const char *p, size_t n, double *ret)
{
    if (n > 400 || !is_number(p, n))
        return false;
    *ret = numtext_parse_f64(p + (*p == '+'), n - (*p == '+'));
    return isfinite(*ret);
}

enum err_code query_number(const struct request *req, const char *key, double *ret, bool *ret_given,
                           struct err *e)
{
    const char *text = http_query(req, key);
    *ret_given = text != NULL;
    if (text && !number(text, strlen(text), ret))
        return err_set(e, ERR_BAD_FIELD, "%s must be a finite number", key);
    return ERR_OK;
}

enum err_code query_whole(const struct request *req, const char *key, int64_t least, int64_t most,
                          int64_t *ret, struct err *e)
{
    const char *text = http_query(req, key);
    __int128 v;
    if (!text)
        return ERR_OK;
    if (!*text || strspn(text, "0123456789") != strlen(text) ||
        !numtext_parse_int(text, strlen(text), &v) || v < least || v > most)
        return err_set(e, ERR_BAD_FIELD, "%s must be a whole number from %lld to %lld", key,
                       (long long)least, (long long)most);
    *ret = (int64_t)v;
    return ERR_OK;
}

enum err_code query_flag(const struct request *req, const char *key, bool *ret, struct err *e)
{
    const char *text = http_query(req, key);
    if (!text)
        return ERR_OK;
    *ret = !strcmp(text, "true") || !strcmp(text, "1");
    if (!*ret && strcmp(text, "false") != 0 && strcmp(text, "0") != 0)
        return err_set(e, ERR_BAD_FIELD, "%s must be true or false", key);
    return ERR_OK;
}

enum err_code query_choice(const struct request *req, const char *key, const char *const *names,
                           int *ret, struct err *e)
{
    const char *text = http_query(req, key);
    if (!text)
        return ERR_OK;
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], text)) {
            *ret = i;
            return ERR_OK;
        }
    char list[512] = "";
    for (int i = 0; names[i]; i++) {
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, names[i], sizeof list - strlen(list) - 1);
    }
    return err_set(e, ERR_BAD_FIELD, "%s must be one of %s", key, list);
}

enum err_code query_list(const struct request *req, const char *key, double least, double greatest,
                         size_t most, double *ret, size_t *n, struct err *e)
{
    const char *p = http_query(req, key);
    if (!p)
        return ERR_OK;
    for (*n = 0;; p++) {
        const size_t length = strcspn(p, ",");
        if (*n == most || !number(p, length, &ret[*n]) || ret[*n] < least || ret[*n] > greatest)
            return err_set(e, ERR_BAD_FIELD,
                           "%s must be at most %zu numbers from %g to %g, separated by commas", key,
                           most, least, greatest);
        ++*n;
        p += length;
        if (!*p)
            return ERR_OK;
    }
}

enum err_code query_range(const struct request *req, double *ret_lo, bool *ret_has_lo,
                          double *ret_hi, bool *ret_has_hi, struct err *e)
{
    TRY(query_number(req, "lo", ret_lo, ret_has_lo, e));
    TRY(query_number(req, "hi", ret_hi, ret_has_hi, e));
    if (*ret_has_lo && *ret_has_hi && *ret_lo >= *ret_hi)
        return err_set(e, ERR_BAD_FIELD, "lo must be less than hi");
    return ERR_OK;
}
