/* Input files of the importers, plain or gzip, read as bytes or as lines (private to datasets/).
 *
 * The compression is detected from the first bytes, not from the name. A gzip file that ends early or is damaged is an
 * error. Every error names the file, and the line where lines are read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trm_reader;

/* Opens a file for reading. Folders, missing files, other compressions and gzip in a build without zlib are errors.
 * The caller closes. */
int trm_reader_open(struct trm_reader **reader, const char *path);
void trm_reader_close(struct trm_reader *reader); /* NULL is allowed */

/* The most bytes that a file of this size can hold: of gzip 1,032 times as many; of a pipe any number. */
uint64_t trm_reader_max_bytes(const struct trm_reader *reader);

/* Bytes of a plain regular file; 0: compressed, empty or another kind. */
uint64_t trm_reader_plain_bytes(const struct trm_reader *reader);

/* Parts of a file. Offsets count bytes of the text. The next three need a plain regular file.
 * load: reads bytes [low, high) into memory, and counts line feeds and quotes in them.
 * seek: the reader goes on at an offset before which there are so many lines.
 * align: it goes on at the first line that begins at or after `low`, the line feeds before `low` given; with quotes the
 * first one that begins outside of quotes, open: `low` is inside. */
int trm_reader_load(struct trm_reader *reader, uint64_t low, uint64_t high, uint64_t *feeds, uint64_t *marks);
int trm_reader_seek(struct trm_reader *reader, uint64_t offset, size_t lines);
int trm_reader_align(struct trm_reader *reader, uint64_t low, bool quotes, bool open, uint64_t feeds);
uint64_t trm_reader_position(const struct trm_reader *reader); /* of the next byte to read */
/* at_limit: the next byte to read is at or after the limit; without a limit false. Reading does not stop there. */
void trm_reader_limit(struct trm_reader *reader, uint64_t offset);
bool trm_reader_at_limit(const struct trm_reader *reader);

/* Reads up to max_bytes bytes; fewer only at the end of the file. */
int trm_reader_read(struct trm_reader *reader, void *to, size_t max_bytes, size_t *got);

/* Reads the next line, without its line feed and a carriage return before it, NUL-terminated, owned by the reader and
 * valid until the next call; NULL at the end of the file. A NUL byte in it is an error. */
int trm_reader_line(struct trm_reader *reader, char **line, size_t *length);

const char *trm_reader_path(const struct trm_reader *reader);
size_t trm_reader_line_number(const struct trm_reader *reader); /* of the last line, from 1 */

/* Records "FILE:LINE: message" and returns TRM_FAILED. */
int trm_reader_error(const struct trm_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parses the number that `text` begins with, to the bits of strtod in the C locale. Returns its end; `text`: there is
 * none. White space is not skipped. */
const char *trm_number_scan(const char *text, double *number);
/* Parses a text that is one finite number in the notation of the C locale; false: it is not. */
bool trm_parse_number(const char *text, double *number);
/* Parses one in single precision. Returns NULL, or a description of the error: "is not a number". */
const char *trm_parse_float(const char *text, float *value);
