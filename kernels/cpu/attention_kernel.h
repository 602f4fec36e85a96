/* The micro-kernel of attention's products, generic in the vector type (contract: attention.h). Included by one file
 * per instruction set, which defines:
 *
 *   V             a vector of LANES floats     V_ZERO()   V_SET1(f)
 *   V_LOAD(p)     from any address             V_STORE(p, v)
 *   V_FMA(a,b,c)  a * b + c, one rounding
 *   ROWS, VECTORS   ROWS * VECTORS accumulators, VECTORS of B and one more fit into the registers
 */
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

/* The file's struct attention_kernels. */
#define ATTENTION_KERNELS(isa, is_supported) \
  {isa, is_supported, ROWS, VECTORS * LANES, LANES, attention_kernel_tile, attention_kernel_transpose}
