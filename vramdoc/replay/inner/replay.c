/* The simulator's inner loop: vramdoc/allocator/{heap,reclaim,caching}.py again, for traces of a million events.
 *
 * The Python is the reference; this file follows it function by function and tests compare the two. It holds what a replay
 * needs and no more: no record_stream (a recording shows only when a free completed), no captures, no custom allocators, no
 * settings that change on the way. One call, one thread, no globals; everything it allocates is freed before it returns.
 */
#include "replay.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)
enum { MIN_BLOCK = 512, CHUNK = 4096 };
static const u64 SMALL_SIZE = MIB, SMALL_BUFFER = 2 * MIB, MIN_LARGE_ALLOC = 10 * MIB, ROUND_LARGE = 2 * MIB, PAGE = 2 * MIB;

struct segment { /* one expandable address range */
    u64 address, page, pages;
    i64 stream;
    int released;
};

struct pool;

struct block {
    i64 stream;
    u64 size, tie, address, requested, gc_base;
    struct pool *pool;
    struct block *prev, *next;
    struct segment *segment;
    struct block *held_prev, *held_next;
    i64 number; /* of the request it serves; objects serve many */
    uint8_t allocated, mapped, pending;
};

struct set { /* sorted; free blocks by (stream, size, tie, address), unmapped ones by (stream, address) */
    struct block **at;
    size_t count, room;
};

struct pool {
    struct set free, unmapped;
    u64 searches;
    i64 owner; /* index of the private pool; 0 is the default one */
    int small;
};

struct chunk {
    struct chunk *next;
    struct block blocks[CHUNK];
};

struct ranges {
    struct ranges *next;
    struct segment segment;
};

struct heap {
    const struct job *job;
    const struct rules *rules;
    struct driver driver;
    struct outcome *out;
    struct pool *pools; /* [job->pools][2]: small, large */
    struct block **by_number;
    struct block *spare;
    struct chunk *chunks;
    size_t chunk_used;
    struct ranges *ranges;
    struct block held; /* ring of blocks that wait for their completion, oldest first */
    struct set scratch;
    u64 total_allocated, counter;
    i64 cursor, operation;
    jmp_buf stop;
};

/* ---- stopping ------------------------------------------------------------------------------------------------------- */

static _Noreturn void stop(struct heap *h, enum ending ending) {
    h->out->ending = ending;
    longjmp(h->stop, 1);
}

static _Noreturn void differ(struct heap *h, enum difference what, int action, u64 address, u64 size, i64 stream) {
    struct outcome *out = h->out;
    out->cursor = h->cursor;
    out->difference = what;
    out->actual_action = action;
    out->actual_address = address;
    out->actual_size = size;
    out->actual_stream = stream;
    stop(h, E_DIVERGED);
}

static void *need(struct heap *h, void *memory) {
    if (!memory) stop(h, E_HOST_MEMORY);
    return memory;
}

/* ---- statistics ----------------------------------------------------------------------------------------------------- */

static inline void increase(struct stat *s, i64 amount) {
    s->current += amount;
    if (s->current > s->peak) s->peak = s->current;
    s->allocated += amount;
}

static inline void decrease(struct stat *s, i64 amount) {
    s->current -= amount;
    s->freed += amount;
}

static inline void change(struct stat *all, struct stat *part, i64 amount) {
    if (amount > 0) {
        increase(all, amount);
        increase(part, amount);
    } else if (amount < 0) {
        decrease(all, -amount);
        decrease(part, -amount);
    }
}

static inline void count(struct heap *h, enum counter counter, const struct pool *pool, i64 amount) {
    struct stat *stats = h->out->stats[counter];
    change(&stats[POOL_ALL], &stats[pool->small ? POOL_SMALL : POOL_LARGE], amount);
}

static void reserved(struct heap *h, const struct pool *pool, i64 amount) {
    count(h, RESERVED_BYTES, pool, amount);
    if (pool->owner) {
        struct stat *stats = h->job->private_reserved + pool->owner * POOL_KINDS;
        change(&stats[POOL_ALL], &stats[pool->small ? POOL_SMALL : POOL_LARGE], amount);
    }
}

/* ---- events and the recording (follow.py) ---------------------------------------------------------------------------- */

static inline int following(const struct heap *h) { return h->job->recorded.count > 0; }

static inline int next_action(const struct heap *h) {
    return h->cursor < h->job->recorded.count ? h->job->recorded.action[h->cursor] : -1;
}

static inline void record(struct heap *h, int action, u64 address, u64 size, i64 stream) {
    const struct recorded *r = &h->job->recorded;
    if (!following(h) || (action == A_FREE_REQUESTED && !r->has_requests)) return;
    i64 i = h->cursor;
    if (i >= r->count || r->action[i] != action || (u64)r->size[i] != size || r->stream[i] != stream ||
        ((u64)r->address[i] != address && action != A_OOM))
        differ(h, D_EVENT, action, address, size, stream);
    h->cursor++;
}

static int recording_goes_on_to_free(const struct heap *h) {
    int next = next_action(h);
    return next == -1 || next == A_SEGMENT_FREE || next == A_SEGMENT_UNMAP || next == A_OOM || next == A_FREE_COMPLETED;
}

/* ---- driver (device.py) ---------------------------------------------------------------------------------------------- */

static inline u64 up(u64 n, u64 step) { return (n + step - 1) / step * step; }

static u64 free_bytes(const struct heap *h) { return h->driver.capacity - h->driver.in_use - h->driver.used; }

static u64 take_addresses(struct heap *h, u64 size) {
    u64 address = h->driver.next_address;
    h->driver.next_address += up(size, PAGE);
    return address;
}

static int holds(const struct ranges *r, i64 stream, u64 page, u64 address) {
    const struct segment *s = &r->segment;
    return !s->released && s->stream == stream && s->page == page && address >= s->address && address - s->address < s->page * s->pages;
}

static u64 driver_malloc(struct heap *h, u64 size) {
    u64 charge = up(size, PAGE);
    if (following(h)) {
        const struct recorded *r = &h->job->recorded;
        if (recording_goes_on_to_free(h)) return 0;
        if (next_action(h) != A_SEGMENT_ALLOC || (u64)r->size[h->cursor] != size) differ(h, D_MALLOC, 0, 0, size, 0);
        h->driver.used += charge;
        return (u64)r->address[h->cursor];
    }
    if (charge > free_bytes(h)) return 0;
    h->driver.used += charge;
    return take_addresses(h, size);
}

/* Following, a range begins where the recording maps pages of this stream and kind outside all its ranges so far. */
static u64 driver_reserve(struct heap *h, u64 size, i64 stream, u64 page) {
    const struct recorded *r = &h->job->recorded;
    for (i64 i = h->cursor; i < r->count; i++) {
        if (r->action[i] != A_SEGMENT_MAP || r->stream[i] != stream) continue;
        if (((u64)r->size[i] == SMALL_BUFFER) != (page == SMALL_BUFFER)) continue;
        const struct ranges *known = h->ranges;
        while (known && !holds(known, stream, page, (u64)r->address[i])) known = known->next;
        if (!known) return (u64)r->address[i];
    }
    return take_addresses(h, size);
}

static int driver_map(struct heap *h, u64 address, u64 size) {
    if (following(h)) {
        const struct recorded *r = &h->job->recorded;
        if (recording_goes_on_to_free(h)) return 0;
        if (next_action(h) != A_SEGMENT_MAP || (u64)r->address[h->cursor] != address || (u64)r->size[h->cursor] != size)
            differ(h, D_MAP, 0, address, size, 0);
    } else if (size > free_bytes(h)) {
        return 0;
    }
    h->driver.used += size;
    return 1;
}

/* ---- sizes (sizes.py) ------------------------------------------------------------------------------------------------ */

static int log2_floor(u64 n) { return 63 - __builtin_clzll(n); }

static u64 round_size(const struct rules *r, u64 size) {
    if (size < MIN_BLOCK) return MIN_BLOCK;
    int index = log2_floor(size) - 20;
    u64 division = r->divisions[index < 0 ? 0 : index > 15 ? 15 : index];
    if (division > 1 && size > MIN_BLOCK * division) return up(size, (1ull << log2_floor(size)) / division);
    return up(size, MIN_BLOCK);
}

static u64 allocation_size(const struct rules *r, u64 size) {
    if (size <= SMALL_SIZE) return SMALL_BUFFER;
    if (size < MIN_LARGE_ALLOC) return r->large_segment_size;
    return up(size, ROUND_LARGE);
}

/* ---- sets of blocks (blocks.py) --------------------------------------------------------------------------------------- */

static inline int before(const struct block *a, i64 stream, u64 size, u64 tie, u64 address) {
    if (a->stream != stream) return a->stream < stream;
    if (a->size != size) return a->size < size;
    if (a->tie != tie) return a->tie < tie;
    return a->address < address;
}

static size_t lower_bound(const struct set *s, i64 stream, u64 size, u64 tie, u64 address) {
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (before(s->at[middle], stream, size, tie, address)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static size_t lower_bound_unmapped(const struct set *s, i64 stream, u64 address) {
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct block *b = s->at[middle];
        if (b->stream < stream || (b->stream == stream && b->address < address)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void insert_at(struct heap *h, struct set *s, size_t index, struct block *b) {
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        s->at = need(h, realloc(s->at, room * sizeof *s->at));
        s->room = room;
    }
    memmove(s->at + index + 1, s->at + index, (s->count - index) * sizeof *s->at);
    s->at[index] = b;
    s->count++;
}

static void remove_at(struct set *s, size_t index) {
    s->count--;
    memmove(s->at + index, s->at + index + 1, (s->count - index) * sizeof *s->at);
}

static void insert_free(struct heap *h, struct block *b) {
    struct set *s = &b->pool->free;
    b->gc_base = b->pool->searches;
    insert_at(h, s, lower_bound(s, b->stream, b->size, b->tie, b->address), b);
}

static void remove_free(struct block *b) {
    struct set *s = &b->pool->free;
    remove_at(s, lower_bound(s, b->stream, b->size, b->tie, b->address));
}

static void insert_unmapped(struct heap *h, struct block *b) {
    struct set *s = &b->pool->unmapped;
    insert_at(h, s, lower_bound_unmapped(s, b->stream, b->address), b);
}

static void remove_unmapped(struct block *b) {
    struct set *s = &b->pool->unmapped;
    remove_at(s, lower_bound_unmapped(s, b->stream, b->address));
}

static inline int is_split(const struct block *b) { return b->prev || b->next; }
static inline int is_active(const struct block *b) { return b->allocated || b->pending; }

static struct block *raw_block(struct heap *h) {
    if (h->spare) {
        struct block *b = h->spare;
        h->spare = b->next;
        return b;
    }
    if (!h->chunks || h->chunk_used == CHUNK) {
        struct chunk *c = need(h, malloc(sizeof *c));
        c->next = h->chunks;
        h->chunks = c;
        h->chunk_used = 0;
    }
    return &h->chunks->blocks[h->chunk_used++];
}

static void drop_block(struct heap *h, struct block *b) {
    b->pending = 0;
    b->next = h->spare;
    h->spare = b;
}

static struct block *carve(struct heap *h, i64 stream, u64 size, struct pool *pool, u64 address, struct segment *segment, const struct block *origin) {
    struct block *b = raw_block(h);
    memset(b, 0, sizeof *b);
    b->stream = stream;
    b->size = size;
    b->pool = pool;
    b->address = address;
    b->segment = segment;
    b->mapped = 1;
    if (h->rules->tie_break == TIE_SEGMENT_COUNTER && origin) b->tie = origin->tie;
    else if (h->rules->tie_break != TIE_ADDRESS) b->tie = h->counter++;
    return b;
}

static void splice(struct block *b, struct block *prev, struct block *next) {
    b->prev = prev;
    b->next = next;
    if (prev) prev->next = b;
    if (next) next->prev = b;
}

/* ---- finding (heap.py) ------------------------------------------------------------------------------------------------ */

static inline int collects_garbage(const struct heap *h) { return h->rules->limit != UINT64_MAX && h->rules->gc_threshold > 0.0; }

static u64 extended(const struct block *b) { return b->size + (b->next && !b->next->mapped ? b->next->size : 0); }

/* The place of the best fit in the free set, or its count for none. */
static size_t find(const struct heap *h, const struct pool *pool, i64 stream, u64 size, int expandable) {
    const struct set *s = &pool->free;
    size_t i = lower_bound(s, stream, size, 0, 0);
    if (i == s->count || s->at[i]->stream != stream) return s->count;
    if (s->at[i]->segment && expandable) {
        while (s->at[i]->segment && i + 1 < s->count && s->at[i + 1]->stream == stream && extended(s->at[i + 1]) < extended(s->at[i])) i++;
    } else if (s->at[i]->segment) {
        while (i < s->count && s->at[i]->stream == stream && s->at[i]->segment) i++;
        if (i == s->count || s->at[i]->stream != stream) return s->count;
    }
    u64 found = s->at[i]->size, oversize = h->rules->max_split_size;
    if (size < oversize && found >= oversize) return s->count;
    if (size >= oversize && found >= size + h->rules->max_non_split_rounding) return s->count;
    return i;
}

static struct block *get_free_block(struct heap *h, struct pool *pool, i64 stream, u64 size, int expandable) {
    if (collects_garbage(h)) pool->searches++;
    size_t i = find(h, pool, stream, size, expandable);
    if (i == pool->free.count) return NULL;
    struct block *b = pool->free.at[i];
    remove_at(&pool->free, i);
    return b;
}

/* ---- obtaining, cutting and joining ------------------------------------------------------------------------------------ */

static void obtained(struct heap *h, const struct pool *pool, u64 size) {
    h->total_allocated += size;
    h->out->scalars[DEVICE_ALLOC]++;
    reserved(h, pool, (i64)size);
}

static void returned(struct heap *h, const struct pool *pool, u64 size) {
    h->total_allocated -= size;
    h->out->scalars[DEVICE_FREE]++;
    reserved(h, pool, -(i64)size);
}

static struct block *malloc_segment(struct heap *h, struct pool *pool, i64 stream, u64 size) {
    u64 address = driver_malloc(h, size);
    if (!address) return NULL;
    obtained(h, pool, size);
    count(h, SEGMENT, pool, 1);
    if (size >= h->rules->max_split_size) increase(&h->out->oversize_segments, 1);
    record(h, A_SEGMENT_ALLOC, address, size, stream);
    return carve(h, stream, size, pool, address, NULL, NULL);
}

static u64 merge(struct heap *h, struct block *into, struct block *other) {
    if (!other || is_active(other) || other->mapped != into->mapped) return 0;
    if (other->mapped) remove_free(other);
    else remove_unmapped(other);
    if (other == into->prev) {
        into->address = other->address;
        into->prev = other->prev;
        if (into->prev) into->prev->next = into;
    } else {
        into->next = other->next;
        if (into->next) into->next->prev = into;
    }
    u64 size = other->size;
    into->size += size;
    drop_block(h, other);
    return size;
}

static int map_block(struct heap *h, struct block *b, u64 size) {
    struct segment *s = b->segment;
    struct pool *pool = b->pool;
    u64 first = (b->address - s->address) / s->page, end = (b->address + size - s->address + s->page - 1) / s->page;
    u64 address = s->address + first * s->page, mapped = (end - first) * s->page;
    if (!driver_map(h, address, mapped)) return 0;
    remove_unmapped(b);
    b->mapped = 1;
    if (mapped < b->size) {
        struct block *rest = carve(h, b->stream, b->size - mapped, pool, address + mapped, s, b);
        rest->mapped = 0;
        splice(rest, b, b->next);
        insert_unmapped(h, rest);
        b->size = mapped;
    }
    merge(h, b, b->prev);
    merge(h, b, b->next);
    insert_free(h, b);
    obtained(h, pool, mapped);
    record(h, A_SEGMENT_MAP, address, mapped, b->stream);
    return 1;
}

static struct segment *new_segment(struct heap *h, u64 address, u64 page, u64 pages, i64 stream) {
    struct ranges *r = need(h, malloc(sizeof *r));
    r->segment = (struct segment){address, page, pages, stream, 0};
    r->next = h->ranges;
    h->ranges = r;
    return &r->segment;
}

static u64 address_space(const struct block *b, u64 enough) {
    u64 total = 0;
    for (; total < enough && b && !is_active(b); b = b->next) total += b->size;
    return total;
}

static struct block *find_expandable_block(struct heap *h, struct pool *pool, i64 stream, u64 size) {
    struct set *s = &pool->unmapped;
    for (size_t i = lower_bound_unmapped(s, stream, 0); i < s->count && s->at[i]->stream == stream; i++) {
        struct block *b = s->at[i];
        if (b->prev && !is_active(b->prev)) b = b->prev;
        if (address_space(b, size) >= size) return b;
    }
    u64 page = pool->small ? SMALL_BUFFER : h->rules->large_segment_size, pages = (h->rules->reserve + page - 1) / page;
    u64 address = driver_reserve(h, pages * page, stream, page);
    if (h->rules->refuses_hopeless_expandable && pages * page < size) return NULL;
    struct segment *segment = new_segment(h, address, page, pages, stream);
    struct block *b = carve(h, stream, pages * page, pool, address, segment, NULL);
    b->mapped = 0;
    insert_unmapped(h, b);
    return b;
}

static struct block *try_allocate_expandable_block(struct heap *h, struct pool *pool, i64 stream, u64 size) {
    struct block *b = find_expandable_block(h, pool, stream, size);
    if (!b) return NULL;
    if (!b->mapped && !map_block(h, b, b->size < size ? b->size : size)) return NULL;
    while (b->size < size) {
        struct block *next = b->next;
        u64 missing = size - b->size;
        if (!map_block(h, next, next->size < missing ? next->size : missing)) return NULL;
        b = next; /* has absorbed the candidate */
    }
    remove_free(b);
    return b;
}

static int should_split(const struct heap *h, const struct block *b, u64 size, int expandable) {
    u64 rest = b->size - size;
    if (b->pool->small || expandable) return rest >= MIN_BLOCK;
    return size < h->rules->max_split_size && rest > SMALL_SIZE;
}

static void join_free(struct heap *h, struct block *b) {
    struct pool *pool = b->pool;
    u64 size = b->size, requested = b->requested;
    i64 blocks = 0, bytes = 0;
    record(h, A_FREE_COMPLETED, b->address, requested, b->stream);
    u64 gained = merge(h, b, b->prev);
    if (gained) blocks--, bytes -= (i64)gained;
    gained = merge(h, b, b->next);
    if (gained) blocks--, bytes -= (i64)gained;
    insert_free(h, b);
    if (!b->segment) {
        if (is_split(b)) blocks++, bytes += (i64)b->size;
        count(h, INACTIVE_SPLIT, pool, blocks);
        count(h, INACTIVE_SPLIT_BYTES, pool, bytes);
    }
    count(h, ACTIVE, pool, -1);
    count(h, ACTIVE_BYTES, pool, -(i64)size);
    count(h, REQUESTED_BYTES, pool, -(i64)requested);
}

/* ---- giving back (heap.py, reclaim.py) ---------------------------------------------------------------------------------- */

static void release_block(struct heap *h, struct block *b) {
    if (b->segment) stop(h, E_ASSERTION);
    if (is_split(b)) stop(h, E_UNDEFINED);
    record(h, A_SEGMENT_FREE, b->address, b->size, b->stream);
    h->driver.used -= up(b->size, PAGE);
    returned(h, b->pool, b->size);
    count(h, SEGMENT, b->pool, -1);
    if (b->size >= h->rules->max_split_size) decrease(&h->out->oversize_segments, 1);
    remove_free(b);
    drop_block(h, b);
}

static void unmap_block(struct heap *h, struct block *b) {
    struct segment *s = b->segment;
    struct pool *pool = b->pool;
    u64 first = (b->address - s->address + s->page - 1) / s->page, end = (b->address + b->size - s->address) / s->page;
    if (first >= end) return;
    u64 address = s->address + first * s->page, size = (end - first) * s->page;
    h->driver.used -= size;
    remove_free(b);
    u64 ahead = address - b->address, behind = b->address + b->size - (address + size);
    if (ahead) {
        struct block *piece = carve(h, b->stream, ahead, pool, b->address, s, b);
        splice(piece, b->prev, b);
        insert_free(h, piece);
    }
    if (behind) {
        struct block *piece = carve(h, b->stream, behind, pool, address + size, s, b);
        splice(piece, b, b->next);
        insert_free(h, piece);
    }
    b->address = address;
    b->size = size;
    b->mapped = 0;
    merge(h, b, b->prev);
    merge(h, b, b->next);
    insert_unmapped(h, b);
    returned(h, pool, size);
    record(h, A_SEGMENT_UNMAP, address, size, b->stream);
}

static void release_blocks(struct heap *h, struct pool *pool) {
    struct set *now = &h->scratch; /* the free set as it is before it changes */
    now->count = 0;
    for (size_t i = 0; i < pool->free.count; i++) insert_at(h, now, i, pool->free.at[i]);
    size_t expandable = 0;
    for (size_t i = 0; i < now->count; i++) {
        struct block *b = now->at[i];
        if (b->segment) now->at[expandable++] = b;
        else if (!is_split(b)) release_block(h, b);
    }
    for (size_t i = 0; i < expandable; i++) {
        struct block *b = now->at[i];
        unmap_block(h, b);
        if (!is_split(b)) {
            b->segment->released = 1;
            remove_unmapped(b);
            drop_block(h, b);
        }
    }
}

static int collectable(const struct heap *h, const struct block *b) { return !is_split(b) && (h->rules->asserts_on_expandable || !b->segment); }

static void garbage_collect_cached_blocks(struct heap *h) {
    u64 threshold = (u64)(h->rules->gc_threshold * (double)h->rules->limit);
    if (h->total_allocated <= threshold) return;
    struct pool *pool = &h->pools[1];
    struct set *s = &pool->free;
    u64 target = h->total_allocated - threshold, reclaimed = 0, total_age = 0;
    i64 candidates = 0;
    for (size_t i = 0; i < s->count; i++)
        if (collectable(h, s->at[i])) total_age += pool->searches - s->at[i]->gc_base, candidates++;
    for (int freed = 1; reclaimed < target && freed && candidates > 0;) {
        double average = (double)total_age / (double)candidates;
        freed = 0;
        for (size_t i = 0; i < s->count;) {
            struct block *b = s->at[i];
            u64 age = pool->searches - b->gc_base;
            if (!collectable(h, b) || (double)age < average) {
                i++;
                continue;
            }
            freed = 1;
            reclaimed += b->size;
            total_age -= age;
            candidates--;
            release_block(h, b);
        }
    }
}

static int release_available_cached_blocks(struct heap *h, struct pool *pool, i64 stream, u64 size) {
    u64 oversize = h->rules->max_split_size;
    if (oversize == UINT64_MAX) return 0;
    u64 wanted = size > oversize ? size : oversize, released = 0;
    int keeps = !h->rules->asserts_on_expandable;
    struct set *s = &pool->free;
    size_t i = lower_bound(s, stream, wanted, 0, 0);
    if (i < s->count && s->at[i]->stream == stream && !(keeps && s->at[i]->segment)) {
        release_block(h, s->at[i]);
        return 1;
    }
    while (i > 0 && released < wanted) {
        struct block *b = s->at[--i];
        if (b->stream != stream || b->size < oversize) break;
        if (keeps && b->segment) continue;
        released += b->size;
        release_block(h, b);
    }
    return released >= wanted;
}

/* ---- completions (caching.py) -------------------------------------------------------------------------------------------- */

static void hold(struct heap *h, struct block *b, i64 number) {
    b->pending = 1;
    b->number = number;
    b->held_prev = h->held.held_prev;
    b->held_next = &h->held;
    b->held_prev->held_next = b;
    h->held.held_prev = b;
}

static void complete(struct heap *h, struct block *b) {
    b->held_prev->held_next = b->held_next;
    b->held_next->held_prev = b->held_prev;
    b->pending = 0;
    join_free(h, b);
}

static void synchronize_and_free_events(struct heap *h) {
    h->out->scalars[SYNC_ALL_STREAMS]++;
    while (h->held.held_next != &h->held) {
        complete(h, h->held.held_next);
    }
}

static void release_cached_blocks(struct heap *h) {
    synchronize_and_free_events(h);
    release_blocks(h, &h->pools[1]);
    release_blocks(h, &h->pools[0]);
}

/* ---- malloc and free (caching.py) ----------------------------------------------------------------------------------------- */

static struct block *alloc_block(struct heap *h, struct pool *pool, i64 stream, u64 rounded, u64 wanted, int expandable) {
    if (h->rules->limit != UINT64_MAX && h->total_allocated + wanted > h->rules->limit) return NULL;
    if (h->rules->reject_above != UINT64_MAX && h->total_allocated + wanted > h->rules->reject_above) {
        h->out->scalars[OOM_REJECTIONS]++;
        h->out->failed_tried = (i64)wanted;
        stop(h, E_REJECTED);
    }
    int in_range = expandable && (!pool->owner || h->rules->expandable_private_pools);
    return in_range ? try_allocate_expandable_block(h, pool, stream, rounded) : malloc_segment(h, pool, stream, wanted);
}

static struct pool *choose_pool(struct heap *h, u64 rounded, i64 owner) { return &h->pools[2 * owner + (rounded > SMALL_SIZE)]; }

static int has_cached(struct heap *h, u64 size, i64 stream, i64 owner) {
    u64 rounded = round_size(h->rules, size);
    struct pool *pool = choose_pool(h, rounded, owner);
    return find(h, pool, stream, rounded, (int)h->rules->expandable) < pool->free.count;
}

/* NULL when out of memory, which is counted and recorded. */
static struct block *allocate(struct heap *h, u64 size, i64 stream, i64 owner) {
    u64 rounded = round_size(h->rules, size), wanted = allocation_size(h->rules, rounded);
    struct pool *pool = choose_pool(h, rounded, owner);
    int expandable = (int)h->rules->expandable;
    struct block *b = get_free_block(h, pool, stream, rounded, expandable);
    if (!b) {
        if (collects_garbage(h)) garbage_collect_cached_blocks(h);
        b = alloc_block(h, pool, stream, rounded, wanted, expandable);
        if (!b && release_available_cached_blocks(h, pool, stream, rounded)) b = alloc_block(h, pool, stream, rounded, wanted, expandable);
        if (!b) {
            release_cached_blocks(h);
            h->out->scalars[ALLOC_RETRIES]++;
            b = alloc_block(h, pool, stream, rounded, wanted, expandable);
        }
        if (!b) {
            record(h, A_OOM, free_bytes(h), rounded, stream);
            h->out->scalars[OOMS]++;
            h->out->failed_tried = (i64)wanted;
            return NULL;
        }
    }
    int was_split = is_split(b), classic = !b->segment;
    if (should_split(h, b, rounded, expandable)) {
        struct block *rest = b;
        b = carve(h, rest->stream, rounded, pool, rest->address, rest->segment, rest);
        splice(b, rest->prev, rest);
        rest->address += rounded;
        rest->size -= rounded;
        insert_free(h, rest);
        if (classic && was_split) {
            count(h, INACTIVE_SPLIT_BYTES, pool, -(i64)rounded);
        } else if (classic) {
            count(h, INACTIVE_SPLIT_BYTES, pool, (i64)rest->size);
            count(h, INACTIVE_SPLIT, pool, 1);
        }
    } else if (classic && was_split) {
        count(h, INACTIVE_SPLIT_BYTES, pool, -(i64)b->size);
        count(h, INACTIVE_SPLIT, pool, -1);
    }
    b->allocated = 1;
    b->requested = size;
    record(h, A_ALLOC, b->address, size, stream);
    count(h, ACTIVE, pool, 1);
    count(h, ACTIVE_BYTES, pool, (i64)b->size);
    count(h, REQUESTED_BYTES, pool, (i64)size);
    count(h, ALLOCATION, pool, 1);
    count(h, ALLOCATED_BYTES, pool, (i64)b->size);
    if (b->size >= h->rules->max_split_size) increase(&h->out->oversize_allocations, 1);
    return b;
}

static void request_free(struct heap *h, struct block *b) {
    b->allocated = 0;
    record(h, A_FREE_REQUESTED, b->address, b->requested, b->stream);
    count(h, ALLOCATION, b->pool, -1);
    count(h, ALLOCATED_BYTES, b->pool, -(i64)b->size);
    if (b->size >= h->rules->max_split_size) decrease(&h->out->oversize_allocations, 1);
}

/* ---- the replay (simulate.py) ----------------------------------------------------------------------------------------------- */

static i64 level(const struct heap *h, enum counter counter) { return h->out->stats[counter][POOL_ALL].current; }

static i64 returnable_bytes(const struct heap *h) {
    u64 total = 0;
    for (int half = 0; half < 2; half++) {
        const struct set *s = &h->pools[half].free;
        for (size_t i = 0; i < s->count; i++) {
            const struct block *b = s->at[i];
            if (b->segment) {
                u64 page = b->segment->page, first = (b->address - b->segment->address + page - 1) / page;
                u64 end = (b->address + b->size - b->segment->address) / page;
                if (end > first) total += (end - first) * page;
            } else if (!is_split(b)) {
                total += b->size;
            }
        }
    }
    return (i64)total;
}

static void note_peak(struct heap *h, i64 operation) {
    h->out->peak = (struct peak){
        operation,
        h->out->stats[RESERVED_BYTES][POOL_ALL].peak,
        level(h, ACTIVE_BYTES),
        level(h, ALLOCATED_BYTES),
        level(h, REQUESTED_BYTES),
        returnable_bytes(h),
    };
}

static void failed(struct heap *h, i64 operation) {
    struct outcome *out = h->out;
    out->failed_operation = operation;
    out->failed_free = (i64)free_bytes(h);
    out->failed_reserved = level(h, RESERVED_BYTES);
    out->failed_active = level(h, ACTIVE_BYTES);
}

static void restore(struct heap *h) {
    struct block *last = NULL;
    struct segment *segment = NULL;
    for (i64 i = 0; i < h->job->start_count; i++) {
        const struct start_block *s = &h->job->start[i];
        struct pool *pool = &h->pools[2 * s->pool + !s->small];
        if (s->expandable && !(s->linked && segment)) segment = new_segment(h, s->segment, s->page, s->pages, s->stream);
        struct block *b = carve(h, s->stream, s->size, pool, s->address, s->expandable ? segment : NULL, NULL);
        b->tie = s->tie;
        b->requested = s->requested;
        b->mapped = s->mapped;
        b->allocated = s->state == S_ALLOCATED;
        if (s->linked) splice(b, last, NULL);
        else if (!s->expandable) segment = NULL;
        if (s->state == S_PENDING) hold(h, b, s->number);
        else if (s->state == S_FREE && s->mapped) insert_free(h, b);
        else if (!s->mapped) insert_unmapped(h, b);
        if (s->mapped) h->total_allocated += s->size;
        if (s->number >= 0) h->by_number[s->number] = b;
        last = b;
    }
    h->counter = h->job->counter;
}

static void step(struct heap *h, i64 i) {
    const struct columns *c = &h->job->requests;
    struct block **slot = &h->by_number[c->block[i] < 0 ? 0 : c->block[i]], *b;
    switch (c->op[i]) {
    case OP_ALLOC:
        b = allocate(h, (u64)c->size[i], c->stream[i], c->pool[i]);
        if (!b) {
            failed(h, i);
            stop(h, E_OUT_OF_MEMORY);
        }
        *slot = b;
        break;
    case OP_FREE:
        request_free(h, *slot);
        join_free(h, *slot);
        break;
    case OP_HOLD:
        request_free(h, *slot);
        hold(h, *slot, c->block[i]);
        break;
    case OP_COMPLETE:
        /* A flush may have done it already; then the object is spare, or serves another request by now. */
        b = *slot;
        if (b->pending && b->number == c->block[i]) complete(h, b);
        break;
    case OP_EMPTY_CACHE:
        release_cached_blocks(h);
        break;
    case OP_FLUSH:
        /* Had the next request been in the cache, the allocator would have returned nothing on its own. */
        if (following(h) && i + 1 < c->count && has_cached(h, (u64)c->size[i + 1], c->stream[i + 1], c->pool[i + 1])) {
            h->job->explicit_flushes[i] = 1;
            release_cached_blocks(h);
        }
        break;
    case OP_FAILED:
        b = allocate(h, (u64)c->size[i], c->stream[i], c->pool[i]);
        if (!b) {
            if (i + 1 == c->count) {
                failed(h, i);
                h->out->ending = E_OUT_OF_MEMORY;
            }
            break;
        }
        h->out->avoided++;
        if (i + 1 == c->count) break;
        if (h->out->stats[RESERVED_BYTES][POOL_ALL].peak > h->out->peak.reserved) note_peak(h, i);
        request_free(h, b);
        join_free(h, b);
        break;
    }
}

static void run(struct heap *h) {
    const struct job *job = h->job;
    note_peak(h, -1);
    for (; h->operation < job->requests.count; h->operation++) {
        i64 i = h->operation;
        step(h, i);
        if (h->out->stats[RESERVED_BYTES][POOL_ALL].peak > h->out->peak.reserved) note_peak(h, i);
        if (job->reserved) {
            job->reserved[i] = level(h, RESERVED_BYTES);
            job->active[i] = level(h, ACTIVE_BYTES);
            job->allocated[i] = level(h, ALLOCATED_BYTES);
        }
    }
}

static void free_all(struct heap *h) {
    for (i64 i = 0; h->pools && i < 2 * h->job->pools; i++) {
        free(h->pools[i].free.at);
        free(h->pools[i].unmapped.at);
    }
    free(h->pools);
    free(h->by_number);
    free(h->scratch.at);
    while (h->chunks) {
        struct chunk *next = h->chunks->next;
        free(h->chunks);
        h->chunks = next;
    }
    while (h->ranges) {
        struct ranges *next = h->ranges->next;
        free(h->ranges);
        h->ranges = next;
    }
    free(h);
}

/* `out` comes with the statistics of the restored heap. Returns 0, or 1 when the host ran out of memory. */
__attribute__((visibility("default"))) int vramdoc_replay(const struct job *job, struct outcome *out) {
    struct heap *h = calloc(1, sizeof *h);
    if (!h) return 1;
    h->job = job;
    h->rules = job->rules;
    h->driver = job->driver;
    h->out = out;
    h->held.held_next = h->held.held_prev = &h->held;
    out->ending = E_DONE;
    if (!setjmp(h->stop)) {
        h->pools = need(h, calloc((size_t)(2 * job->pools), sizeof *h->pools));
        for (i64 i = 0; i < 2 * job->pools; i++) {
            h->pools[i].owner = i / 2;
            h->pools[i].small = i % 2 == 0;
        }
        h->by_number = need(h, calloc((size_t)job->blocks + 1, sizeof *h->by_number));
        restore(h);
        run(h);
    } else if (out->ending == E_REJECTED) {
        failed(h, h->operation);
    }
    out->operations = h->operation;
    int host = out->ending == E_HOST_MEMORY;
    free_all(h);
    return host;
}
