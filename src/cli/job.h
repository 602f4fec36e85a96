/* A job as the commands see it: options, ranks and a device, opened in one order and closed in the other. */
#ifndef TRM_CLI_JOB_H
#define TRM_CLI_JOB_H

#include "cli/flags.h"
#include "train/train.h"

struct job {
  struct trm_options options;
  struct trm_parts parts;
  struct trm_device device;
  bool alone; /* one rank without MPI */
};

/* Reads the command line: the command's own flags, the option table (--section.key=value, into job->options) and up to
 * `places` words, left in argv[0..*words). config: the first word is a configuration file, read before the flags. Then
 * starts MPI (alone: not) and opens the device. *helped: --help was asked for and answered; nothing was opened.
 * Collective; on failure every rank has the message. The job must be closed in any case. */
struct job_request {
  const char *command, *usage;
  const struct flag *flags; /* the command's own; NULL: none */
  int places;
  bool config, alone;
};
int job_open(struct job *job, const struct job_request *request, int argc, char **argv, int *words, bool *helped);
void job_close(struct job *job);

/* For answers: data sets opened from now on give their rows in their own order and as they are. */
int job_rows_plain(struct job *job);

/* A checkpoint made ready to answer: its model on the job's device. Or a .safetensors file, which holds weights alone:
 * model and data.file then say what they are of; of the checkpoint there is spec, model_text, loss_name and state 0. */
struct loaded {
  struct trm_checkpoint checkpoint;
  struct trm_model model;
  float *w; /* device */
};
/* For passes of up to max_rows samples; of tokens fewer, as model.max_rows then says: their scores are large. Where
 * data.context is not set, it becomes the model's. */
int loaded_open(struct loaded *loaded, struct job *job, const char *path, size_t max_rows);
void loaded_close(struct loaded *loaded, struct job *job);

/* The split must have samples of the checkpoint's shape and classes, tokens of its vocabulary. */
int loaded_check(const struct loaded *loaded, const char *checkpoint_path, const struct trm_dataset *dataset);

#endif
