/* The list as a file: one line each. It is read at the start, and again whenever something is about
 * to be refused, or to run alone, and the file is not the one last read or written; so an edited
 * file takes effect at once, and work of which nothing is known costs one look at a counter. It is
 * rewritten under a temporary name; other processes that share the folder read it when they start
 * or refuse something themselves. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "compute/base/lock.h"
#include "compute/culprit/culprit_int.h"

#define TEMPORARY ".tmp-" FAULTED_FILE
#define DATE      "%Y-%m-%dT%H:%M:%SZ"
#define VERSION   "# arrayd "
#define HEADING                                                                                    \
    "# Kernels that were running on a device when it faulted: state, time, key, form, reason. A\n" \
    "# \"refused\" kernel is not run again; a \"suspect\", or a \"part\" of a refused plan, runs " \
    "alone.\n"                                                                                     \
    "# A \"strike\" is a user whose work it was: state, time, name. A line, or the file, may be\n" \
    "# deleted at any time.\n"

const char *culprit_state_name(enum culprit_state state)
{
    static const char *const names[] = {
        [CULPRIT_SUSPECT] = "suspect", [CULPRIT_PART] = "part", [CULPRIT_REFUSED] = "refused"};
    return names[state];
}

void culprits_date(time_t t, char ret[CULPRITS_DATE])
{
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(ret, CULPRITS_DATE, DATE, &tm);
}

static bool read_date(const char *text, time_t *ret)
{
    struct tm tm = {0};
    if (!strptime(text, DATE, &tm))
        return false;
    *ret = timegm(&tm);
    return true;
}

static bool read_entry(const char *line, struct culprit_entry *ret)
{
    char state[16], date[CULPRITS_DATE], key[CODE_KEY_TEXT];
    *ret = (struct culprit_entry){0};
    if (sscanf(line, "%15s %23s %64s %23s %159[^\n]", state, date, key, ret->form, ret->why) < 4 ||
        !code_key_read(key, &ret->key) || !read_date(date, &ret->at))
        return false;
    for (int i = 0; i <= CULPRIT_REFUSED; i++)
        if (!strcmp(state, culprit_state_name((enum culprit_state)i))) {
            ret->state = (enum culprit_state)i;
            return true;
        }
    return false;
}

static bool read_strike(const char *line, struct culprit_strike *ret)
{
    char date[CULPRITS_DATE];
    *ret = (struct culprit_strike){0};
    return sscanf(line, "strike %23s %71s", date, ret->who) == 2 && read_date(date, &ret->at);
}

/* Keys say of which version they are; of users another version's faults say nothing. */
static void read_lines(struct culprits *c, FILE *f)
{
    lock_held(&c->lock);
    char line[512];
    bool same = false;
    struct culprit_entry e;
    struct culprit_strike s;
    while (fgets(line, sizeof line, f)) {
        if (!strncmp(line, VERSION, sizeof VERSION - 1))
            same = !strcmp(line + sizeof VERSION - 1, ARRAYD_VERSION "\n");
        else if (read_entry(line, &e))
            culprits_add(c, &e);
        else if (same && read_strike(line, &s))
            culprits_add_strike(c, &s);
    }
}

static bool is_same_file(const struct culprits *c, const struct stat *st)
{
    lock_held(&c->lock);
    return st->st_size == c->size && st->st_mtim.tv_sec == c->modified.tv_sec &&
           st->st_mtim.tv_nsec == c->modified.tv_nsec;
}

static void remember_file(struct culprits *c, const struct stat *st)
{
    lock_held(&c->lock);
    c->size = st->st_size;
    c->modified = st->st_mtim;
}

/* A file that did not exist and does not now changes nothing: the list may hold more than could be
 * written. One that cannot be read counts as empty. */
void culprits_read(struct culprits *c)
{
    lock_held(&c->lock);
    struct stat st = {0};
    int fd = c->dir < 0
                 ? -1
                 : openat(c->dir, FAULTED_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (c->dir < 0 || (fd >= 0 && fstat(fd, &st) != 0) || is_same_file(c, &st)) {
        if (fd >= 0)
            close(fd);
        return;
    }
    remember_file(c, &st);
    c->m->n = c->m->n_strikes = 0;
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (f && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
        read_lines(c, f);
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    culprits_counted(c);
}

static void put_entry(FILE *f, const struct culprit_entry *e)
{
    char date[CULPRITS_DATE], key[CODE_KEY_TEXT];
    culprits_date(e->at, date);
    code_key_text(&e->key, key);
    fprintf(f, "%s %s %s %s %s\n", culprit_state_name(e->state), date, key, e->form, e->why);
}

static void put_lines(FILE *f, const struct culprits_memory *m)
{
    char date[CULPRITS_DATE];
    fputs(VERSION ARRAYD_VERSION "\n" HEADING, f);
    for (int i = 0; i < m->n; i++)
        put_entry(f, &m->entries[i]);
    for (int i = 0; i < m->n_strikes; i++) {
        culprits_date(m->strikes[i].at, date);
        fprintf(f, "strike %s %s\n", date, m->strikes[i].who);
    }
}

static bool write_file(struct culprits *c)
{
    lock_held(&c->lock);
    struct stat st;
    unlinkat(c->dir, TEMPORARY, 0); /* left by a process that ended while writing */
    int fd = openat(c->dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    put_lines(f, c->m);
    /* whatever made the device fault may crash the machine too */
    bool ok = fflush(f) == 0 && fsync(fd) == 0 && fstat(fd, &st) == 0;
    ok = fclose(f) == 0 && ok && renameat(c->dir, TEMPORARY, c->dir, FAULTED_FILE) == 0;
    if (ok) {
        fsync(c->dir); /* for the name; if that fails the file is still there */
        remember_file(c, &st);
    } else {
        unlinkat(c->dir, TEMPORARY, 0);
    }
    return ok;
}

bool culprits_write(struct culprits *c)
{
    lock_held(&c->lock);
    const bool written = c->dir >= 0 && write_file(c);
    c->m->unsaved = !written;
    return written || c->kept;
}
