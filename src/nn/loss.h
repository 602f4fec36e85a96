/* Losses: the last step of a model. Each is one device kernel that gives loss, correctness and gradient together. */
#pragma once

#include "core/axis.h"
#include "core/device.h"
#include "nn/input.h"

TRM_BEGIN_DECLS

struct trm_loss {
  const char *name;
  /* Checks that scores of this shape suit the targets; errors name both. */
  int (*check)(const struct trm_shape *scores, const struct trm_input_spec *spec);
  /* R rows: of sequences B T, otherwise B. row_loss (R), row_correct (R), dz (R, C) = scale * gradient, NULL if not
   * wanted; dz may equal z. smoothing: 0 but for softmax_cross_entropy (core/device.h). */
  void (*run)(struct trm_device *device, const struct trm_input *input, const struct trm_shape *scores, const float *z,
              float scale, float smoothing, float *row_loss, float *row_correct, float *dz);
  /* The same of scores that are sharded by class: this rank has those of v. Collective over the axis; all its ranks get
   * the same losses. scratch (R, TRM_SCORES_FIELDS + 2) device, host (4, R). NULL: it takes replicated scores only. */
  void (*run_sharded)(struct trm_axis *axis, const struct trm_input *input, const struct trm_vocab_shard *v, size_t r,
                      const float *z, float scale, float smoothing, float *row_loss, float *row_correct, float *dz,
                      float *scratch, float *host);
  bool smooths;        /* smoothing may be above 0 */
  bool counts_correct; /* accuracy means something */
  bool signed_target;  /* wants target_value in {-1, +1} made of two classes */
};

extern const struct trm_loss *const trm_loss_table[]; /* ends with NULL */

/* The loss called `name`. "auto": for value targets mean_squared_error; for two classes and a single score logistic,
 * for classes otherwise softmax_cross_entropy. NULL: error recorded. */
const struct trm_loss *trm_loss_find(const char *name, const struct trm_shape *scores,
                                     const struct trm_input_spec *spec);

TRM_END_DECLS
