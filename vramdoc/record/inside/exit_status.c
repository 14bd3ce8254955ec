/* Keeps the status that a process ends with. exit() tells it to the parent alone, and Python has forgotten it by the time its own
 * handlers run: a rank of torchrun that leaves by sys.exit(3) would look as if it had ended well. A process that is killed, or that
 * leaves by _exit(), leaves no status here. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static char file[4096];
static pid_t owner;

static void keep(int status, void *unused) {
    char text[16];
    (void)unused;
    if (getpid() != owner) return; /* a fork that records nothing */
    int handle = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (handle < 0) return;
    int length = snprintf(text, sizeof text, "%d\n", status & 0xff);
    if (write(handle, text, (size_t)length) != length) unlink(file);
    close(handle);
}

/* Keep this process's status in a file; called again, in another one. Returns 0 where that is not possible. */
EXPORT int vramdoc_keep_exit_status(const char *path) {
    static int is_registered;
    if (strlen(path) >= sizeof file) return 0;
    strcpy(file, path);
    owner = getpid();
    if (!is_registered) is_registered = on_exit(keep, NULL) == 0;
    return is_registered;
}
