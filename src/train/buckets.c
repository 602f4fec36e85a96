#include "train/buckets.h"

#include "core/memory.h"

struct trm_bucket *trm_buckets_cut(const struct trm_bucket_rule *rule, int *count)
{
  struct trm_bucket *bucket = trm_alloc(((size_t)rule->boundaries + 1) * sizeof *bucket, "buckets");
  size_t low = 0;
  *count = 0;
  for (int i = 0; i <= rule->boundaries && low < rule->elements; i++) {
    size_t high = rule->elements;
    if (i < rule->boundaries && rule->boundary[i] / rule->align * rule->align < high)
      high = rule->boundary[i] / rule->align * rule->align;
    const bool ends = high == rule->elements || (rule->ends && rule->ends[i]);
    const size_t min = *count == 0 && rule->first ? rule->first : rule->min;
    if (high <= low || (high - low < min && !ends))
      continue;
    bucket[(*count)++] = (struct trm_bucket){low, high, (high - low + rule->max - 1) / rule->max};
    low = high;
  }
  return bucket;
}
