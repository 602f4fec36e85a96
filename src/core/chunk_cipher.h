/* Authenticated encryption of a chunk of a file (core/cipher_file.h): AES-256-GCM by OpenSSL's libcrypto, which uses
 * the processor's widest instructions, and ChaCha20-Poly1305 by libsodium. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Both have nonces of 96 bits, tags of 128 and keys of 256. */
enum cipher { CIPHER_AES256_GCM = 1, CIPHER_CHACHA20_POLY1305 = 2 };
enum { CHUNK_KEY_BYTES = 32, CHUNK_TAG_BYTES = 16, CHUNK_NUMBER_BYTES = 8 };

/* True if this build computes the cipher. */
bool chunk_cipher_has(enum cipher cipher);

/* A cipher with a key, for one thread at a time. */
struct chunk_cipher;
struct chunk_cipher *chunk_cipher_make(enum cipher cipher, const uint8_t *key);
void chunk_cipher_free(struct chunk_cipher *cipher); /* forgets the key; NULL is allowed */

/* Encrypts `bytes` bytes (less than 2^31) and makes their tag. number: unique under the key; with four zeros it is the
 * nonce. place: the number of the chunk in the file, the additional data. */
void chunk_seal(struct chunk_cipher *cipher, const uint8_t *number, uint64_t place, size_t bytes, const uint8_t *from,
                uint8_t *to, uint8_t *tag);
/* Decrypts to `to`, which may be `from`. False if anything is not as it was sealed: `to` then has zeros. */
bool chunk_unseal(struct chunk_cipher *cipher, const uint8_t *number, uint64_t place, size_t bytes,
                  const uint8_t *from, uint8_t *to, const uint8_t *tag);
