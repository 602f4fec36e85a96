/* Encrypted files: bytes at any place can be read, and written while the file is made. docs/security.md has the format
 * and what it promises. In short: the content is cut into chunks; each is encrypted and authenticated by itself with a
 * random key of the file, under a number that no other write of a chunk to the file has; a table has the number and the
 * tag of every chunk; the header has a MAC over itself and the table, and the file's key encrypted under the user's.
 *
 * So a reader decrypts no more than the chunks it reads, and every byte of the file, its length and the order of the
 * chunks are those that were written last, or reading fails. A file that was not committed has no header. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/chunk_cipher.h"
#include "core/secret_key.h"

struct cipher_file;

struct cipher_format {
  enum cipher cipher;
  size_t chunk_bytes; /* a power of two from 1024 to 2^20 */
};
/* Returns the format of new files: chunks of 64 KiB, AES if this build has it. */
struct cipher_format cipher_format_default(void);

/* True if the file at path begins as an encrypted one; false also if it cannot be read. */
bool cipher_file_detect(const char *path);

/* Opens a file for reading and verifies its header and table. Errors name the file: another key, changed, cut short,
 * not complete. Not collective; one handle serves one thread at a time. */
int cipher_file_open(struct cipher_file **file, const char *path, const struct secret_key *key);

/* Begins a file in the empty file `fd`, open for reading and writing, which cipher_file_close closes. key: of the kind
 * KEY_ENCRYPTION; NULL: a random one that is never written, for scratch files. path: for messages. */
int cipher_file_create(struct cipher_file **file, int fd, const char *path, const struct secret_key *key,
                       const struct cipher_format *format);

uint64_t cipher_file_bytes(const struct cipher_file *file); /* of the content */
/* Lets a file that was opened for reading be decrypted by so many threads. */
void cipher_file_use_threads(struct cipher_file *file, int threads);
/* Reads bytes [at, at + bytes) of the content; beyond its end zeros. */
int cipher_file_read(struct cipher_file *file, uint64_t at, size_t bytes, void *to);
/* Only between create and commit. */
int cipher_file_write(struct cipher_file *file, uint64_t at, size_t bytes, const void *from);
/* Sets the length of the content. */
void cipher_file_resize(struct cipher_file *file, uint64_t bytes);
/* Writes what is missing, table and header, and synchronizes the file to the disk. */
int cipher_file_commit(struct cipher_file *file);
void cipher_file_close(struct cipher_file *file); /* NULL is allowed */

/* Encrypts the file's key under another key of the user's, in place; the content is not touched. An interrupted call
 * leaves a file that another one completes. */
int cipher_file_rewrap(const char *path, const struct secret_key *old_key, const struct secret_key *new_key);
