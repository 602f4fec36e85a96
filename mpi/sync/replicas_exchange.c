/* What replicas send one another: slices of the weights, and losses. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/sync/replicas_private.h"

/* -- the mean of an array over the replicas: begin, and wait for one message after the other, so that the next ones are
 * on their way while the rule is applied to those that have arrived. */

static size_t exchange_message(const struct trm_strategy *strategy)
{
  const size_t n = (size_t)strategy->parallel->bucket / sizeof(float);
  return n > REPLICAS_ALIGN ? n : REPLICAS_ALIGN;
}

/* Message i of an interval of this rank's slice. */
static struct interval exchange_part(const struct trm_strategy *strategy, struct interval of, size_t i)
{
  const size_t n = exchange_message(strategy);
  return sync_overlap((struct interval){of.low + i * n, of.low + (i + 1) * n}, of);
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

/* Begins to add up the elements of x in the interval, of this rank's slice, over the replicas. */
static void exchange_mean_begin(struct trm_strategy *strategy, float *x, struct interval of)
{
  struct replicas *r = replicas_of(strategy);
  if (r->count == 1 || !r->cross)
    return;
  const double before = r->cross->ops->clock(r->cross);
  struct interval part;
  for (size_t i = 0; part = exchange_part(strategy, of, i), part.low < part.high; i++) {
    replicas_count_message(strategy, part.high - part.low);
    r->cross->ops->allreduce_begin(r->cross, x + part.low, part.high - part.low, TRM_FLOAT, TRM_SUM, &r->request[i]);
  }
  replicas_count_exposed(strategy, before, "mean over the replicas, begun", TRM_TRACE_COMMUNICATION);
}

/* Waits for message i; x has the mean then. Returns its interval, which is empty after the last one. */
static struct interval exchange_mean_wait(struct trm_strategy *strategy, float *x, struct interval of, size_t i)
{
  struct replicas *r = replicas_of(strategy);
  const struct interval part = exchange_part(strategy, of, i);
  if (r->count == 1 || part.low == part.high)
    return part;
  const double before = r->cross->ops->clock(r->cross);
  r->cross->ops->wait(&r->request[i]);
  replicas_count_exposed(strategy, before, "wait for the mean", TRM_TRACE_WAIT);
  for (size_t e = part.low; e < part.high; e++)
    x[e] /= (float)r->count;
  trm_strategy_pass_time(strategy, part.high - part.low);
  return part;
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
static void exchange_apply(struct trm_strategy *strategy, struct interval part, double rate)
{
  const struct replicas *r = replicas_of(strategy);
  part = sync_overlap(part, (struct interval){0, trm_optimizer_trained(strategy->optimizer)});
  if (!r->method.update || part.low == part.high)
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
  struct interval mine = sync_overlap(of, r->slice), part;
  if (r->method.combine && r->cross) {
    r->method.combine(strategy, sync_overlap(mine, (struct interval){0, trained}));
    mine = sync_overlap(mine, (struct interval){trained, strategy->elements});
  }
  exchange_mean_begin(strategy, strategy->w, mine);
  for (size_t i = 0; part = exchange_mean_wait(strategy, strategy->w, mine, i), part.low < part.high; i++)
    exchange_apply(strategy, part, rate);
  replicas_spread(strategy, strategy->w);
  exchange_round(strategy);
}

void replicas_mean(struct trm_strategy *strategy)
{
  struct replicas *r = replicas_of(strategy);
  const struct interval mine = r->slice;
  struct interval part;
  memcpy(r->mean + mine.low, strategy->w + mine.low, (mine.high - mine.low) * sizeof *r->mean);
  exchange_mean_begin(strategy, r->mean, mine);
  for (size_t i = 0; part = exchange_mean_wait(strategy, r->mean, mine, i), part.low < part.high; i++)
    ;
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
                   "exchange (a lower optim.lr, optim.clip or optim.warmup may help)",
                   (unsigned long long)strategy->updates, isnan(sums->loss) ? "nan" : "inf");
}
