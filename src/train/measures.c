/* Measures from scores: sums and counts of each row as it comes. The AUC: auc.c. */
#include "train/measures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "train/auc.h"

enum { TOP = 5, BINS = 15 };

/* One target value over rows, as summed by Welford (1962). */
struct measures_moments {
  double rows, mean, squares; /* squares: of the differences to the mean */
  double absolute, squared;   /* sums of |error| and error^2 */
};
enum { MOMENTS = sizeof(struct measures_moments) / sizeof(double) };

struct measures_bins {
  double right[BINS], sum[BINS]; /* rows with a correct prediction; sum of the probabilities */
};
enum { BIN_SUMS = sizeof(struct measures_bins) / sizeof(double) };

struct trm_measurement {
  bool classifies, probable, keeps; /* classes, not values; the loss makes probabilities; scores are kept */
  bool labels;                      /* values that say whether a row has a label */
  size_t c, classes;                /* scores a row; classes: 2 with one score */
  int32_t not_finite;               /* 1: a score is */
  int64_t *count;                   /* (2 + 3 classes): rows, those in the top 5, and the next three */
  int64_t *right, *support, *predicted;
  int64_t *confusion;               /* (classes, classes) or NULL */
  struct measures_bins bins;
  double *p;                        /* (classes) of one row */
  struct trm_auc auc;               /* of the scores that are kept */
  struct measures_moments *value;   /* (c) of targets that are values */
};

const struct trm_measure_text trm_measure_texts[TRM_MEASURES] = {
  [TRM_TOP5] = {"top5", "top-5 accuracy", "%.2f%%", 100},
  [TRM_F1_MACRO] = {"f1_macro", "F1 macro", "%.4f", 1},
  [TRM_F1_MICRO] = {"f1_micro", "micro", "%.4f", 1},
  [TRM_AUC] = {"auc", "AUC", "%.4f", 1},
  [TRM_ECE] = {"ece", "calibration error", "%.4f", 1},
  [TRM_MAE] = {"mae", "MAE", "%.6g", 1},
  [TRM_RMSE] = {"rmse", "RMSE", "%.6g", 1},
  [TRM_R2] = {"r2", "R^2", "%.4f", 1},
};

const char *trm_measures_text(const struct trm_measures *measures, char *text, size_t bytes)
{
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < TRM_MEASURES; i++) {
    const struct trm_measure_text *t = &trm_measure_texts[i];
    if (!measures->applies[i] || used >= bytes)
      continue;
    used += (size_t)snprintf(text + used, bytes - used, "%s%s ", used ? ", " : "", t->name);
    if (used < bytes && isnan(measures->value[i]))
      used += (size_t)snprintf(text + used, bytes - used, "-");
    else if (used < bytes)
      used += (size_t)snprintf(text + used, bytes - used, t->format, t->scale * measures->value[i]);
  }
  return text;
}

int32_t trm_predicted_class(const float *scores, size_t c)
{
  if (c == 1)
    return scores[0] > 0;
  size_t best = 0;
  for (size_t j = 1; j < c; j++)
    if (scores[j] > scores[best])
      best = j;
  return (int32_t)best;
}

void trm_predicted_probabilities(const float *scores, size_t c, double *p)
{
  double max = -INFINITY, sum = 0;
  if (c == 1) {
    p[0] = 1 / (1 + exp((double)scores[0]));
    p[1] = 1 / (1 + exp(-(double)scores[0]));
    return;
  }
  for (size_t k = 0; k < c; k++)
    max = fmax(max, (double)scores[k]);
  for (size_t k = 0; k < c; k++)
    sum += p[k] = exp((double)scores[k] - max);
  for (size_t k = 0; k < c; k++)
    p[k] /= sum;
}

/* -- setting up */

static bool measures_classifies(const struct trm_loss *loss, const struct trm_input_spec *spec)
{
  return spec->target == TRM_TARGET_CLASS || loss->signed_target;
}

/* Returns the number of scores of a row. */
static size_t measures_scores(const struct trm_loss *loss, const struct trm_input_spec *spec)
{
  return loss->signed_target ? 1 : spec->classes;
}

static bool measures_keeps(const struct trm_loss *loss, const struct trm_input_spec *spec, size_t rows)
{
  return measures_classifies(loss, spec) && trm_auc_fits(measures_scores(loss, spec), rows);
}

/* cells: of the confusion matrix; 0: it is not counted. */
static void measures_allocate_counts(struct trm_measurement *m, size_t cells)
{
  const size_t counts = 2 + 3 * m->classes;
  m->count = trm_alloc((counts + cells) * sizeof *m->count, "measures");
  m->right = m->count + 2;
  m->support = m->right + m->classes;
  m->predicted = m->support + m->classes;
  m->confusion = cells ? m->count + counts : NULL;
}

struct trm_measurement *trm_measurement_create(const struct trm_loss *loss, const struct trm_input_spec *spec,
                                               size_t rows, bool confusion)
{
  if (spec->tokens)
    return NULL;
  struct trm_measurement *m = trm_alloc(sizeof *m, "measures");
  *m = (struct trm_measurement){.classifies = measures_classifies(loss, spec), .c = measures_scores(loss, spec)};
  if (loss->labels) {
    m->labels = true;
    m->classes = m->c;
    measures_allocate_counts(m, 0);
    return m;
  }
  if (!m->classifies) {
    m->value = trm_alloc(m->c * sizeof *m->value, "measures");
    return m;
  }
  m->classes = m->c == 1 ? 2 : m->c;
  m->probable = strcmp(loss->name, "hinge") != 0;
  m->keeps = measures_keeps(loss, spec, rows);
  if (!m->keeps)
    trm_info("AUC: left out: %zu rows of %zu scores would take more than %d MiB", rows, m->c, TRM_AUC_MIB);
  measures_allocate_counts(m, confusion ? m->classes * m->classes : 0);
  m->p = trm_alloc(m->classes * sizeof *m->p, "measures");
  m->auc = (struct trm_auc){.c = m->c, .classes = m->classes};
  return m;
}

void trm_measurement_free(struct trm_measurement *m)
{
  if (!m)
    return;
  trm_auc_free(&m->auc);
  trm_free(m->count);
  trm_free(m->p);
  trm_free(m->value);
  trm_free(m);
}

size_t trm_measurement_bytes(const struct trm_loss *loss, const struct trm_input_spec *spec, size_t rows, int ranks)
{
  if (spec->tokens || !measures_keeps(loss, spec, rows))
    return 0;
  return trm_auc_bytes(measures_scores(loss, spec), rows, ranks);
}

const int64_t *trm_measurement_confusion(const struct trm_measurement *m)
{
  return m->confusion;
}

/* -- rows */

/* Returns the number of classes before this one in the order of scores. */
static size_t measures_place(const float *scores, size_t c, size_t class)
{
  size_t before = 0;
  for (size_t k = 0; k < c; k++)
    before += scores[k] > scores[class] || (scores[k] == scores[class] && k > class);
  return before;
}

static void measures_add_calibration(struct trm_measurement *m, const float *scores, size_t predicted, bool right)
{
  static const double width = 1.0 / BINS;
  trm_predicted_probabilities(scores, m->c, m->p);
  const double p = m->p[predicted];
  int bin = 0;
  while (bin < BINS - 1 && p > (bin + 1) * width)
    bin++;
  m->bins.right[bin] += right;
  m->bins.sum[bin] += p;
}

static void measures_add_class(struct trm_measurement *m, const float *scores, size_t class)
{
  const size_t predicted = (size_t)trm_predicted_class(scores, m->c);
  const bool right = predicted == class;
  m->count[0]++;
  m->right[class] += right;
  m->support[class]++;
  m->predicted[predicted]++;
  if (m->confusion)
    m->confusion[class * m->classes + predicted]++;
  if (m->classes > TOP)
    m->count[1] += measures_place(scores, m->c, class) < TOP;
  if (m->probable && !m->not_finite)
    measures_add_calibration(m, scores, predicted, right);
}

static void measures_add_labels(struct trm_measurement *m, const float *scores, const float *target)
{
  m->count[0]++;
  for (size_t k = 0; k < m->classes; k++) {
    const bool predicted = scores[k] > 0, has = target[k] > 0;
    m->right[k] += predicted && has;
    m->support[k] += has;
    m->predicted[k] += predicted;
  }
}

static void measures_add_value(struct measures_moments *v, double score, double target)
{
  const double error = score - target, difference = target - v->mean;
  v->rows++;
  v->mean += difference / v->rows;
  v->squares += difference * (target - v->mean);
  v->absolute += fabs(error);
  v->squared += error * error;
}

void trm_measurement_add(struct trm_measurement *m, size_t rows, const float *scores, const int32_t *target_class,
                         const float *target_value)
{
  for (size_t i = 0; i < rows * m->c; i++)
    m->not_finite |= !isfinite(scores[i]);
  for (size_t i = 0; i < rows && m->labels; i++)
    measures_add_labels(m, scores + i * m->c, target_value + i * m->c);
  for (size_t i = 0; i < rows * m->c && !m->classifies && !m->labels; i++)
    measures_add_value(&m->value[i % m->c], (double)scores[i], (double)target_value[i]);
  if (!m->classifies || rows == 0)
    return;
  int32_t *label = trm_alloc(rows * sizeof *label, "classes");
  for (size_t i = 0; i < rows; i++) {
    label[i] = target_class ? target_class[i] : target_value[i] > 0;
    measures_add_class(m, scores + i * m->c, (size_t)label[i]);
  }
  if (m->keeps)
    trm_auc_keep(&m->auc, rows, scores, label);
  trm_free(label);
}

/* Copies the scores to the host: (rows, c). */
static void measures_read(const struct trm_loss_call *call, float *scores)
{
  const size_t bytes = trm_value_bytes(call->type), line = call->ld * bytes;
  char *copy = trm_alloc(call->rows * line, "scores");
  call->device->ops->download(call->device, copy, call->scores, ((call->rows - 1) * call->ld + call->classes) * bytes);
  for (size_t i = 0; i < call->rows; i++)
    if (call->type == TRM_VALUES_F32)
      memcpy(scores + i * call->classes, copy + i * line, call->classes * bytes);
    else
      trm_bf16_widen(scores + i * call->classes, (const trm_bf16 *)(copy + i * line), call->classes);
  trm_free(copy);
}

/* Makes whole rows of the shards (rows, part) of all ranks of the axis. scores: 0. */
static void measures_join(const struct trm_loss_call *call, const float *part, float *scores, size_t c)
{
  for (size_t i = 0; i < call->rows; i++)
    memcpy(scores + i * c + call->shard.low, part + i * call->classes, call->classes * sizeof *scores);
  call->axis->comm->ops->allreduce(call->axis->comm, scores, call->rows * c, TRM_FLOAT, TRM_SUM);
}

void trm_measurement_add_pass(void *measurement, const struct trm_loss_call *call)
{
  struct trm_measurement *m = measurement;
  struct trm_device *device = call->device;
  const size_t rows = call->rows, width = m->classifies ? 1 : m->c;
  const bool sharded = call->classes < m->c, classes = call->input->target_class != NULL;
  float *scores = trm_alloc(rows * m->c * sizeof *scores, "scores");
  float *part = sharded ? trm_alloc(rows * call->classes * sizeof *part, "scores") : scores;
  float *target = trm_alloc(rows * width * sizeof *target, "targets"); /* int32 are as large */
  measures_read(call, part);
  if (sharded)
    measures_join(call, part, scores, m->c);
  device->ops->download(device, target, classes ? (const void *)call->input->target_class : call->input->target_value,
                        rows * width * sizeof *target);
  trm_measurement_add(m, rows, scores, classes ? (const int32_t *)(void *)target : NULL, target);
  if (sharded)
    trm_free(part);
  trm_free(scores);
  trm_free(target);
}

/* -- results */

static double measures_f1_macro(const struct trm_measurement *m)
{
  double sum = 0;
  int classes = 0;
  for (size_t k = 0; k < m->classes; k++)
    if (m->support[k] + m->predicted[k] > 0) {
      sum += 2 * (double)m->right[k] / (double)(m->support[k] + m->predicted[k]);
      classes++;
    }
  return sum / classes;
}

/* Collective. */
static void measures_end_classes(struct trm_measurement *m, struct trm_comm *comm, struct trm_measures *measures)
{
  double right = 0, error = 0;
  const size_t cells = m->confusion ? m->classes * m->classes : 0;
  comm->ops->allreduce(comm, m->count, 2 + 3 * m->classes + cells, TRM_INT64, TRM_SUM);
  comm->ops->allreduce(comm, &m->bins, BIN_SUMS, TRM_DOUBLE, TRM_SUM);
  const double rows = (double)m->count[0];
  measures->applies[TRM_TOP5] = m->classes > TOP;
  measures->applies[TRM_F1_MACRO] = measures->applies[TRM_F1_MICRO] = true;
  measures->applies[TRM_AUC] = m->keeps;
  measures->applies[TRM_ECE] = m->probable;
  if (m->not_finite || rows == 0)
    return;
  for (size_t k = 0; k < m->classes; k++)
    right += (double)m->right[k];
  for (int bin = 0; bin < BINS; bin++)
    error += fabs(m->bins.right[bin] - m->bins.sum[bin]);
  measures->value[TRM_TOP5] = m->classes > TOP ? (double)m->count[1] / rows : NAN;
  measures->value[TRM_F1_MACRO] = measures_f1_macro(m);
  measures->value[TRM_F1_MICRO] = right / rows;
  measures->value[TRM_AUC] = m->keeps ? trm_auc_end(&m->auc, m->support, comm) : NAN;
  measures->value[TRM_ECE] = m->probable ? error / rows : NAN;
}

/* F1 of labels, from the counts of all ranks. Collective. */
static void measures_end_labels(struct trm_measurement *m, struct trm_comm *comm, struct trm_measures *measures)
{
  double macro = 0, right = 0, all = 0;
  comm->ops->allreduce(comm, m->count, 2 + 3 * m->classes, TRM_INT64, TRM_SUM);
  measures->applies[TRM_F1_MACRO] = measures->applies[TRM_F1_MICRO] = true;
  if (m->not_finite || m->count[0] == 0)
    return;
  for (size_t k = 0; k < m->classes; k++) {
    const double sum = (double)(m->support[k] + m->predicted[k]);
    macro += sum > 0 ? 2 * (double)m->right[k] / sum : 0;
    right += (double)m->right[k];
    all += sum;
  }
  measures->value[TRM_F1_MACRO] = macro / (double)m->classes;
  measures->value[TRM_F1_MICRO] = all > 0 ? 2 * right / all : 0;
}

/* Adds the rows of another rank (Chan, Golub and LeVeque 1979). */
static void measures_merge(struct measures_moments *to, const struct measures_moments *from)
{
  const double rows = to->rows + from->rows, difference = from->mean - to->mean;
  if (from->rows == 0)
    return;
  to->squares += from->squares + difference * difference * to->rows * from->rows / rows;
  to->mean += difference * from->rows / rows;
  to->absolute += from->absolute;
  to->squared += from->squared;
  to->rows = rows;
}

/* Of constant targets, for which it is not defined, as scikit-learn: 1 if all predictions are right, otherwise 0. */
static double measures_r2(const struct measures_moments *v)
{
  if (v->rows < 2)
    return NAN;
  if (v->squares == 0)
    return v->squared == 0 ? 1 : 0;
  return 1 - v->squared / v->squares;
}

/* Collective. */
static void measures_end_values(struct trm_measurement *m, struct trm_comm *comm, struct trm_measures *measures)
{
  const size_t c = m->c;
  double mae = 0, rmse = 0, r2 = 0;
  struct measures_moments *all = trm_alloc(c * (size_t)comm->size * sizeof *all, "measures");
  comm->ops->allgather(comm, m->value, all, c * MOMENTS, TRM_DOUBLE);
  for (size_t k = 0; k < c; k++) {
    struct measures_moments v = {0};
    for (size_t rank = 0; rank < (size_t)comm->size; rank++)
      measures_merge(&v, &all[rank * c + k]);
    mae += v.absolute / v.rows / (double)c;
    rmse += sqrt(v.squared / v.rows) / (double)c;
    r2 += measures_r2(&v) / (double)c;
  }
  trm_free(all);
  measures->applies[TRM_MAE] = measures->applies[TRM_RMSE] = measures->applies[TRM_R2] = true;
  measures->value[TRM_MAE] = m->not_finite ? NAN : mae;
  measures->value[TRM_RMSE] = m->not_finite ? NAN : rmse;
  measures->value[TRM_R2] = m->not_finite ? NAN : r2;
}

void trm_measurement_end(struct trm_measurement *m, struct trm_comm *comm, struct trm_measures *measures)
{
  *measures = (struct trm_measures){0};
  for (int i = 0; i < TRM_MEASURES; i++)
    measures->value[i] = NAN;
  comm->ops->allreduce(comm, &m->not_finite, 1, TRM_INT32, TRM_MAX);
  if (m->labels)
    measures_end_labels(m, comm, measures);
  else if (m->classifies)
    measures_end_classes(m, comm, measures);
  else
    measures_end_values(m, comm, measures);
}
