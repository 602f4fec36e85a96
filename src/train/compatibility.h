/* Pairs of features that exclude one another, each with the reason, in one table for trm_train, the planner, `trireme
 * options --combinations`, the guide and the tests. */
#pragma once

#include <stdio.h>

#include "train/strategy.h"

TRM_BEGIN_DECLS

/* The features of a run as far as they are known. A field that is not known yet is 0 or NULL and excludes nothing. */
struct trm_run_facts {
  const struct trm_options *options;
  const struct trm_strategy_ops *strategy; /* required; the selected row, once it is selected */
  const struct trm_loss *loss;
  int stages, tensor_ranks; /* sizes of the pipeline axis and of the tensor axis */
  bool device_memory;       /* of any rank: a device with memory of its own */
  bool trains_rows;         /* the strategy trains on sparse rows itself (row_trainer.h) */
  bool reduces;             /* a layer sums over the ranks of a batch */
  bool plans;               /* set by the planner, which chooses the sizes of the axes */
};

/* TRM_USAGE: the message names the first row of the table whose two features the run has. Not collective. */
int trm_compatibility_check(const struct trm_run_facts *run);

/* Writes the table: for each row a line "FEATURE excludes FEATURE: REASON" and, indented, arguments that are refused
 * for it; no arguments where only a device with memory of its own has the feature. */
void trm_compatibility_print(FILE *stream);

TRM_END_DECLS
