/* Results over the values of one option as a picture: a line through the means of each other row, a dot for each seed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/svg.h"
#include "cli/sweep.h"
#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/status.h"

enum { WIDTH = 440, PLOT = 280, TITLE = 24, LEGEND_ROW = 18, MARGIN = 8, KEY = 22 };

static int picture_axis(const struct sweep *sweep, const char *x)
{
  for (int i = 0; i < sweep->axes; i++)
    if (strcmp(sweep->axis[i].row->name, x) == 0)
      return i;
  return -1;
}

/* Returns the column of --figures, -1: the test results; SWEEP_MAX_FIGURES: there is no such column. */
static int picture_figure(const struct sweep *sweep, const char *y)
{
  int at = y ? 0 : -1;
  while (y && at < sweep->figures && strcmp(sweep->figure[at], y) != 0)
    at++;
  return y && at == sweep->figures ? SWEEP_MAX_FIGURES : at;
}

int sweep_check_picture(const struct sweep *sweep, const char *x, const char *y)
{
  const int axis = x ? picture_axis(sweep, x) : -1;
  if (x && (axis < 0 || !sweep->axis[axis].ordered || sweep->axis[axis].role != SWEEP_CELL))
    return trm_error(TRM_USAGE, "sweep: --x=%s: it is no option with a list of numbers that makes rows", x);
  if (y && picture_figure(sweep, y) == SWEEP_MAX_FIGURES)
    return trm_error(TRM_USAGE, "sweep: --y=%s is not in --figures", y);
  return TRM_OK;
}

static double picture_value(const struct sweep_run *run, int figure, bool accuracy)
{
  if (run->outcome != SWEEP_DONE)
    return NAN;
  return figure >= 0 ? run->figure[figure] : accuracy ? run->test.accuracy : run->test.loss;
}

/* The points of a row: those of the cells that differ in the axis alone. */
struct row {
  char *label;
  struct svg_series mean, seeds;
};

/* Returns the row's name, from the values of the other axes. */
static char *picture_label(const struct sweep *sweep, int cell, int axis)
{
  const char *value[SWEEP_MAX_AXES];
  char *label = trm_strdup("");
  sweep_cell_values(sweep, cell, value);
  for (int i = 0; i < sweep->axes; i++)
    if (i != axis && value[i])
      trm_append(&label, i == 0 && sweep->variants > 0 ? "%s%.0s%s" : "%s%s=%s", *label ? ", " : "",
                 sweep->axis[i].row->name, value[i]);
  return label;
}

struct point {
  double x, y;
  bool mean;
};

static int picture_compare(const void *a, const void *b)
{
  const double one = ((const struct point *)a)->x, two = ((const struct point *)b)->x;
  return (one > two) - (one < two);
}

/* Adds the mean, and the seeds, of a cell to point (n). Returns how many there are. */
static int picture_add_cell(const struct sweep *sweep, int cell, int axis, int figure, bool accuracy,
                            struct point *point, int n)
{
  const char *value[SWEEP_MAX_AXES];
  sweep_cell_values(sweep, cell, value);
  const double x = strtod(value[axis], NULL);
  double sum = 0;
  int done = 0;
  for (int i = 0; i < sweep->final.count; i++) {
    const double y = sweep->final.run[i].cell == cell ? picture_value(&sweep->final.run[i], figure, accuracy) : NAN;
    if (!isfinite(y))
      continue;
    point[n + ++done] = (struct point){x, y, false};
    sum += y;
  }
  point[n] = (struct point){x, done > 0 ? sum / done : NAN, true};
  return n + done + 1;
}

static void picture_series(struct svg_series *series, const struct point *point, int n, bool mean)
{
  double *x = trm_alloc(2 * (size_t)n * sizeof *x, "sweep: a curve"), *y = x + n;
  series->x = x;
  series->y = y;
  for (int i = 0; i < n; i++)
    if (point[i].mean == mean) {
      x[series->n] = point[i].x;
      y[series->n++] = point[i].y;
    }
}

/* Makes the rows, in the order of their first cells. Returns their number. */
static int picture_rows(const struct sweep *sweep, int axis, int figure, bool accuracy, struct row *row)
{
  int rows = 0;
  const size_t capacity = (size_t)sweep->final.count + (size_t)sweep->cells;
  struct point *point = trm_alloc(capacity * sizeof *point, "sweep: points");
  for (int first = 0; first < sweep->cells; first++) {
    char *label = picture_label(sweep, first, axis);
    bool seen = false;
    for (int r = 0; r < rows; r++)
      seen |= strcmp(row[r].label, label) == 0;
    int n = 0;
    for (int cell = first; cell < sweep->cells && !seen; cell++) {
      char *other = picture_label(sweep, cell, axis);
      if (strcmp(label, other) == 0)
        n = picture_add_cell(sweep, cell, axis, figure, accuracy, point, n);
      trm_free(other);
    }
    if (seen) {
      trm_free(label);
      continue;
    }
    qsort(point, (size_t)n, sizeof *point, picture_compare);
    row[rows] = (struct row){.label = label, .mean = {.label = label, .number = rows},
                             .seeds = {.label = label, .number = rows, .form = SVG_DOTS}};
    picture_series(&row[rows].mean, point, n, true);
    picture_series(&row[rows].seeds, point, n, false);
    rows++;
  }
  trm_free(point);
  return rows;
}

static void picture_write(FILE *out, const char *title, const char *x, const struct row *row, int rows, bool percent)
{
  struct svg_notes notes;
  struct svg_series *series = trm_alloc(2 * (size_t)rows * sizeof *series, "sweep: curves");
  for (int r = 0; r < rows; r++) {
    series[r] = row[r].mean;
    series[rows + r] = row[r].seeds;
  }
  struct svg_plot plot = {.width = WIDTH, .title = title, .x_label = x, .x_unit = SVG_PLAIN,
                          .y_unit = percent ? SVG_PERCENT : SVG_PLAIN, .may_log = !percent, .may_log_x = true,
                          .series = series, .count = 2 * rows};
  const bool grid = svg_is_grid(&plot);
  plot.height = grid ? svg_grid_height(&plot) : PLOT;
  const int height = TITLE + plot.height + LEGEND_ROW * (grid ? 1 : rows) + MARGIN;
  fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", WIDTH,
          height, WIDTH, height);
  fprintf(out, "<style>\n%ssvg{font-family:'DejaVu Sans',Verdana,Arial,sans-serif}"
               ".title{font-size:14px;fill:#1c2126}</style>\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text class=\"title\" x=\"%d\" y=\"18\">",
          svg_style, MARGIN);
  markup_text(out, title);
  fprintf(out, "</text>\n<g transform=\"translate(0,%d)\">", TITLE);
  svg_plot(out, &plot, &notes);
  fputs("</g>\n", out);
  for (int r = 0; r < (grid ? 1 : rows); r++) { /* the first row is behind the others of a grid */
    const int base = TITLE + plot.height + LEGEND_ROW * r + 10;
    if (grid)
      svg_behind_key(out, MARGIN, base - 4, KEY);
    else
      svg_key(out, r, MARGIN, base - 4, KEY);
    if (!grid)
      svg_dot(out, r, true, MARGIN + KEY / 2.0, base - 4, 3.2);
    svg_name(out, row[r].label, WIDTH - 2 * MARGIN - KEY - 6, MARGIN + KEY + 6, base);
  }
  fputs("</svg>\n", out);
  trm_free(series);
}

int sweep_write_picture(const struct sweep *sweep, const char *x, const char *y)
{
  const int axis = picture_axis(sweep, x), figure = picture_figure(sweep, y);
  const bool accuracy = figure < 0 && sweep_has_accuracy(&sweep->final, true);
  char *path = trm_format("%s/picture.svg", sweep->dir);
  struct row *row = trm_alloc((size_t)sweep->cells * sizeof *row, "sweep: rows");
  const int rows = picture_rows(sweep, axis, figure, accuracy, row);
  struct atomic_file file;
  int status = atomic_file_open(&file, path);
  if (status == TRM_OK) {
    picture_write(file.stream, y ? y : accuracy ? "Test accuracy" : "Test loss", x, row, rows, accuracy);
    status = atomic_file_close(&file, !ferror(file.stream));
  }
  for (int r = 0; r < rows; r++) {
    trm_free((void *)row[r].mean.x);
    trm_free((void *)row[r].seeds.x);
    trm_free(row[r].label);
  }
  trm_free(row);
  trm_free(path);
  return status;
}
