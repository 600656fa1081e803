/* Whether the operator's folders of files can be used, and the program that opens what lies in
 * them.
 *
 * Everything is tried rather than guessed: a file is made in a folder, and arrayd-file is started
 * up to where it would look at its file (this program's own). What a unit or a container forbids
 * shows only where the doctor runs within it. */
#include "server/commands/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/config/config.h"
#include "server/files/files.h"
#include "server/files/folders.h"
#include "server/files/process.h"

#define GIB       ((double)(1 << 30))
#define TEXT_SIZE 1400

/* --- the program --- */

static enum err_code start(const struct config *c, const char *program, bool unsandboxed,
                           struct err *e)
{
    struct file_process *p;
    struct process_spec spec = {.program = program,
                                .file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                                .unsandboxed = unsandboxed,
                                .memory = c->file_memory,
                                .cpu = c->file_time,
                                .silence = c->file_timeout,
                                .slab = (size_t)c->file_slab & ~(size_t)4095,
                                .slabs = (int)c->file_slabs,
                                .threads = 1};
    enum err_code code = process_start(&spec, &p, e);
    if (code == ERR_OK)
        process_end(p);
    if (spec.file >= 0)
        close(spec.file);
    return code;
}

static void look_at_reader(struct doctor *d, const struct config *c)
{
    /* Without folders files are still sent and received. */
    const enum finding unfit = c->files.n ? FINDING_FAIL : FINDING_WARN;
    _cleanup_free_ char *program = NULL;
    struct err e = ERR_INIT, again = ERR_INIT;
    char text[TEXT_SIZE];
    if (files_find_program(c, &program, &e) != ERR_OK) {
        doctor_say(d, unfit, "file-reader", e.message, "");
        return;
    }
    if (!program) {
        doctor_say(d, c->files.n ? FINDING_FAIL : FINDING_OK, "file-reader",
                   c->files.n ? "arrayd-file, which opens files, is not there"
                              : "arrayd-file is not there: files other than .npy are not opened",
                   "install it beside arrayd (it is built where libnetcdf, libhdf5, libzip, "
                   "libtiff and libseccomp are found), or say where it is: file-reader");
        return;
    }
    if (start(c, program, false, &e) == ERR_OK) {
        snprintf(text, sizeof text, "%s opens files, confined by Landlock and seccomp", program);
        doctor_say(d, FINDING_OK, "file-reader", text, "");
    } else if (c->unsandboxed_files && start(c, program, true, &again) == ERR_OK) {
        snprintf(text, sizeof text, "%s opens files and is not confined: %s", program, e.message);
        doctor_say(d, FINDING_WARN, "file-reader", text,
                   "a file that attacks a library may do what the daemon's user may: see "
                   "docs/files.md for what the kernel, unit or container has to allow");
    } else {
        snprintf(text, sizeof text, "%s cannot be used: %s", program, e.message);
        doctor_say(
            d, unfit, "file-reader", text,
            e.code != ERR_LIBRARY_MISSING
                ? "run it by itself: the loader says which library it does not find"
                : "Landlock needs Linux 5.13, to be among the modules that the kernel starts "
                  "(lsm=), and a unit or container that lets its system calls through; "
                  "unsandboxed-files does without");
    }
}

/* --- the folders --- */

/* As paths are opened; 0 or errno. */
static int try_path(int folder)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    const int fd = (int)syscall(SYS_openat2, folder, ".", &how, sizeof how);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* Who the folder is of, for those who have to change it. */
static void say_owner(int folder, char *out, size_t n)
{
    struct stat st;
    *out = '\0';
    if (fstat(folder, &st) == 0)
        snprintf(out, n, " (user %u of group %u; the folder is of user %u and group %u, mode %04o)",
                 (unsigned)geteuid(), (unsigned)getegid(), (unsigned)st.st_uid, (unsigned)st.st_gid,
                 (unsigned)st.st_mode & 07777);
}

/* Of those that are exported: they are made with all rights but these. */
static mode_t mask_of_files(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return mask;
}

static const char *advice_of(int number, bool writing)
{
    switch (number) {
    case ENOSYS:
        return "it needs Linux 5.6, and a unit without RestrictSUIDSGID=";
    case EROFS:
        return "add ReadWritePaths= to the unit (docs/files.md), mount it for writing, or say :ro "
               "after it";
    case ENOSPC:
    case EDQUOT:
        return "free space on that file system";
    default:
        return writing ? "let this user or one of its groups (SupplementaryGroups= of the unit) "
                         "write there, or say :ro after it"
                       : "let this user or one of its groups (SupplementaryGroups= of the unit) "
                         "read it";
    }
}

static void look_at_folder(struct doctor *d, const char *option, const struct folder *f)
{
    char text[TEXT_SIZE], owner[160], itself[32];
    struct statvfs fs;
    int number = try_path(f->fd);
    bool writing = false;
    snprintf(itself, sizeof itself, "/proc/self/fd/%d", f->fd);
    if (!number && faccessat(f->fd, ".", R_OK | X_OK, 0) != 0)
        number = errno;
    if (!number && !f->read_only) {
        number = doctor_try_write(itself);
        writing = true;
    }
    if (number) {
        say_owner(f->fd, owner, sizeof owner);
        snprintf(text, sizeof text, "%.800s cannot be %s: %s%s", option,
                 writing ? "written to" : "read", strerror(number),
                 number == EACCES || number == EPERM ? owner : "");
        doctor_say(d, FINDING_FAIL, "files", text, advice_of(number, writing));
        return;
    }
    const mode_t mask = mask_of_files();
    int n = snprintf(text, sizeof text, "%.800s can be read%s", option,
                     f->read_only ? "" : " and written to");
    if (!f->read_only && fstatvfs(f->fd, &fs) == 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %.1f GiB free",
                      (double)fs.f_bavail * (double)fs.f_frsize / GIB);
    if (!f->read_only && (mask & 0444) != 0)
        snprintf(text + n, sizeof text - (size_t)n, "; new files are 0%03o (umask %03o)",
                 0666 & ~(unsigned)mask, (unsigned)mask);
    doctor_say(d, FINDING_OK, "files", text, "");
}

/* Files that are sent and received lie there as a whole. */
static void look_at_spool(struct doctor *d, const struct config *c)
{
    char text[TEXT_SIZE];
    struct statvfs fs;
    const int number = doctor_try_write(c->file_spool);
    if (number) {
        snprintf(text, sizeof text, "%.800s: %s", c->file_spool, strerror(number));
        doctor_say(d, FINDING_WARN, "file-spool", text,
                   "name a folder that this user can write to: files cannot be sent or received");
        return;
    }
    if (statvfs(c->file_spool, &fs) != 0)
        return;
    const double all = (double)fs.f_blocks * (double)fs.f_frsize;
    const bool small = all < (double)c->max_request_memory;
    snprintf(text, sizeof text, "%.800s has %.2f GiB; a file that is sent or received may be %.2f",
             c->file_spool, all / GIB, (double)c->max_request_memory / GIB);
    doctor_say(d, small ? FINDING_WARN : FINDING_OK, "file-spool", text,
               small ? "enlarge it (a container's --shm-size), name another folder, or lower "
                       "max-request-memory"
                     : "");
}

void doctor_files(struct doctor *d, const struct config *c)
{
    struct folders *f;
    struct err e = ERR_INIT;
    look_at_reader(d, c);
    look_at_spool(d, c);
    if (folders_open(&c->files, c->accounts, &f, &e) != ERR_OK) {
        doctor_say(d, FINDING_FAIL, "files", e.message,
                   "the daemon does not start with it: make the folder, let this user reach it, or "
                   "leave it out");
        return;
    }
    for (size_t i = 0; i < folders_count(f); i++)
        look_at_folder(d, c->files.items[i], folders_at(f, i));
    folders_free(f);
}
