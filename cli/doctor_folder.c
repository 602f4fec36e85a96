/* A folder: what a run does with its files, one after the other, in a thread that may wait for the file
 * system forever. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "core/memory.h"
#include "core/status.h"

struct folder {
  pthread_mutex_t lock;
  bool ended, left; /* left: nobody waits any more, and the thread releases it */
  const char *step; /* under way */
  char *path, *renamed, *token;
  char problem[300];
};

static void folder_free(struct folder *f)
{
  pthread_mutex_destroy(&f->lock);
  trm_free(f->path);
  trm_free(f->renamed);
  trm_free(f->token);
  trm_free(f);
}

static void folder_begin(struct folder *f, const char *step)
{
  pthread_mutex_lock(&f->lock);
  f->step = step;
  pthread_mutex_unlock(&f->lock);
}

/* Notes the error of a step with its remedy. Returns false. */
static bool folder_fail(struct folder *f, const char *remedy)
{
  snprintf(f->problem, sizeof f->problem, "%s: %s: %s", f->step, strerror(errno), remedy);
  return false;
}

static bool folder_write(struct folder *f)
{
  enum { BYTES = 1 << 20 };
  folder_begin(f, "write");
  const int file = open(f->path, O_RDWR | O_CREAT | O_EXCL, 0666);
  if (file < 0)
    return folder_fail(f, errno == EROFS ? "it is mounted read-only; name a folder on another file system"
                                         : "name a folder that this user may write to");
  char *bytes = trm_alloc(BYTES, "bytes of a file");
  bool good = write(file, bytes, BYTES) == BYTES || folder_fail(f, "free some space, or raise the quota");
  trm_free(bytes);
  folder_begin(f, good ? "fsync" : f->step);
  if (good && fsync(file) != 0)
    good = folder_fail(f, "data are not safe on this file system; name another one for run.dir");
  if (good && fsync(-1) == 0) {
    errno = ENOTSUP;
    good = folder_fail(f, "a preloaded library ignores it (libeatmydata?), and a crash of the host loses checkpoints; "
                       "take it out of LD_PRELOAD");
  }
  folder_begin(f, good ? "lock" : f->step);
  if (good && (flock(file, LOCK_EX | LOCK_NB) != 0 || fcntl(file, F_SETLK, &(struct flock){.l_type = F_WRLCK}) != 0))
    good = folder_fail(f, "mount it with locks (Lustre: -o flock; NFS: lockd), or set HDF5_USE_FILE_LOCKING=FALSE");
  close(file);
  return good;
}

static bool folder_rename(struct folder *f)
{
  folder_begin(f, "rename");
  if (rename(f->path, f->renamed) != 0)
    return folder_fail(f, "name another file system for run.dir");
  folder_begin(f, "link");
  if (link(f->renamed, f->path) != 0)
    return folder_fail(f, "run.dir needs hard links; name another file system for it");
  return true;
}

/* Returns why the file system that holds the folder ignores fsync, by its line in mountinfo (proc(5)); NULL: it does
 * not, as far as that tells. */
static const char *folder_find_volatile(const char *folder)
{
  static const struct {
    const char *word, *text; /* of " - TYPE SOURCE OPTIONS" */
  } table[] = {{" - tmpfs ", "it is the host's memory"},
               {" - ramfs ", "it is the host's memory"},
               {",volatile", "an overlay that is mounted volatile"},
               {",fsync=volatile", "an overlay that is mounted volatile"}, /* the same, in newer kernels */
               {",nobarrier", "it is mounted with nobarrier"},
               {",barrier=0", "it is mounted with barrier=0"}};
  struct stat status;
  const char *found = NULL;
  char *line = NULL, device[48] = "";
  size_t capacity = 0;
  FILE *mounts = stat(folder, &status) == 0 ? fopen("/proc/self/mountinfo", "r") : NULL;
  snprintf(device, sizeof device, " %u:%u ", major(status.st_dev), minor(status.st_dev));
  while (mounts && !found && getline(&line, &capacity, mounts) > 0) {
    const char *rest = strstr(line, " - "), *at = strstr(line, device);
    for (size_t i = 0; i < sizeof table / sizeof *table && rest && at && at < rest && !found; i++)
      found = strstr(rest, table[i].word) ? table[i].text : NULL;
  }
  if (mounts)
    fclose(mounts);
  free(line);
  return found;
}

static void folder_judge_space(struct folder *f, const char *folder)
{
  const int64_t needed = (int64_t)1 << 30;
  struct statvfs space;
  folder_begin(f, "space");
  if (statvfs(folder, &space) != 0)
    folder_fail(f, "");
  else if ((int64_t)(space.f_bavail * space.f_frsize) < needed)
    snprintf(f->problem, sizeof f->problem, "%lld MiB free: checkpoints may not fit; free some space",
             (long long)(space.f_bavail * space.f_frsize) >> 20);
}

static void folder_try(struct folder *f)
{
  char *folder = trm_strdup(f->path);
  *strrchr(folder, '/') = '\0';
  if (folder_write(f) && folder_rename(f))
    folder_judge_space(f, folder);
  unlink(f->path);
  unlink(f->renamed);
  folder_begin(f, "look");
  if (!*f->problem && f->token && access(f->token, F_OK) != 0)
    snprintf(f->problem, sizeof f->problem, "a file that rank 0 has written there is not seen: name a folder that all "
             "hosts share");
  folder_begin(f, "fsync");
  const char *ignored = *f->problem ? NULL : folder_find_volatile(folder);
  if (ignored)
    snprintf(f->problem, sizeof f->problem, "fsync has no effect (%s): a crash of the host loses checkpoints; name a "
             "folder on a disk or a shared file system for run.dir", ignored);
  trm_free(folder);
}

static void *folder_thread(void *argument)
{
  struct folder *f = argument;
  folder_try(f);
  pthread_mutex_lock(&f->lock);
  f->ended = true;
  const bool left = f->left;
  pthread_mutex_unlock(&f->lock);
  if (left)
    folder_free(f);
  return NULL;
}

/* Returns true when the thread has ended, false after limit_s seconds; then the thread releases f. */
static bool folder_wait(struct folder *f, const char *folder, double limit_s, char problem[DOCTOR_TEXT])
{
  for (int64_t i = 0; i < (int64_t)(100 * limit_s) + 1; i++) {
    pthread_mutex_lock(&f->lock);
    const bool ended = f->ended;
    pthread_mutex_unlock(&f->lock);
    if (ended)
      return true;
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  pthread_mutex_lock(&f->lock);
  snprintf(problem, DOCTOR_TEXT, "%.200s: %s: no answer within %g s: the file system hangs, or its server is slow",
           folder, f->step, limit_s);
  f->left = true;
  const bool ended = f->ended;
  pthread_mutex_unlock(&f->lock);
  return ended;
}

void doctor_try_folder(const char *folder, const char *token, double limit_s, char problem[DOCTOR_TEXT])
{
  char host[64] = "";
  pthread_t thread;
  struct folder *f = trm_alloc(sizeof *f, "a folder");
  gethostname(host, sizeof host - 1);
  pthread_mutex_init(&f->lock, NULL);
  f->path = trm_format("%s/.doctor-%s-%ld", folder, host, (long)getpid());
  f->renamed = trm_format("%s.renamed", f->path);
  f->token = token ? trm_strdup(token) : NULL;
  f->step = "begin";
  if (pthread_create(&thread, NULL, folder_thread, f) != 0) {
    snprintf(problem, DOCTOR_TEXT, "%s: no thread can be started", folder);
    folder_free(f);
    return;
  }
  pthread_detach(thread);
  problem[0] = '\0';
  if (!folder_wait(f, folder, limit_s, problem))
    return;
  if (*f->problem && !*problem)
    snprintf(problem, DOCTOR_TEXT, "%.200s: %.300s", folder, f->problem);
  /* after the unlock of the thread */
  pthread_mutex_lock(&f->lock);
  pthread_mutex_unlock(&f->lock);
  folder_free(f);
}
