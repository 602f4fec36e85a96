#include "mpi/async/snapshot.h"

#include <string.h>

#include "core/status.h"
#include "mpi/async/worker.h"

/* Gradients of a chunk since the last quiesce point: of centralized methods, after the method's own states. */
static double *snapshot_gradients(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  return &chunk->method_state[worker_of(s)->plan.method_states];
}

void snapshots_request(struct trm_strategy *s, const uint64_t *at, int count)
{
  struct snapshots *snapshots = &worker_of(s)->snapshots;
  snapshots->count = count;
  snapshots->taken = 0;
  for (int i = 0; i < count; i++) {
    snapshots->at[i] = at[i];
    snapshots->target[i] = worker_gradients(s, at[i] - s->updates);
  }
  s->comm->ops->barrier(s->comm); /* before a call whose handler counts */
}

int snapshots_evaluated_array(const struct trm_strategy *s)
{
  return s->optimizer->ema > 0 && !worker_of(s)->plan.local ? s->optimizer->states : 0;
}

static void snapshot_copy(const struct trm_strategy *s, const struct server_chunk *chunk, int number)
{
  memcpy(server_array(chunk, worker_of(s)->snapshots.array + number),
         server_array(chunk, snapshots_evaluated_array(s)), chunk->n * sizeof(float));
}

void snapshots_count(const struct trm_strategy *s, const struct server_chunk *chunk, int64_t gradients)
{
  const struct snapshots *snapshots = &worker_of(s)->snapshots;
  double *counted = snapshot_gradients(s, chunk);
  const double before = *counted;
  if (snapshots->count == 0)
    return;
  *counted += (double)gradients;
  for (int i = 0; i < snapshots->count; i++)
    if ((double)snapshots->target[i] > before && (double)snapshots->target[i] <= *counted)
      snapshot_copy(s, chunk, i);
}

static void snapshot_complete_chunk(void *context, const struct server_chunk *chunk)
{
  const struct trm_strategy *s = context;
  const struct snapshots *snapshots = &worker_of(s)->snapshots;
  double *counted = snapshot_gradients(s, chunk);
  for (int i = 0; i < snapshots->count; i++)
    if ((double)snapshots->target[i] > *counted)
      snapshot_copy(s, chunk, i);
  *counted = 0;
}

void snapshots_complete(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  if (w->plan.centralized && w->snapshots.count > 0)
    param_server_visit(w->server, snapshot_complete_chunk, s);
  w->snapshots.count = 0;
}

int snapshots_server_weights(struct trm_strategy *s, int number)
{
  const struct worker *w = worker_of(s);
  param_server_gather(w->server, 0, number < 0 ? snapshots_evaluated_array(s) : w->snapshots.array + number,
                      s->eval_weights);
  return TRM_OK;
}
