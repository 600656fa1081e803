/* Lines are read into one buffer that grows to the longest line; a line is written by one call of
 * write if the socket takes it, so that the handler of SIGXCPU finds no half of one. Free slabs are
 * bits of a mask. */
#include "server/reader/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"

static struct {
    unsigned char *slabs;
    size_t size, count;
    uint64_t free;   /* slabs that are the reader's */
    int held;        /* the slab being filled or taken, -1 */
    char *text;      /* what was read of the socket */
    size_t have, at; /* bytes in text, of these parsed */
    size_t room;
} self = {.held = -1};

static const char *const codes[] = {
#define X(id, name) name,
    WIRE_ERRORS(X)
#undef X
};

static void write_all(const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(WIRE_SOCKET, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            _exit(0); /* nobody listens */
        p += done;
        n -= (size_t)done;
    }
}

void stop(enum wire_error code, const char *fmt, ...)
{
    char detail[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(detail, sizeof detail, fmt, args);
    va_end(args);
    struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    json_open_object(&w);
    json_put_key(&w, "error");
    json_open_object(&w);
    json_put_member_string(&w, "code", codes[code]);
    json_put_member_string(&w, "detail", detail);
    json_close_object(&w);
    json_close_object(&w);
    strb_addc(&text, '\n');
    if (text.failed) {
        static const char bare[] =
            "{\"error\":{\"code\":\"out_of_memory\",\"detail\":\"the reader of "
            "files has no memory left\"}}\n";
        write_all(bare, sizeof bare - 1);
    } else {
        write_all(text.data, text.len);
    }
    _exit(0);
}

void stop_oom(void)
{
    stop(WIRE_OUT_OF_MEMORY, "the file needs more memory than its reader may use");
}

void stop_reading(void)
{
    stop(WIRE_IO, "reading the file failed: %s", strerror(errno));
}

/* Whether a number of errno says that there is no room for more of a file: EFBIG is what limits of
 * users and of file systems have. */
static bool no_space(int number)
{
    return number == ENOSPC || number == EDQUOT || number == EFBIG;
}

void stop_writing(const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    /* Libraries lose errno. But where they could not write one cannot either, and the file is
     * thrown away. */
    static const char some[4096];
    struct stat st;
    ssize_t n = 1;
    if (fstat(WIRE_FILE, &st) == 0)
        n = pwrite(WIRE_FILE, some, sizeof some, st.st_size);
    if (n < 0 && no_space(errno))
        stop(WIRE_NO_SPACE, "there is no space for the file: %s", strerror(errno));
    stop(WIRE_IO, "%s", text);
}

size_t file_read_some(void *to, size_t n, int64_t offset)
{
    size_t have = 0;
    while (have < n) {
        ssize_t done = pread(WIRE_FILE, (char *)to + have, n - have, offset + (off_t)have);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            stop_reading();
        if (done == 0)
            break;
        have += (size_t)done;
    }
    return have;
}

void file_read(void *to, size_t n, int64_t offset)
{
    if (file_read_some(to, n, offset) < n)
        stop(WIRE_BAD_FILE, "the file is cut off");
}

void file_write(const void *from, size_t n, int64_t offset)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(WIRE_FILE, (const char *)from + done, n - done, offset + (off_t)done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            stop_writing("writing the file failed: %s", strerror(errno));
        done += (size_t)k;
    }
}

void *must(void *p)
{
    if (!p)
        stop_oom();
    return p;
}

void *must_alloc(size_t n)
{
    return must(mem_alloc(n));
}

void *must_array(size_t n, size_t size)
{
    return must(mem_calloc(n, size));
}

void link_open(size_t size, size_t count)
{
    struct stat st;
    if (fstat(WIRE_SLABS, &st) != 0 || (uint64_t)st.st_size < (uint64_t)size * count)
        stop(WIRE_BAD_REQUEST, "the slabs are not where they should be");
    void *p = mmap(NULL, size * count, PROT_READ | PROT_WRITE, MAP_SHARED, WIRE_SLABS, 0);
    if (p == MAP_FAILED)
        stop_oom();
    self.slabs = p;
    self.size = size;
    self.count = count;
    self.free = count == 64 ? ~0ull : (1ull << count) - 1;
}

size_t link_slab_bytes(void)
{
    return self.size;
}

/* The next line without its newline, in self.text until the next call; NULL at the end. */
static char *read_line(size_t *ret_n)
{
    size_t searched = self.at;
    for (;;) {
        char *end =
            searched < self.have ? memchr(self.text + searched, '\n', self.have - searched) : NULL;
        if (end) {
            char *line = self.text + self.at;
            *ret_n = (size_t)(end - line);
            self.at += *ret_n + 1;
            return line;
        }
        if (self.at > 0 && self.have > self.at)
            memmove(self.text, self.text + self.at, self.have - self.at);
        self.have -= self.at;
        self.at = 0;
        searched = self.have;
        if (self.have == self.room) {
            self.room = self.room ? self.room * 2 : 4096;
            if (self.room > WIRE_LINE_MAX)
                stop(WIRE_TOO_LARGE, "a request has more than %d bytes", WIRE_LINE_MAX);
            self.text = must(mem_realloc(self.text, self.room));
        }
        ssize_t n = read(WIRE_SOCKET, self.text + self.have, self.room - self.have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return NULL;
        self.have += (size_t)n;
    }
}

bool link_read(struct arena *arena, struct json *ret)
{
    size_t n;
    const char *line = read_line(&n);
    if (!line)
        return false;
    struct err e = ERR_INIT;
    if (json_parse(arena, line, n, NULL, ret, &e) != ERR_OK)
        stop(e.code == ERR_OUT_OF_MEMORY ? WIRE_OUT_OF_MEMORY : WIRE_BAD_REQUEST, "%s", e.message);
    return true;
}

void link_send(struct strb *text)
{
    strb_addc(text, '\n');
    if (text->failed)
        stop_oom();
    if (text->len > WIRE_LINE_MAX)
        stop(WIRE_TOO_LARGE, "the description of the file has more than %d bytes", WIRE_LINE_MAX);
    write_all(text->data, text->len);
    strb_reset(text);
}

/* A line of the flow of slabs: the slab's number, and the bytes if ret_bytes is given. */
static int read_flow(const char *name, int64_t *ret_bytes)
{
    _cleanup_arena_ struct arena *arena = must(arena_new(0));
    struct json line;
    if (!link_read(arena, &line))
        _exit(0); /* the daemon has given up */
    struct err e = ERR_INIT;
    int64_t slab = 0;
    if (json_get_i64(json_member(line, name), 0, (int64_t)self.count - 1, &slab, &e) != ERR_OK ||
        (ret_bytes &&
         json_get_i64(json_member(line, "bytes"), 1, (int64_t)self.size, ret_bytes, &e) != ERR_OK))
        stop(WIRE_BAD_REQUEST, "a line about a slab was expected: %s", e.message);
    return (int)slab;
}

static void wait_free(void)
{
    int slab = read_flow("free", NULL);
    if (self.free >> slab & 1)
        stop(WIRE_BAD_REQUEST, "slab %d was free already", slab);
    self.free |= 1ull << slab;
}

unsigned char *link_slab(void)
{
    if (self.held < 0) {
        while (!self.free)
            wait_free();
        self.held = __builtin_ctzll(self.free);
        self.free &= ~(1ull << self.held);
    }
    return self.slabs + (size_t)self.held * self.size;
}

void link_filled(size_t n)
{
    char line[64];
    int length = snprintf(line, sizeof line, "{\"slab\":%d,\"bytes\":%zu}\n", self.held, n);
    write_all(line, (size_t)length);
    self.held = -1;
}

void link_done(void)
{
    while (__builtin_popcountll(self.free) < (int)self.count)
        wait_free();
    static const char line[] = "{\"done\":true}\n";
    write_all(line, sizeof line - 1);
}

const unsigned char *link_pull(size_t *ret_n)
{
    link_taken();
    int64_t n = 0;
    self.held = read_flow("slab", &n);
    *ret_n = (size_t)n;
    return self.slabs + (size_t)self.held * self.size;
}

void link_taken(void)
{
    if (self.held < 0)
        return;
    char line[32];
    int length = snprintf(line, sizeof line, "{\"free\":%d}\n", self.held);
    write_all(line, (size_t)length);
    self.held = -1;
}
