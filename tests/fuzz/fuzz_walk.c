/* Valid random expressions on the interpreter against a plain tree walk: what tests/backend's
 * property test does with random numbers, with the input in their place, so that coverage of the
 * compiler and of the interpreter leads the way. */
#include <unistd.h>

#include "tests/backend/property.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world common, w;
    struct err e = ERR_INIT;
    if (!common.g) {
        struct engine_config config = ENGINE_CONFIG_DEFAULT;
        config.backend = "cpu";
        config.device.threads = 1;
        config.device.inline_elements = INT32_MAX; /* what is done is done when the call returns */
        FUZZ_CHECK(engine_open(&config, &common.g, &e) == ERR_OK);
        FUZZ_CHECK(engine_stream_new(common.g, 0, &common.s, &e) == ERR_OK);
        FUZZ_CHECK((common.account = account_new(0)) != NULL);
    }
    property_tell(data, size);
    property_submit(&w, &common, 1);
    FUZZ_CHECK(property_finish(&w));
    for (int i = 0; i < 50000 && engine_jobs_in_flight(common.g) > 0; i++)
        usleep(100); /* what was fetched is let go a moment later */
    FUZZ_CHECK(engine_bytes_in_use(common.g) == 0);
    return 0;
}
