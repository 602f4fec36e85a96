/* Records of a text table (RFC 4180: fields may be quoted, a quote within is written twice, and separators and line
 * feeds within belong to the field), private to datasets/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CSV_ALL_FIELDS SIZE_MAX
struct csv_reader {
  struct trm_reader *file;
  char separator;    /* ',', ';', tab or another; '\0': detected from the first record */
  char **field;      /* (fields) of the current record, unquoted and trimmed; valid until the next one */
  size_t fields, field_capacity;
  size_t only;       /* the one field that the caller reads: others need not be set; CSV_ALL_FIELDS: all */
  size_t line;       /* number of the first line of the record; 0: none was read yet */
  char *text;        /* a record of several lines */
  size_t text_capacity;
};

/* Opens a file, to read all fields. */
int csv_reader_open(struct csv_reader *reader, const char *path);
void csv_reader_close(struct csv_reader *reader); /* keeps the separator and the memory */
void csv_reader_free(struct csv_reader *reader);

/* Reads the next record; *found is false at the end of the file, or at its reader's limit. Blank lines and a
 * byte order mark are skipped. */
int csv_record_next(struct csv_reader *reader, bool *found);

int csv_reader_error(const struct csv_reader *reader, const char *what); /* "PATH:LINE: WHAT"; returns TRM_FAILED */
