/* What the machine, or the container, allows a process.
 *
 * Everything is read from the kernel's files, never from tools: our containers have none. What
 * cannot be read is left out, not guessed. */
#include "server/commands/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "server/config/config.h"

#define GIB          ((double)(1 << 30))
#define CGROUP_DEPTH 16
#define PATH_SIZE    1024

static bool join(char out[PATH_SIZE], const char *root, const char *path)
{
    int n = snprintf(out, PATH_SIZE, "%s%s", root, path);
    return n > 0 && n < PATH_SIZE;
}

static bool exists(const char *root, const char *path)
{
    char full[PATH_SIZE];
    return join(full, root, path) && access(full, F_OK) == 0;
}

/* The first line of a file, cut to the buffer; false: it cannot be read. */
static bool first_line(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(out, (int)n, f);
    if (f)
        fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* --- GPUs --- */

static bool is_gpu_file(const char *name)
{
    if (strncmp(name, "nvidia", 6) != 0)
        return false;
    const char *rest = name + 6;
    return !strcmp(rest, "ctl") || !strcmp(rest, "-uvm") ||
           (*rest && strspn(rest, "0123456789") == strlen(rest));
}

/* A display controller by NVIDIA on the PCI bus. */
static bool gpu_on_the_bus(const char *root)
{
    char folder[PATH_SIZE], path[PATH_SIZE + 300], vendor[32], class[32];
    DIR *d = join(folder, root, "/sys/bus/pci/devices") ? opendir(folder) : NULL;
    bool found = false;
    for (struct dirent *f = d ? readdir(d) : NULL; f && !found; f = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s/vendor", folder, f->d_name);
        if (!first_line(path, vendor, sizeof vendor) || strcmp(vendor, "0x10de") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s/class", folder, f->d_name);
        found = first_line(path, class, sizeof class) && !strncmp(class, "0x03", 4);
    }
    if (d)
        closedir(d);
    return found;
}

bool doctor_gpu_expected(const char *root)
{
    const char *named = getenv("ARRAYD_LIBCUDA"), *visible = getenv("NVIDIA_VISIBLE_DEVICES");
    return exists(root, "/dev/nvidiactl") || exists(root, "/proc/driver/nvidia") ||
           (named && *named) || (visible && *visible && strcmp(visible, "void") != 0) ||
           gpu_on_the_bus(root);
}

static const char *container_kind(const char *root)
{
    const char *told = getenv("container");
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return "a Kubernetes pod";
    if (exists(root, "/.dockerenv"))
        return "a Docker container";
    if (exists(root, "/run/.containerenv"))
        return "a Podman container";
    return told && *told ? "a container" : NULL;
}

/* Adds to `out` the device files that this process may not use; returns how many exist. */
static int look_at_files(const char *root, struct strb *out)
{
    char folder[PATH_SIZE], path[PATH_SIZE + 300];
    DIR *d = join(folder, root, "/dev") ? opendir(folder) : NULL;
    int n = 0;
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        if (!is_gpu_file(f->d_name))
            continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        if (access(path, R_OK | W_OK) != 0)
            strb_addf(out, "%s/dev/%s", out->len ? ", " : "", f->d_name);
    }
    if (d)
        closedir(d);
    return n;
}

void doctor_devices(struct doctor *d, const char *root)
{
    const char *kind = container_kind(root);
    _cleanup_strb_ struct strb closed = {0};
    int n = look_at_files(root, &closed);
    char text[256];
    snprintf(text, sizeof text, "this is %s", kind ? kind : "no container");
    doctor_say(d, FINDING_OK, "container", text, "");
    if (closed.len) {
        doctor_say(d, d->without_gpu, "devices", closed.failed ? "unusable" : closed.data,
                   "this user cannot read and write them: add the user to the group that can (ls "
                   "-l /dev/nvidia*), or start the container with --gpus all");
    } else if (n) {
        snprintf(text, sizeof text, "%d NVIDIA device files, readable and writable", n);
        doctor_say(d, FINDING_OK, "devices", text, "");
    } else {
        const char *advice =
            d->without_gpu == FINDING_OK ? ""
            : kind ? "start it with --gpus all (Docker, Podman with the NVIDIA container "
                     "toolkit), or ask for nvidia.com/gpu (Kubernetes)"
                   : "install the NVIDIA driver, and nvidia-modprobe, which creates the files";
        doctor_say(d, d->without_gpu, "devices", "there are no files /dev/nvidia*", advice);
    }
}

/* --- limits --- */

void doctor_limits(struct doctor *d, const struct config *c)
{
    struct rlimit r;
    char text[256];
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        const int64_t most = r.rlim_max < INT64_MAX ? (int64_t)r.rlim_max : INT64_MAX;
        const int64_t need = config_files(c, most);
        const bool enough = most >= need;
        snprintf(text, sizeof text, "%lld descriptors at most, %lld for max-connections = %lld",
                 (long long)most, (long long)need, (long long)c->max_connections);
        doctor_say(d, enough ? FINDING_OK : FINDING_WARN, "descriptors", text,
                   enough ? ""
                          : "raise the limit (LimitNOFILE= of the unit, --ulimit nofile= of the "
                            "container, ulimit -Hn) or lower max-connections");
    }
    if (d->without_gpu == FINDING_OK || getrlimit(RLIMIT_MEMLOCK, &r) != 0)
        return;
    if (r.rlim_max == RLIM_INFINITY)
        snprintf(text, sizeof text, "locked memory is not limited");
    else
        snprintf(text, sizeof text, "%.2f GiB of locked memory; slab-memory is %.2f GiB per device",
                 (double)r.rlim_max / GIB, (double)c->slab_memory / GIB);
    bool enough = r.rlim_max == RLIM_INFINITY || r.rlim_max >= (rlim_t)c->slab_memory;
    doctor_say(d, enough ? FINDING_OK : FINDING_WARN, "memlock", text,
               enough ? ""
                      : "most drivers ignore this limit; if the daemon cannot pin its slabs, set "
                        "LimitMEMLOCK=infinity or --ulimit memlock=-1");
}

/* The smallest memory.max from this process's group up to the root; -1: none. */
static double cgroup_limit(const char *root)
{
    char path[PATH_SIZE + 300], line[PATH_SIZE], group[PATH_SIZE], own[PATH_SIZE];
    double least = -1;
    if (!join(own, root, "/proc/self/cgroup"))
        return -1;
    if (!first_line(own, line, sizeof line) || strncmp(line, "0::", 3) != 0)
        strcpy(line, "0::/");
    snprintf(group, sizeof group, "%s", !strcmp(line + 3, "/") ? "" : line + 3);
    for (int i = 0; i < CGROUP_DEPTH; i++) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.max", root, group);
        if (first_line(path, line, sizeof line) && strcmp(line, "max") != 0 &&
            (least < 0 || strtod(line, NULL) < least))
            least = strtod(line, NULL);
        char *slash = strrchr(group, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/memory/memory.limit_in_bytes", root);
    if (least < 0 && first_line(path, line, sizeof line) && strtod(line, NULL) < 0x1p60)
        least = strtod(line, NULL);
    return least;
}

void doctor_memory(struct doctor *d, const struct config *c, const char *root)
{
    char text[256];
    double limit = cgroup_limit(root),
           host = (double)c->host_memory + (double)c->slab_memory + (double)c->total_request_memory;
    if (limit < 0) {
        doctor_say(d, FINDING_OK, "memory", "no control group limits memory", "");
        return;
    }
    bool enough = host <= limit;
    snprintf(text, sizeof text,
             "the control group allows %.2f GiB; host-memory, slab-memory and total-request-memory "
             "may take %.2f GiB",
             limit / GIB, host / GIB);
    doctor_say(d, enough ? FINDING_OK : FINDING_WARN, "memory", text,
               enough ? ""
                      : "lower host-memory, or raise the container's limit: the kernel kills the "
                        "daemon when it is exceeded");
}

/* The CPU backend's arrays that outlive the daemon are in shared memory. */
void doctor_huge_pages(struct doctor *d, const struct config *c, const char *root)
{
    static const char file[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    char path[PATH_SIZE], line[128], text[512];
    if (c->no_keeper || !c->keep_arrays || !join(path, root, file) ||
        !first_line(path, line, sizeof line))
        return;
    const bool small = strstr(line, "[never]") || strstr(line, "[deny]");
    snprintf(text, sizeof text,
             small
                 ? "shared memory gets none, so large new arrays on the CPU take longer at first: "
                   "%s says %s"
                 : "shared memory may have them: %s says %s",
             file, line);
    doctor_say(d, FINDING_OK, "huge-pages", text, "");
}

/* A bound larger than the one around it has no effect: requests would see the other's error. */
void doctor_request_memory(struct doctor *d, const struct config *c)
{
    const struct {
        const char *inner, *outer;
        int64_t least, most;
    } pairs[] = {
        {"max-request-memory", "request-memory", c->max_request_memory, c->request_memory},
        {"request-memory", "total-request-memory", c->request_memory, c->total_request_memory}};
    char text[256];
    for (size_t i = 0; i < 2; i++)
        if (pairs[i].least > pairs[i].most) {
            snprintf(text, sizeof text,
                     "%s (%lld bytes) is more than %s, of which it is a part (%lld bytes)",
                     pairs[i].inner, (long long)pairs[i].least, pairs[i].outer,
                     (long long)pairs[i].most);
            doctor_say(d, FINDING_WARN, "request memory", text,
                       "lower the first or raise the second");
        }
}

/* --- folders --- */

/* The nearest existing folder above `path`. */
static void existing_parent(const char *path, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s", path);
    while (access(out, F_OK) != 0) {
        char *slash = strrchr(out, '/');
        if (!slash) {
            strcpy(out, ".");
            return;
        }
        slash[slash == out] = '\0';
        if (!strcmp(out, "/"))
            return;
    }
}

int doctor_try_write(const char *folder)
{
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/.arrayd-doctor-XXXXXX", folder);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return errno;
    int why = write(fd, path, sizeof path) == (ssize_t)sizeof path ? 0 : errno ? errno : ENOSPC;
    close(fd);
    unlink(path);
    return why;
}

void doctor_folder(struct doctor *d, const char *what, const char *path, bool own,
                   enum finding unfit)
{
    char text[PATH_SIZE + 128], parent[PATH_SIZE];
    struct stat st;
    struct statvfs fs;
    existing_parent(path, parent);
    bool there = !strcmp(parent, path);
    if (there && stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        snprintf(text, sizeof text, "%s is not a folder", path);
        doctor_say(d, unfit, what, text, "choose another path, or move the file away");
        return;
    }
    int why = doctor_try_write(parent);
    if (why) {
        snprintf(text, sizeof text, "%s: %s", parent, strerror(why));
        doctor_say(d, unfit, what, text,
                   why == ENOSPC || why == EDQUOT
                       ? "free space on that file system"
                       : "make this user the owner (chown), or mount a volume there");
        return;
    }
    double left = statvfs(parent, &fs) == 0 ? (double)fs.f_bavail * (double)fs.f_frsize : 0;
    snprintf(text, sizeof text, "%s%s, %.1f GiB free", path,
             there ? " is writable" : " can be created", left / GIB);
    bool open = own && there && stat(path, &st) == 0 && (st.st_mode & 022);
    doctor_say(d, open ? FINDING_WARN : FINDING_OK, what, text,
               open ? "not used, because other users may write to it: chmod 0700" : "");
}
