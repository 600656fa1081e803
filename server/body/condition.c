/* Conditional requests.
 *
 * A tag is strong: the process's random mark, the contents' version (which never repeats in a
 * process), a hash of dtype and geometry (a name may come to mean another view of the same memory)
 * and the representation. A condition on a write does not depend on the representation that the
 * client had read, only on whether the contents are still those it read.
 *
 * While an array is exported for writing, its contents change without a new version, so it has no
 * tags then. When the export ends, the version changes. */
#include "server/body/condition.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "compute/base/hash.h"
#include "compute/memory/export.h"

static uint32_t process_mark;

static void make_mark(void)
{
    /* fails only if interrupted before the kernel's pool is ready */
    while (getrandom(&process_mark, sizeof process_mark, 0) != sizeof process_mark)
        ;
}

/* Mark, version and geometry: what a tag begins with. */
static int begin(enum dtype dtype, const struct view *v, uint64_t version, char ret[ETAG_MAX])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_mark);
    uint64_t h = HASH_SEED;
    h = hash_bytes(h, &dtype, sizeof dtype);
    h = hash_bytes(h, &v->rank, sizeof v->rank);
    h = hash_bytes(h, v->shape, sizeof *v->shape * (size_t)v->rank);
    h = hash_bytes(h, v->strides, sizeof *v->strides * (size_t)v->rank);
    h = hash_bytes(h, &v->offset, sizeof v->offset);
    return snprintf(ret, ETAG_MAX, "\"%08x-%llx-%016llx-", process_mark,
                    (unsigned long long)version, (unsigned long long)h);
}

void etag_make(enum dtype dtype, const struct view *v, uint64_t version, enum media type,
               char ret[ETAG_MAX])
{
    const int n = begin(dtype, v, version, ret);
    snprintf(ret + n, ETAG_MAX - (size_t)n, "%c\"",
             type == MEDIA_OCTETS ? 'o'
             : type == MEDIA_NPY  ? 'n'
                                  : 'j');
}

void etag_derived(enum dtype dtype, const struct view *v, uint64_t version, const void *from,
                  size_t size, char kind, char ret[ETAG_MAX])
{
    const int n = begin(dtype, v, version, ret);
    snprintf(ret + n, ETAG_MAX - (size_t)n, "%c%016llx\"", kind,
             (unsigned long long)hash_bytes(HASH_SEED, from, size));
}

static bool is_star(const char *list)
{
    list += strspn(list, " \t");
    return *list == '*' && !list[1 + strspn(list + 1, " \t")];
}

/* Whether the list has a tag that begins with these n bytes or, if `whole`, one that is these. */
static bool has(const char *list, const char *tag, size_t n, bool whole, bool strong)
{
    if (is_star(list))
        return true;
    for (const char *p = list;;) {
        p += strspn(p, " \t,");
        bool weak = p[0] == 'W' && p[1] == '/';
        if (weak)
            p += 2;
        if (*p != '"')
            return false;
        const char *end = strchr(p + 1, '"');
        if (!end)
            return false;
        const size_t length = (size_t)(end + 1 - p);
        if (!(weak && strong) && (whole ? length == n : length > n) && !memcmp(p, tag, n))
            return true;
        p = end + 1;
    }
}

bool etag_listed(const char *list, const char *etag, bool strong)
{
    return has(list, etag, strlen(etag), true, strong);
}

struct condition condition_of(struct request *req)
{
    return (struct condition){
        .match = http_header(req, "If-Match"),
        .none_match = http_header(req, "If-None-Match"),
    };
}

bool condition_names_tags(const struct condition *c)
{
    return c->match && !is_star(c->match);
}

/* Whatever has been made of the contents, its tag begins alike. */
static bool any_listed(const char *list, const struct array *a, const struct view *region,
                       bool strong)
{
    const uint64_t version = array_version(a);
    char tag[ETAG_MAX];
    if (array_written_outside(a))
        return false;
    const size_t n = (size_t)begin(a->dtype, &a->view, version, tag);
    if (has(list, tag, n, false, strong))
        return true;
    return has(list, tag, (size_t)begin(a->dtype, region, version, tag), false, strong);
}

enum err_code condition_check(const struct condition *c, const struct array *now,
                              const struct view *region, struct err *e)
{
    if (c->match && (!now || (!is_star(c->match) && !any_listed(c->match, now, region, true))))
        return err_set(e, ERR_PRECONDITION_FAILED, "If-Match: %s",
                       now ? "the array's contents have none of these tags"
                           : "the array does not exist");
    if (c->none_match && now &&
        (is_star(c->none_match) || any_listed(c->none_match, now, region, false)))
        return err_set(e, ERR_PRECONDITION_FAILED, "If-None-Match: %s",
                       is_star(c->none_match) ? "the array already exists"
                                              : "the array's contents have one of these tags");
    return ERR_OK;
}

enum err_code condition_guard(void *user, const struct array *now, struct err *e)
{
    return condition_check(user, now, now ? &now->view : NULL, e);
}

enum err_code condition_read(struct request *req, const char *etag, bool *ret_same, struct err *e)
{
    const struct condition c = condition_of(req);
    if (c.match && !etag_listed(c.match, etag, true))
        return err_set(e, ERR_PRECONDITION_FAILED,
                       "If-Match: the contents have none of these tags");
    *ret_same = c.none_match && etag_listed(c.none_match, etag, false);
    return ERR_OK;
}
