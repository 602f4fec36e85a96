/* Training images moved and mirrored at random: cut out of the padded image, read from the right. The draw is keyed by
 * the seed, the epoch and the sample's position in the epoch's order, so that any number of ranks sees the same pixels,
 * and so does a run that was resumed. */
#include <string.h>

#include "core/random.h"
#include "core/status.h"
#include "loader.h"

int augment_choose(struct loader *loader, enum trm_split split, const struct trm_options *options)
{
  const struct data_head *head = &loader->head;
  struct augment *how = &loader->augment;
  *how = (struct augment){.pad = (size_t)options->data.pad, .flip = options->data.flip};
  how->on = split == TRM_SPLIT_TRAIN && (how->pad || how->flip);
  if (!how->on)
    return TRM_OK;
  const char *option = how->pad ? "data.pad" : "data.flip";
  if (head->kind != TRM_DATA_IMAGE || head->shape.dims != 3)
    return trm_error(TRM_USAGE, "%s is for images (C, H, W); the samples of %s are %s%s", option, loader->path,
                     head->kind == TRM_DATA_TOKENS ? "tokens" : head->kind == TRM_DATA_CSR ? "sparse rows, "
                     : head->kind == TRM_DATA_VECTOR ? "vectors, " : "images ",
                     head->kind == TRM_DATA_TOKENS ? "" : trm_shape_text(&head->shape));
  how->planes = head->shape.size[0];
  how->height = head->shape.size[1];
  how->width = head->shape.size[2];
  if (how->pad >= how->height || how->pad >= how->width)
    return trm_error(TRM_USAGE, "data.pad: %zu must be less than the sides of the images of %s, %s", how->pad,
                     loader->path, trm_shape_text(&head->shape));
  how->seed = (uint64_t)options->run.seed;
  how->zero = loader->x_type == BLOCK_UINT8 ? head->shift : 0;
  return TRM_OK;
}

static void line_fill(float *to, float value, size_t n)
{
  for (size_t i = 0; i < n; i++)
    to[i] = value;
}

static void line_mirror(float *line, size_t n)
{
  for (size_t i = 0; i < n / 2; i++) {
    const float left = line[i];
    line[i] = line[n - 1 - i];
    line[n - 1 - i] = left;
  }
}

/* A number in [0, n). */
static size_t draw(uint32_t word, size_t n)
{
  return (size_t)((uint64_t)word * n >> 32);
}

void augment_row(const struct loader *loader, uint64_t position, const unsigned char *x, float *to)
{
  const struct augment *how = &loader->augment;
  const size_t pad = how->pad, height = how->height, width = how->width;
  const size_t line_bytes = width * block_type_bytes(loader->x_type);
  uint32_t word[4];
  trm_random_block(how->seed, TRM_RANDOM_AUGMENT, (uint32_t)loader->epoch, position, word);
  const size_t down = draw(word[0], 2 * pad + 1), right = draw(word[1], 2 * pad + 1); /* the corner, padding counted */
  const bool mirrored = how->flip && word[2] >> 31;
  /* of a line: zeros, pixels [first, first + count), zeros */
  const size_t before = right < pad ? pad - right : 0, first = right > pad ? right - pad : 0;
  const size_t count = width - before - first;
  const size_t first_byte = first * block_type_bytes(loader->x_type);
  for (size_t plane = 0; plane < how->planes; plane++, x += height * line_bytes)
    for (size_t y = 0; y < height; y++, to += width) {
      if (y + down < pad || y + down >= pad + height) {
        line_fill(to, how->zero, width);
        continue;
      }
      line_fill(to, how->zero, before);
      loader_floats(loader, to + before, x + (y + down - pad) * line_bytes + first_byte, count);
      line_fill(to + before + count, how->zero, first);
      if (mirrored)
        line_mirror(to, width);
    }
}
