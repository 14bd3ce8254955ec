/* NVML, as far as pynvml and torch ask: the same devices, the same memory, the processes that hold it. */
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NVML_SUCCESS = 0, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7 };
typedef void NvmlDevice; /* a handle is the device's index + 1 */
/* Linux numbers processes below 4194304 (PID_MAX_LIMIT), so nobody takes this one for a process of this machine. */
#define FOREIGN_PROCESS 4194304u

static int index_of(const NvmlDevice *handle) { return (int)(uintptr_t)handle - 1; }
static int write_text(char *out, unsigned size, const char *text) {
    if (strlen(text) >= size) return NVML_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

EXPORT int nvmlInit_v2(void) {
    settings();
    return NVML_SUCCESS;
}
EXPORT int nvmlInit(void) { return nvmlInit_v2(); }
EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}
NOTHING_TO_DO(nvmlShutdown)
EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
    case NVML_SUCCESS: return "Success";
    case NVML_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_NOT_SUPPORTED: return "Not Supported";
    case NVML_NOT_FOUND: return "Not Found";
    case NVML_INSUFFICIENT_SIZE: return "Insufficient Size";
    default: return "Unknown Error";
    }
}

/* ---- the system -------------------------------------------------------------------------------------------------------- */
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = CUDART_VERSION;
    return NVML_SUCCESS;
}
EXPORT int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) { return write_text(out, size, "0.0.virtual"); }
EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return write_text(out, size, "0.0.virtual"); }
EXPORT int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    if (pid == FOREIGN_PROCESS) return write_text(out, size, "another process (virtual)");
    return NVML_NOT_FOUND;
}

/* ---- devices ------------------------------------------------------------------------------------------------------------ */
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)settings()->devices;
    return NVML_SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice **handle) {
    if (!physical_device((int)index)) return NVML_INVALID_ARGUMENT;
    *handle = (NvmlDevice *)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, NvmlDevice **handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, NvmlDevice **handle) {
    unsigned domain, bus;
    if (sscanf(bus_id, "%x:%x:", &domain, &bus) != 2 || bus == 0) return NVML_INVALID_ARGUMENT;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle) == NVML_SUCCESS ? NVML_SUCCESS : NVML_NOT_FOUND;
}
EXPORT int nvmlDeviceGetUUID(const NvmlDevice *handle, char *out, unsigned size) {
    char text[UUID_TEXT];
    device_uuid_text(text, index_of(handle));
    return write_text(out, size, text);
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, NvmlDevice **handle) {
    for (int index = 0; index < settings()->devices; index++) {
        char text[UUID_TEXT];
        device_uuid_text(text, index);
        if (strcmp(text, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2((unsigned)index, handle);
    }
    return NVML_NOT_FOUND;
}
EXPORT int nvmlDeviceGetIndex(const NvmlDevice *handle, unsigned *index) {
    *index = (unsigned)index_of(handle);
    return NVML_SUCCESS;
}
EXPORT int nvmlDeviceGetMinorNumber(const NvmlDevice *handle, unsigned *minor) { return nvmlDeviceGetIndex(handle, minor); }
EXPORT int nvmlDeviceGetName(const NvmlDevice *handle, char *out, unsigned size) {
    (void)handle;
    return write_text(out, size, settings()->name);
}
EXPORT int nvmlDeviceGetCudaComputeCapability(const NvmlDevice *handle, int *major, int *minor) {
    (void)handle;
    *major = settings()->major;
    *minor = settings()->minor;
    return NVML_SUCCESS;
}
typedef struct { /* nvmlPciInfo_t */
    char legacy_bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;
EXPORT int nvmlDeviceGetPciInfo_v3(const NvmlDevice *handle, PciInfo *out) {
    memset(out, 0, sizeof *out);
    out->bus = (unsigned)index_of(handle) + 1;
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "0000:%02X:00.0", out->bus & 0xff);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus & 0xff);
    return NVML_SUCCESS;
}

/* ---- memory and the processes that hold it -------------------------------------------------------------------------------- */
typedef struct {
    unsigned long long total, free, used;
} Memory;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;
EXPORT int nvmlDeviceGetMemoryInfo(const NvmlDevice *handle, Memory *out) {
    LOCKED;
    const Device *device = physical_device(index_of(handle));
    if (!device) return NVML_INVALID_ARGUMENT;
    *out = (Memory){settings()->total, settings()->total - device->used, device->used};
    return NVML_SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(const NvmlDevice *handle, MemoryV2 *out) {
    Memory plain;
    int code = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (code) return code;
    *out = (MemoryV2){out->version, plain.total, 0, plain.free, plain.used};
    return NVML_SUCCESS;
}
typedef struct {
    unsigned pid;
    unsigned long long used;
} ProcessV1;
typedef struct { /* of _v2 and _v3 */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;
static unsigned list_processes(int index, ProcessV1 out[2]) {
    const Device *device = physical_device(index);
    uint64_t foreign = settings()->foreign;
    unsigned count = 0;
    if (foreign) out[count++] = (ProcessV1){FOREIGN_PROCESS, foreign};
    if (device->context) out[count++] = (ProcessV1){(unsigned)getpid(), device->used - foreign};
    return count;
}
static int report_processes(const NvmlDevice *handle, unsigned *count, void *out, bool wide) {
    LOCKED;
    ProcessV1 found[2];
    if (!physical_device(index_of(handle))) return NVML_INVALID_ARGUMENT;
    unsigned room = *count;
    *count = list_processes(index_of(handle), found);
    if (room < *count) return NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; out && i < *count; i++)
        if (wide)
            ((Process *)out)[i] = (Process){found[i].pid, found[i].used, ~0u, ~0u}; /* not a MIG instance */
        else
            ((ProcessV1 *)out)[i] = found[i];
    return NVML_SUCCESS;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses(const NvmlDevice *handle, unsigned *count, ProcessV1 *out) {
    return report_processes(handle, count, out, false);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(const NvmlDevice *handle, unsigned *count, Process *out) {
    return report_processes(handle, count, out, true);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const NvmlDevice *handle, unsigned *count, Process *out) {
    return report_processes(handle, count, out, true);
}
static int no_processes(unsigned *count) {
    *count = 0;
    return NVML_SUCCESS;
}
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(const NvmlDevice *handle, unsigned *count, Process *out) {
    (void)handle, (void)out;
    return no_processes(count);
}
EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(const NvmlDevice *handle, unsigned *count, Process *out) {
    (void)handle, (void)out;
    return no_processes(count);
}

/* ---- true answers of a device without NVLink, fabric, MIG or ECC: torch asks for some of them at every start --------------- */
#define ABSENT(name)                                                                                                   \
    EXPORT int name(void) { return NVML_NOT_SUPPORTED; }
ABSENT(nvmlDeviceGetNvLinkRemoteDeviceType)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo_v2)
ABSENT(nvmlDeviceGetNvLinkState)
ABSENT(nvmlDeviceGetGpuFabricInfoV)
ABSENT(nvmlDeviceGetMigMode)
ABSENT(nvmlDeviceGetEccMode)

/* ---- sensors: there is nothing to measure ----------------------------------------------------------------------------------- */
REFUSE(nvmlDeviceGetUtilizationRates, NULL, NVML_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetTemperature, NULL, NVML_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetPowerUsage, NULL, NVML_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetClockInfo, NULL, NVML_NOT_SUPPORTED)
