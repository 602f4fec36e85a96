/* The kernels: arithmetic on arrays of a device, one struct of arguments each, and their list.
 *
 * All arrays are device memory, float32 unless said otherwise, row-major, packed. Values, which are activations, their
 * gradients, and the copies of weights that products read, are float32 or bfloat16 (train.activations): arrays of type
 * void, all those of a call of its `type`. Kernels compute and add in float32, and round a result once, to the nearest
 * value, ties to even.
 *
 * A call is written as
 *   device->ops->bias_add(device, &(struct trm_bias_add){.y = y, .bias = bias, .b = b, .n = n});
 * What is not named is 0, false or NULL. The struct, and what it points to in host memory, is free when the call
 * returns. Its comment has the formula, the shapes, and which arrays may be NULL or the same; others may not overlap.
 *
 * Legend of shapes: B rows (samples) of the batch, F features, N outputs, K inputs; of sequences T positions per
 * sample, R = B T rows in all, D values per position, H heads of E = D / H values, V tokens of the vocabulary.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/api.h"
#include "core/bfloat16.h"
#include "core/choices.h"

TRM_BEGIN_DECLS

/* C (m, n) = alpha * op(A) (m, k) * op(B) (k, n) + beta * C; row-major; ld in elements. beta = 0 never reads C. A
 * and B are of one type, C has its own; in bfloat16, beta is 0: libraries round the product before they add C. */
struct trm_gemm {
  bool transpose_a, transpose_b;
  size_t m, n, k;
  float alpha;
  const void *a;
  size_t lda;
  const void *b;
  size_t ldb;
  float beta;
  void *c;
  size_t ldc;
  enum trm_value_type type_ab, type_c;
};

enum trm_activation {
  TRM_RELU,
  TRM_TANH,
  TRM_SIGMOID,
  TRM_GELU,      /* x * Phi(x), exact (erf) */
  TRM_GELU_TANH, /* the tanh approximation (Hendrycks & Gimpel 2016) */
  TRM_SILU,      /* x * sigmoid(x) */
  /* not of fused kernels: */
  TRM_LEAKY_RELU, /* x above 0, elsewhere slope * x */
  TRM_SCALE,      /* slope * x */
};

/* A batch of sparse rows on the device, CSR, zero-based: row i has the entries from starts[i] - starts[0] on. */
struct trm_csr {
  const int64_t *starts;  /* (B + 1) */
  const int32_t *columns; /* (entries) ascending within a row */
  const float *values;    /* (entries) */
  size_t rows, features, entries; /* entries: starts[B] - starts[0] */
};

/* One sparse row. */
struct trm_sparse_row {
  const int32_t *columns; /* (entries) ascending, zero-based */
  const float *values;    /* (entries) */
  size_t entries;
};

/* Stochastic updates of a linear model with one score z = w . x + bias, w (K), in the order of the rows. The rows of an
 * update are scored with the weights as they are before it; then, row after row, for each feature j of a row
 *   w_j = (w_j - rate / k * dloss/dz * x_j) * (1 - rate / k * shrink_j), k the rows of the update
 * and the bias, which does not shrink, takes its step. One row an update: Hogwild! (Niu, Recht, Re, Wright 2011); their
 * support vector machine has shrink_j = mu / number of rows with feature j. Several: HogBatch (Sallinen et al.
 * 2016). */
enum trm_margin { TRM_MARGIN_HINGE, TRM_MARGIN_LOGISTIC }; /* max(0, 1 - t z), log(1 + exp(-t z)); t in {-1, +1} */
struct trm_races; /* below */
struct trm_sparse_sgd {
  enum trm_margin loss;
  float rate;
  size_t update_rows;         /* rows of an update, the last one may have fewer; 0: all */
  const float *shrink;     /* (K) NULL: none */
  const struct trm_races *races; /* NULL: nothing is counted, which is faster */
};

/* Counters that make races visible, from 0, in memory of all ranks that share w. */
struct trm_races {
  uint64_t *writers; /* atomic: updates that have begun to write, of all ranks */
  uint32_t *written; /* (K) for each weight: counted with a load and a store, as the weight is changed; what all ranks
                      * together have written (sums.written) and is missing here was lost, modulo 2^32 a weight */
};

/* Over the rows of a call. */
struct trm_sparse_sums {
  double loss, correct; /* before the update of each row */
  uint64_t updates;     /* that changed weights */
  uint64_t written;     /* weights stored */
  uint64_t conflicts;   /* with races: updates between whose first load and last store another rank began to write */
};

/* Windows over images, of convolution and pooling. Pairs are (along the height, along the width). */
struct trm_window2d {
  size_t kernel[2], stride[2], pad[2]; /* pad: on both sides */
  size_t in[2], out[2];                /* (H, W), (OH, OW); OH = (H + 2 pad - kernel) / stride + 1 */
};

/* A convolution in the sense of neural networks (a correlation): C channels, N units, in G independent groups:
 * units [g N/G, (g+1) N/G) read channels [g C/G, (g+1) C/G). x_last, y_last: x and its gradient, y and its gradient
 * have the channels last, (B, H, W, C); only on devices with channels_last. */
struct trm_conv2d {
  struct trm_window2d window;
  size_t channels, units, groups;
  uint32_t x_last, y_last;
};

/* Batch normalization over samples of C channels of S values each. */
struct trm_batch_norm {
  size_t channels, size; /* C, S; S = 1 for vectors, and for positions of images with the channels last */
  double count;          /* divisor of the sums: values of a channel in the batch, on all ranks */
  float epsilon;
  const double *counted; /* device: the count; NULL: count is */
};

/* A training step's numbers, in device memory: calls that read them there have the same arguments in every step. The
 * host writes all before the step; the kernels sum_losses, norm_squared and clip make the sums, scale and skip. */
struct trm_step {
  uint64_t number;    /* of the update, 1-based */
  uint64_t first_row; /* global position in the run of the batch's row 0 */
  float rate;         /* learning rate */
  float average;      /* weight of the new weights in their average */
  float scale;        /* of the gradient */
  int32_t skip;       /* not 0: the loss is not finite, and updates change nothing */
  double norm_squared;         /* of the gradient */
  double loss, correct, rows;  /* sums over the rows */
};

/* The keyed position of a dropout mask: element (i, f) draws index (first_row + i) * stride + offset + f. */
struct trm_mask {
  uint64_t seed;
  uint32_t stream;    /* layer number */
  uint64_t first_row; /* global position of row 0 in the run: step * batch + position */
  const struct trm_step *step; /* NULL, or: step->first_row * row_parts is added to first_row */
  uint64_t row_parts;          /* rows for each row of the batch */
  float rate;         /* probability of zero, [0, 1) */
  uint64_t stride;    /* features of a full row, of which these are a shard that begins at offset; 0: not sharded */
  uint64_t offset;
};

/* The rows [low, high) of a table of `total` tokens, or of as many classes, that this rank has. */
struct trm_vocab_shard {
  size_t low, high, total;
};

/* Statistics of one shard of a row of scores (C): the largest one m, which is the first of them (its place among all
 * classes), sum of exp(z - m), the target's score (-infinity: it is not here), sum of w (m - z), sum of the classes'
 * weights w. */
enum {
  TRM_SCORES_MAX, TRM_SCORES_ARGMAX, TRM_SCORES_SUM, TRM_SCORES_TARGET, TRM_SCORES_DISTANCE, TRM_SCORES_WEIGHT,
  TRM_SCORES_FIELDS
};

/* Shape of an attention. */
struct trm_attention {
  size_t b, t, heads, head_dim; /* B, T, H, E */
  bool causal;               /* position t sees positions 0..t, otherwise all */
  size_t first;              /* forward and rotary alone: the first position that is computed, below T */
};

#define TRM_IGNORE_INDEX (-1) /* a target that does not count */

/* An update takes this from the step in device memory. */
enum trm_step_use {
  TRM_STEP_RULE,    /* number, scale; rates are multiplied by the rate */
  TRM_STEP_SCALE,   /* scale alone */
  TRM_STEP_RATE,    /* rates are multiplied by the rate */
  TRM_STEP_AVERAGE, /* the rate: the weight of the average */
  TRM_STEP_SKIP,    /* nothing */
};

/* Elements from the end of the run before, the first from 0, with constants of their own. */
struct trm_update_run {
  size_t end;
  float rate, l2, decay; /* instead of those of struct trm_update */
  int ratio;             /* index of a factor of the rate */
};

/* One optimizer update over an interval of the flat arrays; see nn/optimizer.h for the rules. */
struct trm_update {
  enum trm_update_rule rule;
  float rate;       /* learning rate of this step */
  float scale;      /* multiplies the gradient first (clipping) */
  float l2;         /* added to the gradient: l2 * w */
  float decay;      /* decoupled: w -= rate * decay * w */
  float momentum;
  float beta1, beta2, epsilon;
  uint64_t step;    /* 1-based, for the bias correction of adam, nadamw and lamb */
  int batches;      /* that the gradient is of, 0: one; for statistics, which the optimizer updates */
  const struct trm_step *now; /* device: what differs from step to step; NULL: all is as given here */
  enum trm_step_use use;      /* of it */
};

/* -- products */

/* y (B, N) = x (B, K) w^T */
struct trm_csr_forward {
  struct trm_csr x;
  const float *w; /* (N, K) */
  void *y;
  size_t n;
  enum trm_value_type type;
};

/* dw (N, K) = beta * dw + dy^T x; beta is 0 or 1 */
struct trm_csr_backward {
  struct trm_csr x;
  const void *dy; /* (B, N) */
  float beta;
  float *dw;
  size_t n;
  enum trm_value_type type;
};

/* Updates w (K) and bias (1; NULL: none), which other ranks load and store at the same time: loads and stores of one
 * value are atomic, updates are not. Host pointers, one thread; complete on return. */
struct trm_sparse_sgd_rows {
  struct trm_sparse_sgd sgd;
  const struct trm_sparse_row *row; /* (rows) */
  const float *target;              /* (rows) */
  float *w, *bias;
  struct trm_sparse_sums *sums;
  size_t rows;
};

/* -- rows */

/* y (B, N) += bias (N) */
struct trm_bias_add {
  void *y;
  const float *bias;
  size_t b, n;
  enum trm_value_type type;
};

/* db (N) = beta * db + column sums of dy (B, N), blocked summation */
struct trm_bias_backward {
  const void *dy;
  float beta;
  float *db;
  size_t b, n;
  enum trm_value_type type;
};

/* y (n) = f(x); y may be x */
struct trm_activation_forward {
  enum trm_activation kind;
  float slope; /* of leaky_relu and scale */
  const void *x;
  void *y;
  size_t n;
  enum trm_value_type type;
};

/* dx (n) = dy * f'(x); dx may be dy. Relu, leaky_relu, tanh and sigmoid read y alone (x may be NULL); gelu and silu
 * read x alone (y may be NULL); scale reads neither. */
struct trm_activation_backward {
  enum trm_activation kind;
  float slope; /* of leaky_relu, at least 0, and scale */
  const void *x, *y, *dy;
  void *dx;
  size_t n;
  enum trm_value_type type;
};

/* y (B, F) = x * keep / (1 - rate): forward with activations, backward with gradients, the same mask. y may be x. */
struct trm_dropout {
  struct trm_mask mask;
  const void *x;
  void *y;
  size_t b, f;
  enum trm_value_type type;
};

/* Normalized rows: y (R, D) = (x - mean) * scale * gain + bias, scale = 1 / sqrt(mean of (x - mean)^2 + epsilon).
 * mean (R) and scale (R) are saved for backward. mean NULL: taken as 0 (RMS norm). */
struct trm_norm_forward {
  const void *x;            /* (R, D) */
  const float *gain, *bias; /* (D), (D) or NULL: none */
  float epsilon;
  void *y;
  float *mean, *scale;
  size_t r, d;
  enum trm_value_type type;
};

/* dx (R, D) (NULL: not computed; may be dy); dgain (D), dbias (D) or NULL = beta * old value + sums over the rows */
struct trm_norm_backward {
  const void *x, *dy;
  const float *gain, *mean, *scale;
  void *dx;
  float beta;
  float *dgain, *dbias;
  size_t r, d;
  enum trm_value_type type;
};

/* -- sequences */

/* y (R, D) = rows of w (V, D), rows [low, high) of the full table, or zeros for tokens of other rows; a token outside
 * the full table is a failure */
struct trm_embedding_forward {
  const int32_t *token; /* (R) */
  const float *w;
  void *y;
  size_t r, d;
  struct trm_vocab_shard v;
  enum trm_value_type type;
};

/* dw (V, D) = beta * dw + sum of the rows of dy (R, D) at the positions of each token */
struct trm_embedding_backward {
  const int32_t *token; /* (R) */
  const void *dy;
  float beta;
  float *dw;
  size_t r, d;
  struct trm_vocab_shard v;
  enum trm_value_type type;
};

/* y (B, T - first, H, E) = softmax(q k^T / sqrt(E)) v for each head, of the queries from `first` on; qkv (B, T, 3, H, E)
 * holds queries, keys, values. row (B, H, T - first, 2), saved for backward: the largest scaled score m, and 1 / sum of
 * exp(score - m). */
struct trm_attention_forward {
  struct trm_attention shape;
  const void *qkv;
  void *y;
  float *row;
  enum trm_value_type type;
};

/* dqkv (B, T, 3, H, E) from dy (B, T, H, E), qkv, y and row of forward; overwrites dqkv */
struct trm_attention_backward {
  struct trm_attention shape;
  const void *qkv, *y, *dy;
  const float *row;
  void *dqkv;
  enum trm_value_type type;
};

/* Rotary positions (Su et al. 2021) on the queries and keys of x (B, T - first, 3, H, E), in place: values j and j + E/2
 * of a head, E even, of position t are rotated by the angle t * base^(-2j/E); inverse: by minus that, which is the
 * gradient. */
struct trm_rotary {
  struct trm_attention shape;
  float base;
  bool inverse;
  void *x;
  enum trm_value_type type;
};

/* y (R, F) = silu(a) * b of x (R, 2, F), a first; silu(a) = a * sigmoid(a) */
struct trm_swiglu_forward {
  const void *x;
  void *y;
  size_t r, f;
  enum trm_value_type type;
};

/* dx = the gradient of both halves of x */
struct trm_swiglu_backward {
  const void *x, *dy; /* (R, 2, F), (R, F) */
  void *dx;           /* (R, 2, F) */
  size_t r, f;
  enum trm_value_type type;
};

/* -- images, (B, C, H, W) and (B, N, OH, OW), or with the channels last, (B, H, W, C) and (B, OH, OW, N) */

/* y = x * w + bias; w (N, C / G, KH, KW), values, bias (N) or NULL. weights_kept: w has the values of the call before
 * that read it, so that a copy in another layout may be kept. */
struct trm_conv2d_forward {
  struct trm_conv2d conv;
  const void *x, *w;
  const float *bias;
  void *y;
  size_t b;
  bool weights_kept;
  enum trm_value_type type;
};

/* dw (N, C / G, KH, KW) (NULL: not computed, nor is db) = beta * dw + .., of x and dy (B, N, OH, OW); db (N) likewise
 * (NULL: not computed); dx (B, C, H, W) (NULL: not computed) of dy and w; beta is 0 or 1 */
struct trm_conv2d_backward {
  struct trm_conv2d conv;
  const void *x, *w, *dy;
  float beta;
  float *dw, *db;
  void *dx;
  size_t b;
  enum trm_value_type type;
};

/* planes = B * C; last: C, if the arrays have the channels last, else 0. argmax (planes, OH, OW), or like y with the
 * channels last, or NULL without backward: index in its plane of the largest element, the first of equal ones; NaN is
 * larger than all. Padding is never chosen: pad < kernel. Only devices with channels_last have calls with `last`. */
struct trm_max_pool_forward {
  struct trm_window2d window;
  const void *x;
  void *y;
  int32_t *argmax;
  size_t planes, last;
  enum trm_value_type type;
};

/* dx = the sum of dy over the windows whose largest element it was; overwrites dx */
struct trm_max_pool_backward {
  struct trm_window2d window;
  const void *dy;
  const int32_t *argmax;
  void *dx;
  size_t planes, last;
  enum trm_value_type type;
};

/* The mean over the window; padding counts as zeros. */
struct trm_avg_pool_forward {
  struct trm_window2d window;
  const void *x;
  void *y;
  size_t planes, last;
  enum trm_value_type type;
};

/* dx = the sum of dy / (KH KW) over the windows that an element is in; overwrites dx */
struct trm_avg_pool_backward {
  struct trm_window2d window;
  const void *dy;
  void *dx;
  size_t planes, last;
  enum trm_value_type type;
};

/* -- batch normalization, x (B, C, S); mean, square, w, bias (C); z = (x - mean) / sqrt(square / count + epsilon) */

/* moments (2, C): mean, and the sum of squares about it */
struct trm_batch_norm_moments {
  struct trm_batch_norm bn;
  const void *x;
  float *moments;
  size_t b;
  enum trm_value_type type;
};

/* y = f(z * w + bias + addend), z * w + bias rounded to the type first; y may be x, and it may be addend */
struct trm_batch_norm_forward {
  struct trm_batch_norm bn;
  const void *x;
  const float *mean, *square, *w, *bias;
  const void *addend; /* (B, C, S); NULL: none */
  bool relu;          /* f; otherwise the identity */
  void *y;
  size_t b;
  enum trm_value_type type;
};

/* Inference: z (B, N, OH, OW) = f(norm(x * w + bias) + addend), in place of conv.y; conv.weights_kept: the norm's
 * arrays have the values of that call, too. addend may be z. A blocked array of C channels, a multiple of
 * TRM_CHANNEL_BLOCK, has the device's own layout, in as many elements: only such calls read and write it. */
enum { TRM_CHANNEL_BLOCK = 16 };
struct trm_conv2d_fused {
  struct trm_conv2d_forward conv;
  struct trm_batch_norm_forward norm; /* mean, square, w and bias alone; mean NULL: none */
  const void *addend;                 /* blocked; NULL: none */
  bool relu;                          /* f; otherwise the identity */
  bool x_blocked, z_blocked;
};

/* sums (2, C): of dy, and of dy * z. relu: dy is the gradient of relu(z * w + bias), and counts as 0 where that is 0 */
struct trm_batch_norm_sums {
  struct trm_batch_norm bn;
  const void *x, *dy;
  const float *mean, *square;
  const float *w, *bias; /* read with relu alone */
  bool relu;
  float *sums;
  size_t b;
  enum trm_value_type type;
};

/* db (C) = beta * db + sums[0], dw (C) with sums[1]; the moving moments' gradients dmean (C) = beta * dmean + share *
 * moments[0], dvariance (C) with share / (count - 1) * moments[1], or share where the count is 1 */
struct trm_batch_norm_gradients {
  struct trm_batch_norm bn;
  const float *sums, *moments; /* (2, C) */
  double share;
  float beta;
  float *dw, *db, *dmean, *dvariance;
};

/* dx = w / sqrt(square / count + epsilon) * (dy - sums[0] / count - z * sums[1] / count); dx may be dy. relu: as in
 * trm_batch_norm_sums */
struct trm_batch_norm_backward {
  struct trm_batch_norm bn;
  const void *x, *dy;
  const float *mean, *square, *w, *sums;
  const float *bias; /* read with relu alone */
  bool relu;
  void *dx;
  size_t b;
  enum trm_value_type type;
};

/* -- losses. z (B, C) scores, values. Each writes per row: loss (B), correct (B) in {0, 1} (NULL: not computed), and
 * the gradient dz (B, C) = scale * d loss / dz (NULL: not computed; may be z). Rows of both are ld values apart, at
 * least C; what lies between them is neither read nor written. */

/* With p = softmax(z), target t, weights w of the classes, and smoothing s in [0, 1), the part of the target that is
 * spread over all classes (Szegedy et al. 2016):
 *   loss = weight ((1 - s) w_t (-log p_t) + s / C sum_c w_c (-log p_c))
 * A row whose target is TRM_IGNORE_INDEX has loss 0, gradient 0 and correct -1. */
struct trm_softmax_cross_entropy {
  const void *z;
  const int32_t *target;     /* (B) */
  const float *weight;       /* (B); NULL: 1 */
  const float *class_weight; /* w (C), whose mean is 1; NULL: 1 */
  float scale, smoothing;
  float *loss, *correct;
  void *dz;
  size_t b, c, ld;
  enum trm_value_type type;
};

/* The same of scores (B, C) that are the classes [low, high) of each row, in two steps. stats (B, TRM_SCORES_FIELDS)
 * from z; a target that is no class of the whole is a failure, its row's sum is NaN. */
struct trm_softmax_shard_stats {
  const void *z;
  const int32_t *target;     /* (B) */
  const float *class_weight; /* (v.total) */
  struct trm_vocab_shard v;
  float *stats;
  size_t b, ld;
  enum trm_value_type type;
};

/* From the stats of all shards, (ranks, B, TRM_SCORES_FIELDS): the whole rows' loss (B), correct (B), max (B) and
 * sum (B). */
struct trm_softmax_shard_join {
  const float *stats;
  const int32_t *target;     /* (B) */
  const float *weight;       /* (B); NULL: 1 */
  const float *class_weight; /* (v.total) */
  struct trm_vocab_shard v;
  size_t ranks;
  float smoothing;
  float *loss, *correct, *max, *sum;
  size_t b;
};

/* Then, with max and sum: dz (B, C) = weight scale (((1 - s) w_t + s) exp(z - max) / sum - s / v.total w), less
 * weight scale (1 - s) w_t at the target; 0 where the target is TRM_IGNORE_INDEX. dz may be z. */
struct trm_softmax_shard_gradient {
  const void *z;
  const int32_t *target;     /* (B) */
  const float *weight;       /* (B); NULL: 1 */
  const float *class_weight; /* (v.total) */
  struct trm_vocab_shard v;
  const float *max, *sum;
  float scale, smoothing;
  void *dz;
  size_t b, ld;
  enum trm_value_type type;
};

/* loss = mean over F, with e = z - target, of
 *   mean_squared_error    e^2
 *   huber                 e^2 / 2 where |e| <= delta, otherwise delta (|e| - delta / 2)       (Huber 1964)
 *   binary_cross_entropy  log(1 + exp(z)) - target z, of target in {0, 1}
 * binary_cross_entropy: correct is 1 if all F have z > 0 where, and only where, the target is 1; otherwise 0. */
struct trm_value_loss {
  const void *z;
  const float *target; /* (B, F) */
  float scale, delta;  /* delta: of huber */
  float *loss, *correct;
  void *dz;
  size_t b, f, ld; /* ld: of z and dz */
  enum trm_value_type type;
};

/* One score per row, ld = 1, target in {-1, +1}. logistic: log(1 + exp(-t z)); hinge: max(0, 1 - t z) */
struct trm_margin_loss {
  const void *z;
  const float *target; /* (B) */
  float scale;
  float *loss, *correct;
  void *dz;
  size_t b;
  enum trm_value_type type;
};

/* -- flat arrays (n) */

/* to = sum of `count` arrays, added in the fixed binary tree over 0..count-1 (left half: the largest power of two
 * below count); to may be from[0]. The table `from` itself is host memory. */
struct trm_sum {
  float *to;
  const float *const *from;
  int count;
  size_t n;
};

/* y (n) = a + b, values; y may be a or b */
struct trm_add {
  const void *a, *b;
  void *y;
  size_t n;
  enum trm_value_type type;
};

/* to (n) = from (n) in another type, rounded; arrays of the same type are copied */
struct trm_convert {
  const void *from;
  void *to;
  size_t n;
  enum trm_value_type type_from, type_to;
};

/* *result = (adds: its old value +) the sum of x^2, blocked, in double */
struct trm_norm_squared {
  const float *x;
  size_t n;
  bool adds;
  double *result;
};

/* Adds to the step's sums: loss and correct (rows) by pairwise summation in double. A row with correct < 0 does not
 * count in rows and correct. */
struct trm_sum_losses {
  const float *loss, *correct;
  struct trm_step *step;
  size_t rows;
};

/* Before an update: step->scale = limit / norm if norm = sqrt(step->norm_squared) is above limit, otherwise 1; limit 0:
 * 1. step->skip = the loss is not finite. */
struct trm_clip {
  struct trm_step *step;
  double limit;
};

/* ratio (tensors) of lars and lamb (nn/optimizer.h), from norm (tensors, 2): squared norms of w and g, 0 for tensors
 * whose ratio is 1. Of update: rule, scale or that of now, l2. */
struct trm_trust_ratios {
  struct trm_update update;
  double trust;
  const double *norm;
  float *ratio;
  size_t tensors;
};

/* w and the states first (momentum, m, or adagrad's sum) and second (v) in place; unused states are NULL. last_step
 * (n): for update error feedback the step of the update before, u' = w before less w after the rule; of the rule's new
 * step u this update makes w -= u + (u - u'), u' = u, and of update number 1 w -= u, u' = u. NULL: the rule alone.
 * rounded (n): the new w in bfloat16; NULL: not written. */
struct trm_update_arrays {
  struct trm_update update;
  const struct trm_update_run *run; /* (runs) host, the last one ends at n; NULL: all elements as update says */
  size_t runs;
  const float *ratio;               /* factors of the runs' rates; NULL: 1 */
  float *w;
  const float *g;
  float *first, *second, *last_step;
  trm_bf16 *rounded;
  size_t n;
};

/* The first half of lamb: moves the moments first and second as adam does, and g becomes the direction
 * first^ / (sqrt(second^) + epsilon) + decay * w, ^ with bias correction. run: as of an update */
struct trm_lamb_direction {
  struct trm_update update;
  const struct trm_update_run *run; /* (runs) host */
  size_t runs;
  const float *w;
  float *g, *first, *second;
  size_t n;
};

/* -- fused kernels: several of the calls above in one, which saves passes over memory. The values are those of the
 * composed form, in the order that is described; a device that keeps an intermediate value in registers need not round
 * it, and need not write an array that the description says another one replaces. */

/* y (B, N) = x (B, K) w^T + bias; then, unless z is NULL, z (B, N) = f(y). z may be y, and then replaces it. Rows of y
 * are ld values apart: N with a bias or z, else at least N; what lies between them is not written. */
struct trm_linear_forward {
  const void *x, *w; /* (B, K), (N, K) */
  const float *bias; /* (N) NULL: none */
  void *y;
  enum trm_activation kind; /* f */
  void *z;
  size_t b, n, k, ld;
  enum trm_value_type type;
};

/* dw (N, K) (NULL: not computed, nor is db) = beta * dw + dy^T x; db (N) (NULL: not computed) = beta * db + column sums
 * of dy; dx (B, K) (NULL: not computed) = dy w; beta is 0 or 1. Then, if x is the output f(u) of an activation and
 * `through` is set, dx becomes the gradient of u: dx = (dy w) * f'(u), which relu, tanh and sigmoid compute from x, and
 * gelu and silu from u. Rows of dy are ld values apart: N with db, else at least N. */
struct trm_linear_backward {
  const void *x, *w, *dy; /* (B, K), (N, K), (B, N) */
  float beta;
  float *dw, *db;
  void *dx;
  bool through;
  enum trm_activation kind; /* f */
  const void *u;            /* (B, K) of gelu; NULL: not read */
  size_t b, n, k, ld;
  enum trm_value_type type;
};

/* s (R, D) = a + b; or, if mask.rate is not 0, a + b under the mask, as trm_dropout of rows of f values. Then, unless
 * norm.y is NULL, the norm of s: norm.x is s. s may be b, and without a mask a. */
struct trm_add_norm_forward {
  const void *a, *b;
  struct trm_mask mask;
  size_t f;
  void *s;
  struct trm_norm_forward norm; /* R, D and the type; all but these are unused if y is NULL */
};

/* norm_backward, then sum (R, D) = norm.dx + other, which replaces norm.dx. sum may be norm.dx or other. */
struct trm_add_norm_backward {
  struct trm_norm_backward norm;
  const void *other;
  void *sum;
};

/* The kernels: X(slot, struct of its arguments). The slots of a device, the CPU's declarations and table, and the
 * devices that wrap another one are made from this list. */
#define TRM_KERNELS(X)                                                          \
  X(gemm, trm_gemm)                                                             \
  X(csr_forward, trm_csr_forward)                                               \
  X(csr_backward, trm_csr_backward)                                             \
  X(sparse_sgd, trm_sparse_sgd_rows)                                            \
  X(bias_add, trm_bias_add)                                                     \
  X(bias_backward, trm_bias_backward)                                           \
  X(activation_forward, trm_activation_forward)                                 \
  X(activation_backward, trm_activation_backward)                               \
  X(dropout, trm_dropout)                                                       \
  X(norm_forward, trm_norm_forward)                                             \
  X(norm_backward, trm_norm_backward)                                           \
  X(embedding_forward, trm_embedding_forward)                                   \
  X(embedding_backward, trm_embedding_backward)                                 \
  X(attention_forward, trm_attention_forward)                                   \
  X(attention_backward, trm_attention_backward)                                 \
  X(rotary, trm_rotary)                                                         \
  X(swiglu_forward, trm_swiglu_forward)                                         \
  X(swiglu_backward, trm_swiglu_backward)                                       \
  X(conv2d_forward, trm_conv2d_forward)                                         \
  X(conv2d_backward, trm_conv2d_backward)                                       \
  X(max_pool_forward, trm_max_pool_forward)                                     \
  X(max_pool_backward, trm_max_pool_backward)                                   \
  X(avg_pool_forward, trm_avg_pool_forward)                                     \
  X(avg_pool_backward, trm_avg_pool_backward)                                   \
  X(batch_norm_moments, trm_batch_norm_moments)                                 \
  X(batch_norm_forward, trm_batch_norm_forward)                                 \
  X(batch_norm_sums, trm_batch_norm_sums)                                       \
  X(batch_norm_gradients, trm_batch_norm_gradients)                             \
  X(batch_norm_backward, trm_batch_norm_backward)                               \
  X(softmax_cross_entropy, trm_softmax_cross_entropy)                           \
  X(softmax_shard_stats, trm_softmax_shard_stats)                               \
  X(softmax_shard_join, trm_softmax_shard_join)                                 \
  X(softmax_shard_gradient, trm_softmax_shard_gradient)                         \
  X(mean_squared_error, trm_value_loss)                                         \
  X(huber, trm_value_loss)                                                      \
  X(binary_cross_entropy, trm_value_loss)                                       \
  X(logistic, trm_margin_loss)                                                  \
  X(hinge, trm_margin_loss)                                                     \
  X(sum, trm_sum)                                                               \
  X(add, trm_add)                                                               \
  X(convert, trm_convert)                                                       \
  X(norm_squared, trm_norm_squared)                                             \
  X(sum_losses, trm_sum_losses)                                                 \
  X(clip, trm_clip)                                                             \
  X(trust_ratios, trm_trust_ratios)                                             \
  X(update, trm_update_arrays)                                                  \
  X(lamb_direction, trm_lamb_direction)

/* The fused ones, likewise. */
#define TRM_FUSED_KERNELS(X)                                                    \
  X(linear_forward, trm_linear_forward)                                         \
  X(linear_backward, trm_linear_backward)                                       \
  X(add_norm_forward, trm_add_norm_forward)                                     \
  X(add_norm_backward, trm_add_norm_backward)

TRM_END_DECLS
