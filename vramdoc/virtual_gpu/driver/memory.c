/* Device memory, stream-ordered pools, pinned host memory, copies. */
#define _GNU_SOURCE
#include "device.h"

#include <stdlib.h>
#include <string.h>

/* ---- cudaMalloc ------------------------------------------------------------------------------------------------ */
EXPORT int cudaMalloc(void **pointer, size_t bytes) {
    LOCKED;
    *pointer = NULL;
    if (bytes == 0) return SUCCESS;
    int forbidden = capture_forbids(), device = current_device();
    if (forbidden) return fail(forbidden);
    if (!device_at(device)) return fail(INVALID_DEVICE);
    uint64_t charged = round_up(bytes, PAGE);
    if (!create_context(device) || !charge(device, charged)) {
        log_call("cudaMalloc", device, bytes, 0, OUT_OF_MEMORY);
        return fail(OUT_OF_MEMORY);
    }
    uint64_t start = take_addresses(charged);
    if (!add_range(&allocated, (Range){.start = start, .bytes = bytes, .charged = charged, .device = device})) abort();
    *pointer = (void *)start;
    log_call("cudaMalloc", device, bytes, start, SUCCESS);
    return SUCCESS;
}

static void free_in_pool(Range *range);

EXPORT int cudaFree(void *pointer) {
    LOCKED;
    int device = current_device();
    if (!pointer) return create_context(device) ? SUCCESS : fail(OUT_OF_MEMORY); /* the customary way to make a context */
    int forbidden = capture_forbids();
    if (forbidden) return fail(forbidden);
    Range *range = find_range(&allocated, (uint64_t)pointer);
    if (!range || range->start != (uint64_t)pointer) return fail(INVALID_VALUE);
    log_call("cudaFree", range->device, range->bytes, range->start, SUCCESS);
    if (range->pool)
        free_in_pool(range);
    else
        refund(range->device, range->charged);
    remove_range(&allocated, range);
    trim_pools_at_synchronization(device);
    return SUCCESS;
}

EXPORT int cudaMemGetInfo(size_t *free_out, size_t *total_out) {
    LOCKED;
    int device = current_device();
    if (!create_context(device)) return fail(device_at(device) ? OUT_OF_MEMORY : INVALID_DEVICE);
    *free_out = free_bytes(device);
    *total_out = settings()->total;
    return SUCCESS;
}

/* ---- stream-ordered pools (cudaMallocAsync) --------------------------------------------------------------------
 * The driver may remap a pool's physical memory at will, so a pool has no fragmentation of its own: it holds `reserved`
 * bytes, grown in chunks of 32 MiB, of which `used` are handed out in multiples of 512. At a synchronisation what exceeds
 * the release threshold goes back. Chunk size and remapping are NVIDIA's description and observation, not a contract. */
#define POOL_CHUNK (32 * MIB)
#define POOL_ALIGNMENT 512
struct Pool {
    int device;
    uint64_t threshold, reserved, reserved_high, used, used_high;
    struct Pool *next;
};
static Pool default_pools[MAX_DEVICES];
static Pool *created_pools;

static Pool *default_pool(int ordinal) {
    Pool *pool = &default_pools[physical_index(ordinal)];
    pool->device = ordinal;
    return pool;
}
static void shrink_pool(Pool *pool, uint64_t keep) {
    uint64_t wanted = round_up(pool->used > keep ? pool->used : keep, POOL_CHUNK);
    if (wanted >= pool->reserved) return;
    refund(pool->device, pool->reserved - wanted);
    log_call("pool-release", pool->device, pool->reserved - wanted, 0, SUCCESS);
    pool->reserved = wanted;
}
static bool grow_pool(Pool *pool, uint64_t used) {
    if (used <= pool->reserved) return true;
    uint64_t more = round_up(used - pool->reserved, POOL_CHUNK);
    if (!charge(pool->device, more)) {
        more = round_up(used - pool->reserved, PAGE); /* the last chunk may be a short one */
        if (!charge(pool->device, more)) return false;
    }
    pool->reserved += more;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    log_call("pool-grow", pool->device, more, 0, SUCCESS);
    return true;
}
static int allocate_in_pool(void **pointer, uint64_t bytes, Pool *pool, Stream *stream, const char *caller) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    *pointer = NULL;
    if (is_capturing(stream)) return refuse(caller, "inside a stream capture", NOT_SUPPORTED, &said);
    if (bytes == 0) return SUCCESS;
    uint64_t charged = round_up(bytes, POOL_ALIGNMENT);
    if (!create_context(pool->device) || !grow_pool(pool, pool->used + charged)) {
        log_call(caller, pool->device, bytes, 0, OUT_OF_MEMORY);
        return fail(OUT_OF_MEMORY);
    }
    pool->used += charged;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    uint64_t start = take_addresses(bytes);
    Range range = {.start = start, .bytes = bytes, .charged = charged, .device = pool->device, .pool = pool};
    if (!add_range(&allocated, range)) abort();
    *pointer = (void *)start;
    log_call(caller, pool->device, bytes, start, SUCCESS);
    return SUCCESS;
}
static void free_in_pool(Range *range) { range->pool->used -= range->charged; }

void trim_pools_at_synchronization(int ordinal) {
    if (!device_at(ordinal)) return;
    shrink_pool(default_pool(ordinal), default_pool(ordinal)->threshold);
    for (Pool *pool = created_pools; pool; pool = pool->next)
        if (pool->device == ordinal) shrink_pool(pool, pool->threshold);
}

EXPORT int cudaMallocAsync(void **pointer, size_t bytes, Stream *stream) {
    LOCKED;
    if (!device_at(current_device())) return fail(INVALID_DEVICE);
    return allocate_in_pool(pointer, bytes, default_pool(current_device()), stream, "cudaMallocAsync");
}
EXPORT int cudaMallocFromPoolAsync(void **pointer, size_t bytes, Pool *pool, Stream *stream) {
    LOCKED;
    return allocate_in_pool(pointer, bytes, pool, stream, "cudaMallocFromPoolAsync");
}
EXPORT int cudaFreeAsync(void *pointer, Stream *stream) {
    LOCKED;
    (void)stream;
    if (!pointer) return SUCCESS;
    Range *range = find_range(&allocated, (uint64_t)pointer);
    if (!range || range->start != (uint64_t)pointer) return fail(INVALID_VALUE);
    log_call("cudaFreeAsync", range->device, range->bytes, range->start, SUCCESS);
    if (range->pool)
        free_in_pool(range);
    else
        refund(range->device, range->charged);
    remove_range(&allocated, range);
    return SUCCESS;
}
EXPORT int cudaDeviceGetDefaultMemPool(Pool **pool, int device) {
    LOCKED;
    if (!device_at(device)) return fail(INVALID_DEVICE);
    *pool = default_pool(device);
    return SUCCESS;
}
EXPORT int cudaDeviceGetMemPool(Pool **pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }

typedef struct { /* cudaMemPoolProps up to the field that we read */
    int allocation_type, handle_types;
    struct {
        int type, id;
    } location;
} PoolProps;
EXPORT int cudaMemPoolCreate(Pool **pool, const PoolProps *props) {
    LOCKED;
    if (!device_at(props->location.id)) return fail(INVALID_DEVICE);
    Pool *made = calloc(1, sizeof *made);
    if (!made) return fail(OUT_OF_MEMORY);
    made->device = props->location.id;
    made->next = created_pools;
    *pool = created_pools = made;
    return SUCCESS;
}
EXPORT int cudaMemPoolDestroy(Pool *pool) {
    LOCKED;
    for (Pool **link = &created_pools; *link; link = &(*link)->next) {
        if (*link != pool) continue;
        if (pool->used) return fail(INVALID_VALUE); /* CUDA defers this until the last free; not modelled */
        refund(pool->device, pool->reserved);
        *link = pool->next;
        free(pool);
        return SUCCESS;
    }
    return fail(INVALID_VALUE);
}
EXPORT int cudaMemPoolTrimTo(Pool *pool, size_t keep) {
    LOCKED;
    shrink_pool(pool, keep);
    return SUCCESS;
}
enum { REUSE_FIRST = 1, REUSE_LAST = 3, THRESHOLD = 4, RESERVED_NOW, RESERVED_HIGH, USED_NOW, USED_HIGH };
EXPORT int cudaMemPoolSetAttribute(Pool *pool, int attribute, void *value) {
    LOCKED;
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST) return SUCCESS; /* work is done at once: reuse never waits */
    if (attribute == THRESHOLD) {
        memcpy(&pool->threshold, value, sizeof pool->threshold);
        if (pool->threshold > settings()->total) pool->threshold = settings()->total; /* UINT64_MAX would not round up */
    } else if (attribute == RESERVED_HIGH) {
        pool->reserved_high = pool->reserved;
    } else if (attribute == USED_HIGH) {
        pool->used_high = pool->used;
    } else {
        return fail(INVALID_VALUE);
    }
    return SUCCESS;
}
EXPORT int cudaMemPoolGetAttribute(Pool *pool, int attribute, void *value) {
    LOCKED;
    const uint64_t *field = attribute == THRESHOLD       ? &pool->threshold
                            : attribute == RESERVED_NOW  ? &pool->reserved
                            : attribute == RESERVED_HIGH ? &pool->reserved_high
                            : attribute == USED_NOW      ? &pool->used
                            : attribute == USED_HIGH     ? &pool->used_high
                                                         : NULL;
    if (!field) return fail(INVALID_VALUE);
    memcpy(value, field, sizeof *field);
    return SUCCESS;
}
NOTHING_TO_DO(cudaMemPoolSetAccess) /* who may read the pool changes no account */
/* No capture owns memory here (allocating inside one is refused), so every graph figure is 0 and stays so. */
EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value) {
    (void)device, (void)attribute;
    *value = 0;
    return SUCCESS;
}
NOTHING_TO_DO(cudaDeviceSetGraphMemAttribute)
NOTHING_TO_DO(cudaDeviceGraphMemTrim)

/* ---- pinned host memory: real memory of the host, apart from the device's accounts ------------------------------ */
EXPORT int cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    LOCKED;
    (void)flags;
    int forbidden = capture_forbids();
    if (forbidden) return fail(forbidden);
    *pointer = bytes ? aligned_alloc(4096, round_up(bytes, 4096)) : NULL;
    if (bytes && !*pointer) return fail(OUT_OF_MEMORY);
    if (bytes) {
        Range range = {.start = (uint64_t)*pointer, .bytes = bytes, .charged = 1, .device = current_device()};
        if (!add_range(&pinned, range)) abort();
    }
    log_call("cudaHostAlloc", -1, bytes, (uint64_t)*pointer, SUCCESS);
    return SUCCESS;
}
EXPORT int cudaMallocHost(void **pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
EXPORT int cudaFreeHost(void *pointer) {
    LOCKED;
    if (!pointer) return SUCCESS;
    Range *range = find_range(&pinned, (uint64_t)pointer);
    if (!range || range->start != (uint64_t)pointer || !range->charged) return fail(INVALID_VALUE);
    log_call("cudaFreeHost", -1, range->bytes, range->start, SUCCESS);
    remove_range(&pinned, range);
    free(pointer);
    return SUCCESS;
}
EXPORT int cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
    LOCKED;
    (void)flags;
    if (!pointer || !bytes) return fail(INVALID_VALUE);
    if (find_range(&pinned, (uint64_t)pointer)) return fail(HOST_MEMORY_ALREADY_REGISTERED);
    /* charged = 0: the memory is the caller's, cudaFreeHost must not free it */
    if (!add_range(&pinned, (Range){.start = (uint64_t)pointer, .bytes = bytes, .device = current_device()})) abort();
    log_call("cudaHostRegister", -1, bytes, (uint64_t)pointer, SUCCESS);
    return SUCCESS;
}
EXPORT int cudaHostUnregister(void *pointer) {
    LOCKED;
    Range *range = find_range(&pinned, (uint64_t)pointer);
    if (!range || range->start != (uint64_t)pointer || range->charged) return fail(HOST_MEMORY_NOT_REGISTERED);
    log_call("cudaHostUnregister", -1, range->bytes, range->start, SUCCESS);
    remove_range(&pinned, range);
    return SUCCESS;
}
EXPORT int cudaHostGetDevicePointer(void **device_pointer, void *host_pointer, unsigned flags) {
    LOCKED;
    (void)flags;
    if (!find_range(&pinned, (uint64_t)host_pointer)) return fail(INVALID_VALUE);
    *device_pointer = host_pointer; /* unified addressing: one number for both sides */
    return SUCCESS;
}

enum { UNREGISTERED = 0, HOST = 1, DEVICE = 2 };
typedef struct { /* cudaPointerAttributes; CUDA 13 appends `long reserved[8]`, which must be zero */
    int type, device;
    void *device_pointer, *host_pointer;
#if CUDART_VERSION >= 13000
    long appendix[8];
#endif
} PointerAttributes;
EXPORT int cudaPointerGetAttributes(PointerAttributes *out, const void *pointer) {
    LOCKED;
    const Range *host = find_range(&pinned, (uint64_t)pointer);
    int device = device_of_address((uint64_t)pointer);
    PointerAttributes found = {.type = UNREGISTERED, .device = -2, .host_pointer = (void *)pointer};
    if (host)
        found = (PointerAttributes){.type = HOST,
                                    .device = host->device,
                                    .device_pointer = (void *)pointer,
                                    .host_pointer = (void *)pointer};
    else if (device >= 0)
        found = (PointerAttributes){.type = DEVICE, .device = device, .device_pointer = (void *)pointer};
    *out = found;
    return SUCCESS;
}

/* ---- copies: what leaves the device is zeros, because no values are kept there ----------------------------------- */
enum { HOST_TO_HOST = 0, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };
static int direction(const void *to, const void *from, int kind) {
    if (kind != BY_ADDRESS) return kind;
    bool to_device = !find_range(&pinned, (uint64_t)to) && device_of_address((uint64_t)to) >= 0;
    bool from_device = !find_range(&pinned, (uint64_t)from) && device_of_address((uint64_t)from) >= 0;
    return to_device ? (from_device ? DEVICE_TO_DEVICE : HOST_TO_DEVICE) : (from_device ? DEVICE_TO_HOST : HOST_TO_HOST);
}
static int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind) {
    switch (direction(to, from, kind)) {
    case HOST_TO_HOST:
        for (size_t row = 0; row < rows; row++)
            memcpy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
        return SUCCESS;
    case DEVICE_TO_HOST:
        for (size_t row = 0; row < rows; row++) memset((char *)to + row * to_pitch, 0, width);
        return SUCCESS;
    case HOST_TO_DEVICE:
    case DEVICE_TO_DEVICE:
        return SUCCESS;
    default:
        return fail(21); /* cudaErrorInvalidMemcpyDirection */
    }
}
EXPORT int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    LOCKED;
    return copy_rows(to, 0, from, 0, bytes, 1, kind);
}
EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, Stream *stream) {
    LOCKED;
    note_work(stream, COPY_NODE);
    return copy_rows(to, 0, from, 0, bytes, 1, kind);
}
EXPORT int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind) {
    LOCKED;
    return copy_rows(to, to_pitch, from, from_pitch, width, rows, kind);
}
EXPORT int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                             int kind, Stream *stream) {
    LOCKED;
    note_work(stream, COPY_NODE);
    return copy_rows(to, to_pitch, from, from_pitch, width, rows, kind);
}
EXPORT int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, Stream *stream) {
    LOCKED;
    (void)to, (void)to_device, (void)from, (void)from_device, (void)bytes;
    note_work(stream, COPY_NODE);
    return SUCCESS;
}
EXPORT int cudaMemsetAsync(void *pointer, int value, size_t bytes, Stream *stream) {
    LOCKED;
    (void)pointer, (void)value, (void)bytes;
    note_work(stream, MEMSET_NODE);
    return SUCCESS;
}
NOTHING_TO_DO(cudaMemset)
NOTHING_TO_DO(cudaMemcpyPeer)
NOTHING_TO_DO(cudaMemcpyToSymbol) /* constants of kernels that never run */
