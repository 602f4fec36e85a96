/* Image files, PNG and JPEG, as bytes (private to datasets/). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define IMAGE_WHY 256               /* bytes of a reason */
#define IMAGE_MAX_PIXELS 178956970u /* a larger image is refused: a file of a kilobyte may have one */

struct image {
  size_t height, width, channels; /* channels: 1 (grey) or 3 (red, green, blue) */
  uint8_t *pixel;                 /* (H, W, C); owned: trm_free */
};

/* Reads a file, whose format is recognized by its first bytes. channels: 1, 3, or 0 for those of the file. Transparency
 * is dropped, of 16 bits the upper 8 are kept, and gray is (19595 R + 38470 G + 7471 B + 32768) / 65536, all as Pillow
 * does. The orientation that a camera notes is not applied. Returns false and the reason, which does not name the file.
 * Threads may call it at once. The caller frees image->pixel, also after a failure. */
bool image_read(const char *path, size_t channels, struct image *image, char why[IMAGE_WHY]);

/* The readers of one format each, from an open file, in the channels of the file. */
bool image_png_read(FILE *file, struct image *image, char why[IMAGE_WHY]);
bool image_jpeg_read(FILE *file, struct image *image, char why[IMAGE_WHY]);
/* Allocates the pixels of an image whose other fields are set. False: none, or too many. */
bool image_pixels_alloc(struct image *image, char why[IMAGE_WHY]);

/* Makes a PNG file in memory. *bytes: owned by the caller, trm_free. False: the reason. */
bool image_png_write(const struct image *image, uint8_t **bytes, size_t *count, char why[IMAGE_WHY]);

/* Resizes to the smallest size that covers height x width and has the image's proportions, and cuts the center out: to
 * (C, height, width). The same bytes as Pillow's resize(BILINEAR), a triangle filter as wide as the reduction
 * (anti-aliased), and as torchvision's Resize and CenterCrop for height = width. */
void image_fit(const struct image *image, size_t height, size_t width, uint8_t *to);
