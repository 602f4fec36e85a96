/* The checkpoint contract: the global, logical state of a run. A checkpoint is complete or absent: it is written to a
 * new file, flushed to the disk and renamed. A checkpoint of any layout loads into any other. */
#pragma once

#include "nn/model.h"
#include "train/dataset.h"

TRM_BEGIN_DECLS

struct trm_local_state; /* train/strategy.h */
struct trm_batch_part;

/* The state of a run besides its arrays. */
struct trm_checkpoint {
  /* position in the run */
  uint64_t seed, epoch, position; /* position: samples of the epoch that are done */
  uint64_t updates, samples;      /* since the run began */
  uint64_t batch;                 /* global batch size */
  double epoch_loss, epoch_rows;  /* sums over the current epoch, or the last one */
  double best_loss, best_accuracy; /* on the validation split; NAN: none yet */
  uint64_t best_updates, stale_evaluations; /* for early stopping */
  double plateau_factor, plateau_best; /* struct trm_plateau; factor 0: an older file has none */
  uint64_t plateau_waited;
  double wall_s, train_s;         /* seconds so far; those in steps */
  uint64_t weights_only;          /* 1: of an evaluation while workers went on; a run cannot resume from it */
  struct trm_batch_part *undone;  /* (undones) parts that are not done of batches before others that are; owned */
  size_t undones;
  /* model and data set */
  char *model_text, *loss_name;   /* owned */
  char *config;                   /* the resolved configuration as YAML, owned */
  char *record;                   /* the run's record.json, owned; NULL: not known */
  char *weights_sha256;           /* hexadecimal, set by read_head, owned; write computes it */
  char *data_digest;              /* the data set's, owned, may be NULL */
  char *validation;               /* identifies the validation rows; "none": no such rows; owned, NULL: not known */
  struct trm_input_spec spec;
  char **class_names;             /* (spec.classes) or NULL; pointers and texts are one block, owned */
  struct trm_encoding encoding;   /* of tokens; owned */
  /* whole flat arrays, host: 0 weights, 1.. optimizer states */
  int states;
  const char *state_name[TRM_MAX_STATES]; /* "weights", those of the optimizer (trm_optimizer_state_name) */
  float *state[TRM_MAX_STATES];   /* (model->parameters) */
  bool owns_states;
  /* For write: (parameters of the model) which are frozen, not owned; NULL: none. Their optimizer states are 0, their
   * average is the weights, and neither takes space in the file. */
  const bool *frozen;
  /* For write, in place of `state`, where no rank has whole arrays: sets *values to tensor `number` of a state, (count)
   * host values, valid until the next call. Called twice for each tensor of the weights,
   * and not for other states of frozen parameters. NULL: `state` has all. */
  int (*read_tensor)(void *context, int state, int number, const float **values);
  void *read_tensor_context;
  /* Local states of each rank, for a run that resumes on as many ranks. local_state_ranks: their number; 0: none.
   * For write: read_local_states is called for each rank, in order, and sets (*count) items, valid until its next call;
   * not owned. */
  int local_state_ranks;
  int (*read_local_states)(void *context, int rank, const struct trm_local_state **states, int *count);
  void *read_local_states_context;
};

/* Reading and writing of checkpoint files. */
struct trm_checkpoint_ops {
  const char *name;
  /* Writes path atomically. Called by one rank. On any error (disk full, ...) an older file of that name is untouched
   * and the new one is removed. */
  int (*write)(const char *path, const struct trm_checkpoint *checkpoint, const struct trm_model *model);
  /* Reads everything but the arrays: enough to build the model. Not collective. */
  int (*read_head)(const char *path, struct trm_checkpoint *checkpoint);
  /* Reads the whole file: its checksums and the SHA-256 of the weights must be those that were written. Not
   * collective. */
  int (*verify)(const char *path);
  /* Reads the arrays, by parameter name, into the model's flat order; allocates them. The parameters' names and shapes
   * must be the model's: errors name the first that differs. want_states false: one array, the weights for inference:
   * their average if the file has one. Weights (not averages) must have the SHA-256 of the file. Not collective. */
  int (*read_arrays)(const char *path, struct trm_checkpoint *checkpoint, const struct trm_model *model,
                     bool want_states);
  /* Reads the arrays of a part of the model (nn/partition.h): calls consume for each of the checkpoint's states and
   * each parameter of the part, values (parameter->count). Returns the failure of consume. Not collective. */
  int (*read_model_part)(const char *path, const struct trm_checkpoint *checkpoint, const struct trm_model *model,
                         const struct trm_model *part,
                         int (*consume)(void *context, int state, const struct trm_parameter *parameter,
                                        const float *values),
                         void *context);
  /* Local states of one rank, rank < local_state_ranks. match: *match is true if names and sizes, in this order, are
   * those of the file. read: into states[i].data; they must match. Errors name the damaged or missing item. Not
   * collective. */
  int (*local_states_match)(const char *path, int rank, const struct trm_local_state *states, int count, bool *match);
  int (*local_states_read)(const char *path, int rank, const struct trm_local_state *states, int count);
};

void trm_checkpoint_free(struct trm_checkpoint *checkpoint);

TRM_END_DECLS
