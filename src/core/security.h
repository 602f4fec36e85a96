/* The keys of this process, and files that are encrypted if it has one: data sets, checkpoints, exports, predictions.
 * Keys are set before files are opened, and only read thereafter. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "core/cipher_file.h"

/* Sets the key of this process from a source (core/secret_key.h); "" or NULL: none. */
int security_set_key(const char *source);
const struct secret_key *security_key(void); /* NULL: none */
/* Forgets all keys. */
void security_clear(void);

/* Sets *encrypted. A process with a key reads encrypted files only: else anybody could put a file of his own in the
 * place of one. Errors: an encrypted file without a key, any other file with one. A file that cannot be read counts as
 * not encrypted. */
int security_check(const char *path, bool *encrypted);
/* Opens a file for reading, by security_check. A read that fails to verify sets errno to EBADMSG. */
int security_open(const char *path, FILE **stream);
/* Begins an encrypted file in the empty file fd, open for reading and writing; a failure closes fd. fclose closes
 * stream and file; before, cipher_file_commit completes it. */
int security_encrypt(int fd, const char *path, FILE **stream, struct cipher_file **file);
/* Makes a file for reading and writing, which must not exist. With a key it is encrypted, under one of its own that is
 * in memory only. */
int security_scratch(const char *path, FILE **stream);
