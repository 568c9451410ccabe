/*
 * A stand-in for libcapio_posix.so. Files below CAPIO_DIR are ordinary files of another directory here, but who
 * reads one waits at its end until it has been closed as often as the configuration says; and nothing is answered when the server is gone.
 * Who stands in front of CAPIO does so at `intercept_hook_point`, as with libsyscall_intercept.
 * An application that the server does not answer waits for ever, and leaves in shared memory what a killed one leaves.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define TICK 2000

static int inside(const char *path) {
    const char *root = getenv("CAPIO_DIR");
    size_t length = root ? strlen(root) : 0;
    return path && length && strncmp(path, root, length) == 0 && path[length] == '/';
}

/* Where a file below CAPIO_DIR is. */
static long store(const char *path, char *name) {
    const char *root = getenv("CAPIO_DIR");
    int length = snprintf(name, PATH_MAX, "%s.held/", root);
    for (const char *at = path + strlen(root) + 1; *at && length < PATH_MAX - 1; at++) name[length++] = *at == '/' ? '|' : *at;
    name[length] = 0;
    return (long)name;
}

static int held(long fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%ld", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    const char *root = getenv("CAPIO_DIR");
    return root && strncmp(path, root, strlen(root)) == 0 && strncmp(path + strlen(root), ".held/", 6) == 0;
}

static void shared(const char *suffix, const char *path, char *name) {
    int length = snprintf(name, PATH_MAX, "/dev/shm/%s%s", getenv("CAPIO_WORKFLOW_NAME"), suffix);
    for (const char *at = path; *at && length < PATH_MAX - 1; at++) name[length++] = *at == '/' ? '_' : *at;
    name[length] = 0;
}

static int there(const char *path) { return syscall(SYS_access, path, F_OK) == 0; }

static void ask(void) {
    char canary[PATH_MAX];
    shared("", "", canary);
    while (!there(canary)) usleep(TICK);
}

static void hang_if_told(void) {
    char name[PATH_MAX];
    if (!getenv("CAPIO_APP_NAME")) return;
    shared("_hangs_", getenv("CAPIO_APP_NAME"), name);
    if (!there(name)) return;
    snprintf(name, sizeof name, "/dev/shm/capio_snapshot_%d_3", (int)getpid());
    syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT, 0600);
    for (;;) pause();
}

/* With `spoils` what is read has another first byte. */
static void spoil_if_told(char *bytes, long count) {
    char name[PATH_MAX];
    if (!getenv("CAPIO_APP_NAME")) return;
    shared("_spoils_", getenv("CAPIO_APP_NAME"), name);
    if (count > 0 && there(name)) bytes[0] ^= 1;
}

static long size_of(const char *name) {
    struct stat status;
    return syscall(SYS_newfstatat, AT_FDCWD, name, &status, 0) == 0 ? (long)status.st_size : 0;
}

static int committed(const char *path) {
    char name[PATH_MAX], text[32] = "";
    shared("_number", "", name);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY, 0);
    if (fd < 0) return 0;
    long length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    shared("_closes", path + strlen(getenv("CAPIO_DIR")), name);
    return length > 0 && size_of(name) >= atol(text);
}

static void count_close(const char *path) {
    char name[PATH_MAX];
    shared("_closes", path + strlen(getenv("CAPIO_DIR")), name);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0) return;
    if (syscall(SYS_write, fd, ".", 1) < 0) abort();
    syscall(SYS_close, fd);
}

static int give(long *result, long value) {
    *result = value < 0 ? -errno : value;
    return 0;
}

/* What CAPIO does for a system call; 1: the kernel is to do it. */
static int hook(long number, long a, long b, long c, long d, long e, long f, long *result) {
    char path[PATH_MAX];
    int last = 0;
    long got;
    (void)e, (void)f;
    switch (number) {
    case SYS_openat:
        if (!inside((const char *)b)) return 1;
        ask();
        store((const char *)b, path);
        while (!(c & O_CREAT) && !there(path)) usleep(TICK);
        return give(result, syscall(SYS_openat, a, path, c, d));
    case SYS_newfstatat:
        return inside((const char *)b) ? give(result, syscall(SYS_newfstatat, a, store((const char *)b, path), c, d)) : 1;
    case SYS_read:
        if (!held(a, path)) return 1;
        hang_if_told();
        while ((got = syscall(SYS_read, a, b, c)) == 0 && c > 0 && !last) {
            last = committed(path); /* what came before the commit is still to be read */
            if (!last) usleep(TICK);
        }
        spoil_if_told((char *)b, got);
        return give(result, got);
    case SYS_write:
        if (!held(a, path)) return 1;
        hang_if_told();
        return give(result, syscall(SYS_write, a, b, c));
    case SYS_close:
        if (held(a, path)) count_close(path);
        return 1;
    case SYS_copy_file_range:
        return held(a, path) ? give(result, (errno = EINVAL, -1)) : 1;
    default:
        return 1;
    }
}

int (*intercept_hook_point)(long, long, long, long, long, long, long, long *) = hook;

/* libsyscall_intercept sees the system calls of the C library; this only its functions. */
static long called(long number, long a, long b, long c, long d, long e) {
    long result = 0;
    int saved = errno;
    if (intercept_hook_point(number, a, b, c, d, e, 0, &result)) {
        errno = saved;
        return syscall(number, a, b, c, d, e);
    }
    errno = result < 0 ? (int)-result : saved;
    return result < 0 ? -1 : result;
}

__attribute__((destructor)) static void leave(void) {
    long result;
    intercept_hook_point(SYS_exit_group, 0, 0, 0, 0, 0, 0, &result);
}

#define CALLED(number, a, b, c, d) called(number, (long)(a), (long)(b), (long)(c), (long)(d), 0)
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }
#define OPEN(name) \
    int name(const char *path, int flags, ...) { MODE(flags) return (int)CALLED(SYS_openat, AT_FDCWD, path, flags, mode); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { MODE(flags) return (int)CALLED(SYS_openat, at, path, flags, mode); }
#define STAT(name, type) \
    int name(const char *path, type *status) { return (int)CALLED(SYS_newfstatat, AT_FDCWD, path, status, 0); }

#define LSTAT(name, type) \
    int name(const char *path, type *status) { return (int)CALLED(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW); }
#define FSTATAT(name, type) \
    int name(int at, const char *path, type *status, int flags) { return (int)CALLED(SYS_newfstatat, at, path, status, flags); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) STAT(stat, struct stat) STAT(stat64, struct stat64)
LSTAT(lstat, struct stat) LSTAT(lstat64, struct stat64) FSTATAT(fstatat, struct stat) FSTATAT(fstatat64, struct stat64)
int fstat(int fd, struct stat *status) { return (int)CALLED(SYS_fstat, fd, status, 0, 0); }
int fstat64(int fd, struct stat64 *status) { return (int)CALLED(SYS_fstat, fd, status, 0, 0); }
int access(const char *path, int mode) { return (int)CALLED(SYS_access, path, mode, 0, 0); }
ssize_t read(int fd, void *bytes, size_t count) { return CALLED(SYS_read, fd, bytes, count, 0); }
ssize_t write(int fd, const void *bytes, size_t count) { return CALLED(SYS_write, fd, bytes, count, 0); }
ssize_t pread(int fd, void *bytes, size_t count, off_t at) { return CALLED(SYS_pread64, fd, bytes, count, at); }
ssize_t pread64(int fd, void *bytes, size_t count, off_t at) { return CALLED(SYS_pread64, fd, bytes, count, at); }
off_t lseek(int fd, off_t offset, int whence) { return CALLED(SYS_lseek, fd, offset, whence, 0); }
off_t lseek64(int fd, off_t offset, int whence) { return CALLED(SYS_lseek, fd, offset, whence, 0); }
int ftruncate(int fd, off_t length) { return (int)CALLED(SYS_ftruncate, fd, length, 0, 0); }
int dup(int fd) { return (int)CALLED(SYS_dup, fd, 0, 0, 0); }
int unlink(const char *path) { return (int)CALLED(SYS_unlink, path, 0, 0, 0); }
int rename(const char *from, const char *to) { return (int)CALLED(SYS_rename, from, to, 0, 0); }
int mkdir(const char *path, mode_t mode) { return (int)CALLED(SYS_mkdir, path, mode, 0, 0); }
int close(int fd) { return (int)CALLED(SYS_close, fd, 0, 0, 0); }
ssize_t copy_file_range(int in, off_t *from, int out, off_t *to, size_t count, unsigned int flags) {
    (void)flags;
    return called(SYS_copy_file_range, in, (long)from, out, (long)to, (long)count);
}
