/* HDF5 files that get their name only when they are complete. */
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
#include "core/security.h"
#include "core/signature.h"
#include "core/status.h"

static void output_free(struct h5_output *output)
{
  trm_free(output->path);
  trm_free(output->temporary);
  *output = (struct h5_output){.file = -1};
}

int h5_output_open(struct h5_output *output, const char *path, const char *format, bool unique)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const unsigned number = (unsigned)now.tv_nsec ^ (unsigned)getpid() << 10;
  *output = (struct h5_output){
    .file = -1, .path = trm_strdup(path),
    .temporary = unique ? trm_format("%s.%08x.new", path, number) : trm_format("%s.new", path)};
  if (!unique)
    unlink(output->temporary);
  const int fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); /* follows no symbolic link */
  if (fd < 0) {
    const int status = trm_error(TRM_FAILED, "%s: cannot be created: %s", output->temporary, strerror(errno));
    output_free(output);
    return status;
  }
  close(fd);
  H5_LOCKED;
  H5_CLOSED const hid_t plist = h5_access_plist();
  if (security_key())
    h5_encrypt(plist);
  output->file = H5Fcreate(output->temporary, H5F_ACC_TRUNC, H5P_DEFAULT, plist);
  if (output->file >= 0 && h5_put_text(output->file, "format", format) &&
      h5_put_integer(output->file, "version", H5_FORMAT_VERSION))
    return TRM_OK;
  h5_error(path, "cannot be written");
  h5_output_discard(output);
  return TRM_FAILED;
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

static int output_close(struct h5_output *output)
{
  H5_LOCKED;
  if (H5Fflush(output->file, H5F_SCOPE_GLOBAL) < 0)
    return h5_error(output->path, "cannot be written");
  const herr_t closed = H5Fclose(output->file);
  output->file = -1; /* closed in part if this has failed: HDF5 crashes when it is used */
  return closed < 0 ? h5_error(output->path, "cannot be closed") : TRM_OK;
}

int h5_output_commit(struct h5_output *output)
{
  int status = output_close(output);
  if (status == TRM_OK && output_fsync(output->temporary, O_RDONLY))
    status = trm_error(TRM_FAILED, "%s: cannot be written: %s", output->path, strerror(errno));
  if (status == TRM_OK)
    status = signature_write(output->temporary, output->path);
  if (status == TRM_OK && rename(output->temporary, output->path))
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
  if (truncate(output->temporary, 0))
    trm_warn("%s: its space on the disk is free only when the program ends: %s", output->path, strerror(errno));
  unlink(output->temporary);
  output_free(output);
}
