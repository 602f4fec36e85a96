#include "file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"

int exchange_begin(struct exchange_file *file, const char *path)
{
  *file = (struct exchange_file){.path = path, .aside = trm_format("%s.new", path)};
  file->stream = fopen(file->aside, "wb");
  if (file->stream)
    return TRM_OK;
  trm_free(file->aside);
  return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
}

int exchange_end(struct exchange_file *file, bool good)
{
  good = good && fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0;
  int reason = good ? 0 : errno;
  if (fclose(file->stream) != 0 && good) {
    good = false;
    reason = errno;
  }
  if (good && rename(file->aside, file->path) != 0) {
    good = false;
    reason = errno;
  }
  if (!good) {
    unlink(file->aside);
    trm_error(TRM_FAILED, "%s: cannot be written: %s", file->path, strerror(reason));
  }
  trm_free(file->aside);
  return good ? TRM_OK : TRM_FAILED;
}
