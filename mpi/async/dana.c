/* DANA-Slim (Hakimi, Barkai, Gabel & Schuster 2019): asgd with Nesterov's momentum at the workers, and a server that
 * has none. A worker with the gradient g, at the weights it has, sends a look-ahead of its momentum v:
 *
 *   v = momentum * v + g                           worker; g = clip scale * gradient + l2 * w
 *   w -= rate * (g + momentum * v)                 server, and the worker gets the new w
 *
 * The momentum of optim.name=nesterov at the server would go on moving the weights while a gradient is on its way. Here
 * a gradient is of weights that have the look-aheads of all workers already. One worker is serial training with
 * optim.name=nesterov.
 *
 * optim.momentum, of sgd or nesterov; without one it is 0.9. A checkpoint has every worker's momentum; on another
 * number of ranks all workers begin with that of rank 0, if optim.name has a momentum, otherwise with none. */
#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/strategies.h"

struct dana {
  struct trm_optimizer nesterov; /* the strategy's, with Nesterov's rule: its state is the worker's momentum */
  struct trm_optimizer plain;    /* the server's: sgd */
};

static void dana_update(const struct trm_strategy *s, const struct server_chunk *chunk, const struct server_call *call)
{
  const struct dana *dana = worker_of(s)->method;
  struct trm_update update = dana->plain.update;
  update.rate = (float)(call->value[SERVER_RATE] / server_weights_rate_divisor(s, call));
  update.scale = 1;
  update.step = (uint64_t)++*chunk->clock;
  const struct trm_update_interval to = {chunk->low, chunk->n, server_array(chunk, 0), NULL, NULL};
  trm_optimizer_apply(&dana->plain, s->device, &update, NULL, &to, call->in);
  snapshots_count(s, chunk, 1);
}

static bool dana_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  if (call->kind == SERVER_PUSH)
    dana_update(context, chunk, call);
  server_weights_reply(context, chunk, call);
  return true;
}

static int dana_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.centralized = true, .arrays = 1, .handler = dana_serve, .local = true};
  const struct trm_optimizer *original = s->optimizer;
  struct trm_optimizer nesterov = *original, plain = *original;
  nesterov.update.rule = TRM_UPDATE_NESTEROV;
  nesterov.update.momentum = original->update.momentum > 0 ? original->update.momentum : 0.9f;
  nesterov.states = 1;
  plain.update.rule = TRM_UPDATE_SGD;
  plain.update.l2 = 0;
  plain.states = 0;
  s->optimizer = &nesterov;
  const int status = worker_create(s, &plan, sizeof(struct dana));
  s->optimizer = original;
  TRM_CHECK(status);
  struct dana *dana = worker_of(s)->method;
  *dana = (struct dana){nesterov, plain};
  s->optimizer = &dana->nesterov;
  return TRM_OK;
}

/* g becomes what is sent. Statistics have no momentum. */
static void dana_look_ahead(const struct trm_strategy *s, float scale)
{
  const struct trm_update *rule = &s->optimizer->update;
  const size_t trained = trm_optimizer_trained(s->optimizer);
  const float *w = s->w;
  float *restrict v = worker_of(s)->state[0], *restrict g = s->g;
  for (size_t i = 0; i < trained; i++) {
    const float gradient = scale * g[i] + rule->l2 * w[i];
    v[i] = rule->momentum * v[i] + gradient;
    g[i] = gradient + rule->momentum * v[i];
  }
  trm_strategy_pass_time(s, 5 * trained);
}

static int dana_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  double scale;
  TRM_CHECK(server_weights_prepare(s, sums, &scale));
  dana_look_ahead(s, (float)scale);
  server_weights_push(s, s->g, rate, 1);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_dana = {
  .name = "dana",
  .help = "asgd with Nesterov's momentum at the workers, which send a look-ahead of it (DANA-Slim)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_AVERAGE | TRM_TAKES_RULES),
  SERVER_WEIGHTS_SLOTS,
  .create = dana_create,
  .before_forward = server_weights_before_forward,
  .step = dana_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};
