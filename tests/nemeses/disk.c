/* A node's disk under test: it remembers what was written and not synced, so that a test can take it away again as a power
 * loss does, and it can be full or slow.
 *
 * Preloaded into a node (`LD_PRELOAD`), it keeps a file `ISOBAR_DISK_LOGS/<inode>` for every regular file below
 * ISOBAR_DISK_ROOT with unsynced changes: of each change, the bytes before and after. A sync that has returned empties it.
 * `disk.py` reads these files after the node was killed. While `ISOBAR_DISK_LOGS/full` exists, nothing can be written;
 * while `slow` does, each sync takes 200 ms longer, or as many as that file says.
 *
 * Modelled: contents and lengths of files. Not modelled: names (creations, renames and removals are lasting at once), and
 * what is written through a memory map. A failure of its own ends the process, loudly, since a test that goes on without
 * it would prove nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHANGE = 1, SYNCED = 2 };
enum { DESCRIPTORS = 1 << 16, SLOW_MILLISECONDS = 200 };

/* Followed by `before` and then `after` bytes, from `offset` on. SYNCED: all records before `offset` of this log are. */
struct record {
    uint32_t kind, reserved;
    uint64_t offset, length_before, length_after, before, after;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root, *logs;
static size_t root_length;
static struct { ino_t inode; int below; } known[DESCRIPTORS]; /* whether a descriptor's file is below the root */

static void fail(const char *what) {
    fprintf(stderr, "disk under test: %s: %s\n", what, strerror(errno));
    _exit(86);
}

__attribute__((constructor)) static void start(void) {
    root = getenv("ISOBAR_DISK_ROOT");
    logs = getenv("ISOBAR_DISK_LOGS");
    root_length = root ? strlen(root) : 0;
}

static int below(const char *path) {
    return root && logs && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* Whether changes of this descriptor are recorded; fills in its file's state. Called with the lock held. */
static int recorded(int fd, struct stat *state) {
    if (!root || !logs || fd < 0 || fd >= DESCRIPTORS || fstat(fd, state) || !S_ISREG(state->st_mode))
        return 0;
    if (known[fd].inode != state->st_ino) {
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length < 0)
            return 0;
        path[length] = 0;
        known[fd].inode = state->st_ino;
        known[fd].below = below(path);
    }
    return known[fd].below;
}

/* Whether the test has made the disk so: `full` or `slow`. */
static int set(const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", logs, name);
    return !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
}

/* By how many milliseconds each sync is made longer. */
static unsigned slowness(void) {
    char path[PATH_MAX], text[16] = "";
    snprintf(path, sizeof path, "%s/slow", logs);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    return length > 0 ? (unsigned)atoi(text) : SLOW_MILLISECONDS;
}

static int log_of(ino_t inode, int flags) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ju", logs, (uintmax_t)inode);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static void forget(ino_t inode) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ju", logs, (uintmax_t)inode);
    syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static void append(ino_t inode, struct record *record, const void *before, const void *after) {
    int log = log_of(inode, O_WRONLY | O_CREAT | O_APPEND);
    struct iovec parts[3] = {
        {record, sizeof *record}, {(void *)before, record->before}, {(void *)after, record->after},
    };
    ssize_t size = (ssize_t)(sizeof *record + record->before + record->after);
    if (log < 0 || syscall(SYS_writev, log, parts, 3) != size)
        fail("its log");
    syscall(SYS_close, log);
}

/* What a file held at a place, through a descriptor of our own: the node's may be for writing only. */
static char *read_before(int fd, off_t offset, size_t length) {
    char link[64], *bytes = malloc(length ? length : 1);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    if (!bytes || again < 0)
        fail("reading what was there");
    for (size_t done = 0; done < length;) {
        ssize_t got = syscall(SYS_pread64, again, bytes + done, length - done, offset + (off_t)done);
        if (got <= 0)
            fail("reading what was there");
        done += (size_t)got;
    }
    syscall(SYS_close, again);
    return bytes;
}

/* Notes that `length` bytes at `offset` become `after`, or, without it, that the file gets as long as `offset`. */
static void change(int fd, const struct stat *state, off_t offset, const void *after, size_t length) {
    off_t size = state->st_size, end = after ? offset + (off_t)length : size;
    off_t last = end < size ? end : size;
    struct record record = {
        .kind = CHANGE, .offset = (uint64_t)offset, .length_before = (uint64_t)size,
        .length_after = (uint64_t)(after ? (end > size ? end : size) : offset),
        .before = offset < last ? (uint64_t)(last - offset) : 0, .after = after ? length : 0,
    };
    char *before = read_before(fd, offset, record.before);
    append(state->st_ino, &record, before, after);
    free(before);
}

static off_t position(int fd, const struct stat *state) {
    int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
    return flags & O_APPEND ? state->st_size : (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
}

static ssize_t put(int fd, const struct iovec *parts, int count, off_t offset, int positioned) {
    struct stat state;
    size_t length = 0, at = 0;
    ssize_t done;
    for (int part = 0; part < count; part++)
        length += parts[part].iov_len;
    pthread_mutex_lock(&lock);
    if (recorded(fd, &state) && length) {
        if (set("full")) {
            pthread_mutex_unlock(&lock);
            errno = ENOSPC;
            return -1;
        }
        char *bytes = malloc(length);
        if (!bytes)
            fail("memory");
        for (int part = 0; part < count; at += parts[part++].iov_len)
            memcpy(bytes + at, parts[part].iov_base, parts[part].iov_len);
        change(fd, &state, positioned ? offset : position(fd, &state), bytes, length);
        free(bytes);
        done = positioned ? syscall(SYS_pwritev, fd, parts, count, offset, 0) : syscall(SYS_writev, fd, parts, count);
        pthread_mutex_unlock(&lock);
        return done;
    }
    /* Sockets and pipes may block: never under the lock. */
    pthread_mutex_unlock(&lock);
    return positioned ? syscall(SYS_pwritev, fd, parts, count, offset, 0) : syscall(SYS_writev, fd, parts, count);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    struct iovec part = {(void *)bytes, length};
    return put(fd, &part, 1, 0, 0);
}

ssize_t writev(int fd, const struct iovec *parts, int count) { return put(fd, parts, count, 0, 0); }

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    struct iovec part = {(void *)bytes, length};
    return put(fd, &part, 1, offset, 1);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) { return put(fd, parts, count, offset, 1); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return put(fd, parts, count, offset, 1); }

int ftruncate64(int fd, off64_t length) {
    struct stat state;
    pthread_mutex_lock(&lock);
    if (recorded(fd, &state) && state.st_size != length)
        change(fd, &state, length, NULL, 0);
    int done = (int)syscall(SYS_ftruncate, fd, length);
    pthread_mutex_unlock(&lock);
    return done;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    struct stat state;
    pthread_mutex_lock(&lock);
    int grows = recorded(fd, &state) && !mode && state.st_size < offset + length;
    if (grows && set("full")) {
        pthread_mutex_unlock(&lock);
        errno = ENOSPC;
        return -1;
    }
    if (grows)
        change(fd, &state, offset + length, NULL, 0);
    int done = (int)syscall(SYS_fallocate, fd, mode, offset, length);
    pthread_mutex_unlock(&lock);
    return done;
}
int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }

static int synced(int fd, int call) {
    struct stat state, log;
    pthread_mutex_lock(&lock);
    int open = recorded(fd, &state) ? log_of(state.st_ino, O_RDONLY) : -1;
    off_t until = open >= 0 && !fstat(open, &log) ? log.st_size : 0;
    unsigned slow = logs && recorded(fd, &state) ? slowness() : 0;
    pthread_mutex_unlock(&lock);
    if (slow)
        usleep(slow * 1000);
    int done = (int)syscall(call, fd);
    if (open < 0)
        return done;
    pthread_mutex_lock(&lock);
    if (!done && !fstat(open, &log) && log.st_nlink) {
        if (log.st_size == until) {
            forget(state.st_ino);
        } else { /* written to meanwhile: that is not synced */
            struct record record = {.kind = SYNCED, .offset = (uint64_t)until};
            append(state.st_ino, &record, NULL, NULL);
        }
    }
    syscall(SYS_close, open);
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* A file that is opened to be emptied is a change too; a new one begins without a log, also where its inode is used again. */
static int opened(int folder, const char *path, int flags, mode_t mode) {
    if (flags & O_TRUNC) {
        int fd = (int)syscall(SYS_openat, folder, path, (flags & ~O_TRUNC), mode);
        if (fd >= 0 && ftruncate64(fd, 0)) {
            int why = errno;
            syscall(SYS_close, fd);
            errno = why;
            return -1;
        }
        return fd;
    }
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE(flags) ({ mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); \
    mode = va_arg(more, mode_t); va_end(more); } mode; })

int open64(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags)); }
int open(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags)); }
int openat64(int folder, const char *path, int flags, ...) { return opened(folder, path, flags, MODE(flags)); }
int openat(int folder, const char *path, int flags, ...) { return opened(folder, path, flags, MODE(flags)); }

/* What a name that goes has had unsynced goes with it, once no other name is left. */
static ino_t last_name(int folder, const char *path) {
    struct stat state;
    int found = root && logs && !fstatat(folder, path, &state, AT_SYMLINK_NOFOLLOW);
    return found && S_ISREG(state.st_mode) && state.st_nlink == 1 ? state.st_ino : 0;
}

int unlinkat(int folder, const char *path, int flags) {
    pthread_mutex_lock(&lock);
    ino_t inode = last_name(folder, path);
    int done = (int)syscall(SYS_unlinkat, folder, path, flags);
    if (!done && inode)
        forget(inode);
    pthread_mutex_unlock(&lock);
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

/* A number that is used again is another file's. */
int close(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS)
        known[fd].inode = 0;
    return (int)syscall(SYS_close, fd);
}

/* Copies within the kernel are not seen here: who is refused them reads and writes instead. */
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t length, unsigned flags) {
    (void)from, (void)at, (void)to, (void)there, (void)length, (void)flags;
    errno = ENOSYS;
    return -1;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    pthread_mutex_lock(&lock);
    ino_t replaced = last_name(to_folder, to), moved = last_name(from_folder, from);
    int done = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
    if (!done && replaced && replaced != moved)
        forget(replaced);
    pthread_mutex_unlock(&lock);
    return done;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
