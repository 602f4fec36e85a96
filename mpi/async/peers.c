#include "mpi/async/peers.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"

static struct peers *peers_of(const struct trm_strategy *s)
{
  return worker_of(s)->method;
}

int peers_create(struct trm_strategy *s, const struct worker_plan *plan, size_t method_bytes)
{
  TRM_CHECK(worker_create(s, plan, method_bytes));
  struct worker *w = worker_of(s);
  struct snapshots *snapshots = &w->snapshots;
  if (plan->snapshot && snapshots->max > 0) {
    const size_t copies = (size_t)snapshots->max;
    snapshots->weight = worker_alloc(s, copies * param_server_chunks(w->server) * sizeof *snapshots->weight);
    TRM_CHECK(trm_agree(s->comm, worker_array(s, copies * s->elements, NULL, &snapshots->copy)));
  }
  int64_t *batches = &peers_of(s)->batches;
  return trm_strategy_keep(s, "batches", batches, sizeof *batches);
}

int peers_step(struct trm_strategy *s, double rate, const struct trm_loss_sums *sums, struct trm_update *update,
               bool *exchanges)
{
  TRM_CHECK(worker_check(s, sums));
  struct peers *peers = peers_of(s);
  peers->batches++;
  *update = worker_update(s, rate, (uint64_t)peers->batches);
  *exchanges = peers->batches % s->options->tau == 0;
  return TRM_OK;
}

int peers_draw(const struct trm_strategy *s, int bound)
{
  uint32_t word[4];
  trm_random_block(s->seed, TRM_RANDOM_PEERS, (uint32_t)s->comm->rank, (uint64_t)peers_of(s)->batches, word);
  return (int)((uint64_t)word[0] * (uint64_t)bound >> 32);
}

int64_t peers_exchange(struct trm_strategy *s, const struct server_request *request)
{
  const double before = s->comm->ops->clock(s->comm);
  const int64_t staleness = param_server_exchange(worker_of(s)->server, request);
  const double held_s = param_server_held_s(worker_of(s)->server);
  s->comm_s += s->comm->ops->clock(s->comm) - before - held_s;
  s->wait_s += held_s;
  return staleness;
}

float *peers_local_array(struct trm_strategy *s, int array)
{
  size_t bytes;
  return param_server_local_arrays(worker_of(s)->server, array, &bytes);
}

/* Collective. eval_weights becomes the mean of w (elements) over the ranks, each with its weights (chunks); NULL: 1. */
static void peers_mean_of(struct trm_strategy *s, const float *w, const double *weight)
{
  struct trm_comm *comm = s->comm;
  const size_t chunks = param_server_chunks(worker_of(s)->server);
  double *sum = trm_alloc(chunks * sizeof *sum, "weights in the mean");
  float *mean = s->eval_weights;
  for (size_t i = 0; i < chunks; i++)
    sum[i] = weight ? weight[i] : 1;
  for (size_t i = 0; i < s->elements; i++)
    mean[i] = weight ? (float)weight[i / SERVER_CHUNK] * w[i] : w[i];
  comm->ops->allreduce(comm, sum, chunks, TRM_DOUBLE, TRM_SUM);
  comm->ops->allreduce(comm, mean, s->elements, TRM_FLOAT, TRM_SUM);
  for (size_t i = 0; i < s->elements; i++)
    mean[i] /= (float)sum[i / SERVER_CHUNK];
  trm_free(sum);
}

void peers_mean(struct trm_strategy *s)
{
  peers_mean_of(s, s->w, peers_of(s)->weight);
  double sum = 0;
  for (size_t i = 0; i < s->elements; i++)
    sum += pow((double)(s->w[i] - s->eval_weights[i]), 2);
  s->comm->ops->allreduce(s->comm, &sum, 1, TRM_DOUBLE, TRM_SUM);
  s->consensus = sqrt(sum / s->comm->size);
}

void peers_snapshot(struct trm_strategy *s)
{
  const struct worker *w = worker_of(s);
  const struct snapshots *snapshots = &w->snapshots;
  const size_t chunks = param_server_chunks(w->server), number = (size_t)snapshots->taken;
  const double *weight = peers_of(s)->weight;
  s->device->ops->copy(s->device, snapshots->copy + number * s->elements, s->w, s->elements * sizeof(float));
  if (weight)
    memcpy(snapshots->weight + number * chunks, weight, chunks * sizeof *weight);
}

int peers_snapshot_weights(struct trm_strategy *s, int number)
{
  const struct worker *w = worker_of(s);
  const size_t chunks = param_server_chunks(w->server);
  if (number < 0)
    peers_mean(s);
  else
    peers_mean_of(s, w->snapshots.copy + (size_t)number * s->elements,
                  peers_of(s)->weight ? w->snapshots.weight + (size_t)number * chunks : NULL);
  return TRM_OK;
}

int peers_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  peers_mean(s);
  return TRM_OK;
}

int peers_collect(struct trm_strategy *s, const float *view[TRM_MAX_STATES])
{
  view[0] = s->eval_weights;
  for (int i = 1; i <= s->optimizer->states; i++)
    view[i] = worker_of(s)->state[i - 1]; /* rank 0's */
  return TRM_OK;
}

int peers_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  if (!s->local_state_restored) {
    size_t bytes;
    void *data = param_server_local_states(w->server, &bytes);
    memset(data, 0, bytes);
    data = param_server_local_arrays(w->server, 0, &bytes);
    memset(data, 0, bytes);
    for (int i = 0; i <= s->optimizer->states; i++)
      if (from[i])
        memcpy(i ? w->state[i - 1] : s->w, from[i], s->elements * sizeof(float));
    peers_of(s)->batches = worker_gradients(s, updates) / w->workers;
  }
  worker_restore(s, updates);
  peers_mean(s);
  return TRM_OK;
}
