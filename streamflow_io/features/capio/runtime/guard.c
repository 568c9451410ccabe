/*
 * Stands between a program and libcapio_posix.so, and gives CAPIO only what it does right.
 *
 * libsyscall_intercept calls `intercept_hook_point` for each system call of the C library. CAPIO sets it; this library,
 * loaded after it, puts itself in front. A file of CAPIO is written once, from its beginning to its end, by one thread;
 * its readers have it as a FIFO. What is not possible with a FIFO gets the error that it gets there; everything else that
 * CAPIO does not do as Linux does ends the program, and says why ("unfit"). So does who asks by path for the type or size
 * of what it reads: it would be told of a FIFO. Of what is open nearly every program asks, for a size of buffers: it is
 * told. All bytes that are written and read are counted and digested, and reported when a file is closed: who reads the
 * reports compares them.
 *
 * CAPIO sees no call that has nothing to do with its files, and none with a relative path.
 *
 * Environment: CAPIO_DIR; SFIO_CAPIO_REPORTS, a file, to which lines are added; SFIO_CAPIO_KEY, of the digests, in
 * hexadecimal; SFIO_CAPIO_OWN, the directory in which the program writes, or nothing; SFIO_CAPIO_BESIDE, the directory
 * of the file system for which that stands; SFIO_CAPIO_INPUTS, the files that it may read, one a line.
 *
 * Reports: `armed`, in each program that is started; `exec`, before another program takes its place, and `noexec` if it
 * does not; `writes MODE PATH` (octal), `wrote COUNT DIGEST PATH`; `opens PATH`, `read COUNT DIGEST END PATH`; `unfit REASON`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "CAPIO is tried on x86-64 only"
#endif

#define EXPORT __attribute__((visibility("default")))
#define FILES 1024
#define LONGEST 256
#define PRIME ((UINT64_C(1) << 61) - 1)
#define UNFIT 70

typedef int hook_function(long, long, long, long, long, long, long, long *);

/* A polynomial in a random key, over words of four bytes, modulo a prime: two different texts of n bytes have the same
 * digest for n/4 of its 2^61 keys at most. */
struct digest {
    uint64_t key, sum, count;
    uint32_t word;
};

enum kind { NONE, READING, WRITING };

struct file {
    _Atomic int kind;
    long thread;
    int at_end;
    struct digest digest;
    char path[LONGEST];
};

enum place { OUTSIDE, DIRECTORY, OWN, INPUT, UNKNOWN };

static hook_function *capio;
static struct file files[FILES];
static _Atomic int open_files;
static char root[PATH_MAX], own[PATH_MAX], beside[PATH_MAX], reports[PATH_MAX];
static const char *inputs = "";
static uint64_t key;
/* CAPIO is at work: what it calls itself is none of ours. */
static __thread int within __attribute__((tls_model("initial-exec")));

static long raw(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define RAW(number, a, b, c, d) raw(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static void take(struct digest *digest, uint32_t word) {
    unsigned __int128 product = (unsigned __int128)digest->sum * digest->key;
    uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61) + word;
    while (sum >= PRIME) sum -= PRIME;
    digest->sum = sum;
}

static void take_bytes(struct digest *digest, const unsigned char *bytes, size_t count) {
    size_t at = 0;
    while (at < count && (digest->count & 3 || count - at < 4)) {
        digest->word |= (uint32_t)bytes[at++] << 8 * (digest->count++ & 3);
        if (!(digest->count & 3)) {
            take(digest, digest->word);
            digest->word = 0;
        }
    }
    for (; count - at >= 4; at += 4, digest->count += 4) {
        uint32_t word;
        memcpy(&word, bytes + at, 4);
        take(digest, word);
    }
    if (at < count) take_bytes(digest, bytes + at, count - at);
}

static uint64_t total(struct digest digest) {
    if (digest.count & 3) take(&digest, digest.word);
    return digest.sum;
}

static void report(const char *form, ...) {
    char line[PATH_MAX + 128];
    va_list list;
    va_start(list, form);
    int length = vsnprintf(line, sizeof line - 1, form, list);
    va_end(list);
    if (length < 0 || length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    int fd = (int)RAW(SYS_openat, AT_FDCWD, reports, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || RAW(SYS_write, fd, line, length, 0) != length) raw(SYS_exit_group, UNFIT, 0, 0, 0, 0, 0);
    RAW(SYS_close, fd, 0, 0, 0);
}

static int ask(long number, long a, long b, long c, long d, long *result) {
    within++;
    int forward = capio(number, a, b, c, d, 0, 0, result);
    within--;
    return forward;
}

__attribute__((noreturn, format(printf, 1, 2))) static void unfit(const char *form, ...) {
    char reason[PATH_MAX];
    long result;
    va_list list;
    va_start(list, form);
    vsnprintf(reason, sizeof reason, form, list);
    va_end(list);
    report("unfit %s", reason);
    struct iovec said[] = {{"CAPIO cannot do what this program does: ", 40}, {reason, strlen(reason)}, {"\n", 1}};
    RAW(SYS_writev, 2, said, 3, 0);
    if (capio) ask(SYS_exit_group, UNFIT, 0, 0, 0, &result); /* or the server waits for it */
    for (;;) raw(SYS_exit_group, UNFIT, 0, 0, 0, 0, 0);
}

static const char *shown(const char *path) {
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && path[length] == '/' ? path + length + 1 : path;
}

static struct file *file_of(long fd) {
    if (fd < 0 || fd >= FILES || !atomic_load(&files[fd].kind)) return NULL;
    if (files[fd].thread != raw(SYS_gettid, 0, 0, 0, 0, 0, 0))
        unfit("it uses one opening of %s in several threads", shown(files[fd].path));
    return &files[fd];
}

static void end(struct file *file) {
    struct digest *digest = &file->digest;
    unsigned long long count = digest->count, sum = total(*digest);
    if (file->kind == READING)
        report("read %llu %llx %d %s", count, sum, file->at_end, shown(file->path));
    else
        report("wrote %llu %llx %s", count, sum, shown(file->path));
    atomic_store(&file->kind, NONE);
    atomic_fetch_sub(&open_files, 1);
}

/* The absolute path, without `.` and `..`; false: there is none, and the kernel will say so. */
static int resolve(long directory, const char *path, char *out) {
    char text[2 * PATH_MAX];
    long length = 0;
    if (!path || !*path) return 0;
    if (*path != '/') {
        if ((int)directory == AT_FDCWD) {
            length = RAW(SYS_getcwd, text, PATH_MAX, 0, 0) - 1;
        } else {
            char link[48];
            snprintf(link, sizeof link, "/proc/self/fd/%d", (int)directory);
            length = RAW(SYS_readlink, link, text, PATH_MAX - 1, 0);
        }
        if (length < 0 || *text != '/') return 0;
        text[length++] = '/';
    }
    if (strlen(path) >= PATH_MAX) return 0;
    strcpy(text + length, path);
    size_t at = 0;
    for (const char *part = text; *part;) {
        while (*part == '/') part++;
        size_t size = strcspn(part, "/");
        if (size == 2 && part[0] == '.' && part[1] == '.') {
            while (at && out[--at] != '/') continue;
        } else if (size && !(size == 1 && *part == '.')) {
            if (at + size + 2 > PATH_MAX) return 0;
            out[at++] = '/';
            memcpy(out + at, part, size);
            at += size;
        }
        part += size;
    }
    if (!at) out[at++] = '/';
    out[at] = 0;
    return 1;
}

/* Whether CAPIO has a file that this application writes. Of others it must not be asked: it would wait for them. */
static int exists(const char *path) {
    struct stat status;
    long result;
    if (ask(SYS_newfstatat, AT_FDCWD, (long)path, (long)&status, 0, &result)) unfit("CAPIO does not know %s", shown(path));
    return result == 0;
}

/* The path of the same file in another directory; false: it is in no directory that stands for that one. */
static int instead(const char *path, const char *from, const char *to, char *out) {
    size_t length = strlen(from);
    if (!length || !*to || strncmp(path, from, length) != 0 || path[length] != '/') return 0;
    return snprintf(out, PATH_MAX, "%s%s", to, path + length) < PATH_MAX;
}

/* Ends a program that looks in the directory that stands for its output directory for what it has made in that. */
static void not_beside(const char *path) {
    char other[PATH_MAX];
    if (instead(path, own, beside, other) && RAW(SYS_faccessat, AT_FDCWD, other, F_OK, 0) == 0)
        unfit("it uses %s by two paths", shown(path));
}

/* Files of CAPIO are `/dev/null` for the kernel. */
static void not_by_descriptor(const char *path) {
    static const char *const standard[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    if (!path || !atomic_load(&open_files)) return;
    for (int fd = 0; fd < 3; fd++)
        if (strcmp(path, standard[fd]) == 0 && atomic_load(&files[fd].kind)) unfit("it uses %s", path);
    if (strncmp(path, "/dev/fd", 7) != 0 && !(strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd"))) return;
    const char *number = strrchr(path, '/') + 1;
    char *end;
    long fd = strtol(number, &end, 10);
    /* The directory of all of them, or one of CAPIO's. */
    if (end == number || *end || (fd >= 0 && fd < FILES && atomic_load(&files[fd].kind))) unfit("it uses %s", path);
}

static enum place place_of(long directory, const char *path, char *out) {
    size_t length = strlen(root);
    char other[PATH_MAX];
    not_by_descriptor(path);
    if (!resolve(directory, path, out)) return OUTSIDE;
    if (instead(out, beside, own, other) && strlen(other) < LONGEST && !strchr(other + strlen(own) + 1, '/') && exists(other))
        unfit("it uses %s by two paths", shown(other));
    if (strncmp(out, root, length) != 0) return OUTSIDE;
    if (!out[length]) return DIRECTORY;
    if (out[length] != '/') return OUTSIDE;
    if (!strchr(out + length + 1, '/')) return DIRECTORY;
    if (strlen(out) >= LONGEST) return UNKNOWN;
    if (*own && strncmp(out, own, strlen(own)) == 0 && out[strlen(own)] == '/') {
        not_beside(out);
        return strchr(out + strlen(own) + 1, '/') ? UNKNOWN : OWN;
    }
    for (const char *line = inputs; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t size = strcspn(line, "\n");
        if (size == strlen(out) && memcmp(line, out, size) == 0) return INPUT;
    }
    return UNKNOWN;
}

static int give(long *result, long value) {
    *result = value;
    return 0;
}

/* What the process takes from the modes of new files. */
static unsigned mask(void) {
    char text[4096];
    unsigned found = 0;
    int fd = (int)RAW(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0);
    long length = fd < 0 ? 0 : RAW(SYS_read, fd, text, sizeof text - 1, 0);
    if (fd >= 0) RAW(SYS_close, fd, 0, 0, 0);
    text[length < 0 ? 0 : length] = 0;
    const char *line = strstr(text, "\nUmask:");
    if (!line || sscanf(line, "\nUmask: %o", &found) != 1) unfit("it is not known which modes its files are to have");
    return found;
}

static int enter(long fd, enum kind kind, const char *path, long mode, long *result) {
    if (fd < 0 || fd >= FILES) unfit("CAPIO does not open %s (%ld)", shown(path), fd);
    if (kind == READING)
        report("opens %s", shown(path));
    else
        report("writes %o %s", (unsigned)mode & 07777 & ~mask(), shown(path));
    struct file *file = &files[fd];
    file->digest = (struct digest){.key = key};
    file->at_end = 0;
    file->thread = raw(SYS_gettid, 0, 0, 0, 0, 0, 0);
    strcpy(file->path, path);
    atomic_store(&file->kind, kind);
    atomic_fetch_add(&open_files, 1);
    return give(result, fd);
}

static int opening(long directory, const char *path, int flags, long mode, long *result) {
    char place[PATH_MAX];
    int reads = (flags & O_ACCMODE) == O_RDONLY;
    switch (place_of(directory, path, place)) {
    case OUTSIDE:
        if (path && *beside && reads && resolve(directory, path, place) && strcmp(place, beside) == 0)
            unfit("it opens its output directory");
        return 1;
    case DIRECTORY:
        unfit("it opens a directory of CAPIO's");
    case OWN:
        if (exists(place)) unfit("it opens %s a second time", shown(place));
        if (reads || !(flags & O_CREAT)) return give(result, -ENOENT);
        if (ask(SYS_openat, AT_FDCWD, (long)place, O_WRONLY | O_CREAT | O_TRUNC | (flags & O_CLOEXEC), mode, result))
            unfit("CAPIO does not take %s", shown(place));
        return enter(*result, WRITING, place, mode, result);
    case INPUT:
        if (!reads) unfit("it writes into its input %s", shown(place));
        if (flags & O_PATH) unfit("it opens %s without reading it", shown(place));
        if (flags & O_DIRECTORY) return give(result, -ENOTDIR);
        if (ask(SYS_openat, AT_FDCWD, (long)place, O_RDONLY | (flags & O_CLOEXEC), 0, result))
            unfit("CAPIO does not give %s", shown(place));
        return enter(*result, READING, place, 0, result);
    default:
        if (!reads && (flags & O_CREAT)) unfit("it writes %s, which is not in its directory", shown(place));
        return give(result, -ENOENT);
    }
}

static int reading(struct file *file, long fd, char *bytes, size_t count, long *result) {
    if (file->kind != READING) unfit("it reads %s, which it writes", shown(file->path));
    if (!count) return give(result, 0);
    if (ask(SYS_read, fd, (long)bytes, (long)count, 0, result) || *result < 0 || (size_t)*result > count)
        unfit("CAPIO does not read %s", shown(file->path));
    take_bytes(&file->digest, (unsigned char *)bytes, (size_t)*result);
    if (!*result) file->at_end = 1;
    return 0;
}

static int writing(struct file *file, long fd, const char *bytes, size_t count, long *result) {
    if (file->kind != WRITING) unfit("it writes into its input %s", shown(file->path));
    if (!count) return give(result, 0);
    if (ask(SYS_write, fd, (long)bytes, (long)count, 0, result) || *result != (long)count)
        unfit("CAPIO does not write %s", shown(file->path));
    take_bytes(&file->digest, (const unsigned char *)bytes, count);
    return 0;
}

static int in_pieces(struct file *file, long number, long fd, const struct iovec *pieces, long count, long *result) {
    long sum = 0;
    for (long index = 0; index < count; index++) {
        char *bytes = pieces[index].iov_base;
        size_t size = pieces[index].iov_len;
        if (!size) continue;
        if (number == SYS_writev)
            writing(file, fd, bytes, size, result);
        else
            reading(file, fd, bytes, size, result);
        sum += *result;
        if ((size_t)*result < size) break;
    }
    return give(result, sum);
}

static int seeking(struct file *file, long offset, long whence, long *result) {
    if (file->kind == READING) return give(result, -ESPIPE);
    long count = (long)file->digest.count;
    if ((whence == SEEK_SET && offset == count) || ((whence == SEEK_CUR || whence == SEEK_END) && !offset))
        return give(result, count);
    unfit("it seeks in %s, which it writes", shown(file->path));
}

/* The status of a file that is read, which is that of a FIFO, or of one that is written. */
static void fill(struct stat *status, enum kind kind, uint64_t count, const char *path) {
    memset(status, 0, sizeof *status);
    status->st_mode = kind == READING ? S_IFIFO | 0600 : S_IFREG | 0644;
    status->st_nlink = 1;
    status->st_uid = (uid_t)raw(SYS_geteuid, 0, 0, 0, 0, 0, 0);
    status->st_gid = (gid_t)raw(SYS_getegid, 0, 0, 0, 0, 0, 0);
    status->st_size = (off_t)count;
    status->st_blksize = 4096;
    status->st_blocks = (blkcnt_t)((count + 511) / 512);
    status->st_dev = 0x5f10;
    for (; *path; path++) status->st_ino = status->st_ino * 31 + (unsigned char)*path;
    struct timespec now;
    RAW(SYS_clock_gettime, CLOCK_REALTIME, &now, 0, 0);
    status->st_atim = status->st_mtim = status->st_ctim = now;
}

static void fill_extended(struct statx *status, enum kind kind, uint64_t count, const char *path) {
    struct stat known;
    fill(&known, kind, count, path);
    memset(status, 0, sizeof *status);
    status->stx_mask = STATX_BASIC_STATS;
    status->stx_blksize = 4096;
    status->stx_nlink = 1;
    status->stx_uid = known.st_uid;
    status->stx_gid = known.st_gid;
    status->stx_mode = (uint16_t)known.st_mode;
    status->stx_ino = known.st_ino;
    status->stx_size = count;
    status->stx_blocks = (uint64_t)known.st_blocks;
    status->stx_dev_minor = 0x5f10;
    status->stx_atime.tv_sec = status->stx_mtime.tv_sec = status->stx_ctime.tv_sec = known.st_mtim.tv_sec;
    status->stx_atime.tv_nsec = status->stx_mtime.tv_nsec = status->stx_ctime.tv_nsec = (uint32_t)known.st_mtim.tv_nsec;
}

static int status_of(long directory, const char *path, int empty, void *status, int extended, long *result) {
    char place[PATH_MAX];
    enum kind kind = READING;
    uint64_t count = 0;
    if (empty && (!path || !*path)) {
        struct file *file = file_of(directory);
        if (!file) return 1;
        kind = file->kind;
        count = kind == READING ? 0 : file->digest.count;
        strcpy(place, file->path);
    } else {
        switch (place_of(directory, path, place)) {
        case INPUT:
            unfit("it asks for the type or size of its input %s", shown(place));
        case OWN:
            if (exists(place)) unfit("it asks for the type or size of %s, which it has written", shown(place));
            return give(result, -ENOENT);
        case UNKNOWN:
            return give(result, -ENOENT);
        default:
            return 1;
        }
    }
    if (extended)
        fill_extended(status, kind, count, place);
    else
        fill(status, kind, count, place);
    return give(result, 0);
}

static int accessing(long directory, const char *path, long mode, long *result) {
    char place[PATH_MAX];
    switch (place_of(directory, path, place)) {
    case INPUT:
        if (mode & (W_OK | X_OK)) unfit("it asks whether it may write or execute its input %s", shown(place));
        return give(result, 0);
    case OWN:
        if (exists(place)) unfit("it asks for the existence of %s, which it has written", shown(place));
        return give(result, -ENOENT);
    case UNKNOWN:
        return give(result, -ENOENT);
    default:
        return 1;
    }
}

/* What CAPIO cannot do with the path of one of its files. */
static int outside(long directory, const char *path, const char *what) {
    char place[PATH_MAX];
    if (place_of(directory, path, place) != OUTSIDE) unfit("it %s %s", what, shown(place));
    return 1;
}

/* Of a file that is not there the kernel says so. */
static int not_of_capio(long directory, const char *path, const char *what) {
    char place[PATH_MAX];
    enum place found = place_of(directory, path, place);
    if (found == INPUT || (found == OWN && exists(place))) unfit("it %s %s", what, shown(place));
    return 1;
}

static int removing(long directory, const char *path, long *result) {
    char place[PATH_MAX];
    if (place_of(directory, path, place) == OWN && !exists(place)) return give(result, -ENOENT);
    return outside(directory, path, "removes");
}

static int nothing_open(const char *what) {
    for (int fd = 0; atomic_load(&open_files) && fd < FILES; fd++)
        if (atomic_load(&files[fd].kind)) unfit("it %s while it has %s open", what, shown(files[fd].path));
    return 1;
}

static int becoming(long number, long a, long b, long c, long d, long e, long *result) {
    nothing_open("becomes another program");
    if (number == SYS_execve)
        not_of_capio(AT_FDCWD, (const char *)a, "executes");
    else
        not_of_capio(a, (const char *)b, "executes");
    report("exec");
    *result = raw(number, a, b, c, d, e, 0);
    report("noexec");
    return 0;
}

static int controlling(struct file *file, long command, long argument, long *result) {
    switch (command) {
    case F_GETFD:
    case F_SETFD:
        return 1;
    case F_GETFL:
        return give(result, (file->kind == READING ? O_RDONLY : O_WRONLY) | O_LARGEFILE);
    case F_SETFL:
        if (!(argument & (O_NONBLOCK | O_ASYNC | O_DIRECT))) return give(result, 0);
        break;
    default:
        break;
    }
    unfit("it calls fcntl %ld for %s", command, shown(file->path));
}

static const char *what_is_done(long number) {
    static char other[48];
    switch (number) {
    case SYS_dup: case SYS_dup2: case SYS_dup3:
        return "duplicates its descriptor of";
    case SYS_pwrite64: case SYS_pwritev: case SYS_pwritev2: case SYS_pread64: case SYS_preadv: case SYS_preadv2:
        return "goes to and fro in";
    case SYS_ftruncate: case SYS_fallocate:
        return "sets the size of";
    case SYS_flock:
        return "locks";
    case SYS_fchmod: case SYS_fchown: case SYS_futimesat: case SYS_utimensat: case SYS_fsetxattr: case SYS_fremovexattr:
        return "changes the mode, times or attributes of";
    default:
        snprintf(other, sizeof other, "uses the system call %ld for", number);
        return other;
    }
}

/* Calls for an open file of CAPIO's, which is their first argument. */
static int on_file(struct file *file, long number, long a, long b, long c, long *result) {
    int reads = file->kind == READING;
    switch (number) {
    case SYS_read:
        return reading(file, a, (char *)b, (size_t)c, result);
    case SYS_write:
        return writing(file, a, (const char *)b, (size_t)c, result);
    case SYS_readv:
    case SYS_writev:
        return in_pieces(file, number, a, (const struct iovec *)b, c, result);
    case SYS_close:
        end(file);
        ask(SYS_close, a, 0, 0, 0, result);
        return 1;
    case SYS_lseek:
        return seeking(file, b, c, result);
    case SYS_fstat:
        return status_of(a, "", 1, (void *)b, 0, result);
    case SYS_fcntl:
        return controlling(file, b, c, result);
    case SYS_ioctl:
        return give(result, -ENOTTY);
    case SYS_fsync:
    case SYS_fdatasync:
        return give(result, reads ? -EINVAL : 0);
    case SYS_fadvise64:
        return give(result, reads ? -ESPIPE : 0);
    case SYS_fgetxattr:
    case SYS_flistxattr:
        return give(result, -ENOTSUP);
    case SYS_getdents:
    case SYS_getdents64:
    case SYS_fchdir:
        return give(result, -ENOTDIR);
    case SYS_sendfile:
    case SYS_copy_file_range:
    case SYS_splice:
    case SYS_tee:
    case SYS_readahead:
        return give(result, -EINVAL); /* It then reads and writes. */
    case SYS_pread64:
    case SYS_preadv:
    case SYS_preadv2:
        if (reads) return give(result, -ESPIPE);
        break;
    default:
        break;
    }
    unfit("it %s %s", what_is_done(number), shown(file->path));
}

static int descriptor(long number, long a, long b, long c, long *result) {
    struct file *file = file_of(a);
    return file ? on_file(file, number, a, b, c, result) : 1;
}

static int guard(long number, long a, long b, long c, long d, long e, long f, long *result) {
    if (within) return capio(number, a, b, c, d, e, f, result);
    switch (number) {
    case SYS_read: case SYS_write: case SYS_readv: case SYS_writev: case SYS_close: case SYS_lseek: case SYS_fstat:
    case SYS_ioctl: case SYS_fcntl: case SYS_fsync: case SYS_fdatasync: case SYS_fadvise64: case SYS_fgetxattr:
    case SYS_flistxattr: case SYS_getdents: case SYS_getdents64: case SYS_fchdir: case SYS_readahead:
    case SYS_pread64: case SYS_preadv: case SYS_preadv2: case SYS_pwrite64: case SYS_pwritev: case SYS_pwritev2:
    case SYS_ftruncate: case SYS_fallocate: case SYS_flock: case SYS_fchmod: case SYS_fchown: case SYS_dup:
    case SYS_sync_file_range: case SYS_fsetxattr: case SYS_fremovexattr: case SYS_fstatfs:
        return descriptor(number, a, b, c, result);
    case SYS_dup2: case SYS_dup3:
        return file_of(a) || (a != b && file_of(b)) ? on_file(file_of(a) ? file_of(a) : file_of(b), number, a, b, c, result) : 1;
    case SYS_sendfile: case SYS_tee:
        return file_of(a) || file_of(b) ? give(result, -EINVAL) : 1;
    case SYS_copy_file_range: case SYS_splice:
        return file_of(a) || file_of(c) ? give(result, -EINVAL) : 1;
    case SYS_mmap:
        if (d & MAP_ANONYMOUS || !file_of(e)) return 1;
        if (file_of(e)->kind == READING) return give(result, -ENODEV);
        unfit("it maps %s into memory", shown(file_of(e)->path));
    case SYS_close_range:
        for (long fd = a; fd < FILES && fd <= (long)(unsigned)b; fd++)
            if (atomic_load(&files[fd].kind)) unfit("it closes %s with others", shown(files[fd].path));
        return 1;
    case SYS_open:
        return opening(AT_FDCWD, (const char *)a, (int)b, c, result);
    case SYS_creat:
        return opening(AT_FDCWD, (const char *)a, O_WRONLY | O_CREAT | O_TRUNC, b, result);
    case SYS_openat:
        return opening(a, (const char *)b, (int)c, d, result);
    case SYS_openat2:
        return give(result, -ENOSYS);
    case SYS_stat: case SYS_lstat:
        return status_of(AT_FDCWD, (const char *)a, 0, (void *)b, 0, result);
    case SYS_newfstatat:
        return status_of(a, (const char *)b, (d & AT_EMPTY_PATH) != 0, (void *)c, 0, result);
    case SYS_statx:
        return status_of(a, (const char *)b, (c & AT_EMPTY_PATH) != 0, (void *)e, 1, result);
    case SYS_access:
        return accessing(AT_FDCWD, (const char *)a, b, result);
    case SYS_faccessat: case SYS_faccessat2:
        return accessing(a, (const char *)b, c, result);
    case SYS_readlink: case SYS_readlinkat: {
        int at = number == SYS_readlinkat;
        int forward = accessing(at ? a : AT_FDCWD, (const char *)(at ? b : a), 0, result);
        return forward || *result ? forward : give(result, -EINVAL);
    }
    case SYS_unlink: case SYS_rmdir:
        return removing(AT_FDCWD, (const char *)a, result);
    case SYS_unlinkat:
        return removing(a, (const char *)b, result);
    case SYS_rename: case SYS_link:
        outside(AT_FDCWD, (const char *)a, "renames or links");
        return outside(AT_FDCWD, (const char *)b, "renames or links");
    case SYS_renameat: case SYS_renameat2: case SYS_linkat:
        outside(a, (const char *)b, "renames or links");
        return outside(c, (const char *)d, "renames or links");
    case SYS_symlink:
        return outside(AT_FDCWD, (const char *)b, "links");
    case SYS_symlinkat:
        return outside(b, (const char *)c, "links");
    case SYS_mkdir: case SYS_mknod:
        return outside(AT_FDCWD, (const char *)a, "makes");
    case SYS_mkdirat: case SYS_mknodat:
        return outside(a, (const char *)b, "makes");
    case SYS_chmod: case SYS_chown: case SYS_lchown: case SYS_truncate: case SYS_utime: case SYS_utimes:
    case SYS_setxattr: case SYS_lsetxattr: case SYS_removexattr: case SYS_lremovexattr:
        return outside(AT_FDCWD, (const char *)a, "changes");
    case SYS_fchmodat: case SYS_fchownat: case SYS_futimesat: case SYS_utimensat:
        return b ? outside(a, (const char *)b, "changes") : descriptor(number, a, b, c, result);
    case SYS_getxattr: case SYS_lgetxattr: case SYS_listxattr: case SYS_llistxattr: {
        char place[PATH_MAX];
        return place_of(AT_FDCWD, (const char *)a, place) == OUTSIDE ? 1 : give(result, -ENOTSUP);
    }
    case SYS_chdir:
        return not_of_capio(AT_FDCWD, (const char *)a, "changes into");
    case SYS_statfs:
        return not_of_capio(AT_FDCWD, (const char *)a, "asks for the file system of");
    case SYS_bind:
        return ((const struct sockaddr *)b)->sa_family == AF_UNIX && *((const struct sockaddr_un *)b)->sun_path
            ? outside(AT_FDCWD, ((const struct sockaddr_un *)b)->sun_path, "makes")
            : 1;
    case SYS_inotify_add_watch:
        return outside(AT_FDCWD, (const char *)b, "watches");
    case SYS_sendmsg:
        return ((const struct msghdr *)b)->msg_controllen ? nothing_open("sends descriptors") : 1;
    case SYS_io_uring_setup: case SYS_io_setup:
        return give(result, -ENOSYS);
    case SYS_execve: case SYS_execveat:
        return becoming(number, a, b, c, d, e, result);
    case SYS_vfork:
        return nothing_open("starts a process");
    case SYS_fork:
        nothing_open("starts a process");
        return ask(number, a, b, c, d, result);
    case SYS_clone:
        return a & CLONE_THREAD ? 1 : nothing_open("starts a process");
    case SYS_clone3:
        return ((const struct clone_args *)a)->flags & CLONE_THREAD ? 1 : nothing_open("starts a process");
    case SYS_exit_group:
        for (int fd = 0; fd < FILES; fd++)
            if (atomic_load(&files[fd].kind)) end(&files[fd]);
        return ask(number, a, b, c, d, result);
    case SYS_exit:
        return ask(number, a, b, c, d, result);
    default:
        return 1;
    }
}

static int copied(const char *name, char *to) {
    const char *value = getenv(name);
    if (!value || strlen(value) >= PATH_MAX) return 0;
    strcpy(to, value);
    return 1;
}

__attribute__((constructor)) static void arm(void) {
    if (!copied("SFIO_CAPIO_REPORTS", reports)) return; /* It is loaded for `sfio_digest` alone. */
    hook_function **point = dlsym(RTLD_DEFAULT, "intercept_hook_point");
    if (!point || !*point) unfit("libcapio_posix.so is not loaded before it");
    const char *text = getenv("SFIO_CAPIO_KEY");
    if (!copied("CAPIO_DIR", root) || !copied("SFIO_CAPIO_OWN", own) || !copied("SFIO_CAPIO_BESIDE", beside) || !text || !getenv("SFIO_CAPIO_INPUTS"))
        unfit("its environment is not as it was");
    key = strtoull(text, NULL, 16);
    inputs = strdup(getenv("SFIO_CAPIO_INPUTS"));
    if (!key || !inputs) unfit("its environment is not as it was");
    capio = *point;
    *point = guard;
    report("armed");
}

/* The digest of the first bytes of a file, for who compares. 0: they are there; else why not. */
EXPORT int sfio_digest(const char *path, uint64_t with, uint64_t count, uint64_t *sum) {
    unsigned char bytes[1 << 16];
    struct digest digest = {.key = with};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    while (digest.count < count) {
        uint64_t left = count - digest.count;
        ssize_t got = read(fd, bytes, left < sizeof bytes ? (size_t)left : sizeof bytes);
        if (got <= 0) {
            int why = got < 0 ? errno : ENODATA;
            close(fd);
            return why;
        }
        take_bytes(&digest, bytes, (size_t)got);
    }
    close(fd);
    *sum = total(digest);
    return 0;
}
