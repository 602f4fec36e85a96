/* The header of an encrypted file (private to cipher_file.c). All numbers are little-endian.
 *
 *   offset  bytes  meaning
 *        0      8  "TRMCIPH1"
 *        8      4  cipher (enum cipher)
 *       12      4  bytes of a chunk
 *       16      8  bytes of the content
 *       24     88  the file's key, encrypted under the user's: 16 bytes that identify the user's key, a nonce of 24, the
 *                  key and its tag (XChaCha20-Poly1305)
 *      112     88  zeros; while the file gets another key: the file's key, encrypted under that one
 *      200     32  MAC (keyed BLAKE2b) of bytes 0 to 23 and the table
 *
 * The content's chunks follow, the last one padded with zeros; then the table: of each chunk the number of its last
 * write (8 bytes) and its tag (16). */
#pragma once

#include "core/cipher_file.h"

#define CIPHER_MAGIC "TRMCIPH1"
enum { CIPHER_MAGIC_BYTES = 8, CIPHER_HEADER_BYTES = 232 };

/* Derived from the key of a file, which only wrapping needs itself. */
struct cipher_keys {
  uint8_t file[32], content[32], mac[32];
};

/* Makes a header with a new key of the file, wrapped under the user's; key NULL: not wrapped. */
void cipher_header_create(uint8_t *header, const struct cipher_format *format, const struct secret_key *key,
                          struct cipher_keys *keys);
/* Sets length and MAC. */
void cipher_header_sign(uint8_t *header, uint64_t bytes, const void *table, size_t table_bytes,
                        const struct cipher_keys *keys);

/* Reads format and length, which are not verified yet. */
int cipher_header_parse(const uint8_t *header, const char *path, struct cipher_format *format, uint64_t *bytes);
/* Decrypts the file's key. */
int cipher_header_unwrap(const uint8_t *header, const char *path, const struct secret_key *key,
                         struct cipher_keys *keys);
/* Compares the MAC. */
int cipher_header_verify(const uint8_t *header, const char *path, const void *table, size_t table_bytes,
                         const struct cipher_keys *keys);

/* Refuses a header with two wrapped keys. */
int cipher_header_has_one_key(const uint8_t *header, const char *path);
/* Wraps the file's key under another one too, beside that under old_key. */
void cipher_header_add_key(uint8_t *header, const struct secret_key *old_key, const struct secret_key *key,
                           const struct cipher_keys *keys);
/* Removes all wrapped keys but that under `key`. */
void cipher_header_keep_key(uint8_t *header, const struct secret_key *key);

/* Little-endian numbers of up to 8 bytes. */
static inline void cipher_store(uint8_t *to, uint64_t value, int bytes)
{
  for (int i = 0; i < bytes; i++)
    to[i] = (uint8_t)(value >> 8 * i);
}

static inline uint64_t cipher_fetch(const uint8_t *from, int bytes)
{
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++)
    value |= (uint64_t)from[i] << 8 * i;
  return value;
}
