#include "train/dataset.h"

#include <string.h>

#include "core/memory.h"

void trm_encoding_free(struct trm_encoding *encoding)
{
  trm_free(encoding->name);
  trm_free(encoding->merge);
  *encoding = (struct trm_encoding){0};
}

void trm_host_batch_free(struct trm_host_batch *batch)
{
  trm_free(batch->dense);
  trm_free(batch->starts);
  trm_free(batch->columns);
  trm_free(batch->values);
  trm_free(batch->tokens);
  trm_free(batch->target_class);
  trm_free(batch->target_value);
  memset(batch, 0, sizeof *batch);
}
