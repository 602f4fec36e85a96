/* Convolution: the micro-kernels' contract. Private to kernels/cpu.
 *
 * The images that a product reads are staged first (conv_stage.c): zero padding, rows of equal length
 * (the pitch), and, for a stride of s, a separate plane (a phase) for the rows and columns of each remainder modulo s.
 * Then the inputs of a row's output values are contiguous for every element of the kernel, and all three
 * products of a convolution are sums over taps, i.e. offsets into the staged image:
 *
 *   strip:     out[n][i]  = start[n] + sum over channels c and taps t of  x[c][at(i) + tap(t)] * w[c][t][n]
 *   products:  out[n][k]  = sum over positions i of            dy[n][i] * x[at(i) + tap(k)]
 *
 * i runs over vectors of `lanes` positions. A vector is a part of a row, or, where rows are short, half of it is one
 * row and half the next. at() is given per vector, or per half. */
#pragma once

#include "kernels/cpu/cpu.h"

/* Largest values of all instruction sets. */
enum { CONV_LANES = 16, CONV_UNITS = 8, CONV_VECTORS = 3, CONV_ROWS = 8, CONV_TAPS = 6 };

static inline size_t conv_ceil_div(size_t a, size_t b)
{
  return (a + b - 1) / b;
}

static inline size_t conv_min(size_t a, size_t b)
{
  return a < b ? a : b;
}

struct conv_strip {
  const float *x;       /* staged */
  size_t channels, plane; /* floats from one channel to the next */
  const uint32_t *tap;  /* (taps) */
  int taps;
  const uint32_t *offset;   /* (vectors) or (vectors, 2) */
  int vectors;
  bool halves;
  const float *w;       /* (channels, taps, units) */
  const float *start;   /* (units) added to all sums of a unit */
  float *out;           /* (units, vectors, lanes) */
};

struct conv_products {
  const float *x;       /* staged images */
  size_t image;         /* floats from one to the next */
  const uint32_t *tap;  /* (taps) offsets that include the channel */
  const uint32_t *offset;   /* (vectors) or (vectors, 2) */
  size_t images, vectors;
  bool halves;
  const float *dy;      /* (rows, images, vectors, lanes); 0 where there is no position */
  float *out;           /* (rows, taps) */
};

struct conv_kernels {
  const char *name;
  bool (*supported)(void); /* on this processor */
  int lanes;
  int units, vectors; /* of a strip; vectors: at most */
  int rows, taps;     /* of products */
  void (*strip)(const struct conv_strip *it);
  void (*products)(const struct conv_products *it);
};

extern const struct conv_kernels conv_avx512, conv_avx2; /* only for x86-64 */
extern const struct conv_kernels conv_plain;
/* Best first, ends with NULL; the last one always works. */
extern const struct conv_kernels *const conv_kernels_table[];

/* Sums of parts of a batch, (chunks, elements), at most CONV_CHUNKS of them. */
struct conv_chunks {
  float *partial;
  size_t chunks, elements;
};
enum { CONV_CHUNKS = 32 };
/* Sets to (n) = beta * to + the sums of all chunks' elements from `offset` on. */
void conv_add_chunks(struct trm_device *device, const struct conv_chunks *it, size_t offset, float beta, float *to,
                     size_t n);

/* Calls with the channels last by way of planes (conv_planes.c). */
void conv_planes_forward(struct trm_device *device, const struct trm_conv2d_forward *call);
void conv_planes_backward(struct trm_device *device, const struct trm_conv2d_backward *call);
