/* What arrayd does not call, but the programs that it shares memory with do. */
#include "tests/fake/fake.h"

EXPORT CUresult cuCtxSynchronize(void);
EXPORT CUresult cuCtxSynchronize(void)
{
    int r = fake_enter("cuCtxSynchronize", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    stream_wait_all();
    return fake_leave(fake.sticky);
}

static _Thread_local struct CUctx_st *below[8]; /* the thread's current context */
static _Thread_local int n_below;

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    int r = fake_enter("cuCtxPushCurrent", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!context || !context->refs || n_below == sizeof below / sizeof *below)
        return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
    below[n_below++] = fake_current;
    fake_current = context;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context);
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    int r = fake_enter("cuCtxPopCurrent", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!n_below)
        return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (context)
        *context = fake_current;
    fake_current = below[--n_below];
    return fake_leave(CUDA_SUCCESS);
}

/* Back when it is done. */
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n);
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n)
{
    int r = cuMemcpyHtoDAsync(to, from, n, NULL);
    return r ? r : cuCtxSynchronize();
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n);
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n)
{
    int r = cuMemcpyDtoHAsync(to, from, n, NULL);
    return r ? r : cuCtxSynchronize();
}
