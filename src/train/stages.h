/* The trainer's side of a pipeline (train/pipeline.h; private to src/train): cuts the model, gives the micro-batches
 * their rows, hands gradients to the strategy. */
#ifndef TRM_TRAIN_STAGES_H
#define TRM_TRAIN_STAGES_H

#include "train/device_batch.h"
#include "train/pipeline.h"

struct trainer;
struct trainer_batch;

/* One batch on its way through the stages. */
struct trainer_inflight_batch {
  size_t low, high;     /* of the whole batch, positions in the order of the epoch */
  size_t part_low, part_high;      /* of this rank's part */
};

struct trainer_stages {
  struct trm_pipeline pipeline;
  struct trm_host_batch *batch;   /* (slots) */
  struct trm_device_batch *device_batch;          /* (slots) */
  struct trainer_inflight_batch *inflight;  /* (batches) of the run under way */
  float *previous_weights; /* 2bw, on one of the ranks that have the same: the version before, for checkpoints */
  char previous_weights_name[56];
};

/* Reads the options; the part of the model gets this stage's chunks. The trainer's whole model is there. */
int trainer_stages_partition(struct trainer *t, struct trm_model_part *part);
/* Collective. Opens the pipeline; sets the slots that the model is to be bound with. The trainer's model is there. */
int trainer_stages_create(struct trainer *t);
/* Says where the model is cut (by items of its text, as parallel.cut takes them), and how even the pieces are. */
void trainer_stages_log_partition(const struct trainer *t);
void trainer_stages_free(struct trainer *t); /* collective */

/* Slots of struct trainer_mode. */
int trainer_stages_train(struct trainer *t, const struct trainer_batch *global, struct trm_loss_sums *sums);
int trainer_stages_evaluate(struct trainer *t, struct trm_dataset *dataset, struct trm_loss_sums *sums);
int trainer_stages_save_local_state(struct trainer *t);
int trainer_stages_resume(struct trainer *t);
/* Collective. Schedules that do not flush: all batches below `end`, updates included, or up to
 * a few after somebody was asked to stop. *sum: over them. */
int trainer_stages_advance(struct trainer *t, uint64_t end, struct trm_loss_sums *total);
/* Collective. Idle share of the stages' time in training, measured and by the schedule's theory; NAN: there are no
 * stages, or nothing was trained. */
void trainer_stages_bubble(struct trainer *t, double *measured, double *theory);

#endif
