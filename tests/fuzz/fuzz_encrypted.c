/* Encrypted files and keys: a file that was changed in any byte is refused. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cipher_file.h"
#include "core/status.h"
#include "fuzz.h"

enum { CONTENT = 2300 };

static const struct secret_key key = {{7}};

/* Writes an encrypted file of three chunks. */
static int encrypted_make(const char *path)
{
  static const char content[CONTENT] = "content";
  const struct cipher_format format = {CIPHER_CHACHA20_POLY1305, 1024};
  struct cipher_file *file;
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  TRM_CHECK(cipher_file_create(&file, fd, path, &key, &format));
  int status = cipher_file_write(file, 0, CONTENT, content);
  if (status == TRM_OK)
    status = cipher_file_commit(file);
  cipher_file_close(file);
  return status;
}

static int encrypted_read(const char *path)
{
  static char content[CONTENT];
  struct cipher_file *file;
  TRM_CHECK(cipher_file_open(&file, path, &key));
  const int status = cipher_file_read(file, 0, CONTENT, content);
  cipher_file_close(file);
  return status;
}

/* A file as it is, or three bytes an edit of a sound one: the place, and what is added to the byte. */
static void encrypted_file(struct fuzz_input input)
{
  static struct fuzz_input sound;
  if (input.count >= 8 && memcmp(input.bytes, "TRMCIPH1", 8) == 0) {
    encrypted_read(fuzz_file("encrypted", input));
    return;
  }
  if (sound.count == 0) {
    fuzz_require(encrypted_make(fuzz_path("encrypted")) == TRM_OK, "a file can be encrypted");
    sound = fuzz_content("encrypted");
  }
  char *bytes = malloc(sound.count);
  memcpy(bytes, sound.bytes, sound.count);
  for (size_t i = 0; i + 3 <= input.count; i += 3) {
    const size_t at = (unsigned char)input.bytes[i] * 256u + (unsigned char)input.bytes[i + 1];
    bytes[at % sound.count] += input.bytes[i + 2];
  }
  const size_t cut = input.count % 3 == 2 ? (unsigned char)input.bytes[input.count - 1] + 1u : 0;
  const int same = cut == 0 && memcmp(bytes, sound.bytes, sound.count) == 0;
  const char *path = fuzz_file("encrypted", (struct fuzz_input){bytes, sound.count - cut});
  fuzz_require((encrypted_read(path) == TRM_OK) == same, "a file that was changed is refused, and no other");
  free(bytes);
}

/* The text of a key. */
static void encrypted_key(struct fuzz_input input)
{
  struct secret_key read;
  const char *path = fuzz_file("key", input);
  chmod(path, 0600);
  for (int kind = 0; kind < KEY_KINDS; kind++)
    if (secret_key_read(&read, (enum key_kind)kind, path) == TRM_OK)
      secret_key_clear(&read);
}

/* A key ('k'), or an encrypted file. */
void fuzz_encrypted(struct fuzz_input input)
{
  if (secret_key_available("fuzz") != TRM_OK)
    return;
  if (fuzz_variant(&input) == 'k')
    encrypted_key(input);
  else
    encrypted_file(input);
}
