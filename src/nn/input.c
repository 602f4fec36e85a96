/* Shapes of samples: counting and printing. */
#include "nn/input.h"

#include <stdio.h>

#include "core/context.h"

size_t trm_shape_count(const struct trm_shape *shape)
{
  size_t count = 1;
  for (int d = 0; d < shape->dims; d++)
    count *= shape->size[d];
  return count;
}

const char *trm_shape_text(const struct trm_shape *shape)
{
  char *text = trm_context_text();
  size_t at = (size_t)sprintf(text, "(");
  for (int d = 0; d < shape->dims; d++)
    at += (size_t)sprintf(text + at, d ? ", %zu" : "%zu", shape->size[d]);
  sprintf(text + at, ")");
  return text;
}
