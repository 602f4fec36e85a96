#include "cli/run_segments.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"

/* Names that MPICH, UCX and Open MPI give their segments. */
static const char *const prefixes[] = {"mpich_shar_tmp", "ucx_shm_posix_", "vader_segment.", "sm_segment."};

struct segment {
  char name[256];
  dev_t device;
  ino_t number;
  bool used;
};

struct segments {
  struct segment *one; /* (count) */
  size_t count, capacity;
};

static bool segments_is_of_mpi(const char *name)
{
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
      return true;
  return false;
}

static bool segments_is_later(struct timespec a, struct timespec b)
{
  return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

/* Lists this user's segments that have changed since then. */
static void segments_list(struct segments *segments, DIR *folder, struct timespec since)
{
  struct stat info;
  for (struct dirent *e; (e = readdir(folder));) {
    if (!segments_is_of_mpi(e->d_name) || fstatat(dirfd(folder), e->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode) || info.st_uid != geteuid() || !segments_is_later(info.st_ctim, since))
      continue;
    segments->one = trm_grow(segments->one, &segments->capacity, segments->count, segments->count + 1,
                             sizeof *segments->one, "segments");
    struct segment *one = &segments->one[segments->count++];
    *one = (struct segment){.device = info.st_dev, .number = info.st_ino};
    snprintf(one->name, sizeof one->name, "%s", e->d_name);
  }
}

static void segments_mark(struct segments *segments, dev_t device, ino_t number)
{
  for (size_t i = 0; i < segments->count; i++)
    segments->one[i].used |= segments->one[i].number == number && segments->one[i].device == device;
}

/* Marks the segments that a process has mapped. One that may not be looked at is none of this user's jobs. */
static void segments_read_maps(struct segments *segments, const char *process)
{
  char path[300], line[512];
  unsigned major, minor;
  unsigned long number;
  snprintf(path, sizeof path, "/proc/%s/maps", process);
  FILE *maps = fopen(path, "r");
  while (maps && fgets(line, sizeof line, maps))
    if (sscanf(line, "%*s %*s %*s %x:%x %lu", &major, &minor, &number) == 3)
      segments_mark(segments, makedev(major, minor), number);
  if (maps)
    fclose(maps);
}

/* The same of those that it has open. */
static void segments_read_files(struct segments *segments, const char *process)
{
  char path[300];
  struct stat info;
  snprintf(path, sizeof path, "/proc/%s/fd", process);
  DIR *files = opendir(path);
  for (struct dirent *e; files && (e = readdir(files));)
    if (fstatat(dirfd(files), e->d_name, &info, 0) == 0)
      segments_mark(segments, info.st_dev, info.st_ino);
  if (files)
    closedir(files);
}

/* Returns false if there is no list of processes. */
static bool segments_read_processes(struct segments *segments)
{
  DIR *processes = opendir("/proc");
  bool known = false;
  for (struct dirent *e; processes && (e = readdir(processes));)
    if (isdigit((unsigned char)e->d_name[0])) {
      segments_read_maps(segments, e->d_name);
      segments_read_files(segments, e->d_name);
      known = true;
    }
  if (processes)
    closedir(processes);
  return known;
}

void run_segments_remove(struct timespec since)
{
  struct segments segments = {0};
  DIR *folder = opendir("/dev/shm");
  if (!folder)
    return;
  segments_list(&segments, folder, since);
  if (segments.count > 0 && segments_read_processes(&segments))
    for (size_t i = 0; i < segments.count; i++)
      if (!segments.one[i].used && unlinkat(dirfd(folder), segments.one[i].name, 0) == 0)
        trm_info("run: /dev/shm/%s, left by a process that was killed, is removed", segments.one[i].name);
  trm_free(segments.one);
  closedir(folder);
}
