/*
 * A stand-in for libcapio_posix.so. Files below CAPIO_DIR are ordinary files here, but who reads one waits at its end
 * until it has been closed as often as the configuration says; and nothing is answered when the server is gone.
 * An application that the server does not answer waits for ever, and leaves in shared memory what a killed one leaves.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define TICK 2000

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static int inside(const char *path) {
    const char *root = getenv("CAPIO_DIR");
    size_t length = root ? strlen(root) : 0;
    return length && strncmp(path, root, length) == 0 && path[length] == '/';
}

static int held(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

static void shared(const char *suffix, const char *path, char *name) {
    int length = snprintf(name, PATH_MAX, "/dev/shm/%s%s", getenv("CAPIO_WORKFLOW_NAME"), suffix);
    for (const char *at = path; *at && length < PATH_MAX - 1; at++) name[length++] = *at == '/' ? '_' : *at;
    name[length] = 0;
}

static void ask(void) {
    char canary[PATH_MAX];
    shared("", "", canary);
    while (access(canary, F_OK) != 0) usleep(TICK);
}

static void hang_if_told(void) {
    char name[PATH_MAX];
    if (!getenv("CAPIO_APP_NAME")) return;
    shared("_hangs_", getenv("CAPIO_APP_NAME"), name);
    if (access(name, F_OK) != 0) return;
    snprintf(name, sizeof name, "/dev/shm/capio_snapshot_%d_3", (int)getpid());
    ((int (*)(const char *, int, ...))real("open"))(name, O_WRONLY | O_CREAT, 0600);
    for (;;) pause();
}

static int committed(const char *path) {
    char name[PATH_MAX], text[32] = "";
    struct stat closes;
    shared("_number", "", name);
    int fd = ((int (*)(const char *, int, ...))real("open"))(name, O_RDONLY);
    if (fd < 0) return 0;
    ssize_t length = ((ssize_t (*)(int, void *, size_t))real("read"))(fd, text, sizeof text - 1);
    ((int (*)(int))real("close"))(fd);
    const char *relative = path + strlen(getenv("CAPIO_DIR"));
    shared("_closes", relative, name);
    return length > 0 && stat(name, &closes) == 0 && closes.st_size >= atol(text);
}

static int opening(const char *call, int directory, const char *path, int flags, mode_t mode) {
    int (*next)(int, const char *, int, ...) = real(call);
    if (inside(path)) {
        ask();
        while (!(flags & O_CREAT) && access(path, F_OK) != 0) usleep(TICK);
    }
    return next(directory, path, flags, mode);
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }

int open(const char *path, int flags, ...) { MODE(flags) return opening("openat", AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opening("openat64", AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opening("openat", at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opening("openat64", at, path, flags, mode); }

ssize_t read(int fd, void *buffer, size_t count) {
    ssize_t (*next)(int, void *, size_t) = real("read");
    char path[PATH_MAX];
    ssize_t got;
    int last = 0;
    if (!held(fd, path)) return next(fd, buffer, count);
    hang_if_told();
    while ((got = next(fd, buffer, count)) == 0 && count > 0 && !last) {
        last = committed(path); /* what came before the commit is still to be read */
        if (!last) usleep(TICK);
    }
    return got;
}

ssize_t write(int fd, const void *buffer, size_t count) {
    char path[PATH_MAX];
    if (held(fd, path)) hang_if_told();
    return ((ssize_t (*)(int, const void *, size_t))real("write"))(fd, buffer, count);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned int flags) {
    ssize_t (*next)(int, off64_t *, int, off64_t *, size_t, unsigned int) = real("copy_file_range");
    char path[PATH_MAX];
    if (!held(in, path)) return next(in, from, out, to, count, flags);
    errno = EINVAL;
    return -1;
}

int close(int fd) {
    int (*next)(int) = real("close");
    char path[PATH_MAX], name[PATH_MAX];
    if (held(fd, path)) {
        int saved = errno;
        shared("_closes", path + strlen(getenv("CAPIO_DIR")), name);
        int count = ((int (*)(const char *, int, ...))real("open"))(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (count >= 0) {
            if (write(count, ".", 1) < 0) abort();
            next(count);
        }
        errno = saved;
    }
    return next(fd);
}
