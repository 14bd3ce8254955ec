/* Sees each cublasCreate: preloaded in front of cuBLAS (or of the virtual GPU), it asks the driver how much is free, calls the
 * real function, and keeps what happened. It changes nothing and allocates nothing.
 *
 * torch holds a mutex while it creates a handle, so Python must not be called from here: a listener thread is woken through
 * a pipe instead, and given WAIT_MS to look at the calling thread's Python stack before the call goes on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { KEPT = 256, WAIT_MS = 50, NOT_INITIALIZED = 1 };

typedef struct {
    int64_t time_us, thread, free_before, free_after;
    int32_t device, status;
    atomic_int done;
    int32_t unused;
} Creation;

static Creation creations[KEPT];
static atomic_int count;
static atomic_int wake = -1, seen = -1;

EXPORT Creation *vramdoc_cublas_creations(void) { return creations; }
EXPORT int vramdoc_cublas_count(void) { return atomic_load(&count); }
EXPORT void vramdoc_cublas_listen(int wake_fd, int seen_fd) {
    seen = seen_fd;
    wake = wake_fd;
}

static int64_t free_bytes(void) {
    int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(RTLD_DEFAULT, "cudaMemGetInfo");
    size_t free = 0, total = 0;
    return info && info(&free, &total) == 0 ? (int64_t)free : -1;
}

static int current_device(void) {
    int (*get)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cudaGetDevice");
    int device = -1;
    return get && get(&device) == 0 ? device : -1;
}

static void let_the_listener_look(int index) {
    unsigned char byte = (unsigned char)index;
    struct pollfd answer = {.fd = seen, .events = POLLIN};
    if (wake < 0 || write(wake, &byte, 1) != 1) return;
    if (poll(&answer, 1, WAIT_MS) == 1 && read(seen, &byte, 1) != 1) return;
}

typedef int Create(void **);

static int find_cublas(struct dl_phdr_info *object, size_t size, void *found) {
    const char *name = strrchr(object->dlpi_name, '/');
    if (strncmp(name ? name + 1 : object->dlpi_name, "libcublas.so", 12)) return 0;
    void *library = dlopen(object->dlpi_name, RTLD_NOLOAD | RTLD_LAZY);
    if (library) *(Create **)found = (Create *)dlsym(library, "cublasCreate_v2");
    return *(Create **)found != NULL;
}

/* Usually torch loads cuBLAS for all to see; where it was loaded privately, it is found by its name. */
static Create *real_create(void) {
    Create *create = (Create *)dlsym(RTLD_NEXT, "cublasCreate_v2");
    if (!create) dl_iterate_phdr(find_cublas, &create);
    return create;
}

EXPORT int cublasCreate_v2(void **handle) {
    Create *create = real_create();
    int index = atomic_fetch_add(&count, 1);
    struct timespec now;
    if (!create) return NOT_INITIALIZED;
    if (index >= KEPT) return create(handle);
    Creation *creation = &creations[index];
    clock_gettime(CLOCK_REALTIME, &now);
    creation->time_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    creation->thread = (int64_t)syscall(SYS_gettid);
    creation->device = current_device();
    creation->free_before = free_bytes();
    let_the_listener_look(index);
    creation->status = create(handle);
    creation->free_after = free_bytes();
    atomic_store(&creation->done, 1);
    return creation->status;
}
