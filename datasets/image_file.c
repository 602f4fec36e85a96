/* Recognition of image files, and conversion of their channels. */
#include "datasets/image_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory.h"

bool image_pixels_alloc(struct image *image, char why[IMAGE_WHY])
{
  if (image->height == 0 || image->width == 0 || image->height > IMAGE_MAX_PIXELS / image->width) {
    snprintf(why, IMAGE_WHY, "has %zu x %zu pixels; at most %u are read", image->height, image->width,
             IMAGE_MAX_PIXELS);
    return false;
  }
  image->pixel = trm_alloc(image->height * image->width * image->channels, "pixels of an image");
  return true;
}

static void image_channels_convert(struct image *image, size_t channels)
{
  if (channels == 0 || channels == image->channels)
    return;
  const size_t pixels = image->height * image->width;
  uint8_t *const to = trm_alloc(pixels * channels, "pixels of an image"), *const from = image->pixel;
  for (size_t i = 0; i < pixels; i++)
    if (channels == 1)
      to[i] = (uint8_t)((from[3 * i] * 19595u + from[3 * i + 1] * 38470u + from[3 * i + 2] * 7471u + 32768u) >> 16);
    else
      memset(to + 3 * i, from[i], 3);
  trm_free(image->pixel);
  image->pixel = to;
  image->channels = channels;
}

/* Reads an open file. */
static bool image_file_read(FILE *file, struct image *image, char why[IMAGE_WHY])
{
  unsigned char magic[8] = {0};
  const size_t bytes = fread(magic, 1, sizeof magic, file);
  rewind(file);
  if (bytes == 0) {
    snprintf(why, IMAGE_WHY, "is empty");
    return false;
  }
  if (bytes == sizeof magic && !memcmp(magic, "\x89PNG\r\n\x1a\n", sizeof magic))
    return image_png_read(file, image, why);
  if (bytes > 3 && !memcmp(magic, "\xff\xd8\xff", 3))
    return image_jpeg_read(file, image, why);
  snprintf(why, IMAGE_WHY, "is neither a PNG nor a JPEG file");
  return false;
}

bool image_read(const char *path, size_t channels, struct image *image, char why[IMAGE_WHY])
{
  struct stat info;
  *image = (struct image){.pixel = NULL};
  const bool regular = stat(path, &info) != 0 || S_ISREG(info.st_mode);
  FILE *file = regular ? fopen(path, "rb") : NULL;
  if (!file) {
    snprintf(why, IMAGE_WHY, "%s", regular ? strerror(errno) : "is not a regular file");
    return false;
  }
  const bool done = image_file_read(file, image, why);
  fclose(file);
  if (done)
    image_channels_convert(image, channels);
  return done;
}
