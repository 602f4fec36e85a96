/* The micro-kernel of attention's products for AVX2: 12 accumulators of 8 floats. */
#include "kernels/cpu/attention.h"

#ifdef __x86_64__
#include "kernels/cpu/vector_avx2.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define ROWS 6
#define VECTORS 2

#include "kernels/cpu/attention_kernel.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct attention_kernels attention_avx2 = ATTENTION_KERNELS("avx2", vector_supported);
#endif
