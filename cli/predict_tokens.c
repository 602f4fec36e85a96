#include "cli/predict_tokens.h"

#include <math.h>
#include <string.h>

#include "core/atomic_file.h"
#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "train/device_batch.h"

struct predict_tokens {
  struct loaded *loaded;
  struct trm_tokenizer *tokenizer; /* NULL: the data set has no vocabulary */
  FILE *out;
  size_t positions, vocabulary;    /* T, V */
  float *loss, *correct;           /* (rows of a pass, T) */
  float *scores;                   /* (V) */
  double *p;                       /* (V) */
};

/* Adds the likeliest token by the scores of the last position. */
static void predict_next(const struct predict_tokens *t, size_t row, struct trm_json *json)
{
  trm_model_read_scores(&t->loaded->model, (row + 1) * t->positions - 1, 1, t->scores);
  const int32_t next = trm_predicted_class(t->scores, t->vocabulary);
  trm_predicted_probabilities(t->scores, t->vocabulary, t->p);
  trm_json_integer(json, "next_token", next);
  if (t->tokenizer) {
    size_t bytes;
    const char *bytes_of_token = trm_tokenizer_text(t->tokenizer, next, &bytes);
    char *text = trm_alloc(bytes + 1, "a token");
    memcpy(text, bytes_of_token, bytes);
    trm_json_text(json, "next_text", text);
    trm_free(text);
  }
  trm_json_number(json, "next_probability", t->p[next]);
}

/* Writes the line of a row of the latest pass. */
static void predict_row(const struct predict_tokens *t, size_t index, size_t row)
{
  double loss = 0, tokens = 0;
  for (size_t i = row * t->positions; i < (row + 1) * t->positions; i++) {
    loss += (double)t->loss[i];
    tokens += t->correct[i] >= 0; /* otherwise it has no target */
  }
  struct trm_json json;
  trm_json_open(&json, t->out);
  trm_json_object(&json, NULL);
  trm_json_integer(&json, "index", (int64_t)index);
  trm_json_integer(&json, "tokens", (int64_t)tokens);
  trm_json_number(&json, "loss", loss / tokens);
  trm_json_number(&json, "perplexity", exp(loss / tokens));
  predict_next(t, row, &json);
  trm_json_end(&json);
}

static int predict_rows(const struct predict_tokens *t, struct trm_device *device)
{
  struct trm_model *model = &t->loaded->model;
  struct trm_dataset *dataset = t->loaded->dataset;
  struct trm_host_batch rows = {0};
  struct trm_device_batch feed;
  int status = TRM_OK;
  trm_device_batch_create(&feed, device, model);
  for (size_t at = 0; at < dataset->rows && status == TRM_OK; at += model->max_rows) {
    const size_t end = at + model->max_rows < dataset->rows ? at + model->max_rows : dataset->rows;
    const size_t bytes = (end - at) * t->positions * sizeof(float);
    struct trm_loss_sums sums = {0};
    struct trm_input input;
    const struct trm_pass pass = {.device = device, .input = &input, .weights_kept = at > 0};
    status = dataset->ops->fetch(dataset, 0, at, end, &rows);
    if (status == TRM_OK)
      status = trm_device_batch_upload(&feed, &rows, &input);
    if (status == TRM_OK)
      status = trm_model_evaluate(model, &pass, &sums);
    if (status != TRM_OK)
      break;
    device->ops->download(device, t->loss, model->row_loss, bytes);
    device->ops->download(device, t->correct, model->row_correct, bytes);
    status = device->ops->sync(device);
    for (size_t i = at; i < end && status == TRM_OK; i++)
      predict_row(t, i, i - at);
  }
  trm_device_batch_free(&feed);
  trm_host_batch_free(&rows);
  return status;
}

int predict_tokens_write(struct loaded *loaded, struct trm_job *job, const char *path)
{
  const struct trm_dataset *dataset = loaded->dataset;
  const size_t positions = loaded->model.targets, vocabulary = loaded->model.spec.classes;
  const size_t each = loaded->model.max_rows * positions;
  struct predict_tokens t = {.loaded = loaded, .positions = positions, .vocabulary = vocabulary};
  struct atomic_file file;
  if (dataset->encoding.name && dataset->class_names)
    TRM_CHECK(trm_tokenizer_open(&t.tokenizer, dataset->path, &dataset->encoding, dataset->class_names, vocabulary));
  int status = atomic_file_open_secret(&file, path);
  if (status == TRM_OK) {
    t.out = file.stream;
    t.loss = trm_alloc(2 * each * sizeof *t.loss, "losses");
    t.correct = t.loss + each;
    t.scores = trm_alloc(vocabulary * sizeof *t.scores, "scores");
    t.p = trm_alloc(vocabulary * sizeof *t.p, "probabilities");
    status = predict_rows(&t, &job->device);
    const int closed = atomic_file_close(&file, status == TRM_OK && !ferror(file.stream));
    status = status == TRM_OK ? closed : status;
  }
  if (status == TRM_OK)
    trm_info("%s: %zu sequences of %zu tokens", path, dataset->rows, positions);
  trm_tokenizer_close(t.tokenizer);
  trm_free(t.loss);
  trm_free(t.scores);
  trm_free(t.p);
  return status;
}
