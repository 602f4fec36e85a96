/* Training steps on made-up samples, as bench step runs them (private to cli). */
#ifndef TRM_CLI_BENCH_WORK_H
#define TRM_CLI_BENCH_WORK_H

#include "cli/job.h"
#include "kernels/timed_device.h"
#include "nn/model.h"
#include "nn/optimizer.h"

enum { WORK_BATCHES = 4 };

struct work {
  /* set by the caller */
  struct job *job;
  const char *text;         /* the model */
  const char *input;        /* shape of a sample as text; NULL: what the model is made for */
  int64_t classes, batch;   /* classes or tokens of the vocabulary, 0: what the model is made for; samples a rank */
  /* set by work_open */
  struct trm_comm *comm;
  struct trm_device device; /* counts into timed */
  struct timed timed;
  struct trm_input_spec spec;
  struct trm_model model;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  void *x[WORK_BATCHES];           /* device: (B, shape) samples, or (B, T) tokens */
  int32_t *target[WORK_BATCHES];   /* device: (B), or (B, T) */
  size_t taken;                    /* steps done */
};

/* Collective. Makes model, strategy and batches. work_close also after an error. */
int work_open(struct work *work);
void work_close(struct work *work);

/* Collective. One step, as train/train.c does it. *computed: the clock when the model had done its work. */
int work_step(struct work *work, double *computed);

/* Rows of a sample in what is counted per second: of tokens its positions, otherwise 1. */
size_t work_items(const struct work *work);

#endif
