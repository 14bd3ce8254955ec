/* The virtual GPU: a device that keeps accounts of its memory and does nothing else.
 *
 * Preloaded in front of the CUDA runtime and cuBLAS, it lets the caching allocator, the dispatcher and autograd of
 * PyTorch's own CUDA wheel run for real. Kernels, copies and matrix products return at once and leave no values behind.
 * It does not know PyTorch, and it reads no CUDA header: every type here is our own declaration of the published ABI.
 *
 *   device.c      settings, the accounts, addresses, the log, refusals        memory.c     cudaMalloc, pools, pinned memory, copies
 *   execution.c   streams, events, kernel launches                            graphs.c     stream capture, graphs
 *   driver.c      the driver API: virtual memory, contexts                    properties.c device properties and error texts
 *   modules.c     kernels compiled while the program runs                     cublas.c     handles that take memory
 *   libraries.c   libraries that need a real GPU                              nvml.c       what pynvml sees
 *   (generated)   every further entry point of the CUDA runtime and cuBLAS, as a refusal
 *
 * What holds between any two calls, for each device:
 *   used = foreign + context + cuBLAS handles + sum(cudaMalloc ranges) + sum(pools' reserved) + sum(cuMemCreate handles) <= total
 */
#ifndef VRAMDOC_DEVICE_H
#define VRAMDOC_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CUDART_VERSION
#error "compile with -DCUDART_VERSION=1000*major+10*minor, the CUDA release that torch was built with"
#endif

#define EXPORT __attribute__((visibility("default")))
#define MIB (1ull << 20)
#define PAGE (2 * MIB) /* the device hands out physical memory in pages of 2 MiB */
#define MAX_DEVICES 64

/* Result codes. The runtime and the driver API number the same errors alike. */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONFIGURATION = 9,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    SYMBOL_NOT_FOUND = 500,
    NOT_READY = 600,
    PEER_ACCESS_UNSUPPORTED = 217,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
};

/* ---- settings (device.c): read once from the environment that virtual_gpu/environment.py writes ---- */
typedef struct {
    char name[256];
    uint64_t total, context, cublas_handle, foreign; /* bytes */
    int devices, major, minor, multiprocessors;
    int image; /* the newest kernel image in torch's wheel that such a device would load, as major*10+minor */
} Settings;
const Settings *settings(void);

/* ---- the lock: one for everything; a call holds it from its first line to its return ---- */
void lock_device(void);
void unlock_device(int *);
#define LOCKED                                                                                                         \
    lock_device();                                                                                                     \
    __attribute__((cleanup(unlock_device), unused)) int locked_ = 0

/* ---- devices (device.c). Ordinals are those that CUDA_VISIBLE_DEVICES leaves visible; NVML counts all. ---- */
typedef struct {
    uint64_t used;
    bool context; /* the primary context exists and is paid for */
} Device;
int visible_devices(void);
int physical_index(int ordinal); /* -1: no such ordinal */
Device *device_at(int ordinal);  /* NULL: no such ordinal */
Device *physical_device(int index);
int current_device(void);
void set_current_device(int ordinal);
bool create_context(int ordinal); /* false: the context does not fit, or there is no such device */
bool charge(int ordinal, uint64_t bytes);
void refund(int ordinal, uint64_t bytes);
uint64_t free_bytes(int ordinal);

/* ---- addresses (device.c): upward from one base, 2 MiB aligned, never used twice ---- */
uint64_t take_addresses(uint64_t bytes);
uint64_t round_up(uint64_t bytes, uint64_t multiple);

typedef struct Pool Pool;
typedef struct {
    uint64_t start, bytes;
    uint64_t charged;  /* what this range took from its device (or its pool) */
    int device;        /* ordinal; for pinned memory the device that was current */
    Pool *pool;        /* cudaMallocAsync: the pool that pays; else NULL */
    uint64_t *handles; /* reserved addresses: the physical handle behind each page, 0 for none; else NULL */
} Range;
typedef struct {
    Range *items; /* sorted by start */
    size_t count, room;
} Ranges;
Range *find_range(const Ranges *ranges, uint64_t address); /* the range that contains address, or NULL */
bool add_range(Ranges *ranges, Range range);
void remove_range(Ranges *ranges, Range *range);

extern Ranges allocated; /* cudaMalloc and cudaMallocAsync */
extern Ranges reserved;  /* cuMemAddressReserve */
extern Ranges pinned;    /* host memory: cudaHostAlloc and cudaHostRegister */
int device_of_address(uint64_t address); /* ordinal; -1: no device memory stands there */

/* ---- errors, refusals, the log (device.c) ---- */
int fail(int code); /* remembers a runtime error for cudaGetLastError, and returns it */
int take_last_error(void);
int peek_last_error(void);
/* One line a call: "PID CALL DEVICE BYTES ADDRESS RESULT", to the file named by VRAMDOC_VGPU_LOG. */
void log_call(const char *call, int device, uint64_t bytes, uint64_t address, int result);
/* Says once on stderr that `name` cannot be had here, with a remark that may be NULL, and returns `code`. */
int refuse(const char *name, const char *about, int code, atomic_flag *said);
#define REFUSE(name, about, code)                                                                                      \
    EXPORT int name(void) {                                                                                            \
        static atomic_flag said = ATOMIC_FLAG_INIT;                                                                    \
        return refuse(#name, about, code, &said);                                                                      \
    }
/* The right model of work whose only effect is on values in device memory: nothing. */
#define NOTHING_TO_DO(name)                                                                                            \
    EXPORT int name(void) { return SUCCESS; }

/* ---- streams and captures (execution.c, graphs.c) ---- */
typedef struct Stream Stream;
enum { KERNEL_NODE = 0, COPY_NODE, MEMSET_NODE, HOST_NODE, CHILD_GRAPH_NODE, EMPTY_NODE, EVENT_WAIT_NODE, EVENT_RECORD_NODE };
void note_work(Stream *handle, int kind); /* work enqueued on this stream: a node, when the stream is being captured */
int capture_forbids(void);      /* SUCCESS, or CAPTURE_UNSUPPORTED when a capture forbids unsafe calls in this thread */
bool is_capturing(Stream *handle);
/* Blocks of a kernel that fit one multiprocessor: kernels never run, so this steers only how torch cuts work into launches. */
#define ASSUMED_OCCUPANCY 2

/* ---- pools (memory.c) ---- */
void trim_pools_at_synchronization(int ordinal);

/* ---- shared answers (properties.c) ---- */
int device_attribute(int *value, int attribute, int ordinal, const char *caller);
void device_uuid(unsigned char uuid[16], int index);
#define UUID_TEXT 41
void device_uuid_text(char text[UUID_TEXT], int index); /* "GPU-7672616d-..." */
const char *error_text(int code);
const char *error_name(int code);

#endif
