/* Records what a program asks of the file system below one folder, for LD_PRELOAD: names, writes with their bytes, fsyncs.
 * One record an operation that succeeded, in their order, whatever thread or library (Python, SQLite, Arrow, Rust) made it:
 * struct record, then two byte strings. The file RECORD_FILE gets them; RECORD_FOLDER is the folder, without links. */
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
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPENED = 1, WROTE, CUT, SYNCED, SYNCED_FOLDER, MADE_FOLDER, REMOVED, RENAMED, LINKED, SYNCED_ALL };

struct record {
    uint32_t kind, first, second, unused;
    uint64_t inode, number;
};

static char folder[PATH_MAX];
static size_t folder_length;
static int out = -1;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("RECORD_FILE"), *below = getenv("RECORD_FOLDER");
    if (!file || !below || strlen(below) >= sizeof folder)
        abort();
    strcpy(folder, below);
    folder_length = strlen(folder);
    int opened = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (opened < 0)
        abort();
    out = fcntl(opened, F_DUPFD_CLOEXEC, 900); /* out of the way of programs that expect low numbers */
    syscall(SYS_close, opened);
    if (out < 0)
        abort();
}

static void put(const void *bytes, size_t length) {
    while (length) {
        ssize_t done = syscall(SYS_write, out, bytes, length);
        if (done <= 0)
            abort();
        bytes = (const char *)bytes + done;
        length -= done;
    }
}

static void say(uint32_t kind, uint64_t inode, uint64_t number, const char *path, const void *second, size_t length) {
    struct record record = {kind, path ? strlen(path) : 0, length, 0, inode, number};
    put(&record, sizeof record);
    if (path)
        put(path, record.first);
    if (length)
        put(second, length);
}

static int is_below(const char *path) {
    return !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

/* The absolute path of a name; 0 where it is elsewhere. Programs here use no `..` and no links. */
static int resolve(int at, const char *path, char *found) {
    if (!path)
        return 0;
    if (*path == '/')
        snprintf(found, PATH_MAX, "%s", path);
    else {
        char link[64], base[PATH_MAX];
        ssize_t length;
        if (at == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        length = readlink(link, base, sizeof base - 1);
        if (length < 0)
            return 0;
        base[length] = 0;
        if (snprintf(found, PATH_MAX, "%s/%s", base, path) >= PATH_MAX)
            return 0;
    }
    for (size_t end = strlen(found); end > 1 && found[end - 1] == '/'; end--)
        found[end - 1] = 0;
    return is_below(found);
}

/* The path of an open file below the folder; 0 for others. */
static int path_of(int file, char *found) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, found, PATH_MAX - 1);
    if (length < 0)
        return 0;
    found[length] = 0;
    return is_below(found);
}

static uint64_t inode_of(int file, int *is_folder) {
    struct stat found;
    if (fstat(file, &found))
        abort();
    *is_folder = S_ISDIR(found.st_mode);
    return found.st_ino;
}

#define LOCKED(type, call)                                                                                             \
    pthread_mutex_lock(&mutex);                                                                                        \
    type result = (call);                                                                                              \
    int kept = errno

#define DONE                                                                                                           \
    errno = kept;                                                                                                      \
    pthread_mutex_unlock(&mutex);                                                                                      \
    return result

static int open_at(int at, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    struct stat found;
    pthread_mutex_lock(&mutex);
    int ours = resolve(at, path, whole);
    int is_new = ours && (flags & O_CREAT) && lstat(whole, &found) < 0;
    int result = syscall(SYS_openat, at, path, flags, mode), kept = errno, is_folder;
    if (ours && result >= 0 && (flags & O_ACCMODE) != O_RDONLY) {
        uint64_t inode = inode_of(result, &is_folder);
        if (!is_folder)
            say(OPENED, inode, is_new | ((flags & O_TRUNC) ? 2 : 0), whole, NULL, 0);
    }
    DONE;
}

#define MODE                                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static void wrote(int file, uint64_t offset, const void *bytes, ssize_t length) {
    char path[PATH_MAX];
    int is_folder;
    if (length > 0 && file != out && path_of(file, path))
        say(WROTE, inode_of(file, &is_folder), offset, NULL, bytes, length);
}

ssize_t write(int file, const void *bytes, size_t count) {
    LOCKED(ssize_t, syscall(SYS_write, file, bytes, count));
    if (result > 0)
        wrote(file, lseek(file, 0, SEEK_CUR) - result, bytes, result);
    DONE;
}

static ssize_t write_at(int file, const void *bytes, size_t count, off64_t offset) {
    LOCKED(ssize_t, syscall(SYS_pwrite64, file, bytes, count, offset));
    wrote(file, offset, bytes, result);
    DONE;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return write_at(file, bytes, count, at); }
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) { return write_at(file, bytes, count, at); }

ssize_t writev(int file, const struct iovec *parts, int count) {
    LOCKED(ssize_t, syscall(SYS_writev, file, parts, count));
    char path[PATH_MAX];
    if (result > 0 && file != out && path_of(file, path)) {
        uint64_t offset = lseek(file, 0, SEEK_CUR) - result;
        ssize_t left = result;
        for (int each = 0; left > 0; each++) {
            ssize_t length = (ssize_t)parts[each].iov_len < left ? (ssize_t)parts[each].iov_len : left;
            wrote(file, offset, parts[each].iov_base, length);
            offset += length;
            left -= length;
        }
    }
    DONE;
}

/* Bytes that the kernel copied, read back. */
static void copied(int file, uint64_t offset, ssize_t length) {
    char path[PATH_MAX], link[64];
    if (length <= 0 || !path_of(file, path))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int opened = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    char *bytes = malloc(length);
    if (opened < 0 || !bytes || pread(opened, bytes, length, offset) != length)
        abort();
    wrote(file, offset, bytes, length);
    free(bytes);
    syscall(SYS_close, opened);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags) {
    LOCKED(ssize_t, syscall(SYS_copy_file_range, from, from_at, to, to_at, count, flags));
    if (result > 0)
        copied(to, (to_at ? *to_at : lseek(to, 0, SEEK_CUR)) - result, result);
    DONE;
}

static ssize_t send_to(int to, int from, off_t *at, size_t count) {
    LOCKED(ssize_t, syscall(SYS_sendfile, to, from, at, count));
    char path[PATH_MAX];
    if (result > 0 && path_of(to, path))
        copied(to, lseek(to, 0, SEEK_CUR) - result, result);
    DONE;
}

ssize_t sendfile(int to, int from, off_t *at, size_t count) { return send_to(to, from, at, count); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t count) { return send_to(to, from, at, count); }

static int cut_to(int file, off64_t size) {
    LOCKED(int, syscall(SYS_ftruncate, file, size));
    char path[PATH_MAX];
    int is_folder;
    if (!result && path_of(file, path))
        say(CUT, inode_of(file, &is_folder), size, NULL, NULL, 0);
    DONE;
}

int ftruncate(int file, off_t size) { return cut_to(file, size); }
int ftruncate64(int file, off64_t size) { return cut_to(file, size); }

static int sync_it(int number, int file) {
    LOCKED(int, syscall(number, file));
    char path[PATH_MAX];
    if (!result && path_of(file, path)) {
        int is_folder;
        uint64_t inode = inode_of(file, &is_folder);
        say(is_folder ? SYNCED_FOLDER : SYNCED, inode, 0, path, NULL, 0);
    }
    DONE;
}

int fsync(int file) { return sync_it(SYS_fsync, file); }
int fdatasync(int file) { return sync_it(SYS_fdatasync, file); }

void sync(void) {
    pthread_mutex_lock(&mutex);
    syscall(SYS_sync);
    say(SYNCED_ALL, 0, 0, NULL, NULL, 0);
    pthread_mutex_unlock(&mutex);
}

static int make_folder(int at, const char *path, mode_t mode) {
    char whole[PATH_MAX];
    LOCKED(int, syscall(SYS_mkdirat, at, path, mode));
    if (!result && resolve(at, path, whole))
        say(MADE_FOLDER, 0, 0, whole, NULL, 0);
    DONE;
}

int mkdir(const char *path, mode_t mode) { return make_folder(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return make_folder(at, path, mode); }

static int remove_it(int at, const char *path, int flags) {
    char whole[PATH_MAX];
    pthread_mutex_lock(&mutex);
    int ours = resolve(at, path, whole);
    int result = syscall(SYS_unlinkat, at, path, flags), kept = errno;
    if (!result && ours)
        say(REMOVED, 0, 0, whole, NULL, 0);
    DONE;
}

int unlink(const char *path) { return remove_it(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return remove_it(at, path, flags); }
int rmdir(const char *path) { return remove_it(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char *path) {
    struct stat found;
    return lstat(path, &found) ? -1 : S_ISDIR(found.st_mode) ? rmdir(path) : unlink(path);
}

static int name_anew(uint32_t kind, int number, int at, const char *path, int to_at, const char *to, int flags) {
    char whole[PATH_MAX], target[PATH_MAX];
    pthread_mutex_lock(&mutex);
    int from_ours = resolve(at, path, whole), to_ours = resolve(to_at, to, target);
    if (from_ours != to_ours)
        abort(); /* a name from elsewhere has no bytes here */
    int result = syscall(number, at, path, to_at, to, flags), kept = errno;
    if (!result && from_ours)
        say(kind, 0, 0, whole, target, strlen(target));
    DONE;
}

int rename(const char *path, const char *to) {
    return name_anew(RENAMED, SYS_renameat2, AT_FDCWD, path, AT_FDCWD, to, 0);
}
int renameat(int at, const char *path, int to_at, const char *to) {
    return name_anew(RENAMED, SYS_renameat2, at, path, to_at, to, 0);
}
int renameat2(int at, const char *path, int to_at, const char *to, unsigned flags) {
    return name_anew(RENAMED, SYS_renameat2, at, path, to_at, to, flags);
}
int link(const char *path, const char *to) { return name_anew(LINKED, SYS_linkat, AT_FDCWD, path, AT_FDCWD, to, 0); }
int linkat(int at, const char *path, int to_at, const char *to, int flags) {
    return name_anew(LINKED, SYS_linkat, at, path, to_at, to, flags);
}
