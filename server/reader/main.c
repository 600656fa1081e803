/* arrayd-file: opens the files that people have, so that the daemon need not.
 *
 * One process a file: it learns its limits, puts itself behind the walls of the sandbox, and
 * answers requests until its socket ends. Whatever goes wrong ends it: see link.h. */
#include <signal.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/reader/link.h"
#include "server/reader/requests.h"
#include "server/reader/sandbox.h"

#define LEAST_MEMORY (1 << 20) /* beside the slabs */

static void begin(struct reader_limits *ret)
{
    _cleanup_arena_ struct arena *arena = must(arena_new(0));
    struct json line, limits;
    if (!link_read(arena, &line))
        _exit(0);
    struct err e = ERR_INIT;
    struct sandbox s = {0};
    int64_t slab = 0, slabs = 0, threads = 1;
    limits = json_member(line, "limits");
    struct json sandbox = json_member(limits, "sandbox");
    if (json_get_i64(json_member(limits, "memory"), LEAST_MEMORY, 1ll << 46, &s.memory, &e) !=
            ERR_OK ||
        json_get_i64(json_member(limits, "seconds"), 1, 1ll << 31, &s.seconds, &e) != ERR_OK ||
        json_get_i64(json_member(limits, "slab"), WIRE_SLAB_MIN, WIRE_SLAB_MAX, &slab, &e) !=
            ERR_OK ||
        json_get_i64(json_member(limits, "slabs"), 1, WIRE_SLABS_MAX, &slabs, &e) != ERR_OK ||
        json_get_i64(json_member(limits, "threads"), 1, 1024, &threads, &e) != ERR_OK ||
        json_get_bool(json_member(line, "write"), &s.write, &e) != ERR_OK ||
        (s.write && json_get_i64(json_member(limits, "file"), 0, INT64_MAX, &s.file, &e) != ERR_OK))
        stop(WIRE_BAD_REQUEST, "the first line: %s", e.message);
    s.required = !json_equals(sandbox, "allow_none");
    if (slab * slabs > s.memory - LEAST_MEMORY)
        stop(WIRE_BAD_REQUEST, "the limit of memory, %lld bytes, is too low for the slabs",
             (long long)s.memory);
    s.threads = (int)threads;
    char state[128];
    sandbox_enter(&s, state, sizeof state);
    link_open((size_t)slab, (size_t)slabs); /* the slabs are part of the memory */
    *ret = (struct reader_limits){s.memory - slab * slabs};

    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    json_open_object(&w);
    json_put_member_bool(&w, "ready", true);
    json_put_member_string(&w, "sandbox", state);
    json_put_key(&w, "formats");
    json_open_list(&w);
#define X(id, name) json_put_string(&w, name);
    WIRE_FORMATS(X)
#undef X
    json_close_list(&w);
    json_close_object(&w);
    link_send(&text);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    struct reader_limits limits;
    begin(&limits);
    requests_serve(&limits);
}
