#include "core/security.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"

static struct {
  bool has_key;
  struct secret_key key;
} process;

int security_set_key(const char *source)
{
  if (!source || !*source)
    return TRM_OK;
  TRM_CHECK(secret_key_available("security.key"));
  if (secret_key_read(&process.key, KEY_ENCRYPTION, source) != TRM_OK)
    return trm_error_context(TRM_USAGE, "security.key");
  process.has_key = true;
  return TRM_OK;
}

const struct secret_key *security_key(void)
{
  return process.has_key ? &process.key : NULL;
}

void security_clear(void)
{
  secret_key_clear(&process.key);
  process.has_key = false;
}

int security_check(const char *path, bool *encrypted)
{
  *encrypted = cipher_file_detect(path);
  if (*encrypted && !process.has_key)
    return trm_error(TRM_USAGE, "%s: is encrypted; security.key=file:PATH names its key", path);
  if (!*encrypted && process.has_key && access(path, R_OK) == 0)
    return trm_error(TRM_USAGE, "%s: is not encrypted, and a process with security.key reads encrypted files only "
                     "(trireme key encrypt)", path);
  return TRM_OK;
}

/* -- streams over encrypted files */

struct stream {
  struct cipher_file *file;
  uint64_t at;
};

static ssize_t security_read(void *cookie, char *to, size_t bytes)
{
  struct stream *stream = cookie;
  const uint64_t end = cipher_file_bytes(stream->file), left = stream->at < end ? end - stream->at : 0;
  const size_t some = bytes < left ? bytes : (size_t)left;
  if (cipher_file_read(stream->file, stream->at, some, to) != TRM_OK) {
    errno = EBADMSG;
    return -1;
  }
  stream->at += some;
  return (ssize_t)some;
}

static ssize_t security_write(void *cookie, const char *from, size_t bytes)
{
  struct stream *stream = cookie;
  if (cipher_file_write(stream->file, stream->at, bytes, from) != TRM_OK)
    return 0; /* errno is the system's */
  stream->at += bytes;
  return (ssize_t)bytes;
}

static int security_seek(void *cookie, off64_t *offset, int whence)
{
  struct stream *stream = cookie;
  const uint64_t base = whence == SEEK_SET   ? 0
                        : whence == SEEK_CUR ? stream->at
                                             : cipher_file_bytes(stream->file);
  if (*offset < 0 && (uint64_t)-*offset > base) {
    errno = EINVAL;
    return -1;
  }
  stream->at = base + (uint64_t)*offset;
  *offset = (off64_t)stream->at;
  return 0;
}

static int security_close(void *cookie)
{
  struct stream *stream = cookie;
  cipher_file_close(stream->file);
  trm_free(stream);
  return 0;
}

/* Returns a stream that owns the file. */
static FILE *security_stream(struct cipher_file *file, const char *mode)
{
  struct stream *stream = trm_alloc(sizeof *stream, "a stream");
  stream->file = file;
  return fopencookie(stream, mode, (cookie_io_functions_t){.read = security_read, .write = security_write,
                                                           .seek = security_seek, .close = security_close});
}

int security_open(const char *path, FILE **stream)
{
  struct cipher_file *file;
  bool encrypted;
  *stream = NULL;
  TRM_CHECK(security_check(path, &encrypted));
  if (encrypted) {
    TRM_CHECK(cipher_file_open(&file, path, &process.key));
    *stream = security_stream(file, "r");
    return TRM_OK;
  }
  *stream = fopen(path, "rbe");
  return *stream ? TRM_OK : trm_error(TRM_USAGE, "%s: %s", path, strerror(errno));
}

int security_encrypt(int fd, const char *path, FILE **stream, struct cipher_file **file)
{
  const struct cipher_format format = cipher_format_default();
  TRM_CHECK(cipher_file_create(file, fd, path, security_key(), &format));
  *stream = security_stream(*file, "w");
  return TRM_OK;
}

int security_scratch(const char *path, FILE **stream)
{
  const struct cipher_format format = cipher_format_default();
  struct cipher_file *file;
  *stream = NULL;
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0 && process.has_key) {
    TRM_CHECK(cipher_file_create(&file, fd, path, NULL, &format));
    *stream = security_stream(file, "w+");
  } else if (fd >= 0) {
    *stream = fdopen(fd, "w+");
  }
  return *stream ? TRM_OK : trm_error(TRM_FAILED, "%s: cannot be created: %s", path, strerror(errno));
}
