/* A new file that takes the place of an old one in one step (private to src/exchange). */
#ifndef TRM_EXCHANGE_FILE_H
#define TRM_EXCHANGE_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct exchange_file {
  const char *path;
  char *aside;  /* path.new */
  FILE *stream; /* to write to */
};

/* Errors name the file; there is then nothing to end. */
int exchange_begin(struct exchange_file *file, const char *path);
/* good: all was written. Flushes it to the disk and renames it; otherwise, or if that fails, removes it. */
int exchange_end(struct exchange_file *file, bool good);

#endif
