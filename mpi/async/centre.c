#include "mpi/async/centre.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

int centre_check(const struct trm_strategy *s, bool divides)
{
  const char *name = s->ops->name;
  if (s->options->strategy.tau > 1)
    return trm_error(TRM_USAGE, "strategy.tau: %s sends the gradient of every batch (asgd can go on alone)", name);
  if (!divides && strcmp(s->options->strategy.rate, "staleness") == 0)
    return trm_error(TRM_USAGE, "strategy.rate=staleness: %s has an answer of its own to staleness, and keeps the rate",
                     name);
  return TRM_OK;
}

int centre_before_forward(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  if (!w->fresh)
    worker_exchange(s, CENTRE_PULL, NULL, NULL, s->w, false);
  w->fresh = true;
  return TRM_OK;
}

void centre_share_statistics(struct trm_strategy *s)
{
  const float share = 1.0f / (float)worker_of(s)->workers;
  for (size_t i = trm_optimizer_trained(s->optimizer); i < s->elements; i++)
    s->g[i] *= share;
}

int centre_step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  TRM_CHECK(worker_check(s, tally));
  centre_share_statistics(s);
  const struct trm_update how = worker_update(s, rate, 0);
  const double value[SERVICE_VALUES] = {[CENTRE_RATE] = rate, [CENTRE_SCALE] = (double)how.scale};
  worker_exchange(s, CENTRE_PUSH, value, s->g, s->w, true);
  return TRM_OK;
}

void centre_apply(const struct trm_strategy *s, const struct service_piece *piece, const struct trm_update *how,
                  const float *g)
{
  float *state[TRM_MAX_STATES - 1] = {NULL};
  for (int i = 0; i < s->optimizer->states; i++)
    state[i] = service_array(piece, 1 + i);
  trm_optimizer_apply(s->optimizer, s->device, how, NULL, piece->low, piece->n, service_array(piece, 0), g, state);
}

void centre_answer(const struct service_piece *piece, struct service_call *call)
{
  if (call->out)
    memcpy(call->out, service_array(piece, 0), piece->n * sizeof(float));
}

size_t centre_trained(const struct trm_strategy *s, size_t low, size_t n)
{
  const size_t trained = trm_optimizer_trained(s->optimizer), left = trained > low ? trained - low : 0;
  return left < n ? left : n;
}

/* The rule of sgd adds. */
static void add(const struct trm_strategy *s, double factor, size_t n, float *to, const float *g)
{
  const struct trm_update how = {.rule = TRM_UPDATE_SGD, .rate = (float)-factor, .scale = 1};
  if (n > 0)
    s->device->ops->update(s->device, &how, to, g, NULL, NULL, n);
}

void centre_add(const struct trm_strategy *s, double factor, double share, size_t low, size_t n, float *to,
                const float *g)
{
  const size_t trained = centre_trained(s, low, n);
  add(s, factor, trained, to, g);
  add(s, share, n - trained, to + trained, g + trained);
}

/* -- between steps */

static int centre_states(const struct trm_strategy *s)
{
  return worker_of(s)->plan.local ? 0 : s->optimizer->states;
}

int centre_settle(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  claims_settle(&w->claims, w->all, w->number >= 0 && w->group->rank == 0, &s->updates);
  w->fresh = w->halted = false;
  service_gather(w->service, 0, s->optimizer->ema > 0 ? centre_states(s) : 0, s->evaluated);
  return TRM_OK;
}

int centre_collect(struct trm_strategy *s, const float *view[TRM_MAX_STATES])
{
  struct worker *w = worker_of(s);
  for (int i = 0; i <= centre_states(s); i++) {
    if (!w->view[i])
      w->view[i] = trm_alloc(s->elements * sizeof(float), "the whole state");
    service_gather(w->service, 0, i, w->view[i]);
    view[i] = w->view[i];
  }
  for (int i = 1; w->plan.local && i <= s->optimizer->states; i++)
    view[i] = w->state[i - 1]; /* rank 0's own */
  return TRM_OK;
}

int centre_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  const size_t bytes = s->elements * sizeof(float);
  for (int i = 0; i <= centre_states(s); i++)
    if (from[i])
      service_scatter(w->service, 0, i, from[i]);
  if (!s->kept_given) {
    service_set_clocks(w->service, (int64_t)updates);
    if (from[0])
      memcpy(s->w, from[0], bytes);
    for (int i = 1; w->plan.local && i <= s->optimizer->states; i++)
      if (from[i])
        memcpy(w->state[i - 1], from[i], bytes);
  }
  s->updates = updates;
  claims_restart(&w->claims, w->all, updates, s->kept_given);
  service_gather(w->service, 0, s->optimizer->ema > 0 ? centre_states(s) : 0, s->evaluated);
  w->fresh = false;
  return TRM_OK;
}
