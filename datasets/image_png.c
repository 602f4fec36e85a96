/* PNG files, by libpng. */
#include "datasets/image_file.h"

#ifdef HAVE_PNG
#include <png.h>

#include "core/memory.h"

static void image_png_fail(png_structp png, png_const_charp text)
{
  snprintf(png_get_error_ptr(png), IMAGE_WHY, "is a damaged PNG file (%s)", text);
  png_longjmp(png, 1);
}

static void image_png_warn(png_structp png, png_const_charp text)
{
  (void)png, (void)text; /* errors in metadata */
}

/* Asks libpng for 8 bits, without palette and transparency, and reads the size. */
static void image_png_prepare(png_structp png, png_infop info, struct image *image)
{
  png_read_info(png, info);
  const int type = png_get_color_type(png, info);
  if (type == PNG_COLOR_TYPE_PALETTE)
    png_set_palette_to_rgb(png);
  if (type == PNG_COLOR_TYPE_GRAY)
    png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  image->height = png_get_image_height(png, info);
  image->width = png_get_image_width(png, info);
  image->channels = type & PNG_COLOR_MASK_COLOR ? 3 : 1;
}

bool image_png_read(FILE *file, struct image *image, char why[IMAGE_WHY])
{
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, why, image_png_fail, image_png_warn);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  if (!info) {
    snprintf(why, IMAGE_WHY, "cannot be read: libpng does not start");
  } else if (setjmp(png_jmpbuf(png)) == 0) { /* a failed call of libpng comes back here */
    png_init_io(png, file);
    image_png_prepare(png, info, image);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (image_pixels_alloc(image, why)) {
      for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < image->height; y++)
          png_read_row(png, image->pixel + y * image->width * image->channels, NULL);
      png_read_end(png, NULL);
      png_destroy_read_struct(&png, &info, NULL);
      return true;
    }
  }
  png_destroy_read_struct(&png, &info, NULL);
  return false;
}

bool image_png_write(const struct image *image, uint8_t **bytes, size_t *count, char why[IMAGE_WHY])
{
  png_image png = {.version = PNG_IMAGE_VERSION, .width = (png_uint_32)image->width,
                   .height = (png_uint_32)image->height,
                   .format = image->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  *bytes = trm_alloc(size, "a PNG file");
  const bool done = png_image_write_to_memory(&png, *bytes, &size, 0, image->pixel, 0, NULL) != 0;
  if (!done)
    snprintf(why, IMAGE_WHY, "libpng cannot write an image: %s", png.message);
  *count = size;
  return done;
}
#else
bool image_png_write(const struct image *image, uint8_t **bytes, size_t *count, char why[IMAGE_WHY])
{
  (void)image, (void)bytes, (void)count;
  snprintf(why, IMAGE_WHY, "this build has no libpng (Debian: libpng-dev) to write images: install it, run configure "
                           "again and build");
  return false;
}

bool image_png_read(FILE *file, struct image *image, char why[IMAGE_WHY])
{
  (void)file, (void)image;
  snprintf(why, IMAGE_WHY, "is a PNG file, and this build has no libpng (Debian: libpng-dev): install it, run "
                           "configure again and build");
  return false;
}
#endif
