/* JPEG files, by libjpeg. */
#include "datasets/image_file.h"

#ifdef HAVE_JPEG
#include <setjmp.h>

#include <jpeglib.h>
#include <jerror.h>

struct jpeg_failure {
  struct jpeg_error_mgr manager; /* first: libjpeg points to it */
  jmp_buf back;
  char *why;
};

static void image_jpeg_fail(j_common_ptr jpeg)
{
  struct jpeg_failure *failure = (struct jpeg_failure *)jpeg->err;
  char text[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  snprintf(failure->why, IMAGE_WHY, "is a damaged JPEG file (%s)", text);
  longjmp(failure->back, 1);
}

/* libjpeg replaces damaged or missing parts by gray and warns: an error here. Bytes between the parts are harmless. */
static void image_jpeg_message(j_common_ptr jpeg, int level)
{
  if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA)
    image_jpeg_fail(jpeg);
}

static bool image_jpeg_decode(struct jpeg_decompress_struct *jpeg, FILE *file, struct image *image,
                              char why[IMAGE_WHY])
{
  jpeg_stdio_src(jpeg, file);
  jpeg_read_header(jpeg, TRUE);
  if (jpeg->num_components != 1 && jpeg->num_components != 3) {
    snprintf(why, IMAGE_WHY, "is a JPEG file of %d channels: convert it to red, green and blue", jpeg->num_components);
    return false;
  }
  image->height = jpeg->image_height;
  image->width = jpeg->image_width;
  image->channels = (size_t)jpeg->num_components;
  jpeg->out_color_space = image->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  if (!image_pixels_alloc(image, why))
    return false;
  jpeg_start_decompress(jpeg);
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = image->pixel + jpeg->output_scanline * image->width * image->channels;
    jpeg_read_scanlines(jpeg, &row, 1);
  }
  jpeg_finish_decompress(jpeg);
  return true;
}

bool image_jpeg_read(FILE *file, struct image *image, char why[IMAGE_WHY])
{
  struct jpeg_decompress_struct jpeg;
  struct jpeg_failure failure = {.why = why};
  jpeg.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = image_jpeg_fail;
  failure.manager.emit_message = image_jpeg_message;
  jpeg_create_decompress(&jpeg);
  if (setjmp(failure.back)) { /* a failed call of libjpeg comes back here */
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  const bool done = image_jpeg_decode(&jpeg, file, image, why);
  jpeg_destroy_decompress(&jpeg);
  return done;
}
#else
bool image_jpeg_read(FILE *file, struct image *image, char why[IMAGE_WHY])
{
  (void)file, (void)image;
  snprintf(why, IMAGE_WHY, "is a JPEG file, and this build has no libjpeg (Debian: libjpeg62-turbo-dev): install it, "
                           "run configure again and build");
  return false;
}
#endif
