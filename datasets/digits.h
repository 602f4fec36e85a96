/* Rendering of synthetic handwritten digits (private to datasets/). */
#pragma once

#include <stdint.h>

#define TRM_DIGIT_SIDE 28 /* pixels */

/* Draws a sample of split 0 (train) or 1 (test) of the data set of `seed`; returns its digit, 0..9. pixels (28, 28),
 * rows from the top, 255 is full ink. A pure function of its arguments, with the same bytes on every
 * machine. Every thousand samples from a multiple of 1,000 on hold each digit a hundred times, in random order. */
int trm_digit_draw(uint64_t seed, uint32_t split, uint64_t sample, uint8_t *pixels);

/* Skeletons: handwritten forms of each digit as strokes of points "x,y" in a box of 100 x 100, y downward. A stroke is
 * a smooth curve through its points; '!' after a point makes it a corner; '|' lifts the pen. */
struct trm_digit_form {
  int digit;
  int weight;          /* relative frequency among the forms of the digit */
  const char *strokes;
};
extern const struct trm_digit_form trm_digit_form_table[]; /* by digit; ends with a row whose strokes is NULL */
