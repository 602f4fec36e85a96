/* Training steps on made-up samples, as bench step runs them (private to cli). */
#ifndef TRM_CLI_BENCH_WORK_H
#define TRM_CLI_BENCH_WORK_H

#include "cli/job.h"
#include "kernels/timed_device.h"
#include "nn/model.h"
#include "nn/optimizer.h"

enum { RUN_BATCHES = 4 };

struct bench_run {
  /* set by the caller */
  struct trm_job *job;
  const char *text;         /* the model */
  const char *input;        /* shape of a sample as text; NULL: what the model is made for */
  int64_t classes, batch;   /* classes or tokens of the vocabulary, 0: what the model is made for; samples a rank */
  /* set by bench_run_open */
  struct trm_comm *comm;
  struct trm_device device; /* counts into timed */
  struct timed_profile timed;
  struct trm_input_spec spec;
  struct trm_model model;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  void *x[RUN_BATCHES];           /* device: (B, shape) samples, or (B, T) tokens */
  int32_t *target[RUN_BATCHES];   /* device: (B), or (B, T) */
  size_t steps;                    /* steps done */
};

/* Collective. Makes model, strategy and batches. bench_run_close also after an error. */
int bench_run_open(struct bench_run *run);
void bench_run_close(struct bench_run *run);

/* Collective. One step, as train/train.c does it. *computed: the clock when the model had done its work. */
int bench_run_step(struct bench_run *run, double *computed);

/* Rows of a sample in what is counted per second: of tokens its positions, otherwise 1. */
size_t bench_run_items(const struct bench_run *run);

#endif
