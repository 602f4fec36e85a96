/* Convolution. Forward and backward to the data compute strips of output rows; backward to the weights computes
 * products over all positions (conv.h specifies the micro-kernels). Where oneDNN is faster, it computes them
 * (conv_onednn.h). */
#include <string.h>

#include "core/memory.h"
#include "kernels/cpu/conv_amx.h"
#include "kernels/cpu/conv_onednn.h"
#include "kernels/cpu/conv_stage.h"
#include "kernels/kernels.h"

/* Floats of a staged band: fits into a core's L2 cache together with weights. */
#define STRIP_FLOATS 65536
#define PRODUCT_FLOATS 131072
/* Minimum number of vectors per product. */
#define PRODUCT_VECTORS 64
/* Tasks of the products: independent of the number of threads, because they fix the order of additions. And the largest
 * size of the partial sums, one set per chunk of the batch. */
#define PRODUCT_TASKS CONV_CHUNKS
#define PRODUCT_SUMS ((size_t)1 << 20)

static const struct conv_kernels *conv_device_kernels(const struct trm_device *device)
{
  return ((const struct cpu_state *)device->impl)->conv;
}

const char *trm_convolution_library(void)
{
  return conv_onednn_name();
}

/* -- strips: forward, and backward to the data */

/* Output positions that are sums over the same taps: count[0] * count[1] positions at first + step * i. Forward has one
 * kind, backward with a stride one per remainder. */
struct kind {
  size_t count[2], first[2];
  size_t origin;  /* offset of position (0, 0) in the staged phase */
  int taps;
  uint32_t *tap;  /* (taps) offsets in the staged channel */
  int *source;    /* (taps) element of the kernel */
  size_t packed;  /* offset of its weights within the group */
  struct conv_grid grid;
  uint32_t *offset;   /* for `band` rows */
};

struct strips {
  const struct conv_kernels *kernels;
  struct conv_stage stage;
  size_t groups, in, out, blocks;  /* channels per group; blocks of output channels */
  size_t size[2], step[2];         /* of the output image; of a kind's positions in it */
  size_t band, bands, band_step;   /* output rows per band; number of bands; staged rows from one band to the next */
  ptrdiff_t band_first;
  struct kind *kind;               /* (kinds) */
  int kinds;
  size_t out_stride, in_stride, group_stride; /* strides of the weights */
  bool plain; /* a unit's weights are in the order of (channels, taps) */
  size_t packed_group;             /* floats of packed weights per group */
  const void *w;
  const float *bias;
  float *packed, *start, *staging;   /* start (groups, blocks, units): bias or 0 */
  size_t per_thread;                     /* floats of staging per thread */
  const void *from; /* stage.type */
  void *to;
};

/* Copies (units, n), whose rows are `stride` apart, to (n, units). */
CPU_CLONES static void conv_transpose(float *to, const float *from, size_t units, size_t stride, size_t n)
{
  for (size_t i = 0; i < n; i++)
#pragma omp simd
    for (size_t u = 0; u < units; u++)
      to[i * units + u] = from[u * stride + i];
}

/* Work item: (group, kind, block). Packs weights into (channels, taps, units). */
static void conv_pack_body(const void *arguments, size_t low, size_t high)
{
  const struct strips *it = arguments;
  const size_t units = (size_t)it->kernels->units;

  for (size_t item = low; item < high; item++) {
    const size_t group = item / it->blocks / (size_t)it->kinds, block = item % it->blocks;
    const struct kind *kind = &it->kind[item / it->blocks % (size_t)it->kinds];
    const size_t taps = (size_t)kind->taps, valid = conv_min(units, it->out - block * units);
    const size_t w = group * it->group_stride + block * units * it->out_stride;
    float *to = it->packed + group * it->packed_group + kind->packed + block * it->in * taps * units;

    if (it->stage.type == TRM_VALUES_F32 && valid == units && it->plain) {
      conv_transpose(to, (const float *)it->w + w, units, it->out_stride, it->in * taps);
      continue;
    }
    for (size_t c = 0; c < it->in; c++)
      for (size_t t = 0; t < taps; t++, to += units)
        for (size_t n = 0; n < units; n++)
          to[n] = n < valid ? cpu_value(it->stage.type, it->w,
                                        w + n * it->out_stride + c * it->in_stride + (size_t)kind->source[t])
                            : 0;
  }
}

/* Writes `count` positions of a row of the channel at element `channel`. */
static void conv_store_row(const struct strips *it, const struct kind *kind, size_t channel, size_t row, size_t column,
                           const float *tile, size_t count)
{
  const size_t at =
    channel + (kind->first[0] + row * it->step[0]) * it->size[1] + kind->first[1] + column * it->step[1];
  float *to = (float *)it->to + at;

  if (it->stage.type == TRM_VALUES_BF16)
    for (size_t j = 0; j < count; j++)
      ((trm_bf16 *)it->to)[at + j * it->step[1]] = trm_bf16_round(tile[j]);
  else if (it->step[1] != 1)
    for (size_t j = 0; j < count; j++)
      to[j * it->step[1]] = tile[j];
  else if (count == CONV_LANES)
    memcpy(to, tile, CONV_LANES * sizeof(*to));
  else if (count == CONV_LANES / 2)
    memcpy(to, tile, CONV_LANES / 2 * sizeof(*to));
  else
    memcpy(to, tile, count * sizeof(*to));
}

/* Writes a strip's tile (units, vectors, lanes) to the image. high: rows of the kind. */
static void conv_store_strip(const struct strips *it, const struct kind *kind, const float *tile, size_t first,
                             size_t vectors, size_t row0, size_t high, size_t channel, size_t valid)
{
  const struct conv_grid *grid = &kind->grid;
  const size_t lanes = (size_t)grid->lanes;

  for (size_t n = 0; n < valid; n++, channel += it->size[0] * it->size[1])
    for (size_t v = first; v < first + vectors; v++, tile += lanes)
      if (grid->halves) {
        conv_store_row(it, kind, channel, row0 + 2 * v, 0, tile, grid->columns);
        if (row0 + 2 * v + 1 < high)
          conv_store_row(it, kind, channel, row0 + 2 * v + 1, 0, tile + lanes / 2, grid->columns);
      } else {
        const size_t row = v / grid->row_vectors, column = v % grid->row_vectors * lanes;

        conv_store_row(it, kind, channel, row0 + row, column, tile, conv_min(lanes, grid->columns - column));
      }
}

/* Computes all strips of one kind, for one band of one group of an image. */
static void conv_run_kind(const struct strips *it, const struct kind *kind, size_t group, size_t row0,
                          const float *staged, size_t to)
{
  const size_t units = (size_t)it->kernels->units, max_vectors = (size_t)it->kernels->vectors;
  const size_t high = conv_min(kind->count[0], row0 + it->band);
  const size_t vectors = high > row0 ? conv_grid_vectors(&kind->grid, high - row0) : 0;
  const size_t count = conv_ceil_div(vectors, max_vectors);
  float tile[CONV_UNITS * CONV_VECTORS * CONV_LANES];
  struct conv_strip strip = {.x = staged, .channels = it->in, .plane = it->stage.plane, .tap = kind->tap,
                             .taps = kind->taps, .halves = kind->grid.halves, .out = tile};

  for (size_t block = 0; block < it->blocks; block++) {
    strip.start = it->start + (group * it->blocks + block) * units;
    strip.w = it->packed + group * it->packed_group + kind->packed + block * it->in * (size_t)kind->taps * units;
    for (size_t s = 0; s < count; s++) {
      const size_t first = s * vectors / count, last = (s + 1) * vectors / count;

      strip.offset = kind->offset + first * (kind->grid.halves ? 2 : 1);
      strip.vectors = (int)(last - first);
      it->kernels->strip(&strip);
      conv_store_strip(it, kind, tile, first, last - first, row0, high, to + block * units * it->size[0] * it->size[1],
                       conv_min(units, it->out - block * units));
    }
  }
}

/* Work item: (image, group, band). */
static void conv_strips_body(const void *arguments, size_t low, size_t high)
{
  const struct strips *it = arguments;
  float *staged = it->staging + (size_t)cpu_thread() * it->per_thread;

  for (size_t item = low; item < high; item++) {
    const size_t band = item % it->bands, group = item / it->bands % it->groups, image_group = item / it->bands;
    const ptrdiff_t first = it->band_first + (ptrdiff_t)(band * it->band * it->band_step);

    conv_stage_image(&it->stage, it->from, image_group * it->in * it->stage.height * it->stage.width, first, staged);
    for (int k = 0; k < it->kinds; k++)
      conv_run_kind(it, &it->kind[k], group, band * it->band, staged,
                    image_group * it->out * it->size[0] * it->size[1]);
  }
}

/* Sets the height of the bands: as many rows as fit into the cache, but enough bands for all threads. */
static void conv_choose_bands(const struct trm_device *device, struct strips *it, size_t rows, size_t more_rows,
                              size_t images)
{
  const size_t row_floats = it->in * it->stage.phases[0] * it->stage.phases[1] * it->stage.pitch;
  const size_t fit = STRIP_FLOATS / row_floats;

  it->band = fit > more_rows ? conv_min(fit - more_rows, rows) : 1;
  while (it->band > 4 && images * it->groups * conv_ceil_div(rows, it->band) < 2 * (size_t)device->threads)
    it->band = conv_ceil_div(it->band, 2);
  it->bands = conv_ceil_div(rows, it->band);
  it->stage.rows = it->band + more_rows;
  it->stage.plane = it->stage.phases[0] * it->stage.phases[1] * it->stage.rows * it->stage.pitch;
}

/* Allocates kinds of at most `taps` taps each; conv_run_strips frees them. */
static struct kind *conv_alloc_kinds(size_t kinds, size_t taps)
{
  struct kind *kind = trm_alloc(kinds * sizeof(*kind), "convolution");

  kind[0].tap = trm_alloc(kinds * taps * sizeof(*kind->tap), "convolution");
  kind[0].source = trm_alloc(kinds * taps * sizeof(*kind->source), "convolution");
  for (size_t k = 1; k < kinds; k++) {
    kind[k].tap = kind[0].tap + k * taps;
    kind[k].source = kind[0].source + k * taps;
  }
  return kind;
}

/* Packs the weights, sets the offsets of the vectors, and runs the strips. */
static void conv_run_strips(struct trm_device *device, struct strips *it, size_t images)
{
  const size_t units = (size_t)it->kernels->units;
  double work = 0;

  it->blocks = conv_ceil_div(it->out, units);
  for (int k = 0; k < it->kinds; k++) {
    struct kind *kind = &it->kind[k];

    kind->grid = conv_grid_of(kind->count[1], it->kernels->lanes);
    kind->offset = trm_alloc((2 + it->band * (kind->grid.row_vectors + 1)) * sizeof(*kind->offset), "convolution");
    conv_grid_offsets(&kind->grid, it->band, kind->origin, it->stage.pitch, kind->offset);
    kind->packed = it->packed_group;
    it->packed_group += it->blocks * it->in * (size_t)kind->taps * units;
    work += (double)kind->taps * (double)it->in * (double)it->out * (double)it->band * (double)kind->count[1] / 16;
  }
  it->per_thread = (it->in * it->stage.plane + 2 * CONV_SLACK - 1) / CONV_SLACK * CONV_SLACK;
  const size_t packed = it->groups * it->packed_group, start = it->groups * it->blocks * units;
  it->staging = cpu_scratch(device, ((size_t)device->threads * it->per_thread + packed + start) * sizeof(*it->staging));
  it->packed = it->staging + (size_t)device->threads * it->per_thread;
  it->start = it->packed + packed;
  for (size_t g = 0; g < it->groups; g++)
    for (size_t n = 0; n < it->blocks * units; n++)
      it->start[g * it->blocks * units + n] = it->bias && n < it->out ? it->bias[g * it->out + n] : 0;
  cpu_for(device, it->groups * (size_t)it->kinds * it->blocks, 1, (double)(it->packed_group / it->blocks),
          conv_pack_body, it);
  cpu_for(device, images * it->groups * it->bands, 1, work, conv_strips_body, it);
  for (int k = 0; k < it->kinds; k++)
    trm_free(it->kind[k].offset);
  trm_free(it->kind[0].tap);
  trm_free(it->kind[0].source);
  trm_free(it->kind);
}

/* Staging of the input for forward and weight gradients. The caller sets the number of rows. */
static struct conv_stage conv_forward_stage(const struct trm_conv2d *conv, enum trm_value_type type)
{
  const struct trm_window2d *o = &conv->window;

  return (struct conv_stage){
    .type = type,
    .channels = conv->channels / conv->groups,
    .height = o->in[0],
    .width = o->in[1],
    .step = {o->stride[0], o->stride[1]},
    .phases = {conv_min(o->stride[0], o->kernel[0]), conv_min(o->stride[1], o->kernel[1])},
    .pitch = o->out[1] + (o->kernel[1] - 1) / o->stride[1],
    .left = (ptrdiff_t)o->pad[1],
  };
}

/* Offset of element (i, j) of the kernel in a staged channel. */
static uint32_t conv_forward_tap(const struct trm_conv2d *conv, const struct conv_stage *stage, size_t i, size_t j)
{
  const size_t *stride = conv->window.stride;
  const size_t phase = i % stride[0] * stage->phases[1] + j % stride[1];

  return (uint32_t)((phase * stage->rows + i / stride[0]) * stage->pitch + j / stride[1]);
}

void cpu_conv2d_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  const struct trm_conv2d *conv = &call->conv;
  const struct trm_window2d *o = &conv->window;
  const size_t taps = o->kernel[0] * o->kernel[1];
  struct strips it = {
    .kernels = conv_device_kernels(device),
    .stage = conv_forward_stage(conv, call->type),
    .groups = conv->groups,
    .in = conv->channels / conv->groups,
    .out = conv->units / conv->groups,
    .size = {o->out[0], o->out[1]},
    .step = {1, 1},
    .band_step = o->stride[0],
    .band_first = -(ptrdiff_t)o->pad[0],
    .kinds = 1,
    .w = call->w,
    .bias = call->bias,
    .from = call->x,
    .to = call->y,
  };
  if (call->b == 0 || conv_amx_forward(device, call) || conv_onednn_forward(device, call))
    return;
  if (conv->x_last || conv->y_last) {
    conv_planes_forward(device, call);
    return;
  }
  it.out_stride = it.in * taps;
  it.in_stride = taps;
  it.plain = true;
  it.group_stride = it.out * it.in * taps;
  conv_choose_bands(device, &it, o->out[0], (o->kernel[0] - 1) / o->stride[0], call->b);
  it.kind = conv_alloc_kinds(1, taps);
  *it.kind = (struct kind){
    .count = {o->out[0], o->out[1]}, .taps = (int)taps, .tap = it.kind->tap, .source = it.kind->source};
  for (size_t i = 0; i < o->kernel[0]; i++)
    for (size_t j = 0; j < o->kernel[1]; j++) {
      it.kind->tap[i * o->kernel[1] + j] = conv_forward_tap(conv, &it.stage, i, j);
      it.kind->source[i * o->kernel[1] + j] = (int)(i * o->kernel[1] + j);
    }
  conv_run_strips(device, &it, call->b);
}

/* One dimension of backward to the data. Input h and kernel element k belong to output (h + pad - k) / stride if that
 * is an integer: with h + pad = stride u + a and k = a + stride m, to output u - m. */
struct phase {
  size_t taps;       /* m = 0 .. taps - 1 */
  ptrdiff_t low;     /* u of the first h */
  size_t first, count; /* the first h, and the number of h */
};

static struct phase conv_phase(const struct trm_window2d *o, int d, size_t a)
{
  const ptrdiff_t s = (ptrdiff_t)o->stride[d], pad = (ptrdiff_t)o->pad[d], shift = pad - (ptrdiff_t)a;
  const ptrdiff_t low = shift > 0 ? (shift + s - 1) / s : -(-shift / s);
  const size_t first = (size_t)(low * s - shift);

  return (struct phase){.taps = a < o->kernel[d] ? conv_ceil_div(o->kernel[d] - a, o->stride[d]) : 0,
                        .low = low,
                        .first = first,
                        .count = first < o->in[d] ? conv_ceil_div(o->in[d] - first, o->stride[d]) : 0};
}

/* Properties of all phases of a dimension. */
struct phases {
  ptrdiff_t low, high; /* u in [low, high) */
  size_t spread;       /* from the lowest first u to the highest one */
  size_t taps, count;  /* maximum over the phases */
  bool covered;            /* every phase has a tap */
};

static struct phases conv_phases(const struct trm_window2d *o, int d)
{
  struct phases all = {.low = PTRDIFF_MAX, .high = PTRDIFF_MIN, .covered = true};

  for (size_t a = 0; a < o->stride[d]; a++) {
    const struct phase p = conv_phase(o, d, a);

    all.low = p.low < all.low ? p.low : all.low;
    all.high = p.low + (ptrdiff_t)p.count > all.high ? p.low + (ptrdiff_t)p.count : all.high;
    all.taps = p.taps > all.taps ? p.taps : all.taps;
    all.count = p.count > all.count ? p.count : all.count;
    all.covered = all.covered && p.taps;
  }
  for (size_t a = 0; a < o->stride[d]; a++)
    all.spread = (size_t)(conv_phase(o, d, a).low - all.low) > all.spread ? (size_t)(conv_phase(o, d, a).low - all.low)
                                                                          : all.spread;
  return all;
}

/* Sets positions and taps of the kind with phases (a, b), in an image staged from (low - taps + 1) on. */
static void conv_fill_kind(struct kind *kind, const struct trm_window2d *o, const struct conv_stage *stage, size_t a,
                           size_t b, const struct phases all[2])
{
  const struct phase v = conv_phase(o, 0, a), h = conv_phase(o, 1, b);

  *kind = (struct kind){.count = {v.count, h.count},
                        .first = {v.first, h.first},
                        .origin = (size_t)(v.low - all[0].low) * stage->pitch + (size_t)(h.low - all[1].low),
                        .tap = kind->tap,
                        .source = kind->source};
  for (size_t m = 0; m < v.taps; m++)
    for (size_t n = 0; n < h.taps; n++, kind->taps++) {
      kind->tap[kind->taps] = (uint32_t)((all[0].taps - 1 - m) * stage->pitch + (all[1].taps - 1 - n));
      kind->source[kind->taps] = (int)((a + m * o->stride[0]) * o->kernel[1] + b + n * o->stride[1]);
    }
}

static void conv_backward_data(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  const struct trm_conv2d *conv = &call->conv;
  const struct trm_window2d *o = &conv->window;
  const size_t taps = o->kernel[0] * o->kernel[1];
  const struct phases all[2] = {conv_phases(o, 0), conv_phases(o, 1)};
  struct strips it = {
    .kernels = conv_device_kernels(device),
    .groups = conv->groups,
    .in = conv->units / conv->groups,
    .out = conv->channels / conv->groups,
    .size = {o->in[0], o->in[1]},
    .step = {o->stride[0], o->stride[1]},
    .band_step = 1,
    .band_first = all[0].low - (ptrdiff_t)all[0].taps + 1,
    .w = call->w,
    .from = call->dy,
    .to = call->dx,
  };
  if (conv_amx_backward_data(device, call) || conv_onednn_backward_data(device, call))
    return;
  if (conv->x_last || conv->y_last) {
    struct trm_conv2d_backward data = *call;

    data.dw = NULL;
    conv_planes_backward(device, &data);
    return;
  }
  it.stage = (struct conv_stage){
    .type = call->type,
    .channels = it.in,
    .height = o->out[0],
    .width = o->out[1],
    .step = {1, 1},
    .phases = {1, 1},
    .pitch = (size_t)(all[1].high - all[1].low) + all[1].taps - 1,
    .left = (ptrdiff_t)all[1].taps - 1 - all[1].low,
  };
  it.out_stride = taps;
  it.in_stride = it.out * taps;
  it.group_stride = it.in * it.out * taps;
  conv_choose_bands(device, &it, all[0].count, all[0].spread + all[0].taps - 1, call->b);
  it.kind = conv_alloc_kinds(o->stride[0] * o->stride[1], taps);
  for (size_t i = 0; i < o->stride[0]; i++)
    for (size_t j = 0; j < o->stride[1]; j++)
      if (i < o->kernel[0] && j < o->kernel[1])
        conv_fill_kind(&it.kind[it.kinds++], o, &it.stage, i, j, all);
  if (!all[0].covered || !all[1].covered) /* some inputs belong to no output */
    memset(call->dx, 0, call->b * conv->channels * o->in[0] * o->in[1] * trm_value_bytes(call->type));
  conv_run_strips(device, &it, call->b);
}

/* -- products: the weights' gradient */

struct weights {
  const struct conv_kernels *kernels;
  struct conv_stage stage;
  struct conv_grid grid;
  size_t groups, in, out, pairs;         /* per group; pairs: (channel, tap) */
  size_t blocks, sets;                   /* blocks of units; sets of blocks that share staging */
  size_t size[2];                        /* (OH, OW) */
  size_t band, bands, tiles, chunks;    /* tiles: bands of all images; chunks: intervals of tiles */
  size_t images, vectors;                /* tiles staged at a time; vectors per tile */
  size_t step, pad;                      /* stride and padding of rows */
  uint32_t *tap, *offset;                    /* (kernel elements) */
  size_t taps;
  const void *x, *dy; /* stage.type */
  float *staging, *partial;                /* partial (chunks, elements): weights, then biases */
  size_t per_thread, staged_image, elements;
  bool bias;
};

static void conv_pack_inputs(const struct weights *it, size_t tile, size_t count, size_t group, float *x)
{
  const size_t image_in = it->stage.height * it->stage.width;

  for (size_t p = tile; p < tile + count; p++, x += it->staged_image) {
    const size_t row = p % it->bands * it->band;

    conv_stage_image(&it->stage, it->x, (p / it->bands * it->groups + group) * it->in * image_in,
                     (ptrdiff_t)(row * it->step) - (ptrdiff_t)it->pad, x);
  }
}

/* Packs dy of a block into (units, count, vectors, lanes). */
static void conv_pack_outputs(const struct weights *it, size_t tile, size_t count, size_t group, size_t block,
                              float *dy)
{
  const size_t units = (size_t)it->kernels->rows, vector = it->vectors * (size_t)it->grid.lanes;

  for (size_t unit = block * units; unit < (block + 1) * units; unit++)
    for (size_t p = tile; p < tile + count; p++, dy += vector) {
      const size_t row = p % it->bands * it->band, rows = conv_min(it->band, it->size[0] - row);
      const size_t plane = (p / it->bands * it->groups + group) * it->out + unit;

      if (unit >= it->out || rows < it->band)
        memset(dy, 0, vector * sizeof(*dy));
      if (unit < it->out)
        conv_grid_gather(&it->grid, rows, it->stage.type, it->dy, (plane * it->size[0] + row) * it->size[1], dy);
    }
}

/* Adds the products of the staged tiles to the sums of a block of units. */
static void conv_add_block(const struct weights *it, const struct conv_products *staged, size_t valid, float *sum,
                           float *bias)
{
  const size_t taps = (size_t)it->kernels->taps;
  uint32_t tap[CONV_TAPS];
  float out[CONV_ROWS * CONV_TAPS];
  struct conv_products products = *staged;
  const size_t length = products.images * it->vectors * (size_t)it->grid.lanes;

  products.tap = tap;
  products.out = out;
  for (size_t pair = 0; pair < it->pairs; pair += taps) {
    const size_t some = conv_min(taps, it->pairs - pair);

    for (size_t k = 0; k < taps; k++) {
      const size_t which = k < some ? pair + k : pair;

      tap[k] = (uint32_t)(which / it->taps * it->stage.plane) + it->tap[which % it->taps];
    }
    it->kernels->products(&products);
    for (size_t n = 0; n < valid; n++)
      for (size_t k = 0; k < some; k++)
        sum[n * it->pairs + pair + k] += out[n * taps + k];
  }
  for (size_t n = 0; it->bias && n < valid; n++)
    bias[n] += cpu_lane_sum(products.dy + n * length, length);
}

/* Work item: (chunk, group, set of blocks). */
static void conv_weights_body(const void *arguments, size_t low, size_t high)
{
  const struct weights *it = arguments;
  const size_t units = (size_t)it->kernels->rows;
  float *x = it->staging + (size_t)cpu_thread() * it->per_thread, *dy = x + it->images * it->staged_image;
  struct conv_products staged = {.x = x,
                                 .image = it->staged_image,
                                 .offset = it->offset,
                                 .vectors = it->vectors,
                                 .halves = it->grid.halves,
                                 .dy = dy};

  for (size_t item = low; item < high; item++) {
    const size_t set = item % it->sets, group = item / it->sets % it->groups, chunk = item / it->sets / it->groups;
    const size_t first = set * it->blocks / it->sets, last = (set + 1) * it->blocks / it->sets;
    const size_t unit = first * units, count = conv_min(last * units, it->out) - unit;
    const size_t end = (chunk + 1) * it->tiles / it->chunks;
    float *sums = it->partial + chunk * it->elements, *sum = sums + (group * it->out + unit) * it->pairs;
    float *bias = sums + it->groups * it->out * it->pairs + group * it->out + unit;

    memset(sum, 0, count * it->pairs * sizeof(*sum));
    memset(bias, 0, count * sizeof(*bias));
    for (size_t tile = chunk * it->tiles / it->chunks; tile < end; tile += staged.images) {
      staged.images = conv_min(it->images, end - tile);
      conv_pack_inputs(it, tile, staged.images, group, x);
      for (size_t n = 0; n < count; n += units) {
        conv_pack_outputs(it, tile, staged.images, group, first + n / units, dy);
        conv_add_block(it, &staged, conv_min(units, count - n), sum + n * it->pairs, bias + n);
      }
    }
  }
}

void conv_add_chunks(struct trm_device *device, const struct conv_chunks *it, size_t offset, float beta, float *to,
                     size_t n)
{
  const float *from[PRODUCT_TASKS];

  for (size_t c = 0; c < it->chunks; c++)
    from[c] = it->partial + c * it->elements + offset;
  if (beta == 0) {
    cpu_sum(device, &(struct trm_sum){.to = to, .from = from, .count = (int)it->chunks, .n = n});
    return;
  }
  cpu_sum(device, &(struct trm_sum){
    .to = it->partial + offset, .from = from, .count = (int)it->chunks, .n = n});
  from[0] = to;
  from[1] = it->partial + offset;
  cpu_sum(device, &(struct trm_sum){.to = to, .from = from, .count = 2, .n = n});
}

static void conv_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  const struct trm_conv2d *conv = &call->conv;
  const struct trm_window2d *o = &conv->window;
  struct weights it = {.kernels = conv_device_kernels(device),
                       .stage = conv_forward_stage(conv, call->type),
                       .groups = conv->groups,
                       .in = conv->channels / conv->groups,
                       .out = conv->units / conv->groups,
                       .size = {o->out[0], o->out[1]},
                       .step = o->stride[0],
                       .pad = o->pad[0],
                       .taps = o->kernel[0] * o->kernel[1],
                       .x = call->x,
                       .dy = call->dy,
                       .bias = call->db != NULL};
  const size_t units = (size_t)it.kernels->rows, lanes = (size_t)it.kernels->lanes;
  const size_t more_rows = (o->kernel[0] - 1) / o->stride[0];
  const size_t row_floats = it.in * it.stage.phases[0] * it.stage.phases[1] * it.stage.pitch;

  it.pairs = it.in * it.taps;
  it.elements = conv->units * (it.pairs + 1);
  if (call->b == 0) {
    if (call->beta == 0)
      cpu_fill(device, call->dw, 0, conv->units * it.pairs);
    if (call->beta == 0 && call->db)
      cpu_fill(device, call->db, 0, conv->units);
    return;
  }
  if (conv_amx_backward_weights(device, call) || conv_onednn_backward_weights(device, call))
    return;
  if (conv->x_last || conv->y_last) {
    struct trm_conv2d_backward weights = *call;

    weights.dx = NULL;
    conv_planes_backward(device, &weights);
    return;
  }
  it.blocks = conv_ceil_div(it.out, units);
  it.band = PRODUCT_FLOATS / row_floats > more_rows ? conv_min(PRODUCT_FLOATS / row_floats - more_rows, o->out[0]) : 1;
  it.bands = conv_ceil_div(o->out[0], it.band);
  it.tiles = call->b * it.bands;
  it.grid = conv_grid_of(o->out[1], it.kernels->lanes);
  it.vectors = conv_grid_vectors(&it.grid, it.band);
  it.chunks = conv_min(conv_min(it.tiles, PRODUCT_TASKS), conv_ceil_div(PRODUCT_SUMS, it.elements));
  it.chunks = conv_min(it.chunks, conv_ceil_div(2 * it.tiles * it.vectors, PRODUCT_VECTORS));
  it.sets = conv_min(it.blocks, conv_ceil_div(PRODUCT_TASKS, it.chunks * it.groups));
  it.stage.rows = it.band + more_rows;
  it.stage.plane = it.stage.phases[0] * it.stage.phases[1] * it.stage.rows * it.stage.pitch;
  it.staged_image = (it.in * it.stage.plane + 2 * CONV_SLACK - 1) / CONV_SLACK * CONV_SLACK;
  it.images = conv_min(conv_ceil_div(PRODUCT_VECTORS, it.vectors), PRODUCT_FLOATS / it.staged_image);
  it.images = it.images ? conv_min(it.images, conv_ceil_div(it.tiles, it.chunks)) : 1;

  it.tap = trm_alloc(it.taps * sizeof(*it.tap), "convolution");
  it.offset = trm_alloc((2 + it.band * (it.grid.row_vectors + 1)) * sizeof(*it.offset), "convolution");
  for (size_t i = 0; i < o->kernel[0]; i++)
    for (size_t j = 0; j < o->kernel[1]; j++)
      it.tap[i * o->kernel[1] + j] = conv_forward_tap(conv, &it.stage, i, j);
  conv_grid_offsets(&it.grid, it.band, 0, it.stage.pitch, it.offset);
  it.per_thread = it.images * (it.staged_image + units * it.vectors * lanes);
  const size_t staging = (size_t)device->threads * it.per_thread;
  it.staging = cpu_scratch(device, (staging + it.chunks * it.elements) * sizeof(*it.staging));
  it.partial = it.staging + staging;
  cpu_for(device, it.chunks * it.groups * it.sets, 1,
          (double)it.pairs * (double)(it.tiles / it.chunks) * (double)it.vectors * (double)units, conv_weights_body,
          &it);
  const struct conv_chunks sums = {it.partial, it.chunks, it.elements};
  conv_add_chunks(device, &sums, 0, call->beta, call->dw, conv->units * it.pairs);
  if (call->db)
    conv_add_chunks(device, &sums, conv->units * it.pairs, call->beta, call->db, conv->units);
  trm_free(it.tap);
  trm_free(it.offset);
}

void cpu_conv2d_backward(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  if (call->dw && call->dx && call->b > 0 && conv_onednn_backward(device, call))
    return;
  if (call->dw)
    conv_backward_weights(device, call);
  if (call->dx && call->b > 0)
    conv_backward_data(device, call);
}
