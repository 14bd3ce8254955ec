/* Streams, events, stream capture, graphs, kernel launches. Work is done the moment it is enqueued. */
#define _GNU_SOURCE
#include "device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- captures --------------------------------------------------------------------------------------------------
 * A capture is a state machine: streams join it (by beginning it, or by waiting for an event recorded in it), calls that
 * would have to wait for captured work spoil it, and it ends in a graph of which only the number of nodes is kept. */
enum { NONE = 0, ACTIVE = 1, INVALIDATED = 2 };                   /* cudaStreamCaptureStatus */
enum { GLOBAL_MODE = 0, THREAD_LOCAL_MODE = 1, RELAXED_MODE = 2 }; /* cudaStreamCaptureMode */
typedef struct {
    size_t nodes;
} Graph;
typedef struct Capture {
    unsigned long long id;
    int mode, status;
    const void *thread; /* the address of a thread-local: who began it */
    Graph *graph;
    struct Capture *next;
} Capture;
static Capture *captures;
static _Thread_local int thread_mode = GLOBAL_MODE;

static Capture *capture_with(unsigned long long id) {
    for (Capture *capture = captures; id && capture; capture = capture->next)
        if (capture->id == id) return capture;
    return NULL;
}
/* The rules of cudaThreadExchangeStreamCaptureMode. */
int capture_forbids(void) {
    int result = SUCCESS;
    for (Capture *capture = captures; capture; capture = capture->next) {
        bool own = capture->thread == &thread_mode;
        if (thread_mode != RELAXED_MODE && ((own && capture->mode != RELAXED_MODE) ||
                                            (!own && thread_mode == GLOBAL_MODE && capture->mode == GLOBAL_MODE))) {
            capture->status = INVALIDATED;
            result = CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* ---- streams ---------------------------------------------------------------------------------------------------
 * Handles are small numbers in order of creation, so that the `stream` of a snapshot is the same in every run. */
struct Stream {
    int device, priority;
    unsigned flags;
    unsigned long long capture; /* the capture's id, 0 for none */
};
#define FIRST_HANDLE 0x1000u
#define HANDLE_STEP 0x10u
static Stream **streams;
static size_t stream_count, stream_room;
static Stream default_streams[MAX_DEVICES];

static Stream *stream_of(Stream *handle) {
    uintptr_t number = (uintptr_t)handle;
    if (number <= 2) return &default_streams[current_device()]; /* NULL, cudaStreamLegacy, cudaStreamPerThread */
    size_t index = (number - FIRST_HANDLE) / HANDLE_STEP;
    return number >= FIRST_HANDLE && index < stream_count ? streams[index] : NULL;
}
static Capture *capture_of(Stream *handle) {
    Stream *stream = stream_of(handle);
    return stream ? capture_with(stream->capture) : NULL;
}
bool is_capturing(Stream *handle) { return capture_of(handle) != NULL; }
void note_work(Stream *handle) {
    Capture *capture = captures ? capture_of(handle) : NULL;
    if (capture) capture->graph->nodes++;
}

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
    free(stream);
    return SUCCESS;
}
EXPORT int cudaStreamQuery(Stream *handle) {
    LOCKED;
    if (!stream_of(handle)) return fail(INVALID_HANDLE);
    Capture *capture = capture_of(handle);
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
    free(event);
    return SUCCESS;
}
EXPORT int cudaEventRecordWithFlags(Event *event, Stream *handle, unsigned flags) {
    LOCKED;
    Stream *stream = stream_of(handle);
    if (!event || !stream) return fail(INVALID_HANDLE);
    if (flags & EXTERNAL_EVENT) note_work(handle);
    event->recorded = true;
    event->capture = flags & EXTERNAL_EVENT ? 0 : stream->capture;
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
    if (other && !own)
        stream->capture = other->id; /* the stream joins the capture */
    else if (own && own != other) {  /* captured work may not wait for work outside the capture */
        own->status = INVALIDATED;
        return fail(other ? CAPTURE_MERGE : CAPTURE_ISOLATION);
    }
    return SUCCESS;
}

/* ---- capturing ------------------------------------------------------------------------------------------------- */
static int begin_capture(Stream *handle, Graph *graph, int mode) {
    static unsigned long long last_id;
    Stream *stream = stream_of(handle);
    if (!stream) return fail(INVALID_HANDLE);
    if ((uintptr_t)handle <= 1) return fail(CAPTURE_UNSUPPORTED); /* the legacy stream cannot be captured */
    if (stream->capture) return fail(ILLEGAL_STATE);
    Capture *capture = calloc(1, sizeof *capture);
    if (!graph) graph = calloc(1, sizeof *graph);
    if (!capture || !graph) abort();
    *capture = (Capture){++last_id, mode, ACTIVE, &thread_mode, graph, captures};
    captures = capture;
    stream->capture = capture->id;
    return SUCCESS;
}
EXPORT int cudaStreamBeginCapture(Stream *handle, int mode) {
    LOCKED;
    return begin_capture(handle, NULL, mode);
}
EXPORT int cudaStreamBeginCaptureToGraph(Stream *handle, Graph *graph, const void *dependencies, const void *edges,
                                         size_t count, int mode) {
    LOCKED;
    (void)dependencies, (void)edges, (void)count;
    return graph ? begin_capture(handle, graph, mode) : fail(INVALID_VALUE);
}
EXPORT int cudaStreamEndCapture(Stream *handle, Graph **graph) {
    LOCKED;
    Capture *capture = capture_of(handle);
    *graph = NULL;
    if (!capture) return fail(ILLEGAL_STATE);
    for (Capture **link = &captures; *link; link = &(*link)->next)
        if (*link == capture) {
            *link = capture->next;
            break;
        }
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i] && streams[i]->capture == capture->id) streams[i]->capture = 0;
    int status = capture->status;
    if (status == ACTIVE)
        *graph = capture->graph;
    else
        free(capture->graph);
    free(capture);
    return status == ACTIVE ? SUCCESS : fail(CAPTURE_INVALIDATED);
}
EXPORT int cudaStreamIsCapturing(Stream *handle, int *status) {
    LOCKED;
    if (!stream_of(handle)) return fail(INVALID_HANDLE);
    Capture *capture = capture_of(handle);
    *status = capture ? capture->status : NONE;
    return SUCCESS;
}
/* One body for the three signatures: CUDA 12 has _v2 (six parameters) and _v3 (edges before the count, as CUDA 13). */
static int capture_info(Stream *handle, int *status, unsigned long long *id, Graph **graph) {
    LOCKED;
    if (!stream_of(handle)) return fail(INVALID_HANDLE);
    Capture *capture = capture_of(handle);
    *status = capture ? capture->status : NONE;
    if (capture && id) *id = capture->id;
    if (capture && graph) *graph = capture->graph;
    return SUCCESS;
}
EXPORT int cudaStreamGetCaptureInfo_v3(Stream *handle, int *status, unsigned long long *id, Graph **graph,
                                       const void ***dependencies, const void **edges, size_t *count) {
    if (dependencies) *dependencies = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    return capture_info(handle, status, id, graph);
}
EXPORT int cudaStreamGetCaptureInfo_v2(Stream *handle, int *status, unsigned long long *id, Graph **graph,
                                       const void ***dependencies, size_t *count) {
    return cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, NULL, count);
}
#if CUDART_VERSION >= 13000
EXPORT int cudaStreamGetCaptureInfo(Stream *handle, int *status, unsigned long long *id, Graph **graph,
                                    const void ***dependencies, const void **edges, size_t *count) {
    return cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, edges, count);
}
#else
EXPORT int cudaStreamGetCaptureInfo(Stream *handle, int *status, unsigned long long *id) {
    return capture_info(handle, status, id, NULL);
}
#endif
EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) {
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return SUCCESS;
}

/* ---- graphs: a number of nodes; launching one does nothing --------------------------------------------------------- */
EXPORT int cudaGraphCreate(Graph **graph, unsigned flags) {
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return *graph ? SUCCESS : fail(OUT_OF_MEMORY);
}
EXPORT int cudaGraphDestroy(Graph *graph) {
    free(graph);
    return SUCCESS;
}
EXPORT int cudaGraphGetNodes(const Graph *graph, void **nodes, size_t *count) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (nodes) return refuse("cudaGraphGetNodes (the nodes themselves)", NULL, NOT_SUPPORTED, &said);
    *count = graph->nodes;
    return SUCCESS;
}
EXPORT int cudaGraphInstantiateWithFlags(Graph **executable, const Graph *graph, unsigned long long flags) {
    (void)flags;
    *executable = calloc(1, sizeof **executable);
    if (!*executable) return fail(OUT_OF_MEMORY);
    **executable = *graph;
    return SUCCESS;
}
EXPORT int cudaGraphInstantiate(Graph **executable, const Graph *graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
EXPORT int cudaGraphExecDestroy(Graph *executable) { return cudaGraphDestroy(executable); }
EXPORT int cudaGraphLaunch(const Graph *executable, Stream *handle) {
    LOCKED;
    (void)executable;
    note_work(handle);
    return SUCCESS;
}
NOTHING_TO_DO(cudaGraphUpload)

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
    note_work(handle);
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
