/* Quantized arrays: blocks of 512 elements with a scale each, and a code of `bits` bits an element. For sign.c and
 * qsgd.c. A block of their own keeps a few large elements from hiding the others, across tensors of any size (Zheng,
 * Huang, Kwok: Communication-efficient distributed blockwise momentum SGD with error-feedback, NeurIPS 2019; Alistarh
 * et al. 2017 have 512, too). */
#pragma once

#include "mpi/compress/compressor_private.h"

enum { BLOCK = 512 };

static inline size_t blocks_of(size_t n)
{
  return (n + BLOCK - 1) / BLOCK;
}

/* The elements of block `block` of n elements. */
static inline size_t block_size(size_t n, size_t block)
{
  return n - block * BLOCK < BLOCK ? n - block * BLOCK : BLOCK;
}

/* Words of a block's codes: that of element i is in word i / per, from bit i % per * bits on, per = 32 / bits. */
static inline size_t blocks_words(int bits)
{
  return BLOCK / 32 * (size_t)bits;
}

/* A message: the scales (blocks), then the words, as many for the last block as for the others. */
struct blocks_message {
  float *scale;    /* (blocks) */
  uint32_t *words; /* (blocks, blocks_words) */
};

static inline size_t blocks_message_bytes(size_t n, int bits)
{
  return blocks_of(n) * (sizeof(float) + blocks_words(bits) * sizeof(uint32_t));
}

/* Sets buffer, rounds and sent for one round, in which each node sends its message to all. */
static inline void blocks_measure(const struct compress_part *part, int bits, struct compress_sizes *sizes)
{
  sizes->buffer = (size_t)part->nodes->size * blocks_message_bytes(part->n, bits);
  sizes->rounds = 1;
  sizes->sent = compress_rows_sent(part, blocks_message_bytes(part->n, bits));
}

/* The message of a node in the slice's buffer. */
static inline struct blocks_message blocks_message(const struct compress_part *part, int node, int bits)
{
  float *const scale = (float *)(part->buffer + (size_t)node * blocks_message_bytes(part->n, bits));
  return (struct blocks_message){scale, (uint32_t *)(scale + blocks_of(part->n))};
}
