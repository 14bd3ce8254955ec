/* What a device says about itself, versions, and the texts of errors. A figure that is not modelled is 0. */
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <string.h>

/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Shared memory in KiB. */
typedef struct {
    int capability, threads_per_sm, blocks_per_sm, shared_per_sm, shared_per_block_optin;
} Architecture;
static const Architecture architectures[] = {
    {60, 2048, 32, 64, 48},   {61, 2048, 32, 96, 48},   {70, 2048, 32, 96, 96},   {75, 1024, 16, 64, 64},
    {80, 2048, 32, 164, 163}, {86, 1536, 16, 100, 99},  {87, 1536, 16, 164, 163}, {89, 1536, 24, 100, 99},
    {90, 2048, 32, 228, 227}, {100, 2048, 32, 228, 227}, {103, 2048, 32, 228, 227}, {120, 1536, 24, 100, 99},
};
static const Architecture *architecture(void) {
    int capability = settings()->major * 10 + settings()->minor;
    const Architecture *best = &architectures[0];
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (architectures[i].capability <= capability) best = &architectures[i];
    return best;
}
#define SHARED_PER_BLOCK (48 * 1024)

/* ---- cudaDeviceProp: CUDA 13 dropped fields of the layout that CUDA 12 (cudaGetDeviceProperties_v2) has ------------- */
#if CUDART_VERSION >= 13000
#define ONLY_CUDA_12(fields)
#else
#define ONLY_CUDA_12(fields) fields
#endif
typedef struct {
    char name[256];
    unsigned char uuid[16];
    char luid[8];
    unsigned luid_device_node_mask;
    size_t total_global_mem, shared_mem_per_block;
    int regs_per_block, warp_size;
    size_t mem_pitch;
    int max_threads_per_block, max_threads_dim[3], max_grid_size[3];
    ONLY_CUDA_12(int clock_rate;)
    size_t total_const_mem;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    ONLY_CUDA_12(int device_overlap;)
    int multi_processor_count;
    ONLY_CUDA_12(int kernel_exec_timeout_enabled;)
    int integrated, can_map_host_memory;
    ONLY_CUDA_12(int compute_mode;)
    int max_texture_1d, max_texture_1d_mipmap;
    ONLY_CUDA_12(int max_texture_1d_linear;)
    int max_texture_2d[2], max_texture_2d_mipmap[2], max_texture_2d_linear[3], max_texture_2d_gather[2];
    int max_texture_3d[3], max_texture_3d_alt[3], max_texture_cubemap, max_texture_1d_layered[2], max_texture_2d_layered[3];
    int max_texture_cubemap_layered[2], max_surface_1d, max_surface_2d[2], max_surface_3d[3], max_surface_1d_layered[2];
    int max_surface_2d_layered[3], max_surface_cubemap, max_surface_cubemap_layered[2];
    size_t surface_alignment;
    int concurrent_kernels, ecc_enabled, pci_bus_id, pci_device_id, pci_domain_id, tcc_driver, async_engine_count;
    int unified_addressing;
    ONLY_CUDA_12(int memory_clock_rate;)
    int memory_bus_width, l2_cache_size, persisting_l2_cache_max_size, max_threads_per_multi_processor;
    int stream_priorities_supported, global_l1_cache_supported, local_l1_cache_supported;
    size_t shared_mem_per_multiprocessor;
    int regs_per_multiprocessor, managed_memory, is_multi_gpu_board, multi_gpu_board_group_id;
    int host_native_atomic_supported;
    ONLY_CUDA_12(int single_to_double_precision_perf_ratio;)
    int pageable_memory_access, concurrent_managed_access, compute_preemption_supported;
    int can_use_host_pointer_for_registered_mem, cooperative_launch;
    ONLY_CUDA_12(int cooperative_multi_device_launch;)
    size_t shared_mem_per_block_optin;
    int pageable_memory_access_uses_host_page_tables, direct_managed_mem_access_from_host, max_blocks_per_multi_processor;
    int access_policy_max_window_size;
    size_t reserved_shared_mem_per_block;
    int host_register_supported, sparse_cuda_array_supported, host_register_read_only_supported;
    int timeline_semaphore_interop_supported, memory_pools_supported, gpu_direct_rdma_supported;
    unsigned gpu_direct_rdma_flush_writes_options;
    int gpu_direct_rdma_writes_ordering;
    unsigned memory_pool_supported_handle_types;
    int deferred_mapping_cuda_array_supported, ipc_event_supported, cluster_launch, unified_function_pointers;
    int appendix[63];
} DeviceProperties;
/* The sizes that nvcc gives them; a field forgotten above does not compile. */
_Static_assert(sizeof(DeviceProperties) == (CUDART_VERSION >= 13000 ? 1008 : 1032), "cudaDeviceProp has another layout");

static int fill_properties(DeviceProperties *out, int ordinal) {
    const Settings *device = settings();
    const Architecture *arch = architecture();
    int index = physical_index(ordinal);
    if (index < 0) return fail(INVALID_DEVICE);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", device->name);
    device_uuid(out->uuid, index);
    out->total_global_mem = device->total;
    out->major = device->major;
    out->minor = device->minor;
    out->multi_processor_count = device->multiprocessors;
    out->shared_mem_per_block = SHARED_PER_BLOCK;
    out->shared_mem_per_block_optin = (size_t)arch->shared_per_block_optin << 10;
    out->shared_mem_per_multiprocessor = (size_t)arch->shared_per_sm << 10;
    out->reserved_shared_mem_per_block = device->major >= 8 ? 1024 : 0;
    out->max_threads_per_multi_processor = arch->threads_per_sm;
    out->max_blocks_per_multi_processor = arch->blocks_per_sm;
    out->regs_per_block = out->regs_per_multiprocessor = 65536;
    out->warp_size = 32;
    out->mem_pitch = 2147483647;
    out->total_const_mem = 65536;
    out->max_threads_per_block = out->max_threads_dim[0] = out->max_threads_dim[1] = 1024;
    out->max_threads_dim[2] = 64;
    out->max_grid_size[0] = 2147483647;
    out->max_grid_size[1] = out->max_grid_size[2] = 65535;
    out->texture_alignment = 512;
    out->pci_bus_id = index + 1;
    out->async_engine_count = 2;
    out->can_map_host_memory = out->concurrent_kernels = out->unified_addressing = 1;
    out->stream_priorities_supported = out->cooperative_launch = out->memory_pools_supported = 1;
    out->host_register_supported = 1;
    return SUCCESS;
}
#if CUDART_VERSION >= 13000
EXPORT int cudaGetDeviceProperties(DeviceProperties *out, int ordinal) { return fill_properties(out, ordinal); }
#else /* without the suffix it is CUDA 11's layout, which no supported torch asks for */
EXPORT int cudaGetDeviceProperties_v2(DeviceProperties *out, int ordinal) { return fill_properties(out, ordinal); }
#endif

/* ---- attributes: cudaDeviceAttr and CUdevice_attribute share their numbers ------------------------------------------ */
int device_attribute(int *value, int attribute, int ordinal, const char *caller) {
    static atomic_flag said[256];
    const Settings *device = settings();
    const Architecture *arch = architecture();
    int index = physical_index(ordinal);
    if (index < 0) return INVALID_DEVICE;
    switch (attribute) {
    case 1: /* MaxThreadsPerBlock */
    case 2: /* MaxBlockDimX, Y */
    case 3: *value = 1024; break;
    case 4: *value = 64; break; /* MaxBlockDimZ */
    case 5: *value = 2147483647; break; /* MaxGridDimX */
    case 6: /* MaxGridDimY, Z */
    case 7: *value = 65535; break;
    case 8: *value = SHARED_PER_BLOCK; break; /* MaxSharedMemoryPerBlock */
    case 9: *value = 65536; break; /* TotalConstantMemory */
    case 10: *value = 32; break; /* WarpSize */
    case 11: *value = 2147483647; break; /* MaxPitch */
    case 12: /* MaxRegistersPerBlock, PerMultiprocessor */
    case 82: *value = 65536; break;
    case 14: *value = 512; break; /* TextureAlignment */
    case 16: *value = device->multiprocessors; break; /* MultiProcessorCount */
    case 33: *value = index + 1; break; /* PciBusId */
    case 13: /* not modelled, as in the properties: ClockRate, MemoryClockRate, GlobalMemoryBusWidth, L2CacheSize */
    case 36:
    case 37:
    case 38:
    case 34: /* PciDeviceId, PciDomainId */
    case 50: *value = 0; break;
    case 39: *value = arch->threads_per_sm; break; /* MaxThreadsPerMultiProcessor */
    case 40: *value = 2; break; /* AsyncEngineCount */
    case 75: *value = device->major; break; /* ComputeCapabilityMajor, Minor */
    case 76: *value = device->minor; break;
    case 81: *value = arch->shared_per_sm << 10; break; /* MaxSharedMemoryPerMultiprocessor */
    case 97: *value = arch->shared_per_block_optin << 10; break; /* MaxSharedMemoryPerBlockOptin */
    case 106: *value = arch->blocks_per_sm; break; /* MaxBlocksPerMultiprocessor */
    case 111: *value = device->major >= 8 ? 1024 : 0; break; /* ReservedSharedMemoryPerBlock */
    case 120: *value = device->major >= 9; break; /* ClusterLaunch */
    case 15: /* GpuOverlap */
    case 19: /* CanMapHostMemory */
    case 31: /* ConcurrentKernels */
    case 41: /* UnifiedAddressing */
    case 78: /* StreamPrioritiesSupported */
    case 95: /* CooperativeLaunch */
    case 99: /* HostRegisterSupported */
    case 102: /* VirtualMemoryManagementSupported: expandable segments */
    case 115: *value = 1; break; /* MemoryPoolsSupported */
    case 17: /* KernelExecTimeout */
    case 18: /* Integrated */
    case 20: /* ComputeMode: default */
    case 32: /* EccEnabled */
    case 83: /* ManagedMemory */
    case 84: /* IsMultiGpuBoard */
    case 86: /* HostNativeAtomicSupported */
    case 88: /* PageableMemoryAccess */
    case 89: /* ConcurrentManagedAccess */
    case 91: /* CanUseHostPointerForRegisteredMem */
    case 92: /* CanUseStreamMemOps, as of the driver's numbering */
    case 96: /* CooperativeMultiDeviceLaunch */
    case 103: /* HandleTypePosixFileDescriptorSupported: memory is not shared between processes */
    case 110: /* GpuDirectRdmaWithCudaVmmSupported */
    case 116: /* GpuDirectRdmaSupported */
    case 119: /* MempoolSupportedHandleTypes */
    case 125: /* IpcEventSupported */
    case 128: /* HandleTypeFabricSupported */
    case 132: *value = 0; break; /* MulticastSupported */
    default: {
        char name[64];
        *value = 0;
        snprintf(name, sizeof name, "%s(attribute %d)", caller, attribute);
        return refuse(name, NULL, NOT_SUPPORTED, &said[attribute & 255]);
    }
    }
    return SUCCESS;
}
EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int ordinal) {
    return fail(device_attribute(value, attribute, ordinal, "cudaDeviceGetAttribute"));
}

/* ---- which device -------------------------------------------------------------------------------------------------- */
EXPORT int cudaGetDeviceCount(int *count) {
    *count = visible_devices();
    return *count ? SUCCESS : fail(NO_DEVICE);
}
EXPORT int cudaGetDevice(int *ordinal) {
    *ordinal = current_device();
    return visible_devices() ? SUCCESS : fail(NO_DEVICE);
}
EXPORT int cudaSetDevice(int ordinal) {
    LOCKED;
    if (!device_at(ordinal)) return fail(visible_devices() ? INVALID_DEVICE : NO_DEVICE);
    set_current_device(ordinal);
    return create_context(ordinal) ? SUCCESS : fail(OUT_OF_MEMORY); /* since CUDA 12 this makes the context */
}
EXPORT int cudaDeviceGetPCIBusId(char *text, int size, int ordinal) {
    int index = physical_index(ordinal);
    if (index < 0) return fail(INVALID_DEVICE);
    snprintf(text, (size_t)size, "0000:%02x:00.0", (unsigned)(index + 1));
    return SUCCESS;
}
/* No peer-to-peer access: torch then copies between devices in its own ways. */
EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = 0;
    return device_at(device) && device_at(peer) ? SUCCESS : fail(INVALID_DEVICE);
}
EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void)peer, (void)flags;
    return fail(PEER_ACCESS_UNSUPPORTED);
}
EXPORT int cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return SUCCESS;
}
EXPORT int cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

/* ---- errors -------------------------------------------------------------------------------------------------------- */
static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {SUCCESS, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {PEER_ACCESS_UNSUPPORTED, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
    {INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {ILLEGAL_STATE, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {SYMBOL_NOT_FOUND, "cudaErrorSymbolNotFound", "named symbol not found"},
    {NOT_READY, "cudaErrorNotReady", "device not ready"},
    {HOST_MEMORY_ALREADY_REGISTERED, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNMATCHED, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {CAPTURE_UNJOINED, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {CAPTURE_IMPLICIT, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CAPTURED_EVENT, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
};
const char *error_text(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].text;
    return "unrecognized error code";
}
const char *error_name(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].name;
    return "unrecognized error code";
}
EXPORT const char *cudaGetErrorString(int code) { return error_text(code); }
EXPORT const char *cudaGetErrorName(int code) { return error_name(code); }
EXPORT int cudaGetLastError(void) { return take_last_error(); }
EXPORT int cudaPeekAtLastError(void) { return peek_last_error(); }
