#include "mpi/async/peers.h"

#include <string.h>

#include "core/random.h"
#include "core/status.h"

static struct peers *peers_of(const struct trm_strategy *s)
{
  return worker_of(s)->own;
}

int peers_create(struct trm_strategy *s, const struct worker_plan *plan, size_t own_bytes)
{
  if (strcmp(s->options->strategy.rate, "staleness") == 0)
    return trm_error(TRM_USAGE, "strategy.rate=staleness: the workers of %s apply their gradients to weights of their "
                     "own, and none is stale", s->ops->name);
  TRM_CHECK(worker_create(s, plan, own_bytes));
  int64_t *batches = &peers_of(s)->batches;
  s->kept[s->kepts++] = (struct trm_kept){.name = "batches", .data = batches, .bytes = sizeof *batches};
  return TRM_OK;
}

int peers_step(struct trm_strategy *s, double rate, const struct trm_tally *tally, struct trm_update *how,
               bool *exchanges)
{
  TRM_CHECK(worker_check(s, tally));
  struct peers *own = peers_of(s);
  own->batches++;
  *how = worker_update(s, rate, (uint64_t)own->batches);
  *exchanges = own->batches % s->options->strategy.tau == 0;
  return TRM_OK;
}

int peers_draw(const struct trm_strategy *s, int below)
{
  uint32_t word[4];
  trm_random_block((uint64_t)s->options->run.seed, TRM_RANDOM_PEERS, (uint32_t)s->comm->rank,
                   (uint64_t)peers_of(s)->batches, word);
  return (int)((uint64_t)word[0] * (uint64_t)below >> 32);
}

int64_t peers_exchange(struct trm_strategy *s, const struct service_request *request)
{
  const double before = s->comm->ops->clock(s->comm);
  const int64_t late = service_exchange(worker_of(s)->service, request);
  s->comm_s += s->comm->ops->clock(s->comm) - before;
  return late;
}

float *peers_object(struct trm_strategy *s, int array)
{
  size_t bytes;
  return service_arrays(worker_of(s)->service, array, &bytes);
}

void peers_mean(struct trm_strategy *s, const double *weight)
{
  const int ranks = s->comm->size;
  float *mean = s->evaluated;
  for (size_t i = 0; i < s->elements; i++)
    mean[i] = weight ? (float)weight[i / SERVICE_PIECE] * s->w[i] : s->w[i];
  s->comm->ops->allreduce(s->comm, mean, s->elements, TRM_FLOAT, TRM_SUM);
  for (size_t i = 0; i < s->elements; i++)
    mean[i] /= (float)ranks;
}

int peers_settle(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  claims_settle(&w->claims, w->all, true, &s->updates);
  w->halted = false;
  return TRM_OK;
}

int peers_collect(struct trm_strategy *s, const float *view[TRM_MAX_STATES])
{
  view[0] = s->evaluated;
  for (int i = 1; i <= s->optimizer->states; i++)
    view[i] = worker_of(s)->state[i - 1]; /* rank 0's own */
  return TRM_OK;
}

int peers_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  if (!s->kept_given) {
    size_t bytes;
    void *own = service_control(w->service, &bytes);
    memset(own, 0, bytes);
    own = service_arrays(w->service, 0, &bytes);
    memset(own, 0, bytes);
    for (int i = 0; i <= s->optimizer->states; i++)
      if (from[i])
        memcpy(i ? w->state[i - 1] : s->w, from[i], s->elements * sizeof(float));
    peers_of(s)->batches = (int64_t)updates / w->workers;
  }
  s->updates = updates;
  claims_restart(&w->claims, w->all, updates, s->kept_given);
  return TRM_OK;
}
