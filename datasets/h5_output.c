/* HDF5 files that take their name only when they are complete. */
#include "h5.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

/* Creates an empty file beside the output's path under a name that no file has. O_EXCL follows no symbolic link. */
static int output_temporary_create(struct h5_output *output, bool unique)
{
  int fd = -1;
  for (int tries = 0; fd < 0 && tries < 100; tries++) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const unsigned number = (unsigned)now.tv_nsec ^ (unsigned)getpid() << 10 ^ (unsigned)tries << 24;
    trm_free(output->temporary);
    output->temporary =
      unique ? trm_format("%s.%08x.new", output->path, number) : trm_format("%s.new", output->path);
    if (!unique)
      unlink(output->temporary);
    fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST)
      break;
  }
  if (fd < 0)
    return trm_error(TRM_FAILED, "%s: cannot be created: %s", output->temporary, strerror(errno));
  close(fd);
  return TRM_OK;
}

static void output_free(struct h5_output *output)
{
  trm_free(output->path);
  trm_free(output->temporary);
  *output = (struct h5_output){.file = -1};
}

int h5_output_open(struct h5_output *output, const char *path, const char *format, bool unique)
{
  *output = (struct h5_output){.file = -1, .path = trm_strdup(path)};
  int status = output_temporary_create(output, unique);
  if (status != TRM_OK) {
    output_free(output);
    return status;
  }
  h5_enter();
  const hid_t plist = h5_access_plist();
  output->file = H5Fcreate(output->temporary, H5F_ACC_TRUNC, H5P_DEFAULT, plist);
  if (output->file < 0)
    status = h5_error(path, "cannot be created");
  H5Pclose(plist);
  if (status == TRM_OK && (!h5_put_text(output->file, "format", format) ||
                           !h5_put_integer(output->file, "version", H5_FORMAT_VERSION)))
    status = h5_error(path, "cannot be written");
  if (status != TRM_OK)
    h5_output_discard(output);
  h5_leave();
  return status;
}

static int output_fsync(const char *path, int flags)
{
  const int fd = open(path, flags | O_CLOEXEC);
  if (fd < 0)
    return -1;
  int failed = fsync(fd);
  if (failed && errno == EINVAL)
    failed = 0; /* some file systems have no fsync for folders */
  const int reason = errno;
  close(fd);
  errno = reason;
  return failed;
}

int h5_output_commit(struct h5_output *output)
{
  h5_enter();
  int status = TRM_OK;
  if (H5Fflush(output->file, H5F_SCOPE_GLOBAL) < 0)
    status = h5_error(output->path, "cannot be written");
  else if (H5Fclose(output->file) < 0)
    status = h5_error(output->path, "cannot be closed");
  else
    output->file = -1;
  h5_leave();
  if (status == TRM_OK &&
      (output_fsync(output->temporary, O_RDONLY) || rename(output->temporary, output->path)))
    status = trm_error(TRM_FAILED, "%s: cannot be written: %s", output->path, strerror(errno));
  if (status != TRM_OK) {
    h5_output_discard(output);
    return status;
  }
  char *copy = trm_strdup(output->path);
  if (output_fsync(dirname(copy), O_RDONLY | O_DIRECTORY))
    status = trm_error(TRM_FAILED, "%s: its folder cannot be synchronized: %s", output->path, strerror(errno));
  trm_free(copy);
  output_free(output);
  return status;
}

void h5_output_discard(struct h5_output *output)
{
  h5_enter();
  if (output->file >= 0) {
    int *fd = NULL;
    const hid_t plist = H5Fget_access_plist(output->file);
    if (plist >= 0 && H5Fget_vfd_handle(output->file, plist, (void **)&fd) >= 0 && fd && ftruncate(*fd, 0))
      trm_warn("%s: its space on the disk is free only when the program ends: %s", output->path, strerror(errno));
    if (plist >= 0)
      H5Pclose(plist);
  }
  h5_leave();
  unlink(output->temporary);
  output_free(output);
}
