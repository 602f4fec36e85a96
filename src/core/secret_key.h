/* Keys of files: where they are kept, how they are read and made. A key is one line of text, its kind and hexadecimal
 * digits; the program takes it from a source, never from the command line itself:
 *
 *   PATH or file:PATH   a file that nobody but its owner can read
 *   fd:N                an open file descriptor of this process, read to its end
 *   command:COMMAND     what a command of the shell prints (a key store's client, say) */
#pragma once

#include <stddef.h>

enum key_kind {
  KEY_ENCRYPTION,   /* 32 bytes, secret */
  KEY_SIGNING,      /* 64 bytes, secret: Ed25519 */
  KEY_VERIFICATION, /* 32 bytes, public: Ed25519 */
  KEY_KINDS
};

#define KEY_MAX_BYTES 64

struct secret_key {
  unsigned char bytes[KEY_MAX_BYTES];
};

/* Returns TRM_OK if this build has libsodium, and prepares it; else TRM_USAGE: "WHAT: this build cannot ...". */
int secret_key_available(const char *what);

/* Reads a key of the kind from a source. Errors name the source, never what was read. Not collective. */
int secret_key_read(struct secret_key *key, enum key_kind kind, const char *source);
void secret_key_clear(struct secret_key *key);

/* Keys that no file has, of builds with libsodium. random: 32 random bytes. derive: sets to, 32 bytes, to BLAKE2b of
 * `bytes` bytes of data under a key of 32 bytes. */
void secret_key_random(struct secret_key *key);
void secret_key_derive(struct secret_key *to, const struct secret_key *key, const void *data, size_t bytes);

/* Makes a random key and writes it to a new file of mode 0600. KEY_SIGNING: the key to verify with goes to PATH.pub.
 * An existing file is an error: a key that is lost cannot be had back. */
int secret_key_make(const char *path, enum key_kind kind);
