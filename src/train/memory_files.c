#include "train/memory_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/sha256.h"
#include "core/signature.h"
#include "core/status.h"

/* Names of folders: PREFIX, DIGITS of the path's hash, "-", DIGITS of the hash of the log's first line. */
#define PREFIX "trireme-"
enum { DIGITS = 16 };

static void memory_hash(const char *text, size_t bytes, char hex[65])
{
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  trm_sha256_add(&hash, text, bytes);
  trm_sha256_end(&hash, hex);
}

char *trm_memory_files_folder(const char *root, const char *run)
{
  char path[PATH_MAX], of_path[65], of_line[65], *line = NULL;
  size_t capacity = 0;
  char *log = trm_format("%s/audit.jsonl", run);
  FILE *stream = realpath(run, path) ? fopen(log, "re") : NULL;
  const ssize_t bytes = stream ? getline(&line, &capacity, stream) : 0;
  if (stream)
    fclose(stream);
  trm_free(log);
  if (bytes > 0) {
    memory_hash(path, strlen(path), of_path);
    memory_hash(line, (size_t)bytes, of_line);
  }
  free(line);
  return bytes > 0 ? trm_format("%s/" PREFIX "%.*s-%.*s", root, DIGITS, of_path, DIGITS, of_line) : NULL;
}

/* True if the folder is there, and nobody but this user can write or read in it. */
static bool memory_is_private(const char *folder)
{
  struct stat about;
  return lstat(folder, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() && !(about.st_mode & 077);
}

/* Removes the files of a folder, but for those whose names begin with `keep` (NULL: none). */
static void memory_remove_files(const char *folder, const char *keep)
{
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));)
    if (e->d_name[0] != '.' && (!keep || strncmp(e->d_name, keep, strlen(keep)) != 0) &&
        unlinkat(dirfd(d), e->d_name, 0) != 0)
      trm_warn("%s/%s: cannot be removed: %s", folder, e->d_name, strerror(errno));
  if (d)
    closedir(d);
}

int trm_memory_files_make(const char *folder, uint64_t keep)
{
  const struct trm_checkpoint_files files = {.run = folder};
  char *checkpoints = trm_format("%s/checkpoints", folder);
  const bool made = mkdir(folder, 0700) == 0 || errno == EEXIST;
  int status = TRM_OK;
  if (!made)
    status = trm_error(TRM_FAILED, "run.buddy: %s: cannot make the folder: %s", folder, strerror(errno));
  else if (!memory_is_private(folder))
    status = trm_error(TRM_FAILED, "run.buddy: %s: is not a folder of this user alone (mode 0700); remove it", folder);
  else if (mkdir(checkpoints, 0700) != 0 && errno != EEXIST)
    status = trm_error(TRM_FAILED, "run.buddy: %s: cannot make the folder: %s", checkpoints, strerror(errno));
  if (status == TRM_OK) {
    char *kept = keep == UINT64_MAX ? NULL : trm_checkpoint_files_path(&files, keep);
    memory_remove_files(checkpoints, kept ? strrchr(kept, '/') + 1 : NULL);
    trm_free(kept);
  }
  trm_free(checkpoints);
  return status;
}

bool trm_memory_files_newest(const char *folder, const struct trm_checkpoint_ops *ops, uint64_t from, uint64_t *step)
{
  const struct trm_checkpoint_files files = {.run = folder};
  bool any = false, found = false;
  while (!found && memory_is_private(folder) && trm_checkpoint_files_newest_step(&files, step, &any) == TRM_OK && any &&
         *step >= from) {
    char *path = trm_checkpoint_files_path(&files, *step);
    found = ops->verify(path) == TRM_OK;
    if (!found)
      trm_warn("run.buddy: a copy of the state in memory is damaged, and is not used: %s", trm_error_text());
    const bool removed = found || unlink(path) == 0;
    if (!found)
      signature_remove(path);
    trm_free(path);
    if (!removed)
      break;
  }
  return found;
}

/* Returns the bytes of the files in a folder. */
static double memory_used(const char *folder)
{
  DIR *d = opendir(folder);
  double bytes = 0;
  struct stat about;
  for (struct dirent *e; d && (e = readdir(d));)
    if (fstatat(dirfd(d), e->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode))
      bytes += (double)about.st_size;
  if (d)
    closedir(d);
  return bytes;
}

int trm_memory_files_check_space(const char *folder, double bytes)
{
  char *checkpoints = trm_format("%s/checkpoints", folder);
  struct statvfs about;
  const int known = statvfs(checkpoints, &about), reason = errno;
  const double space = known == 0 ? (double)about.f_bavail * (double)about.f_frsize + memory_used(checkpoints) : 0;
  char host[128] = "";
  gethostname(host, sizeof host - 1);
  trm_free(checkpoints);
  if (known != 0)
    return trm_error(TRM_FAILED, "run.buddy: %s: %s", folder, strerror(reason));
  if (space >= bytes)
    return TRM_OK;
  return trm_error(TRM_USAGE, "run.buddy: two copies of the state take %.1f MB of memory in %.*s, which has %.1f MB "
                   "left on %s; enlarge it (mount -o remount,size=...), or train without run.buddy", bytes / 1e6,
                   (int)(strrchr(folder, '/') - folder), folder, space / 1e6, host);
}

static void memory_remove_folder(const char *folder)
{
  char *checkpoints = trm_format("%s/checkpoints", folder);
  memory_remove_files(checkpoints, NULL);
  if ((rmdir(checkpoints) != 0 && errno != ENOENT) || rmdir(folder) != 0)
    trm_warn("%s: cannot be removed: %s", folder, strerror(errno));
  trm_free(checkpoints);
}

void trm_memory_files_remove(const char *folder, bool others)
{
  const char *name = strrchr(folder, '/') + 1;
  char *root = trm_format("%.*s", (int)(name - folder - 1), folder);
  DIR *d = opendir(root);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (strncmp(e->d_name, name, sizeof PREFIX + DIGITS) != 0 || (others && strcmp(e->d_name, name) == 0))
      continue;
    char *one = trm_format("%s/%s", root, e->d_name);
    if (memory_is_private(one))
      memory_remove_folder(one);
    trm_free(one);
  }
  if (d)
    closedir(d);
  trm_free(root);
}
