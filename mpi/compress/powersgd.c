/* powersgd: matrices as products of rank r (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, algorithms 1 and 2). Of
 * each matrix M (rows, columns), p = g + e of node k, one step of subspace iteration:
 *
 *   P = sum over nodes of M_k Q;  orthogonalize P;  Q = sum over nodes of M_k' P
 *   sum = P Q';  e_k = M_k - P (M_k' P)'
 *
 * Q is the next step's (warm start); at first, and where a column vanished, its numbers are normal. Two sums over nodes
 * of r (rows + columns) floats in place of one of rows * columns. A tensor is a matrix of its first dimension by the
 * others; where slices cut it, the whole rows of each part are a matrix. Vectors, rows that slices cut, and matrices
 * that are no larger than their P and Q are summed as they are. */
#include <math.h>
#include <string.h>

#include "core/clones.h"
#include "core/memory.h"
#include "core/random.h"
#include "mpi/compress/compressor_private.h"

/* Elements of a slice that are compressed together. */
struct matrix {
  size_t at, n;         /* in the slice */
  size_t rows, columns, rank; /* rank 0: summed as they are */
  size_t p, q;          /* where P (rows, rank), or the elements, and Q (rank, columns) are */
};

struct powersgd {
  int matrices;
  size_t p_floats, q_floats; /* of all matrices */
  struct matrix matrix[];
};

/* The buffer. */
struct powersgd_arrays {
  float *p, *q, *shards; /* shards: of the nodes, of p or q */
};

static struct powersgd_arrays powersgd_arrays(const struct compress_part *part)
{
  const struct powersgd *l = part->layout;
  float *const p = (float *)part->buffer;
  return (struct powersgd_arrays){p, p + l->p_floats, p + l->p_floats + l->q_floats};
}

/* -- set-up */

/* Adds elements [from, to) of the flat arrays, unless there are none; columns: 0 if they are no whole rows. */
static void powersgd_add(struct powersgd *l, const struct compress_part *part, size_t from, size_t to, size_t columns,
                         size_t rank)
{
  struct matrix m = {.at = from - part->low, .n = to - from, .columns = columns, .p = l->p_floats, .q = l->q_floats};
  if (from >= to)
    return;
  if (columns > 0) {
    m.rows = m.n / columns;
    m.rank = rank < m.rows ? rank : m.rows;
    m.rank = m.rank < columns ? m.rank : columns;
    if ((m.rows + columns) * m.rank >= m.n)
      m.rank = 0;
  }
  l->p_floats += m.rank ? m.rows * m.rank : m.n;
  l->q_floats += columns * m.rank;
  l->matrix[l->matrices++] = m;
}

/* Adds the part of a tensor, which begins at `begin`, in the slice: the end of a row, whole rows, the begin of one. */
static void powersgd_add_tensor(struct powersgd *l, const struct compress_part *part, const struct trm_tensor *tensor,
                                size_t begin, size_t rank)
{
  const size_t from = begin > part->low ? begin : part->low, end = part->low + part->n;
  const size_t to = tensor->end < end ? tensor->end : end, columns = tensor->vector ? 0 : tensor->columns;
  const size_t first = columns ? begin + (from - begin + columns - 1) / columns * columns : to;
  const size_t last = columns ? begin + (to - begin) / columns * columns : to;
  if (from >= to)
    return;
  if (first >= last) {
    powersgd_add(l, part, from, to, 0, rank);
    return;
  }
  powersgd_add(l, part, from, first, 0, rank);
  powersgd_add(l, part, first, last, columns, rank);
  powersgd_add(l, part, last, to, 0, rank);
}

static void powersgd_measure(const struct compressor *c, struct compress_part *part, struct compress_sizes *sizes)
{
  const struct trm_optimizer *optimizer = c->strategy->optimizer;
  const size_t rank = (size_t)c->strategy->options->compress_rank;
  struct powersgd *l = trm_alloc(sizeof *l + 3 * (size_t)optimizer->tensors * sizeof *l->matrix, "matrices of a slice");
  size_t begin = 0;
  for (int t = 0; t < optimizer->tensors; begin = optimizer->tensor[t++].end)
    powersgd_add_tensor(l, part, &optimizer->tensor[t], begin, rank);
  part->layout = l;
  sizes->state[0] = part->n;
  sizes->state[1] = l->q_floats;
  const size_t larger = l->p_floats > l->q_floats ? l->p_floats : l->q_floats;
  const size_t shards = (size_t)part->nodes->size * compress_max_shard(part, larger);
  sizes->buffer = (l->p_floats + l->q_floats + shards) * sizeof(float);
  sizes->rounds = 4;
  sizes->sent = 2 * compress_shards_sent(part, l->p_floats + l->q_floats, sizeof(float));
}

/* -- arithmetic. x: the elements of a matrix */

/* p (rows, rank) = M Q. Its sums differ by rounding between types of processors. */
CPU_CLONES static void powersgd_multiply(const struct matrix *m, const float *x, const float *q, float *p)
{
  for (size_t i = 0; i < m->rows; i++, x += m->columns)
    for (size_t k = 0; k < m->rank; k++) {
      const float *const column = q + k * m->columns;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (size_t j = 0; j < m->columns; j++)
        sum += x[j] * column[j];
      *p++ = sum;
    }
}

/* q (rank, columns) = (M' P)' */
CPU_CLONES static void powersgd_multiply_transposed(const struct matrix *m, const float *x, const float *p, float *q)
{
  memset(q, 0, m->rank * m->columns * sizeof *q);
  for (size_t i = 0; i < m->rows; i++, x += m->columns)
    for (size_t k = 0; k < m->rank; k++) {
      float *const column = q + k * m->columns;
      const float factor = *p++;
#pragma omp simd
      for (size_t j = 0; j < m->columns; j++)
        column[j] += factor * x[j];
    }
}

/* x += sign * P Q'. The same bits on all types of processors, since each element has an order of its own. */
CPU_CLONES static void powersgd_add_product(const struct matrix *m, float sign, const float *p, const float *q,
                                            float *x)
{
  for (size_t i = 0; i < m->rows; i++, x += m->columns)
    for (size_t k = 0; k < m->rank; k++) {
      const float *const column = q + k * m->columns;
      const float factor = sign * *p++;
      for (size_t j = 0; j < m->columns; j++)
        x[j] += factor * column[j];
    }
}

static double powersgd_norm_squared(const float *p, size_t rows, size_t rank, size_t k)
{
  double norm = 0;
  for (size_t i = 0; i < rows; i++)
    norm += (double)p[i * rank + k] * (double)p[i * rank + k];
  return norm;
}

/* Subtracts from column k its projections on the columns before. */
static void powersgd_project(float *p, size_t rows, size_t rank, size_t k)
{
  for (size_t before = 0; before < k; before++) {
    double dot = 0;
    for (size_t i = 0; i < rows; i++)
      dot += (double)p[i * rank + before] * (double)p[i * rank + k];
    for (size_t i = 0; i < rows; i++)
      p[i * rank + k] = (float)((double)p[i * rank + k] - dot * (double)p[i * rank + before]);
  }
}

/* Modified Gram-Schmidt, twice for each column: of a column that nearly depends on those before, the first projection
 * leaves rounding errors. Of one that depends on them nothing else is left, and it becomes 0. */
static void powersgd_orthogonalize(float *p, size_t rows, size_t rank)
{
  for (size_t k = 0; k < rank; k++) {
    const double whole = powersgd_norm_squared(p, rows, rank, k);
    powersgd_project(p, rows, rank, k);
    powersgd_project(p, rows, rank, k);
    const double left = powersgd_norm_squared(p, rows, rank, k);
    const double factor = left > 1e-12 * whole ? 1 / sqrt(left) : 0;
    for (size_t i = 0; i < rows; i++)
      p[i * rank + k] = (float)((double)p[i * rank + k] * factor);
  }
}

/* Draws the columns of Q that are 0: at first all of them. */
static void powersgd_draw(const struct compressor *c, const struct compress_part *part, const struct matrix *m,
                          float *q)
{
  for (size_t k = 0; k < m->rank; k++) {
    float *const column = q + k * m->columns;
    bool zero = true;
    for (size_t j = 0; j < m->columns && zero; j++)
      zero = column[j] == 0;
    for (size_t j = 0; j < m->columns && zero; j++)
      column[j] = trm_random_normal(c->strategy->seed, TRM_RANDOM_COMPRESS, (uint32_t)k, part->low + m->at + j);
  }
}

/* -- rounds */

static void powersgd_begin(struct compressor *c, struct compress_part *part)
{
  const struct powersgd *l = part->layout;
  const struct powersgd_arrays arrays = powersgd_arrays(part);
  compress_add_gradient(part);
  for (int i = 0; i < l->matrices; i++) {
    const struct matrix *m = &l->matrix[i];
    float *const x = part->state[0] + m->at;
    if (m->rank) {
      powersgd_draw(c, part, m, part->state[1] + m->q);
      powersgd_multiply(m, x, part->state[1] + m->q, arrays.p + m->p);
    } else {
      memcpy(arrays.p + m->p, x, m->n * sizeof *x);
      memset(x, 0, m->n * sizeof *x);
    }
  }
}

/* P is summed. */
static void powersgd_project_rows(const struct compress_part *part)
{
  const struct powersgd *l = part->layout;
  const struct powersgd_arrays arrays = powersgd_arrays(part);
  for (int i = 0; i < l->matrices; i++) {
    const struct matrix *m = &l->matrix[i];
    float *const p = arrays.p + m->p, *const x = part->state[0] + m->at;
    if (!m->rank) {
      memcpy(part->data + m->at, p, m->n * sizeof *p);
      continue;
    }
    powersgd_orthogonalize(p, m->rows, m->rank);
    powersgd_multiply_transposed(m, x, p, arrays.q + m->q);
    powersgd_add_product(m, -1, p, arrays.q + m->q, x);
  }
}

/* Q is summed. */
static void powersgd_end(const struct compress_part *part)
{
  const struct powersgd *l = part->layout;
  const struct powersgd_arrays arrays = powersgd_arrays(part);
  for (int i = 0; i < l->matrices; i++) {
    const struct matrix *m = &l->matrix[i];
    if (!m->rank)
      continue;
    memset(part->data + m->at, 0, m->n * sizeof *part->data);
    powersgd_add_product(m, 1, arrays.p + m->p, arrays.q + m->q, part->data + m->at);
    memcpy(part->state[1] + m->q, arrays.q + m->q, m->rank * m->columns * sizeof *arrays.q);
  }
}

/* Begins the sum of x (n), which powersgd_gather continues. */
static void powersgd_scatter(struct compressor *c, struct compress_part *part, const float *x, size_t n)
{
  compress_scatter_begin(c, part, x, n, sizeof *x, powersgd_arrays(part).shards);
}

static void powersgd_gather(struct compressor *c, struct compress_part *part, float *x, size_t n)
{
  size_t low;
  const size_t shard = compress_shard(part, n, &low);
  compress_add_rows(part, x + low, powersgd_arrays(part).shards, shard);
  compress_gather_begin(c, part, x, n, sizeof *x);
}

static bool powersgd_advance(struct compressor *c, struct compress_part *part)
{
  const struct powersgd *l = part->layout;
  const struct powersgd_arrays arrays = powersgd_arrays(part);
  switch (part->round) {
  case 0:
    powersgd_begin(c, part);
    powersgd_scatter(c, part, arrays.p, l->p_floats);
    return false;
  case 1:
    powersgd_gather(c, part, arrays.p, l->p_floats);
    return false;
  case 2:
    powersgd_project_rows(part);
    powersgd_scatter(c, part, arrays.q, l->q_floats);
    return false;
  case 3:
    powersgd_gather(c, part, arrays.q, l->q_floats);
    return false;
  default:
    powersgd_end(part);
    return true;
  }
}

const struct compressor_ops compress_powersgd = {
  .state_name = {"powersgd error", "powersgd basis"}, .measure = powersgd_measure, .advance = powersgd_advance};
