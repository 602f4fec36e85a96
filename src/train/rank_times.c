/* The times of a run over its ranks: computing, waiting for other ranks, communicating; and the rank that the others
 * waited for. Ranks are compared with those of the same stage of a pipeline: these compute the same layers. */
#define _GNU_SOURCE
#include <math.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "train/trainer.h"

/* A rank that costs less than this part of the time in steps is not named. */
static const double noise = 0.05;

/* Minimum, mean and maximum of x, and the lowest rank with the maximum. Collective. */
static struct trm_over_ranks rank_times_over_ranks(struct trm_comm *comm, double x)
{
  double min = x, sum = x, max = x;
  comm->ops->allreduce(comm, &min, 1, TRM_DOUBLE, TRM_MIN);
  comm->ops->allreduce(comm, &sum, 1, TRM_DOUBLE, TRM_SUM);
  comm->ops->allreduce(comm, &max, 1, TRM_DOUBLE, TRM_MAX);
  int32_t rank = x == max ? comm->rank : comm->size;
  comm->ops->allreduce(comm, &rank, 1, TRM_INT32, TRM_MIN);
  return (struct trm_over_ranks){.min = min, .mean = sum / comm->size, .max = max, .max_rank = rank};
}

/* Finds the stage whose slowest rank computed longest beyond the mean of the stage's other ranks, and that rank.
 * Collective. */
static void rank_times_find_slowest(const struct trainer *t, double compute_s, struct trm_slowest *slowest)
{
  struct trm_comm *comm = t->modules->comm;
  const int stages = t->grid->size[TRM_AXIS_PIPELINE], stage = t->grid->coord[TRM_AXIS_PIPELINE];
  const int others = comm->size / stages - 1;
  *slowest = (struct trm_slowest){.rank = -1};
  if (others == 0 || t->strategy.ops->next_batch)
    return;
  double *sum = trm_alloc(2 * (size_t)stages * sizeof *sum, "times of the stages"), *max = sum + stages;
  sum[stage] = max[stage] = compute_s;
  comm->ops->allreduce(comm, sum, (size_t)stages, TRM_DOUBLE, TRM_SUM);
  comm->ops->allreduce(comm, max, (size_t)stages, TRM_DOUBLE, TRM_MAX);
  int worst = 0;
  for (int i = 0; i < stages; i++) {
    const double others_s = (sum[i] - max[i]) / others;
    if (i == 0 || max[i] - others_s > slowest->cost_s) {
      *slowest = (struct trm_slowest){.rank = -1, .compute_s = max[i], .others_s = others_s,
                                      .cost_s = max[i] - others_s};
      worst = i;
    }
  }
  int32_t rank = stage == worst && compute_s == max[worst] ? comm->rank : comm->size;
  trm_free(sum);
  comm->ops->allreduce(comm, &rank, 1, TRM_INT32, TRM_MIN);
  double train_s = t->result->train_s;
  comm->ops->broadcast(comm, &train_s, 1, TRM_DOUBLE, 0);
  if (!(slowest->cost_s > noise * train_s)) /* a failed run may have no times */
    return;
  slowest->rank = rank;
  gethostname(slowest->host, sizeof slowest->host - 1);
  comm->ops->broadcast(comm, slowest->host, sizeof slowest->host, TRM_BYTE, rank);
}

void trainer_rank_times(struct trainer *t)
{
  struct trm_result *result = t->result;
  const double compute_s = fmax(0, result->train_s - result->comm_s - result->wait_s);
  result->compute = rank_times_over_ranks(t->modules->comm, compute_s);
  result->wait = rank_times_over_ranks(t->modules->comm, result->wait_s);
  result->comm = rank_times_over_ranks(t->modules->comm, result->comm_s);
  result->wait_s = result->wait.mean;
  result->comm_s = result->comm.mean;
  rank_times_find_slowest(t, compute_s, &result->slowest);
  const struct trm_slowest *slowest = &result->slowest;
  if (slowest->rank >= 0)
    trm_info("slowest: rank %d (host %s) computed %.3g s, the others %.3g s in the mean: it cost %.3g s of %.3g s",
             slowest->rank, slowest->host, slowest->compute_s, slowest->others_s, slowest->cost_s, result->train_s);
}

void trainer_between_nodes(struct trainer *t)
{
  struct trm_wire_means *means = &t->result->between_nodes;
  *means = trm_wire_means(&t->strategy.wire, t->modules->comm);
  if (means->bytes > 0)
    trm_info("between nodes: %.3g MB a step from each rank, wire %.3g s: %.3g s hidden, %.3g s exposed",
             1e-6 * means->bytes, means->wire_s, means->hidden_s, means->exposed_s);
}
