/* Losses: for each row the loss, whether the prediction is correct, and the gradient with respect to the scores. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

/* Sum of e^(z - maximum); the terms (c) are kept unless NULL. */
CPU_INLINE double loss_row_sum_exp(enum trm_value_type type, const void *z, float maximum, float *terms, size_t c)
{
  float buffer[CPU_BLOCK];
  double total = 0;

  for (size_t low = 0; low < c; low += CPU_BLOCK) {
    const size_t width = c - low < CPU_BLOCK ? c - low : CPU_BLOCK;
    float *term = terms ? terms + low : buffer;

#pragma omp simd
    for (size_t j = 0; j < width; j++)
      term[j] = math_exp(cpu_value(type, z, low + j) - maximum);
    total += cpu_lane_sum(term, width);
  }
  return total;
}

CPU_INLINE float loss_weight(const float *weight, size_t i)
{
  return weight ? weight[i] : 1;
}

/* Sum of w (maximum - z) over the classes, of weights w (c), NULL: 1: their summed losses without the log-sum-exp
 * terms. */
CPU_INLINE double loss_row_distance(enum trm_value_type type, const void *z, const float *weight, float maximum,
                                    size_t c)
{
  float term[CPU_BLOCK];
  double total = 0;

  for (size_t low = 0; low < c; low += CPU_BLOCK) {
    const size_t width = c - low < CPU_BLOCK ? c - low : CPU_BLOCK;

#pragma omp simd
    for (size_t j = 0; j < width; j++)
      term[j] = maximum - cpu_value(type, z, low + j);
    total += weight ? cpu_lane_product(TRM_VALUES_F32, weight + low, TRM_VALUES_F32, term, width)
                    : cpu_lane_sum(term, width);
  }
  return total;
}

/* Returns whether the label is the first class of maximum score. */
CPU_INLINE float loss_is_argmax(enum trm_value_type type, const void *z, float maximum, size_t label)
{
  if (!(cpu_value(type, z, label) >= maximum))
    return 0;
  for (size_t j = 0; j < label; j++)
    if (cpu_value(type, z, j) >= maximum)
      return 0;
  return 1;
}

/* Sets the gradient of classes that are not the target: dz = terms factor - uniform w, terms being the exponentials,
 * which may be dz, and w the weights (c), NULL: 1. */
CPU_INLINE void loss_set_gradient(enum trm_value_type type, void *dz, const float *terms, float factor, float uniform,
                                  const float *weight, size_t c)
{
  if (weight) {
#pragma omp simd
    for (size_t j = 0; j < c; j++)
      cpu_set(type, dz, j, terms[j] * factor - uniform * weight[j]);
  } else {
#pragma omp simd
    for (size_t j = 0; j < c; j++)
      cpu_set(type, dz, j, terms[j] * factor - uniform);
  }
}

struct softmax {
  const struct trm_softmax_cross_entropy *call;
  enum trm_value_type type;
  float *terms; /* (threads, C): exponentials, if the values are not floats */
};

CPU_INLINE void loss_softmax(enum trm_value_type type, const struct softmax *softmax, size_t low, size_t high)
{
  const struct trm_softmax_cross_entropy *it = softmax->call;
  const size_t c = it->c;

  for (size_t i = low; i < high; i++) {
    const void *z = cpu_at(type, it->z, i * it->ld);
    void *dz = it->dz ? cpu_at(type, it->dz, i * it->ld) : NULL;

    if (it->target[i] < 0 || (size_t)it->target[i] >= c) { /* the caller reports it unless it is ignored */
      const bool ignored = it->target[i] == TRM_IGNORE_INDEX;

      it->loss[i] = ignored ? 0 : NAN;
      if (it->correct)
        it->correct[i] = ignored ? -1 : 0;
      for (size_t j = 0; dz && j < c; j++)
        cpu_set(type, dz, j, ignored ? 0 : NAN);
      continue;
    }
    const size_t label = (size_t)it->target[i];
    const float maximum = cpu_lane_maximum(type, z, c), target_score = cpu_value(type, z, label);
    const float right = loss_is_argmax(type, z, maximum, label);
    const float weight = loss_weight(it->weight, i), share = it->smoothing, scale = weight * it->scale;
    const float uniform = scale * share / (float)c, of_class = loss_weight(it->class_weight, label);
    const double own = (1 - (double)share) * of_class, all = own + share; /* weights of the target, of all classes */
    const double distance = share > 0 ? loss_row_distance(type, z, it->class_weight, maximum, c) / (double)c : 0;
    float *term = dz ? cpu_place(type, dz, softmax->terms, c) : NULL;
    const double sum = loss_row_sum_exp(type, z, maximum, term, c); /* overwrites z if dz is z */

    it->loss[i] =
      (float)((double)weight * (all * log(sum) + own * ((double)maximum - target_score) + share * distance));
    if (it->correct)
      it->correct[i] = isnan(sum) ? 0 : right;
    if (dz) {
      const float factor = (float)(scale * all / sum), of_label = term[label] * factor - uniform * of_class;

      loss_set_gradient(type, dz, term, factor, uniform, it->class_weight, c);
      cpu_set(type, dz, label, of_label - scale * (float)own);
    }
  }
}

CPU_BODY_BY_TYPE(loss_softmax, softmax)

static void loss_check_targets(struct trm_device *device, const int32_t *target, size_t b, size_t c)
{
  for (size_t i = 0; i < b; i++)
    if (target[i] != TRM_IGNORE_INDEX && (target[i] < 0 || (size_t)target[i] >= c)) {
      cpu_fail(device, "softmax_cross_entropy: the target of row %zu is %d, but there are %zu classes", i,
               (int)target[i], c);
      break;
    }
}

void cpu_softmax_cross_entropy(struct trm_device *device, const struct trm_softmax_cross_entropy *call)
{
  loss_check_targets(device, call->target, call->b, call->c);
  const struct softmax it = {call, call->type, cpu_buffers(device, call->type, call->c)};

  cpu_for(device, call->b, 1, 8 * (double)call->c, loss_softmax_body, &it);
}

/* -- scores sharded by class */

static bool loss_is_class(int32_t label, size_t low, size_t high)
{
  return label >= 0 && (size_t)label >= low && (size_t)label < high;
}

/* Returns the weight of a label, which may be none of the c classes. */
static float loss_label_weight(const float *class_weight, int32_t label, size_t c)
{
  return class_weight && loss_is_class(label, 0, c) ? class_weight[label] : 1;
}

CPU_INLINE void loss_shard_stats(enum trm_value_type type, const struct trm_softmax_shard_stats *it, size_t low,
                                 size_t high)
{
  const size_t c = it->v.high - it->v.low;
  const float *weight = it->class_weight ? it->class_weight + it->v.low : NULL;
  double weights = 0;

  for (size_t j = 0; j < c; j++)
    weights += (double)loss_weight(weight, j);
  for (size_t i = low; i < high; i++) {
    const void *z = cpu_at(type, it->z, i * it->ld);
    const float maximum = cpu_lane_maximum(type, z, c);
    const int32_t label = it->target[i];
    float *to = it->stats + i * TRM_SCORES_FIELDS;
    size_t first = 0;

    while (first + 1 < c && !(cpu_value(type, z, first) >= maximum))
      first++;
    to[TRM_SCORES_MAX] = maximum;
    to[TRM_SCORES_ARGMAX] = (float)(it->v.low + first);
    to[TRM_SCORES_TARGET] =
      loss_is_class(label, it->v.low, it->v.high) ? cpu_value(type, z, (size_t)label - it->v.low) : -INFINITY;
    to[TRM_SCORES_DISTANCE] = (float)loss_row_distance(type, z, weight, maximum, c);
    to[TRM_SCORES_WEIGHT] = (float)weights;
    to[TRM_SCORES_SUM] = label == TRM_IGNORE_INDEX || loss_is_class(label, 0, it->v.total)
                           ? (float)loss_row_sum_exp(type, z, maximum, NULL, c)
                           : NAN;
  }
}

CPU_BODY_BY_TYPE(loss_shard_stats, trm_softmax_shard_stats)

void cpu_softmax_shard_stats(struct trm_device *device, const struct trm_softmax_shard_stats *call)
{
  loss_check_targets(device, call->target, call->b, call->v.total);
  cpu_for(device, call->b, 1, 8 * (double)(call->v.high - call->v.low), loss_shard_stats_body, call);
}

/* One row's fields of all shards combined: maximum score and sum of exponentials of the whole row; its loss, and
 * whether the prediction is correct. */
struct loss_row {
  double max, sum, loss;
  bool right;
};

static struct loss_row loss_join_row(const struct trm_softmax_shard_join *it, size_t i)
{
  const size_t ranks = it->ranks, r = it->b;
  const double smoothing = (double)it->smoothing;
  const double own = (1 - smoothing) * (double)loss_label_weight(it->class_weight, it->target[i], it->v.total);
  double max = 0, sum = 0, target_score = -INFINITY, distance = 0;
  float first = 0;

  for (size_t k = 0; k < ranks; k++) {
    const float *at = it->stats + (k * r + i) * TRM_SCORES_FIELDS;

    if (k == 0 || (double)at[TRM_SCORES_MAX] > max) { /* ties: the first */
      max = (double)at[TRM_SCORES_MAX];
      first = at[TRM_SCORES_ARGMAX];
    }
    target_score = fmax(target_score, (double)at[TRM_SCORES_TARGET]);
  }
  for (size_t k = 0; k < ranks; k++) {
    const float *at = it->stats + (k * r + i) * TRM_SCORES_FIELDS;
    const double shift = max - (double)at[TRM_SCORES_MAX];

    sum += (double)at[TRM_SCORES_SUM] * exp(-shift);
    distance += (double)at[TRM_SCORES_DISTANCE] + (double)at[TRM_SCORES_WEIGHT] * shift;
  }
  return (struct loss_row){max, sum,
                           (own + smoothing) * log(sum) + own * (max - target_score) +
                             (smoothing > 0 ? smoothing * distance / (double)it->v.total : 0),
                           !isnan(sum) && first == (float)it->target[i]};
}

static void loss_shard_join_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_softmax_shard_join *it = arguments;

  for (size_t i = low; i < high; i++) {
    const struct loss_row row = loss_join_row(it, i);
    const bool ignored = it->target[i] == TRM_IGNORE_INDEX;

    it->loss[i] = ignored ? 0 : (float)((double)loss_weight(it->weight, i) * row.loss);
    it->correct[i] = ignored ? -1 : row.right;
    it->max[i] = (float)row.max;
    it->sum[i] = (float)row.sum;
  }
}

void cpu_softmax_shard_join(struct trm_device *device, const struct trm_softmax_shard_join *call)
{
  cpu_for(device, call->b, 16, 16 * (double)call->ranks, loss_shard_join_body, call);
}

CPU_INLINE void loss_shard_gradient(enum trm_value_type type, const struct trm_softmax_shard_gradient *it, size_t low,
                                    size_t high)
{
  const size_t c = it->v.high - it->v.low;
  const float *weight = it->class_weight ? it->class_weight + it->v.low : NULL;

  for (size_t i = low; i < high; i++) {
    const void *z = cpu_at(type, it->z, i * it->ld);
    const int32_t label = it->target[i];
    const float scale = loss_weight(it->weight, i) * it->scale, max = it->max[i], share = it->smoothing;
    const float of_class = loss_label_weight(it->class_weight, label, it->v.total), own = (1 - share) * of_class;
    const float factor = scale * (own + share) / it->sum[i], uniform = scale * share / (float)it->v.total;
    float term[CPU_BLOCK];
    void *dz = cpu_at(type, it->dz, i * it->ld);

    if (label == TRM_IGNORE_INDEX) {
      for (size_t j = 0; j < c; j++)
        cpu_set(type, dz, j, 0);
      continue;
    }
    const bool is_here = loss_is_class(label, it->v.low, it->v.high);
    const size_t at = is_here ? (size_t)label - it->v.low : 0;
    const float of_label = math_exp(cpu_value(type, z, at) - max) * factor - uniform * of_class; /* dz may be z */

    for (size_t first = 0; first < c; first += CPU_BLOCK) {
      const size_t width = c - first < CPU_BLOCK ? c - first : CPU_BLOCK;

#pragma omp simd
      for (size_t j = 0; j < width; j++)
        term[j] = math_exp(cpu_value(type, z, first + j) - max);
      loss_set_gradient(type, cpu_at(type, dz, first), term, factor, uniform, weight ? weight + first : NULL, width);
    }
    if (is_here)
      cpu_set(type, dz, at, of_label - scale * own);
  }
}

CPU_BODY_BY_TYPE(loss_shard_gradient, trm_softmax_shard_gradient)

void cpu_softmax_shard_gradient(struct trm_device *device, const struct trm_softmax_shard_gradient *call)
{
  cpu_for(device, call->b, 1, 8 * (double)(call->v.high - call->v.low), loss_shard_gradient_body, call);
}

/* -- targets that are numbers */

enum value_loss { SQUARES, HUBER, BINARY };

CPU_INLINE float loss_of_value(enum value_loss kind, float z, float target, float delta)
{
  const float e = z - target, distance = fabsf(e);

  if (kind == BINARY)
    return (z > 0 ? z : 0) - target * z + log1pf(expf(-fabsf(z)));
  if (kind == HUBER)
    return distance <= delta ? e * e / 2 : delta * (distance - delta / 2);
  return e * e;
}

/* The derivative by z. */
CPU_INLINE float loss_slope(enum value_loss kind, float z, float target, float delta)
{
  const float e = z - target;

  if (kind == BINARY)
    return math_sigmoid(z) - target;
  if (kind == HUBER)
    return e > delta ? delta : e < -delta ? -delta : e;
  return 2 * e;
}

/* Returns 1 if the sign of each score says whether its target is 1. */
CPU_INLINE float loss_labels_match(enum trm_value_type type, const void *z, const float *t, size_t f)
{
  for (size_t j = 0; j < f; j++)
    if ((cpu_value(type, z, j) > 0) != (t[j] > 0))
      return 0;
  return 1;
}

CPU_INLINE void loss_values(enum value_loss kind, enum trm_value_type type, const struct trm_value_loss *it, size_t low,
                            size_t high)
{
  const size_t f = it->f;
  const float factor = it->scale / (float)f, delta = it->delta;

  for (size_t i = low; i < high; i++) {
    const void *z = cpu_at(type, it->z, i * it->ld);
    const float *t = it->target + i * f;
    float term[CPU_BLOCK];
    double total = 0;

    for (size_t first = 0; first < f; first += CPU_BLOCK) {
      const size_t width = f - first < CPU_BLOCK ? f - first : CPU_BLOCK;

      if (kind == BINARY) { /* has no vector form: a logarithm */
        for (size_t j = 0; j < width; j++)
          term[j] = loss_of_value(kind, cpu_value(type, z, first + j), t[first + j], delta);
      } else {
#pragma omp simd
        for (size_t j = 0; j < width; j++)
          term[j] = loss_of_value(kind, cpu_value(type, z, first + j), t[first + j], delta);
      }
      total += cpu_lane_sum(term, width);
    }
    it->loss[i] = (float)(total / (double)f);
    if (it->correct)
      it->correct[i] = kind == BINARY && !isnan(total) ? loss_labels_match(type, z, t, f) : 0;
    if (it->dz) {
      void *dz = cpu_at(type, it->dz, i * it->ld);

#pragma omp simd
      for (size_t j = 0; j < f; j++)
        cpu_set(type, dz, j, factor * loss_slope(kind, cpu_value(type, z, j), t[j], delta));
    }
  }
}

CPU_INLINE void loss_squares(enum trm_value_type type, const struct trm_value_loss *it, size_t low, size_t high)
{
  loss_values(SQUARES, type, it, low, high);
}

CPU_INLINE void loss_huber(enum trm_value_type type, const struct trm_value_loss *it, size_t low, size_t high)
{
  loss_values(HUBER, type, it, low, high);
}

CPU_INLINE void loss_binary(enum trm_value_type type, const struct trm_value_loss *it, size_t low, size_t high)
{
  loss_values(BINARY, type, it, low, high);
}

CPU_BODY_BY_TYPE(loss_squares, trm_value_loss)
CPU_BODY_BY_TYPE(loss_huber, trm_value_loss)
CPU_BODY_BY_TYPE(loss_binary, trm_value_loss)

void cpu_mean_squared_error(struct trm_device *device, const struct trm_value_loss *call)
{
  cpu_for(device, call->b, 1, 2 * (double)call->f, loss_squares_body, call);
}

void cpu_huber(struct trm_device *device, const struct trm_value_loss *call)
{
  cpu_for(device, call->b, 1, 2 * (double)call->f, loss_huber_body, call);
}

void cpu_binary_cross_entropy(struct trm_device *device, const struct trm_value_loss *call)
{
  cpu_for(device, call->b, 1, 8 * (double)call->f, loss_binary_body, call);
}

/* One score per row. Predicts its sign, -1 for 0; NaN is never correct. */
CPU_INLINE void loss_margin(enum trm_value_type type, const struct trm_margin_loss *it, bool hinge, size_t low,
                            size_t high)
{
  for (size_t i = low; i < high; i++) {
    const float z = cpu_value(type, it->z, i), t = it->target[i], margin = t * z;

    if (hinge)
      it->loss[i] = margin >= 1 ? 0 : 1 - margin;
    else
      it->loss[i] = (margin < 0 ? -margin : 0) + log1pf(expf(-fabsf(margin)));
    if (it->correct)
      it->correct[i] = t > 0 ? z > 0 : z <= 0;
    if (it->dz && hinge)
      cpu_set(type, it->dz, i, margin >= 1 ? 0 : isnan(margin) ? margin : -t * it->scale);
    else if (it->dz)
      cpu_set(type, it->dz, i, -t * it->scale / (1 + expf(margin)));
  }
}

CPU_INLINE void loss_logistic(enum trm_value_type type, const struct trm_margin_loss *it, size_t low, size_t high)
{
  loss_margin(type, it, false, low, high);
}

CPU_INLINE void loss_hinge(enum trm_value_type type, const struct trm_margin_loss *it, size_t low, size_t high)
{
  loss_margin(type, it, true, low, high);
}

CPU_BODY_BY_TYPE(loss_logistic, trm_margin_loss)
CPU_BODY_BY_TYPE(loss_hinge, trm_margin_loss)

void cpu_logistic(struct trm_device *device, const struct trm_margin_loss *call)
{
  cpu_for(device, call->b, 16, 2, loss_logistic_body, call);
}

void cpu_hinge(struct trm_device *device, const struct trm_margin_loss *call)
{
  cpu_for(device, call->b, 16, 2, loss_hinge_body, call);
}

/* -- sums over the rows */

/* Pairwise: the error grows with the logarithm of n. */
static double loss_sum_pairwise(const float *x, size_t n)
{
  if (n > 32)
    return loss_sum_pairwise(x, n / 2) + loss_sum_pairwise(x + n / 2, n - n / 2);
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += (double)x[i];
  return sum;
}

void cpu_sum_losses(struct trm_device *device, const struct trm_sum_losses *call)
{
  struct trm_step *step = call->step;
  size_t correct = 0, counted = 0;

  (void)device;
  for (size_t i = 0; i < call->rows; i++) {
    correct += call->correct[i] > 0;
    counted += !(call->correct[i] < 0);
  }
  step->loss += loss_sum_pairwise(call->loss, call->rows);
  step->correct += (double)correct;
  step->rows += (double)counted;
}
