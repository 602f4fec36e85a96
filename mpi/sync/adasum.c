/* Adasum (Maleki et al. 2021, arXiv 2006.02924). After a round of steps from x0 the differences d_i = x0 - x_i of the
 * replicas are combined pairwise, in a tree, tensor by tensor:
 *
 *   (a, b) -> (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b        x = x0 - the combination of all d_i
 *
 * Orthogonal differences are added, parallel ones averaged. With strategy.tau=1 and plain SGD the d_i are gradients
 * times the rate. Products are sums in double precision.
 *
 * The tree: with P the highest power of two that is at most the replicas, replica i < replicas - P combines with
 * replica P + i; then i and i + 1, pairs of pairs, and so on. Both partners exchange their differences and compute the
 * same, so that all have the result at the end. The products of a tensor are added over the ranks that have slices of
 * it, in order of the slices: the same bits in every replica. */
#include <string.h>

#include "core/memory.h"
#include "mpi/sync/replicas.h"

enum { TAG_DIFFERENCE = 31000 };

/* Products of two parts of a tensor. */
struct products {
  double ab, aa, bb;
};
enum { PRODUCTS = sizeof(struct products) / sizeof(double) };

/* One combination: this rank's slice of all d_i. */
struct adasum {
  struct trm_strategy *strategy;
  struct interval slice;
  float *mine, *other;      /* (slice) */
  struct products *of;      /* (tensors) */
  struct products *slices;  /* (slices of the replica, tensors) */
};

/* Sends this rank's differences to a replica, and receives those of a replica; -1: none. */
static void adasum_transfer(const struct adasum *a, int to, float *into, int from)
{
  struct trm_comm *cross = replicas_get_cross(a->strategy);
  const size_t n = a->slice.high - a->slice.low;
  const double before = cross->ops->clock(cross);
  struct trm_request *send = NULL, *receive = NULL;
  if (to >= 0) {
    replicas_count_message(a->strategy, n);
    cross->ops->send_begin(cross, a->mine, n, TRM_FLOAT, to, TAG_DIFFERENCE, &send);
  }
  if (from >= 0)
    cross->ops->receive_begin(cross, into, n, TRM_FLOAT, from, TAG_DIFFERENCE, &receive);
  cross->ops->wait(&send);
  cross->ops->wait(&receive);
  replicas_count_exposed(a->strategy, before, "differences of replicas", TRM_TRACE_COMMUNICATION);
}

/* The part of tensor t in the slice. */
static struct interval adasum_tensor(const struct adasum *a, int t)
{
  const struct trm_tensor *tensor = a->strategy->optimizer->tensor;
  return sync_overlap((struct interval){t ? tensor[t - 1].end : 0, tensor[t].end}, a->slice);
}

/* Sets a->of to the products of whole tensors. first, second: the differences of the lower and the higher partner. */
static void adasum_multiply(struct adasum *a, const float *first, const float *second)
{
  struct trm_comm *slices = replicas_get_slices(a->strategy);
  const int tensors = a->strategy->optimizer->tensors;
  for (int t = 0; t < tensors; t++) {
    struct products *of = &a->of[t];
    const struct interval part = adasum_tensor(a, t);
    *of = (struct products){0};
    for (size_t i = part.low - a->slice.low; i < part.high - a->slice.low && part.low < part.high; i++) {
      of->ab += (double)first[i] * (double)second[i];
      of->aa += (double)first[i] * (double)first[i];
      of->bb += (double)second[i] * (double)second[i];
    }
  }
  slices->ops->allgather(slices, a->of, a->slices, (size_t)tensors * PRODUCTS, TRM_DOUBLE);
  memset(a->of, 0, (size_t)tensors * sizeof *a->of);
  for (int i = 0; i < slices->size * tensors; i++) {
    a->of[i % tensors].ab += a->slices[i].ab;
    a->of[i % tensors].aa += a->slices[i].aa;
    a->of[i % tensors].bb += a->slices[i].bb;
  }
}

/* Combines the differences of two partners into a->mine. lower: this replica is the one with the lower number. */
static void adasum_combine_pair(struct adasum *a, bool lower)
{
  float *first = lower ? a->mine : a->other, *second = lower ? a->other : a->mine;
  adasum_multiply(a, first, second);
  for (int t = 0; t < a->strategy->optimizer->tensors; t++) {
    const struct products *of = &a->of[t];
    const struct interval part = adasum_tensor(a, t);
    const double of_first = of->aa > 0 ? 1 - of->ab / (2 * of->aa) : 1;
    const double of_second = of->bb > 0 ? 1 - of->ab / (2 * of->bb) : 1;
    for (size_t i = part.low - a->slice.low; i < part.high - a->slice.low && part.low < part.high; i++)
      a->mine[i] = (float)(of_first * (double)first[i] + of_second * (double)second[i]);
  }
  trm_strategy_pass_time(a->strategy, 4 * (a->slice.high - a->slice.low));
}

static void adasum_combine_all(struct adasum *a)
{
  const struct trm_comm *cross = replicas_get_cross(a->strategy);
  int power = 1;
  while (2 * power <= cross->size)
    power *= 2;
  const int rest = cross->size - power, number = cross->rank;
  if (number >= power) { /* its partner has its difference, and gives it the result */
    adasum_transfer(a, number - power, NULL, -1);
    adasum_transfer(a, -1, a->mine, number - power);
    return;
  }
  if (number < rest) {
    adasum_transfer(a, -1, a->other, number + power);
    adasum_combine_pair(a, true);
  }
  for (int distance = 1; distance < power; distance *= 2) {
    adasum_transfer(a, number ^ distance, a->other, number ^ distance);
    adasum_combine_pair(a, !(number & distance));
  }
  if (number < rest)
    adasum_transfer(a, number + power, NULL, -1);
}

static void adasum_combine(struct trm_strategy *strategy, struct interval slice)
{
  const size_t n = slice.high - slice.low, tensors = (size_t)strategy->optimizer->tensors;
  const size_t slices = (size_t)replicas_get_slices(strategy)->size;
  float *w = strategy->w + slice.low, *x0 = replicas_array_at(strategy, 0, slice.low);
  struct adasum a = {.strategy = strategy,
                     .slice = slice,
                     .mine = replicas_array_at(strategy, 1, slice.low),
                     .other = replicas_array_at(strategy, 2, slice.low),
                     .of = trm_alloc(tensors * sizeof *a.of, "products"),
                     .slices = trm_alloc(slices * tensors * sizeof *a.slices, "products")};
  for (size_t i = 0; i < n; i++)
    a.mine[i] = x0[i] - w[i];
  adasum_combine_all(&a);
  for (size_t i = 0; i < n; i++)
    x0[i] = w[i] = x0[i] - a.mine[i];
  trm_free(a.slices);
  trm_free(a.of);
}

/* The transfers and combinations of adasum_combine_all; the bytes in the mean over the replicas. */
static void adasum_describe(size_t n, struct trm_exchange *exchange)
{
  int power = 1, levels = 0;
  for (; 2 * power <= exchange->ranks; levels++)
    power *= 2;
  const int rest = exchange->ranks - power;
  exchange->rounds = levels + (rest > 0 ? 2 : 0);
  exchange->bytes += (double)(power * levels + 2 * rest) / exchange->ranks * (double)n * sizeof(float);
  exchange->floats += (4.0 * (levels + (rest > 0)) + 5) * (double)n; /* combinations; differences and weights */
}

static int adasum_create(struct trm_strategy *strategy)
{
  return replicas_create(strategy, &(struct replicas_method){
    .arrays = 3, .scratch = 2, .combine = adasum_combine, .describe = adasum_describe});
}

const struct trm_strategy_ops trm_strategy_adasum = {
  .name = "adasum",
  .help = "adds the replicas' steps where they are orthogonal, takes their mean where they are parallel (Adasum)",
  .create = adasum_create,
  REPLICAS_SLOTS,
};
