/* writer MODE FILE: copies standard input to FILE, in one of the ways in which programs write files. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int made(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) fail(name);
    return fd;
}

static void with_write(const char *name) {
    char buffer[65536];
    ssize_t n;
    int fd = made(name);
    while ((n = read(0, buffer, sizeof buffer)) > 0)
        if (write(fd, buffer, (size_t)n) != n) fail("write");
}

static void with_stdio(const char *name) {
    char buffer[100];
    size_t n;
    FILE *file = fopen(name, "w");
    if (!file) fail(name);
    while ((n = fread(buffer, 1, sizeof buffer, stdin)) > 0) fwrite(buffer, 1, n, file);
    if (fclose(file)) fail(name);
}

/* The whole of the input; its size is in *size. */
static char *slurp(size_t *size) {
    char *data = malloc(64 << 20);
    ssize_t n;
    *size = 0;
    while ((n = read(0, data + *size, 65536)) > 0) *size += (size_t)n;
    return data;
}

/* Makes room for the file first, and then fills it through a mapping, slowly. */
static void with_mmap(const char *name) {
    size_t size;
    int fd = made(name);
    if (ftruncate(fd, 1) < 0) fail("ftruncate");
    char *data = slurp(&size);
    if (ftruncate(fd, (off_t)size) < 0) fail("ftruncate");
    usleep(100000);
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) fail("mmap");
    memcpy(map, data, size);
    munmap(map, size);
}

/* The first bytes are a placeholder until the rest is written, as in many formats with a header. */
static void with_header(const char *name) {
    char header[17];
    size_t size;
    int fd = made(name);
    if (write(fd, "................", 16) != 16) fail("write");
    char *data = slurp(&size);
    if (write(fd, data, size) != (ssize_t)size) fail("write");
    snprintf(header, sizeof header, "%016zu", size);
    if (pwrite(fd, header, 16, 0) != 16) fail("pwrite");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    if (!strcmp(argv[1], "write")) with_write(argv[2]);
    else if (!strcmp(argv[1], "stdio")) with_stdio(argv[2]);
    else if (!strcmp(argv[1], "mmap")) with_mmap(argv[2]);
    else if (!strcmp(argv[1], "header")) with_header(argv[2]);
    else return 2;
    return 0;
}
