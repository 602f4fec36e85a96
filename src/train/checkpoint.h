/* The checkpoint contract: the global, logical state of a run. A checkpoint is complete or absent: it is written to a
 * new file, flushed to the disk and renamed. Any layout can read what any layout wrote. */
#ifndef TRM_TRAIN_CHECKPOINT_H
#define TRM_TRAIN_CHECKPOINT_H

#include "nn/model.h"
#include "train/dataset.h"

TRM_BEGIN_DECLS

struct trm_local_state; /* train/strategy.h */

struct trm_checkpoint {
  /* where the run stands */
  uint64_t seed, epoch, position; /* samples of the epoch that are done */
  uint64_t updates, samples;      /* since the run began */
  uint64_t batch;                 /* global batch size */
  double epoch_loss, epoch_rows;  /* sums over the epoch that runs, or the last one */
  double best_loss, best_accuracy; /* on the validation split; NAN: none yet */
  uint64_t best_updates, stale_evaluations; /* for early stopping */
  double wall_s;                  /* seconds of training so far */
  char *model_text, *loss_name;   /* owned */
  char *config;                   /* the resolved configuration as YAML, owned */
  char *data_digest;              /* the data set's, owned, may be NULL */
  char *validation;               /* which rows are for validation, "none": none; owned, NULL: not known */
  struct trm_input_spec spec;
  char **class_names;             /* (spec.classes) or NULL; pointers and texts are one block, owned */
  struct trm_encoding encoding;   /* of tokens; owned */
  /* whole flat arrays, host: 0 weights, 1.. optimizer states */
  int states;
  const char *state_name[TRM_MAX_STATES]; /* "weights", "momentum" | "first", "second", "ema" */
  float *state[TRM_MAX_STATES];   /* (model->parameters) */
  bool owns_states;
  /* For write, in place of `state`, where no rank has whole arrays: gives tensor `number` of a state, (count) host
   * values that are valid until the next call. Weights are asked for twice. NULL: state has all. */
  int (*read_tensor)(void *context, int state, int number, const float **values);
  void *read_tensor_context;
  /* Local states of each rank, for a run that resumes on as many ranks. local_state_ranks: their number; 0: none.
   * For write: read_local_states is called for each rank, in order, and gives (*count) items that are valid until
   * its next call; not owned. */
  int local_state_ranks;
  int (*read_local_states)(void *context, int rank, const struct trm_local_state **states, int *count);
  void *read_local_states_context;
};

struct trm_checkpoint_ops {
  const char *name;
  /* Writes path atomically. Called by one rank. On any error (disk full, ...) an older file of that name is untouched
   * and the new one is removed. */
  int (*write)(const char *path, const struct trm_checkpoint *checkpoint, const struct trm_model *model);
  /* Reads everything but the arrays: enough to build the model. Called by every rank that needs it. */
  int (*read_head)(const char *path, struct trm_checkpoint *checkpoint);
  /* Reads the arrays, by parameter name, into the model's flat order; allocates them. The parameters' names and shapes
   * must be the model's: errors name the first that differs. want_states false: weights alone, which are to be used:
   * their average, if there is one. */
  int (*read_arrays)(const char *path, struct trm_checkpoint *checkpoint, const struct trm_model *model,
                     bool want_states);
  /* The same for a part of the model (nn/partition.h): reads what it has of each tensor, (count) values of
   * `parameter`, which is the part's, and gives it to take, for the checkpoint's states. A failure of take is
   * returned. */
  int (*read_model_part)(const char *path, const struct trm_checkpoint *checkpoint, const struct trm_model *model,
                         const struct trm_model *part,
                         int (*consume)(void *context, int state, const struct trm_parameter *parameter,
                                        const float *values),
                         void *context);
  /* Of one rank, rank < kept_ranks. fits: are names and sizes, in this order, those of the file? read: into
   * kept[i].data; it must fit. Errors name what is damaged or missing. Called by every rank for itself. */
  int (*local_states_match)(const char *path, int rank, const struct trm_local_state *states, int count, bool *match);
  int (*local_states_read)(const char *path, int rank, const struct trm_local_state *states, int count);
};

void trm_checkpoint_free(struct trm_checkpoint *checkpoint);

TRM_END_DECLS
#endif
