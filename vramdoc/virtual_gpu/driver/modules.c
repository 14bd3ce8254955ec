/* Kernels compiled while the program runs. PyTorch's own (the jiterator: i0, lcm, complex reductions ...) are compiled by
 * the real NVRTC, loaded here, and do as little as every other kernel. Triton asks for a kernel's registers before it runs
 * one; nothing here knows them, so that is where it is stopped. */
#define _GNU_SOURCE
#include "device.h"

static const char module; /* every module, and every function in one: nothing about them is kept */

EXPORT int cuModuleLoadData(const void **loaded, const void *binary) {
    *loaded = &module;
    return binary ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuModuleLoadDataEx(const void **loaded, const void *binary, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(loaded, binary);
}
EXPORT int cuModuleGetFunction(const void **function, const void *loaded, const char *name) {
    (void)name;
    *function = loaded;
    return loaded ? SUCCESS : INVALID_HANDLE;
}
NOTHING_TO_DO(cuModuleUnload)
NOTHING_TO_DO(cuFuncSetAttribute)
NOTHING_TO_DO(cuFuncSetCacheConfig)
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int size, size_t shared) {
    (void)function, (void)size, (void)shared;
    *blocks = ASSUMED_OCCUPANCY;
    return SUCCESS;
}
EXPORT int cuLaunchKernel(const void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, Stream *stream, void **arguments,
                          void **extra) {
    LOCKED;
    (void)shared, (void)arguments, (void)extra;
    if (!function || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z) return INVALID_VALUE;
    note_work(stream, KERNEL_NODE);
    return SUCCESS;
}

#define TRITON "Triton's kernels, and with them torch.compile"
REFUSE(cuFuncGetAttribute, TRITON, NOT_SUPPORTED)
REFUSE(cuModuleLoad, TRITON, NOT_SUPPORTED)
REFUSE(cuCtxGetLimit, TRITON, NOT_SUPPORTED)
REFUSE(cuCtxSetLimit, TRITON, NOT_SUPPORTED)
REFUSE(cuOccupancyMaxActiveClusters, TRITON, NOT_SUPPORTED)
REFUSE(cuLaunchKernelEx, TRITON, NOT_SUPPORTED)
