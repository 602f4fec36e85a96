/* Byte pair encoding: pairs of tokens are merged, the pair of the earliest merge first, until no pair has a merge (Gage
 * 1994; Sennrich, Haddow & Birch 2016; over bytes: Radford et al. 2019). Private to datasets/. */
#pragma once

#include "wordset.h"

/* Learns merges from words (words), word i of which occurs count[i] times: repeatedly the most frequent pair, in a tie
 * the one with the smallest left, then right token. Bytes are the tokens token_of[byte], 0 to 255; merge m makes token
 * 256 + m. Stops at *merges of them, or earlier if no pair occurs twice; tokens of more than BPE_MAX_BYTES bytes are
 * not made. merge (merges, 2): trm_free. */
#define BPE_MAX_BYTES 256
void bpe_train(const struct wordset *words, const int64_t *count, const int32_t token_of[256], size_t *merges,
               int32_t (**merge)[2]);

struct bpe;
/* Opens an encoder. merge (merges, 2): the pairs; result (merges): the token that each makes. The arrays are copied. Of
 * a repeated pair the first merge counts. Not for several threads at once. */
struct bpe *bpe_open(const int32_t (*merge)[2], const int32_t *result, size_t merges);
void bpe_close(struct bpe *bpe); /* NULL is allowed */
/* Merges token (count) in place; returns the new count. */
size_t bpe_apply(struct bpe *bpe, int32_t *token, size_t count);
