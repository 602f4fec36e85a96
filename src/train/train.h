/* Training and evaluation. */
#pragma once

#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/grid.h"
#include "train/measures.h"
#include "train/strategy.h"

TRM_BEGIN_DECLS

struct trm_pipeline_ops; /* train/pipeline.h */
struct trm_costs;        /* train/costs.h */

/* A library that the program was linked with. */
struct trm_library {
  const char *name, *version; /* not owned */
};

struct trm_param_load;
/* The implementations of a run, chosen by the caller; not owned. */
struct trm_modules {
  struct trm_comm *comm; /* the whole job */
  const struct trm_grid *grid; /* the ranks of comm by axes; for training */
  struct trm_device *device;
  const struct trm_strategy_ops *strategy;
  const struct trm_pipeline_ops *pipeline;
  const struct trm_dataset_ops *dataset;
  const struct trm_checkpoint_ops *checkpoint;
  /* Loads weights of the model from a file of another program (model.init) into host_w (model->parameters), host.
   * Called by one rank. Errors name the file. */
  int (*weights_load)(struct trm_param_load *load, float *host_w);
  const struct trm_costs *costs; /* of simulate.machine; NULL: a gradient takes its operations / device.gflops */
  const struct trm_library *libraries; /* for record.json, ends with a row whose name is NULL; NULL: none */
};

/* Means over a split; NAN: not known. */
struct trm_score {
  double loss, accuracy;
};

/* A number of each rank, over the ranks. */
struct trm_over_ranks {
  double min, mean, max;
  int max_rank; /* of the job: the lowest with the maximum */
};

/* The rank of a synchronous run that the others waited for, of the ranks of its stage. */
struct trm_slowest {
  int rank; /* of the job; -1: none, or it cost less than 5 % of the time in steps */
  char host[64];
  double compute_s, others_s, cost_s; /* seconds computing; mean of the others; the difference */
};

/* Results of a run: the figures of summary.json. */
struct trm_result {
  uint64_t epochs, steps, samples;
  double wall_s, samples_per_s;
  double virtual_s;        /* on a virtual network, of this process; else NAN */
  double final_train_loss; /* mean over the last epoch, as far as it ran; NAN: no step was made */
  struct trm_score validation, test;  /* of the final weights; test: NAN if the run was stopped */
  struct trm_score best_validation;   /* of checkpoints/best.h5, the weights after best_step */
  uint64_t best_step;
  struct trm_measures measures;       /* of test; none applies: the run was stopped or has no test split */
  double train_s, comm_s, wait_s; /* seconds in steps; in communication and waiting for other ranks: means over ranks */
  double consensus;               /* strategy.h, of the final weights; 0: not defined */
  double conflicts;               /* strategy.h: conflicting / stored; NAN: nothing was stored */
  struct trm_over_ranks compute, wait, comm; /* seconds in steps: neither of the following; waiting; communication */
  struct trm_slowest slowest;
  struct trm_wire_means between_nodes;
  double joules;                  /* of processors and memory of all nodes, by this process' part of the run; NAN: not
                                     every node tells them */
  double gpu_joules;              /* the same of GPUs; NAN: no rank computes on one, or one does not count */
  size_t trained_parameters;      /* values, of the whole model */
  double train_flop;              /* operations of a step, per sample, of the whole model */
  size_t gradient_bytes;          /* of rank 0's part of the model: what its data axis sums in a step */
  size_t planned_bytes, max_resident_bytes; /* memory of rank 0: planned before the first step; maximum of the run */
  char weights_sha256[65];        /* "": no weights were trained */
  bool tokens;                    /* losses are per token */
  double validation_token_bytes, test_token_bytes; /* bytes of text per token of the split; 0: not known */
  uint64_t verified_steps, transient_faults; /* of this process, with run.verify_every */
  double bubble, bubble_theory;   /* idle share of the stages' time in training, by trm_schedule_bubble; NAN: none */
  const char *status; /* "done", "stopped", "early-stop"; "finished": by an earlier process, no other field is set */
  const char *reason; /* of the end, where that is neither the last step nor said by status; NULL: none */
};

/* Collective. Trains by the options and writes the run directory. TRM_STOPPED after a signal and its checkpoint. A run
 * that is resumed after it had finished: TRM_OK, and its directory is unchanged. */
int trm_train(const struct trm_options *options, const struct trm_modules *modules, struct trm_result *result);

/* Collective over comm. Evaluates the model on the whole data set, each row once, sharded over the ranks, in passes of
 * `batch` rows; all ranks make the same number of passes. pass: fields common to all passes; input is not read. *sums:
 * over all ranks. */
int trm_evaluate(struct trm_model *model, struct trm_dataset *dataset, struct trm_comm *comm, size_t batch,
                 const struct trm_pass *pass, struct trm_loss_sums *sums);
/* The same with this rank's part as it is given: rows [low, high), in passes of `batch` rows. Together the ranks have
 * each row once, and make the same number of passes, which are enough for every part. */
struct trm_evaluation_part {
  size_t low, high, batch, passes;
};
int trm_evaluate_part(struct trm_model *model, struct trm_dataset *dataset, struct trm_comm *comm,
                      const struct trm_evaluation_part *part, const struct trm_pass *pass, struct trm_loss_sums *sums);
/* Collective over comm. The sums over the ranks, with the same bits on all. */
void trm_loss_sums_allreduce(struct trm_loss_sums *sums, struct trm_comm *comm);

TRM_END_DECLS
