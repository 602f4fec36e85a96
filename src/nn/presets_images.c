/* Convolutional networks. Channels, size and classes are the data set's. All but lenet5 use initial weights of He et
 * al. (2015), except in the last layer, which uses PyTorch's. */
#include "nn/presets.h"

#include <stdlib.h>

#include "core/status.h"

/* Checks: no words after the name; images of at least `least` pixels per side; classes. */
static int images_check(const struct trm_item *item, const struct trm_input_spec *spec, size_t min_side)
{
  const struct trm_shape *shape = &spec->shape;
  if (item->words > 1)
    return trm_error(TRM_USAGE, "layer %d (%s): '%s' is one word too many; usage: %s", item->number, item->word[0],
                     item->word[1], item->word[0]);
  if (spec->tokens || spec->sparse || shape->dims != 3 || shape->size[1] < min_side || shape->size[2] < min_side)
    return trm_error(TRM_USAGE,
                     "layer %d (%s): takes images (C, H, W) of at least %zu x %zu, the data set has samples "
                     "of shape %s",
                     item->number, item->word[0], min_side, min_side, trm_shape_text(shape));
  if (spec->target != TRM_TARGET_CLASS)
    return trm_error(TRM_USAGE, "layer %d (%s): tells classes apart, the data set has %zu values a sample",
                     item->number, item->word[0], spec->classes);
  return TRM_OK;
}

/* LeCun et al. 1998, as used today: relu and max pooling, padding of 2 for images of 28 x 28. */
int trm_preset_lenet5(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to)
{
  TRM_CHECK(images_check(item, spec, 14));
  fprintf(to, "conv2d 6 5 pad=2 | relu | max_pool 2 | conv2d 16 5 | relu | max_pool 2 | flatten | linear 120 | relu | "
              "linear 84 | relu | linear %zu", spec->classes);
  return TRM_OK;
}

/* Two 3 x 3 convolutions, with the identity as shortcut or, if the shape changes, a 1 x 1 convolution. */
static void images_basic_block(FILE *to, size_t units, int stride, bool identity)
{
  if (identity)
    fprintf(to, " | mark a");
  else
    fprintf(to, " | mark in");
  fprintf(to, " | conv2d %zu 3 ", units);
  if (stride != 1)
    fprintf(to, "stride=%d ", stride);
  fprintf(to, "pad=1 bias=no init=he | batch_norm | relu | conv2d %zu 3 pad=1 bias=no init=he | batch_norm", units);
  if (identity)
    fprintf(to, " | add a | relu");
  else
    fprintf(to, " | mark out | at in | conv2d %zu 1 stride=%d bias=no init=he | batch_norm | add out | relu", units,
            stride);
}

/* He et al. 2016, for small images (their section 4.2), 6 n + 2 layers: three stages of n blocks with 16, 32 and 64
 * channels; projections where the shape changes. */
int trm_preset_resnet(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to)
{
  TRM_CHECK(images_check(item, spec, 4));
  const int blocks = (atoi(item->word[0] + sizeof "resnet" - 1) - 2) / 6;
  fprintf(to, "conv2d 16 3 pad=1 bias=no init=he | batch_norm | relu");
  for (int stage = 0; stage < 3; stage++)
    for (int b = 0; b < blocks; b++)
      images_basic_block(to, (size_t)16 << stage, stage && !b ? 2 : 1, !stage || b);
  fprintf(to, " | global_avg_pool | linear %zu", spec->classes);
  return TRM_OK;
}

/* He et al. 2016, for large images, as torchvision's resnet18: a 7 x 7 convolution and pooling, then four stages of two
 * blocks. */
int trm_preset_resnet18(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to)
{
  TRM_CHECK(images_check(item, spec, 32));
  fprintf(to, "conv2d 64 7 stride=2 pad=3 bias=no init=he | batch_norm | relu | max_pool 3 stride=2 pad=1");
  for (int stage = 0; stage < 4; stage++)
    for (int b = 0; b < 2; b++)
      images_basic_block(to, (size_t)64 << stage, stage && !b ? 2 : 1, !stage || b);
  fprintf(to, " | global_avg_pool | linear %zu", spec->classes);
  return TRM_OK;
}

/* Simonyan & Zisserman 2015, configuration A, as torchvision's vgg11 (without batch norm). torchvision pools images of
 * any size to 7 x 7 before the first linear layer; here there is no such pooling, so 224 x 224 gives its model. */
int trm_preset_vgg11(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to)
{
  static const size_t units[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}; /* 0: pooling */
  TRM_CHECK(images_check(item, spec, 32));
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (units[i])
      fprintf(to, "%sconv2d %zu 3 pad=1 init=he | relu", i ? " | " : "", units[i]);
    else
      fprintf(to, " | max_pool 2");
  fprintf(to, " | flatten | linear 4096 | relu | dropout 0.5 | linear 4096 | relu | dropout 0.5 | linear %zu",
          spec->classes);
  return TRM_OK;
}
