/* What an array in a data set file is made of: element types, blocks of rows, and the sum that guards a block (private
 * to datasets/). */
#ifndef TRM_DATASETS_BLOCKS_H
#define TRM_DATASETS_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "h5.h"

enum block_type { BLOCK_UINT8, BLOCK_UINT16, BLOCK_INT32, BLOCK_INT64, BLOCK_FLOAT, BLOCK_TYPES };

const char *block_type_name(enum block_type type); /* "uint8" */
size_t block_type_bytes(enum block_type type);
hid_t block_type_file(enum block_type type);   /* little-endian; not to be closed */
hid_t block_type_memory(enum block_type type); /* not to be closed */

/* Bytes that a block of rows aims at: small enough for the caches and for a fine shuffle, large enough for one request
 * to a disk. It is part of the order of samples of large sets: never change it. */
#define BLOCK_BYTES ((size_t)256 << 10)

/* Rows of a block: as many as fit into BLOCK_BYTES, at least 1. */
size_t block_rows(size_t row_bytes);

/* The sum of a block of bytes: a Fletcher sum (Fletcher, An Arithmetic Checksum for Serial Transmissions, 1982) over
 * 32-bit little-endian words in 64-bit arithmetic, in 8 lanes. With w[i] the words (the last one filled up with zero
 * bytes) and n words, rounded up to a multiple of 8:
 *   a[l] = sum of w[i], b[l] = sum of (n - i + l) / 8 * w[i], over the i with i mod 8 = l, modulo 2^64
 * and the sum is mix(... mix(mix(mix(bytes) ^ a[0]) ^ b[0]) ^ a[1] ... ^ b[7]) with the finalizer of splitmix64
 * (Steele, Lea, Flood 2014): mix(h): h ^= h >> 30, h *= 0xbf58476d1ce4e5b9, h ^= h >> 27, h *= 0x94d049bb133111eb,
 * h ^= h >> 31. Every change of one word, every exchange of two words and every cut is seen. */
uint64_t block_checksum(const void *data, size_t bytes);

#endif
