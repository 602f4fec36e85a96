/* Convolutions in bfloat16 on AMX: forward, and the gradient of the data (conv_amx.h).
 *
 * A band of an image's rows is copied with zeros around it. The channels are last, so the values that a row of the
 * kernel takes are contiguous, KW C of them, and those of the next output position begin stride C values later: the 16
 * rows of a tile are the windows of 16 successive positions, which overlap in memory. With as many zeros behind a row
 * as before it, positions go on from one row of the output to the next, so that tiles are full whatever its width; what
 * lies between two rows is computed in vain. With a stride, rows of one remainder modulo the stride follow one another.
 *
 * While a block of sums is multiplied, those of the block before are rounded and written, and rows for the next are
 * copied: AMX computes beside the processor's other units. A sum runs over the rows of the kernel, 32 values at a time,
 * in order: the results of an image depend on nothing else. The gradient of the data is the convolution of dy by the
 * flipped kernel. */
#include "kernels/cpu/conv_amx.h"

#include "blas/amx.h"
#include "blas/blas.h"

#ifdef BLAS_AMX
#include "kernels/cpu/conv.h"

#ifdef __clang__
#pragma clang attribute push(                                                                                        \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")
#endif

#include "blas/amx_tile.h"

/* Tiles of a block of sums. */
enum { TILES = 4 };
/* Values of a band: it fits the second cache. */
#define BAND_VALUES ((size_t)1 << 18)

struct images {
  const trm_bf16 *from; /* (B, H, W, C) */
  trm_bf16 *to;         /* (B, OH, OW, N) */
  const float *bias;    /* (N); NULL: none */
  const trm_bf16 *w;    /* (N, C, KH, KW); flipped: (C, N, KH, KW), for the gradient of the data */
  bool flipped;
  struct trm_window2d window;
  size_t channels, units;
  size_t line;          /* positions from an output row to the next */
  size_t band, bands;   /* output rows of a band; of an image */
  size_t plane;         /* rows of a plane: row r of a band is in plane r % stride */
  size_t parts, depth;  /* parts of 32 values of a row of the kernel; of the whole kernel */
  size_t *offset;       /* (depth): of a part from the first value of a position's window */
  trm_bf16 *tiles;      /* (N / 16, depth) tiles */
  trm_bf16 *staged;     /* (threads, per_thread) */
  size_t per_thread;
};

/* -- the kernel as tiles */

/* Item: a tile. */
static void conv_amx_kernel_body(const void *arguments, size_t low, size_t high)
{
  const struct images *it = arguments;
  const size_t *kernel = it->window.kernel, taps = kernel[0] * kernel[1], values = kernel[1] * it->channels;
  const size_t channel_step = it->flipped ? it->units * taps : taps,
               unit_step = it->flipped ? taps : it->channels * taps;

  for (size_t item = low; item < high; item++) {
    const size_t unit = item / it->depth * EDGE, i = item % it->depth / it->parts, first = item % it->parts * DEPTH;
    trm_bf16 rows[EDGE][DEPTH] = {{trm_bf16_round(0)}};
    __m512i row[EDGE];

    for (size_t k = 0; k < conv_min(DEPTH, values - first); k++) {
      const size_t tap = i * kernel[1] + (first + k) / it->channels, channel = (first + k) % it->channels;
      const trm_bf16 *from = it->w + channel * channel_step + (it->flipped ? taps - 1 - tap : tap);

      for (size_t n = 0; n < EDGE; n++)
        rows[n][k] = from[(unit + n) * unit_step];
    }
    for (size_t n = 0; n < EDGE; n++)
      row[n] = _mm512_loadu_si512(rows[n]);
    bf16_tile_store(it->tiles + item * TILE, row, true);
  }
}

/* -- products */

/* Sums of a block that are multiplied while those of the block before are written. */
struct sums {
  const float *from; /* (positions, 16), and behind those the next 16 units' if there are 32 of them */
  trm_bf16 *to;
  size_t x, left;    /* place in its line of the next position, and positions that are left */
  size_t wide;       /* blocks of 16 units */
};

/* Rounds the sums of `count` positions, and writes those that there are. */
CPU_INLINE void conv_amx_write(const int wide, const struct images *it, struct sums *sums, size_t count)
{
  const size_t width = it->window.out[1], line = it->line, units = it->units;

  for (count = conv_min(count, sums->left), sums->left -= count; count > 0; count--, sums->from += EDGE) {
    if (sums->x < width) {
      const __m512 low = _mm512_load_ps(sums->from);

      if (wide == 1)
        _mm256_storeu_si256((__m256i *)sums->to, (__m256i)_mm512_cvtneps_pbh(low));
      else
        _mm512_storeu_si512(sums->to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(sums->from + 2 * SUMS), low));
      sums->to += units;
    }
    sums->x = sums->x + 1 == line ? 0 : sums->x + 1;
  }
}

/* Multiplies a block of (4 x 16 positions, 16 units), and writes the sums of the block before. */
static void conv_amx_tall(const struct images *it, const trm_bf16 *a, const trm_bf16 *b, const struct sums *before)
{
  const size_t step = it->window.stride[1] * it->channels, row = step * sizeof *a,
               count = conv_ceil_div(TILES * EDGE, it->depth);
  struct sums sums = *before;

  for (size_t k = 0; k < it->depth; k++, b += TILE) {
    const trm_bf16 *at = a + it->offset[k];

    _tile_loadd(6, b, LINE);
    _tile_loadd(4, at, row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, at + EDGE * step, row);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(4, at + 2 * EDGE * step, row);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(5, at + 3 * EDGE * step, row);
    _tile_dpbf16ps(3, 5, 6);
    conv_amx_write(1, it, &sums, count);
  }
}

/* The same of (2 x 16 positions, 2 x 16 units). */
static void conv_amx_square(const struct images *it, const trm_bf16 *a, const trm_bf16 *b, const struct sums *before)
{
  const size_t step = it->window.stride[1] * it->channels, row = step * sizeof *a,
               count = conv_ceil_div(2 * EDGE, it->depth);
  const trm_bf16 *next = b + it->depth * TILE;
  struct sums sums = *before;

  for (size_t k = 0; k < it->depth; k++, b += TILE, next += TILE) {
    const trm_bf16 *at = a + it->offset[k];

    _tile_loadd(4, at, row);
    _tile_loadd(6, b, LINE);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, next, LINE);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, at + EDGE * step, row);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    conv_amx_write(2, it, &sums, count);
  }
}

static void conv_amx_finish(const struct images *it, struct sums *sums)
{
  if (sums->wide == 1)
    conv_amx_write(1, it, sums, sums->left);
  else
    conv_amx_write(2, it, sums, sums->left);
}

/* Sums begin with the bias of their unit. */
static void conv_amx_begin(const float *bias, size_t wide)
{
  enum { SAME_ROW = 0 };
  const float *next = wide == 2 ? bias + EDGE : bias;

  amx_tile_written(bias);
  _tile_loadd(0, bias, SAME_ROW);
  _tile_loadd(1, bias, SAME_ROW);
  _tile_loadd(2, next, SAME_ROW);
  _tile_loadd(3, next, SAME_ROW);
}

static void conv_amx_begin_zero(void)
{
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/* -- bands */

/* A thread's band of an image, output rows [first, last), and the blocks of its sums. */
struct band {
  size_t image, first, last;
  trm_bf16 *staged;
  size_t row;         /* the next one to be copied */
  struct sums before; /* not yet written */
  float (*sums)[TILES][SUMS];
  size_t blocks;
};

/* Copies rows of the band, those that positions before `end` read. The zeros at both ends are there. */
static inline void conv_amx_stage(const struct images *it, struct band *band, size_t end)
{
  const struct trm_window2d *o = &it->window;
  const size_t values = o->in[1] * it->channels, bytes = values * sizeof(trm_bf16);
  const size_t line = conv_min((end - 1) / it->line, band->last - band->first - 1);

  for (; band->row < line * o->stride[0] + o->kernel[0]; band->row++) {
    const size_t place = band->row % o->stride[0] * it->plane + band->row / o->stride[0];
    const size_t row = band->first * o->stride[0] + band->row - o->pad[0]; /* below 0: a large number */
    trm_bf16 *to = band->staged + (place * it->line * o->stride[1] + o->pad[1]) * it->channels;

    if (row < o->in[0])
      memcpy(to, it->from + (band->image * o->in[0] + row) * values, bytes);
    else
      memset(to, 0, bytes);
  }
}

/* Computes a block: positions of the band from `first` on, of 16 or 32 units. */
static void conv_amx_block(const struct images *it, struct band *band, size_t unit, size_t wide, size_t first)
{
  const size_t *out = it->window.out, positions = TILES / wide * EDGE, y = first / it->line, x = first % it->line;
  const trm_bf16 *a = band->staged + first * it->window.stride[1] * it->channels,
                 *b = it->tiles + unit / EDGE * it->depth * TILE;
  float (*sums)[SUMS] = band->sums[band->blocks++ % 2];

  if (band->before.wide != wide)
    conv_amx_finish(it, &band->before);
  if (it->bias)
    conv_amx_begin(it->bias + unit, wide);
  else
    conv_amx_begin_zero();
  amx_tile_written(band->staged);
  if (wide == 1)
    conv_amx_tall(it, a, b, &band->before);
  else
    conv_amx_square(it, a, b, &band->before);
  conv_amx_stage(it, band, first + 2 * positions);
  _tile_stored(0, sums[0], LINE);
  _tile_stored(1, sums[1], LINE);
  _tile_stored(2, sums[2], LINE);
  _tile_stored(3, sums[3], LINE);
  const size_t at = ((band->image * out[0] + band->first + y) * out[1] + conv_min(x, out[1])) * it->units + unit;
  const size_t left = (band->last - band->first) * it->line - first;

  band->before = (struct sums){
    .from = sums[0], .to = it->to + at, .x = x, .left = conv_min(positions, left), .wide = wide};
}

/* Item: (image, band). */
static void conv_amx_body(const void *arguments, size_t low, size_t high)
{
  const struct images *it = arguments;
  float sums[2][TILES][SUMS] __attribute__((aligned(LINE)));
  struct band band = {
    .staged = it->staged + (size_t)cpu_thread() * it->per_thread, .before = {.left = 0}, .sums = sums};

  memset(band.staged, 0, it->per_thread * sizeof *band.staged);
  amx_tile_configure();
  for (size_t item = low; item < high; item++) {
    band.image = item / it->bands;
    band.first = item % it->bands * it->band;
    band.last = conv_min(band.first + it->band, it->window.out[0]);
    band.row = 0;
    conv_amx_stage(it, &band, TILES * EDGE);
    for (size_t unit = 0, wide; unit < it->units; unit += wide * EDGE) {
      wide = it->units - unit > EDGE ? 2 : 1;
      for (size_t first = 0; first < (band.last - band.first) * it->line; first += TILES / wide * EDGE)
        conv_amx_block(it, &band, unit, wide, first);
    }
  }
  conv_amx_finish(it, &band.before);
  _tile_release();
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

bool conv_amx_takes(const struct trm_conv2d *conv, enum trm_value_type type)
{
  return type == TRM_VALUES_BF16 && conv->x_last && conv->y_last && conv->groups == 1 && conv->channels % EDGE == 0 &&
         conv->units % EDGE == 0 && trm_blas_amx.supported();
}

size_t conv_amx_line(const struct trm_window2d *window)
{
  const size_t line = conv_ceil_div(window->in[1] + window->pad[1], window->stride[1]);

  return line < window->out[1] ? window->out[1] : line;
}

/* A kernel of one element copies more than it multiplies: oneDNN is faster. */
static bool conv_amx_pays(const struct trm_conv2d *conv)
{
  return conv->window.kernel[0] * conv->window.kernel[1] > 1;
}

/* Sets what follows from the window; returns the values of a thread's staged band. */
static size_t conv_amx_layout(struct images *it)
{
  const struct trm_window2d *o = &it->window;
  const size_t *stride = o->stride, more = (o->kernel[0] - 1) / stride[0]; /* rows of a plane behind the last */

  it->line = conv_amx_line(o);
  const size_t row = it->line * stride[1] * it->channels, rows = BAND_VALUES / (row * stride[0]);

  it->band = conv_min(rows > more ? rows - more : 1, o->out[0]);
  it->bands = conv_ceil_div(o->out[0], it->band);
  it->plane = it->band + more;
  it->parts = conv_ceil_div(o->kernel[1] * it->channels, DEPTH);
  it->depth = o->kernel[0] * it->parts;
  /* behind the rows: windows of the last positions, and of those that fill up the last block */
  const size_t behind = row + (TILES * EDGE * stride[1] + o->kernel[1]) * it->channels + DEPTH;

  return conv_ceil_div(it->plane * stride[0] * row + behind, DEPTH) * DEPTH;
}

static void conv_amx_run(struct trm_device *device, struct images *it, size_t images)
{
  const size_t *stride = it->window.stride, threads = (size_t)device->threads;

  it->per_thread = conv_amx_layout(it);
  const size_t tiles = it->units / EDGE * it->depth, values = tiles * TILE + threads * it->per_thread;
  const size_t bytes = values * sizeof *it->tiles + it->depth * sizeof *it->offset;

  it->tiles = (trm_bf16 *)(((uintptr_t)cpu_scratch(device, LINE + bytes) + LINE - 1) / LINE * LINE);
  it->staged = it->tiles + tiles * TILE;
  it->offset = (size_t *)(it->staged + threads * it->per_thread);
  for (size_t k = 0; k < it->depth; k++) {
    const size_t i = k / it->parts, place = i % stride[0] * it->plane + i / stride[0];

    it->offset[k] = place * it->line * stride[1] * it->channels + k % it->parts * DEPTH;
  }
  cpu_for(device, tiles, 1, TILE, conv_amx_kernel_body, it);
  cpu_for(device, images * it->bands, 1, (double)(it->band * it->line) * (double)(it->units * it->depth),
          conv_amx_body, it);
}

bool conv_amx_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  const struct trm_conv2d *conv = &call->conv;
  struct images it = {.from = call->x, .to = call->y, .bias = call->bias, .w = call->w, .window = conv->window,
                      .channels = conv->channels, .units = conv->units};

  if (!conv_amx_takes(conv, call->type) || !conv_amx_pays(conv))
    return false;
  conv_amx_run(device, &it, call->b);
  return true;
}

bool conv_amx_backward_data(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  const struct trm_conv2d *conv = &call->conv;
  struct images it = {.from = call->dy, .to = call->dx, .w = call->w, .flipped = true, .window = conv->window,
                      .channels = conv->units, .units = conv->channels};

  if (!conv_amx_takes(conv, call->type) || !conv_amx_pays(conv))
    return false;
  for (int d = 0; d < 2; d++) {
    if (conv->window.stride[d] > 1 || conv->window.pad[d] >= conv->window.kernel[d])
      return false;
    it.window.pad[d] = conv->window.kernel[d] - 1 - conv->window.pad[d];
    it.window.in[d] = conv->window.out[d];
    it.window.out[d] = conv->window.in[d];
  }
  conv_amx_run(device, &it, call->b);
  return true;
}

#else
bool conv_amx_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  (void)device;
  (void)call;
  return false;
}

bool conv_amx_backward_data(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  (void)device;
  (void)call;
  return false;
}
#endif
