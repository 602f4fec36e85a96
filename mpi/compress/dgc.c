/* dgc: top-k with momentum correction (Lin, Han, Mao, Wang, Dally: Deep gradient compression, ICLR 2018, algorithm 1
 * and section 3). Of node k, with momentum m:
 *
 *   u = m u + g;  v = v + u;  send the largest elements of v;  u = v = 0 where they were sent
 *
 * so that an element that waits gets the momentum of the steps that it waits, and clearing u (momentum factor masking)
 * keeps a stale one from driving the weights. With optim.clip g comes clipped: each node's by its own norm
 * (mpi/sync/sync_clip.c). The weights are then updated by plain SGD: the momentum is here. During the warm-up of the
 * rate (optim.warmup), in four equal parts, 1/4, 1/16, 1/64 and 1/256 of the elements are sent (75, 93.75, 98.4375 and
 * 99.6 % are kept), then strategy.compress_ratio (0.001 in the paper). */
#include <math.h>

#include "mpi/compress/sparse.h"

/* The fraction that is sent in update number `update`, from 0 on. */
static double dgc_ratio(const struct trm_strategy *strategy, uint64_t update)
{
  const double ratio = strategy->options->compress_ratio;
  if (update >= strategy->warmup)
    return ratio;
  const double fourth = floor(4.0 * (double)update / (double)strategy->warmup);
  return fmax(ratio, pow(0.25, fourth + 1));
}

static void dgc_measure(const struct compressor *c, struct compress_part *part, struct compress_sizes *sizes)
{
  sizes->state[0] = sizes->state[1] = part->n;
  sparse_sum_measure(part, c->strategy->options->compress_ratio, dgc_ratio(c->strategy, 0), sizes);
}

static void dgc_add_gradient(const struct compressor *c, struct compress_part *part)
{
  float *const u = part->state[0], *const v = part->state[1];
  const float *const data = part->data;
  const float momentum = (float)c->strategy->momentum;
  for (size_t i = 0; i < part->n; i++) {
    u[i] = momentum * u[i] + data[i];
    v[i] += u[i];
  }
}

static bool dgc_advance(struct compressor *c, struct compress_part *part)
{
  const size_t k = sparse_count(dgc_ratio(c->strategy, c->strategy->updates), part->n);
  if (part->round > 0) {
    sparse_sum_finish(part, k);
    return true;
  }
  dgc_add_gradient(c, part);
  const struct sparse_element *sent = sparse_sum_begin(c, part, part->state[1], k);
  for (size_t i = 0; i < k; i++)
    part->state[0][sent[i].index] = part->state[1][sent[i].index] = 0;
  return false;
}

const struct compressor_ops compress_dgc = {
  .state_name = {"dgc momentum", "dgc sum"}, .measure = dgc_measure, .advance = dgc_advance};
