/* Shapes of samples: counting and printing. */
#include "nn/input.h"

#include <stdio.h>

size_t trm_shape_count(const struct trm_shape *shape)
{
  size_t count = 1;
  for (int d = 0; d < shape->dims; d++)
    count *= shape->size[d];
  return count;
}

const char *trm_shape_text(const struct trm_shape *shape)
{
  static _Thread_local char buffers[8][24 * TRM_MAX_DIMS + 4];
  static _Thread_local unsigned turn;
  char *text = buffers[turn++ % 8];
  size_t at = (size_t)sprintf(text, "(");
  for (int d = 0; d < shape->dims; d++)
    at += (size_t)sprintf(text + at, d ? ", %zu" : "%zu", shape->size[d]);
  sprintf(text + at, ")");
  return text;
}
