/* arrayd-file: opens the files that people have, so that the daemon need not.
 *
 * One process a file: it learns its limits, puts itself behind the walls of the sandbox, and
 * answers requests until its socket ends. Whatever goes wrong ends it: see link.h. Of a file, only
 * the first bytes say what format it has. */
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/link.h"
#include "server/reader/sandbox.h"

/* In the order in which they are asked. */
static const struct format *const formats[] = {&format_hdf5, &format_netcdf, &format_npz,
                                               &format_npy,  &format_tiff,   &format_png};

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
    if (json_get_i64(json_member(limits, "memory"), 1 << 20, 1ll << 46, &s.memory, &e) != ERR_OK ||
        json_get_i64(json_member(limits, "seconds"), 1, 1ll << 31, &s.seconds, &e) != ERR_OK ||
        json_get_i64(json_member(limits, "slab"), WIRE_SLAB_MIN, WIRE_SLAB_MAX, &slab, &e) !=
            ERR_OK ||
        json_get_i64(json_member(limits, "slabs"), 1, WIRE_SLABS_MAX, &slabs, &e) != ERR_OK ||
        json_get_i64(json_member(limits, "threads"), 1, 1024, &threads, &e) != ERR_OK ||
        json_get_bool(json_member(line, "write"), &s.write, &e) != ERR_OK)
        stop(WIRE_BAD_REQUEST, "the first line: %s", e.message);
    s.required = !json_equals(sandbox, "allow_none");
    link_open((size_t)slab, (size_t)slabs);
    char state[128];
    sandbox_enter(&s, state, sizeof state);
    *ret = (struct reader_limits){s.memory, (int)threads};

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

static const struct format *find_format(void)
{
    unsigned char head[64];
    ssize_t n = pread(WIRE_FILE, head, sizeof head, 0);
    if (n < 0)
        stop_errno("reading");
    if (n == 0)
        stop(WIRE_BAD_FILE, "the file is empty");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i]->is(head, (size_t)n))
            return formats[i];
    stop(WIRE_BAD_FILE, "the file is of no format that is read: by its first bytes it is neither "
                        "NetCDF, HDF5, .npz, .npy, TIFF nor PNG");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    struct reader_limits limits;
    begin(&limits);
    const struct format *format = NULL;
    struct content *content = NULL;
    for (;;) {
        _cleanup_arena_ struct arena *arena = must(arena_new(0));
        struct json request;
        if (!link_read(arena, &request))
            _exit(0); /* without the libraries' ends: nothing is open that would be lost */
        struct json what = json_member(request, "do");
        if (json_equals(what, "write")) {
            request_write(request);
            continue;
        }
        if (!content) {
            format = find_format();
            content = format->open(&limits);
        }
        if (json_equals(what, "describe")) {
            _cleanup_strb_ struct strb text = {0};
            content_describe(content, &text);
            link_send(&text);
        } else if (json_equals(what, "read")) {
            request_read(format, content, &limits, request);
        } else {
            stop(WIRE_BAD_REQUEST, "an unknown request");
        }
    }
}
