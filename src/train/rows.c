/* Training of a linear model with one score on sparse rows, for strategies with a row trainer: no model passes, no
 * gradient array, rows without a copy where the data set allows it. */
#include <stdint.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "train/trainer.h"

enum { ROWS_AT_ONCE = 256 };

static bool rows_describe_linear(const struct trainer *t, struct trm_linear *linear)
{
  const struct trm_model *m = &t->model;
  const bool hinge = strcmp(m->loss->name, "hinge") == 0, logistic = strcmp(m->loss->name, "logistic") == 0;
  const size_t features = m->spec.shape.size[0];
  if (!m->spec.sparse || m->layers != 1 || !(hinge || logistic) || m->spec.target != TRM_TARGET_CLASS)
    return false;
  const struct trm_parameter *w = trm_model_parameter(m, 0), *bias = trm_model_parameter(m, 1);
  if (!w || w->count != features)
    return false;
  *linear = (struct trm_linear){
    .loss = hinge ? TRM_MARGIN_HINGE : TRM_MARGIN_LOGISTIC,
    .features = features,
    .weights = w->offset,
    .bias = bias ? bias->offset : SIZE_MAX,
  };
  return true;
}

static int rows_get(struct trainer *t, size_t low, size_t high)
{
  struct trainer_rows *rows = &t->rows;
  TRM_CHECK(t->data->ops->fetch_rows(t->data, t->epoch, low, high, &t->batch, rows->row));
  for (size_t i = 0; i < t->batch.rows; i++)
    rows->target[i] = t->batch.target_class[i] == 1 ? 1.0f : -1.0f;
  return TRM_OK;
}

/* Computes the fraction of the rows that have each feature. Collective over t->comm. */
static int rows_count_features(struct trainer *t)
{
  struct trainer_rows *rows = &t->rows;
  const size_t features = rows->linear.features;
  size_t low, high;
  rows->feature_frequency = trm_alloc(features * sizeof *rows->feature_frequency, "counts of features");
  trm_interval(t->data->rows, (size_t)t->comm->size, (size_t)t->comm->rank, &low, &high);
  for (size_t end; low < high; low = end) {
    end = high - low < ROWS_AT_ONCE ? high : low + ROWS_AT_ONCE;
    TRM_CHECK(rows_get(t, low, end));
    for (size_t i = 0; i < end - low; i++)
      for (size_t e = 0; e < rows->row[i].entries; e++)
        rows->feature_frequency[rows->row[i].columns[e]]++;
  }
  t->comm->ops->allreduce(t->comm, rows->feature_frequency, features, TRM_FLOAT, TRM_SUM);
  for (size_t j = 0; j < features; j++)
    rows->feature_frequency[j] /= (float)t->data->rows;
  rows->linear.feature_frequency = rows->feature_frequency;
  return TRM_OK;
}

int trainer_rows_setup(struct trainer *t)
{
  struct trainer_rows *rows = &t->rows;
  /* a streamed data set has one pass per epoch, so features cannot be counted before training */
  if (!t->strategy.row_trainer || !rows_describe_linear(t, &rows->linear) ||
      (t->optimizer.update.l2 > 0 && t->data->streamed))
    return TRM_OK;
  const size_t max_rows =
    (size_t)t->options->train.batch > ROWS_AT_ONCE ? (size_t)t->options->train.batch : ROWS_AT_ONCE;
  rows->row = trm_alloc(max_rows * sizeof *rows->row, "rows of a batch");
  rows->target = trm_alloc(max_rows * sizeof *rows->target, "rows of a batch");
  if (t->optimizer.update.l2 > 0)
    TRM_CHECK(trm_agree(t->comm, rows_count_features(t)));
  t->strategy.row_trainer->begin(&t->strategy, &rows->linear);
  return TRM_OK;
}

int trainer_train_rows(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  size_t from, to;
  trainer_shard(t, batch->high - batch->low, &from, &to);
  TRM_CHECK(rows_get(t, batch->low + from, batch->low + to));
  return t->strategy.row_trainer->train(&t->strategy, t->rows.row, t->rows.target, t->batch.rows, batch->rate, sums);
}

void trainer_rows_free(struct trainer *t)
{
  trm_free(t->rows.row);
  trm_free(t->rows.target);
  trm_free(t->rows.feature_frequency);
  t->rows = (struct trainer_rows){.feature_frequency = NULL};
}
