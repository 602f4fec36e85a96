#include "mpi/async/pending_update.h"

#include "core/memory.h"

void pending_update_create(struct pending_update *pending, size_t elements)
{
  *pending = (struct pending_update){
    .copy = trm_alloc(elements * sizeof *pending->copy, "updates of rows"),
    .touched = trm_alloc(elements, "updates of rows"),
  };
}

void pending_update_free(struct pending_update *pending)
{
  trm_free(pending->copy);
  trm_free(pending->touched);
  trm_free(pending->weight);
}

void pending_update_touch(struct pending_update *pending, const float *w, size_t i)
{
  if (pending->touched[i])
    return;
  pending->weight = trm_grow(pending->weight, &pending->capacity, pending->count, pending->count + 1,
                             sizeof *pending->weight, "updates of rows");
  pending->weight[pending->count++] = (struct pending_weight){i, w[i]};
  pending->copy[i] = w[i];
  pending->touched[i] = 1;
}

void pending_update_store(struct pending_update *pending, float *w, enum trm_conflicts conflicts)
{
  for (size_t k = 0; k < pending->count; k++) {
    const size_t i = pending->weight[k].i;
    const float before = pending->weight[k].before, after = pending->copy[i];
    pending->touched[i] = 0;
    pending->conflicts += w[i] != before;
    w[i] = conflicts == TRM_CONFLICTS_OVERWRITE || w[i] == before ? after : w[i] + (after - before);
  }
  pending->stored += pending->count;
  pending->count = 0;
}
