/* Augmentation of training images: a random crop of the padded image, mirrored at random. The random numbers are a
 * function of the seed, the epoch and the sample's position in the epoch's order: the same for any number of ranks and
 * after a resume. */
#include <string.h>

#include "core/random.h"
#include "core/status.h"
#include "loader.h"

int augment_configure(struct loader *loader, enum trm_split split, const struct trm_options *options)
{
  const struct data_head *head = &loader->head;
  struct augment *augment = &loader->augment;
  *augment = (struct augment){.pad = (size_t)options->data.pad, .flip = options->data.flip};
  augment->enabled = split == TRM_SPLIT_TRAIN && (augment->pad || augment->flip);
  if (!augment->enabled)
    return TRM_OK;
  const char *option = augment->pad ? "data.pad" : "data.flip";
  if (head->kind != TRM_DATA_IMAGE || head->shape.dims != 3)
    return trm_error(TRM_USAGE, "%s is for images (C, H, W); the samples of %s are %s%s", option, loader->path,
                     head->kind == TRM_DATA_TOKENS ? "tokens" : head->kind == TRM_DATA_CSR ? "sparse rows, "
                     : head->kind == TRM_DATA_VECTOR ? "vectors, " : "images ",
                     head->kind == TRM_DATA_TOKENS ? "" : trm_shape_text(&head->shape));
  augment->channels = head->shape.size[0];
  augment->height = head->shape.size[1];
  augment->width = head->shape.size[2];
  if (augment->pad >= augment->height || augment->pad >= augment->width)
    return trm_error(TRM_USAGE, "data.pad: %zu must be less than the sides of the images of %s, %s", augment->pad,
                     loader->path, trm_shape_text(&head->shape));
  augment->seed = (uint64_t)options->run.seed;
  augment->pad_value = loader->x_type == BLOCK_UINT8 ? head->shift : 0;
  return TRM_OK;
}

static void augment_line_fill(float *to, float value, size_t n)
{
  for (size_t i = 0; i < n; i++)
    to[i] = value;
}

static void augment_line_mirror(float *line, size_t n)
{
  for (size_t i = 0; i < n / 2; i++) {
    const float left = line[i];
    line[i] = line[n - 1 - i];
    line[n - 1 - i] = left;
  }
}

/* Maps a random word to [0, n). */
static size_t augment_draw(uint32_t word, size_t n)
{
  return (size_t)((uint64_t)word * n >> 32);
}

void augment_row(const struct loader *loader, uint64_t position, const unsigned char *x, float *to)
{
  const struct augment *augment = &loader->augment;
  const size_t pad = augment->pad, height = augment->height, width = augment->width;
  const size_t line_bytes = width * block_type_bytes(loader->x_type);
  uint32_t word[4];
  trm_random_block(augment->seed, TRM_RANDOM_AUGMENT, (uint32_t)loader->epoch, position, word);
  /* upper left corner of the crop in the padded image */
  const size_t down = augment_draw(word[0], 2 * pad + 1), right = augment_draw(word[1], 2 * pad + 1);
  const bool mirrored = augment->flip && word[2] >> 31;
  /* a line is: padding, pixels [first, first + count), padding */
  const size_t before = right < pad ? pad - right : 0, first = right > pad ? right - pad : 0;
  const size_t count = width - before - first;
  const size_t first_byte = first * block_type_bytes(loader->x_type);
  for (size_t channel = 0; channel < augment->channels; channel++, x += height * line_bytes)
    for (size_t y = 0; y < height; y++, to += width) {
      if (y + down < pad || y + down >= pad + height) {
        augment_line_fill(to, augment->pad_value, width);
        continue;
      }
      augment_line_fill(to, augment->pad_value, before);
      loader_to_float(loader, to + before, x + (y + down - pad) * line_bytes + first_byte, count);
      augment_line_fill(to + before + count, augment->pad_value, first);
      if (mirrored)
        augment_line_mirror(to, width);
    }
}
