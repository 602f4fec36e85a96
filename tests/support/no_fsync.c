/* A library to preload: fsync says at once that all is on the disk, as libeatmydata's does. */
#include <unistd.h>

int fsync(int fd)
{
  (void)fd;
  return 0;
}
