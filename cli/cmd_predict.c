/* trireme predict */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/loaded.h"
#include "cli/predict_tokens.h"
#include "core/atomic_file.h"
#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "train/device_batch.h"

static const char usage[] =
  "usage: trireme predict CHECKPOINT.h5|RUN --data.file=FILE.h5 --out=PRED.h5|PRED.csv|PRED.jsonl\n"
  "                       [--split=test|validation|train]\n\n"
  "Writes a prediction for every sample of a split. An HDF5 file has scores (N, C) float32 and\n"
  "class (N) int32, the class with the highest score. A CSV file has a row for each sample:\n"
  "index, prediction, and the probability of each class (of a hinge loss its score). A file of\n"
  "JSON lines has an object for each sample: index, prediction, class (its name, where the data\n"
  "set has names) and probabilities, a list in the order of the classes (of a hinge loss score);\n"
  "of values prediction, a number or a list; the CSV file has a column prediction_NAME for each,\n"
  "NAME a number where the data set has no names. Of labels (loss binary_cross_entropy) a\n"
  "prediction of 0 or 1 and a probability for each label; the HDF5 file has scores alone. Of a\n"
  "model of tokens, .jsonl alone, an object for each sequence: index, tokens, loss (the mean over\n"
  "its tokens), perplexity, and the likeliest token after its last one: next_token, next_text,\n"
  "next_probability.\n"
  "RUN is a run directory: its best.h5, else its last.h5, and its data.file unless that is given.\n"
  "A .safetensors file can replace the checkpoint, with --model=... Runs on one process, without\n"
  "a launcher. parallel.threads sets its threads.\n";

/* Computes scores (N, C) and predicted classes (N) of all rows of the data set. */
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
    const struct trm_pass pass = {.device = &job->device, .input = &input, .weights_kept = at > 0};
    status = dataset->ops->fetch(dataset, 0, at, end, &rows);
    if (status == TRM_OK)
      status = trm_device_batch_upload(&feed, &rows, &input);
    if (status != TRM_OK)
      break;
    trm_model_forward(&loaded->model, &pass);
    trm_model_read_scores(&loaded->model, 0, end - at, scores + at * c);
    for (size_t i = at; i < end; i++)
      predicted[i] = trm_predicted_class(scores + i * c, c);
    status = job->device.ops->sync(&job->device);
  }
  trm_device_batch_free(&feed);
  trm_host_batch_free(&rows);
  return status;
}

/* Writes "BEFORE" and the name of a class or value, or its number; quoted where CSV needs it. */
static void cmd_predict_csv_name(FILE *out, const char *before, char *const *names, size_t k)
{
  if (!names) {
    fprintf(out, "%s%zu", before, k);
    return;
  }
  const char *quote = strpbrk(names[k], ",\"\n\r") ? "\"" : "";
  fprintf(out, "%s%s", quote, before);
  for (const char *text = names[k]; *text; text++)
    fprintf(out, *text == '"' ? "\"%c" : "%c", *text);
  fputs(quote, out);
}

/* Writes index, prediction, and probabilities (softmax_cross_entropy, logistic) or scores of each row. predicted: NULL
 * for targets that are values; the scores are the predictions then. */
static void cmd_predict_csv_rows(FILE *out, const struct loaded *loaded, size_t c, const float *scores,
                                 const int32_t *predicted)
{
  const struct trm_dataset *dataset = loaded->dataset;
  const bool probable = predicted && strcmp(loaded->model.loss->name, "hinge") != 0;
  const size_t columns = probable ? dataset->spec.classes : c;
  double *p = trm_alloc(columns * sizeof *p, "probabilities");
  fputs(predicted ? "index,prediction" : "index", out);
  for (size_t k = 0; k < columns; k++) {
    fputc(',', out);
    if (probable)
      cmd_predict_csv_name(out, "", dataset->class_names, k);
    else if (columns == 1)
      fputs(predicted ? "score" : "prediction", out);
    else
      cmd_predict_csv_name(out, predicted ? "score_" : "prediction_", predicted ? NULL : dataset->class_names, k);
  }
  for (size_t i = 0; i < dataset->rows; i++) {
    fprintf(out, "\n%zu", i);
    if (predicted) {
      fputc(',', out);
      cmd_predict_csv_name(out, "", dataset->class_names, (size_t)predicted[i]);
    }
    if (probable)
      trm_predicted_probabilities(scores + i * c, c, p);
    for (size_t k = 0; k < columns; k++)
      fprintf(out, ",%.9g", probable ? p[k] : (double)scores[i * c + k]);
  }
  fputc('\n', out);
  trm_free(p);
}

/* Writes a number with the digits that a float32 has. */
static void cmd_predict_json_value(FILE *out, double value)
{
  fprintf(out, isfinite(value) ? "%.9g" : "null", value);
}

/* Writes an object for each row; predicted as above. */
static void cmd_predict_json_rows(FILE *out, const struct loaded *loaded, size_t c, const float *scores,
                                  const int32_t *predicted)
{
  const struct trm_dataset *dataset = loaded->dataset;
  const bool probable = predicted && strcmp(loaded->model.loss->name, "hinge") != 0;
  const size_t values = probable ? dataset->spec.classes : c;
  double *p = trm_alloc(values * sizeof *p, "probabilities");
  for (size_t i = 0; i < dataset->rows; i++) {
    struct trm_json json;
    trm_json_open(&json, out);
    trm_json_object(&json, NULL);
    trm_json_integer(&json, "index", (int64_t)i);
    if (predicted)
      trm_json_integer(&json, "prediction", predicted[i]);
    if (predicted && dataset->class_names)
      trm_json_text(&json, "class", dataset->class_names[predicted[i]]);
    for (size_t k = 0; k < c; k++)
      p[k] = (double)scores[i * c + k];
    if (probable)
      trm_predicted_probabilities(scores + i * c, c, p);
    const char *key = probable ? "probabilities" : predicted ? "score" : "prediction";
    fprintf(out, ",\"%s\":%s", key, values > 1 ? "[" : "");
    for (size_t k = 0; k < values; k++) {
      fputs(k ? "," : "", out);
      cmd_predict_json_value(out, p[k]);
    }
    fputs(values > 1 ? "]" : "", out);
    trm_json_end(&json);
  }
  trm_free(p);
}

/* The probability of a label by its score (loss binary_cross_entropy). */
static double cmd_predict_label_probability(float score)
{
  return 1 / (1 + exp(-(double)score));
}

/* Writes index, the predicted labels, 0 or 1, and their probabilities of each row. */
static void cmd_predict_csv_labels(FILE *out, const struct loaded *loaded, size_t c, const float *scores,
                                   const int32_t *predicted)
{
  (void)predicted;
  fputs("index", out);
  for (size_t k = 0; k < 2 * c; k++) {
    fputc(',', out);
    cmd_predict_csv_name(out, k < c ? "prediction_" : "probability_", loaded->dataset->class_names, k % c);
  }
  for (size_t i = 0; i < loaded->dataset->rows; i++, scores += c) {
    fprintf(out, "\n%zu", i);
    for (size_t k = 0; k < c; k++)
      fputs(scores[k] > 0 ? ",1" : ",0", out);
    for (size_t k = 0; k < c; k++)
      fprintf(out, ",%.9g", cmd_predict_label_probability(scores[k]));
  }
  fputc('\n', out);
}

/* Writes an object for each row, with the same. */
static void cmd_predict_json_labels(FILE *out, const struct loaded *loaded, size_t c, const float *scores,
                                    const int32_t *predicted)
{
  (void)predicted;
  for (size_t i = 0; i < loaded->dataset->rows; i++, scores += c) {
    fprintf(out, "{\"index\":%zu,\"prediction\":[", i);
    for (size_t k = 0; k < c; k++)
      fprintf(out, "%s%d", k ? "," : "", scores[k] > 0);
    fputs("],\"probabilities\":[", out);
    for (size_t k = 0; k < c; k++) {
      fputs(k ? "," : "", out);
      cmd_predict_json_value(out, cmd_predict_label_probability(scores[k]));
    }
    fputs("]}\n", out);
  }
}

typedef void cmd_predict_writer(FILE *out, const struct loaded *loaded, size_t c, const float *scores,
                                const int32_t *predicted);

static int cmd_predict_text(const char *path, cmd_predict_writer *write, const struct loaded *loaded, size_t c,
                            const float *scores, const int32_t *predicted)
{
  struct atomic_file file;
  TRM_CHECK(atomic_file_open_secret(&file, path));
  write(file.stream, loaded, c, scores, predicted);
  return atomic_file_close(&file, !ferror(file.stream));
}

static int cmd_predict_write(struct loaded *loaded, struct trm_job *job, const char *out)
{
  const char *dot = strrchr(out, '.'), *end = dot ? dot : "";
  if (loaded->model.spec.tokens && strcmp(end, ".jsonl") != 0)
    return trm_error(TRM_USAGE, "predict: --out: predictions of a model of tokens are JSON lines: name a .jsonl file "
                     "(trireme generate continues a text)");
  if (loaded->model.spec.tokens)
    return predict_tokens_write(loaded, job, out);
  const struct trm_layer *last = &loaded->model.layer[loaded->model.layers - 1];
  const struct trm_dataset *dataset = loaded->dataset;
  const size_t n = dataset->rows, c = trm_shape_count(&last->out);
  const bool classes = dataset->spec.target == TRM_TARGET_CLASS, labels = loaded->model.loss->labels;
  float *scores = trm_alloc(n * c * sizeof *scores, "scores");
  int32_t *predicted = trm_alloc(n * sizeof *predicted, "answers");
  int status = cmd_predict_rows(loaded, job, c, scores, predicted);
  if (status == TRM_OK && strcmp(end, ".csv") == 0)
    status = cmd_predict_text(out, labels ? cmd_predict_csv_labels : cmd_predict_csv_rows, loaded, c, scores,
                              classes ? predicted : NULL);
  else if (status == TRM_OK && strcmp(end, ".jsonl") == 0)
    status = cmd_predict_text(out, labels ? cmd_predict_json_labels : cmd_predict_json_rows, loaded, c, scores,
                              classes ? predicted : NULL);
  else if (status == TRM_OK)
    status = trm_predictions_write(out, &(struct trm_predictions){
      .scores = scores, .predicted = classes ? predicted : NULL, .rows = n, .columns = c,
      .class_names = dataset->class_names, .classes = dataset->spec.classes});
  if (status == TRM_OK)
    trm_info("%s: %zu rows of %zu scores", out, n, c);
  trm_free(scores);
  trm_free(predicted);
  return status;
}

struct predict_flags {
  enum trm_split split;
  const char *out;
};
#define AT(field) offsetof(struct predict_flags, field)
static const struct trm_option flags[] = {{"split", TRM_OPTION_CHOICE, AT(split), "test", SPLITS},
                                          {"out", TRM_OPTION_TEXT, AT(out), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static int cmd_predict_run(const struct call *call)
{
  const struct predict_flags *f = call->values;
  if (!f->out)
    return trm_error(TRM_USAGE, "predict: --out: no file named for the answers");
  struct loaded loaded;
  int status = loaded_open_split(&loaded, call, f->split);
  if (status == TRM_OK)
    status = cmd_predict_write(&loaded, call->job, f->out);
  loaded_close(&loaded);
  return status;
}

const struct command cmd_predict = {
  .name = "predict", .help = "write a prediction for every sample of a data set",
  .usage = usage, .flags = flags, .bytes = sizeof(struct predict_flags), .max_args = 1,
  .missing = "no checkpoint named",
  .job = SERIAL_JOB, .run = cmd_predict_run,
};
