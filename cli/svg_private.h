/* Shared by cli/svg*.c. */
#pragma once

#include "cli/svg.h"

enum { TOP = 12, BOTTOM = 46, LEFT = 56, RIGHT = 16 };
#define LABEL_STEP 14.0 /* distance of two labels at the ends of lines */
/* Small panels: the name, the plot, what is between two, below and beside one another. */
enum { CELL_TOP = 19, CELL_HEIGHT = 92, CELL_GAP = 12, CELL_SPACE = 24 };

struct axis {
  double low, high; /* values at the ends, in units of `unit` */
  double from, to;  /* the ends in drawing units */
  double unit;      /* of the labels: 1000 for "thousands" */
  const char *unit_name;
  bool logarithmic;
  double ticks[24];
  int tick_count;
  int decimals; /* of the tick labels; -1: as few as possible */
};

struct canvas {
  FILE *out;
  const struct svg_plot *plot;
  struct svg_notes *notes;
  struct axis x, y;
};

/* A small panel. */
struct svg_cell {
  int number;        /* of its series */
  bool left, bottom; /* at the grid's edges, where the axes have labels */
};

/* -- svg.c: axes */
double svg_to_pixel(const struct axis *a, double value);
/* Finds the range of the finite values; false if there is none. */
bool svg_range_of(const struct svg_plot *plot, bool vertical, double *low, double *high);
/* Sets the ends of the axes. labels: room for labels at the ends of lines, 0: none. The scales of the axes follow. */
void svg_set_frame(struct canvas *c, double labels);
void svg_set_axis_x(struct canvas *c);
void svg_set_axis_y(struct canvas *c);
void svg_draw_axes(struct canvas *c);

/* -- svg_lines.c */
/* Begins a path. wider: added to the stroke's width. */
void svg_path_open(FILE *out, int number, const char *class, int wider);
/* Draws the points of a path; returns their number. */
size_t svg_path_points(struct canvas *c, const struct svg_series *s);
/* Draws all series. letters: of the longest label at the ends of the lines; 0: there are none. */
void svg_draw_all(struct canvas *c, size_t letters);
void svg_draw_dots(struct canvas *c, const struct svg_series *s, double radius);

/* -- svg_rows.c */
bool svg_names_above(const struct svg_plot *plot);
/* Sets the upper and lower edge of what is drawn in a row. */
void svg_row_edges(const struct canvas *c, double row, double *top, double *bottom);
void svg_draw_row_names(struct canvas *c);
void svg_draw_bars(struct canvas *c, const struct svg_series *s);
void svg_draw_boxes(struct canvas *c, const struct svg_series *s);

/* -- svg_grid.c */
void svg_draw_grid(FILE *out, const struct svg_plot *plot, struct svg_notes *notes);
