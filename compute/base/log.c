/* A line is assembled in one buffer and written with one write(2), so that lines of several threads
 * never mix. Every line is complete: a long value is shortened and ends with an ellipsis, and a
 * member that does not fit is left out. Invalid UTF-8 is replaced. */
#include "compute/base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/strb.h"

static _Atomic int threshold = LOG_INFO;
static _Atomic bool as_json;

#define VALUE_MOST 1024 /* bytes of a value, as written */
#define ELLIPSIS   "\xe2\x80\xa6"

struct line {
    size_t len;
    bool full; /* something did not fit */
    char text[16384];
};

static void put(struct line *l, const char *s, size_t n)
{
    l->full |= n > sizeof l->text - 2 - l->len; /* keeps space for the end of the line */
    if (l->full)
        return;
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

static void puts_(struct line *l, const char *s)
{
    put(l, s, strlen(s));
}

static void put_quoted(struct line *l, const char *s)
{
    puts_(l, "\"");
    for (size_t most = l->len + VALUE_MOST, n; *s; s += n ? n : 1) {
        unsigned char c = (unsigned char)*s;
        char e[8] = {'\\', (char)c};
        n = utf8_length(s, 4);
        if (l->len + 6 + strlen(ELLIPSIS) > most) { /* 6: the longest escape */
            puts_(l, ELLIPSIS);
            break;
        }
        if (n == 0)
            puts_(l, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\')
            put(l, e, 2);
        else if (c < 0x20 || c == 0x7f)
            put(l, e, (size_t)snprintf(e, sizeof e, "\\u%04x", c));
        else
            put(l, s, n);
    }
    puts_(l, "\"");
}

static bool plain(const char *s)
{
    if (!*s || strlen(s) > VALUE_MOST - 16)
        return false;
    for (; *s; s += utf8_length(s, 4))
        if ((unsigned char)*s <= ' ' || *s == '"' || *s == '\\' || *s == '=' || *s == 0x7f ||
            utf8_length(s, 4) == 0)
            return false;
    return true;
}

void log_open_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", O_RDWR);
}

void log_set_level(enum log_level level)
{
    atomic_store(&threshold, (int)level);
}

void log_set_json(bool on)
{
    atomic_store(&as_json, on);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

/* JOURNAL_STREAM is inherited by programs whose output goes elsewhere: so its numbers count. */
static bool find_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat st;
    if (!stream || fstat(STDERR_FILENO, &st) != 0)
        return false;
    snprintf(own, sizeof own, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return !strcmp(stream, own);
}

const char *log_prefix(enum log_level level)
{
    static const char *const prefixes[] = {"<3>", "<4>", "<6>", "<7>"};
    static _Atomic int journal; /* 0: unknown, 1: no, 2: yes */
    int known = atomic_load_explicit(&journal, memory_order_relaxed);
    if (!known) {
        known = 1 + find_journal();
        atomic_store_explicit(&journal, known, memory_order_relaxed);
    }
    return known == 2 ? prefixes[level] : "";
}

void log_event(enum log_level level, const char *message, ...)
{
    if (!log_enabled(level))
        return;
    static const char *const names[] = {"error", "warn", "info", "debug"};
    struct line l;
    l.len = 0;
    l.full = false;
    char stamp[CLOCK_DATE_SIZE];
    clock_date_text(clock_date_us(), stamp);

    bool json = atomic_load(&as_json);
    puts_(&l, log_prefix(level));
    if (json) {
        puts_(&l, "{\"time\":");
        put_quoted(&l, stamp);
        puts_(&l, ",\"level\":");
        put_quoted(&l, names[level]);
        puts_(&l, ",\"message\":");
        put_quoted(&l, message);
    } else {
        puts_(&l, stamp);
        puts_(&l, " ");
        puts_(&l, names[level]);
        puts_(&l, " ");
        puts_(&l, message);
    }
    va_list ap;
    va_start(ap, message);
    for (const char *key = va_arg(ap, const char *); key; key = va_arg(ap, const char *)) {
        const char *value = va_arg(ap, const char *);
        if (!value)
            value = "";
        size_t before = l.len;
        puts_(&l, json ? "," : " ");
        if (json)
            put_quoted(&l, key);
        else
            puts_(&l, key);
        puts_(&l, json ? ":" : "=");
        if (!json && plain(value))
            puts_(&l, value);
        else
            put_quoted(&l, value);
        if (l.full)
            l.len = before;
        l.full = false;
    }
    va_end(ap);
    if (json)
        l.text[l.len++] = '}';
    l.text[l.len++] = '\n';
    ssize_t written = write(STDERR_FILENO, l.text, l.len);
    (void)written; /* nowhere left to complain */
}
