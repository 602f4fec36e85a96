#include "core/atomic_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"

int atomic_file_open(struct atomic_file *file, const char *path)
{
  *file = (struct atomic_file){.path = path, .temp_path = trm_format("%s.new", path)};
  file->stream = fopen(file->temp_path, "wb");
  if (file->stream)
    return TRM_OK;
  trm_free(file->temp_path);
  return trm_error(TRM_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

int atomic_file_close(struct atomic_file *file, bool complete)
{
  complete = complete && fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0;
  int reason = complete ? 0 : errno;
  if (fclose(file->stream) != 0 && complete) {
    complete = false;
    reason = errno;
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
