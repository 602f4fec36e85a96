/* Element types of arrays in a data set file, blocks of rows, and the checksum of a block (private to datasets/). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "h5.h"

enum block_type { BLOCK_UINT8, BLOCK_UINT16, BLOCK_INT32, BLOCK_INT64, BLOCK_FLOAT, BLOCK_TYPES };

const char *block_type_name(enum block_type type); /* "uint8" */
size_t block_type_bytes(enum block_type type);
hid_t block_type_file(enum block_type type);   /* little-endian; not to be closed */
hid_t block_type_memory(enum block_type type); /* not to be closed */

/* Target size of a block of rows, in bytes: fits into the caches, is fine enough to shuffle, and large enough for one
 * request to a disk. The sample order of streamed sets depends on it: never change it. */
#define BLOCK_BYTES ((size_t)256 << 10)

/* Rows of a block: as many as fit into BLOCK_BYTES, at least 1. */
size_t block_rows(size_t row_bytes);

/* Returns the checksum of a block: a Fletcher sum (Fletcher, An Arithmetic Checksum for Serial Transmissions, 1982)
 * over 32-bit little-endian words in 64-bit arithmetic, in 8 lanes. With w[i] the words (the last one padded with zero
 * bytes) and n words, rounded up to a multiple of 8:
 *   a[l] = sum of w[i], b[l] = sum of (n - i + l) / 8 * w[i], over the i with i mod 8 = l, modulo 2^64
 * and the sum is mix(... mix(mix(mix(bytes) ^ a[0]) ^ b[0]) ^ a[1] ... ^ b[7]) with the finalizer of splitmix64
 * (Steele, Lea, Flood 2014): mix(h): h ^= h >> 30, h *= 0xbf58476d1ce4e5b9, h ^= h >> 27, h *= 0x94d049bb133111eb,
 * h ^= h >> 31. It detects every change of one word, every exchange of two words and every truncation. */
uint64_t block_checksum(const void *data, size_t bytes);
uint64_t block_mix(uint64_t h); /* mix above */
