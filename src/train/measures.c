/* Measures from scores: sums and counts of each row as it comes, and the AUC from the kept scores. */
#include "train/measures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

enum { TOP = 5, BINS = 15, MAX_KEPT = 1 << 26 /* elements of 4 bytes, of all ranks */ };

/* Rows whose scores are kept. */
struct measures_block {
  struct measures_block *next;
  size_t rows;
  int32_t *label;  /* (rows) behind the scores */
  float scores[];  /* (rows, c) */
};

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
  struct measures_block *first;     /* owned */
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
  return measures_classifies(loss, spec) && rows <= MAX_KEPT / (measures_scores(loss, spec) + 3);
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
    trm_info("AUC: left out: %zu rows of %zu scores would take more than %d MiB", rows, m->c, MAX_KEPT >> 18);
  measures_allocate_counts(m, confusion ? m->classes * m->classes : 0);
  m->p = trm_alloc(m->classes * sizeof *m->p, "measures");
  return m;
}

void trm_measurement_free(struct trm_measurement *m)
{
  if (!m)
    return;
  while (m->first) {
    struct measures_block *next = m->first->next;
    trm_free(m->first);
    m->first = next;
  }
  trm_free(m->count);
  trm_free(m->p);
  trm_free(m->value);
  trm_free(m);
}

size_t trm_measurement_bytes(const struct trm_loss *loss, const struct trm_input_spec *spec, size_t rows, int ranks)
{
  const size_t each = (rows + (size_t)ranks - 1) / (size_t)ranks;
  if (spec->tokens || !measures_keeps(loss, spec, rows))
    return 0;
  return each * (measures_scores(loss, spec) + 1) * sizeof(float) /* blocks */
         + (each * ((size_t)ranks + 1) + rows) * (sizeof(double) + sizeof(int32_t));
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

static void measures_keep(struct trm_measurement *m, size_t rows, const float *scores, const int32_t *label)
{
  const size_t n = rows * m->c;
  struct measures_block *block = trm_alloc(sizeof *block + n * sizeof(float) + rows * sizeof(int32_t), "scores");
  block->rows = rows;
  block->next = m->first;
  block->label = (int32_t *)(block->scores + n);
  memcpy(block->scores, scores, n * sizeof *scores);
  memcpy(block->label, label, rows * sizeof *label);
  m->first = block;
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
    measures_keep(m, rows, scores, label);
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

/* -- the area under the ROC curve: the fraction of pairs, of a row of the class and one of another, in which the first
 * has the higher probability; pairs of equal ones count half (Hanley and McNeil 1982). Every rank has the sorted
 * probabilities of the rows of each class, and looks up those of its own rows in the other classes. */

struct measures_area {
  double *sorted;  /* (rows of these classes) probabilities of a class's own rows, class by class */
  size_t *begin;   /* (classes + 1) */
  int64_t *wins;   /* (classes) twice the pairs */
};

static int measures_compare(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of two classes, class 0 has the same area as class 1: it is left out. */
static size_t measures_first_class(const struct trm_measurement *m)
{
  return m->classes == 2;
}

/* Sets m->p to what orders the rows of each class. */
static void measures_order(struct trm_measurement *m, const float *scores)
{
  if (m->c == 1)
    m->p[1] = (double)scores[0];
  else
    trm_predicted_probabilities(scores, m->c, m->p);
}

/* Collective. Gathers the probabilities of each class's own rows and sorts them. */
static void measures_gather(struct trm_measurement *m, struct trm_comm *comm, struct measures_area *area)
{
  int64_t rows = 0, n = 0;
  for (const struct measures_block *b = m->first; b; b = b->next)
    rows += (int64_t)b->rows;
  comm->ops->allreduce(comm, &rows, 1, TRM_INT64, TRM_MAX);
  const size_t each = (size_t)rows, all = each * (size_t)comm->size;
  double *own = trm_alloc((each + all) * sizeof *own, "probabilities"), *gathered = own + each;
  int32_t *class = trm_alloc((each + all) * sizeof *class, "classes"), *gathered_class = class + each;
  for (const struct measures_block *b = m->first; b; b = b->next)
    for (size_t i = 0; i < b->rows; i++) {
      measures_order(m, b->scores + i * m->c);
      own[n] = m->p[b->label[i]];
      class[n++] = b->label[i];
    }
  for (; n < rows; n++) {
    own[n] = 0;
    class[n] = -1;
  }
  comm->ops->allgather(comm, own, gathered, each, TRM_DOUBLE);
  comm->ops->allgather(comm, class, gathered_class, each, TRM_INT32);
  area->begin[0] = 0;
  for (size_t k = 0; k < m->classes; k++)
    area->begin[k + 1] = area->begin[k] + (size_t)m->support[k];
  area->sorted = trm_alloc((area->begin[m->classes] + 1) * sizeof *area->sorted, "probabilities");
  for (size_t i = 0; i < all; i++)
    if (gathered_class[i] >= 0)
      area->sorted[area->begin[gathered_class[i]]++] = gathered[i];
  for (size_t k = m->classes; k > 0; k--) /* they have moved to the ends */
    area->begin[k] = area->begin[k - 1];
  area->begin[0] = 0;
  for (size_t k = 0; k < m->classes; k++)
    qsort(area->sorted + area->begin[k], (size_t)m->support[k], sizeof *area->sorted, measures_compare);
  trm_free(own);
  trm_free(class);
}

/* Returns the number of sorted values below x, or with `equal` up to it. */
static size_t measures_below(const double *sorted, size_t n, double x, bool equal)
{
  size_t low = 0;
  while (low < n) {
    const size_t middle = (low + n) / 2;
    if (sorted[middle] < x || (equal && sorted[middle] == x))
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

static void measures_count_wins(struct trm_measurement *m, const struct measures_area *area)
{
  for (const struct measures_block *b = m->first; b; b = b->next)
    for (size_t i = 0; i < b->rows; i++) {
      measures_order(m, b->scores + i * m->c);
      for (size_t k = measures_first_class(m); k < m->classes; k++) {
        const double *sorted = area->sorted + area->begin[k];
        const size_t n = (size_t)m->support[k];
        if ((size_t)b->label[i] != k)
          area->wins[k] += (int64_t)(2 * n - measures_below(sorted, n, m->p[k], false) -
                                     measures_below(sorted, n, m->p[k], true));
      }
    }
}

/* Collective. */
static double measures_auc(struct trm_measurement *m, struct trm_comm *comm)
{
  struct measures_area area = {.begin = trm_alloc((m->classes + 1) * sizeof *area.begin, "classes"),
                               .wins = trm_alloc(m->classes * sizeof *area.wins, "pairs")};
  double sum = 0;
  int areas = 0;
  measures_gather(m, comm, &area);
  measures_count_wins(m, &area);
  comm->ops->allreduce(comm, area.wins, m->classes, TRM_INT64, TRM_SUM);
  for (size_t k = measures_first_class(m); k < m->classes; k++) {
    const double own = (double)m->support[k], others = (double)m->count[0] - own;
    if (own > 0 && others > 0) {
      sum += (double)area.wins[k] / (2 * own * others);
      areas++;
    }
  }
  trm_free(area.sorted);
  trm_free(area.begin);
  trm_free(area.wins);
  return areas > 0 ? sum / areas : NAN;
}

/* The ranks of a virtual network are in one process: the first computes the AUC with the rows of all. Collective. */
static double measures_auc_of_process(struct trm_measurement *m, struct trm_comm *comm)
{
  struct trm_measurement **all = trm_alloc((size_t)comm->size * sizeof *all, "measures");
  double auc = NAN;
  comm->ops->allgather(comm, &m, all, sizeof m, TRM_BYTE);
  for (int rank = 1; rank < comm->size && comm->rank == 0; rank++)
    while (all[rank]->first) {
      struct measures_block *block = all[rank]->first;
      all[rank]->first = block->next;
      block->next = m->first;
      m->first = block;
    }
  if (comm->rank == 0)
    auc = measures_auc(m, trm_comm_self());
  comm->ops->broadcast(comm, &auc, 1, TRM_DOUBLE, 0);
  trm_free(all);
  return auc;
}

static double measures_auc_of_ranks(struct trm_measurement *m, struct trm_comm *comm)
{
  struct trm_comm *process = comm->ops->split_node(comm, TRM_SHARE_PROCESS);
  const bool one = process->size == comm->size && comm->size > 1;
  process->ops->release(process);
  return one ? measures_auc_of_process(m, comm) : measures_auc(m, comm);
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
  measures->value[TRM_AUC] = m->keeps ? measures_auc_of_ranks(m, comm) : NAN;
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
