/* reader MODE FILE: copies FILE to standard output, in one of the ways in which programs read files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *name;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void put(const char *data, size_t size) {
    while (size > 0) {
        ssize_t n = write(1, data, size);
        if (n < 0) fail("write");
        data += n;
        size -= (size_t)n;
    }
}

static void copy(int fd) {
    char buffer[65536];
    ssize_t n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0) put(buffer, (size_t)n);
    if (n < 0) fail("read");
}

static int opened(void) {
    int fd = open(name, O_RDONLY);
    if (fd < 0) fail(name);
    return fd;
}

static off_t size_of(int fd) {
    struct stat status;
    if (fstat(fd, &status) < 0) fail("fstat");
    return status.st_size;
}

static void *in_thread(void *unused) {
    copy(opened());
    return unused;
}

static void with_stdio(int lines) {
    FILE *file = fopen(name, "r");
    if (!file) fail(name);
    char *line = NULL, buffer[1000];
    size_t room = 0, n;
    ssize_t length;
    if (lines)
        while ((length = getline(&line, &room, file)) >= 0) fwrite(line, 1, (size_t)length, stdout);
    else
        while ((n = fread(buffer, 1, sizeof buffer, file)) > 0) fwrite(buffer, 1, n, stdout);
    if (ferror(file)) fail("read");
}

static void with_fseek(void) {
    FILE *file = fopen(name, "r");
    if (!file) fail(name);
    if (fseek(file, 0, SEEK_END) < 0) fail("fseek");
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(size);
    if (fread(data, 1, size, file) != size) fail("fread");
    put(data, size);
}

static void with_mmap(void) {
    int fd = opened();
    /* a fixed minimum: a size of 0 is not an error of its own here */
    size_t size = (size_t)size_of(fd);
    char *data = mmap(NULL, size ? size : 1, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) fail("mmap");
    put(data, size);
}

static void with_pread(void) {
    char buffer[5000];
    off_t at = 0;
    ssize_t n;
    int fd = opened();
    while ((n = pread(fd, buffer, sizeof buffer, at)) > 0) {
        put(buffer, (size_t)n);
        at += n;
    }
    if (n < 0) fail("pread");
}

static void with_readv(void) {
    char first[100], second[900];
    struct iovec parts[2] = {{first, sizeof first}, {second, sizeof second}};
    ssize_t n;
    int fd = opened();
    while ((n = readv(fd, parts, 2)) > 0) {
        put(first, n < 100 ? (size_t)n : 100);
        if (n > 100) put(second, (size_t)n - 100);
    }
    if (n < 0) fail("readv");
}

static void with_openat(void) {
    char *path = strdup(name), *base = strrchr(path, '/');
    *base++ = 0;
    int directory = open(path, O_PATH | O_DIRECTORY);
    if (directory < 0) fail(path);
    int fd = openat(directory, base, O_RDONLY);
    if (fd < 0) fail(name);
    copy(fd);
}

static void with_chdir(void) {
    char *path = strdup(name), *base = strrchr(path, '/');
    *base++ = 0;
    if (chdir(path) < 0) fail(path);
    char dotted[4096];
    snprintf(dotted, sizeof dotted, "./../in/.//%s", base);
    name = dotted;
    copy(opened());
}

/* Reads as many bytes as stat says there are. */
static void with_stat(void) {
    int fd = opened();
    size_t size = (size_t)size_of(fd), done = 0;
    char *data = malloc(size + 1);
    ssize_t n = 1;
    while (done < size && (n = read(fd, data + done, size - done)) > 0) done += (size_t)n;
    if (n < 0) fail("read");
    put(data, done);
}

static void with_access(void) {
    if (access(name, R_OK) < 0) fail(name);
    copy(opened());
}

/* As libraries do: io_uring where the kernel lets them, else system calls as ever. */
static void with_io_uring(void) {
    char parameters[120] = {0};
    long ring = syscall(SYS_io_uring_setup, 1, parameters);
    if (ring >= 0) close((int)ring);
    copy(opened());
}

static void with_statx(void) {
    struct statx status;
    if (syscall(SYS_statx, AT_FDCWD, name, 0, STATX_BASIC_STATS, &status) < 0) fail(name);
    copy(opened());
}

static void with_openat2(void) {
    uint64_t how[3] = {O_RDONLY, 0, 0};
    long fd = syscall(SYS_openat2, AT_FDCWD, name, how, sizeof how);
    if (fd < 0) fail(name);
    copy((int)fd);
}

static void with_poll_for_existence(void) {
    struct stat status;
    while (stat(name, &status) < 0) {
        if (errno != ENOENT) fail(name);
        usleep(10000);
    }
    copy(opened());
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *mode = argv[1];
    name = argv[2];
    pthread_t thread;
    if (!strcmp(mode, "read")) copy(opened());
    else if (!strcmp(mode, "stdio")) with_stdio(0);
    else if (!strcmp(mode, "getline")) with_stdio(1);
    else if (!strcmp(mode, "fseek")) with_fseek();
    else if (!strcmp(mode, "mmap")) with_mmap();
    else if (!strcmp(mode, "pread")) with_pread();
    else if (!strcmp(mode, "readv")) with_readv();
    else if (!strcmp(mode, "openat")) with_openat();
    else if (!strcmp(mode, "chdir")) with_chdir();
    else if (!strcmp(mode, "stat")) with_stat();
    else if (!strcmp(mode, "access")) with_access();
    else if (!strcmp(mode, "io_uring")) with_io_uring();
    else if (!strcmp(mode, "statx")) with_statx();
    else if (!strcmp(mode, "openat2")) with_openat2();
    else if (!strcmp(mode, "exists")) with_poll_for_existence();
    else if (!strcmp(mode, "thread")) {
        if (pthread_create(&thread, NULL, in_thread, NULL)) fail("thread");
        pthread_join(thread, NULL);
    } else return 2;
    return 0;
}
