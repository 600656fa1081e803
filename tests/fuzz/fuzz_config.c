/* Configuration files: whatever is in one, it is read or refused with a sentence, and what is read
 * is within what the table of settings allows. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/config/config.h"
#include "tests/fuzz/fuzz.h"

static void is_finite(void *user, const char *name, double value)
{
    (void)user;
    FUZZ_CHECK(*name && isfinite(value) && value >= 0);
}

/* The file, whose path is one of this process. */
static int put(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("config", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
    FUZZ_CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config c;
    struct err e = ERR_INIT;
    enum config_action action;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", put(data, size));
    char *const argv[] = {(char *)"arrayd", (char *)"--config", path, NULL};
    enum err_code err = config_load(3, argv, &c, &action, &e);
    FUZZ_CHECK(err ? err == ERR_BAD_FIELD && *e.message : action == CONFIG_RUN);
    if (!err) {
        FUZZ_CHECK(c.listen.n > 0 && c.backend && c.max_connections > 0);
        c.each_limit(&c, is_finite, NULL);
        config_free(&c);
    }
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
