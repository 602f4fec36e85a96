/* The gradient of a convolution's weights in bfloat16 on AMX (conv_amx.h), a sum over the positions of all images:
 *
 *   dw[n][c][i][j] = sum over positions (y, x) of dy[y][x][n] * x[y s + i - pad][x s + j - pad][c]
 *
 * A first factor is a tile of 16 units with 32 positions, dy transposed; a second one 16 pairs of positions with 16
 * channels. Both are copied with so many zeros behind each row of positions that the input of position p for an element
 * (i, j) of the kernel is p + shift(i, j), across rows and images. Pairs begin at even positions in one copy of x and
 * at odd ones in another, so that every shift finds its tiles in one of them, in place. With a stride, x is divided
 * into planes: rows and columns of one remainder modulo the stride. dy is copied as the first products read it.
 *
 * The order of additions is fixed: by the images, not by the number of threads. */
#include "kernels/cpu/conv_amx.h"

#include "blas/amx.h"

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

/* Tasks, whatever the number of threads; units of one at least, so that x is not copied too often. */
enum { TASKS = 16, TASK_UNITS = 64 };
/* Pairs of a row of sums, at most. */
enum { ROW = 5 };
/* Values of a group of images or rows that are copied at a time: the copies fit the second cache. */
#define GROUP_VALUES ((size_t)1 << 18)

union tile {
  trm_bf16 values[TILE];
  float sums[SUMS];
};

struct weights {
  const trm_bf16 *x, *dy; /* (B, H, W, C), (B, OH, OW, N) */
  struct trm_window2d window;
  size_t channels, units;
  size_t set, sets;     /* units of a task, a multiple of 16 */
  size_t chunk, chunks; /* images of a task */
  size_t b;
  size_t band, group;   /* output rows copied at a time; images, if those are all rows */
  size_t line, rows;    /* positions of an output row, with the zeros; rows of an image or band, likewise */
  size_t plane;         /* positions of a plane of x */
  size_t steps;         /* tiles along the positions */
  size_t taps, pairs;   /* KH KW; (block of channels, tap) */
  size_t *shift;        /* (pairs): tiles of the even or odd copy begin at this value */
  union tile *sums;     /* (chunks, N / 16, pairs) */
  char *copies;         /* (threads, per_thread) */
  size_t per_thread, copy; /* bytes; values of a copy of x */
  float beta;
  float *dw;
};

/* -- copies */

/* Rows of images that are copied: those of image `first`, and of the next `images`. */
struct part {
  size_t first, images, row, rows;
};

/* A walk along the positions of images, from the row and column `first` on, `step` rows and columns at a time: runs of
 * values that there are, and of zeros. */
struct walk {
  const trm_bf16 *image; /* the first value of its row 0 and column 0 */
  size_t images, size[2], values; /* images that are left; rows and columns of one; values of a position */
  ptrdiff_t first[2];
  size_t step[2], lines, line; /* lines of an image, and positions of a line */
  size_t low, high;            /* positions of a line that there are */
  size_t x, y;                 /* where the run ends */
  const trm_bf16 *at;          /* the current position */
  size_t next, left;           /* values to the next one, and positions of the run that are left */
};

static void conv_amx_walk(struct walk *it)
{
  const ptrdiff_t step = (ptrdiff_t)it->step[1], before = it->first[1] < 0 ? -it->first[1] : 0,
                  after = (ptrdiff_t)it->size[1] - it->first[1];

  it->low = (size_t)((before + step - 1) / step);
  it->high = after > 0 ? conv_min((size_t)((after + step - 1) / step), it->line) : 0;
}

static void conv_amx_next_run(struct walk *it)
{
  static const trm_bf16 zeros[DEPTH];

  if (it->x == it->line) {
    it->x = 0;
    if (++it->y == it->lines && it->images > 0) {
      it->y = 0;
      it->image += it->size[0] * it->size[1] * it->values;
      it->images--;
    }
  }
  const ptrdiff_t row = it->first[0] + (ptrdiff_t)(it->y * it->step[0]);
  const bool is_row = it->images > 0 && row >= 0 && row < (ptrdiff_t)it->size[0];
  const bool inside = is_row && it->x >= it->low && it->x < it->high;
  const size_t end = inside ? it->high : is_row && it->x < it->low ? it->low : it->line;

  it->at = zeros;
  it->next = 0;
  if (inside) {
    const ptrdiff_t column = it->first[1] + (ptrdiff_t)(it->x * it->step[1]);

    it->at = it->image + ((size_t)row * it->size[1] + (size_t)column) * it->values;
    it->next = it->step[1] * it->values;
  }
  it->left = end - it->x;
  it->x = end;
}

static inline __m512i conv_amx_take(struct walk *it, __mmask32 mask)
{
  if (it->left == 0)
    conv_amx_next_run(it);
  const __m512i values = _mm512_maskz_loadu_epi16(mask, it->at);

  it->at += it->next;
  it->left--;
  return values;
}

/* 32 units of dy, which are copied, transposed, to (2, steps) tiles as the first products read them. */
struct transposition {
  struct walk walk;
  __mmask32 mask;
  union tile *to;
  size_t steps, t; /* t: the next step */
};

static struct transposition conv_amx_begin_dy(const struct weights *it, const struct part *part, size_t unit,
                                              union tile *to)
{
  const size_t *out = it->window.out;
  struct transposition dy = {
    .walk = {.image = it->dy + (part->first * out[0] + part->row) * out[1] * it->units + unit, .images = part->images,
             .size = {part->images > 1 ? out[0] : part->rows, out[1]}, .values = it->units, .step = {1, 1},
             .lines = it->rows, .line = it->line},
    .mask = bf16_tile_mask(it->units - unit), .to = to, .steps = it->steps};

  conv_amx_walk(&dy.walk);
  return dy;
}

/* Copies a step, if there is one. */
static inline void conv_amx_copy_dy(struct transposition *dy)
{
  __m512i low[EDGE], high[EDGE];

  if (dy->t == dy->steps)
    return;
  for (size_t i = 0; i < EDGE; i++) {
    const __m512i even = conv_amx_take(&dy->walk, dy->mask), odd = conv_amx_take(&dy->walk, dy->mask);

    bf16_tile_interleave(even, odd, &low[i], &high[i]);
  }
  bf16_tile_store(dy->to + dy->t, low, true);
  if (dy->mask >> EDGE)
    bf16_tile_store(dy->to + dy->steps + dy->t, high, true);
  dy->t++;
}

/* Copies 32 channels of a plane of x in pairs of positions: those that begin at even ones, and those at odd ones. */
static void conv_amx_copy_plane(const struct weights *it, const struct part *part, size_t channel, size_t i, size_t j,
                                trm_bf16 *even, trm_bf16 *odd)
{
  const struct trm_window2d *o = &it->window;
  const size_t next = it->plane * o->stride[0] * o->stride[1] * EDGE; /* values of a block of channels */
  const __mmask32 mask = bf16_tile_mask(it->channels - channel);
  struct walk walk = {
    .image = it->x + part->first * o->in[0] * o->in[1] * it->channels + channel, .images = part->images,
    .size = {o->in[0], o->in[1]}, .values = it->channels,
    .first = {(ptrdiff_t)(i + part->row * o->stride[0]) - (ptrdiff_t)o->pad[0], (ptrdiff_t)j - (ptrdiff_t)o->pad[1]},
    .step = {o->stride[0], o->stride[1]}, .lines = it->band < o->out[0] ? SIZE_MAX : it->rows, .line = it->line};

  conv_amx_walk(&walk);
  __m512i before = conv_amx_take(&walk, mask), low, high;
  for (size_t p = 0; p < it->plane; p += 2, even += DEPTH, odd += DEPTH) {
    const __m512i middle = conv_amx_take(&walk, mask), after = conv_amx_take(&walk, mask);

    bf16_tile_interleave(before, middle, &low, &high);
    _mm512_storeu_si512(even, low);
    if (mask >> EDGE)
      _mm512_storeu_si512(even + next, high);
    bf16_tile_interleave(middle, after, &low, &high);
    _mm512_storeu_si512(odd, low);
    if (mask >> EDGE)
      _mm512_storeu_si512(odd + next, high);
    before = after;
  }
}

static void conv_amx_copy_x(const struct weights *it, const struct part *part, trm_bf16 *to)
{
  const size_t *stride = it->window.stride;
  const size_t next = it->plane * stride[0] * stride[1] * EDGE;

  for (size_t channel = 0; channel < it->channels; channel += DEPTH)
    for (size_t i = 0; i < stride[0]; i++)
      for (size_t j = 0; j < stride[1]; j++) {
        trm_bf16 *at = to + channel / EDGE * next + (i * stride[1] + j) * it->plane * EDGE;

        conv_amx_copy_plane(it, part, channel, i, j, at, at + it->copy);
      }
}

/* -- products */

static inline void conv_amx_zero(void)
{
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
}

/* Adds the products of `steps` tiles to sums of 16 units and `pairs` pairs, which begin at 0 if `first`. Copies dy, one
 * step ahead, while AMX multiplies. */
CPU_INLINE void conv_amx_row(const int pairs, bool first, struct transposition *dy, const union tile *a,
                             const trm_bf16 *x, const size_t *shift, size_t steps, union tile *sums)
{
  const trm_bf16 *b[ROW];

  for (int i = 0; i < ROW; i++)
    b[i] = x + shift[i < pairs ? i : 0];
  if (first)
    conv_amx_zero();
  else {
    _tile_loadd(0, sums, LINE);
    if (pairs > 1)
      _tile_loadd(1, sums + 1, LINE);
    if (pairs > 2)
      _tile_loadd(2, sums + 2, LINE);
    if (pairs > 3)
      _tile_loadd(3, sums + 3, LINE);
    if (pairs > 4)
      _tile_loadd(4, sums + 4, LINE);
  }
  conv_amx_copy_dy(dy);
  for (size_t t = 0; t < steps; t++) {
    conv_amx_copy_dy(dy);
    amx_tile_written(a);
    _tile_loadd(5, a + t, LINE);
    _tile_loadd(6, b[0] + t * TILE, LINE);
    _tile_dpbf16ps(0, 5, 6);
    if (pairs > 1) {
      _tile_loadd(7, b[1] + t * TILE, LINE);
      _tile_dpbf16ps(1, 5, 7);
    }
    if (pairs > 2) {
      _tile_loadd(6, b[2] + t * TILE, LINE);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (pairs > 3) {
      _tile_loadd(7, b[3] + t * TILE, LINE);
      _tile_dpbf16ps(3, 5, 7);
    }
    if (pairs > 4) {
      _tile_loadd(6, b[4] + t * TILE, LINE);
      _tile_dpbf16ps(4, 5, 6);
    }
  }
  _tile_stored(0, sums, LINE);
  if (pairs > 1)
    _tile_stored(1, sums + 1, LINE);
  if (pairs > 2)
    _tile_stored(2, sums + 2, LINE);
  if (pairs > 3)
    _tile_stored(3, sums + 3, LINE);
  if (pairs > 4)
    _tile_stored(4, sums + 4, LINE);
}

/* The same of 2 x 16 units and 2 pairs. */
static void conv_amx_square(bool first, struct transposition *dy, const union tile *a, const trm_bf16 *x,
                            const size_t *shift, size_t steps, union tile *sums, size_t pairs)
{
  const trm_bf16 *b[] = {x + shift[0], x + shift[1]};

  if (first)
    conv_amx_zero();
  else {
    _tile_loadd(0, sums, LINE);
    _tile_loadd(1, sums + 1, LINE);
    _tile_loadd(2, sums + pairs, LINE);
    _tile_loadd(3, sums + pairs + 1, LINE);
  }
  conv_amx_copy_dy(dy);
  for (size_t t = 0; t < steps; t++) {
    conv_amx_copy_dy(dy);
    amx_tile_written(a);
    _tile_loadd(4, a + t, LINE);
    _tile_loadd(6, b[0] + t * TILE, LINE);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b[1] + t * TILE, LINE);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + steps + t, LINE);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, LINE);
  _tile_stored(1, sums + 1, LINE);
  _tile_stored(2, sums + pairs, LINE);
  _tile_stored(3, sums + pairs + 1, LINE);
}

/* All pairs of 16 units, some at a time: a product waits for the one before it that has the same sums. */
static void conv_amx_rows(const struct weights *it, bool first, struct transposition *dy, const union tile *a,
                          const trm_bf16 *x, size_t pair, union tile *sums)
{
  for (size_t some; pair < it->pairs; pair += some) {
    const size_t left = it->pairs - pair, rounds = conv_ceil_div(left, ROW);
    const size_t *shift = it->shift + pair;

    some = conv_ceil_div(left, rounds);
    if (some == 5)
      conv_amx_row(5, first, dy, a, x, shift, it->steps, sums + pair);
    else if (some == 4)
      conv_amx_row(4, first, dy, a, x, shift, it->steps, sums + pair);
    else if (some == 3)
      conv_amx_row(3, first, dy, a, x, shift, it->steps, sums + pair);
    else if (some == 2)
      conv_amx_row(2, first, dy, a, x, shift, it->steps, sums + pair);
    else
      conv_amx_row(1, first, dy, a, x, shift, it->steps, sums + pair);
  }
}

/* Adds the products of copied rows of x, and of dy, which is copied to `tiles`. */
static void conv_amx_add(const struct weights *it, const struct part *part, bool first, size_t unit, size_t blocks,
                         const trm_bf16 *x, union tile *tiles, union tile *sums)
{
  for (size_t n = 0; n < blocks; n += 2, sums += 2 * it->pairs) {
    struct transposition dy = conv_amx_begin_dy(it, part, unit + n * EDGE, tiles);
    size_t pair = 0;

    for (; n + 1 < blocks && pair + 2 <= it->pairs; pair += 2)
      conv_amx_square(first, &dy, tiles, x, it->shift + pair, it->steps, sums + pair, it->pairs);
    conv_amx_rows(it, first, &dy, tiles, x, pair, sums);
    if (n + 1 < blocks)
      conv_amx_rows(it, first, &dy, tiles + it->steps, x, pair, sums + it->pairs);
  }
}

/* Item: (chunk, set). */
static void conv_amx_body(const void *arguments, size_t low, size_t high)
{
  const struct weights *it = arguments;
  trm_bf16 *x = (trm_bf16 *)(it->copies + (size_t)cpu_thread() * it->per_thread);
  union tile *dy = (union tile *)(x + 2 * it->copy);

  amx_tile_configure();
  for (size_t item = low; item < high; item++) {
    const size_t chunk = item / it->sets, unit = item % it->sets * it->set;
    const size_t end = conv_min((chunk + 1) * it->chunk, it->b), blocks = conv_min(it->set, it->units - unit) / EDGE;
    union tile *sums = it->sums + (chunk * it->units + unit) / EDGE * it->pairs;
    struct part part = {.first = chunk * it->chunk};
    bool first = true;

    while (part.first < end) {
      part.images = conv_min(it->group, end - part.first);
      part.rows = conv_min(it->band, it->window.out[0] - part.row);
      conv_amx_copy_x(it, &part, x);
      conv_amx_add(it, &part, first, unit, blocks, x, dy, sums);
      first = false;
      part.row += part.rows;
      if (part.row == it->window.out[0]) {
        part.row = 0;
        part.first += part.images;
      }
    }
  }
  _tile_release();
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* -- sums of the chunks; item: a block of units */

CPU_CLONES static void conv_amx_sum_body(const void *arguments, size_t low, size_t high)
{
  const struct weights *it = arguments;
  const size_t chunk = it->units / EDGE * it->pairs;

  for (size_t item = low * it->pairs; item < high * it->pairs; item++) {
    const size_t unit = item / it->pairs * EDGE, pair = item % it->pairs;
    float *to = it->dw + (unit * it->channels + pair / it->taps * EDGE) * it->taps + pair % it->taps;
    float sum[SUMS];

    memcpy(sum, it->sums[item].sums, sizeof sum);
    for (size_t i = 1; i < it->chunks; i++)
#pragma omp simd
      for (size_t j = 0; j < SUMS; j++)
        sum[j] += it->sums[i * chunk + item].sums[j];
    for (size_t n = 0; n < EDGE; n++, to += it->channels * it->taps)
      for (size_t c = 0; c < EDGE; c++)
        to[c * it->taps] = it->beta == 0 ? sum[n * EDGE + c] : to[c * it->taps] + sum[n * EDGE + c];
  }
}

/* Sets what follows from the window, for the rows that are copied at a time. */
static void conv_amx_layout(struct weights *it)
{
  const struct trm_window2d *o = &it->window;
  const size_t *stride = o->stride, planes = stride[0] * stride[1];
  const size_t more = (o->kernel[0] - 1) / stride[0] + 1; /* rows behind the last */

  it->line = conv_amx_line(o);
  it->rows = conv_ceil_div(o->in[0] + o->pad[0], stride[0]);
  it->rows = it->rows < o->out[0] ? o->out[0] : it->rows;
  const size_t fit = GROUP_VALUES / (2 * (planes * it->channels + EDGE) * it->line);

  it->band = o->out[0];
  it->group = it->rows <= fit ? conv_min(fit / it->rows, it->chunk) : 1;
  if (it->rows > fit)
    it->rows = it->band = conv_min(fit > more ? fit - more : 1, o->out[0]);
  it->steps = conv_ceil_div(it->group * it->rows * it->line, DEPTH);
  it->plane = conv_ceil_div(it->steps * DEPTH + more * it->line + o->kernel[1], DEPTH) * DEPTH;
  it->copy = planes * it->plane * it->channels;
  it->per_thread = 2 * it->copy * sizeof *it->x + 2 * it->steps * sizeof *it->sums;
}

static void conv_amx_set_shifts(struct weights *it)
{
  const struct trm_window2d *o = &it->window;

  for (size_t pair = 0; pair < it->pairs; pair++) {
    const size_t block = pair / it->taps, i = pair % it->taps / o->kernel[1], j = pair % o->kernel[1];
    const size_t plane = (block * o->stride[0] + i % o->stride[0]) * o->stride[1] + j % o->stride[1];
    const size_t at = plane * it->plane + i / o->stride[0] * it->line + j / o->stride[1];

    it->shift[pair] = at / 2 * DEPTH + at % 2 * it->copy;
  }
}

bool conv_amx_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  const struct trm_conv2d *conv = &call->conv;
  const size_t *kernel = conv->window.kernel, *out = conv->window.out, threads = (size_t)device->threads;
  struct weights it = {.x = call->x, .dy = call->dy, .window = conv->window, .channels = conv->channels,
                       .units = conv->units, .b = call->b, .taps = kernel[0] * kernel[1], .beta = call->beta,
                       .dw = call->dw};

  if (!conv_amx_takes(conv, call->type))
    return false;
  it.pairs = it.channels / EDGE * it.taps;
  it.set = conv_min(it.units, TASK_UNITS);
  it.sets = conv_ceil_div(it.units, it.set);
  it.chunk = conv_ceil_div(it.b, conv_min(it.b, conv_ceil_div(TASKS, it.sets)));
  it.chunks = conv_ceil_div(it.b, it.chunk);
  conv_amx_layout(&it);
  const size_t sums = it.chunks * it.units / EDGE * it.pairs;
  const size_t bytes = sums * sizeof *it.sums + threads * it.per_thread + it.pairs * sizeof *it.shift;

  it.sums = (union tile *)(((uintptr_t)cpu_scratch(device, LINE + bytes) + LINE - 1) / LINE * LINE);
  it.copies = (char *)(it.sums + sums);
  it.shift = (size_t *)(void *)(it.copies + threads * it.per_thread);
  conv_amx_set_shifts(&it);
  cpu_for(device, it.chunks * it.sets, 1, (double)it.chunk * (double)(out[0] * it.line) * (double)(it.pairs * it.set),
          conv_amx_body, &it);
  cpu_for(device, it.units / EDGE, 1, (double)(it.pairs * SUMS * it.chunks), conv_amx_sum_body, &it);
  if (call->db)
    cpu_bias_backward(device, &(struct trm_bias_backward){.dy = call->dy, .db = call->db, .beta = call->beta,
                                                          .b = call->b * out[0] * out[1], .n = conv->units,
                                                          .type = call->type});
  return true;
}

#else
bool conv_amx_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  (void)device;
  (void)call;
  return false;
}
#endif
