/* Input files of the importers, plain or gzip, read as bytes or as lines. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "datasets/file_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "core/clones.h"
#include "core/memory.h"
#include "core/status.h"

#define BUFFER_BYTES ((size_t)1 << 18)
#define GZIP_MAX_RATIO 1032 /* of deflate */
#define MAX_LINE ((size_t)1 << 26) /* bytes; a gzip file of a megabyte may have one of a gigabyte */

struct trm_reader {
  char *path;
  uint64_t max_bytes;
  FILE *plain;
#ifdef HAVE_ZLIB
  gzFile gzip;
#endif
  unsigned char *buffer; /* (buffer_bytes) at least BUFFER_BYTES */
  size_t buffer_bytes;
  size_t next, end;      /* unread bytes of it */
  uint64_t filled;       /* offset of the end of it in the text */
  uint64_t limit;
  uint64_t plain_bytes;
  char *line;
  size_t line_capacity;
  size_t line_number;
  bool finished; /* end of file */
};

/* Signatures of unsupported compressions, for messages. */
static const struct {
  const char *magic;
  size_t bytes;
  const char *name;
} foreign_formats[] = {
  {"BZh", 3, "bzip2"}, {"\xfd" "7zXZ", 5, "xz"}, {"PK\3\4", 4, "zip"}, {"\x28\xb5\x2f\xfd", 4, "zstd"},
};

static int file_reader_start(struct trm_reader *reader)
{
  struct stat info;
  if (stat(reader->path, &info) != 0)
    return trm_error(TRM_FAILED, "%s: %s", reader->path, strerror(errno));
  if (S_ISDIR(info.st_mode))
    return trm_error(TRM_FAILED, "%s: is a folder; give a file", reader->path);
  reader->plain = fopen(reader->path, "rb");
  if (!reader->plain)
    return trm_error(TRM_FAILED, "%s: %s", reader->path, strerror(errno));
  reader->max_bytes = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : UINT64_MAX;
  unsigned char magic[6] = {0};
  const size_t bytes = fread(magic, 1, sizeof magic, reader->plain);
  for (size_t i = 0; i < sizeof foreign_formats / sizeof *foreign_formats; i++)
    if (bytes >= foreign_formats[i].bytes && !memcmp(magic, foreign_formats[i].magic, foreign_formats[i].bytes))
      return trm_error(TRM_FAILED, "%s: is compressed with %s; decompress it first (plain and gzip are read)",
                       reader->path, foreign_formats[i].name);
  if (bytes < 2 || magic[0] != 0x1f || magic[1] != 0x8b) {
    reader->plain_bytes = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    rewind(reader->plain);
    return TRM_OK;
  }
  fclose(reader->plain);
  reader->plain = NULL;
  if (S_ISREG(info.st_mode))
    reader->max_bytes *= GZIP_MAX_RATIO;
#ifdef HAVE_ZLIB
  reader->gzip = gzopen(reader->path, "rb");
  if (!reader->gzip)
    return trm_error(TRM_FAILED, "%s: %s", reader->path, strerror(errno));
  gzbuffer(reader->gzip, (unsigned)BUFFER_BYTES);
  return TRM_OK;
#else
  return trm_error(TRM_FAILED, "%s: is compressed with gzip, and this build has no zlib: decompress it first",
                   reader->path);
#endif
}

int trm_reader_open(struct trm_reader **reader, const char *path)
{
  struct trm_reader *self = trm_alloc(sizeof *self, "input file");
  self->path = trm_strdup(path);
  self->limit = UINT64_MAX;
  self->buffer = trm_grow(NULL, &self->buffer_bytes, 0, BUFFER_BYTES, 1, "input buffer");
  const int status = file_reader_start(self);
  if (status != TRM_OK) {
    trm_reader_close(self);
    self = NULL;
  }
  *reader = self;
  return status;
}

uint64_t trm_reader_max_bytes(const struct trm_reader *reader)
{
  return reader->max_bytes;
}

void trm_reader_close(struct trm_reader *reader)
{
  if (!reader)
    return;
  if (reader->plain)
    fclose(reader->plain);
#ifdef HAVE_ZLIB
  if (reader->gzip)
    gzclose_r(reader->gzip);
#endif
  trm_free(reader->buffer);
  trm_free(reader->path);
  trm_free(reader->line);
  trm_free(reader);
}

/* Fills the empty buffer; sets reader->finished at the end of the file. */
static int file_reader_fill(struct trm_reader *reader)
{
  reader->next = reader->end = 0;
  if (reader->finished)
    return TRM_OK;
#ifdef HAVE_ZLIB
  if (reader->gzip) {
    const int got = gzread(reader->gzip, reader->buffer, (unsigned)BUFFER_BYTES);
    int code = Z_OK;
    const char *text = gzerror(reader->gzip, &code);
    if (code == Z_BUF_ERROR)
      return trm_error(TRM_FAILED, "%s: the gzip file is cut short", reader->path);
    if (code == Z_ERRNO)
      return trm_error(TRM_FAILED, "%s: %s", reader->path, strerror(errno));
    if (got < 0 || code != Z_OK)
      return trm_error(TRM_FAILED, "%s: the gzip file is damaged (%s)", reader->path, text);
    reader->end = (size_t)got;
    reader->filled += reader->end;
    reader->finished = got == 0;
    return TRM_OK;
  }
#endif
  reader->end = fread(reader->buffer, 1, BUFFER_BYTES, reader->plain);
  if (ferror(reader->plain))
    return trm_error(TRM_FAILED, "%s: %s", reader->path, strerror(errno));
  reader->filled += reader->end;
  reader->finished = reader->end == 0;
  return TRM_OK;
}

/* -- parts */

uint64_t trm_reader_plain_bytes(const struct trm_reader *reader)
{
  return reader->plain_bytes;
}

typedef uint8_t lanes __attribute__((vector_size(64)));

/* Counts line feeds and quotes in whole lanes. */
CPU_CLONES static void file_reader_marks_count(const unsigned char *text, size_t vectors, uint64_t *feeds,
                                               uint64_t *marks)
{
  while (vectors) {
    const size_t some = vectors < UINT8_MAX ? vectors : UINT8_MAX;
    lanes feed = {0}, mark = {0}, byte;
    for (size_t i = 0; i < some; i++, text += sizeof byte) {
      memcpy(&byte, text, sizeof byte);
      feed -= (lanes)(byte == '\n'); /* true is -1 */
      mark -= (lanes)(byte == '"');
    }
    for (size_t l = 0; l < sizeof feed; l++) {
      *feeds += feed[l];
      *marks += mark[l];
    }
    vectors -= some;
  }
}

int trm_reader_load(struct trm_reader *reader, uint64_t low, uint64_t high, uint64_t *feeds, uint64_t *marks)
{
  const uint64_t from = low ? low - 1 : 0; /* trm_reader_align looks at the byte before */
  const size_t bytes = (size_t)(high - from);
  if (fseeko(reader->plain, (off_t)from, SEEK_SET) != 0)
    return trm_error(TRM_FAILED, "%s: %s", reader->path, strerror(errno));
  reader->buffer = trm_grow(reader->buffer, &reader->buffer_bytes, 0, bytes, 1, "input buffer");
  if (fread(reader->buffer, 1, bytes, reader->plain) != bytes)
    return trm_error(TRM_FAILED, "%s: %s", reader->path,
                     ferror(reader->plain) ? strerror(errno) : "has become shorter");
  reader->next = 0;
  reader->end = bytes;
  reader->filled = high;
  reader->finished = false;
  const unsigned char *text = reader->buffer + (low - from);
  unsigned char last[sizeof(lanes)] = {0};
  const size_t left = (size_t)(high - low) % sizeof last, whole = (size_t)(high - low) - left;
  memcpy(last, text + whole, left);
  *feeds = *marks = 0;
  file_reader_marks_count(text, whole / sizeof last, feeds, marks);
  file_reader_marks_count(last, 1, feeds, marks);
  return TRM_OK;
}

int trm_reader_seek(struct trm_reader *reader, uint64_t offset, size_t lines)
{
  const uint64_t begin = reader->filled - reader->end;
  reader->line_number = lines;
  reader->finished = false;
  if (offset >= begin && offset <= reader->filled) {
    reader->next = (size_t)(offset - begin);
    return TRM_OK;
  }
  if (fseeko(reader->plain, (off_t)offset, SEEK_SET) != 0)
    return trm_error(TRM_FAILED, "%s: %s", reader->path, strerror(errno));
  reader->next = reader->end = 0;
  reader->filled = offset;
  return TRM_OK;
}

int trm_reader_align(struct trm_reader *reader, uint64_t low, bool quotes, bool open, uint64_t feeds)
{
  TRM_CHECK(trm_reader_seek(reader, low ? low - 1 : 0, (size_t)feeds));
  open = open && quotes;
  for (bool before = true; low; before = false) { /* the byte before low is counted already */
    if (reader->next == reader->end)
      TRM_CHECK(file_reader_fill(reader));
    if (reader->finished)
      break;
    const unsigned char byte = reader->buffer[reader->next++];
    reader->line_number += byte == '\n' && !before;
    open ^= byte == '"' && quotes && !before;
    if (byte == '\n' && !open)
      break;
  }
  return TRM_OK;
}

uint64_t trm_reader_position(const struct trm_reader *reader)
{
  return reader->filled - (reader->end - reader->next);
}

void trm_reader_limit(struct trm_reader *reader, uint64_t offset)
{
  reader->limit = offset;
}

bool trm_reader_at_limit(const struct trm_reader *reader)
{
  return trm_reader_position(reader) >= reader->limit;
}

/* -- reading */

int trm_reader_read(struct trm_reader *reader, void *to, size_t max_bytes, size_t *got)
{
  *got = 0;
  while (*got < max_bytes) {
    if (reader->next == reader->end)
      TRM_CHECK(file_reader_fill(reader));
    if (reader->finished)
      break;
    const size_t here = reader->end - reader->next, bytes = here < max_bytes - *got ? here : max_bytes - *got;
    memcpy((char *)to + *got, reader->buffer + reader->next, bytes);
    reader->next += bytes;
    *got += bytes;
  }
  return TRM_OK;
}

static void file_reader_line_add(struct trm_reader *reader, size_t length, const void *bytes, size_t count)
{
  reader->line =
    trm_grow(reader->line, &reader->line_capacity, length, length + count + 1, 1, "a line of an input file");
  memcpy(reader->line + length, bytes, count);
  reader->line[length + count] = '\0';
}

int trm_reader_line(struct trm_reader *reader, char **line, size_t *length)
{
  size_t bytes = 0;
  *line = NULL;
  reader->line_number++;
  for (bool more = true, begun = false; more;) {
    if (reader->next == reader->end)
      TRM_CHECK(file_reader_fill(reader));
    if (reader->finished) {
      if (!begun) {
        reader->line_number--;
        return TRM_OK;
      }
      break;
    }
    const unsigned char *from = reader->buffer + reader->next;
    const unsigned char *newline = memchr(from, '\n', reader->end - reader->next);
    const size_t count = newline ? (size_t)(newline - from) : reader->end - reader->next;
    if (bytes + count > MAX_LINE)
      return trm_reader_error(reader, "a line of more than %zu MiB: this is not a text file", MAX_LINE >> 20);
    file_reader_line_add(reader, bytes, from, count);
    bytes += count;
    reader->next += count + (newline != NULL);
    begun = true;
    more = !newline;
  }
  if (bytes && reader->line[bytes - 1] == '\r')
    reader->line[--bytes] = '\0';
  if (memchr(reader->line, '\0', bytes))
    return trm_reader_error(reader, "a NUL byte: this is not a text file");
  *line = reader->line;
  *length = bytes;
  return TRM_OK;
}

const char *trm_reader_path(const struct trm_reader *reader)
{
  return reader->path;
}

size_t trm_reader_line_number(const struct trm_reader *reader)
{
  return reader->line_number;
}

int trm_reader_error(const struct trm_reader *reader, const char *format, ...)
{
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return trm_error(TRM_FAILED, "%s:%zu: %s", reader->path, reader->line_number, text);
}
