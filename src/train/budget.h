/* The memory of a step, planned before the first one (private to src/train): what the program holds before it sets up,
 * every array that it then takes, and what the first step will take in addition. */
#ifndef TRM_TRAIN_BUDGET_H
#define TRM_TRAIN_BUDGET_H

#include "nn/model.h"

enum trm_budget_part {
  TRM_BUDGET_PROGRAM, /* code, libraries, threads; what these take at work */
  TRM_BUDGET_DATA,    /* the data set's windows, batches */
  TRM_BUDGET_WEIGHTS, /* weights, gradients, optimizer: on a node with several ranks, everybody's */
  TRM_BUDGET_ACTIVATIONS,
  TRM_BUDGET_PARTS
};

struct trm_budget {
  size_t part[TRM_BUDGET_PARTS]; /* bytes */
  size_t held;                   /* at the last call */
};

/* Charges to the program what the process holds so far. Computes a product on the device first, so that libraries and
 * threads have taken what they need at work. */
int trm_budget_begin(struct trm_budget *budget, struct trm_device *device);
/* Charges to the part what was taken since the last call. */
void trm_budget_charge(struct trm_budget *budget, enum trm_budget_part part);
/* The data is open: what was taken for it, and what else has become resident, the libraries that read it. */
void trm_budget_charge_data(struct trm_budget *budget);
/* Adds what only the first step will take: batches, and factors in other numbers. The model is bound. */
void trm_budget_first_step(struct trm_budget *budget, const struct trm_model *model);
size_t trm_budget_total(const struct trm_budget *budget);

#endif
