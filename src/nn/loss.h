/* Losses: the last step of a model. Each is one device kernel for loss, correctness and gradient. */
#pragma once

#include "core/axis.h"
#include "core/device.h"
#include "nn/layer.h"

TRM_BEGIN_DECLS

/* One call of a loss. Arrays are on the device. */
struct trm_loss_call {
  struct trm_device *device;
  const struct trm_input *input; /* its targets */
  size_t rows, classes, ld;      /* R: of sequences B T, otherwise B; C scores each, ld elements apart */
  enum trm_value_type type;      /* of scores and gradient */
  const void *scores;            /* z (R, C) */
  float scale, smoothing, delta; /* smoothing: 0 but for softmax_cross_entropy; delta: of huber (core/kernels.h) */
  const float *row_weight;       /* (R) of softmax_cross_entropy; NULL: 1 */
  const float *class_weight;     /* (C) the same; of all classes, also where they are sharded */
  float *row_loss, *row_correct; /* (R) */
  void *gradient;                /* (R, C) dz = scale * gradient; may be z; NULL: not needed */
  /* of scores that are sharded by class */
  struct trm_axis *axis;
  struct trm_vocab_shard shard;  /* the classes of this rank */
  float *scratch;                /* (R, 2 + TRM_SCORES_FIELDS (1 + ranks)) */
};
/* Sets rows, classes and ld by call->input and the layer that gives the scores. */
void trm_loss_call_shape(struct trm_loss_call *call, const struct trm_layer *last);

/* A loss: a row of trm_loss_table. */
struct trm_loss {
  const char *name;
  /* Checks that scores of this shape suit the targets; errors name both. */
  int (*check)(const struct trm_loss *loss, const struct trm_shape *scores, const struct trm_input_spec *spec);
  void (*run)(const struct trm_loss_call *call);
  /* The same for scores sharded by class. Collective over the axis; all its ranks get the same losses. NULL: only
   * replicated scores. */
  void (*run_sharded)(const struct trm_loss_call *call);
  bool smooths;        /* smoothing may be above 0, and rows and classes have weights */
  bool counts_correct; /* accuracy is meaningful */
  bool signed_target;  /* needs target_value in {-1, +1}, made of two classes */
  bool labels;         /* needs target_value in {0, 1}: each says whether a row has a label */
};

extern const struct trm_loss *const trm_loss_table[]; /* ends with NULL */

/* The loss called `name`. "auto": for value targets mean_squared_error; for two classes and a single score logistic,
 * for classes otherwise softmax_cross_entropy. NULL: error recorded. */
const struct trm_loss *trm_loss_find(const char *name, const struct trm_shape *scores,
                                     const struct trm_input_spec *spec);

TRM_END_DECLS
