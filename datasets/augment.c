/* Augmentation of training images: a random crop of the padded image, or a random part of it, resized; random colors;
 * mirrored at random. The random numbers are a function of the seed, the epoch and the sample's position in the epoch's
 * order: the same for any number of ranks and after a resume. */
#include <math.h>
#include <string.h>

#include "core/random.h"
#include "core/status.h"
#include "loader.h"

int augment_configure(struct loader *loader, enum trm_split split, const struct trm_options *options)
{
  const struct data_head *head = &loader->head;
  struct augment *augment = &loader->augment;
  *augment = (struct augment){.pad = (size_t)options->data.pad, .crop = options->data.crop,
                              .jitter = options->data.jitter, .flip = options->data.flip};
  augment->enabled =
    split == TRM_SPLIT_TRAIN && (augment->pad || augment->crop > 0 || augment->jitter > 0 || augment->flip);
  if (!augment->enabled)
    return TRM_OK;
  const char *option = augment->pad          ? "data.pad"
                       : augment->crop > 0   ? "data.crop"
                       : augment->jitter > 0 ? "data.jitter"
                                             : "data.flip";
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
  if (augment->pad && augment->crop > 0)
    return trm_error(TRM_USAGE, "data.pad and data.crop: both choose a part of the image; one can be used");
  if (augment->jitter > 0 && loader->x_type != BLOCK_UINT8)
    return trm_error(TRM_USAGE, "data.jitter is for images of bytes; those of %s are floats", loader->path);
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

/* Crops the padded image. */
static void augment_shift(const struct loader *loader, const uint32_t word[4], const unsigned char *x, float *to)
{
  const struct augment *augment = &loader->augment;
  const size_t pad = augment->pad, height = augment->height, width = augment->width;
  const size_t line_bytes = width * block_type_bytes(loader->x_type);
  /* upper left corner of the crop in the padded image */
  const size_t down = augment_draw(word[0], 2 * pad + 1), right = augment_draw(word[1], 2 * pad + 1);
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
    }
}

/* -- parts */

struct augment_box augment_draw_box(const struct loader *loader, uint64_t position)
{
  enum { TRIES = 10 };
  static const double narrow = 3.0 / 4, wide = 4.0 / 3;
  const struct augment *augment = &loader->augment;
  const size_t high = augment->height, across = augment->width;
  for (int i = 0; i < TRIES; i++) {
    uint32_t word[4];
    trm_random_block(augment->seed, TRM_RANDOM_CROP, (uint32_t)loader->epoch, position * TRIES + (uint64_t)i, word);
    const double part = augment->crop + (1 - augment->crop) * (double)word[0] * 0x1p-32;
    const double aspect = exp(log(narrow) + (log(wide) - log(narrow)) * (double)word[1] * 0x1p-32);
    const double area = part * (double)high * (double)across;
    const size_t width = (size_t)lround(sqrt(area * aspect)), height = (size_t)lround(sqrt(area / aspect));
    if (width > 0 && height > 0 && width <= across && height <= high)
      return (struct augment_box){augment_draw(word[2], high - height + 1), augment_draw(word[3], across - width + 1),
                                  height, width};
  }
  /* none fits: the largest part in the middle */
  const double aspect = (double)across / (double)high;
  struct augment_box box = {.height = high, .width = across};
  if (aspect < narrow)
    box.height = (size_t)lround((double)across / narrow);
  else if (aspect > wide)
    box.width = (size_t)lround((double)high * wide);
  box.top = (high - box.height) / 2;
  box.left = (across - box.width) / 2;
  return box;
}

/* The place of pixel i of n in a line of `from` pixels: between pixels *low and *high, at *part of the way. */
static void augment_place(size_t i, size_t n, size_t from, size_t *low, size_t *high, float *part)
{
  const double at = fmax(((double)i + 0.5) * (double)from / (double)n - 0.5, 0);
  *low = (size_t)at;
  *high = *low + 1 < from ? *low + 1 : *low;
  *part = (float)(at - (double)*low);
}

static float augment_value(const struct loader *loader, const unsigned char *x, size_t at)
{
  float value;
  if (loader->x_type == BLOCK_UINT8)
    return loader->head.scale * (float)x[at] + loader->head.shift;
  memcpy(&value, x + at * sizeof value, sizeof value);
  return value;
}

void augment_resize(const struct loader *loader, const struct augment_box *box, const unsigned char *x, float *to)
{
  const struct augment *augment = &loader->augment;
  const size_t height = augment->height, width = augment->width;
  for (size_t j = 0; j < width; j++) {
    size_t left, right;
    float across;
    augment_place(j, width, box->width, &left, &right, &across);
    for (size_t i = 0; i < height; i++) {
      size_t top, bottom;
      float down;
      augment_place(i, height, box->height, &top, &bottom, &down);
      for (size_t c = 0; c < augment->channels; c++) {
        const size_t upper = (c * height + box->top + top) * width + box->left;
        const size_t lower = (c * height + box->top + bottom) * width + box->left;
        const float a = augment_value(loader, x, upper + left), b = augment_value(loader, x, upper + right);
        const float p = augment_value(loader, x, lower + left), q = augment_value(loader, x, lower + right);
        to[(c * height + i) * width + j] =
          (1 - down) * ((1 - across) * a + across * b) + down * ((1 - across) * p + across * q);
      }
    }
  }
}

/* -- colors */

/* Luma of ITU-R BT.601. */
static float augment_grey(const float *image, size_t channels, size_t pixels, size_t i)
{
  if (channels != 3)
    return image[i];
  return 0.299f * image[i] + 0.587f * image[pixels + i] + 0.114f * image[2 * pixels + i];
}

static float augment_clamp(float x)
{
  return fminf(fmaxf(x, 0), 1);
}

/* Moves each channel's pixel i from `grey` by the factor. */
static void augment_blend(float *image, size_t channels, size_t pixels, size_t i, float factor, float grey)
{
  for (size_t c = 0; c < channels; c++)
    image[c * pixels + i] = augment_clamp(factor * image[c * pixels + i] + (1 - factor) * grey);
}

static void augment_color(float *image, size_t channels, size_t pixels, int which, float factor)
{
  double mean = 0;
  if (which == 2 && channels != 3)
    return;
  for (size_t i = 0; which == 1 && i < pixels; i++)
    mean += (double)augment_grey(image, channels, pixels, i) / (double)pixels;
  for (size_t i = 0; i < pixels; i++)
    augment_blend(image, channels, pixels, i, factor,
                  which == 2 ? augment_grey(image, channels, pixels, i) : (float)mean);
}

void augment_colors(float *image, size_t channels, size_t pixels, const float factor[3], int first, int second)
{
  const int order[] = {first, second, 3 - first - second};
  for (int k = 0; k < 3; k++)
    augment_color(image, channels, pixels, order[k], factor[order[k]]);
}

static void augment_jitter(const struct loader *loader, uint64_t position, float *image)
{
  static const int first[] = {0, 0, 1, 1, 2, 2}, second[] = {1, 2, 0, 2, 0, 1};
  const struct augment *augment = &loader->augment;
  const size_t pixels = augment->height * augment->width, n = augment->channels * pixels;
  const float scale = 255 * loader->head.scale, shift = loader->head.shift; /* from [0, 1] */
  uint32_t word[4];
  float factor[3];
  trm_random_block(augment->seed, TRM_RANDOM_JITTER, (uint32_t)loader->epoch, position, word);
  for (int k = 0; k < 3; k++)
    factor[k] = (float)(1 + augment->jitter * (2 * (double)word[k] * 0x1p-32 - 1));
  for (size_t i = 0; i < n; i++)
    image[i] = (image[i] - shift) / scale;
  const size_t order = augment_draw(word[3], 6);
  augment_colors(image, augment->channels, pixels, factor, first[order], second[order]);
  for (size_t i = 0; i < n; i++)
    image[i] = scale * image[i] + shift;
}

void augment_row(const struct loader *loader, uint64_t position, const unsigned char *x, float *to)
{
  const struct augment *augment = &loader->augment;
  uint32_t word[4];
  trm_random_block(augment->seed, TRM_RANDOM_AUGMENT, (uint32_t)loader->epoch, position, word);
  if (augment->crop > 0) {
    const struct augment_box box = augment_draw_box(loader, position);
    augment_resize(loader, &box, x, to);
  } else {
    augment_shift(loader, word, x, to);
  }
  if (augment->jitter > 0)
    augment_jitter(loader, position, to);
  const bool mirrored = augment->flip && word[2] >> 31;
  for (size_t line = 0; mirrored && line < augment->channels * augment->height; line++)
    augment_line_mirror(to + line * augment->width, augment->width);
}
