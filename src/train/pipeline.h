/* The pipeline contract: the passes of a model whose chain of layers is cut over ranks.
 *
 * A batch is divided into micro-batches; each stage computes its chunks for one after the other, in the order of a
 * schedule (pipeline_schedule.h). Values go forward to the stage with the next piece, gradients come back. The
 * gradient of a stage's weights is the sum over the micro-batches in ascending order, so the same bits as on one
 * rank that computes the same micro-batches.
 *
 * A weight that two stages hold (nn/partition.h: one tied to another) has a gradient on each; they are added before
 * they are handed on, so that both copies stay equal.
 *
 * Schedules that flush compute one batch in a run, and the update follows (trm_strategy_ops.step). The others are
 * handed all batches up to a moment at which the run is looked at as a whole, and update on the way:
 *   2bw        batch t is computed with the weights W(t-1) and leads from W(t) to W(t+1); W(-1) = W(0)
 *   pipedream  a stage computes a batch, forward and backward, with the weights it has when the batch comes to it;
 *              without stash backward with those that it has by then
 * A batch's update happens on each stage when its last micro-batch has come back there.
 */
#ifndef TRM_TRAIN_PIPELINE_H
#define TRM_TRAIN_PIPELINE_H

#include "core/comm.h"
#include "nn/model.h"
#include "train/pipeline_schedule.h"

/* Messages of each kind that a stage has buffers for at each end of a chunk. */
enum { TRM_MESSAGES_IN_FLIGHT = 2 };

struct trm_pipeline;

/* One batch, or this rank's part of it. The same on all stages. */
struct trm_pipeline_batch {
  uint64_t first_row; /* of micro-batch 0, as in trm_pass; the others follow it */
  float scale;        /* as in trm_pass */
  int micros;         /* training: as the schedule says */
  const size_t *rows; /* (micros) of each; may be 0 */
};

/* A run of passes: its batches, and the functions of the caller. */
struct trm_pipeline_run {
  struct trm_pass pass; /* what all passes have in common: input, first_row, beta, scale and between are not read */
  const struct trm_pipeline_batch *batch; /* (batches) */
  int batches;                            /* of schedules that flush, and of an evaluation, 1 */
  void *context;
  /* Gives the rows of a micro-batch: all that the first chunk reads if `features`, all that the loss reads if
   * `targets`. Called only where one of them is needed. Must stay as it is until the next call with this slot. */
  int (*input)(void *context, int batch, int micro, int slot, bool features, bool targets, struct trm_input *input);
  /* The gradients of the flat interval [low, high) are final on this stage for this batch: as
   * trm_strategy_ops.grad_ready wants them. sums: of the batch, the same on all stages. NULL: not
   * called. With a parameter provider that overwrites gradients: of one micro-batch, and sums are not final yet. */
  int (*grad_ready)(void *context, int batch, size_t low, size_t high, const struct trm_loss_sums *sums);
  /* Without flush: the update of a batch, after all of ready. Changes model->w in place. TRM_FAILED must be every
   * stage's: no further updates are made, and the run returns it when what is under way is through. Stop
   * requests in sums, which must be every stage's, too, end the run a few batches later. */
  int (*step)(void *context, int batch, struct trm_loss_sums *sums);
  /* Without flush: whether this rank is asked to stop. NULL: it is not. */
  bool (*stop_requested)(void *context);
  /* Seconds that this action is to take, of which elapsed_s have passed: the stage sleeps for the rest, while messages
   * progress. flop: of the action. NULL: as long as it takes. */
  double (*action_duration)(void *context, int batch, double flop, double elapsed_s);
};

/* One action of a stage and its times, seconds of comm->ops->clock. */
struct trm_pipeline_event {
  struct trm_action action;
  double wait_began;         /* what it needs was asked for */
  double began, ended; /* between: computation */
};

struct trm_pipeline_ops {
  /* Collective over comm. Takes host memory for messages when they are first sent. */
  int (*create)(struct trm_pipeline *pipeline);
  /* Collective. Forward and backward of all batches. sums (batches): in, stop requests of this rank; out, of the whole
   * axis, the same on all stages; final when grad_ready or step is called. A failure of one rank ends the job. */
  int (*train)(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run, struct trm_loss_sums *sums);
  /* Collective. Forward alone, and the loss; adds to the loss sums on every stage. The model may be bound in any
   * way; one slot is enough. The run: input, and lasts. */
  int (*evaluate)(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run, struct trm_loss_sums *sums);
  /* 2bw, after bind: a run goes on with this version before (host, model->parameters), that of a checkpoint. Without it
   * the first train takes the weights as they are. */
  int (*restore)(struct trm_pipeline *pipeline, const float *previous_weights);
  /* Collective. The share of the stages' time that was idle in training so far: 1 - busy / (stages * span). Schedules
   * without flush: from the first to the last action of each run. */
  double (*bubble)(struct trm_pipeline *pipeline);
  void (*destroy)(struct trm_pipeline *pipeline); /* collective */
};

struct trm_pipeline {
  const struct trm_pipeline_ops *ops;
  /* set by the caller before create; not owned */
  struct trm_comm *comm;   /* the pipeline axis: rank = stage, of schedule.stages */
  struct trm_model *model; /* this stage's part; bound by the caller, with `slots`, before train */
  struct trm_schedule schedule;
  bool stash;              /* pipedream: keep the weights of each micro-batch until it comes back */
  /* set by create */
  int slots;
  double flop[TRM_MAX_CHUNKS]; /* forward, of a row, of each chunk; backward is counted twice */
  float *stashed;              /* 2bw, from the first train on: device, (model->parameters), the weights of the version
                                  before; NULL otherwise */
  /* measured since create, on this stage */
  double busy_s, wait_s, comm_s; /* computing; waiting for messages; packing and unpacking them */
  double span_s;                 /* between the first action and the last one, of all runs */
  uint64_t runs, batches;        /* trains, and the batches of all of them */
  struct trm_pipeline_event *event; /* (moments) of the latest train */
  int events;
  void *impl;
};

#endif
