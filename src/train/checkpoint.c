#include "train/checkpoint.h"

#include <string.h>

#include "core/memory.h"

void trm_checkpoint_free(struct trm_checkpoint *checkpoint)
{
  trm_free(checkpoint->model_text);
  trm_free(checkpoint->loss_name);
  trm_free(checkpoint->config);
  trm_free(checkpoint->data_digest);
  trm_free(checkpoint->validation);
  trm_free(checkpoint->class_names);
  trm_encoding_free(&checkpoint->encoding);
  for (int i = 0; checkpoint->owns_states && i < checkpoint->states; i++)
    trm_free(checkpoint->state[i]);
  memset(checkpoint, 0, sizeof *checkpoint);
}
