/* The micro-kernels of convolution, generic in the vector type (contract: conv.h). Included by one file per
 * instruction set, which defines:
 *
 *   V             a vector of LANES floats                V_ZERO()   V_SET1(f)
 *   V_LOAD(p)     from any address                        V_LOAD2(p, q)   half from p, half from q
 *   V_FMA(a,b,c)  a * b + c, one rounding or two          V_STORE(p, v)   V_SUM(v)
 *   LANES, UNITS, VECTORS   UNITS * VECTORS accumulators, VECTORS of x and one more fit into the registers
 *   ROWS, TAPS    ROWS * TAPS accumulators, TAPS of x and one more likewise
 */
CPU_INLINE void conv_kernel_run_strip(const struct conv_strip *it, const int vectors, const bool halves)
{
  const uint32_t *offset = it->offset;
  const float *w = it->w;
  V sum[UNITS][VECTORS];

  CPU_UNROLL for (int n = 0; n < UNITS; n++)
    CPU_UNROLL for (int v = 0; v < vectors; v++)
      sum[n][v] = V_SET1(it->start[n]);
  for (size_t c = 0; c < it->channels; c++) {
    const float *channel = it->x + c * it->plane;

    for (int t = 0; t < it->taps; t++, w += UNITS) {
      const float *p = channel + it->tap[t];
      V x[VECTORS];

      CPU_UNROLL for (int v = 0; v < vectors; v++)
        x[v] = halves ? V_LOAD2(p + offset[2 * v], p + offset[2 * v + 1]) : V_LOAD(p + offset[v]);
      CPU_UNROLL for (int n = 0; n < UNITS; n++) {
        const V factor = V_SET1(w[n]);

        CPU_UNROLL for (int v = 0; v < vectors; v++)
          sum[n][v] = V_FMA(factor, x[v], sum[n][v]);
      }
    }
  }
  CPU_UNROLL for (int n = 0; n < UNITS; n++)
    CPU_UNROLL for (int v = 0; v < vectors; v++)
      V_STORE(it->out + (n * vectors + v) * LANES, sum[n][v]);
}

static void conv_kernel_strip(const struct conv_strip *it)
{
  switch (2 * it->vectors + it->halves) {
  case 2:
    conv_kernel_run_strip(it, 1, false);
    break;
  case 3:
    conv_kernel_run_strip(it, 1, true);
    break;
  case 4:
    conv_kernel_run_strip(it, 2, false);
    break;
  case 5:
    conv_kernel_run_strip(it, 2, true);
    break;
#if VECTORS > 2
  case 6:
    conv_kernel_run_strip(it, 3, false);
    break;
  case 7:
    conv_kernel_run_strip(it, 3, true);
    break;
#endif
  }
}

CPU_INLINE void conv_kernel_run_products(const struct conv_products *it, const bool halves)
{
  const float *dy = it->dy;
  const size_t unit = it->images * it->vectors * LANES;
  V sum[ROWS][TAPS];

  CPU_UNROLL for (int n = 0; n < ROWS; n++)
    CPU_UNROLL for (int k = 0; k < TAPS; k++)
      sum[n][k] = V_ZERO();
  for (size_t image = 0; image < it->images; image++) {
    const float *const base = it->x + image * it->image;

    for (size_t v = 0; v < it->vectors; v++, dy += LANES) {
      V x[TAPS];

      CPU_UNROLL for (int k = 0; k < TAPS; k++) {
        const float *p = base + it->tap[k];

        x[k] = halves ? V_LOAD2(p + it->offset[2 * v], p + it->offset[2 * v + 1]) : V_LOAD(p + it->offset[v]);
      }
      CPU_UNROLL for (int n = 0; n < ROWS; n++) {
        const V factor = V_LOAD(dy + (size_t)n * unit);

        CPU_UNROLL for (int k = 0; k < TAPS; k++)
          sum[n][k] = V_FMA(factor, x[k], sum[n][k]);
      }
    }
  }
  CPU_UNROLL for (int n = 0; n < ROWS; n++)
    CPU_UNROLL for (int k = 0; k < TAPS; k++)
      it->out[n * TAPS + k] = V_SUM(sum[n][k]);
}

static void conv_kernel_products(const struct conv_products *it)
{
  if (it->halves)
    conv_kernel_run_products(it, true);
  else
    conv_kernel_run_products(it, false);
}

/* The file's struct conv_kernels. */
#define CONV_KERNELS(isa, is_supported) \
  {isa, is_supported, LANES, UNITS, VECTORS, ROWS, TAPS, conv_kernel_strip, conv_kernel_products}
