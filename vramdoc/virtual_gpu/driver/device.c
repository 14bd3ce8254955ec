/* Settings, the accounts of each device, addresses, the log, and refusals. */
#define _GNU_SOURCE
#include "device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- settings -------------------------------------------------------------------------------------------------- */
static Settings set;
static Device devices[MAX_DEVICES];
static int visible[MAX_DEVICES], visible_count;
static FILE *log_file;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t number(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* CUDA_VISIBLE_DEVICES: a list of indices or UUIDs; as CUDA does, what follows the first invalid entry is invisible. */
static void read_visible_devices(void) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) {
        for (int i = 0; i < set.devices; i++) visible[visible_count++] = i;
        return;
    }
    while (*text && visible_count < MAX_DEVICES) {
        char *end = NULL;
        long index = -1;
        if (strncmp(text, "GPU-", 4) == 0) {
            size_t length = strcspn(text, ",");
            for (int i = 0; i < set.devices; i++) {
                char uuid[UUID_TEXT];
                device_uuid_text(uuid, i);
                if (strncmp(text, uuid, length) == 0) index = i; /* a unique prefix is enough */
            }
            text += length;
        } else {
            index = strtol(text, &end, 10);
            if (end == text) return;
            text = end;
        }
        if (index < 0 || index >= set.devices) return;
        visible[visible_count++] = (int)index;
        text += strspn(text, " ,");
    }
}

static void lock_for_fork(void);
static void unlock_after_fork(void);

static void read_settings(void) {
    pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork); /* workers of a data loader are forked */
    const char *name = getenv("VRAMDOC_VGPU_NAME"), *path = getenv("VRAMDOC_VGPU_LOG");
    snprintf(set.name, sizeof set.name, "%s", name ? name : "virtual GPU");
    set.total = number("VRAMDOC_VGPU_TOTAL", 0);
    set.context = round_up(number("VRAMDOC_VGPU_CONTEXT", 0), PAGE);
    set.cublas_handle = round_up(number("VRAMDOC_VGPU_CUBLAS_HANDLE", 0), PAGE);
    set.foreign = number("VRAMDOC_VGPU_FOREIGN", 0);
    set.multiprocessors = (int)number("VRAMDOC_VGPU_MULTIPROCESSORS", 1);
    int capability = (int)number("VRAMDOC_VGPU_CAPABILITY", 80);
    set.major = capability / 10;
    set.minor = capability % 10;
    set.image = (int)number("VRAMDOC_VGPU_IMAGE", 80);
    uint64_t count = set.total ? number("VRAMDOC_VGPU_DEVICES", 1) : 0;
    set.devices = (int)(count < MAX_DEVICES ? count : MAX_DEVICES);
    for (int i = 0; i < set.devices; i++) devices[i].used = set.foreign;
    read_visible_devices();
    if (path && *path) log_file = fopen(path, "ae"); /* append: every process of the run writes to it */
}

const Settings *settings(void) {
    pthread_once(&once, read_settings);
    return &set;
}

/* ---- the lock -------------------------------------------------------------------------------------------------- */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
void lock_device(void) {
    settings();
    pthread_mutex_lock(&mutex);
}
void unlock_device(int *unused) {
    (void)unused;
    pthread_mutex_unlock(&mutex);
}
static void lock_for_fork(void) { pthread_mutex_lock(&mutex); }
static void unlock_after_fork(void) { pthread_mutex_unlock(&mutex); }

/* ---- devices --------------------------------------------------------------------------------------------------- */
static _Thread_local int current;
int current_device(void) { return current; }
void set_current_device(int ordinal) { current = ordinal; }

int visible_devices(void) {
    settings();
    return visible_count;
}
int physical_index(int ordinal) {
    settings();
    return ordinal >= 0 && ordinal < visible_count ? visible[ordinal] : -1;
}
Device *physical_device(int index) {
    settings();
    return index >= 0 && index < set.devices ? &devices[index] : NULL;
}
Device *device_at(int ordinal) { return physical_device(physical_index(ordinal)); }

uint64_t free_bytes(int ordinal) {
    Device *device = device_at(ordinal);
    return device && device->used < set.total ? set.total - device->used : 0;
}
bool charge(int ordinal, uint64_t bytes) {
    Device *device = device_at(ordinal);
    if (!device || bytes > free_bytes(ordinal)) return false;
    device->used += bytes;
    return true;
}
void refund(int ordinal, uint64_t bytes) {
    Device *device = device_at(ordinal);
    if (device) device->used -= bytes;
}
bool create_context(int ordinal) {
    Device *device = device_at(ordinal);
    if (!device) return false;
    if (device->context) return true;
    bool fits = charge(ordinal, set.context);
    log_call("context", ordinal, set.context, 0, fits ? SUCCESS : OUT_OF_MEMORY);
    return device->context = fits;
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */
/* Plain numbers: nothing is mapped there, so any layout of the host's own memory gives the same device addresses, and a
 * run under another allocator config can be compared with the simulator address by address. Whether a pointer means the
 * host or the device is told by the copy's direction and the tables below, never by its value. */
static uint64_t next_address = 0x7f0000000000ull;

uint64_t round_up(uint64_t bytes, uint64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }
uint64_t take_addresses(uint64_t bytes) {
    uint64_t start = next_address;
    next_address += round_up(bytes ? bytes : 1, PAGE);
    return start;
}

Ranges allocated, reserved, pinned;

static size_t first_after(const Ranges *ranges, uint64_t address) { /* the first range that starts above address */
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges->items[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
Range *find_range(const Ranges *ranges, uint64_t address) {
    size_t after = first_after(ranges, address);
    if (after == 0) return NULL;
    Range *range = &ranges->items[after - 1];
    return address - range->start < range->bytes ? range : NULL;
}
bool add_range(Ranges *ranges, Range range) {
    if (ranges->count == ranges->room) {
        size_t room = ranges->room ? 2 * ranges->room : 64;
        Range *items = realloc(ranges->items, room * sizeof *items);
        if (!items) return false;
        ranges->items = items;
        ranges->room = room;
    }
    size_t at = first_after(ranges, range.start); /* device addresses only rise, so this is the end for them */
    memmove(&ranges->items[at + 1], &ranges->items[at], (ranges->count - at) * sizeof range);
    ranges->items[at] = range;
    ranges->count++;
    return true;
}
void remove_range(Ranges *ranges, Range *range) {
    size_t at = (size_t)(range - ranges->items);
    memmove(range, range + 1, (ranges->count - at - 1) * sizeof *range);
    ranges->count--;
}
int device_of_address(uint64_t address) {
    Range *range = find_range(&allocated, address);
    if (range) return range->device;
    range = find_range(&reserved, address);
    return range && range->handles[(address - range->start) / PAGE] ? range->device : -1;
}

/* The launched program asks for this symbol to see whether it really runs on the virtual GPU. */
EXPORT int vramdoc_virtual_gpu(void) { return CUDART_VERSION; }

/* ---- errors, the log, refusals --------------------------------------------------------------------------------- */
static _Thread_local int last_error;
int fail(int code) {
    if (code != SUCCESS) last_error = code;
    return code;
}
int peek_last_error(void) { return last_error; }
int take_last_error(void) {
    int code = last_error;
    last_error = SUCCESS;
    return code;
}

void log_call(const char *call, int device, uint64_t bytes, uint64_t address, int result) {
    if (!log_file) return;
    fprintf(log_file, "%d %s %d %llu 0x%llx %d\n", (int)getpid(), call, device, (unsigned long long)bytes,
            (unsigned long long)address, result);
    fflush(log_file); /* the process may end by a signal */
}

int refuse(const char *name, const char *about, int code, atomic_flag *said) {
    settings();
    if (!atomic_flag_test_and_set(said)) {
        fprintf(stderr, "vramdoc: the virtual GPU does not model %s%s%s%s; it fails with error %d and needs a real GPU\n", name,
                about ? " (" : "", about ? about : "", about ? ")" : "", code);
        log_call(name, current, 0, 0, code);
    }
    return strncmp(name, "cuda", 4) == 0 ? fail(code) : code;
}
