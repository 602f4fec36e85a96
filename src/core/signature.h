/* Signatures of files: Ed25519ph (RFC 8032) of a file's content, in FILE.sig beside it. They are of the content, so
 * they stay valid when the file is encrypted, decrypted or gets another key. A process that has a key to sign with
 * signs every data set, checkpoint, export and file of predictions that it writes; one that has a key to verify with
 * reads no others.
 *
 *   FILE.sig   a line "trireme signature 1 " and 128 hexadecimal digits; a second line is the signature of the file
 *              that this one has replaced, since FILE.sig gets its name before FILE: if the process is killed in
 *              between, the older file still verifies */
#pragma once

/* Set the keys of this process from sources (core/secret_key.h); "" or NULL: none. */
int signature_set_signing_key(const char *source);
int signature_set_verification_key(const char *source);
void signature_clear(void);

/* Writes PATH.sig for the complete file `written`, which the caller then renames to `path`. TRM_OK if this process does
 * not sign. */
int signature_write(const char *written, const char *path);

/* Reads the file and its signature, unless it did so before and the file has the same size, time and place on the disk.
 * TRM_OK if this process does not verify. Not collective: one rank verifies for all. */
int signature_verify(const char *path);

/* Removes PATH.sig, if it is there. */
void signature_remove(const char *path);
