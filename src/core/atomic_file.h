/* A file that replaces an older one in one step: an interrupted write leaves the older one whole. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct atomic_file {
  const char *path; /* not owned */
  char *temp_path;  /* path.new */
  FILE *stream;     /* of temp_path */
  bool secret;      /* opened by atomic_file_open_secret */
  struct cipher_file *cipher; /* the stream's, which owns it; NULL: not encrypted */
};

/* Opens path.new for writing. Errors name the file; nothing is left to close then. */
int atomic_file_open(struct atomic_file *file, const char *path);
/* The same for a file with data or weights: it is encrypted if this process has a key (core/security.h), and
 * signed when it is closed if it has one for that (core/signature.h). */
int atomic_file_open_secret(struct atomic_file *file, const char *path);
/* Flushes the stream to the disk and renames the file to its path if `complete` (everything was written); removes it
 * otherwise, and after an error. */
int atomic_file_close(struct atomic_file *file, bool complete);
