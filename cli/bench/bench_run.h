/* Training steps of bench step, on random samples (private to cli). */
#pragma once

#include "cli/command.h"
#include "kernels/timed_device.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "train/staged_arrays.h"

enum { RUN_BATCHES = 4 };

struct bench_run {
  /* set by the caller */
  struct trm_job *job;
  const char *text;         /* the model */
  const char *input;        /* shape of a sample as text; NULL: the model's default */
  int64_t classes, batch;   /* classes or tokens of the vocabulary, 0: the model's default; samples of a rank */
  /* set by bench_run_open */
  struct trm_comm *comm;
  struct trm_device device; /* counts into timed */
  struct timed_profile timed;
  struct trm_input_spec spec;
  struct trm_model model;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  struct trm_staged_arrays arrays;
  void *x[RUN_BATCHES];           /* device: (B, shape) samples, or (B, T) tokens */
  int32_t *target[RUN_BATCHES];   /* device: (B), or (B, T) */
  size_t steps;                    /* steps done */
};

/* Collective. Creates model, strategy and batches. bench_run_close follows even if it fails. */
int bench_run_open(struct bench_run *run);
void bench_run_close(struct bench_run *run);

/* Collective. Does one step as training does. *computed: the clock after the backward pass. */
int bench_run_step(struct bench_run *run, double *computed);
