#include "train/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

const char *trm_split_name(enum trm_split split)
{
  return (const char *const[]){"train", "validation", "test"}[split];
}

int trm_validation_fraction(const struct trm_options *options, double *fraction)
{
  const char *text = options->data.validation;
  char *end;
  *fraction = strtod(text, &end);
  if (end == text || *end != '\0') {
    *fraction = 0;
    return TRM_OK;
  }
  if (*fraction >= 0 && *fraction < 1)
    return TRM_OK;
  return trm_error(TRM_USAGE, "data.validation: %s is not a fraction of the training split: give one below 1, such as "
                   "0.1, or a file", text);
}

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
