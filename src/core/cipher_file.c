#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "core/cipher_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cipher_header.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"

bool cipher_file_detect(const char *path)
{
  char magic[CIPHER_MAGIC_BYTES];
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const bool found = fd >= 0 && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
                     memcmp(magic, CIPHER_MAGIC, sizeof magic) == 0;
  if (fd >= 0)
    close(fd);
  return found;
}

#ifdef HAVE_SODIUM
#include <sodium.h>

/* A chunk in the table. */
struct entry {
  uint8_t number[8]; /* of its last write, little-endian, from 1 on; 0: not written yet */
  uint8_t tag[16];
};

/* What a thread needs. */
struct worker {
  struct chunk_cipher *cipher;
  uint8_t *sealed; /* memory for the ciphertext of a chunk */
};

struct cipher_file {
  int fd;
  char *path;
  bool writing;
  struct cipher_format format;
  struct cipher_keys keys;
  uint8_t header[CIPHER_HEADER_BYTES];
  uint64_t bytes, writes;
  struct entry *table; /* (chunks) */
  size_t chunks, capacity;
  struct worker *worker; /* (threads) the first is the calling thread's */
  int threads;
  uint8_t *chunk;        /* the current chunk */
  uint64_t current;      /* its number, NO_CHUNK: none */
  bool changed;          /* since it was read or written */
};
#define NO_CHUNK UINT64_MAX

struct cipher_format cipher_format_default(void)
{
  return (struct cipher_format){
    chunk_cipher_has(CIPHER_AES256_GCM) ? CIPHER_AES256_GCM : CIPHER_CHACHA20_POLY1305, 1 << 16};
}

/* -- the file beneath */

static uint64_t cipher_place(const struct cipher_file *file, uint64_t chunk)
{
  return CIPHER_HEADER_BYTES + chunk * file->format.chunk_bytes;
}

static int cipher_pread(const struct cipher_file *file, uint64_t at, size_t bytes, void *to)
{
  for (uint8_t *next = to; bytes > 0;) {
    const ssize_t got = pread(file->fd, next, bytes, (off_t)at);
    if (got == 0)
      return trm_error(TRM_FAILED, "%s: is cut short", file->path);
    if (got < 0 && errno != EINTR)
      return trm_error(TRM_FAILED, "%s: cannot be read: %s", file->path, strerror(errno));
    const size_t done = got > 0 ? (size_t)got : 0;
    next += done;
    at += done;
    bytes -= done;
  }
  return TRM_OK;
}

static int cipher_pwrite(const struct cipher_file *file, uint64_t at, size_t bytes, const void *from)
{
  for (const uint8_t *next = from; bytes > 0;) {
    const ssize_t put = pwrite(file->fd, next, bytes, (off_t)at);
    if (put < 0 && errno != EINTR)
      return trm_error(TRM_FAILED, "%s: cannot be written: %s", file->path, strerror(errno));
    const size_t done = put > 0 ? (size_t)put : 0;
    next += done;
    at += done;
    bytes -= done;
  }
  return TRM_OK;
}

/* -- chunks */

/* Reads a chunk and decrypts it to `to`. */
static int cipher_chunk_read(const struct cipher_file *file, const struct worker *worker, uint64_t chunk, uint8_t *to)
{
  const struct entry *entry = &file->table[chunk];
  const size_t bytes = file->format.chunk_bytes;
  const uint64_t at = cipher_place(file, chunk);
  TRM_CHECK(cipher_pread(file, at, bytes, worker->sealed));
  if (chunk_unseal(worker->cipher, entry->number, chunk, bytes, worker->sealed, to, entry->tag))
    return TRM_OK;
  return trm_error(TRM_FAILED, "%s: was changed after it was written: bytes %llu to %llu do not verify", file->path,
                   (unsigned long long)at, (unsigned long long)(at + bytes - 1));
}

/* Of chunks [first, first + count) reads one in `step`, from the one at `begin` on. */
static int cipher_chunks_read_part(const struct cipher_file *file, int begin, int step, uint64_t first, uint64_t count,
                                   uint8_t *to)
{
  const struct worker *worker = &file->worker[begin];
  for (uint64_t i = (uint64_t)begin; i < count; i += (uint64_t)step)
    TRM_CHECK(cipher_chunk_read(file, worker, first + i, to + i * file->format.chunk_bytes));
  return TRM_OK;
}

/* Chunks that the file's threads read. */
struct chunks {
  const struct cipher_file *file;
  uint64_t first, count;
  uint8_t *to;
  _Atomic bool *failed;
};

static void cipher_chunks_body(const void *context, size_t low, size_t high)
{
  const struct chunks *it = context;
  for (size_t t = low; t < high; t++)
    if (cipher_chunks_read_part(it->file, (int)t, it->file->threads, it->first, it->count, it->to) != TRM_OK)
      atomic_store(it->failed, true);
}

/* Reads `count` chunks. */
static int cipher_chunks_read(const struct cipher_file *file, uint64_t first, uint64_t count, uint8_t *to)
{
  enum { FEW = 8 }; /* are sooner decrypted than divided */
  const int threads = file->threads;
  if (threads == 1 || count < FEW)
    return cipher_chunks_read_part(file, 0, 1, first, count, to);
  _Atomic bool failed = false;
  const struct chunks chunks = {file, first, count, to, &failed};
  trm_parallel_for(threads, (size_t)threads, cipher_chunks_body, &chunks);
  /* other threads' messages are lost: after a failure this thread reads */
  return failed ? cipher_chunks_read_part(file, 0, 1, first, count, to) : TRM_OK;
}

/* Writes the current chunk if it was changed. The number of the write makes the nonce: unique, since the key belongs to
 * this file and this process alone wrote it. */
static int cipher_chunk_flush(struct cipher_file *file)
{
  if (!file->changed)
    return TRM_OK;
  const size_t needed = (size_t)file->current + 1;
  file->table = trm_grow(file->table, &file->capacity, file->chunks, needed, sizeof *file->table, "table of chunks");
  file->chunks = needed > file->chunks ? needed : file->chunks;
  struct entry *entry = &file->table[file->current];
  cipher_store(entry->number, ++file->writes, sizeof entry->number);
  chunk_seal(file->worker->cipher, entry->number, file->current, file->format.chunk_bytes, file->chunk,
             file->worker->sealed, entry->tag);
  file->changed = false;
  return cipher_pwrite(file, cipher_place(file, file->current), file->format.chunk_bytes, file->worker->sealed);
}

/* Makes a chunk the current one. fresh: all of it will be written. */
static int cipher_chunk_select(struct cipher_file *file, uint64_t chunk, bool fresh)
{
  static const uint8_t never[8];
  if (file->current == chunk)
    return TRM_OK;
  TRM_CHECK(cipher_chunk_flush(file));
  file->current = NO_CHUNK;
  if (chunk >= file->chunks || memcmp(file->table[chunk].number, never, sizeof never) == 0)
    memset(file->chunk, 0, file->format.chunk_bytes);
  else if (!fresh)
    TRM_CHECK(cipher_chunks_read(file, chunk, 1, file->chunk));
  file->current = chunk;
  return TRM_OK;
}

/* -- the content */

static void cipher_workers_free(struct cipher_file *file)
{
  for (int t = 0; t < file->threads; t++) {
    chunk_cipher_free(file->worker[t].cipher);
    trm_free(file->worker[t].sealed);
  }
  trm_free(file->worker);
}

void cipher_file_use_threads(struct cipher_file *file, int threads)
{
  cipher_workers_free(file);
  file->threads = threads;
  file->worker = trm_alloc((size_t)threads * sizeof *file->worker, "an encrypted file");
  for (int t = 0; t < threads; t++) {
    file->worker[t].cipher = chunk_cipher_make(file->format.cipher, file->keys.content);
    file->worker[t].sealed = trm_alloc(file->format.chunk_bytes, "a chunk of an encrypted file");
  }
}

uint64_t cipher_file_bytes(const struct cipher_file *file)
{
  return file->bytes;
}

void cipher_file_resize(struct cipher_file *file, uint64_t bytes)
{
  file->bytes = bytes;
}

int cipher_file_read(struct cipher_file *file, uint64_t at, size_t bytes, void *to)
{
  const size_t unit = file->format.chunk_bytes;
  const uint64_t left = at < file->bytes ? file->bytes - at : 0;
  uint8_t *next = to;
  if (bytes > left) {
    memset(next + left, 0, bytes - (size_t)left);
    bytes = (size_t)left;
  }
  while (bytes > 0) {
    const size_t offset = (size_t)(at % unit);
    size_t some = unit - offset < bytes ? unit - offset : bytes;
    if (!file->writing && some == unit) { /* whole chunks are decrypted where they are wanted */
      some = bytes - bytes % unit;
      TRM_CHECK(cipher_chunks_read(file, at / unit, some / unit, next));
    } else {
      TRM_CHECK(cipher_chunk_select(file, at / unit, false));
      memcpy(next, file->chunk + offset, some);
    }
    next += some;
    at += some;
    bytes -= some;
  }
  return TRM_OK;
}

int cipher_file_write(struct cipher_file *file, uint64_t at, size_t bytes, const void *from)
{
  const size_t unit = file->format.chunk_bytes;
  const uint8_t *next = from;
  file->bytes = at + bytes > file->bytes ? at + bytes : file->bytes;
  while (bytes > 0) {
    const size_t offset = (size_t)(at % unit), some = unit - offset < bytes ? unit - offset : bytes;
    TRM_CHECK(cipher_chunk_select(file, at / unit, some == unit));
    memcpy(file->chunk + offset, next, some);
    file->changed = true;
    next += some;
    at += some;
    bytes -= some;
  }
  return TRM_OK;
}

/* -- opening and closing */

static struct cipher_file *cipher_make(int fd, const char *path)
{
  struct cipher_file *file = trm_alloc(sizeof *file, "an encrypted file");
  file->fd = fd;
  file->path = trm_strdup(path);
  file->current = NO_CHUNK;
  return file;
}

/* Takes memory for chunks and prepares the cipher, once format and keys are known. */
static void cipher_prepare(struct cipher_file *file)
{
  file->chunk = trm_alloc(file->format.chunk_bytes, "a chunk of an encrypted file");
  cipher_file_use_threads(file, 1);
}

void cipher_file_close(struct cipher_file *file)
{
  if (!file)
    return;
  if (file->fd >= 0)
    close(file->fd);
  if (file->chunk)
    sodium_memzero(file->chunk, file->format.chunk_bytes);
  sodium_memzero(&file->keys, sizeof file->keys);
  cipher_workers_free(file);
  trm_free(file->chunk);
  trm_free(file->table);
  trm_free(file->path);
  trm_free(file);
}

int cipher_file_create(struct cipher_file **file, int fd, const char *path, const struct secret_key *key,
                       const struct cipher_format *format)
{
  const int status = secret_key_available(path);
  struct cipher_file *f = *file = cipher_make(fd, path);
  f->writing = true;
  f->format = *format;
  if (status == TRM_OK) {
    cipher_header_create(f->header, format, key, &f->keys);
    cipher_prepare(f);
    return TRM_OK;
  }
  cipher_file_close(f);
  *file = NULL;
  return status;
}

/* Reads header and table, and verifies them. */
static int cipher_load(struct cipher_file *file, const struct secret_key *key)
{
  struct stat about;
  if (fstat(file->fd, &about) != 0)
    return trm_error(TRM_FAILED, "%s: cannot be read: %s", file->path, strerror(errno));
  TRM_CHECK(cipher_pread(file, 0, sizeof file->header, file->header));
  TRM_CHECK(cipher_header_parse(file->header, file->path, &file->format, &file->bytes));
  const uint64_t unit = file->format.chunk_bytes, chunks = file->bytes / unit + (file->bytes % unit != 0);
  if (file->bytes > (uint64_t)about.st_size ||
      cipher_place(file, chunks) + chunks * sizeof *file->table != (uint64_t)about.st_size)
    return trm_error(TRM_FAILED, "%s: is cut short or longer than it was written", file->path);
  file->chunks = (size_t)chunks;
  file->table = trm_alloc(file->chunks * sizeof *file->table, "table of chunks");
  TRM_CHECK(cipher_pread(file, cipher_place(file, chunks), file->chunks * sizeof *file->table, file->table));
  TRM_CHECK(cipher_header_unwrap(file->header, file->path, key, &file->keys));
  return cipher_header_verify(file->header, file->path, file->table, file->chunks * sizeof *file->table, &file->keys);
}

static int cipher_open(struct cipher_file **file, const char *path, const struct secret_key *key, int flags)
{
  *file = NULL;
  TRM_CHECK(secret_key_available(path));
  const int fd = open(path, flags | O_CLOEXEC);
  if (fd < 0)
    return trm_error(TRM_FAILED, "%s: cannot be opened: %s", path, strerror(errno));
  *file = cipher_make(fd, path);
  const int status = cipher_load(*file, key);
  if (status == TRM_OK)
    return TRM_OK;
  cipher_file_close(*file);
  *file = NULL;
  return status;
}

int cipher_file_open(struct cipher_file **file, const char *path, const struct secret_key *key)
{
  TRM_CHECK(cipher_open(file, path, key, O_RDONLY));
  const int status = cipher_header_has_one_key((*file)->header, path);
  if (status == TRM_OK) {
    cipher_prepare(*file);
    return TRM_OK;
  }
  cipher_file_close(*file);
  *file = NULL;
  return status;
}

int cipher_file_commit(struct cipher_file *file)
{
  static const uint8_t never[8];
  const size_t unit = file->format.chunk_bytes;
  const uint64_t chunks = file->bytes / unit + (file->bytes % unit != 0);
  TRM_CHECK(cipher_chunk_flush(file));
  for (uint64_t i = 0; i < chunks; i++) /* every chunk has a tag, those of a gap too */
    if (i >= file->chunks || memcmp(file->table[i].number, never, sizeof never) == 0) {
      TRM_CHECK(cipher_chunk_select(file, i, true));
      file->changed = true;
      TRM_CHECK(cipher_chunk_flush(file));
    }
  const size_t table_bytes = (size_t)chunks * sizeof *file->table;
  cipher_header_sign(file->header, file->bytes, file->table, table_bytes, &file->keys);
  if (ftruncate(file->fd, (off_t)cipher_place(file, chunks)) != 0)
    return trm_error(TRM_FAILED, "%s: cannot be written: %s", file->path, strerror(errno));
  TRM_CHECK(cipher_pwrite(file, cipher_place(file, chunks), table_bytes, file->table));
  TRM_CHECK(cipher_pwrite(file, 0, sizeof file->header, file->header));
  if (fsync(file->fd) != 0)
    return trm_error(TRM_FAILED, "%s: cannot be written: %s", file->path, strerror(errno));
  return TRM_OK;
}

/* -- another key */

static int cipher_header_write(const struct cipher_file *file)
{
  TRM_CHECK(cipher_pwrite(file, 0, sizeof file->header, file->header));
  return fsync(file->fd) == 0 ? TRM_OK
                              : trm_error(TRM_FAILED, "%s: cannot be written: %s", file->path, strerror(errno));
}

int cipher_file_rewrap(const char *path, const struct secret_key *old_key, const struct secret_key *new_key)
{
  struct cipher_file *file;
  if (cipher_open(&file, path, new_key, O_RDWR) != TRM_OK) { /* succeeds after an interrupted call */
    TRM_CHECK(cipher_open(&file, path, old_key, O_RDWR));
    cipher_header_add_key(file->header, old_key, new_key, &file->keys);
    const int status = cipher_header_write(file);
    if (status != TRM_OK) {
      cipher_file_close(file);
      return status;
    }
  }
  cipher_header_keep_key(file->header, new_key);
  const int status = cipher_header_write(file);
  cipher_file_close(file);
  return status;
}

#else /* nothing is ever open */

struct cipher_format cipher_format_default(void)
{
  return (struct cipher_format){CIPHER_CHACHA20_POLY1305, 1 << 16};
}

int cipher_file_open(struct cipher_file **file, const char *path, const struct secret_key *key)
{
  (void)key;
  *file = NULL;
  return secret_key_available(path);
}

int cipher_file_create(struct cipher_file **file, int fd, const char *path, const struct secret_key *key,
                       const struct cipher_format *format)
{
  (void)key, (void)format;
  close(fd);
  *file = NULL;
  return secret_key_available(path);
}

void cipher_file_use_threads(struct cipher_file *file, int threads)
{
  (void)file, (void)threads;
}

uint64_t cipher_file_bytes(const struct cipher_file *file)
{
  (void)file;
  return 0;
}

int cipher_file_read(struct cipher_file *file, uint64_t at, size_t bytes, void *to)
{
  (void)file, (void)at, (void)bytes, (void)to;
  return TRM_FAILED;
}

int cipher_file_write(struct cipher_file *file, uint64_t at, size_t bytes, const void *from)
{
  (void)file, (void)at, (void)bytes, (void)from;
  return TRM_FAILED;
}

void cipher_file_resize(struct cipher_file *file, uint64_t bytes)
{
  (void)file, (void)bytes;
}

int cipher_file_commit(struct cipher_file *file)
{
  (void)file;
  return TRM_FAILED;
}

void cipher_file_close(struct cipher_file *file)
{
  (void)file;
}

int cipher_file_rewrap(const char *path, const struct secret_key *old_key, const struct secret_key *new_key)
{
  (void)old_key, (void)new_key;
  return secret_key_available(path);
}

#endif
