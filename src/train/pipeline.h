/* The pipeline contract: forward and backward passes of a model whose layers are partitioned into stages.
 *
 * A batch is split into micro-batches; each stage computes its chunks for them in the order of a schedule
 * (pipeline_schedule.h). Activations are sent to the stage with the next chunk, gradients to the one with the previous
 * chunk. The gradient of a stage's weights is the sum over the micro-batches in ascending order: the same bits as on
 * one rank that computes the same micro-batches.
 *
 * Tied weights on two stages (nn/partition.h) have a gradient on each; these are added before grad_ready, so that both
 * copies stay equal.
 *
 * Schedules that flush compute one batch in a run, and the update follows (trm_strategy_ops.step). The others compute
 * all batches up to the next evaluation, checkpoint or end of the epoch in one run, with the updates in between:
 *   2bw        the gradient of batch t is that at W(t-1), and its update makes W(t+1) of W(t); W(-1) = W(0)
 *   pipedream  a stage computes the forward and backward pass of a batch with its weights at the forward pass; without
 *              stash, the backward pass with its weights at that time
 * A stage updates its weights with a batch after the batch's last backward pass there.
 */
#pragma once

#include "core/comm.h"
#include "nn/model.h"
#include "train/pipeline_schedule.h"

/* Message buffers of each kind at each end of a chunk. */
enum { TRM_MESSAGES_IN_FLIGHT = 2 };

struct trm_pipeline;

/* This rank's shard of one batch; the same on all stages. */
struct trm_pipeline_batch {
  uint64_t first_row; /* of micro-batch 0, as in trm_pass; the rows of the others follow */
  float scale;        /* as in trm_pass */
  int micros;         /* training: schedule.micros */
  const size_t *rows; /* (micros) rows of each micro-batch; may be 0 */
};

/* A run of passes: its batches and the caller's callbacks. */
struct trm_pipeline_run {
  struct trm_pass pass; /* fields common to all passes: input, first_row, beta, scale and progress are not read */
  const struct trm_pipeline_batch *batch; /* (batches) */
  int batches;                            /* 1 in an evaluation and with schedules that flush */
  bool collective; /* input or passes may wait for ranks of other axes: before these, all messages are sent */
  void *context;
  /* Sets *input to the rows of a micro-batch: the first chunk's input if `features`, the loss's if `targets`. Called
   * only where one of the two is true. *input is valid until the next call with this slot. */
  int (*input)(void *context, int batch, int micro, int slot, bool features, bool targets, struct trm_input *input);
  /* Called when the gradients of the flat interval [low, high) are final on this stage for this batch, in the order of
   * trm_strategy_ops.grad_ready. sums: of the batch, the same on all stages. With a parameter provider that overwrites
   * gradients: called for each micro-batch, and sums are not final. NULL: no callback. */
  int (*grad_ready)(void *context, int batch, size_t low, size_t high, const struct trm_loss_sums *sums);
  /* Without flush: updates model->w in place with a batch, after its calls of grad_ready. Status and stop requests in
   * sums must be the same on every stage. After TRM_FAILED the batches in flight are completed without updates, and the
   * run returns it. Stop requests end the run a few batches later. */
  int (*step)(void *context, int batch, struct trm_loss_sums *sums);
  /* Without flush: returns true if a signal to stop has arrived on this rank. NULL: never. */
  bool (*stop_requested)(void *context);
  /* Injected slowdown: returns the seconds that this action of `flop` operations should take. elapsed_s have passed;
   * the stage sleeps for the rest and progresses messages. NULL: no sleep. */
  double (*action_duration)(void *context, int batch, double flop, double elapsed_s);
};

/* One action of a stage and its times, seconds of comm->ops->clock. */
struct trm_pipeline_event {
  struct trm_action action;
  double wait_began;   /* the wait for its messages began */
  double began, ended; /* of the computation */
};

struct trm_pipeline_ops {
  /* Collective over comm. Allocates host memory for messages when they are first sent. */
  int (*create)(struct trm_pipeline *pipeline);
  /* Collective. Forward and backward passes of all batches. sums (batches): in, stop requests of this rank; out, sums
   * over the axis, the same on all stages, final before grad_ready and step. A failure of one rank ends the job. */
  int (*train)(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run, struct trm_loss_sums *sums);
  /* Collective. Forward passes and the loss; adds to *sums on every stage. Of the run's callbacks, calls only input and
   * action_duration. One slot of the model is enough. */
  int (*evaluate)(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run, struct trm_loss_sums *sums);
  /* 2bw, after bind: sets the previous weights W(t-1) (host, (model->parameters)) of a resumed run. Without this call
   * W(t-1) = W(t) in the first train. */
  int (*restore)(struct trm_pipeline *pipeline, const float *previous_weights);
  /* Collective. Returns the idle share of the stages' time in training so far: 1 - busy / (stages * span), where span
   * is the time from the first to the last action of each run. */
  double (*bubble)(struct trm_pipeline *pipeline);
  void (*destroy)(struct trm_pipeline *pipeline); /* collective */
};

struct trm_pipeline {
  const struct trm_pipeline_ops *ops;
  /* set by the caller before create; not owned */
  struct trm_comm *comm;   /* the pipeline axis: rank = stage, of schedule.stages */
  struct trm_model *model; /* this stage's part; bound by the caller, with `slots`, before train */
  struct trm_schedule schedule;
  bool stash;              /* pipedream: keep a micro-batch's weights until its backward pass */
  /* set by create */
  int slots;
  double flop[TRM_MAX_CHUNKS]; /* forward pass of one row through each chunk; backward counts as twice as many */
  float *stashed;              /* 2bw, from the first train on: the previous weights, device, (model->parameters) */
  /* measured since create, on this stage */
  double busy_s, wait_s, comm_s; /* seconds computing; waiting for messages; packing and unpacking them */
  double span_s;                 /* seconds between the first and the last action, sum over all runs */
  uint64_t runs, batches;        /* calls of train, and their batches */
  struct trm_pipeline_event *event; /* (events) of the latest train */
  int events;
  void *impl;
};
