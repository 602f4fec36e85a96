/* bf16, fp16: 16 bits for each element, no error feedback.
 *
 * Each node rounds its array and sends every other node a shard of it; the owner of a shard adds the nodes' shards in
 * float32, in their order, rounds the sum and sends it to all: a reduce-scatter and an all-gather of 2 bytes an
 * element, half of float32's bytes. An element is rounded twice, by at most 2^-9 (bf16) or 2^-12 (fp16) of its size
 * each time: |sum - exact| <= u sum |g| + u |sum|, u = 2^-9 or 2^-12, in fp16 for sizes from 6e-5 to 65504. Smaller
 * ones of fp16 are multiples of 6e-8, larger ones infinite. */
#include "core/bfloat16.h"
#include "core/float16.h"
#include "mpi/compress/compressor_private.h"

/* The buffer: the array in 16 bits, then the nodes' shards. */
static uint16_t *cast_shards(const struct compress_part *part)
{
  return (uint16_t *)part->buffer + part->n;
}

static void cast_measure(const struct compressor *c, struct compress_part *part, struct compress_sizes *sizes)
{
  (void)c;
  sizes->buffer = (part->n + (size_t)part->nodes->size * compress_max_shard(part, part->n)) * sizeof(uint16_t);
  sizes->scratch = compress_max_shard(part, part->n) * sizeof(float);
  sizes->rounds = 2;
  sizes->sent = 2 * compress_shards_sent(part, part->n, sizeof(uint16_t));
}

/* Conversions of a format. */
struct cast {
  void (*narrow)(uint16_t *to, const float *from, size_t n);
  void (*widen)(float *to, const uint16_t *from, size_t n);
};

/* Sums the nodes' shards into this rank's shard of the array. */
static void cast_sum(struct compressor *c, struct compress_part *part, const struct cast *cast)
{
  uint16_t *const array = (uint16_t *)part->buffer, *const shards = cast_shards(part);
  float *const row = c->scratch;
  size_t low;
  const size_t n = compress_shard(part, part->n, &low);
  float *const sum = part->data + low;
  cast->widen(sum, shards, n);
  for (int node = 1; node < part->nodes->size; node++) {
    cast->widen(row, shards + (size_t)node * n, n);
    for (size_t i = 0; i < n; i++)
      sum[i] += row[i];
  }
  cast->narrow(array + low, sum, n);
}

static bool cast_advance(struct compressor *c, struct compress_part *part, const struct cast *cast)
{
  uint16_t *const array = (uint16_t *)part->buffer;
  switch (part->round) {
  case 0:
    cast->narrow(array, part->data, part->n);
    compress_scatter_begin(c, part, array, part->n, sizeof *array, cast_shards(part));
    return false;
  case 1:
    cast_sum(c, part, cast);
    compress_gather_begin(c, part, array, part->n, sizeof *array);
    return false;
  default:
    cast->widen(part->data, array, part->n);
    return true;
  }
}

static bool cast_bf16_advance(struct compressor *c, struct compress_part *part)
{
  return cast_advance(c, part, &(struct cast){trm_bf16_narrow, trm_bf16_widen});
}

static bool cast_fp16_advance(struct compressor *c, struct compress_part *part)
{
  return cast_advance(c, part, &(struct cast){trm_f16_narrow, trm_f16_widen});
}

const struct compressor_ops compress_bf16 = {.measure = cast_measure, .advance = cast_bf16_advance};
const struct compressor_ops compress_fp16 = {.measure = cast_measure, .advance = cast_fp16_advance};
