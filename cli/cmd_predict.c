/* trireme predict */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/loaded.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "train/device_batch.h"

static const char usage[] =
  "usage: trireme predict CHECKPOINT.h5 --data.file=FILE.h5 --out=PRED.h5 [--split=test|train]\n\n"
  "Writes the model's scores for every sample of a split, and the class with the highest\n"
  "score, into an HDF5 file: scores (N, C) float32, class (N) int32. A .safetensors file may\n"
  "stand in place of the checkpoint, with --model=... Runs on one process, without a\n"
  "launcher. parallel.threads sets its threads.\n";

/* One score stands for two classes: positive is the second. */
static int32_t cmd_predict_class_of(const float *scores, size_t c)
{
  if (c == 1)
    return scores[0] > 0;
  size_t best = 0;
  for (size_t j = 1; j < c; j++)
    if (scores[j] > scores[best])
      best = j;
  return (int32_t)best;
}

/* scores (N, C) and answers (N) for all rows of the data set. */
static int cmd_predict_rows(struct loaded *loaded, struct trm_job *job, size_t c, float *scores, int32_t *predicted)
{
  struct trm_dataset *dataset = loaded->dataset;
  const size_t batch = (size_t)job->options.train.batch;
  struct trm_host_batch rows = {0};
  struct trm_device_batch feed;
  trm_device_batch_create(&feed, &job->device, &loaded->model);
  int status = TRM_OK;
  for (size_t at = 0; at < dataset->rows && status == TRM_OK; at += batch) {
    const size_t end = at + batch < dataset->rows ? at + batch : dataset->rows;
    struct trm_input input;
    const struct trm_pass pass = {.device = &job->device, .input = &input};
    status = dataset->ops->fetch(dataset, 0, at, end, &rows);
    if (status == TRM_OK)
      status = trm_device_batch_upload(&feed, &rows, &input);
    if (status != TRM_OK)
      break;
    trm_model_forward(&loaded->model, &pass);
    job->device.ops->download(&job->device, scores + at * c, loaded->model.scores, (end - at) * c * sizeof *scores);
    for (size_t i = at; i < end; i++)
      predicted[i] = cmd_predict_class_of(scores + i * c, c);
    status = job->device.ops->sync(&job->device);
  }
  trm_device_batch_free(&feed);
  trm_host_batch_free(&rows);
  return status;
}

static int cmd_predict_write(struct loaded *loaded, struct trm_job *job, const char *out)
{
  if (loaded->model.spec.tokens)
    return trm_error(TRM_USAGE, "predict: a model of tokens answers with trireme generate");
  const struct trm_layer *last = &loaded->model.layer[loaded->model.layers - 1];
  const struct trm_dataset *dataset = loaded->dataset;
  const size_t n = dataset->rows, c = trm_shape_count(&last->out);
  const bool classes = dataset->spec.target == TRM_TARGET_CLASS;
  float *scores = trm_alloc(n * c * sizeof *scores, "scores");
  int32_t *predicted = trm_alloc(n * sizeof *predicted, "answers");
  int status = cmd_predict_rows(loaded, job, c, scores, predicted);
  if (status == TRM_OK)
    status = trm_predictions_write(out, &(struct trm_predictions){
      .scores = scores, .predicted = classes ? predicted : NULL, .rows = n, .columns = c,
      .class_names = dataset->class_names, .classes = classes ? dataset->spec.classes : 0});
  if (status == TRM_OK)
    trm_info("%s: %zu rows of %zu scores", out, n, c);
  trm_free(scores);
  trm_free(predicted);
  return status;
}

static int cmd_predict_run(struct trm_job *job, const char *path, const char *split, const char *out)
{
  if (path && !out)
    return trm_error(TRM_USAGE, "predict: --out: no file named for the answers");
  struct loaded loaded;
  int status = loaded_open_split(&loaded, job, "predict", path, split);
  if (status == TRM_OK)
    status = cmd_predict_write(&loaded, job, out);
  loaded_close(&loaded, job);
  return status;
}

int cmd_predict(int argc, char **argv)
{
  const char *split = "test", *out = NULL;
  const struct flag flags[] = {
    {.name = "split", .kind = FLAG_TEXT, .value = &split},
    {.name = "out", .kind = FLAG_TEXT, .value = &out},
    {.name = NULL}};
  const struct job_request request = {
    .command = "predict", .usage = usage, .flags = flags, .nargs = 1, .serial = true};
  struct trm_job job;
  int nargs;
  bool help_shown;
  int status = job_open(&job, &request, argc, argv, &nargs, &help_shown);
  if (status == TRM_OK && !help_shown)
    status = cmd_predict_run(&job, nargs ? argv[0] : NULL, split, out);
  trm_job_close(&job);
  return status;
}
