#include "core/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/security.h"
#include "core/signature.h"
#include "core/status.h"

static int atomic_open(struct atomic_file *file, const char *path, bool secret)
{
  const bool encrypted = secret && security_key();
  *file = (struct atomic_file){.path = path, .temp_path = trm_format("%s.new", path), .secret = secret};
  unlink(file->temp_path); /* of a process that was killed */
  const int fd = open(file->temp_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); /* follows no symbolic link */
  if (fd >= 0 && encrypted && security_encrypt(fd, file->temp_path, &file->stream, &file->cipher) != TRM_OK) {
    unlink(file->temp_path);
    trm_free(file->temp_path);
    return TRM_FAILED;
  }
  if (fd >= 0 && !encrypted)
    file->stream = fdopen(fd, "wb");
  if (file->stream)
    return TRM_OK;
  if (fd >= 0)
    close(fd);
  trm_free(file->temp_path);
  return trm_error(TRM_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

int atomic_file_open(struct atomic_file *file, const char *path)
{
  return atomic_open(file, path, false);
}

int atomic_file_open_secret(struct atomic_file *file, const char *path)
{
  return atomic_open(file, path, true);
}

/* Brings everything to the disk. */
static bool atomic_flush(struct atomic_file *file)
{
  if (fflush(file->stream) != 0)
    return false;
  return file->cipher ? cipher_file_commit(file->cipher) == TRM_OK : fsync(fileno(file->stream)) == 0;
}

int atomic_file_close(struct atomic_file *file, bool complete)
{
  complete = complete && atomic_flush(file);
  int reason = complete ? 0 : errno;
  if (fclose(file->stream) != 0 && complete) {
    complete = false;
    reason = errno;
  }
  if (complete && file->secret && signature_write(file->temp_path, file->path) != TRM_OK) {
    unlink(file->temp_path);
    trm_free(file->temp_path);
    return TRM_FAILED;
  }
  if (complete && rename(file->temp_path, file->path) != 0) {
    complete = false;
    reason = errno;
  }
  if (!complete) {
    unlink(file->temp_path);
    trm_error(TRM_FAILED, "%s: cannot be written: %s", file->path, strerror(reason));
  }
  trm_free(file->temp_path);
  return complete ? TRM_OK : TRM_FAILED;
}
