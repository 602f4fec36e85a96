/* Micro-kernels of convolution in plain C: vectors of 4 floats, which compilers keep in registers on any processor. And
 * the table of all micro-kernels. */
#include <string.h>

#include "kernels/cpu/conv.h"

typedef float vector __attribute__((vector_size(16)));

#define V vector
#define LANES 4
#define UNITS 4
#define VECTORS 2
#define ROWS 4
#define TAPS 3
#define V_ZERO() ((vector){0, 0, 0, 0})
#define V_SET1(f) ((vector){(f), (f), (f), (f)})
#define V_LOAD(p) conv_plain_load(p)
#define V_LOAD2(p, q) ((vector){(p)[0], (p)[1], (q)[0], (q)[1]})
#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_STORE(p, v) memcpy(p, &(v), sizeof(vector))
#define V_SUM(v) (((v)[0] + (v)[2]) + ((v)[1] + (v)[3]))

CPU_INLINE vector conv_plain_load(const float *p)
{
  vector v;

  memcpy(&v, p, sizeof(v));
  return v;
}

#include "kernels/cpu/conv_kernel.h"

static bool conv_plain_supported(void)
{
  return true;
}

const struct conv_kernels conv_plain = CONV_KERNELS("plain", conv_plain_supported);

const struct conv_kernels *const conv_kernels_table[] = {
#ifdef __x86_64__
  &conv_avx512, &conv_avx2,
#endif
  &conv_plain, NULL};
