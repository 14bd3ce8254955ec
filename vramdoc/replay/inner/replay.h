/* What crosses between native.py and the inner loop. Every struct here has its twin in structs.py, field by field. */
#ifndef VRAMDOC_REPLAY_H
#define VRAMDOC_REPLAY_H

#include <stdint.h>

typedef int64_t i64;
typedef uint64_t u64;

enum tie_break { TIE_ADDRESS, TIE_BLOCK_COUNTER, TIE_SEGMENT_COUNTER };
enum op { OP_ALLOC, OP_FREE, OP_HOLD, OP_COMPLETE, OP_EMPTY_CACHE, OP_FAILED, OP_FLUSH };
enum action { A_ALLOC, A_FREE_REQUESTED, A_FREE_COMPLETED, A_SEGMENT_ALLOC, A_SEGMENT_FREE, A_SEGMENT_MAP, A_SEGMENT_UNMAP, A_OOM };
enum ending { E_DONE, E_OUT_OF_MEMORY, E_REJECTED, E_DIVERGED, E_UNDEFINED, E_ASSERTION, E_HOST_MEMORY };
/* How a driver call differs from the recording; the other differences are events. */
enum difference { D_EVENT, D_MALLOC, D_MAP };

/* Settings in force and the traits of the release, as in allocator/config.py and allocator/releases.py. */
struct rules {
    u64 max_split_size, max_non_split_rounding, large_segment_size;
    u64 divisions[16];
    double gc_threshold;
    u64 limit;        /* allowed_memory_maximum; UINT64_MAX for none */
    u64 reject_above; /* throw_on_cudamalloc_oom; UINT64_MAX when off */
    u64 reserve;      /* bytes of address space for an expandable segment */
    i64 expandable, expandable_private_pools, tie_break, asserts_on_expandable, refuses_hopeless_expandable;
};

struct driver {
    u64 capacity, in_use, used, next_address;
};

/* The heap as restored by Python: blocks of a segment one after the other, linked where the next one has `linked`. */
struct start_block {
    u64 address, size, requested, tie, segment, page, pages;
    i64 stream, pool, number;
    uint8_t small, linked, mapped, state, expandable, padding[3];
};

enum state { S_FREE, S_ALLOCATED, S_PENDING };

struct columns {
    i64 count;
    const uint8_t *op;
    const int32_t *block;
    const i64 *size, *stream;
    const int16_t *pool;
};

struct recorded {
    i64 count; /* 0 when nothing is followed */
    const uint8_t *action;
    const i64 *address, *size, *stream;
    i64 has_requests; /* whether free_requested was recorded at all */
};

struct stat {
    i64 current, peak, allocated, freed;
};

enum counter { ACTIVE, ACTIVE_BYTES, ALLOCATED_BYTES, ALLOCATION, INACTIVE_SPLIT, INACTIVE_SPLIT_BYTES, REQUESTED_BYTES, RESERVED_BYTES, SEGMENT, COUNTERS };
enum pool_kind { POOL_ALL, POOL_SMALL, POOL_LARGE, POOL_KINDS };
enum scalar { ALLOC_RETRIES, DEVICE_ALLOC, DEVICE_FREE, OOM_REJECTIONS, OOMS, SYNC_ALL_STREAMS, SCALARS };

struct peak {
    i64 operation, reserved, active, allocated, requested, returnable;
};

struct outcome {
    struct stat stats[COUNTERS][POOL_KINDS], oversize_allocations, oversize_segments;
    i64 scalars[SCALARS];
    struct peak peak;
    i64 operations, avoided, ending;
    i64 failed_operation, failed_tried, failed_free, failed_reserved, failed_active;
    i64 cursor, difference, actual_action;
    u64 actual_address, actual_size;
    i64 actual_stream;
};

struct job {
    const struct rules *rules;
    struct driver driver;
    i64 pools, blocks, start_count;
    u64 counter;
    const struct start_block *start;
    struct columns requests;
    struct recorded recorded;
    struct stat *private_reserved; /* [pools][POOL_KINDS] */
    i64 *reserved, *active, *allocated; /* timeline, or NULL */
    uint8_t *explicit_flushes; /* by operation: a FLUSH that must have been empty_cache */
};

#endif
