/* The driver API, as far as PyTorch asks for it: virtual memory management, contexts, lookups. */
#define _GNU_SOURCE
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- virtual memory management: addresses are reserved, physical memory is created, pages are mapped ----------------- */
typedef struct {
    uint64_t bytes, mapped; /* `mapped` counts bytes that an address stands for */
    int device;
    bool released; /* memory goes back when it is released and no longer mapped */
} Physical;
static Physical *physicals; /* a handle is an index + 1, and is never used twice */
static size_t physical_count, physical_room;

static Physical *physical_of(uint64_t handle) {
    return handle && handle <= physical_count && physicals[handle - 1].bytes ? &physicals[handle - 1] : NULL;
}
static void give_back_if_unused(Physical *physical) {
    if (!physical->released || physical->mapped) return;
    refund(physical->device, physical->bytes);
    physical->bytes = 0; /* the handle is dead */
}

EXPORT int cuMemAddressReserve(uint64_t *pointer, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags) {
    LOCKED;
    (void)alignment, (void)hint, (void)flags;
    if (!bytes || bytes % PAGE) return INVALID_VALUE;
    uint64_t *handles = calloc(bytes / PAGE, sizeof *handles);
    if (!handles) return OUT_OF_MEMORY;
    *pointer = take_addresses(bytes);
    if (!add_range(&reserved, (Range){.start = *pointer, .bytes = bytes, .device = current_device(), .handles = handles}))
        abort();
    log_call("cuMemAddressReserve", current_device(), bytes, *pointer, SUCCESS);
    return SUCCESS;
}
EXPORT int cuMemAddressFree(uint64_t pointer, size_t bytes) {
    LOCKED;
    Range *range = find_range(&reserved, pointer);
    if (!range || range->start != pointer || range->bytes != bytes) return INVALID_VALUE;
    for (size_t page = 0; page < bytes / PAGE; page++)
        if (range->handles[page]) return INVALID_VALUE;
    log_call("cuMemAddressFree", range->device, bytes, pointer, SUCCESS);
    free(range->handles);
    remove_range(&reserved, range);
    return SUCCESS;
}
typedef struct { /* CUmemAllocationProp up to the field that we read */
    int type, handle_types;
    struct {
        int type, id;
    } location;
} AllocationProp;
EXPORT int cuMemCreate(uint64_t *handle, size_t bytes, const AllocationProp *prop, unsigned long long flags) {
    LOCKED;
    (void)flags;
    int device = prop->location.id;
    if (!bytes || bytes % PAGE) return INVALID_VALUE;
    if (!device_at(device)) return INVALID_DEVICE;
    if (!create_context(device) || !charge(device, bytes)) {
        log_call("cuMemCreate", device, bytes, 0, OUT_OF_MEMORY);
        return OUT_OF_MEMORY;
    }
    if (physical_count == physical_room) {
        physical_room = physical_room ? 2 * physical_room : 256;
        physicals = realloc(physicals, physical_room * sizeof *physicals);
        if (!physicals) abort();
    }
    physicals[physical_count++] = (Physical){.bytes = bytes, .device = device};
    *handle = physical_count;
    log_call("cuMemCreate", device, bytes, *handle, SUCCESS);
    return SUCCESS;
}
EXPORT int cuMemRelease(uint64_t handle) {
    LOCKED;
    Physical *physical = physical_of(handle);
    if (!physical || physical->released) return INVALID_VALUE;
    physical->released = true;
    log_call("cuMemRelease", physical->device, physical->bytes, handle, SUCCESS);
    give_back_if_unused(physical);
    return SUCCESS;
}
EXPORT int cuMemMap(uint64_t pointer, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    LOCKED;
    (void)flags;
    Range *range = find_range(&reserved, pointer);
    Physical *physical = physical_of(handle);
    if (!range || !physical || !bytes || bytes % PAGE || pointer % PAGE || offset % PAGE) return INVALID_VALUE;
    if (pointer + bytes > range->start + range->bytes || offset + bytes > physical->bytes) return INVALID_VALUE;
    uint64_t *pages = &range->handles[(pointer - range->start) / PAGE];
    for (size_t page = 0; page < bytes / PAGE; page++)
        if (pages[page]) return INVALID_VALUE;
    for (size_t page = 0; page < bytes / PAGE; page++) pages[page] = handle;
    physical->mapped += bytes;
    log_call("cuMemMap", physical->device, bytes, pointer, SUCCESS);
    return SUCCESS;
}
EXPORT int cuMemUnmap(uint64_t pointer, size_t bytes) {
    LOCKED;
    Range *range = find_range(&reserved, pointer);
    if (!range || bytes % PAGE || pointer % PAGE || pointer + bytes > range->start + range->bytes) return INVALID_VALUE;
    uint64_t *pages = &range->handles[(pointer - range->start) / PAGE];
    for (size_t page = 0; page < bytes / PAGE; page++) {
        Physical *physical = physical_of(pages[page]);
        if (!physical) continue;
        pages[page] = 0;
        physical->mapped -= PAGE;
        give_back_if_unused(physical);
    }
    log_call("cuMemUnmap", range->device, bytes, pointer, SUCCESS);
    return SUCCESS;
}
EXPORT int cuMemGetAllocationGranularity(size_t *granularity, const AllocationProp *prop, int option) {
    (void)prop, (void)option;
    *granularity = PAGE;
    return SUCCESS;
}
NOTHING_TO_DO(cuMemSetAccess) /* who may read the pages changes no account */

EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t pointer) {
    LOCKED;
    const Range *range = find_range(&allocated, pointer);
    if (!range) return INVALID_VALUE;
    if (base) *base = range->start;
    if (bytes) *bytes = range->bytes;
    return SUCCESS;
}
EXPORT int cuMemGetInfo_v2(size_t *free_out, size_t *total_out) {
    LOCKED;
    if (!create_context(current_device())) return OUT_OF_MEMORY;
    *free_out = free_bytes(current_device());
    *total_out = settings()->total;
    return SUCCESS;
}
enum { ATTRIBUTE_MEMORY_TYPE = 2, ATTRIBUTE_DEVICE_POINTER = 3, ATTRIBUTE_DEVICE_ORDINAL = 9 };
EXPORT int cuPointerGetAttribute(void *out, int attribute, uint64_t pointer) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    LOCKED;
    const Range *host = find_range(&pinned, pointer);
    int device = host ? host->device : device_of_address(pointer);
    if (device < 0) return INVALID_VALUE;
    switch (attribute) {
    case ATTRIBUTE_MEMORY_TYPE: *(unsigned *)out = host ? 1 : 2; return SUCCESS; /* CU_MEMORYTYPE_HOST, _DEVICE */
    case ATTRIBUTE_DEVICE_POINTER: *(uint64_t *)out = pointer; return SUCCESS;
    case ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = device; return SUCCESS;
    default: return refuse("cuPointerGetAttribute", NULL, NOT_SUPPORTED, &said);
    }
}

/* ---- devices and contexts: one primary context a device, whose handle is its ordinal + 1 ----------------------------- */
EXPORT int cuInit(unsigned flags) {
    (void)flags;
    return visible_devices() ? SUCCESS : NO_DEVICE;
}
EXPORT int cuDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return SUCCESS;
}
EXPORT int cuDeviceGetCount(int *count) {
    *count = visible_devices();
    return SUCCESS;
}
EXPORT int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return device_at(ordinal) ? SUCCESS : INVALID_DEVICE;
}
EXPORT int cuDeviceGetName(char *name, int size, int device) {
    if (!device_at(device)) return INVALID_DEVICE;
    snprintf(name, (size_t)size, "%s", settings()->name);
    return SUCCESS;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = settings()->total;
    return device_at(device) ? SUCCESS : INVALID_DEVICE;
}
EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    if (!device_at(device)) return INVALID_DEVICE;
    device_uuid(uuid, physical_index(device));
    return SUCCESS;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    return device_attribute(value, attribute, device, "cuDeviceGetAttribute");
}
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    LOCKED;
    if (!device_at(device)) return INVALID_DEVICE;
    if (flags) *flags = 0;
    if (active) *active = device_at(device)->context;
    return SUCCESS;
}
static void *context_handle(int ordinal) { return (void *)(uintptr_t)(ordinal + 1); }
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    LOCKED;
    if (!device_at(device)) return INVALID_DEVICE;
    if (!create_context(device)) return OUT_OF_MEMORY;
    *context = context_handle(device);
    return SUCCESS;
}
EXPORT int cuCtxGetCurrent(void **context) {
    LOCKED;
    Device *device = device_at(current_device());
    *context = device && device->context ? context_handle(current_device()) : NULL;
    return SUCCESS;
}
EXPORT int cuCtxSetCurrent(void *context) {
    if (context) set_current_device((int)(uintptr_t)context - 1);
    return SUCCESS;
}
EXPORT int cuCtxGetDevice(int *device) {
    *device = current_device();
    return SUCCESS;
}
NOTHING_TO_DO(cuDevicePrimaryCtxRelease_v2) /* the context stays until the process ends, as under the runtime */

EXPORT int cuGetErrorString(int code, const char **text) {
    *text = error_text(code);
    return SUCCESS;
}
EXPORT int cuGetErrorName(int code, const char **text) {
    *text = error_name(code);
    return SUCCESS;
}

/* The driver has no messages of its own to pass on, so the callback is never called. */
EXPORT int cuLogsRegisterCallback(void (*callback)(void), void *data, void **handle) {
    (void)callback;
    if (handle) *handle = data;
    return SUCCESS;
}
NOTHING_TO_DO(cuLogsUnregisterCallback)

/* Private tables, which NVRTC and statically linked runtimes ask for and can do without. */
EXPORT int cuGetExportTable(const void **table, const void *uuid) {
    (void)uuid;
    *table = NULL;
    return SYMBOL_NOT_FOUND;
}

/* ---- lookups by name ------------------------------------------------------------------------------------------------- */
enum { FOUND = 0, NOT_FOUND = 1 };
static int look_up(const char *symbol, void **function, int *result) {
    char newer[128];
    Dl_info here, there;
    snprintf(newer, sizeof newer, "%s_v2", symbol); /* unversioned names mean the newest ABI */
    void *found = dlsym(RTLD_DEFAULT, newer);
    if (!found) found = dlsym(RTLD_DEFAULT, symbol);
    /* another library's function of that name, a real driver's say, is no answer of this device */
    if (found && dladdr((void *)look_up, &here) && dladdr(found, &there) && here.dli_fbase != there.dli_fbase) found = NULL;
    *function = found;
    if (result) *result = found ? FOUND : NOT_FOUND;
    if (!found) log_call(symbol, -1, 0, 0, SYMBOL_NOT_FOUND);
    return found ? SUCCESS : SYMBOL_NOT_FOUND;
}
EXPORT int cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags, int *result) {
    (void)flags;
    return look_up(symbol, function, result) && !result ? fail(SYMBOL_NOT_FOUND) : SUCCESS;
}
EXPORT int cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                            unsigned long long flags, int *result) {
    (void)version;
    return cudaGetDriverEntryPoint(symbol, function, flags, result);
}
EXPORT int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    (void)version, (void)flags;
    return look_up(symbol, function, NULL);
}
EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *result) {
    (void)version, (void)flags;
    return look_up(symbol, function, result);
}
