/* AD-PSGD (Lian, Zhang, Zhang & Liu 2018): workers average their weights in pairs, without a global barrier.
 *
 * Half of the ranks are active (topology.h). After every strategy.tau batches an active rank chooses a random neighbor
 * in the graph strategy.graph, a passive rank, and both get the mean of their weights, each chunk in one atomic change;
 * then the active rank makes its step, with the gradient computed before. Passive ranks make steps, too, but never
 * choose a partner, so there is no deadlock. Averaging preserves the sum of all weights.
 *
 * The weights of a passive rank are its replica in the parameter server, which others change at any time; its step
 * applies to the current values. The weights of an active rank are private.
 *
 * Staleness is not defined: the gradients of others reach a worker in parts, by averages of averages, so there is no
 * number of those that a gradient has not seen. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/peers.h"
#include "mpi/async/topology.h"
#include "mpi/strategies.h"

enum kind { READ, AVERAGE, STEP };

struct adpsgd {
  struct peers peers;
  struct topology topology;
  struct trm_update update; /* of this rank's latest gradient */
};

static bool adpsgd_is_passive(const struct trm_strategy *s)
{
  const struct adpsgd *adpsgd = worker_of(s)->method;
  return !topology_is_active(&adpsgd->topology, s->comm->rank);
}

/* STEP and READ are called by the owner itself, and run in it. */
static bool adpsgd_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  struct trm_strategy *s = context;
  const struct adpsgd *adpsgd = worker_of(s)->method;
  float *x = server_array(chunk, 0);
  if (call->kind == STEP)
    worker_apply(s, &adpsgd->update, chunk->low, chunk->n, x, call->in);
  else if (call->kind == AVERAGE)
    for (size_t i = 0; i < chunk->n; i++)
      call->out[i] = x[i] = 0.5f * (x[i] + call->in[i]);
  else
    memcpy(call->out, x, chunk->n * sizeof *x);
  return true;
}

static int adpsgd_before_forward(struct trm_strategy *s)
{
  const struct server_request request = {.replica = s->comm->rank, .kind = READ, .out = s->w};
  if (adpsgd_is_passive(s))
    peers_exchange(s, &request);
  return TRM_OK;
}

/* The weights of a passive rank are in its replica. */
static void adpsgd_snapshot(struct trm_strategy *s)
{
  adpsgd_before_forward(s);
  peers_snapshot(s);
}

static int adpsgd_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .arrays = 1, .handler = adpsgd_serve, .local = true, .no_staleness = true, .snapshot = adpsgd_snapshot};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct adpsgd)));
  struct adpsgd *adpsgd = worker_of(s)->method;
  return topology_create(&adpsgd->topology, s->options->graph, s->comm->size);
}

static int adpsgd_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct adpsgd *adpsgd = worker_of(s)->method;
  const int rank = s->comm->rank, neighbors = topology_neighbors(&adpsgd->topology, rank);
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, sums, &adpsgd->update, &exchanges));
  if (adpsgd_is_passive(s)) {
    const struct server_request apply = {.replica = s->comm->rank, .kind = STEP, .in = s->g};
    peers_exchange(s, &apply);
    return TRM_OK;
  }
  if (exchanges && neighbors > 0) {
    const int partner = topology_neighbor(&adpsgd->topology, rank, peers_draw(s, neighbors));
    const struct server_request average = {.replica = partner, .kind = AVERAGE, .in = s->w, .out = s->w};
    peers_exchange(s, &average);
  }
  worker_apply_all(s, &adpsgd->update);
  return TRM_OK;
}

static int adpsgd_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  TRM_CHECK(adpsgd_before_forward(s));
  peers_mean(s);
  return TRM_OK;
}

static int adpsgd_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  TRM_CHECK(peers_restore(s, from, updates));
  if (!s->local_state_restored)
    memcpy(peers_local_array(s, 0), s->w, s->elements * sizeof *s->w);
  s->comm->ops->barrier(s->comm); /* before others average with it */
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_adpsgd = {
  .name = "adpsgd",
  .help = "workers average their weights in random pairs",
  .takes = PEERS_TAKE | TRM_TAKES_GRAPH,
  PEERS_SLOTS,
  .create = adpsgd_create,
  .before_forward = adpsgd_before_forward,
  .step = adpsgd_step,
  .quiesce = adpsgd_quiesce,
  .restore = adpsgd_restore,
  .destroy = worker_destroy,
};
