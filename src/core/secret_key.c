#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "core/secret_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"

#ifdef HAVE_SODIUM
#include <sodium.h>

static const struct {
  const char *prefix; /* of the line */
  const char *name;
  size_t bytes;
} kinds[KEY_KINDS] = {
  [KEY_ENCRYPTION] = {"trireme key 1 ", "a key to encrypt with", 32},
  [KEY_SIGNING] = {"trireme signing key 1 ", "a key to sign with", crypto_sign_SECRETKEYBYTES},
  [KEY_VERIFICATION] = {"trireme verification key 1 ", "a key to verify with", crypto_sign_PUBLICKEYBYTES},
};

enum { LINE_BYTES = 256 };

int secret_key_available(const char *what)
{
  return sodium_init() >= 0 ? TRM_OK : trm_error(TRM_FAILED, "%s: libsodium does not start", what);
}

void secret_key_clear(struct secret_key *key)
{
  sodium_memzero(key, sizeof *key);
}

void secret_key_random(struct secret_key *key)
{
  randombytes_buf(key->bytes, kinds[KEY_ENCRYPTION].bytes);
}

void secret_key_derive(struct secret_key *to, const struct secret_key *key, const void *data, size_t bytes)
{
  const size_t key_bytes = kinds[KEY_ENCRYPTION].bytes;
  crypto_generichash(to->bytes, key_bytes, data, bytes, key->bytes, key_bytes);
}

/* Decodes the line of a key. */
static bool key_decode(struct secret_key *key, enum key_kind kind, const char *line)
{
  const size_t prefix = strlen(kinds[kind].prefix), bytes = kinds[kind].bytes;
  size_t decoded = 0;
  const char *end = NULL;
  return strncmp(line, kinds[kind].prefix, prefix) == 0 &&
         sodium_hex2bin(key->bytes, bytes, line + prefix, strlen(line + prefix), NULL, &decoded, &end) == 0 &&
         decoded == bytes && end[strspn(end, "\r\n")] == '\0';
}

/* Reads to the end of a stream, which has a line. */
static int key_read_stream(struct secret_key *key, enum key_kind kind, const char *source, FILE *stream)
{
  char line[LINE_BYTES];
  setvbuf(stream, NULL, _IONBF, 0); /* no copy stays in the library's memory */
  const size_t length = fread(line, 1, sizeof line - 1, stream);
  const bool failed = ferror(stream);
  const int reason = errno;
  line[length] = '\0';
  const bool decoded = !failed && key_decode(key, kind, line);
  sodium_memzero(line, sizeof line);
  if (failed)
    return trm_error(TRM_FAILED, "%s: cannot be read: %s", source, strerror(reason));
  return decoded ? TRM_OK : trm_error(TRM_USAGE, "%s: does not hold %s (trireme key make)", source, kinds[kind].name);
}

static int key_read_file(struct secret_key *key, enum key_kind kind, const char *path)
{
  struct stat about;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  FILE *stream = fd < 0 || fstat(fd, &about) != 0 ? NULL : fdopen(fd, "r");
  int status = TRM_OK;
  if (!stream)
    status = trm_error(TRM_USAGE, "%s: the key cannot be read: %s", path, strerror(errno));
  else if (!S_ISREG(about.st_mode))
    status = trm_error(TRM_USAGE, "%s: the key is not in a regular file", path);
  else if (kind != KEY_VERIFICATION && about.st_mode & (S_IRWXG | S_IRWXO))
    status = trm_error(TRM_USAGE, "%s: others can reach the key (mode %04o); chmod 600 %s", path,
                       (unsigned)about.st_mode & 07777, path);
  else
    status = key_read_stream(key, kind, path, stream);
  if (stream)
    fclose(stream);
  else if (fd >= 0)
    close(fd);
  return status;
}

static int key_read_descriptor(struct secret_key *key, enum key_kind kind, const char *source, const char *number)
{
  char *end;
  const long fd = strtol(number, &end, 10);
  FILE *stream = *number && !*end && fd >= 0 && fd < 1 << 20 ? fdopen((int)fd, "r") : NULL;
  if (!stream)
    return trm_error(TRM_USAGE, "%s: is no open file descriptor", source);
  const int status = key_read_stream(key, kind, source, stream);
  fclose(stream);
  return status;
}

static int key_read_command(struct secret_key *key, enum key_kind kind, const char *source, const char *command)
{
  FILE *stream = popen(command, "re");
  if (!stream)
    return trm_error(TRM_FAILED, "%s: cannot be started: %s", source, strerror(errno));
  const int status = key_read_stream(key, kind, source, stream);
  const int ended = pclose(stream);
  return ended == 0 ? status : trm_error(TRM_FAILED, "%s: the command failed (status %d)", source, ended);
}

/* True for digits of a key. */
static bool key_is_itself(const char *source)
{
  return strlen(source) >= 64 && strspn(source, "0123456789abcdefABCDEF") == strlen(source);
}

int secret_key_read(struct secret_key *key, enum key_kind kind, const char *source)
{
  TRM_CHECK(secret_key_available("keys"));
  if (key_is_itself(source) || strncmp(source, "trireme ", 8) == 0)
    return trm_error(TRM_USAGE, "a key itself is never an option, which every process list shows: "
                     "file:PATH, fd:N or command:COMMAND");
  if (strncmp(source, "fd:", 3) == 0)
    return key_read_descriptor(key, kind, source, source + 3);
  if (strncmp(source, "command:", 8) == 0)
    return key_read_command(key, kind, source, source + 8);
  return key_read_file(key, kind, strncmp(source, "file:", 5) == 0 ? source + 5 : source);
}

/* -- making */

static int key_write(const char *path, enum key_kind kind, const unsigned char *bytes, mode_t mode)
{
  char digits[2 * KEY_MAX_BYTES + 1];
  sodium_bin2hex(digits, sizeof digits, bytes, kinds[kind].bytes);
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  int status = fd >= 0 && dprintf(fd, "%s%s\n", kinds[kind].prefix, digits) > 0 && fsync(fd) == 0
                 ? TRM_OK : trm_error(TRM_FAILED, "%s: the key cannot be written: %s", path, strerror(errno));
  if (fd >= 0 && close(fd) != 0 && status == TRM_OK)
    status = trm_error(TRM_FAILED, "%s: the key cannot be written: %s", path, strerror(errno));
  sodium_memzero(digits, sizeof digits);
  return status;
}

/* The key to verify with is written first: a key to sign with is never without it. */
static int key_make_pair(const char *path)
{
  unsigned char public[crypto_sign_PUBLICKEYBYTES];
  struct secret_key key;
  crypto_sign_keypair(public, key.bytes);
  char *public_path = trm_format("%s.pub", path);
  int status = key_write(public_path, KEY_VERIFICATION, public, 0644);
  if (status == TRM_OK && (status = key_write(path, KEY_SIGNING, key.bytes, 0600)) != TRM_OK)
    unlink(public_path);
  trm_free(public_path);
  secret_key_clear(&key);
  return status;
}

int secret_key_make(const char *path, enum key_kind kind)
{
  TRM_CHECK(secret_key_available("key make"));
  if (kind == KEY_SIGNING)
    return key_make_pair(path);
  struct secret_key key;
  randombytes_buf(key.bytes, kinds[kind].bytes);
  const int status = key_write(path, kind, key.bytes, 0600);
  secret_key_clear(&key);
  return status;
}

#else

int secret_key_available(const char *what)
{
  return trm_error(TRM_USAGE, "%s: this build has no libsodium, which encrypts and signs files (Debian: libsodium-dev)",
                   what);
}

void secret_key_clear(struct secret_key *key)
{
  memset(key, 0, sizeof *key);
}

int secret_key_read(struct secret_key *key, enum key_kind kind, const char *source)
{
  (void)key, (void)kind, (void)source;
  return secret_key_available("keys");
}

int secret_key_make(const char *path, enum key_kind kind)
{
  (void)path, (void)kind;
  return secret_key_available("key make");
}

#endif
