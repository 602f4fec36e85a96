#include "kernels/cpu/conv_stage.h"

#include <string.h>

/* Copies n values at element `at`. */
CPU_INLINE void conv_stage_copy(enum trm_value_type type, const void *from, size_t at, size_t n, float *to)
{
  if (type == TRM_VALUES_F32) {
    memcpy(to, (const float *)from + at, n * sizeof(*to));
  } else {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      to[i] = cpu_value(TRM_VALUES_BF16, from, at + i);
  }
}

CPU_INLINE void conv_stage_zero(float *to, size_t n)
{
  memset(to, 0, n * sizeof(*to));
}

/* Row of a phase: to[j] = row[j step + b - left] within [0, width), else 0; row: at element `at`. */
CPU_INLINE void conv_stage_row(const struct conv_stage *stage, const void *from, size_t at, size_t b, float *to)
{
  const ptrdiff_t step = (ptrdiff_t)stage->step[1], width = (ptrdiff_t)stage->width;
  const ptrdiff_t shift = (ptrdiff_t)b - stage->left; /* column of j = 0 */
  const ptrdiff_t pitch = (ptrdiff_t)stage->pitch;
  ptrdiff_t low = shift < 0 ? (-shift + step - 1) / step : 0;
  ptrdiff_t high = shift < width ? (width - shift + step - 1) / step : 0;

  high = high < pitch ? high : pitch;
  low = low < high ? low : high;
  conv_stage_zero(to, (size_t)low);
  if (step == 1)
    conv_stage_copy(stage->type, from, at + (size_t)(low + shift), (size_t)(high - low), to + low);
  else if (step == 2 && stage->type == TRM_VALUES_F32) /* constant stride, so that it is vectorized */
    for (ptrdiff_t j = low; j < high; j++)
      to[j] = ((const float *)from + at)[j * 2 + shift];
  else
    for (ptrdiff_t j = low; j < high; j++)
      to[j] = cpu_value(stage->type, from, (size_t)((ptrdiff_t)at + j * step + shift));
  conv_stage_zero(to + high, (size_t)(pitch - high));
}

CPU_CLONES static void conv_stage_cloned(const struct conv_stage *stage, const void *images, size_t at, ptrdiff_t first,
                                         float *to)
{
  for (size_t c = 0; c < stage->channels; c++, at += stage->height * stage->width)
    for (size_t a = 0; a < stage->phases[0]; a++)
      for (size_t b = 0; b < stage->phases[1]; b++)
        for (size_t r = 0; r < stage->rows; r++, to += stage->pitch) {
          const ptrdiff_t row = first + (ptrdiff_t)(r * stage->step[0] + a);

          if (row < 0 || row >= (ptrdiff_t)stage->height)
            conv_stage_zero(to, stage->pitch);
          else
            conv_stage_row(stage, images, at + (size_t)row * stage->width, b, to);
        }
  conv_stage_zero(to, CONV_SLACK);
}

/* not cloned itself: clang can only clone static functions here */
void conv_stage_image(const struct conv_stage *stage, const void *images, size_t at, ptrdiff_t first, float *to)
{
  conv_stage_cloned(stage, images, at, first, to);
}

struct conv_grid conv_grid_of(size_t columns, int lanes)
{
  const size_t width = (size_t)lanes;

  return (struct conv_grid){
    .columns = columns, .lanes = lanes, .halves = columns <= width / 2, .row_vectors = (columns + width - 1) / width};
}

size_t conv_grid_vectors(const struct conv_grid *grid, size_t rows)
{
  return grid->halves ? (rows + 1) / 2 : rows * grid->row_vectors;
}

void conv_grid_offsets(const struct conv_grid *grid, size_t rows, size_t origin, size_t pitch, uint32_t *offset)
{
  for (size_t r = 0; r < rows; r++)
    if (grid->halves)
      *offset++ = (uint32_t)(origin + r * pitch);
    else
      for (size_t v = 0; v < grid->row_vectors; v++)
        *offset++ = (uint32_t)(origin + r * pitch + v * (size_t)grid->lanes);
  if (grid->halves && rows % 2)
    *offset = (uint32_t)(origin + (rows - 1) * pitch); /* no second row: repeat the last one */
}

void conv_grid_gather(const struct conv_grid *grid, size_t rows, enum trm_value_type type, const void *from, size_t at,
                      float *to)
{
  const size_t length = (size_t)grid->lanes * (grid->halves ? 1 : 2 * grid->row_vectors) / 2; /* floats per row */

  for (size_t r = 0; r < rows; r++, at += grid->columns, to += length) {
    conv_stage_copy(type, from, at, grid->columns, to);
    conv_stage_zero(to + grid->columns, length - grid->columns);
  }
  if (grid->halves && rows % 2)
    conv_stage_zero(to, length);
}
