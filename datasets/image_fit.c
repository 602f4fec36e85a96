/* Resizing as Pillow does it: two passes of a triangle filter in fixed point, each rounded to bytes. */
#include "core/memory.h"
#include "datasets/image_file.h"

#define BITS 22 /* of the weights' fractions */

/* The weights of one direction: output i is the sum over k of weight[i * width + k] * input[first[i] + k]. */
struct filter {
  size_t width; /* weights of an output, at most */
  size_t *first, *count;
  int32_t *weight;
};

/* Of outputs [begin, begin + out) of a resize from `in` to `all`. */
static void image_filter_make(struct filter *filter, size_t in, size_t all, size_t begin, size_t out)
{
  const double scale = (double)in / (double)all, reach = scale > 1 ? scale : 1;
  filter->width = 2 * (size_t)reach + 4;
  filter->first = trm_alloc(out * sizeof *filter->first, "image filter");
  filter->count = trm_alloc(out * sizeof *filter->count, "image filter");
  filter->weight = trm_alloc(out * filter->width * sizeof *filter->weight, "image filter");
  double *const w = trm_alloc(filter->width * sizeof *w, "image filter");
  for (size_t i = 0; i < out; i++) {
    const double center = ((double)(begin + i) + 0.5) * scale;
    const double low = center - reach + 0.5, high = center + reach + 0.5;
    const size_t first = low > 0 ? (size_t)low : 0, end = high < (double)in ? (size_t)high : in;
    double sum = 0;
    filter->first[i] = first;
    filter->count[i] = end - first;
    for (size_t k = 0; k < end - first; k++) {
      const double x = ((double)(first + k) - center + 0.5) / reach, far = x < 0 ? -x : x;
      w[k] = far < 1 ? 1 - far : 0;
      sum += w[k];
    }
    for (size_t k = 0; k < end - first; k++)
      filter->weight[i * filter->width + k] = (int32_t)(w[k] / sum * (1 << BITS) + 0.5);
  }
  trm_free(w);
}

static void image_filter_free(struct filter *filter)
{
  trm_free(filter->first);
  trm_free(filter->count);
  trm_free(filter->weight);
}

/* Sums count inputs, `stride` bytes from one to the next. */
static uint8_t image_filter_sum(const int32_t *weight, size_t count, const uint8_t *from, size_t stride)
{
  int32_t sum = 1 << (BITS - 1);
  for (size_t k = 0; k < count; k++)
    sum += weight[k] * from[k * stride];
  sum >>= BITS;
  return (uint8_t)(sum > 255 ? 255 : sum);
}

/* (H, W, C) to (H, width, C): columns [begin, begin + width) of `all`. */
static uint8_t *image_rows_resize(const struct image *image, size_t all, size_t begin, size_t width)
{
  const size_t C = image->channels;
  uint8_t *const out = trm_alloc(image->height * width * C, "a resized image");
  struct filter filter;
  image_filter_make(&filter, image->width, all, begin, width);
  for (size_t y = 0; y < image->height; y++)
    for (size_t x = 0; x < width; x++)
      for (size_t c = 0; c < C; c++)
        out[(y * width + x) * C + c] =
          image_filter_sum(filter.weight + x * filter.width, filter.count[x],
                           image->pixel + (y * image->width + filter.first[x]) * C + c, C);
  image_filter_free(&filter);
  return out;
}

/* (H, W, C) to (C, height, W): rows [begin, begin + height) of `all`. */
static void image_columns_resize(const struct image *image, size_t all, size_t begin, size_t height, uint8_t *to)
{
  const size_t C = image->channels, row = image->width * C;
  struct filter filter;
  image_filter_make(&filter, image->height, all, begin, height);
  for (size_t c = 0; c < C; c++)
    for (size_t y = 0; y < height; y++)
      for (size_t x = 0; x < image->width; x++)
        *to++ = image_filter_sum(filter.weight + y * filter.width, filter.count[y],
                                 image->pixel + filter.first[y] * row + x * C + c, row);
  image_filter_free(&filter);
}

/* The begin of the center part; halves go to the even number, as Python rounds. */
static size_t image_center(size_t all, size_t part)
{
  const size_t half = (all - part) / 2;
  return half + ((all - part) % 2 && half % 2);
}

void image_fit(const struct image *image, size_t height, size_t width, uint8_t *to)
{
  const uint64_t h = image->height, w = image->width;
  const bool by_width = width * h >= height * w;
  const size_t all_height = by_width ? (size_t)(width * h / w) : height;
  const size_t all_width = by_width ? width : (size_t)(height * w / h);
  struct image middle = {.height = image->height, .width = width, .channels = image->channels};
  middle.pixel = image_rows_resize(image, all_width, image_center(all_width, width), width);
  image_columns_resize(&middle, all_height, image_center(all_height, height), height, to);
  trm_free(middle.pixel);
}
