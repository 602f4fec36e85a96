/* An unlinked file, mapped by one or several processes. */
#include "core/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

#define TMPFS 0x01021994 /* statfs(2) */

static int mapped_error(const char *folder, size_t bytes, const char *what, const char *why, int error)
{
  return trm_error(TRM_FAILED, "%s: %s %.1f MiB for %s: %s", folder, why, (double)bytes / 1048576.0, what,
                   strerror(error));
}

/* Allocates the disk space of the file; returns an error number. */
static int mapped_allocate(int file, size_t bytes)
{
  struct statvfs disk;
  if (fstatvfs(file, &disk) == 0 && bytes / disk.f_frsize >= disk.f_bavail)
    return ENOSPC; /* some systems would first write zeros */
  int error;
  do
    error = posix_fallocate(file, 0, (off_t)bytes);
  while (error == EINTR);
  return error;
}

/* Creates a file and allocates its disk space. *path: owned by the caller. */
static int mapped_create_file(const char *folder, size_t bytes, const char *what, char **path, int *file)
{
  *path = trm_format("%s/trireme-XXXXXX", folder);
  *file = mkostemp(*path, O_CLOEXEC);
  if (*file < 0)
    return mapped_error(folder, bytes, what, "no file can be made there, of", errno);
  const int error = mapped_allocate(*file, bytes);
  if (error) {
    unlink(*path);
    close(*file);
    *file = -1;
    return mapped_error(folder, bytes, what, "there is no room for", error);
  }
  struct statfs system;
  bool *warned = &trm_rank_current()->warned_of_tmpfs;
  if (!*warned && fstatfs(*file, &system) == 0 && system.f_type == TMPFS) {
    *warned = true;
    trm_warn("%s: a folder in memory (tmpfs) saves none for %s; choose one on a disk", folder, what);
  }
  return TRM_OK;
}

static int mapped_map_file(int file, const char *folder, size_t bytes, const char *what, struct trm_mapped *mapped)
{
  void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED)
    return mapped_error(folder, bytes, what, "a file there cannot be mapped, of", errno);
  madvise(data, bytes, MADV_SEQUENTIAL);
  *mapped = (struct trm_mapped){data, bytes};
  return TRM_OK;
}

/* Broadcasts the path of the file from rank 0. */
static void mapped_broadcast_path(struct trm_comm *comm, char **path)
{
  int32_t length = comm->rank == 0 ? (int32_t)strlen(*path) : 0;
  comm->ops->broadcast(comm, &length, 1, TRM_INT32, 0);
  if (comm->rank != 0)
    *path = trm_alloc((size_t)length + 1, "text");
  comm->ops->broadcast(comm, *path, (size_t)length, TRM_BYTE, 0);
}

int trm_mapped_create(struct trm_comm *comm, const char *folder, size_t bytes, const char *what,
                      struct trm_mapped *mapped)
{
  char *path = NULL;
  int file = -1;
  *mapped = (struct trm_mapped){0};
  bytes = bytes ? bytes : 1;
  int status = trm_agree(comm, comm->rank == 0 ? mapped_create_file(folder, bytes, what, &path, &file) : TRM_OK);
  if (status == TRM_OK) {
    mapped_broadcast_path(comm, &path);
    if (comm->rank != 0 && (file = open(path, O_RDWR | O_CLOEXEC)) < 0)
      status = mapped_error(folder, bytes, what, "another rank's file cannot be opened, of", errno);
    if (status == TRM_OK)
      status = mapped_map_file(file, folder, bytes, what, mapped);
    status = trm_agree(comm, status);
    if (comm->rank == 0)
      unlink(path);
  }
  if (file >= 0)
    close(file);
  trm_free(path);
  if (status != TRM_OK)
    trm_mapped_free(mapped);
  return status;
}

void trm_mapped_free(struct trm_mapped *mapped)
{
  if (mapped->data)
    munmap(mapped->data, mapped->bytes);
  *mapped = (struct trm_mapped){0};
}
