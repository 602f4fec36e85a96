/* The trainer's use of a pipeline (train/pipeline.h; private to src/train): partitions the model, loads the rows of
 * micro-batches, passes gradients to the strategy. */
#pragma once

#include "train/device_batch.h"
#include "train/pipeline.h"

struct trainer;
struct trainer_batch;

/* One batch in flight: positions in the order of the epoch. */
struct trainer_inflight_batch {
  size_t low, high;           /* of the global batch */
  size_t part_low, part_high; /* of this rank's shard */
};

struct trainer_stages {
  struct trm_pipeline pipeline;
  struct trm_host_batch *batch;            /* (slots) */
  struct trm_device_batch *device_batch;   /* (slots) */
  struct trainer_inflight_batch *inflight; /* (batches) of the current run */
  float *previous_weights;        /* 2bw, data rank 0: W(t-1) for checkpoints, host, (model.parameters); else NULL */
  char previous_weights_name[56]; /* of the local state */
};

/* Sets *part to this stage's chunks of t->full_model, by the options. Not collective. */
int trainer_stages_partition(struct trainer *t, struct trm_model_part *part);
/* Collective. Creates the pipeline for t->model; sets t->slots, which the model is then bound with. */
int trainer_stages_create(struct trainer *t);
/* Logs the cuts of the model (numbers of items of its text, as in parallel.cut) and each chunk's share of the work. */
void trainer_stages_log_partition(const struct trainer *t);
void trainer_stages_free(struct trainer *t); /* collective */

/* Slots of struct trainer_mode. */
int trainer_stages_train(struct trainer *t, const struct trainer_batch *global, struct trm_loss_sums *sums);
int trainer_stages_evaluate(struct trainer *t, struct trm_dataset *dataset, struct trm_loss_sums *sums);
int trainer_stages_save_local_state(struct trainer *t);
int trainer_stages_resume(struct trainer *t);
/* Collective. Schedules that do not flush: trains on all batches below `end`, with updates; ends a few batches after a
 * stop request of any rank. *total: sums over these batches. */
int trainer_stages_advance(struct trainer *t, uint64_t end, struct trm_loss_sums *total);
/* Collective. Sets the idle share of the stages' time in training, measured and by trm_schedule_bubble; NAN: no
 * pipeline, or no training. */
void trainer_stages_bubble(struct trainer *t, double *measured, double *theory);
