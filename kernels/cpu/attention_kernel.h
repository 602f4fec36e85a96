/* The micro-kernels of attention, generic in the vector type (contract: attention.h). Included by one file
 * per instruction set, which defines:
 *
 *   V             a vector of LANES floats     V_ZERO()   V_SET1(f)
 *   V_LOAD(p)     from any address             V_STORE(p, v)
 *   V_FMA(a,b,c)  a * b + c, one rounding; V_ADD, V_SUB, V_MUL, V_MAX, V_ROUND, V_SCALE as in vector_avx512.h
 *   ROWS, VECTORS   ROWS * VECTORS accumulators, VECTORS of B and one more fit into the registers
 */
#include <string.h>

CPU_INLINE void attention_kernel_run(const struct attention_tile *it, const int vectors)
{
  const float *a = it->a, *b = it->b;
  size_t row[ROWS]; /* rows beyond the tile's are the last one again, which is computed and stored as often */
  V sum[ROWS][VECTORS];

  CPU_UNROLL for (size_t i = 0; i < ROWS; i++)
    row[i] = i < it->rows ? i : it->rows - 1;
  CPU_UNROLL for (int i = 0; i < ROWS; i++)
    CPU_UNROLL for (int v = 0; v < vectors; v++)
      sum[i][v] = it->adds ? V_LOAD(it->c + row[i] * it->ldc + v * LANES) : V_ZERO();
  CPU_UNROLL for (int i = 0; i < ROWS; i++)
    row[i] *= it->row;
  for (size_t k = it->k; k > 0; k--, a += it->step, b += it->ldb) {
    V factor[VECTORS];

    CPU_UNROLL for (int v = 0; v < vectors; v++)
      factor[v] = V_LOAD(b + v * LANES);
    CPU_UNROLL for (int i = 0; i < ROWS; i++) {
      const V x = V_SET1(a[row[i]]);

      CPU_UNROLL for (int v = 0; v < vectors; v++)
        sum[i][v] = V_FMA(x, factor[v], sum[i][v]);
    }
  }
  CPU_UNROLL for (size_t i = 0; i < ROWS; i++)
    CPU_UNROLL for (int v = 0; v < vectors; v++)
      V_STORE(it->c + (i < it->rows ? i : it->rows - 1) * it->ldc + v * LANES, sum[i][v]);
}

static void attention_kernel_tile(const struct attention_tile *it)
{
  switch ((it->columns + LANES - 1) / LANES) {
  case 1:
    attention_kernel_run(it, 1);
    break;
  case 2:
    attention_kernel_run(it, 2);
    break;
#if VECTORS > 2
  case 3:
    attention_kernel_run(it, 3);
    break;
  case 4:
    attention_kernel_run(it, 4);
    break;
#endif
  }
}

/* In blocks of 4 x 4, four rows at a time. */
static void attention_kernel_transpose(const float *from, size_t rows, size_t columns, size_t ld, float factor,
                                       float *to, size_t ld_to)
{
  const __m128 scale = _mm_set1_ps(factor);
  size_t i = 0;

  for (; i + 4 <= rows; i += 4)
    for (size_t j = 0; j < columns; j += 4) {
      const float *p = from + i * ld + j;
      float *q = to + j * ld_to + i;
      __m128 a = _mm_loadu_ps(p), b = _mm_loadu_ps(p + ld), c = _mm_loadu_ps(p + 2 * ld), d = _mm_loadu_ps(p + 3 * ld);

      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(q, _mm_mul_ps(a, scale));
      _mm_storeu_ps(q + ld_to, _mm_mul_ps(b, scale));
      _mm_storeu_ps(q + 2 * ld_to, _mm_mul_ps(c, scale));
      _mm_storeu_ps(q + 3 * ld_to, _mm_mul_ps(d, scale));
    }
  for (; i < rows; i++)
    for (size_t j = 0; j < columns; j++)
      to[j * ld_to + i] = from[i * ld + j] * factor;
}

/* e^x for x <= 0, or e^-87 for less, as math_exp computes it but for fused products: error below 1.1 units in the last
 * place. */
CPU_INLINE V attention_kernel_exp(V x)
{
  x = V_MAX(V_SET1(-87.0f), x);
  const V n = V_ROUND(V_MUL(x, V_SET1(1.442695041f)));
  const V r = V_FMA(n, V_SET1(2.12194440e-4f), V_FMA(n, V_SET1(-0.693359375f), x));
  V p = V_SET1(1.381982584e-03f);

  p = V_FMA(p, r, V_SET1(8.368686773e-03f));
  p = V_FMA(p, r, V_SET1(4.166827723e-02f));
  p = V_FMA(p, r, V_SET1(1.666652113e-01f));
  p = V_FMA(p, r, V_SET1(4.999999404e-01f));
  return V_SCALE(V_ADD(V_FMA(p, V_MUL(r, r), r), V_SET1(1.0f)), n);
}

/* Vectors of CPU_LANES sums, which are added in a tree: the order does not depend on the vectors' width. */
#define LANE_VECTORS (CPU_LANES / LANES)

CPU_INLINE float attention_kernel_tree(const V sum[LANE_VECTORS])
{
  float lane[CPU_LANES];

  CPU_UNROLL for (int v = 0; v < LANE_VECTORS; v++)
    V_STORE(lane + v * LANES, sum[v]);
  for (int width = CPU_LANES / 2; width > 0; width /= 2)
    for (int l = 0; l < width; l++)
      lane[l] += lane[l + width];
  return lane[0];
}

static float attention_kernel_maximum(const float *s, size_t n)
{
  V maximum = V_SET1(s[0]);
  float lane[LANES], result = s[0];
  size_t j = 0;

  for (; j + LANES <= n; j += LANES)
    maximum = V_MAX(V_LOAD(s + j), maximum);
  V_STORE(lane, maximum);
  for (int l = 0; l < LANES; l++)
    result = lane[l] > result ? lane[l] : result;
  for (; j < n; j++)
    result = s[j] > result ? s[j] : result;
  return result;
}

static float attention_kernel_softmax(float *s, size_t n, size_t end, float *sum)
{
  const float maximum = attention_kernel_maximum(s, n);
  double total = 0;

  for (size_t j = 0; j < n; j += LANES)
    V_STORE(s + j, attention_kernel_exp(V_SUB(V_LOAD(s + j), V_SET1(maximum))));
  memset(s + n, 0, (end - n) * sizeof *s);
  for (size_t j = 0; j < n;) {
    const size_t stop = n - j < CPU_BLOCK ? n : j + CPU_BLOCK;
    V lanes[LANE_VECTORS] = {V_ZERO()};

    for (; j < stop; j += CPU_LANES)
      CPU_UNROLL for (int v = 0; v < LANE_VECTORS; v++)
        lanes[v] = V_ADD(lanes[v], V_LOAD(s + j + v * LANES));
    total += (double)attention_kernel_tree(lanes);
  }
  *sum = (float)total;
  return maximum;
}

static float attention_kernel_product(const float *a, const float *b, size_t n)
{
  V lanes[LANE_VECTORS] = {V_ZERO()};

  for (size_t j = 0; j < n; j += CPU_LANES)
    CPU_UNROLL for (size_t v = 0; v < LANE_VECTORS; v++)
      if (j + v * LANES < n)
        lanes[v] = V_FMA(V_LOAD(a + j + v * LANES), V_LOAD(b + j + v * LANES), lanes[v]);
  return attention_kernel_tree(lanes);
}

static void attention_kernel_slopes(float *s, float *ds, size_t n, size_t end, const struct attention_row *row)
{
  const V maximum = V_SET1(row->maximum), scale = V_SET1(row->scale);
  const V mean = V_SET1(row->mean), factor = V_SET1(row->factor);

  for (size_t j = 0; j < n; j += LANES) {
    const V p = V_MUL(attention_kernel_exp(V_SUB(V_LOAD(s + j), maximum)), scale);

    V_STORE(s + j, p);
    V_STORE(ds + j, V_MUL(V_MUL(p, V_SUB(V_LOAD(ds + j), mean)), factor));
  }
  memset(s + n, 0, (end - n) * sizeof *s);
  memset(ds + n, 0, (end - n) * sizeof *ds);
}

/* The file's struct attention_kernels. */
#define ATTENTION_KERNELS(isa, is_supported)                                                               \
  {isa, is_supported, ROWS, VECTORS * LANES, LANES, attention_kernel_tile, attention_kernel_transpose,     \
   attention_kernel_softmax, attention_kernel_product, attention_kernel_slopes}
