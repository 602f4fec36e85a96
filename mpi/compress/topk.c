/* topk: of p = g + e each node sends the elements of the largest absolute values, a fraction strategy.compress_ratio
 * of each slice, and keeps the others (Aji and Heafield: Sparse communication for distributed gradient descent, EMNLP
 * 2017; Stich, Cordonnier, Jaggi: Sparsified SGD with memory, NeurIPS 2018). 8 bytes an element: index and value. */
#include "mpi/compress/sparse.h"

static void topk_measure(const struct compressor *c, struct compress_part *part, struct compress_sizes *sizes)
{
  const double ratio = c->strategy->options->compress_ratio;
  sizes->state[0] = part->n;
  sparse_sum_measure(part, ratio, ratio, sizes);
}

static bool topk_advance(struct compressor *c, struct compress_part *part)
{
  const size_t k = sparse_count(c->strategy->options->compress_ratio, part->n);
  if (part->round > 0) {
    sparse_sum_finish(part, k);
    return true;
  }
  float *const p = part->state[0];
  compress_add_gradient(part);
  const struct sparse_element *sent = sparse_sum_begin(c, part, p, k);
  for (size_t i = 0; i < k; i++)
    p[sent[i].index] = 0;
  return false;
}

const struct compressor_ops compress_topk = {
  .state_name = {"topk error"}, .measure = topk_measure, .advance = topk_advance};
