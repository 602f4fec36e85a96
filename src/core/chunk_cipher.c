#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "core/chunk_cipher.h"

#ifdef HAVE_SODIUM
#include <sodium.h>
#include <string.h>
#ifdef HAVE_LIBCRYPTO
#include <openssl/evp.h>
#endif

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

struct chunk_cipher {
  uint8_t key[CHUNK_KEY_BYTES]; /* ChaCha20-Poly1305 */
#ifdef HAVE_LIBCRYPTO
  EVP_CIPHER_CTX *aes; /* AES-256-GCM, has the key; else NULL */
#endif
};

/* nonce: (12), data: (8) the additional data */
static void chunk_nonce(uint8_t *nonce, uint8_t *data, const uint8_t *number, uint64_t place)
{
  memset(nonce, 0, 12);
  memcpy(nonce, number, CHUNK_NUMBER_BYTES);
  for (int i = 0; i < CHUNK_NUMBER_BYTES; i++)
    data[i] = (uint8_t)(place >> 8 * i);
}

#ifdef HAVE_LIBCRYPTO
bool chunk_cipher_has(enum cipher cipher)
{
  return cipher == CIPHER_AES256_GCM || cipher == CIPHER_CHACHA20_POLY1305;
}

static void chunk_aes_must(bool good)
{
  if (!good)
    trm_abort_on_error(trm_error(TRM_FAILED, "libcrypto cannot compute AES-256-GCM"));
}

static EVP_CIPHER_CTX *chunk_aes_make(const uint8_t *key)
{
  EVP_CIPHER_CTX *aes = EVP_CIPHER_CTX_new();
  chunk_aes_must(aes && EVP_CipherInit_ex(aes, EVP_aes_256_gcm(), NULL, key, NULL, 1));
  return aes;
}

/* Encrypts or decrypts, up to the tag. */
static void chunk_aes_run(EVP_CIPHER_CTX *aes, bool encrypt, const uint8_t *nonce, const uint8_t *data, size_t bytes,
                          const uint8_t *from, uint8_t *to)
{
  int done;
  chunk_aes_must(EVP_CipherInit_ex(aes, NULL, NULL, NULL, nonce, encrypt) &&
                 EVP_CipherUpdate(aes, NULL, &done, data, CHUNK_NUMBER_BYTES) &&
                 EVP_CipherUpdate(aes, to, &done, from, (int)bytes));
}

static void chunk_aes_seal(EVP_CIPHER_CTX *aes, const uint8_t *nonce, const uint8_t *data, size_t bytes,
                           const uint8_t *from, uint8_t *to, uint8_t *tag)
{
  int done;
  chunk_aes_run(aes, true, nonce, data, bytes, from, to);
  chunk_aes_must(EVP_CipherFinal_ex(aes, to + bytes, &done) &&
                 EVP_CIPHER_CTX_ctrl(aes, EVP_CTRL_AEAD_GET_TAG, CHUNK_TAG_BYTES, tag));
}

static bool chunk_aes_unseal(EVP_CIPHER_CTX *aes, const uint8_t *nonce, const uint8_t *data, size_t bytes,
                             const uint8_t *from, uint8_t *to, const uint8_t *tag)
{
  int done;
  chunk_aes_run(aes, false, nonce, data, bytes, from, to);
  chunk_aes_must(EVP_CIPHER_CTX_ctrl(aes, EVP_CTRL_AEAD_SET_TAG, CHUNK_TAG_BYTES, (void *)tag));
  return EVP_CipherFinal_ex(aes, to + bytes, &done);
}
#else
bool chunk_cipher_has(enum cipher cipher)
{
  return cipher == CIPHER_CHACHA20_POLY1305;
}
#endif

struct chunk_cipher *chunk_cipher_make(enum cipher cipher, const uint8_t *key)
{
  struct chunk_cipher *made = trm_alloc(sizeof *made, "a cipher");
  memcpy(made->key, key, sizeof made->key);
#ifdef HAVE_LIBCRYPTO
  made->aes = cipher == CIPHER_AES256_GCM ? chunk_aes_make(key) : NULL;
#else
  (void)cipher;
#endif
  return made;
}

void chunk_cipher_free(struct chunk_cipher *cipher)
{
  if (!cipher)
    return;
#ifdef HAVE_LIBCRYPTO
  EVP_CIPHER_CTX_free(cipher->aes); /* overwrites the key */
#endif
  sodium_memzero(cipher, sizeof *cipher);
  trm_free(cipher);
}

void chunk_seal(struct chunk_cipher *cipher, const uint8_t *number, uint64_t place, size_t bytes, const uint8_t *from,
                uint8_t *to, uint8_t *tag)
{
  uint8_t nonce[12], data[CHUNK_NUMBER_BYTES];
  chunk_nonce(nonce, data, number, place);
#ifdef HAVE_LIBCRYPTO
  if (cipher->aes) {
    chunk_aes_seal(cipher->aes, nonce, data, bytes, from, to, tag);
    return;
  }
#endif
  crypto_aead_chacha20poly1305_ietf_encrypt_detached(to, tag, NULL, from, bytes, data, sizeof data, NULL, nonce,
                                                     cipher->key);
}

bool chunk_unseal(struct chunk_cipher *cipher, const uint8_t *number, uint64_t place, size_t bytes,
                  const uint8_t *from, uint8_t *to, const uint8_t *tag)
{
  uint8_t nonce[12], data[CHUNK_NUMBER_BYTES];
  chunk_nonce(nonce, data, number, place);
  bool good;
#ifdef HAVE_LIBCRYPTO
  if (cipher->aes)
    good = chunk_aes_unseal(cipher->aes, nonce, data, bytes, from, to, tag);
  else
#endif
    good = crypto_aead_chacha20poly1305_ietf_decrypt_detached(to, NULL, from, bytes, tag, data, sizeof data, nonce,
                                                              cipher->key) == 0;
  if (!good)
    memset(to, 0, bytes);
  return good;
}

#endif
