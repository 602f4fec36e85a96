/* Staging of images for the micro-kernels (conv.h). Private to kernels/cpu. */
#pragma once

#include "kernels/cpu/conv.h"

/* A band of an image: of each channel, step[0] * step[1] phases of (rows, pitch), or as many of them as are used.
 * Element (r, j) of phase (a, b) is the image's element (first + r step[0] + a, j step[1] + b - left), 0 where there is
 * none. */
struct conv_stage {
  enum trm_value_type type; /* of the image, staged are floats */
  size_t channels, height, width; /* of the image */
  size_t step[2], phases[2];
  size_t rows, pitch;
  ptrdiff_t left;
  size_t plane; /* floats per channel: phases[0] * phases[1] * rows * pitch */
};

/* Vectors read up to this many floats beyond the last position: padding after each staged image, finite. */
enum { CONV_SLACK = CONV_LANES };

/* Copies the image (channels, height, width) at element `at` to to (channels * plane + CONV_SLACK). */
void conv_stage_image(const struct conv_stage *stage, const void *images, size_t at, ptrdiff_t first, float *to);

/* The positions (r, j) of a grid of `rows` rows of `columns` in vectors, and where they are from `origin` on in a
 * staged phase. at: (vectors) or (vectors, 2). */
struct conv_grid {
  size_t columns;
  int lanes;
  bool halves;        /* a vector is half a row and half the next */
  size_t row_vectors; /* otherwise: vectors of a row */
};
struct conv_grid conv_grid_of(size_t columns, int lanes);
size_t conv_grid_vectors(const struct conv_grid *grid, size_t rows);
void conv_grid_offsets(const struct conv_grid *grid, size_t rows, size_t origin, size_t pitch, uint32_t *offset);

/* Copies rows (rows, columns) of values at element `at` to vectors (vectors, lanes), 0 where there is no position. */
void conv_grid_gather(const struct conv_grid *grid, size_t rows, enum trm_value_type type, const void *from, size_t at,
                      float *to);
