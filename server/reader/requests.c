/* Of a file, only the first bytes say what format it has. It is opened by the first request that
 * needs it, and stays open. */
#include "server/reader/requests.h"

#include <unistd.h>

#include "compute/base/mem.h"
#include "server/reader/link.h"

/* In the order in which they are asked. */
static const struct format *const formats[] = {&format_hdf5, &format_netcdf, &format_npz,
                                               &format_npy,  &format_tiff,   &format_png};

static const struct format *find_format(void)
{
    unsigned char head[64];
    size_t n = file_read_some(head, sizeof head, 0);
    if (n == 0)
        stop(WIRE_BAD_FILE, "the file is empty");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i]->is(head, n))
            return formats[i];
    stop(WIRE_BAD_FILE, "the file is of no format that is read: by its first bytes it is neither "
                        "NetCDF, HDF5, .npz, .npy, TIFF nor PNG");
}

void requests_serve(const struct reader_limits *limits)
{
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
            content = format->open(limits);
            content_check_names(content);
        }
        if (json_equals(what, "describe")) {
            _cleanup_strb_ struct strb text = {0};
            content_describe(content, &text);
            link_send(&text);
        } else if (json_equals(what, "read")) {
            request_read(format, content, limits, request);
        } else {
            stop(WIRE_BAD_REQUEST, "an unknown request");
        }
    }
}
