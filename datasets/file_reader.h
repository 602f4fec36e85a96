/* Input files of the importers, plain or gzip, read as bytes or as lines (private to datasets/).
 *
 * What a file is shows in its first bytes, not in its name. A gzip file that ends early or is damaged is an error,
 * never a short file. Every error names the file, and the line where lines are read. */
#ifndef TRM_DATASETS_INPUT_H
#define TRM_DATASETS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trm_reader;

/* Opens a file for reading. Folders, missing files, other compressions and gzip in a build without zlib are errors.
 * The caller closes. */
int trm_reader_open(struct trm_reader **reader, const char *path);
void trm_reader_close(struct trm_reader *reader); /* NULL is allowed */

/* Reads up to `want` bytes; fewer only at the end of the file. */
int trm_reader_read(struct trm_reader *reader, void *to, size_t max_bytes, size_t *got);

/* The next line without its line feed and a carriage return before it, NUL-terminated, owned by the reader until the
 * next call; NULL at the end of the file. A NUL byte within is an error: the file is not text. */
int trm_reader_line(struct trm_reader *reader, char **line, size_t *length);

const char *trm_reader_path(const struct trm_reader *reader);
size_t trm_reader_line_number(const struct trm_reader *reader); /* of the line read last, from 1 */

/* Records "FILE:LINE: message" and returns TRM_FAILED. */
int trm_reader_error(const struct trm_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One finite number, in the C locale's notation, that fills the whole text. False if it is anything else. */
bool trm_parse_number(const char *text, double *number);

#endif
