/* Snapshots: copies of the weights that evaluations use, as of given batches, made while the workers go on. The trainer
 * requests them for the batches up to the next quiesce point, and evaluates them there.
 *
 *   centralized    the handler counts the gradients that are part of a chunk; when the count reaches a snapshot's it
 *                  copies the chunk. The copies are arrays of the parameter server.
 *   peers          a worker copies its weights before its first batch beyond the snapshot's
 *   hogwild        the worker whose update is the last one of the count copies the shared array (hogwild.c)
 *
 * A snapshot that is not complete at the quiesce point, such as of a center variable that has not moved since, is of
 * the weights there. */
#pragma once

#include "mpi/async/param_server.h"
#include "train/strategy.h"

struct snapshots {
  int max;                            /* that are kept at a time; 0: none */
  int count;                          /* requested for this interval */
  uint64_t at[TRM_MAX_SNAPSHOTS];     /* (count) batches of the run, ascending */
  int64_t target[TRM_MAX_SNAPSHOTS];  /* (count) the same in gradients since the last quiesce point */
  int array;                          /* centralized: the first of max arrays of the replica */
  /* peers */
  int taken;                          /* by this worker */
  float *copy;                        /* (max, elements) its weights, times their share in the mean */
  double *weight;                     /* (max, chunks) the share, NULL: 1 */
};

/* Collective; slot of the contract, or its first part. Sets the snapshots of the next interval. */
void snapshots_request(struct trm_strategy *strategy, const uint64_t *at, int count);

/* -- centralized */
/* Within a handler, after an update by so many gradients: copies the chunk if a snapshot is due. */
void snapshots_count(const struct trm_strategy *strategy, const struct server_chunk *chunk, int64_t gradients);
/* At a quiesce point, before a collective call: completes this rank's snapshots. */
void snapshots_complete(struct trm_strategy *strategy);
/* The array of the replica with the weights that evaluations use. */
int snapshots_evaluated_array(const struct trm_strategy *strategy);
/* Collective, slot of the contract. */
int snapshots_server_weights(struct trm_strategy *strategy, int number);
