/* Trains a multilayer perceptron on the samples of an HDF5 file:
 *
 *   trireme data make digits --out digits.h5
 *   mpiexec -n 2 ./train_mlp digits.h5
 *
 * The options are those of the program `trireme`: `trireme options` lists them. */
#include <stdio.h>

#include <trireme/trireme.h>

static int set_options(struct trm_options *options, const char *data_file)
{
  static const char *const settings[][2] = {
    {"model", "linear 64 | relu | linear 10"},
    {"train.epochs", "2"},
    {"train.batch", "32"},
    {"optim.name", "nesterov"},
    {"optim.lr", "0.05"},
    {"optim.momentum", "0.9"},
    {"run.dir", "train_mlp.run"},
    {"run.overwrite", "yes"},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    TRM_CHECK(trm_options_set(options, settings[i][0], settings[i][1]));
  return trm_options_set(options, "data.file", data_file);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: train_mlp DATA.h5\n");
    return TRM_USAGE;
  }
  struct trm_job job;
  struct trm_result result;
  trm_job_init(&job);
  int status = trm_job_open(&job, set_options(&job.options, argv[1]));
  if (status == TRM_OK)
    status = trm_job_train(&job, &result);
  if (status == TRM_OK && result.test.accuracy < 0.5)
    status = trm_error(TRM_FAILED, "test accuracy %.3f: the model has not learned the digits", result.test.accuracy);
  if (trm_log_rank() == 0 && status != TRM_OK)
    trm_log_error();
  else if (trm_log_rank() == 0)
    printf("train_mlp: ok: test accuracy %.3f, weights in train_mlp.run/checkpoints\n", result.test.accuracy);
  trm_job_close(&job);
  return status;
}
