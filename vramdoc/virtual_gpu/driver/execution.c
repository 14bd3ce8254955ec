/* Streams, events, kernel launches. Work is done the moment it is enqueued. */
#define _GNU_SOURCE
#include "capture.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- streams ---------------------------------------------------------------------------------------------------
 * Handles are small numbers in order of creation, so that the `stream` of a snapshot is the same in every run. */
#define FIRST_HANDLE 0x1000u
#define HANDLE_STEP 0x10u
static Stream **streams;
static size_t stream_count, stream_room;
static Stream default_streams[MAX_DEVICES];

Stream *stream_of(Stream *handle) {
    uintptr_t number = (uintptr_t)handle;
    if (number <= 2) return &default_streams[current_device()]; /* NULL, cudaStreamLegacy, cudaStreamPerThread */
    size_t index = (number - FIRST_HANDLE) / HANDLE_STEP;
    return number >= FIRST_HANDLE && index < stream_count ? streams[index] : NULL;
}
Stream *stream_at(size_t index) { return streams[index]; }
size_t streams_created(void) { return stream_count; }

EXPORT int cudaStreamCreateWithPriority(Stream **handle, unsigned flags, int priority) {
    LOCKED;
    if (!create_context(current_device())) return fail(OUT_OF_MEMORY);
    if (stream_count == stream_room) {
        stream_room = stream_room ? 2 * stream_room : 64;
        streams = realloc(streams, stream_room * sizeof(Stream *));
        if (!streams) abort();
    }
    Stream *stream = calloc(1, sizeof *stream);
    if (!stream) abort();
    *stream = (Stream){.device = current_device(), .priority = priority, .flags = flags};
    streams[stream_count] = stream;
    *handle = (Stream *)(uintptr_t)(FIRST_HANDLE + HANDLE_STEP * stream_count++);
    return SUCCESS;
}
EXPORT int cudaStreamCreateWithFlags(Stream **handle, unsigned flags) { return cudaStreamCreateWithPriority(handle, flags, 0); }
EXPORT int cudaStreamCreate(Stream **handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }
EXPORT int cudaStreamDestroy(Stream *handle) {
    LOCKED;
    Stream *stream = stream_of(handle);
    if (!stream || (uintptr_t)handle <= 2) return fail(INVALID_HANDLE);
    streams[((uintptr_t)handle - FIRST_HANDLE) / HANDLE_STEP] = NULL;
    clear_nodes(&stream->frontier);
    free(stream);
    return SUCCESS;
}
EXPORT int cudaStreamQuery(Stream *handle) {
    LOCKED;
    if (!stream_of(handle)) return fail(INVALID_HANDLE);
    Capture *capture = capture_with(stream_of(handle)->capture);
    if (!capture) return SUCCESS;
    capture->status = INVALIDATED;
    return fail(CAPTURE_UNSUPPORTED);
}
EXPORT int cudaStreamSynchronize(Stream *handle) {
    int result = cudaStreamQuery(handle); /* all work is done; only a capture can be in the way */
    LOCKED;
    if (result == SUCCESS) trim_pools_at_synchronization(stream_of(handle)->device);
    return result;
}
EXPORT int cudaDeviceSynchronize(void) {
    LOCKED;
    int forbidden = captures ? CAPTURE_UNSUPPORTED : SUCCESS;
    for (Capture *capture = captures; capture; capture = capture->next) capture->status = INVALIDATED;
    if (forbidden) return fail(forbidden);
    if (!create_context(current_device())) return fail(device_at(current_device()) ? OUT_OF_MEMORY : NO_DEVICE);
    trim_pools_at_synchronization(current_device());
    return SUCCESS;
}
EXPORT int cudaStreamGetPriority(Stream *handle, int *priority) {
    LOCKED;
    Stream *stream = stream_of(handle);
    if (!stream) return fail(INVALID_HANDLE);
    *priority = stream->priority;
    return SUCCESS;
}
EXPORT int cudaStreamGetFlags(Stream *handle, unsigned *flags) {
    LOCKED;
    Stream *stream = stream_of(handle);
    if (!stream) return fail(INVALID_HANDLE);
    *flags = stream->flags;
    return SUCCESS;
}
EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */
typedef struct {
    unsigned flags;
    bool recorded;
    unsigned long long capture; /* the capture in which it was last recorded, 0 for none */
    Nodes frontier;             /* the captured work that waiting for it waits for */
    struct timespec time;       /* of the host: device work takes no time, so this is when it was done */
} Event;
#define NO_TIMING 2u       /* cudaEventDisableTiming */
#define EXTERNAL_EVENT 1u  /* cudaEventRecordExternal, cudaEventWaitExternal: an event node, no dependency */

EXPORT int cudaEventCreateWithFlags(Event **event, unsigned flags) {
    *event = calloc(1, sizeof **event);
    if (!*event) return fail(OUT_OF_MEMORY);
    (*event)->flags = flags;
    return SUCCESS;
}
EXPORT int cudaEventCreate(Event **event) { return cudaEventCreateWithFlags(event, 0); }
EXPORT int cudaEventDestroy(Event *event) {
    if (!event) return fail(INVALID_HANDLE);
    clear_nodes(&event->frontier);
    free(event);
    return SUCCESS;
}
EXPORT int cudaEventRecordWithFlags(Event *event, Stream *handle, unsigned flags) {
    LOCKED;
    Stream *stream = stream_of(handle);
    if (!event || !stream) return fail(INVALID_HANDLE);
    if (flags & EXTERNAL_EVENT) note_work(handle, EVENT_RECORD_NODE);
    event->recorded = true;
    event->capture = flags & EXTERNAL_EVENT ? 0 : stream->capture;
    clear_nodes(&event->frontier);
    if (event->capture) add_nodes(&event->frontier, &stream->frontier);
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return SUCCESS;
}
EXPORT int cudaEventRecord(Event *event, Stream *handle) { return cudaEventRecordWithFlags(event, handle, 0); }
EXPORT int cudaEventQuery(Event *event) {
    LOCKED;
    if (!event) return fail(INVALID_HANDLE);
    if (event->capture) return fail(CAPTURED_EVENT);
    int forbidden = capture_forbids();
    return forbidden ? fail(forbidden) : SUCCESS;
}
EXPORT int cudaEventSynchronize(Event *event) {
    LOCKED;
    if (!event) return fail(INVALID_HANDLE);
    return event->capture ? fail(CAPTURED_EVENT) : SUCCESS;
}
EXPORT int cudaEventElapsedTime(float *milliseconds, const Event *start, const Event *end) {
    LOCKED;
    if (!start || !end || !start->recorded || !end->recorded || ((start->flags | end->flags) & NO_TIMING))
        return fail(INVALID_HANDLE);
    *milliseconds = (float)((double)(end->time.tv_sec - start->time.tv_sec) * 1e3 +
                            (double)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6);
    return SUCCESS;
}
EXPORT int cudaEventElapsedTime_v2(float *milliseconds, const Event *start, const Event *end) {
    return cudaEventElapsedTime(milliseconds, start, end);
}
EXPORT int cudaStreamWaitEvent(Stream *handle, const Event *event, unsigned flags) {
    LOCKED;
    Stream *stream = stream_of(handle);
    if (!event || !stream) return fail(INVALID_HANDLE);
    Capture *own = capture_with(stream->capture), *other = capture_with(event->capture);
    if (flags & EXTERNAL_EVENT || !event->recorded) return SUCCESS;
    if (own && own != other) { /* captured work may not wait for work outside the capture */
        own->status = INVALIDATED;
        return fail(other ? CAPTURE_MERGE : CAPTURE_ISOLATION);
    }
    if (other) { /* the stream joins the capture, or is already in it */
        stream->capture = other->id;
        add_nodes(&stream->frontier, &event->frontier);
    }
    return SUCCESS;
}

/* ---- host functions in stream order: their turn comes at once ------------------------------------------------------ */
typedef void (*HostFunction)(void *);
typedef void (*StreamCallback)(Stream *, int, void *);
static int refuse_in_capture(Stream *handle, const char *name) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    LOCKED;
    return is_capturing(handle) ? refuse(name, "inside a stream capture", NOT_SUPPORTED, &said) : SUCCESS;
}
EXPORT int cudaLaunchHostFunc(Stream *handle, HostFunction function, void *data) {
    int refused = refuse_in_capture(handle, "cudaLaunchHostFunc");
    if (!refused) function(data); /* without the lock: the function may call anything of its own */
    return refused;
}
EXPORT int cudaStreamAddCallback(Stream *handle, StreamCallback callback, void *data, unsigned flags) {
    (void)flags;
    int refused = refuse_in_capture(handle, "cudaStreamAddCallback");
    if (!refused) callback(handle, SUCCESS, data);
    return refused;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------- */
typedef struct {
    unsigned x, y, z;
} Dim3;
static int launch(Dim3 grid, Dim3 block, Stream *handle) {
    LOCKED;
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z || block.x * block.y * block.z > 1024)
        return fail(INVALID_CONFIGURATION);
    note_work(handle, KERNEL_NODE);
    return SUCCESS;
}
EXPORT int cudaLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, Stream *handle) {
    (void)function, (void)arguments, (void)shared;
    return launch(grid, block, handle);
}
EXPORT int __cudaLaunchKernel(const void *kernel, Dim3 grid, Dim3 block, void **arguments, size_t shared, Stream *handle) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, handle);
}
EXPORT int cudaLaunchCooperativeKernel(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared,
                                       Stream *handle) {
    return cudaLaunchKernel(function, grid, block, arguments, shared, handle);
}
typedef struct { /* cudaLaunchConfig_t */
    Dim3 grid, block;
    size_t shared;
    Stream *stream;
} LaunchConfig;
EXPORT int cudaLaunchKernelExC(const LaunchConfig *config, const void *function, void **arguments) {
    return cudaLaunchKernel(function, config->grid, config->block, arguments, config->shared, config->stream);
}

/* nvcc's <<<...>>>: the configuration is pushed, then the launch stub pops it. */
static _Thread_local LaunchConfig pushed;
EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, Stream *handle) {
    pushed = (LaunchConfig){grid, block, shared, handle};
    return 0;
}
EXPORT int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, Stream **handle) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *handle = pushed.stream;
    return SUCCESS;
}
/* Kernels register themselves when their library is loaded; none will ever run. */
EXPORT void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    (void)binary;
    return &handle;
}
NOTHING_TO_DO(__cudaRegisterFatBinaryEnd)
NOTHING_TO_DO(__cudaUnregisterFatBinary)
NOTHING_TO_DO(__cudaRegisterFunction)
NOTHING_TO_DO(__cudaRegisterVar)
EXPORT char __cudaInitModule(void **binary) {
    (void)binary;
    return 1;
}
EXPORT int __cudaGetKernel(const void **kernel, const void *function) {
    *kernel = function;
    return SUCCESS;
}
EXPORT int cudaGetSymbolAddress(void **pointer, const void *symbol) {
    *pointer = (void *)symbol; /* a number for kernels that never run */
    return SUCCESS;
}

typedef struct { /* cudaFuncAttributes up to the fields that we fill; the rest is zeroed by size */
    size_t shared, constant, local;
    int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared, carveout;
    int cluster[6], appendix[16];
} FunctionAttributes;
/* A plain kernel, of the image that the device would load. */
EXPORT int cudaFuncGetAttributes(FunctionAttributes *out, const void *function) {
    (void)function;
    memset(out, 0, sizeof *out);
    out->max_threads = 1024;
    out->registers = 32;
    out->max_dynamic_shared = 49152;
    out->ptx_version = out->binary_version = settings()->image;
    return SUCCESS;
}
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int size, size_t shared,
                                                                 unsigned flags) {
    (void)function, (void)size, (void)shared, (void)flags;
    *blocks = ASSUMED_OCCUPANCY;
    return SUCCESS;
}
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int size, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, size, shared, 0);
}
NOTHING_TO_DO(cudaFuncSetAttribute)
NOTHING_TO_DO(cudaFuncSetCacheConfig)
NOTHING_TO_DO(cudaKernelSetAttributeForDevice)
NOTHING_TO_DO(cudaProfilerStart)
NOTHING_TO_DO(cudaProfilerStop)
