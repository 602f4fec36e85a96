/* A checkpoint made ready to answer, and the samples that it answers. */
#ifndef TRM_CLI_LOADED_H
#define TRM_CLI_LOADED_H

#include "cli/job.h"

/* The model is on the job's device. Of a .safetensors file, which holds weights alone, model and data.file say what
 * they are of; of the checkpoint there is spec, model_text, loss_name and state 0 then. */
struct loaded {
  char *path; /* the file; of a run directory its best.h5, else last.h5 */
  struct trm_checkpoint checkpoint;
  struct trm_model model;
  float *w; /* device */
  struct trm_dataset *dataset; /* NULL: no samples were asked for */
};

/* For passes of up to max_rows samples; of tokens fewer, as model.max_rows then says: their scores are large. Where
 * data.context is not set, it becomes the model's. To be closed, even if it fails. */
int loaded_open(struct loaded *loaded, struct trm_job *job, const char *path, size_t max_rows);
/* The same with the split of data.file ("test" or "train") that `command` was asked for, rows in their own order and as they
 * are, for passes of up to train.batch of them. They must be of the checkpoint's shape and classes, tokens of its
 * vocabulary. path: NULL is refused. */
int loaded_open_split(struct loaded *loaded, struct trm_job *job, const char *command, const char *path,
                      const char *split);
void loaded_close(struct loaded *loaded, struct trm_job *job);

#endif
