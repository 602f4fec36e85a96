#include "mpi/async/server_weights.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

int server_weights_before_forward(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  if (!w->fresh)
    worker_exchange(s, SERVER_PULL, NULL, NULL, s->w, false);
  w->fresh = true;
  return TRM_OK;
}

int server_weights_prepare(struct trm_strategy *s, const struct trm_loss_sums *sums, double *scale)
{
  const struct worker *w = worker_of(s);
  TRM_CHECK(worker_check(s, sums));
  if (w->group->size > 1)
    w->group->ops->allreduce(w->group, s->g, s->elements, TRM_FLOAT, TRM_SUM);
  *scale = (double)worker_update(s, 0, 0).scale;
  return TRM_OK;
}

void server_weights_push(struct trm_strategy *s, const float *g, double rate, double scale)
{
  const double value[SERVER_VALUES] = {[SERVER_RATE] = rate, [SERVER_SCALE] = scale};
  worker_exchange(s, SERVER_PUSH, value, g, s->w, true);
}

int server_weights_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  double scale;
  TRM_CHECK(server_weights_prepare(s, sums, &scale));
  server_weights_push(s, s->g, rate, scale);
  return TRM_OK;
}

struct trm_update server_weights_rule(const struct trm_strategy *s, double rate, double scale)
{
  struct trm_update update = s->optimizer->update;
  update.rate = (float)rate;
  update.scale = (float)scale;
  return update;
}

double server_weights_rate_divisor(const struct trm_strategy *s, const struct server_call *call)
{
  const double staleness = (double)call->staleness;
  switch (s->options->rate) {
  case TRM_STALE_RATE_DIVIDED: return fmax(1, staleness);
  case TRM_STALE_RATE_DELAY: return fmax(1, staleness / worker_of(s)->workers);
  case TRM_STALE_RATE_POLYNOMIAL: return pow(1 + fmax(0, staleness), s->options->rate_exponent);
  case TRM_STALE_RATE_HINGE: return 1 + s->options->rate_slope * fmax(0, staleness - s->options->rate_bound);
  default: return 1;
  }
}

void server_weights_apply(const struct trm_strategy *s, const struct server_chunk *chunk, struct trm_update update,
                          const float *g)
{
  update.step = (uint64_t)++*chunk->clock;
  float *state[TRM_MAX_STATES - 1] = {NULL};
  for (int i = 0; i < s->optimizer->states; i++)
    state[i] = server_array(chunk, 1 + i);
  const struct trm_update_interval to = {chunk->low, chunk->n, server_array(chunk, 0), state, NULL};
  trm_optimizer_apply(s->optimizer, s->device, &update, NULL, &to, g);
}

void server_weights_update(const struct trm_strategy *s, const struct server_chunk *chunk, struct trm_update update,
                           const float *g)
{
  server_weights_apply(s, chunk, update, g);
  const int together = worker_of(s)->plan.update_gradients;
  snapshots_count(s, chunk, update.batches > 0 ? update.batches : together > 0 ? together : 1);
}

void server_weights_reply(const struct trm_strategy *s, const struct server_chunk *chunk, struct server_call *call)
{
  if (!call->out)
    return;
  memcpy(call->out, server_array(chunk, 0), chunk->n * sizeof(float));
  trm_strategy_pass_time(s, 2 * chunk->n);
}

size_t server_weights_trained(const struct trm_strategy *s, size_t low, size_t n)
{
  const size_t trained = trm_optimizer_trained(s->optimizer), left = trained > low ? trained - low : 0;
  return left < n ? left : n;
}

void server_weights_axpy(const struct trm_strategy *s, double factor, size_t n, float *to, const float *g)
{
  const struct trm_update update = {.rule = TRM_UPDATE_SGD, .rate = (float)-factor, .scale = 1};
  if (n > 0)
    s->device->ops->update(s->device, &(struct trm_update_arrays){.update = update, .w = to, .g = g, .n = n});
}

void server_weights_add_to_mean(const struct trm_strategy *s, const struct server_chunk *chunk,
                                const struct server_call *call, double scale, int count, float *mean)
{
  const size_t trained = server_weights_trained(s, chunk->low, chunk->n);
  server_weights_axpy(s, scale / count, trained, mean, call->in);
  server_weights_axpy(s, 1.0 / count, chunk->n - trained, mean + trained, call->in + trained);
}

/* -- between steps */

static int server_weights_states(const struct trm_strategy *s)
{
  return worker_of(s)->plan.local ? 0 : s->optimizer->states;
}

int server_weights_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  snapshots_server_weights(s, -1);
  return TRM_OK;
}

/* Arrays of the workers' own are those of rank 0. */
int server_weights_read(struct trm_strategy *s, int state, size_t low, size_t n, float *to)
{
  const struct worker *w = worker_of(s);
  if (state <= server_weights_states(s))
    param_server_read(w->server, 0, state, low, n, to);
  else if (s->comm->rank == 0)
    memcpy(to, w->state[state - 1] + low, n * sizeof *to);
  return TRM_OK;
}

int server_weights_write(struct trm_strategy *s, int state, size_t low, size_t n, const float *from)
{
  const struct worker *w = worker_of(s);
  if (state <= server_weights_states(s))
    param_server_write(w->server, state, low, n, from);
  float *own = state == 0 ? s->w : w->plan.local ? w->state[state - 1] : NULL;
  if (own && !s->local_state_restored)
    memcpy(own + low, from, n * sizeof *from);
  return TRM_OK;
}

int server_weights_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  for (int i = 0; i <= s->optimizer->states; i++)
    if (from[i])
      server_weights_write(s, i, 0, s->elements, from[i]);
  if (!s->local_state_restored)
    param_server_set_clocks(worker_of(s)->server, worker_gradients(s, updates));
  worker_restore(s, updates);
  return snapshots_server_weights(s, -1);
}
