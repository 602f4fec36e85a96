#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "core/cipher_header.h"

#ifdef HAVE_SODIUM
#include <sodium.h>
#include <string.h>

#include "core/status.h"

enum { AT_CIPHER = 8, AT_CHUNK = 12, AT_BYTES = 16, AT_SLOTS = 24, SLOT_BYTES = 88, SLOTS = 2, AT_MAC = 200,
       MAC_BYTES = 32, KEY_BYTES = 32 };
enum { SLOT_ID = 0, ID_BYTES = 16, SLOT_NONCE = 16, SLOT_KEY = 40 };
enum { CONTENT_KEY = 1, MAC_KEY = 2, KEY_ID = 3 }; /* numbers of derived keys */
enum { MIN_CHUNK = 1 << 10, MAX_CHUNK = 1 << 20 };

static void header_derive(uint8_t *to, size_t bytes, int number, const uint8_t *key)
{
  crypto_kdf_derive_from_key(to, bytes, (uint64_t)number, "trireme1", key);
}

static void header_derive_keys(struct cipher_keys *keys)
{
  header_derive(keys->content, sizeof keys->content, CONTENT_KEY, keys->file);
  header_derive(keys->mac, sizeof keys->mac, MAC_KEY, keys->file);
}

/* -- slots of wrapped keys */

/* Returns the number of the slot with the key's mark, -1: none. */
static int header_find_slot(const uint8_t *header, const struct secret_key *key)
{
  uint8_t id[ID_BYTES];
  header_derive(id, sizeof id, KEY_ID, key->bytes);
  for (int i = 0; i < SLOTS; i++)
    if (memcmp(header + AT_SLOTS + i * SLOT_BYTES + SLOT_ID, id, sizeof id) == 0)
      return i;
  return -1;
}

static void header_wrap(uint8_t *slot, const struct secret_key *key, const struct cipher_keys *keys)
{
  header_derive(slot + SLOT_ID, ID_BYTES, KEY_ID, key->bytes);
  randombytes_buf(slot + SLOT_NONCE, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES);
  crypto_aead_xchacha20poly1305_ietf_encrypt(slot + SLOT_KEY, NULL, keys->file, KEY_BYTES,
                                             (const uint8_t *)CIPHER_MAGIC, CIPHER_MAGIC_BYTES, NULL,
                                             slot + SLOT_NONCE, key->bytes);
}

/* Returns the first slot that is not in use, SLOTS: none. */
static int header_free_slot(const uint8_t *header)
{
  int i = 0;
  while (i < SLOTS && !sodium_is_zero(header + AT_SLOTS + i * SLOT_BYTES, SLOT_BYTES))
    i++;
  return i;
}

int cipher_header_has_one_key(const uint8_t *header, const char *path)
{
  if (header_free_slot(header) < SLOTS)
    return TRM_OK;
  return trm_error(TRM_FAILED, "%s: was changed after it was written, or has two keys since trireme key rotate was "
                   "interrupted: call it once more", path);
}

void cipher_header_add_key(uint8_t *header, const struct secret_key *old_key, const struct secret_key *key,
                           const struct cipher_keys *keys)
{
  const int other = header_find_slot(header, old_key) == 0 ? 1 : 0;
  header_wrap(header + AT_SLOTS + other * SLOT_BYTES, key, keys);
}

void cipher_header_keep_key(uint8_t *header, const struct secret_key *key)
{
  const int kept = header_find_slot(header, key);
  for (int i = 0; i < SLOTS; i++)
    if (i != kept)
      memset(header + AT_SLOTS + i * SLOT_BYTES, 0, SLOT_BYTES);
}

int cipher_header_unwrap(const uint8_t *header, const char *path, const struct secret_key *key,
                         struct cipher_keys *keys)
{
  const int found = header_find_slot(header, key);
  const uint8_t *slot = header + AT_SLOTS + found * SLOT_BYTES;
  if (found < 0)
    return trm_error(TRM_FAILED, "%s: is encrypted with another key, or its header was changed", path);
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(keys->file, NULL, NULL, slot + SLOT_KEY,
                                                 KEY_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES,
                                                 (const uint8_t *)CIPHER_MAGIC, CIPHER_MAGIC_BYTES,
                                                 slot + SLOT_NONCE, key->bytes) != 0)
    return trm_error(TRM_FAILED, "%s: was changed after it was written: its key does not verify", path);
  header_derive_keys(keys);
  return TRM_OK;
}

/* -- the header */

void cipher_header_create(uint8_t *header, const struct cipher_format *format, const struct secret_key *key,
                          struct cipher_keys *keys)
{
  memset(header, 0, CIPHER_HEADER_BYTES);
  memcpy(header, CIPHER_MAGIC, CIPHER_MAGIC_BYTES);
  cipher_store(header + AT_CIPHER, format->cipher, 4);
  cipher_store(header + AT_CHUNK, format->chunk_bytes, 4);
  randombytes_buf(keys->file, sizeof keys->file);
  header_derive_keys(keys);
  if (key)
    header_wrap(header + AT_SLOTS, key, keys);
}

static void header_mac(uint8_t *mac, const uint8_t *header, const void *table, size_t table_bytes,
                       const struct cipher_keys *keys)
{
  crypto_generichash_state state;
  crypto_generichash_init(&state, keys->mac, sizeof keys->mac, MAC_BYTES);
  crypto_generichash_update(&state, header, AT_SLOTS);
  crypto_generichash_update(&state, table, table_bytes);
  crypto_generichash_final(&state, mac, MAC_BYTES);
}

void cipher_header_sign(uint8_t *header, uint64_t bytes, const void *table, size_t table_bytes,
                        const struct cipher_keys *keys)
{
  cipher_store(header + AT_BYTES, bytes, 8);
  header_mac(header + AT_MAC, header, table, table_bytes, keys);
}

int cipher_header_verify(const uint8_t *header, const char *path, const void *table, size_t table_bytes,
                         const struct cipher_keys *keys)
{
  uint8_t mac[MAC_BYTES];
  header_mac(mac, header, table, table_bytes, keys);
  return sodium_memcmp(mac, header + AT_MAC, sizeof mac) == 0
           ? TRM_OK
           : trm_error(TRM_FAILED, "%s: was changed after it was written: its header does not verify", path);
}

int cipher_header_parse(const uint8_t *header, const char *path, struct cipher_format *format, uint64_t *bytes)
{
  const uint64_t cipher = cipher_fetch(header + AT_CIPHER, 4), chunk = cipher_fetch(header + AT_CHUNK, 4);
  if (memcmp(header, CIPHER_MAGIC, CIPHER_MAGIC_BYTES) != 0)
    return trm_error(TRM_FAILED, "%s: is not an encrypted file, or was not completed", path);
  if ((cipher != CIPHER_AES256_GCM && cipher != CIPHER_CHACHA20_POLY1305) || chunk < MIN_CHUNK || chunk > MAX_CHUNK ||
      (chunk & (chunk - 1)) != 0)
    return trm_error(TRM_FAILED, "%s: was changed after it was written, or a later version wrote it", path);
  if (!chunk_cipher_has((enum cipher)cipher))
    return trm_error(TRM_FAILED, "%s: is encrypted with AES-256-GCM, which this program lacks: it was built without "
                     "libcrypto (Debian: libssl-dev)", path);
  *format = (struct cipher_format){(enum cipher)cipher, (size_t)chunk};
  *bytes = cipher_fetch(header + AT_BYTES, 8);
  return TRM_OK;
}

#endif
