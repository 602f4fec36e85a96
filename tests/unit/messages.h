/* Messages: the recorded error, and the text that a function writes to a stream. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

/* Returns true if the recorded error contains `part`; prints the error otherwise. */
static inline bool error_has(const char *part)
{
  const bool has = strstr(trm_error_text(), part) != NULL;
  if (!has)
    fprintf(stderr, "error \"%s\" lacks \"%s\"\n", trm_error_text(), part);
  return has;
}

/* Captures the output of a stream: begin, write, end. The caller frees the text (malloc). */
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
