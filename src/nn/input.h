/* Model input: a batch of rows on the device, and the description of such rows. */
#pragma once

#include "core/device.h"

TRM_BEGIN_DECLS

#define TRM_MAX_DIMS 4

/* The shape of one sample, without the batch dimension. */
struct trm_shape {
  int dims;                  /* 0: a scalar */
  size_t size[TRM_MAX_DIMS]; /* images (C, H, W), vectors (F), token rows (T), sequences (T, D) */
  bool sequence;             /* (T, D), T positions of D values, as from an embedding: processed by position */
};
size_t trm_shape_count(const struct trm_shape *shape); /* elements of one sample */
const char *trm_shape_text(const struct trm_shape *shape); /* "(1, 28, 28)"; trm_context_text */

enum trm_target_kind { TRM_TARGET_CLASS, TRM_TARGET_VALUE };

/* The kind of samples and targets that a data set has and a model is built for. */
struct trm_input_spec {
  struct trm_shape shape; /* of one sample; sparse rows: (F) */
  bool sparse;
  bool tokens;            /* int32 token ids instead of floats */
  size_t context;         /* tokens: positions of the model, of which a pass has the shape's; 0: as many */
  enum trm_target_kind target;
  size_t classes;         /* TRM_TARGET_CLASS: number of classes; TRM_TARGET_VALUE: values per sample */
};

size_t trm_input_context(const struct trm_input_spec *spec); /* tokens: positions of the model */

/* One batch of B rows, device pointers. Exactly one of dense, csr.starts, tokens is set. */
struct trm_input {
  size_t rows;            /* B; may be 0 */
  const float *dense;     /* (B, shape) */
  struct trm_csr csr;     /* sparse rows */
  const int32_t *tokens;  /* (B, T) */
  const int32_t *target_class; /* (B), or (B, T) for tokens */
  const float *target_value;   /* (B, classes) */
  /* In training, of losses that have them (core/kernels.h); NULL: 1. */
  const float *row_weight;     /* (B) */
  const float *class_weight;   /* (classes) */
};

TRM_END_DECLS
