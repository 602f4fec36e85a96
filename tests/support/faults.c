/* A library to preload: counts the system calls that change files below a folder, and lets one of them fail, or ends
 * the process there. Environment:
 *   FAULT_FOLDER  files whose path has this text are watched
 *   FAULT_AT      the number of the call that fails, from 1; 0: none
 *   FAULT         ENOSPC, EDQUOT, EIO (all later writes fail, too), EINTR (that call alone), or kill
 *   FAULT_DELAY   seconds that each fsync takes: a slow disk
 *   FAULT_COUNT   a file to which a process with such calls writes their number at its end */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long calls;
static bool persists; /* writes fail from now on */

static int fault_errno(void)
{
  static const struct {
    const char *name;
    int number;
  } table[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO}, {"EINTR", EINTR}};
  const char *name = getenv("FAULT");
  for (size_t i = 0; name && i < sizeof table / sizeof *table; i++)
    if (strcmp(name, table[i].name) == 0)
      return table[i].number;
  return 0;
}

static bool fault_watches(const char *path)
{
  const char *folder = getenv("FAULT_FOLDER");
  return folder && path && strstr(path, folder);
}

/* Counts a call. Returns true, with errno, if it fails. */
static bool fault_now(bool writes)
{
  const char *at = getenv("FAULT_AT");
  pthread_mutex_lock(&lock);
  const bool here = ++calls == (at ? atol(at) : 0);
  const bool fails = here || (persists && writes);
  if (here && getenv("FAULT") && strcmp(getenv("FAULT"), "kill") == 0)
    kill(getpid(), SIGKILL);
  persists = persists || (here && writes && fault_errno() != EINTR);
  pthread_mutex_unlock(&lock);
  if (fails)
    errno = fault_errno();
  return fails;
}

/* Returns true if the file is watched. */
static bool fault_is_of(int fd)
{
  char link[64], path[PATH_MAX];
  const int saved = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  errno = saved;
  if (n <= 0)
    return false;
  path[n] = '\0';
  return fault_watches(path);
}

static bool fault_of_file(int fd, bool writes)
{
  return fault_is_of(fd) && fault_now(writes);
}

__attribute__((destructor)) static void fault_end(void)
{
  const char *name = getenv("FAULT_COUNT");
  FILE *file = name && calls ? fopen(name, "w") : NULL;
  if (!file)
    return;
  fprintf(file, "%ld\n", calls);
  fclose(file);
}

/* NEXT(type, name): the function that this library stands before. */
#define NEXT(result, name, ...) \
  static result (*next)(__VA_ARGS__); \
  if (!next) \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

#define ON_FILE(result, name, writes, parameters, arguments, ...) \
  result name parameters; \
  result name parameters \
  { \
    NEXT(result, name, __VA_ARGS__); \
    return fault_of_file(fd, writes) ? -1 : next arguments; \
  }

ON_FILE(ssize_t, write, true, (int fd, const void *data, size_t n), (fd, data, n), int, const void *, size_t)
ON_FILE(ssize_t, pwrite, true, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at), int, const void *,
        size_t, off_t)
ON_FILE(ssize_t, pwrite64, true, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at), int, const void *,
        size_t, off64_t)
ON_FILE(int, ftruncate, false, (int fd, off_t n), (fd, n), int, off_t)
ON_FILE(int, ftruncate64, false, (int fd, off64_t n), (fd, n), int, off64_t)

int fsync(int fd)
{
  NEXT(int, fsync, int);
  const char *delay = getenv("FAULT_DELAY");
  const bool fails = fault_of_file(fd, true);
  if (delay && !fails && fault_is_of(fd))
    usleep((useconds_t)(1e6 * atof(delay)));
  return fails ? -1 : next(fd);
}

/* The descriptor is closed all the same, as in Linux. */
int close(int fd)
{
  NEXT(int, close, int);
  const bool fails = fault_of_file(fd, false);
  const int reason = errno, status = next(fd);
  if (fails)
    errno = reason;
  return fails ? -1 : status;
}

#define ON_PATH(result, name, parameters, arguments, path, ...) \
  result name parameters; \
  result name parameters \
  { \
    NEXT(result, name, __VA_ARGS__); \
    return fault_watches(path) && fault_now(false) ? -1 : next arguments; \
  }

ON_PATH(int, rename, (const char *from, const char *to), (from, to), to, const char *, const char *)
ON_PATH(int, unlink, (const char *path), (path), path, const char *)
ON_PATH(int, symlink, (const char *to, const char *path), (to, path), path, const char *, const char *)
ON_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode), path, const char *, mode_t)

#define ON_OPEN(name) \
  int name(const char *path, int flags, ...); \
  int name(const char *path, int flags, ...) \
  { \
    va_list list; \
    NEXT(int, name, const char *, int, ...); \
    va_start(list, flags); \
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0; \
    va_end(list); \
    return flags & (O_WRONLY | O_RDWR) && fault_watches(path) && fault_now(false) ? -1 : next(path, flags, mode); \
  }
ON_OPEN(open)
ON_OPEN(open64)
