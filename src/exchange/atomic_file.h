/* A new file that takes the place of an old one in one step (private to src/exchange). */
#ifndef TRM_EXCHANGE_ATOMIC_FILE_H
#define TRM_EXCHANGE_ATOMIC_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct atomic_file {
  const char *path;
  char *temp_path;  /* path.new */
  FILE *stream; /* to write to */
};

/* Errors name the file; there is then nothing to end. */
int atomic_file_open(struct atomic_file *file, const char *path);
/* good: all was written. Flushes it to the disk and renames it; otherwise, or if that fails, removes it. */
int atomic_file_close(struct atomic_file *file, bool complete);

#endif
