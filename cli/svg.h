/* Plots as SVG: lines with bands, dots, bars and intervals of time in rows. The enclosing page or picture includes
 * svg_style. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define SVG_COLORS 7
#define SVG_LETTER 6.6 /* mean width of a letter of names */
#define SVG_DASHES 5 /* the first seven series can be told apart in grey: those of one pattern differ in lightness */
#define SVG_WINDOWS 80 /* means that the line over a noisy curve has */

enum svg_unit { SVG_PLAIN, SVG_COUNT, SVG_SECONDS, SVG_PERCENT };

/* LINE: with a band where the series has one. DOTS: no line. BARS: from 0 to x, in row y; an infinite x is "not
 * reached". BOXES: from x to `end`, in row y. */
enum svg_form { SVG_LINE, SVG_DOTS, SVG_BARS, SVG_BOXES };
/* Numbers of series of boxes: without a color; of colors that no line has, darker and lighter than theirs. */
enum { SVG_IDLE = -1, SVG_DARK = SVG_COLORS, SVG_LIGHT };
struct svg_box {
  char title[128]; /* shown under the pointer; escaped where it is written */
  int mark;       /* written into the box; -1: none */
  int depth;      /* boxes that it lies in */
};

struct svg_series {
  const char *label;
  int number;             /* color (modulo SVG_COLORS) and dashes (modulo SVG_DASHES) */
  size_t n;
  const double *x, *y;    /* (n); LINE: x finite and ascending, y that is not finite breaks the line */
  const double *low, *high, *end; /* (n) a band's edges, and the ends of boxes; NULL: none */
  const struct svg_box *box;      /* (n) of boxes */
  enum svg_form form;
};

struct svg_plot {
  int width, height;
  const char *title;   /* for screen readers */
  const char *x_label; /* "samples"; the unit is added */
  enum svg_unit x_unit, y_unit;
  bool may_log;        /* y axis: logarithmic where the values span more than a decade */
  bool may_log_x;      /* x axis: the same */
  bool means;          /* many points are drawn thin, under a thick line of the means of SVG_WINDOWS equal windows */
  bool labels;         /* names beside the ends of the lines, where there are several */
  const char *const *row; /* (rows) names of the rows; y is a row's number, from 0 at the top */
  int rows;               /* 0: y is a value */
  const struct svg_series *series; /* (count) */
  int count;
  int behind;              /* number of the series that small panels have in grey behind theirs */
  const struct svg_cell *cell; /* of svg_grid: the plot is one of its panels; NULL: it stands alone */
};

/* Facts of a drawing for its caption. */
struct svg_notes {
  size_t points, drawn; /* drawn < points: thinned to the extremes of each half pixel */
  bool logarithmic, averaged, broken, coincide, banded;
};

/* Height of a plot with so many rows, or with so many labels that more than the usual height is needed. */
int svg_rows_height(int rows, int height_of_row);
int svg_labels_height(int labels, int usual);

/* More lines than SVG_MANY are small panels, one for each number of a line, with the same axes; rows never are. */
enum { SVG_MANY = 6 };
bool svg_is_grid(const struct svg_plot *plot);
int svg_grid_height(const struct svg_plot *plot); /* at its width */
const char *svg_name_behind(const struct svg_plot *plot); /* label of what is behind; NULL: it has no line */

/* Writes an <svg> element of plot->width x plot->height; a grid as its small panels. */
void svg_plot(FILE *out, const struct svg_plot *plot, struct svg_notes *notes);

/* Draws the line of a legend's entry for what is behind the lines of small panels. */
void svg_behind_key(FILE *out, double x, double y, double length);

/* Draws the line of a legend's entry: series `number`, from (x, y) to the right. */
void svg_key(FILE *out, int number, double x, double y, double length);

/* Draws a dot. shaped: series that differ by less than four have different shapes, for readers in grey. */
void svg_dot(FILE *out, int number, bool shaped, double x, double y, double radius);

/* Draws a box of the legend, (x, y) its upper left corner. */
void svg_box_key(FILE *out, int number, double x, double y, double width);

/* A line of a class of svg_style. */
void svg_line(FILE *out, const char *class, double x1, double y1, double x2, double y2);
/* A text of a class of svg_style, without characters of markup. anchor: "end", "middle" or "start". */
void svg_text(FILE *out, const char *class, const char *anchor, double x, double y, const char *format, ...)
  __attribute__((format(printf, 6, 7)));

/* Writes a series' name in the width that is there; of one that needs more the end, where names differ. */
void svg_name(FILE *out, const char *name, double width, double x, double y);

/* The least distance of ticks that is 1, 2 or 5 times a power of ten and at least `min` (above 0). */
double svg_tick_step(double min);

/* The style sheet of all that the functions here draw, on a light ground. Colors are s0 to s6, of boxes to s8. */
extern const char svg_style[];
