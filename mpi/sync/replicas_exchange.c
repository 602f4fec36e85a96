/* What replicas send one another: slices of the weights, and losses. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/sync/replicas_private.h"

/* -- the mean of an array over the replicas: begin, and wait for one message after the other, so that the next ones are
 * on their way while the rule is applied to those that have arrived. */

/* The first message of this rank's slice from i on whose elements are in the interval; r->messages: there is none. */
static int exchange_next(const struct replicas *r, struct interval of, int i)
{
  while (i < r->messages && (r->message[i].low < of.low || r->message[i].high > of.high))
    i++;
  return i;
}

void replicas_count_message(struct trm_strategy *strategy, size_t n)
{
  strategy->wire.bytes += n * sizeof(float);
}

void replicas_count_exposed(struct trm_strategy *strategy, double before, const char *name, enum trm_trace_kind kind)
{
  double seconds = 0;
  sync_end_timing(replicas_of(strategy)->cross, before, &seconds, name, kind);
  strategy->comm_s += seconds;
  strategy->wire.flight_s += seconds;
  strategy->wire.exposed_s += seconds;
}

static void exchange_begin_message(struct trm_strategy *strategy, float *x, int i)
{
  struct replicas *r = replicas_of(strategy);
  const struct interval part = r->message[i];
  replicas_count_message(strategy, part.high - part.low);
  r->cross->ops->allreduce_begin(r->cross, x + part.low, part.high - part.low, TRM_FLOAT, TRM_SUM, &r->request[i]);
}

/* Begins to add up the elements of x in the interval, whole messages of this rank's slice, over the replicas. */
static void exchange_mean_begin(struct trm_strategy *strategy, float *x, struct interval of)
{
  struct replicas *r = replicas_of(strategy);
  if (r->count == 1 || !r->cross)
    return;
  const double before = r->cross->ops->clock(r->cross);
  for (int i = -1; (i = exchange_next(r, of, i + 1)) < r->messages;)
    exchange_begin_message(strategy, x, i);
  replicas_count_exposed(strategy, before, "mean over the replicas, begun", TRM_TRACE_COMMUNICATION);
}

/* Waits for message i; x has the mean then. */
static void exchange_mean_wait(struct trm_strategy *strategy, float *x, int i)
{
  struct replicas *r = replicas_of(strategy);
  const struct interval part = r->message[i];
  if (r->count == 1)
    return;
  const double before = r->cross->ops->clock(r->cross);
  r->cross->ops->wait(&r->request[i]);
  replicas_count_exposed(strategy, before, "wait for the mean", TRM_TRACE_WAIT);
  for (size_t e = part.low; e < part.high; e++)
    x[e] /= (float)r->count;
  trm_strategy_pass_time(strategy, part.high - part.low);
}

/* -- the same of the weights by strategy.compress: replica i sends C(w_i - x0 + e_i) of what it has moved since the
 * latest exchange, from the weights x0 that all had then (array 0), and the mean is x0 + 1/R sum over i of that. */

static void exchange_compressed_begin(struct trm_strategy *strategy, struct interval of)
{
  struct replicas *r = replicas_of(strategy);
  const double before = r->cross->ops->clock(r->cross);
  for (int i = -1; (i = exchange_next(r, of, i + 1)) < r->messages;) {
    const struct interval part = r->message[i];
    const float *x0 = replicas_array_at(strategy, 0, part.low);
    float *w = strategy->w + part.low;
    for (size_t e = 0; e < part.high - part.low; e++)
      w[e] -= x0[e];
    compressor_begin(r->compressor, i, w);
  }
  replicas_count_exposed(strategy, before, "mean over the replicas, begun", TRM_TRACE_COMMUNICATION);
}

/* Waits for message i; w has the mean then. */
static void exchange_compressed_wait(struct trm_strategy *strategy, int i)
{
  struct replicas *r = replicas_of(strategy);
  const struct interval part = r->message[i];
  const float *x0 = replicas_array_at(strategy, 0, part.low);
  float *w = strategy->w + part.low;
  const double before = r->cross->ops->clock(r->cross);
  compressor_wait(r->compressor, i);
  replicas_count_exposed(strategy, before, "wait for the mean", TRM_TRACE_WAIT);
  for (size_t e = 0; e < part.high - part.low; e++)
    w[e] = x0[e] + w[e] / (float)r->count;
  trm_strategy_pass_time(strategy, part.high - part.low);
}

/* The weights of all replicas, from which these move on. */
static void exchange_keep(const struct trm_strategy *strategy, struct interval part)
{
  memcpy(replicas_array_at(strategy, 0, part.low), strategy->w + part.low,
         (part.high - part.low) * sizeof *strategy->w);
}

/* -- copies inside the replica */

struct interval replicas_slice(const struct trm_strategy *strategy, int index)
{
  const size_t n = strategy->elements, lines = (n + REPLICAS_ALIGN - 1) / REPLICAS_ALIGN;
  struct interval slice;
  trm_interval(lines, (size_t)replicas_of(strategy)->slice_count, (size_t)index, &slice.low, &slice.high);
  return sync_overlap((struct interval){slice.low * REPLICAS_ALIGN, slice.high * REPLICAS_ALIGN},
                      (struct interval){0, n});
}

/* Slice k is that of rank k / domains of domain k mod domains; ranks beyond the smallest domain's have none. */
void replicas_spread(struct trm_strategy *strategy, float *array)
{
  struct replicas *r = replicas_of(strategy);
  struct trm_comm *siblings = r->siblings;
  const double before = r->domain->ops->clock(r->domain);
  for (int i = 0; r->domains > 1 && r->domain->rank < r->domain_ranks && i < r->domains; i++) {
    const int k = r->domain->rank * r->domains + i;
    if (k >= r->slice_count)
      break;
    const struct interval slice = replicas_slice(strategy, k);
    if (slice.low < slice.high)
      siblings->ops->broadcast(siblings, array + slice.low, slice.high - slice.low, TRM_FLOAT, i);
  }
  r->domain->ops->barrier(r->domain);
  sync_end_timing(r->domain, before, &strategy->wait_s, "replica barrier", TRM_TRACE_WAIT);
}

/* Rounds the elements of w that this rank has written, or got from its siblings. */
static void exchange_round(struct trm_strategy *strategy)
{
  struct replicas *r = replicas_of(strategy);
  struct interval of;
  if (!strategy->rounded)
    return;
  trm_interval(strategy->elements, (size_t)r->domain->size, (size_t)r->domain->rank, &of.low, &of.high);
  strategy->device->ops->convert(strategy->device, &(struct trm_convert){
    .from = strategy->w + of.low, .to = strategy->rounded + of.low, .n = of.high - of.low,
    .type_from = TRM_VALUES_F32, .type_to = TRM_VALUES_BF16});
  r->domain->ops->barrier(r->domain);
}

/* -- exchanges */

/* Applies the rule to a part of the slice that has the mean; statistics keep the mean. */
static void exchange_apply(struct trm_strategy *strategy, struct interval whole, double rate)
{
  const struct replicas *r = replicas_of(strategy);
  const struct interval part = sync_overlap(whole, (struct interval){0, trm_optimizer_trained(strategy->optimizer)});
  if (!r->method.update || part.low >= part.high)
    return;
  struct replicas_part to = {.n = part.high - part.low, .w = strategy->w + part.low, .rate = rate};
  for (int i = 0; i < r->method.arrays; i++)
    to.array[i] = replicas_array_at(strategy, i, part.low);
  r->method.update(strategy, &to);
  trm_strategy_pass_time(strategy, to.n * (size_t)(2 + 2 * r->method.arrays));
}

void replicas_exchange(struct trm_strategy *strategy, struct interval of, double rate)
{
  struct replicas *r = replicas_of(strategy);
  const size_t trained = trm_optimizer_trained(strategy->optimizer);
  struct interval mine = sync_overlap(of, r->slice);
  if (r->method.combine && r->cross) {
    r->method.combine(strategy, sync_overlap(mine, (struct interval){0, trained}));
    mine = sync_overlap(mine, (struct interval){trained, strategy->elements});
  }
  if (r->compressor)
    exchange_compressed_begin(strategy, mine);
  else
    exchange_mean_begin(strategy, strategy->w, mine);
  for (int i = -1; (i = exchange_next(r, mine, i + 1)) < r->messages;) {
    if (r->compressor)
      exchange_compressed_wait(strategy, i);
    else
      exchange_mean_wait(strategy, strategy->w, i);
    exchange_apply(strategy, r->message[i], rate);
    if (r->compressor)
      exchange_keep(strategy, r->message[i]);
  }
  replicas_spread(strategy, strategy->w);
  exchange_round(strategy);
}

void replicas_mean(struct trm_strategy *strategy)
{
  struct replicas *r = replicas_of(strategy);
  const struct interval mine = r->slice;
  memcpy(r->mean + mine.low, strategy->w + mine.low, (mine.high - mine.low) * sizeof *r->mean);
  exchange_mean_begin(strategy, r->mean, mine);
  for (int i = 0; i < r->messages; i++)
    exchange_mean_wait(strategy, r->mean, i);
  replicas_spread(strategy, r->mean);
}

/* -- losses */

int replicas_sum_losses(struct trm_strategy *strategy, struct trm_loss_sums *sums)
{
  struct replicas *r = replicas_of(strategy);
  struct trm_comm *all = strategy->comm;
  if (r->count > 1) {
    const double before = all->ops->clock(all);
    if (r->replica->rank > 0)
      *sums = (struct trm_loss_sums){0};
    all->ops->allreduce(all, sums, TRM_LOSS_SUMS, TRM_DOUBLE, TRM_SUM);
    sync_end_timing(all, before, &strategy->comm_s, "sum of losses", TRM_TRACE_COMMUNICATION);
  }
  if (isfinite(sums->loss))
    return TRM_OK;
  return trm_error(TRM_FAILED, "step %llu: the loss of a replica is %s in this step, or one before since the latest "
                   "exchange " TRM_LOSS_NOT_FINITE,
                   (unsigned long long)strategy->updates, isnan(sums->loss) ? "nan" : "inf");
}
