/* Lines with bands, dots, and labels at the ends of lines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/svg_private.h"
#include "core/memory.h"

struct pen {
  struct canvas *canvas;
  bool down;
  size_t drawn, run; /* points in total, and since the last gap */
  double x, y;       /* the last point in drawing units */
};

/* Ends a line. A single point between two gaps becomes a line of length 0, drawn as a dot by round caps. */
static void svg_pen_lift(struct pen *pen)
{
  if (pen->down && pen->run == 1)
    fprintf(pen->canvas->out, "h0");
  pen->down = false;
}

static void svg_pen_to(struct pen *pen, double x, double y)
{
  pen->x = svg_to_pixel(&pen->canvas->x, x);
  pen->y = svg_to_pixel(&pen->canvas->y, y);
  fprintf(pen->canvas->out, "%s%.1f,%.1f", pen->down ? " " : "M", pen->x, pen->y);
  pen->run = pen->down ? pen->run + 1 : 1;
  pen->down = true;
  pen->drawn++;
}

/* The number of series after `i` that are equal to it, to within the given distances. */
static int svg_coincide(const struct svg_series *series, int count, int i, double x_near, double y_near)
{
  const struct svg_series *a = &series[i];
  int same = 0;
  for (int k = i + 1; k < count; k++) {
    const struct svg_series *b = &series[k];
    bool near = a->n == b->n && a->form == b->form && !a->low == !b->low;
    for (size_t p = 0; near && p < a->n; p++)
      near = fabs(a->x[p] - b->x[p]) <= x_near && (fabs(a->y[p] - b->y[p]) <= y_near || !isfinite(a->y[p] - b->y[p]));
    same += near;
  }
  return same;
}

void svg_path_open(FILE *out, int number, const char *class, int wider)
{
  static const char *const dashes[SVG_DASHES] = {NULL, "7 3", "2 3", "9 3 2 3", "14 3 2 3 2 3"};
  const char *dash = strcmp(class, "line") == 0 ? dashes[number % SVG_DASHES] : NULL;
  fprintf(out, "<path class=\"%s s%d\"", class, number % SVG_COLORS);
  if (wider)
    fprintf(out, " style=\"stroke-width:%d\"", 2 + wider);
  if (dash)
    fprintf(out, " stroke-dasharray=\"%s\"", dash);
  fprintf(out, " d=\"");
}

void svg_dot(FILE *out, int number, bool shaped, double x, double y, double r)
{
  enum { CIRCLE, SQUARE, TRIANGLE, DIAMOND, SHAPES };
  const int shape = shaped ? number % SHAPES : CIRCLE;
  static const double corner[SHAPES][8] = {[SQUARE] = {-1, -1, 1, -1, 1, 1, -1, 1},
                                           [TRIANGLE] = {0, -1.3, 1.3, 1, -1.3, 1, 0, -1.3},
                                           [DIAMOND] = {0, -1.4, 1.4, 0, 0, 1.4, -1.4, 0}};
  if (shape == CIRCLE) {
    fprintf(out, "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", number % SVG_COLORS, x, y, r);
    return;
  }
  fprintf(out, "<path class=\"dot s%d\" d=\"", number % SVG_COLORS);
  for (int i = 0; i < 4; i++)
    fprintf(out, "%c%.1f,%.1f", i ? 'L' : 'M', x + r * corner[shape][2 * i], y + r * corner[shape][2 * i + 1]);
  fputs("Z\"/>", out);
}

void svg_behind_key(FILE *out, double x, double y, double length)
{
  fprintf(out, "<path class=\"behind\" d=\"M%.1f,%.1fh%.1f\"/>", x, y, length);
}

void svg_key(FILE *out, int number, double x, double y, double length)
{
  svg_path_open(out, number, "line", 0);
  fprintf(out, "M%.1f,%.1fh%.1f\"/>", x, y, length);
}

void svg_box_key(FILE *out, int number, double x, double y, double width)
{
  char class[16] = "idle";
  if (number >= 0)
    snprintf(class, sizeof class, "box s%d", number);
  fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"10\"/>", class, x, y, width);
}

/* Draws all points, or of each half pixel the first, the lowest, the highest and the last, which looks the same.
 * Returns the number of points drawn. */
size_t svg_path_points(struct canvas *c, const struct svg_series *s)
{
  struct pen pen = {.canvas = c};
  const double column = 0.5;
  for (size_t i = 0; i < s->n;) {
    if (!isfinite(s->y[i])) {
      svg_pen_lift(&pen);
      i++;
      continue;
    }
    const double stop = svg_to_pixel(&c->x, s->x[i]) + column;
    size_t low = i, high = i, end = i;
    for (; end < s->n && isfinite(s->y[end]) && svg_to_pixel(&c->x, s->x[end]) < stop; end++) {
      low = s->y[end] < s->y[low] ? end : low;
      high = s->y[end] > s->y[high] ? end : high;
    }
    if (end - i <= 4) {
      for (; i < end; i++)
        svg_pen_to(&pen, s->x[i], s->y[i]);
      continue;
    }
    const size_t chosen[] = {i, low < high ? low : high, low < high ? high : low, end - 1};
    for (int k = 0; k < 4; k++)
      if (k == 0 || chosen[k] != chosen[k - 1])
        svg_pen_to(&pen, s->x[chosen[k]], s->y[chosen[k]]);
    i = end;
  }
  svg_pen_lift(&pen);
  return pen.drawn;
}

/* The window of point i; the last value belongs to the last window. */
static int svg_window_of(const struct svg_series *s, size_t i)
{
  const int window = (int)(SVG_WINDOWS * (s->x[i] - s->x[0]) / (s->x[s->n - 1] - s->x[0]));
  return window < SVG_WINDOWS ? window : SVG_WINDOWS - 1;
}

/* Draws the means of the finite values of each window, with gaps at windows without values. Returns the y of the last
 * one. */
static double svg_path_means(struct canvas *c, const struct svg_series *s)
{
  struct pen pen = {.canvas = c};
  for (size_t i = 0; i < s->n;) {
    const int window = svg_window_of(s, i);
    double x = 0, y = 0, finite = 0;
    for (; i < s->n && svg_window_of(s, i) == window; i++)
      if (isfinite(s->y[i])) {
        x += s->x[i];
        y += s->y[i];
        finite++;
      }
    if (finite > 0)
      svg_pen_to(&pen, x / finite, y / finite);
    else
      svg_pen_lift(&pen);
  }
  svg_pen_lift(&pen);
  return pen.y;
}

/* Draws the band of a series, of the means of each window where the line is one of means. */
static void svg_draw_band(struct canvas *c, const struct svg_series *s, bool means)
{
  for (size_t from = 0, to; from < s->n; from = to) {
    while (from < s->n && !isfinite(s->y[from]))
      from++;
    for (to = from; to < s->n && isfinite(s->y[to]);)
      to++;
    if (from == to)
      break;
    double *edge = trm_alloc(3 * (to - from) * sizeof *edge, "report: a band");
    size_t n = 0;
    for (size_t i = from; i < to; n++) {
      double points = 0, sum[3] = {0};
      for (const size_t first = i; i < to && (i == first || (means && svg_window_of(s, i) == svg_window_of(s, first)));
           i++, points++) {
        sum[0] += s->x[i];
        sum[1] += s->low[i];
        sum[2] += s->high[i];
      }
      for (int k = 0; k < 3; k++)
        edge[3 * n + (size_t)k] = sum[k] / points;
    }
    fprintf(c->out, "<path class=\"band s%d\" d=\"M", s->number % SVG_COLORS);
    for (size_t i = 0; i < 2 * n; i++) {
      const double *at = &edge[3 * (i < n ? i : 2 * n - 1 - i)];
      fprintf(c->out, "%s%.1f,%.1f", i ? " " : "", svg_to_pixel(&c->x, at[0]), svg_to_pixel(&c->y, at[i < n ? 2 : 1]));
    }
    fputs("Z\"/>\n", c->out);
    trm_free(edge);
  }
  c->notes->banded = true;
}

struct end_label {
  const struct svg_series *series;
  double x, y; /* of the line's end */
  double at;   /* y of the label */
};

void svg_draw_dots(struct canvas *c, const struct svg_series *s, double radius)
{
  for (size_t i = 0; i < s->n; i++) {
    double y = svg_to_pixel(&c->y, s->y[i]), top, bottom;
    if (c->plot->rows) {
      svg_row_edges(c, s->y[i], &top, &bottom);
      y = (top + bottom) / 2;
    }
    if (isfinite(s->y[i]) && isfinite(s->x[i]))
      svg_dot(c->out, s->number, s->form == SVG_DOTS && !c->plot->rows, svg_to_pixel(&c->x, s->x[i]), y, radius);
  }
  fprintf(c->out, "\n");
}

/* Draws a series that has a finite value. Returns the y of the last mean; NAN if means are not drawn. */
static double svg_draw_line(struct canvas *c, const struct svg_series *s, size_t finite, int wider)
{
  const bool means = c->plot->means && s->n > 3 * SVG_WINDOWS && s->x[s->n - 1] > s->x[0];
  if (s->low)
    svg_draw_band(c, s, means);
  svg_path_open(c->out, s->number, means ? "thin" : "line", means ? 0 : wider);
  c->notes->points += finite;
  c->notes->drawn += svg_path_points(c, s);
  fprintf(c->out, "\"/>\n");
  if (!means) {
    if (finite <= 60 && !c->plot->cell)
      svg_draw_dots(c, s, 2.8 + 0.5 * wider);
    return NAN;
  }
  c->notes->averaged = true;
  svg_path_open(c->out, s->number, "line", wider);
  const double end = svg_path_means(c, s);
  fprintf(c->out, "\"/>\n");
  return end;
}

static void svg_draw_series(struct canvas *c, int number, struct end_label *end)
{
  const struct svg_series *s = &c->plot->series[number];
  *end = (struct end_label){.series = s};
  if (c->plot->rows) {
    if (s->form == SVG_DOTS)
      svg_draw_dots(c, s, 3.2);
    else
      (s->form == SVG_BARS ? svg_draw_bars : svg_draw_boxes)(c, s);
    return;
  }
  /* within half a pixel; a logarithmic axis is stricter at its upper end */
  const int wider = 3 * svg_coincide(c->plot->series, c->plot->count, number,
                                     0.5 * c->x.unit * (c->x.high - c->x.low) / (c->x.to - c->x.from),
                                     0.5 * c->y.unit * (c->y.logarithmic ? c->y.low * log(c->y.high / c->y.low)
                                                                         : c->y.high - c->y.low) /
                                       (c->y.from - c->y.to));
  c->notes->coincide |= wider > 0;
  size_t last = s->n, finite = 0;
  for (size_t i = 0; i < s->n; i++)
    if (isfinite(s->y[i])) {
      last = i;
      finite++;
    } else {
      c->notes->broken = true;
    }
  if (!finite)
    return;
  end->x = svg_to_pixel(&c->x, s->x[last]);
  end->y = svg_to_pixel(&c->y, s->y[last]);
  if (s->form == SVG_DOTS) {
    svg_draw_dots(c, s, c->plot->cell ? 2 : 3.2 + 0.5 * wider);
    return;
  }
  const double mean = svg_draw_line(c, s, finite, wider);
  end->y = isfinite(mean) ? mean : end->y;
  if (last + 1 < s->n) /* the last values are not finite: a cross */
    fprintf(c->out, "<path class=\"line s%d\" d=\"M%.1f,%.1fl8,8m0,-8l-8,8\"/>\n", s->number % SVG_COLORS, end->x - 4,
            end->y - 4);
}

static int svg_compare_labels(const void *a, const void *b)
{
  const double one = ((const struct end_label *)a)->y, two = ((const struct end_label *)b)->y;
  return (one > two) - (one < two);
}

void svg_name(FILE *out, const char *name, double width, double x, double y)
{
  const size_t length = strlen(name), letters = (size_t)(width / SVG_LETTER);
  const char *tail = length > letters ? name + length - letters + 1 : name;
  while ((*tail & 0xc0) == 0x80)
    tail++;
  fprintf(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">%s", x, y, length > letters ? "…" : "");
  markup_text(out, tail);
  fprintf(out, "</text>\n");
}

/* Draws labels at the ends of the lines, spread to avoid overlaps. */
static void svg_draw_labels(struct canvas *c, struct end_label *label, int n, size_t letters)
{
  qsort(label, (size_t)n, sizeof *label, svg_compare_labels);
  const double low = TOP + 2, high = c->plot->height - BOTTOM - 2;
  double next = low;
  for (int i = 0; i < n; i++) {
    label[i].at = fmax(label[i].y, next);
    next = label[i].at + LABEL_STEP;
  }
  next = high;
  for (int i = n - 1; i >= 0; i--) {
    label[i].at = fmin(label[i].at, next);
    next = label[i].at - LABEL_STEP;
  }
  for (int i = 0; i < n; i++) {
    const struct svg_series *s = label[i].series;
    const double x = c->x.to + 30;
    fprintf(c->out, "<path class=\"lead s%d\" d=\"M%.1f,%.1fL%.1f,%.1f\"/>", s->number % SVG_COLORS, label[i].x + 4,
            label[i].y, x - 18, label[i].at);
    svg_key(c->out, s->number, x - 17, label[i].at, 12);
    svg_name(c->out, s->label, SVG_LETTER * ((double)letters + 0.5), x, label[i].at + 4);
  }
}

void svg_draw_all(struct canvas *c, size_t letters)
{
  const struct svg_plot *plot = c->plot;
  struct end_label *labels = trm_alloc((size_t)plot->count * sizeof *labels, "report: labels");
  int n = 0;
  for (int s = 0; s < plot->count; s++) {
    svg_draw_series(c, s, &labels[n]);
    n += labels[n].x > 0 && plot->series[s].form == SVG_LINE;
  }
  if (letters > 0)
    svg_draw_labels(c, labels, n, letters);
  trm_free(labels);
}
