/* Authenticated encryption of messages between nodes (run.encrypt, docs/security.md): AES-256-GCM or
 * ChaCha20-Poly1305 (core/chunk_cipher.h).
 *
 * The job's key is derived from the user's (security.key) and from random numbers of every rank, so that no two jobs
 * have the same. Each communicator derives a key for every pair of its ranks and direction. The nonce is the tag and
 * the number of the message among those of that pair and tag: MPI keeps their order, so both sides count. A message
 * that was changed, repeated, taken from another place, or that follows one left out does not verify, and ends the
 * job. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct real_comm;
struct real_secure; /* of a communicator; NULL where run.encrypt is off */
struct real_sealed; /* a message in progress */

/* Begins encryption for `real` and for the communicators that are made of it later, under security_key(). Collective.
 * TRM_USAGE: there is no key, or no libsodium. */
int real_secure_begin(struct real_comm *real);
/* Returns that of mpi, made of `parent`; number: communicators that were made of `parent` before. Not collective. */
struct real_secure *real_secure_derive(const struct real_secure *parent, MPI_Comm mpi, uint64_t number);
void real_secure_free(struct real_secure *secure);

/* True if messages with this rank are encrypted: it is on another node. NULL: never. */
bool real_secure_is_remote(const struct real_secure *secure, int rank);
bool real_secure_has_remote(const struct real_secure *secure); /* with any rank */

/* Begin a message of at most 2^30 bytes, with a rank for which is_remote is true. Any thread may call them. What is
 * sent may change at once; what is received is there after real_sealed_end. */
struct real_sealed *real_secure_send(struct real_secure *secure, MPI_Comm mpi, const void *data, size_t bytes, int rank,
                                     int tag, MPI_Request *request);
struct real_sealed *real_secure_receive(struct real_secure *secure, MPI_Comm mpi, void *data, size_t bytes, int rank,
                                        int tag, MPI_Request *request);
/* Receives the message that MPI_Improbe has found, at once. */
void real_secure_take(struct real_secure *secure, MPI_Message *found, const MPI_Status *probed, void *data,
                      size_t bytes);
/* Ends a message whose request is complete: decrypts what was received, frees it, sets *sealed to NULL. *sealed NULL:
 * nothing to do. Ends the job if what was received does not verify. */
void real_sealed_end(struct real_sealed **sealed);
