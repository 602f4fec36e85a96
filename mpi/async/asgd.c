/* Asynchronous SGD with a parameter server: Downpour (Dean et al. 2012), and groups (Kurth et al. 2017).
 *
 * A worker computes a gradient at the weights it has, sends it, and gets back the current weights. The server applies
 * the optimizer to each gradient, in the order of arrival: updates of other workers lie between the weights a gradient
 * was computed at and the weights it changes. Gradients of several workers are summed, not averaged: P workers move the
 * weights P times in the time of one synchronous step.
 *
 * With strategy.tau > 1 the worker takes local steps of plain SGD between exchanges, and sends the sum of tau gradients
 * (DownpourSGDClient of the paper's appendix, with n_fetch = n_push = tau). Batch i of a period has the rate r_i and
 * the direction d_i: its clipped gradient plus optim.l2 times the local weights. The rates may differ, so with their
 * mean R the worker sends
 *
 *   G = sum of (r_i / R) d_i         local weights: w -= r_i d_i
 *
 * and the server's rule gets G as one gradient, at rate R. Under sgd this adds the worker's local moves to the server
 * weights; momentum, adagrad and adam see a gradient that is tau times as large as one batch's. optim.l2 is part of G;
 * decoupled decay (optim.decay) is part of every local step, and the server decays its weights by the sum of the rates.
 * Running statistics move as by tau batches (nn/optimizer.h).
 *
 * strategy.aggregate=node: the workers of a node send such sums together (node_sum.h); a worker takes no local steps.
 *
 * Groups: the ranks of a group share a batch, like one faster worker. One group is synchronous SGD, as many groups as
 * ranks is Downpour.
 *
 * strategy.rate=staleness divides the rate by the number of updates that a gradient has missed (Zhang et al. 2016).
 * strategy.rate=delay divides it only where these are more than the n workers, by delay / n (Koloskova, Stich & Jaggi
 * 2022; Mishchenko et al. 2022): a slow worker needs no smaller rate of all. n counts groups as one worker each. */
#include "core/status.h"
#include "mpi/async/node_sum.h"
#include "mpi/strategies.h"

struct asgd {
  float *sum;   /* device, (elements): gradient_sum.h. NULL: tau is 1 */
  int batches;  /* in sum */
  double rates; /* their sum */
  struct node_sum node; /* strategy.aggregate=node; otherwise not created */
};

static bool asgd_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == SERVER_PUSH) {
    const double rate = call->value[SERVER_RATE] / server_weights_rate_divisor(s, call);
    struct trm_update update = server_weights_rule(s, rate, call->value[SERVER_SCALE]);
    gradient_sum_set_rule(&update, call);
    server_weights_update(s, chunk, update, call->in);
  }
  server_weights_reply(s, chunk, call);
  return true;
}

static void asgd_clear(struct trm_strategy *s)
{
  struct asgd *asgd = worker_of(s)->method;
  if (asgd->sum)
    s->device->ops->fill(s->device, asgd->sum, 0, s->elements);
  asgd->batches = 0;
  asgd->rates = 0;
}

/* Sends the unsent sum of gradients. */
static void asgd_drain(struct trm_strategy *s)
{
  struct asgd *asgd = worker_of(s)->method;
  if (asgd->node.state)
    node_sum_drain(s, &asgd->node);
  if (asgd->batches == 0)
    return;
  gradient_sum_push(s, asgd->sum, asgd->batches, asgd->rates);
  asgd_clear(s);
}

static int asgd_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .centralized = true, .arrays = 1 + s->optimizer->states, .handler = asgd_serve, .drain = asgd_drain};
  TRM_CHECK(worker_create(s, &plan, sizeof(struct asgd)));
  struct asgd *asgd = worker_of(s)->method;
  int status = TRM_OK;
  if (s->options->aggregate == TRM_AGGREGATE_NODE)
    status = node_sum_create(s, &asgd->node);
  else if (s->options->tau > 1)
    status = worker_array(s, s->elements, NULL, &asgd->sum);
  return trm_agree(s->comm, status);
}

static void asgd_destroy(struct trm_strategy *s)
{
  struct asgd *asgd = worker_of(s)->method;
  node_sum_free(&asgd->node);
  worker_destroy(s);
}

static int asgd_before_forward(struct trm_strategy *s)
{
  struct asgd *asgd = worker_of(s)->method;
  if (asgd->node.state && !worker_of(s)->fresh)
    node_sum_pulled(&asgd->node);
  return server_weights_before_forward(s);
}

/* Local step between exchanges: plain SGD on the worker's weights, tensor by tensor, since decoupled decay may leave
 * vectors out. Statistics, which no pass of training reads, are added up alone. */
static void asgd_local_step(struct trm_strategy *s, double rate, double scale)
{
  struct asgd *asgd = worker_of(s)->method;
  const struct trm_optimizer *optimizer = s->optimizer;
  struct trm_update step = {.rule = TRM_UPDATE_SGD, .rate = (float)rate, .scale = (float)scale};
  asgd->rates += rate;
  gradient_sum_add(s, asgd->sum, ++asgd->batches, rate, scale);
  for (size_t t = 0, low = 0; t < (size_t)optimizer->tensors; low = optimizer->tensor[t++].end) {
    const bool decays = !optimizer->tensor[t].vector || optimizer->decay_all;
    step.l2 = optimizer->update.l2 + (decays ? optimizer->update.decay : 0);
    s->device->ops->update(s->device, &(struct trm_update_arrays){
      .update = step, .w = s->w + low, .g = s->g + low, .n = optimizer->tensor[t].end - low});
  }
}

/* After a failure nothing of the period is sent: the local weights may have been on their way to it. */
static int asgd_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct asgd *asgd = worker_of(s)->method;
  double scale;
  if (!asgd->sum && !asgd->node.state)
    return server_weights_step(s, rate, sums);
  const int status = server_weights_prepare(s, sums, &scale);
  if (status != TRM_OK) {
    asgd_clear(s);
    return status;
  }
  if (asgd->node.state) {
    node_sum_step(s, &asgd->node, rate, scale);
    return TRM_OK;
  }
  asgd_local_step(s, rate, scale);
  if (asgd->batches == s->options->tau)
    asgd_drain(s);
  return TRM_OK;
}

static int asgd_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct asgd *asgd = worker_of(s)->method;
  asgd_clear(s);
  if (asgd->node.state)
    node_sum_clear(s, &asgd->node);
  return server_weights_restore(s, from, updates);
}

const struct trm_strategy_ops trm_strategy_asgd = {
  .name = "asgd",
  .help = "every rank sends gradients to a parameter server, and does not wait for others (Downpour)",
  .takes = (TRM_TAKES_ALL & ~TRM_TAKES_GROUPS) | TRM_TAKES_AGGREGATE,
  SERVER_WEIGHTS_SLOTS,
  .create = asgd_create,
  .before_forward = asgd_before_forward,
  .step = asgd_step,
  .restore = asgd_restore,
  .destroy = asgd_destroy,
};

const struct trm_strategy_ops trm_strategy_groups = {
  .name = "groups",
  .help = "synchronous inside groups of ranks, asynchronous between them",
  .takes = TRM_TAKES_ALL & ~TRM_TAKES_SERVERS,
  SERVER_WEIGHTS_SLOTS,
  .create = asgd_create,
  .before_forward = asgd_before_forward,
  .step = asgd_step,
  .restore = asgd_restore,
  .destroy = asgd_destroy,
};
