/* Scores of a text that grows token by token. What attention has read of earlier positions is kept (a key-value cache,
 * Pope et al. 2023, section 2.1), so that a pass computes the new positions alone: all of the first tokens, then one
 * for each token. Every token of a text that is longer than the model's context takes a pass over all positions,
 * which then have other tokens. */
#pragma once

#include "nn/model.h"

struct trm_decoder {
  struct trm_model *model; /* for one row; not owned; while open its layers' shapes are those of the last pass */
  struct trm_device *device;
  void *tokens;            /* (context) device */
  size_t past;             /* positions in the caches */
};

/* model: of tokens, causal, bound for evaluation. Fails if there is no memory. trm_decoder_close, also if it fails,
 * before the model is freed. */
int trm_decoder_open(struct trm_decoder *decoder, struct trm_model *model);

/* Computes the scores (V, host) of the token that follows the `count` of `token`, at least 1. Of two calls in a row the
 * tokens of the first begin those of the second. */
int trm_decoder_score_next(struct trm_decoder *decoder, const int32_t *token, size_t count, float *scores);
void trm_decoder_close(struct trm_decoder *decoder);
