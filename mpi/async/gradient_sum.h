/* Sums of gradients that a centralized method sends as one: of several batches of a worker (strategy.tau), or of
 * several workers of a node (node_sum.h). asgd.c has the rule.
 *
 * Batch i has the rate r_i and the direction d_i: its clipped gradient plus optim.l2 times the weights that it was
 * computed at. A sum (elements) holds the r_i d_i, and at its end the moments of running statistics. */
#pragma once

#include "mpi/async/server_weights.h"

/* Adds the gradient strategy->g, number `batch` of the sum, 1-based. */
void gradient_sum_add(const struct trm_strategy *strategy, float *sum, int batch, double rate, double scale);
/* SERVER_PUSH of a sum of so many batches, whose rates have the sum `rates`; w becomes the server weights. */
void gradient_sum_push(struct trm_strategy *strategy, const float *sum, int batches, double rates);
/* In a handler: changes the rule to that of the sum that the call carries, if it carries one. */
void gradient_sum_set_rule(struct trm_update *update, const struct server_call *call);
