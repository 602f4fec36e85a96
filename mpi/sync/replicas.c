/* Steps and rounds of replicas; replicas.h says what they are. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/replicas_private.h"

double replicas_outer_rate(const struct trm_strategy *strategy)
{
  const double rate = strategy->options->outer_rate;
  return rate < 0 ? replicas_of(strategy)->method.outer_rate : rate;
}

double replicas_outer_momentum(const struct trm_strategy *strategy)
{
  const double momentum = strategy->options->outer_momentum;
  return momentum < 0 ? replicas_of(strategy)->method.outer_momentum : momentum;
}

int replicas_count(const struct trm_strategy *strategy)
{
  return replicas_of(strategy)->count;
}

struct trm_comm *replicas_get_cross(const struct trm_strategy *strategy)
{
  return replicas_of(strategy)->cross;
}

struct trm_comm *replicas_get_slices(const struct trm_strategy *strategy)
{
  return replicas_of(strategy)->slices;
}

float *replicas_array_at(const struct trm_strategy *strategy, int array, size_t at)
{
  const struct replicas *r = replicas_of(strategy);
  return r->array[array] + (at - r->slice.low);
}

/* Moves the inner strategy's seconds to this one's. */
static void replicas_count_seconds(struct trm_strategy *strategy)
{
  struct trm_strategy *inner = &replicas_of(strategy)->inner;
  strategy->comm_s += inner->comm_s;
  strategy->wait_s += inner->wait_s;
  strategy->early_s += inner->early_s;
  inner->comm_s = inner->wait_s = inner->early_s = 0;
}

int replicas_before_forward(struct trm_strategy *strategy)
{
  struct trm_strategy *inner = &replicas_of(strategy)->inner;
  return inner->ops->before_forward ? inner->ops->before_forward(inner) : TRM_OK;
}

void replicas_part_ready(struct trm_strategy *strategy, size_t high, const struct trm_loss_sums *sums)
{
  struct trm_strategy *inner = &replicas_of(strategy)->inner;
  inner->rate = strategy->rate;
  inner->ops->part_ready(inner, high, sums);
  replicas_count_seconds(strategy);
}

int replicas_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_loss_sums *sums)
{
  struct trm_strategy *inner = &replicas_of(strategy)->inner;
  inner->rate = strategy->rate;
  TRM_CHECK(inner->ops->grad_ready ? inner->ops->grad_ready(inner, low, high, sums) : TRM_OK);
  replicas_count_seconds(strategy);
  return TRM_OK;
}

static void replicas_add_sums(struct trm_loss_sums *to, const struct trm_loss_sums *from)
{
  to->loss += from->loss;
  to->correct += from->correct;
  to->rows += from->rows;
  to->stop_requests += from->stop_requests;
}

/* The inner step. A loss that is not finite fails at the next exchange, on all replicas, since `sums` stay so; until
 * then this replica's weights do not change. */
static int replicas_step_inner(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  struct replicas *r = replicas_of(strategy);
  trm_strategy_begin_step(&r->inner, rate, 0, sums);
  const int status = r->inner.ops->step(&r->inner, rate, sums);
  replicas_count_seconds(strategy);
  strategy->rate = 0;
  strategy->wire.steps++;
  if (status != TRM_OK && (r->count == 1 || isfinite(sums->loss)))
    return status;
  strategy->updates++;
  r->inner.updates = strategy->updates;
  replicas_add_sums(&r->sums, sums);
  r->unsummed++;
  return TRM_OK;
}

/* Sums the losses of the steps since they were summed before. Collective over all ranks. */
static int replicas_take_sums(struct trm_strategy *strategy, struct trm_loss_sums *sums)
{
  struct replicas *r = replicas_of(strategy);
  *sums = r->sums;
  r->sums = (struct trm_loss_sums){0};
  r->unsummed = 0;
  return replicas_sum_losses(strategy, sums);
}

/* The interval that is exchanged after so many steps of the round; empty: none. */
static struct interval replicas_due(const struct trm_strategy *strategy, int64_t period)
{
  const struct replicas *r = replicas_of(strategy);
  const int64_t fragments = period == 1 ? 1 : replicas_fragments(strategy), steps = period / fragments;
  struct interval due = {0, 0};
  if (r->position % steps == 0)
    trm_interval(strategy->elements, (size_t)fragments, (size_t)((r->position / steps - 1) % fragments), &due.low,
                 &due.high);
  return due;
}

int replicas_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  struct replicas *r = replicas_of(strategy);
  const int64_t period = r->method.awaits_decay && !strategy->decayed ? 1 : strategy->options->tau;
  strategy->eval_weights = NULL;
  TRM_CHECK(replicas_step_inner(strategy, rate, sums));
  r->position++;
  r->equal = false;
  const struct interval due = replicas_due(strategy, period);
  if (r->position >= period)
    r->position = 0;
  *sums = (struct trm_loss_sums){0};
  if (r->count > 1 && due.low == due.high)
    return TRM_OK;
  TRM_CHECK(replicas_take_sums(strategy, sums));
  if (due.low < due.high && !replicas_is_sync(r))
    replicas_exchange(strategy, due, rate);
  r->equal = due.high - due.low == strategy->elements;
  return TRM_OK;
}

int replicas_quiesce(struct trm_strategy *strategy)
{
  struct replicas *r = replicas_of(strategy);
  strategy->unreported = (struct trm_loss_sums){0};
  if (r->unsummed > 0)
    TRM_CHECK(replicas_take_sums(strategy, &strategy->unreported));
  const bool equal = r->count == 1 || r->equal;
  if (!equal)
    replicas_mean(strategy);
  strategy->eval_weights = equal ? NULL : r->mean;
  return TRM_OK;
}

/* -- checkpoints */

int replicas_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  struct trm_strategy *inner = &replicas_of(strategy)->inner;
  TRM_CHECK(inner->ops->collect(inner, view));
  if (strategy->eval_weights)
    view[0] = strategy->eval_weights;
  return TRM_OK;
}

/* Begins a round with the weights that all replicas have. */
static void replicas_begin_round(struct trm_strategy *strategy)
{
  struct replicas *r = replicas_of(strategy);
  const size_t bytes = (r->slice.high - r->slice.low) * sizeof(float);
  r->position = 0;
  r->equal = true;
  for (int i = 0; i < REPLICAS_MAX_ARRAYS; i++)
    if (r->array[i] && i == 0)
      memcpy(r->array[i], strategy->w + r->slice.low, bytes);
    else if (r->array[i])
      memset(r->array[i], 0, bytes);
}

int replicas_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  static const float *const none[TRM_MAX_STATES];
  struct replicas *r = replicas_of(strategy);
  const bool goes_on = strategy->local_state_restored && !replicas_is_sync(r);
  r->replica->ops->barrier(r->replica); /* all slices of the weights have been read */
  if (goes_on) {
    replicas_spread(strategy, strategy->w);
    for (int i = 0; i < strategy->optimizer->states; i++)
      replicas_spread(strategy, r->state[i]);
  }
  TRM_CHECK(r->inner.ops->restore(&r->inner, goes_on ? none : from, updates));
  if (!goes_on)
    replicas_begin_round(strategy);
  r->sums = (struct trm_loss_sums){0};
  r->unsummed = 0;
  strategy->updates = updates;
  return replicas_quiesce(strategy);
}
