/* A request as an asker of work (server/work/asker.h). */
#include <stdio.h>

#include "server/http/http_impl.h"
#include "server/store/auth.h"

static void describe(const struct asking *a, struct asker *to)
{
    struct request *r =
        (struct request *)(uintptr_t)((const char *)a - offsetof(struct request, asking));
    const char *session = http_header(r, "Arrayd-Session");
    snprintf(to->request, sizeof to->request, "%s", r->id);
    snprintf(to->principal, sizeof to->principal, "%s", r->principal ? r->principal->name : "");
    snprintf(to->session, sizeof to->session, "%s", session ? session : "default");
    snprintf(to->text, sizeof to->text, "%s %.150s", r->method, r->path);
    asker_put_body(to, r->body, r->body_len);
}

void http_at_work(struct rq *q, handler_fn *fn)
{
    q->r.asking.describe = describe;
    asking_begin(&q->r.asking);
    fn(&q->r);
    asking_end();
}
