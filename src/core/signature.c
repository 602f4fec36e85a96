#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "core/signature.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/security.h"
#include "core/status.h"

void signature_remove(const char *path)
{
  char *name = trm_format("%s.sig", path);
  unlink(name);
  trm_free(name);
}

#ifdef HAVE_SODIUM
#include <sodium.h>

#define LINE_PREFIX "trireme signature 1 "
enum { PREFIX = sizeof LINE_PREFIX - 1, DIGITS = 2 * crypto_sign_BYTES, LINE = PREFIX + DIGITS + 1, LINES = 2 };
enum { VERIFIED = 8 }; /* a run's data sets, checkpoint and initial weights */

static struct {
  bool signs, verifies;
  struct secret_key signing, verification;
  struct stat verified[VERIFIED];
  int next;
} process;

int signature_set_signing_key(const char *source)
{
  if (!source || !*source)
    return TRM_OK;
  if (secret_key_read(&process.signing, KEY_SIGNING, source) != TRM_OK)
    return trm_error_context(TRM_USAGE, "run.sign");
  process.signs = true;
  return TRM_OK;
}

int signature_set_verification_key(const char *source)
{
  if (!source || !*source)
    return TRM_OK;
  if (secret_key_read(&process.verification, KEY_VERIFICATION, source) != TRM_OK)
    return trm_error_context(TRM_USAGE, "run.verify_with");
  process.verifies = true;
  return TRM_OK;
}

void signature_clear(void)
{
  sodium_memzero(&process, sizeof process);
}

/* Computes the hash of a file's content. */
static int signature_hash(const char *path, crypto_sign_state *state)
{
  enum { BYTES = 1 << 18 };
  FILE *stream;
  TRM_CHECK(security_open(path, &stream));
  unsigned char *buffer = trm_alloc(BYTES, "a part of the file");
  setvbuf(stream, NULL, _IONBF, 0);
  crypto_sign_init(state);
  for (size_t bytes; (bytes = fread(buffer, 1, BYTES, stream)) > 0;)
    crypto_sign_update(state, buffer, bytes);
  trm_free(buffer);
  const bool failed = ferror(stream);
  const int reason = errno;
  fclose(stream);
  if (!failed || reason == EBADMSG) /* the error is recorded */
    return failed ? TRM_FAILED : TRM_OK;
  return trm_error(TRM_FAILED, "%s: cannot be read: %s", path, strerror(reason));
}

/* Reads the lines of PATH.sig: their number, 0: there is no such file. */
static size_t signature_read_lines(const char *path, char text[LINES * LINE + 1])
{
  char *name = trm_format("%s.sig", path);
  FILE *stream = fopen(name, "re");
  const size_t bytes = stream ? fread(text, 1, LINES * LINE, stream) : 0;
  text[bytes] = '\0';
  if (stream)
    fclose(stream);
  trm_free(name);
  return bytes / LINE;
}

static bool signature_decode(const char *line, unsigned char *signature)
{
  size_t bytes;
  return memcmp(line, LINE_PREFIX, PREFIX) == 0 && line[LINE - 1] == '\n' &&
         sodium_hex2bin(signature, crypto_sign_BYTES, line + PREFIX, DIGITS, NULL, &bytes, NULL) == 0 &&
         bytes == crypto_sign_BYTES;
}

int signature_write(const char *written, const char *path)
{
  crypto_sign_state state;
  unsigned char signature[crypto_sign_BYTES];
  char digits[DIGITS + 1], former[LINES * LINE + 1];
  struct atomic_file file;
  if (!process.signs)
    return TRM_OK;
  TRM_CHECK(signature_hash(written, &state));
  crypto_sign_final_create(&state, signature, NULL, process.signing.bytes);
  sodium_bin2hex(digits, sizeof digits, signature, sizeof signature);
  const bool replaces = access(path, F_OK) == 0 && signature_read_lines(path, former) > 0;
  char *name = trm_format("%s.sig", path);
  int status = atomic_file_open(&file, name);
  if (status == TRM_OK) {
    fprintf(file.stream, LINE_PREFIX "%s\n%.*s", digits, replaces ? LINE : 0, former);
    status = atomic_file_close(&file, !ferror(file.stream));
  }
  trm_free(name);
  return status;
}

/* -- verification */

static bool signature_is_same_file(const struct stat *a, const struct stat *b)
{
  return a->st_ino != 0 && a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         memcmp(&a->st_mtim, &b->st_mtim, sizeof a->st_mtim) == 0;
}

static int signature_compare(const char *path)
{
  crypto_sign_state state;
  unsigned char signature[crypto_sign_BYTES];
  char text[LINES * LINE + 1];
  const size_t lines = signature_read_lines(path, text);
  if (lines == 0)
    return trm_error(TRM_FAILED, "%s: is not signed: there is no %s.sig with a signature, and run.verify_with asks for "
                     "one", path, path);
  TRM_CHECK(signature_hash(path, &state));
  for (size_t i = 0; i < lines; i++) {
    crypto_sign_state copy = state;
    if (signature_decode(text + i * LINE, signature) &&
        crypto_sign_final_verify(&copy, signature, process.verification.bytes) == 0)
      return TRM_OK;
  }
  return trm_error(TRM_FAILED, "%s: its signature does not verify: the file was changed, or another key signed it", path);
}

int signature_verify(const char *path)
{
  struct stat about;
  char target[PATH_MAX]; /* last.h5 is a link to a file with a signature */
  if (!process.verifies)
    return TRM_OK;
  if (!realpath(path, target) || stat(target, &about) != 0)
    return trm_error(TRM_FAILED, "%s: cannot be opened: %s", path, strerror(errno));
  for (int i = 0; i < VERIFIED; i++)
    if (signature_is_same_file(&process.verified[i], &about))
      return TRM_OK;
  TRM_CHECK(signature_compare(target));
  process.verified[process.next++ % VERIFIED] = about;
  return TRM_OK;
}

#else

int signature_set_signing_key(const char *source)
{
  return source && *source ? secret_key_available("run.sign") : TRM_OK;
}

int signature_set_verification_key(const char *source)
{
  return source && *source ? secret_key_available("run.verify_with") : TRM_OK;
}

void signature_clear(void)
{
}

int signature_write(const char *written, const char *path)
{
  (void)written, (void)path;
  return TRM_OK;
}

int signature_verify(const char *path)
{
  (void)path;
  return TRM_OK;
}

#endif
