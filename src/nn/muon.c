/* Muon's direction: momentum, made nearly orthogonal by Newton-Schulz iterations (nn/optimizer.h has the rule). */
#include <math.h>

#include "nn/optimizer.h"

/* Coefficients of the iterations, whose number is 5, and the term added to the norm: Jordan et al. 2024, as in PyTorch's
 * Muon. They map singular values in (0, 1] to about [0.7, 1.2], those that begin near 0 excepted. */
enum { MUON_ITERATIONS = 5 };
static const float muon_a = 3.4445f, muon_b = -4.7750f, muon_c = 2.0315f, muon_epsilon = 1e-7f;

/* A tensor as a matrix. */
struct muon_matrix {
  size_t begin, rows, columns; /* begin: element of the flat arrays */
};

static struct muon_matrix muon_matrix_of(const struct trm_optimizer *optimizer, int t)
{
  const struct trm_tensor *tensor = &optimizer->tensor[t];
  const size_t begin = t ? tensor[-1].end : 0;
  return (struct muon_matrix){begin, (tensor->end - tensor->padding - begin) / tensor->columns, tensor->columns};
}

static size_t muon_count(struct muon_matrix matrix)
{
  return matrix.rows * matrix.columns;
}

static size_t muon_smaller_side(struct muon_matrix matrix)
{
  return matrix.rows < matrix.columns ? matrix.rows : matrix.columns;
}

/* The scratch memory: numbers, two matrices, two squares of the smaller side. */
struct muon_scratch {
  double *norm;              /* (2) squared norms of `one` and of the matrix */
  float *ratio, *one;        /* 1 / norm of the matrix; 1 */
  float *x, *y, *gram, *sum; /* the iterate and its successor; x x' or x' x; muon_b gram + muon_c gram^2 */
};

enum { MUON_NUMBERS = 16 }; /* floats at the beginning */

static struct muon_scratch muon_scratch_of(float *scratch, struct muon_matrix matrix)
{
  const size_t n = muon_count(matrix), side = muon_smaller_side(matrix);
  float *const x = scratch + MUON_NUMBERS;
  return (struct muon_scratch){.norm = (double *)scratch, .ratio = scratch + 4, .one = scratch + 5, .x = x, .y = x + n,
                               .gram = x + 2 * n, .sum = x + 2 * n + side * side};
}

int trm_muon_owner(const struct trm_optimizer *optimizer, int t, int ranks)
{
  int before = 0;
  for (int i = 0; i < t; i++)
    before += optimizer->tensor[i].hidden;
  return optimizer->tensor[t].hidden ? before % ranks : -1;
}

size_t trm_muon_scratch(const struct trm_optimizer *optimizer)
{
  size_t largest = 0;
  for (int t = 0; t < optimizer->tensors && optimizer->update.rule == TRM_UPDATE_MUON; t++) {
    const struct muon_matrix matrix = muon_matrix_of(optimizer, t);
    const size_t side = muon_smaller_side(matrix), need = MUON_NUMBERS + 2 * (muon_count(matrix) + side * side);
    if (optimizer->tensor[t].hidden && need > largest)
      largest = need;
  }
  return largest;
}

/* m = momentum * m + g;  s->x = g + momentum * m, over its norm. g: clipped. */
static void muon_momentum(struct trm_device *device, const struct trm_update *hyper, const struct muon_scratch *s,
                          size_t n, float *m, const float *g)
{
  const struct trm_update nesterov = {.rule = TRM_UPDATE_NESTEROV, .rate = -1, .scale = hyper->scale,
                                      .momentum = hyper->momentum, .now = hyper->now, .use = TRM_STEP_SCALE};
  const struct trm_update negative = {.rule = TRM_UPDATE_SGD, .rate = -1, .scale = 1};
  const struct trm_update_run run = {.end = n, .rate = -1};
  device->ops->fill(device, s->y, 0, n);
  device->ops->update(device, &(struct trm_update_arrays){
    .update = nesterov, .w = s->y, .g = g, .first = m, .n = n});
  device->ops->fill(device, s->one, 1, 1);
  device->ops->norm_squared(device, &(struct trm_norm_squared){.x = s->one, .n = 1, .result = s->norm});
  device->ops->norm_squared(device, &(struct trm_norm_squared){.x = s->y, .n = n, .result = s->norm + 1});
  device->ops->trust_ratios(device, &(struct trm_trust_ratios){ /* 1 / (norm + epsilon) */
    .update = {.rule = TRM_UPDATE_LARS, .scale = 1, .l2 = muon_epsilon}, .trust = 1, .norm = s->norm,
    .ratio = s->ratio, .tensors = 1});
  device->ops->fill(device, s->x, 0, n);
  device->ops->update(device, &(struct trm_update_arrays){
    .update = negative, .run = &run, .runs = 1, .ratio = s->ratio, .w = s->x, .g = s->y, .n = n});
}

/* to = scale (a x + (b A + c A^2) x) with A = x x'; of a tall matrix scale (a x + x (b A + c A^2)) with A = x' x. */
static void muon_iterate(struct trm_device *device, const struct muon_scratch *s, struct muon_matrix matrix, float scale,
                         const float *x, float *to)
{
  const size_t rows = matrix.rows, columns = matrix.columns, side = muon_smaller_side(matrix);
  const bool tall = rows > columns;
  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_a = tall, .transpose_b = !tall, .m = side, .n = side, .k = tall ? rows : columns, .alpha = 1, .a = x,
    .lda = columns, .b = x, .ldb = columns, .c = s->gram, .ldc = side});
  device->ops->copy(device, s->sum, s->gram, side * side * sizeof(float));
  device->ops->gemm(device, &(struct trm_gemm){
    .m = side, .n = side, .k = side, .alpha = muon_c, .a = s->gram, .lda = side, .b = s->gram, .ldb = side,
    .beta = muon_b, .c = s->sum, .ldc = side});
  device->ops->copy(device, to, x, rows * columns * sizeof(float));
  device->ops->gemm(device, &(struct trm_gemm){
    .m = rows, .n = columns, .k = side, .alpha = scale, .a = tall ? x : s->sum, .lda = tall ? columns : side,
    .b = tall ? s->sum : x, .ldb = columns, .beta = scale * muon_a, .c = to, .ldc = columns});
}

void trm_muon_direction(const struct trm_optimizer *optimizer, struct trm_device *device,
                        const struct trm_update *hyper, int t, float *m, float *g, float *scratch)
{
  const struct muon_matrix matrix = muon_matrix_of(optimizer, t);
  const struct muon_scratch s = muon_scratch_of(scratch, matrix);
  const float scale = sqrtf(fmaxf(1, (float)matrix.rows / (float)matrix.columns));
  muon_momentum(device, hyper, &s, muon_count(matrix), m + matrix.begin, g + matrix.begin);
  float *x = s.x, *next = s.y;
  for (int i = 1; i < MUON_ITERATIONS; i++) {
    muon_iterate(device, &s, matrix, 1, x, next);
    float *const last = x;
    x = next;
    next = last;
  }
  muon_iterate(device, &s, matrix, scale, x, g + matrix.begin);
}
