/* The driver itself, its devices and their contexts, and the names of errors. Devices of
 * compute capability 9.0 unless told otherwise. */
#include "tests/fake/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int code;
    const char *name;
} errors[] = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {4, "CUDA_ERROR_DEINITIALIZED"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {218, "CUDA_ERROR_INVALID_PTX"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {710, "CUDA_ERROR_ASSERT"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"},
    {718, "CUDA_ERROR_INVALID_PC"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {800, "CUDA_ERROR_NOT_PERMITTED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
    {907, "CUDA_ERROR_CAPTURED_EVENT"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

EXPORT CUresult cuGetErrorName(CUresult code, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *name = errors[i].name;
            return CUDA_SUCCESS;
        }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    const char *given = getenv("ARRAYD_FAKE_DRIVER");
    *version = given && *given ? atoi(given) : 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned flags)
{
    int r = fake_enter("cuInit", 0, NULL);
    if (r)
        return r;
    if (flags)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (fake.n_devices < 1)
        return fake_leave(CUDA_ERROR_NO_DEVICE);
    fake.initialised = true;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetCount(int *n)
{
    int r = fake_enter("cuDeviceGetCount", NEEDS_INIT, NULL);
    if (r)
        return r;
    *n = fake.n_devices;
    return fake_leave(CUDA_SUCCESS);
}

static bool is_device(int d)
{
    return d >= 0 && d < fake.n_devices;
}

static bool are_peers(int a, int b)
{
    const char *text = getenv("ARRAYD_FAKE_PEERS");
    int x, y;
    if (text && sscanf(text, "%d-%d", &x, &y) == 2)
        return a != b && !((a == x && b == y) || (a == y && b == x));
    return a != b && (!text || strcmp(text, "0") != 0);
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *ret, int attribute, CUdevice device, CUdevice peer)
{
    int r = fake_enter("cuDeviceGetP2PAttribute", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!ret || attribute != CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_device(device) || !is_device(peer) || device == peer)
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    const char *text = getenv("ARRAYD_FAKE_PEERS");
    *ret = are_peers(device, peer) && !(text && strcmp(text, "pcie") == 0);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceCanAccessPeer(int *ret, CUdevice device, CUdevice peer)
{
    int r = fake_enter("cuDeviceCanAccessPeer", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!ret)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_device(device) || !is_device(peer))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    *ret = are_peers(device, peer);
    return fake_leave(CUDA_SUCCESS);
}

unsigned devices_named(const CUmemAccessDesc *who, size_t n)
{
    unsigned devices = 0;
    for (size_t i = 0; i < n && who; i++) {
        if (who[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(who[i].location.id) ||
            who[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return 0;
        devices |= 1u << who[i].location.id;
    }
    return devices;
}

bool devices_reach(unsigned devices, int owner)
{
    for (int i = 0; i < fake.n_devices; i++)
        if (devices >> i & 1 && i != owner && !are_peers(i, owner))
            return false;
    return true;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    int r = fake_enter("cuDeviceGet", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_device(ordinal))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *name, int n, CUdevice device)
{
    int r = fake_enter("cuDeviceGetName", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_device(device) || n < 1)
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)n, "Fake GPU %d%s", device,
             getenv("ARRAYD_FAKE_MIG") ? " MIG 1g.10gb" : "");
    return fake_leave(CUDA_SUCCESS);
}

static int shared_asked(CUdevice device)
{
    const char *last = getenv("ARRAYD_FAKE_SHARED");
    return last && device == fake.n_devices - 1 ? atoi(last) : FAKE_SHARED_ASKED;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    int r = fake_enter("cuDeviceGetAttribute", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_device(device))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = fake.arch[device] / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = fake.arch[device] % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = shared_asked(device);
        break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = vmm_is_there();
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = 0;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = device + 1;
        break;
    default:
        fake_warn("cuDeviceGetAttribute: attribute %d is not one of the fake's", attribute);
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return fake_leave(CUDA_SUCCESS);
}

/* The same in every process. */
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    int r = fake_enter("cuDeviceGetUuid", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_device(device))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    memcpy(uuid->bytes, "arrayd's fake \xff", 15);
    uuid->bytes[15] = (unsigned char)device;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    int r = fake_enter("cuDeviceTotalMem", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_device(device))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    *bytes = fake.memory;
    return fake_leave(CUDA_SUCCESS);
}

/* A context once made stays: its streams' thread and a program's handles may still name it. */
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    int r = fake_enter("cuDevicePrimaryCtxRetain", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_device(device))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    struct CUctx_st **c = &fake.devices[device].context;
    if (!*c) {
        *c = fake_alloc(sizeof **c);
        (*c)->device = device;
    }
    (*c)->refs++;
    fake.live[FAKE_CONTEXTS]++;
    *context = *c;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    int failure = CUDA_SUCCESS;
    int r = fake_enter("cuDevicePrimaryCtxRelease", NEEDS_INIT, &failure);
    if (r)
        return r;
    struct CUctx_st *c = is_device(device) ? fake.devices[device].context : NULL;
    if (!c || !c->refs)
        return fake_leave(c ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_DEVICE);
    c->refs--;
    fake.live[FAKE_CONTEXTS]--;
    return fake_leave(failure);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    int r = fake_enter("cuCtxSetCurrent", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (context && !context->refs)
        return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
    fake_current = context;
    return fake_leave(CUDA_SUCCESS);
}
