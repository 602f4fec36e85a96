/* Line plots as SVG, to be set into a page that brings the style (classes: grid, axis, tick, name, line, thin, dot,
 * lead, label; colors: s0..s6, each setting --c). */
#ifndef TRM_CLI_SVG_H
#define TRM_CLI_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define SVG_COLORS 7
#define SVG_WINDOWS 80 /* of the thick line over a noisy one */

enum svg_unit { SVG_PLAIN, SVG_COUNT, SVG_SECONDS, SVG_PERCENT };

struct svg_series {
  const char *label;
  int number;          /* chooses color (modulo SVG_COLORS) and dashes */
  size_t n;
  const double *x, *y; /* (n), x finite and ascending; y that is not finite breaks the line */
};

struct svg_plot {
  const char *title;   /* for screen readers */
  const char *x_label; /* "samples": its unit is put behind */
  enum svg_unit x_unit, y_unit;
  bool may_log;        /* a logarithmic y axis where the values span more than a decade */
  bool means;          /* many points: thin, with a thick line of window means above them */
  const struct svg_series *series; /* (count) */
  int count;
};

/* What was done to the data, for the caption. */
struct svg_notes {
  size_t points, drawn; /* drawn < points: thinned to the extremes of each half pixel */
  bool logarithmic, averaged, broken, coincide;
};

void svg_plot(FILE *out, const struct svg_plot *plot, struct svg_notes *notes);

/* The means of a series over SVG_WINDOWS equal windows into x and y (SVG_WINDOWS each); returns how many hold
 * values. One without a finite value gives NAN. Wanted where there are several values to a window. */
bool svg_wants_means(const struct svg_series *series);
int svg_means(const struct svg_series *series, double *x, double *y);

/* How many of the series after `i` run the same way, to within the given distances. */
int svg_coincide(const struct svg_series *series, int count, int i, double x_near, double y_near);

/* The stroke-dasharray of a series, NULL for a solid line. */
const char *svg_dashes(int number);

#endif
