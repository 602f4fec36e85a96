/* Zip archives (APPNOTE.TXT 6.3.3): the directory at the end lists the members; those of 4 GiB and more have their
 * sizes in an extra field (zip64). */
#include "datasets/zip_stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "core/memory.h"
#include "core/status.h"

#define BUFFER ((size_t)1 << 18)
#define END_BYTES 22     /* of the record at the end, without its comment */
#define ENTRY_BYTES 46   /* of a member in the directory, without its name */
#define MAX_DIRECTORY ((uint64_t)1 << 26)
#define MAX_RATIO 1032   /* of deflate */

struct member {
  uint64_t offset, packed, bytes; /* of its local header; compressed; as it was */
  uint32_t checksum;
  unsigned method;
};

struct zip_stream {
  FILE *file;
  char *path;
  uint64_t packed_left, left;
  bool is_member;
  struct member member;
#ifdef HAVE_ZLIB
  z_stream zlib;
  uLong checksum;
#endif
  bool inflates;
  unsigned char *buffer; /* (BUFFER) */
};

static int zip_error(const struct zip_stream *stream, const char *what)
{
  return trm_error(TRM_FAILED, "%s: %s", stream->path, what);
}

/* Little-endian numbers. */
static uint64_t zip_number(const unsigned char *at, int bytes)
{
  uint64_t number = 0;
  for (int i = bytes - 1; i >= 0; i--)
    number = number << 8 | at[i];
  return number;
}

static bool zip_bytes_at(struct zip_stream *stream, uint64_t offset, void *to, size_t count)
{
  return offset < INT64_MAX && fseeko(stream->file, (off_t)offset, SEEK_SET) == 0 &&
         fread(to, 1, count, stream->file) == count;
}

/* Takes sizes of 8 bytes from the extra field of a directory entry. */
static void zip_sizes_extend(struct member *member, const unsigned char *extra, size_t bytes)
{
  for (size_t at = 0; at + 4 <= bytes;) {
    const uint64_t id = zip_number(extra + at, 2), length = zip_number(extra + at + 2, 2);
    size_t from = at + 4;
    const size_t end = from + (size_t)length;
    uint64_t *const fields[] = {&member->bytes, &member->packed, &member->offset};
    for (size_t i = 0; id == 1 && i < 3; i++)
      if (*fields[i] == UINT32_MAX && from + 8 <= end && end <= bytes) {
        *fields[i] = zip_number(extra + from, 8);
        from += 8;
      }
    at = end;
  }
}

/* Looks for NAME.npy in the directory. */
static bool zip_directory_search(const unsigned char *directory, size_t bytes, const char *name, struct member *member)
{
  const size_t wanted = strlen(name);
  for (size_t at = 0; at + ENTRY_BYTES <= bytes && !memcmp(directory + at, "PK\1\2", 4);) {
    const unsigned char *entry = directory + at;
    const size_t length = (size_t)zip_number(entry + 28, 2), extra = (size_t)zip_number(entry + 30, 2);
    const size_t next = at + ENTRY_BYTES + length + extra + (size_t)zip_number(entry + 32, 2);
    if (next > bytes)
      return false;
    if (length == wanted + 4 && !memcmp(entry + ENTRY_BYTES, name, wanted) &&
        !memcmp(entry + ENTRY_BYTES + wanted, ".npy", 4)) {
      *member = (struct member){
        .offset = zip_number(entry + 42, 4), .packed = zip_number(entry + 20, 4), .bytes = zip_number(entry + 24, 4),
        .checksum = (uint32_t)zip_number(entry + 16, 4), .method = (unsigned)zip_number(entry + 10, 2)};
      zip_sizes_extend(member, entry + ENTRY_BYTES + length, extra);
      return true;
    }
    at = next;
  }
  return false;
}

/* Finds the directory by the record at the end of the file, of zip64 by the one before it. */
static int zip_directory_find(struct zip_stream *stream, uint64_t file_bytes, uint64_t *offset, uint64_t *bytes)
{
  const size_t tail = file_bytes < BUFFER ? (size_t)file_bytes : BUFFER;
  const uint64_t begin = file_bytes - tail;
  if (!zip_bytes_at(stream, begin, stream->buffer, tail))
    return zip_error(stream, strerror(errno));
  for (size_t at = tail < END_BYTES ? 0 : tail - END_BYTES + 1; at-- > 0;) {
    const unsigned char *record = stream->buffer + at;
    if (memcmp(record, "PK\5\6", 4) != 0)
      continue;
    *bytes = zip_number(record + 12, 4);
    *offset = zip_number(record + 16, 4);
    unsigned char wide[56];
    if (*offset == UINT32_MAX && at >= 20 && !memcmp(record - 20, "PK\6\7", 4) &&
        zip_bytes_at(stream, zip_number(record - 20 + 8, 8), wide, sizeof wide) && !memcmp(wide, "PK\6\6", 4)) {
      *bytes = zip_number(wide + 40, 8);
      *offset = zip_number(wide + 48, 8);
    }
    return TRM_OK;
  }
  return zip_error(stream, "is not a zip archive (.npz), or cut short");
}

static int zip_member_find(struct zip_stream *stream, const char *name, uint64_t file_bytes, bool *found)
{
  uint64_t offset = 0, bytes = 0;
  *found = false;
  TRM_CHECK(zip_directory_find(stream, file_bytes, &offset, &bytes));
  if (bytes > MAX_DIRECTORY || offset > file_bytes || bytes > file_bytes - offset)
    return zip_error(stream, "has a damaged directory");
  unsigned char *directory = trm_alloc((size_t)bytes, "a directory");
  const bool read = zip_bytes_at(stream, offset, directory, (size_t)bytes);
  *found = read && zip_directory_search(directory, (size_t)bytes, name, &stream->member);
  trm_free(directory);
  return read ? TRM_OK : zip_error(stream, "has a damaged directory");
}

/* Goes to the first byte of the member. */
static int zip_member_begin(struct zip_stream *stream, const char *name, uint64_t file_bytes)
{
  const struct member *member = &stream->member;
  unsigned char local[30];
  if (!zip_bytes_at(stream, member->offset, local, sizeof local) || memcmp(local, "PK\3\4", 4) != 0)
    return trm_error(TRM_FAILED, "%s: %s is damaged", stream->path, name);
  const uint64_t begin = member->offset + sizeof local + zip_number(local + 26, 2) + zip_number(local + 28, 2);
  if (begin > file_bytes || member->packed > file_bytes - begin || member->bytes / MAX_RATIO > member->packed ||
      (member->method == 0 && member->packed != member->bytes) ||
      fseeko(stream->file, (off_t)begin, SEEK_SET) != 0)
    return trm_error(TRM_FAILED, "%s: %s is damaged or cut short", stream->path, name);
  stream->packed_left = member->packed;
  stream->left = member->bytes;
  stream->inflates = member->method == 8;
  if (member->method != 0 && member->method != 8)
    return trm_error(TRM_FAILED, "%s: %s is compressed by method %u; deflate is read", stream->path, name,
                     member->method);
#ifdef HAVE_ZLIB
  stream->checksum = crc32(0, NULL, 0);
  if (stream->inflates && inflateInit2(&stream->zlib, -MAX_WBITS) != Z_OK) {
    stream->inflates = false;
    return zip_error(stream, "zlib does not start");
  }
  return TRM_OK;
#else
  return !stream->inflates ? TRM_OK : trm_error(TRM_FAILED, "%s: %s is compressed, and this build has no zlib: save it "
                                                "with numpy.savez", stream->path, name);
#endif
}

static int zip_file_open(struct zip_stream *stream, uint64_t *file_bytes)
{
  struct stat info;
  if (stat(stream->path, &info) != 0)
    return zip_error(stream, strerror(errno));
  if (!S_ISREG(info.st_mode))
    return zip_error(stream, "is not a regular file");
  *file_bytes = (uint64_t)info.st_size;
  stream->file = fopen(stream->path, "rb");
  return stream->file ? TRM_OK : zip_error(stream, strerror(errno));
}

static int zip_stream_start(struct zip_stream *stream, const char *member)
{
  uint64_t file_bytes;
  bool found;
  TRM_CHECK(zip_file_open(stream, &file_bytes));
  stream->packed_left = stream->left = file_bytes;
  if (!member)
    return TRM_OK;
  stream->is_member = true;
  TRM_CHECK(zip_member_find(stream, member, file_bytes, &found));
  if (!found)
    return trm_error(TRM_USAGE, "%s: has no array %s", stream->path, member);
  return zip_member_begin(stream, member, file_bytes);
}

static void zip_stream_alloc(struct zip_stream **stream, const char *path)
{
  *stream = trm_alloc(sizeof **stream, "an array file");
  (*stream)->path = trm_strdup(path);
  (*stream)->buffer = trm_alloc(BUFFER, "an array file");
}

int zip_stream_open(struct zip_stream **stream, const char *path, const char *member)
{
  zip_stream_alloc(stream, path);
  return zip_stream_start(*stream, member);
}

void zip_stream_close(struct zip_stream *stream)
{
  if (!stream)
    return;
#ifdef HAVE_ZLIB
  if (stream->inflates)
    inflateEnd(&stream->zlib);
#endif
  if (stream->file)
    fclose(stream->file);
  trm_free(stream->buffer);
  trm_free(stream->path);
  trm_free(stream);
}

uint64_t zip_stream_left(const struct zip_stream *stream)
{
  return stream->left;
}

#ifdef HAVE_ZLIB
static int zip_inflate(struct zip_stream *stream, unsigned char *to, size_t count)
{
  z_stream *zlib = &stream->zlib;
  zlib->next_out = to;
  for (size_t left = count; left > 0;) {
    if (!zlib->avail_in) {
      const size_t wanted = stream->packed_left < BUFFER ? (size_t)stream->packed_left : BUFFER;
      if (!wanted || fread(stream->buffer, 1, wanted, stream->file) != wanted)
        return zip_error(stream, "a compressed array is damaged or cut short");
      stream->packed_left -= wanted;
      zlib->next_in = stream->buffer;
      zlib->avail_in = (uInt)wanted;
    }
    const uInt space = left < BUFFER ? (uInt)left : (uInt)BUFFER;
    zlib->avail_out = space;
    const int code = inflate(zlib, Z_NO_FLUSH);
    left -= space - zlib->avail_out;
    if (code != Z_OK && !(code == Z_STREAM_END && left == 0))
      return zip_error(stream, "a compressed array is damaged or cut short");
  }
  return TRM_OK;
}
#endif

int zip_stream_read(struct zip_stream *stream, void *to, size_t count)
{
  if (count > stream->left)
    return zip_error(stream, "is cut short");
#ifdef HAVE_ZLIB
  if (stream->inflates)
    TRM_CHECK(zip_inflate(stream, to, count));
  else
#endif
    if (fread(to, 1, count, stream->file) != count)
      return zip_error(stream, ferror(stream->file) ? strerror(errno) : "is cut short");
  stream->left -= count;
#ifdef HAVE_ZLIB
  for (size_t at = 0; stream->is_member && at < count; at += BUFFER)
    stream->checksum = crc32(stream->checksum, (const unsigned char *)to + at,
                             count - at < BUFFER ? (uInt)(count - at) : (uInt)BUFFER);
  if (stream->is_member && stream->left == 0 && stream->checksum != stream->member.checksum)
    return zip_error(stream, "an array is damaged: its checksum is not the one that was written");
#endif
  return TRM_OK;
}

int zip_has_member(const char *path, const char *member, bool *found)
{
  struct zip_stream *stream;
  uint64_t file_bytes;
  zip_stream_alloc(&stream, path);
  int status = zip_file_open(stream, &file_bytes);
  if (status == TRM_OK)
    status = zip_member_find(stream, member, file_bytes, found);
  zip_stream_close(stream);
  return status;
}
