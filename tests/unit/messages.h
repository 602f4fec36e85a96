/* What was said: the recorded error, and what a function wrote to a stream. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

/* The recorded error holds this part; shows it where it does not. */
static inline bool error_has(const char *part)
{
  const bool has = strstr(trm_error_text(), part) != NULL;
  if (!has)
    fprintf(stderr, "error \"%s\" lacks \"%s\"\n", trm_error_text(), part);
  return has;
}

/* What a stream wrote: begin, write, end; the text is the caller's to free (malloc). */
struct capture {
  FILE *stream;
  char *text;
  size_t bytes;
};
static inline FILE *capture_begin(struct capture *capture)
{
  *capture = (struct capture){0};
  return capture->stream = open_memstream(&capture->text, &capture->bytes);
}
