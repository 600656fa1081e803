/* The body is not parsed, since most are never looked at again: the text from the member on is
 * copied as it stands. */
#include "server/work/asker.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/http/http.h"

#define MOST_LOOKED 4096 /* bytes: array data of any length may follow */

static _Thread_local struct request *request; /* what the thread works for: one of these, */
static _Thread_local struct asker *job;       /* or neither */

void asker_request(struct request *req)
{
    request = req;
}

void asker_begin(struct asker *a)
{
    job = a;
}

struct asker *asker_ref(struct asker *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

void asker_unref(void *asker)
{
    struct asker *a = asker;
    if (a && atomic_fetch_sub(&a->refs, 1) == 1)
        mem_free(a);
}

static struct asker *asker_new(void)
{
    struct asker *a = mem_calloc(1, sizeof *a);
    if (a)
        atomic_init(&a->refs, 1);
    return a;
}

static void describe(struct request *r, struct asker *to)
{
    const char *session = http_header(r, "Arrayd-Session");
    snprintf(to->request, sizeof to->request, "%s", r->id);
    snprintf(to->principal, sizeof to->principal, "%s", http_user_name(r));
    snprintf(to->session, sizeof to->session, "%s", session ? session : "default");
    snprintf(to->text, sizeof to->text, "%s %.150s", r->method, r->path);
    asker_put_body(to, r->body, r->body_len);
}

void *asker_now(void)
{
    struct asker *a = job;
    if (!a && request) {
        if (!request->asker) {
            request->asker = asker_new();
            if (request->asker)
                describe(request, request->asker);
        }
        a = request->asker;
    }
    return a ? asker_ref(a) : NULL;
}

struct asker *asker_of_job(const char *id, const char *session)
{
    struct asker *by = asker_now(), *a = asker_new();
    if (a && by) {
        memcpy(a->request, by->request, sizeof a->request);
        memcpy(a->principal, by->principal, sizeof a->principal);
        memcpy(a->text, by->text, sizeof a->text);
    }
    if (a) {
        snprintf(a->job, sizeof a->job, "%s", id);
        snprintf(a->session, sizeof a->session, "%s", session);
    }
    asker_unref(by);
    return a;
}

void asker_put_body(struct asker *to, const char *body, size_t n)
{
    static const char *const members[] = {"\"expr\"", "\"statements\"", "\"body\""};
    const char *from = NULL;
    size_t looked = n < MOST_LOOKED ? n : MOST_LOOKED;
    for (size_t i = 0; i < sizeof members / sizeof *members && !from && body; i++)
        from = memmem(body, looked, members[i], strlen(members[i]));
    if (!from)
        return;
    n -= (size_t)(from - body);
    size_t at = strlen(to->text), room = sizeof to->text - 4; /* for "..." */
    if (at < room)
        to->text[at++] = ' ';
    bool blank = false;
    for (; n > 0 && at < room; from++, n--) {
        bool is_blank = (unsigned char)*from <= ' ';
        if (!is_blank || !blank)
            to->text[at++] = is_blank ? ' ' : *from;
        blank = is_blank;
    }
    while (n > 0 && at > 0 && ((unsigned char)*from & 0xC0) == 0x80) { /* not inside a character */
        from--;
        n++;
        at--;
    }
    snprintf(to->text + at, sizeof to->text - at, "%s", n ? "..." : "");
}
