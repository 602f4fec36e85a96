/* A checkpoint as a model on the device, and the samples that it is applied to. */
#pragma once

#include "cli/command.h"

/* The model is on the job's device. A .safetensors file holds weights alone: the options model and data.file say what
 * they are of, and of the checkpoint spec, model_text, loss_name and state 0 are set. */
struct loaded {
  char *path; /* the file; of a run directory its best.h5, else last.h5 */
  struct trm_checkpoint checkpoint;
  struct trm_model model;
  float *w; /* device */
  struct trm_dataset *dataset; /* NULL: no samples were requested */
  struct trm_device *device;   /* that w is on; not owned */
};

/* Collective. Opens a checkpoint, the best or last one of a run directory, or a .safetensors file for passes of up to
 * max_rows samples; of tokens fewer, as model.max_rows then says, because their scores are large. Sets data.context to
 * the model's, and data.file to the run's, where they are not set. To be closed, even if it fails. */
int loaded_open(struct loaded *loaded, struct trm_job *job, const char *path, size_t max_rows);
/* Collective. The same for passes of up to train.batch samples of one split ("train", "validation" or "test"), whose
 * rows stay in their order and are not augmented. The samples must have the checkpoint's shape and classes, tokens its
 * vocabulary. The validation split is that of the checkpoint's run, unless data.validation is set. The path is the
 * call's argument. */
int loaded_open_split(struct loaded *loaded, const struct call *call, enum trm_split split);
void loaded_close(struct loaded *loaded);

/* The last fields of the row of a flag whose value is an enum trm_split. */
#define SPLITS 0, 0, (const char *const[]){"train", "validation", "test", NULL}, NULL
