/* The memory plan of a run, known before the first step (private to src/train): memory held before setup, arrays that
 * setup allocates, and memory that the first step will add. Not collective. */
#pragma once

#include "nn/model.h"

enum trm_budget_part {
  TRM_BUDGET_PROGRAM, /* code, libraries, threads, with the memory that they allocate on first use */
  TRM_BUDGET_DATA,    /* the data set's windows, batches */
  TRM_BUDGET_WEIGHTS, /* weights, gradients, optimizer states; node-shared arrays count with all ranks' parts */
  TRM_BUDGET_ACTIVATIONS,
  TRM_BUDGET_CHECKPOINT, /* what is gathered for a checkpoint and for the hash of the weights */
  TRM_BUDGET_PARTS
};

struct trm_budget {
  size_t part[TRM_BUDGET_PARTS]; /* bytes */
  size_t held;                   /* trm_memory_allocated at the last call, bytes */
};

/* Charges the resident memory of the process to TRM_BUDGET_PROGRAM. warms_up: computes a product on the device first,
 * so that libraries and threads have allocated their buffers; by one rank of a process. Fails if the device is out of
 * memory. */
int trm_budget_begin(struct trm_budget *budget, struct trm_device *device, bool warms_up);
/* Charges the memory allocated since the last call to the part. */
void trm_budget_charge(struct trm_budget *budget, enum trm_budget_part part);
/* Charges the memory allocated for the data set, which is open, to TRM_BUDGET_DATA, and the rest that has become
 * resident (libraries that read it) to TRM_BUDGET_PROGRAM. */
void trm_budget_charge_data(struct trm_budget *budget);
/* Adds the memory that only the first step allocates: batches, and operands in reduced precision. Model: bound. */
void trm_budget_first_step(struct trm_budget *budget, const struct trm_model *model);
size_t trm_budget_total(const struct trm_budget *budget);
