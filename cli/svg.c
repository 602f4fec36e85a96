/* Plots as SVG. */
#include "cli/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "core/memory.h"

enum { TOP = 12, BOTTOM = 46, LEFT = 56, RIGHT = 16 };
enum { CELL_TOP = 19, CELL_HEIGHT = 92, CELL_GAP = 12, CELL_SPACE = 24 }; /* of small
  * panels: name, plot, what is between two, below and beside one another */
#define LABEL_STEP 14.0 /* distance of two labels */

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

/* Seven colors for color-blind readers (Okabe & Ito 2008, without yellow). */
const char svg_style[] =
  ".s0{color:#0072b2}.s1{color:#d55e00}.s2{color:#008a64}.s3{color:#b65c92}.s4{color:#b98200}.s5{color:#3a9bd4}"
  ".s6{color:#555}.s7{color:#2b3138}.s8{color:#a9d3ee}\n"
  ".grid{stroke:#e3e7eb}.axis{stroke:#5b6570}.tick,.name,.label{font-size:12px}"
  ".tick,.name{fill:#5b6570}.label{fill:#1c2126}"
  "svg text{font-family:inherit;font-variant-numeric:tabular-nums}"
  ".line,.thin,.lead{fill:none;stroke:currentColor;stroke-linejoin:round;stroke-linecap:round;stroke-width:2}"
  ".band{fill:currentColor;stroke:none;opacity:.18}.thin{stroke-width:1;opacity:.3}"
  ".lead{stroke-width:1;stroke-dasharray:1 3;stroke-linecap:butt}.behind{fill:none;stroke:#aab3bc;stroke-width:2}"
  ".dot,.bar,.box{fill:currentColor}.dot{stroke:#fff;stroke-width:1}.box{stroke:#fff;stroke-width:.5}"
  ".idle{fill:#fff;stroke:#9aa5b0;stroke-width:.5}.in{fill:#fff;font-size:11px}\n";

static double svg_to_pixel(const struct axis *a, double value)
{
  value /= a->unit;
  const double part = a->logarithmic ? log10(value / a->low) / log10(a->high / a->low)
                                     : (value - a->low) / (a->high - a->low);
  return a->from + part * (a->to - a->from);
}

/* -- axes */

double svg_tick_step(double min)
{
  const double decade = pow(10, floor(log10(min))), raw = min / decade;
  return decade * (raw <= 1 ? 1 : raw <= 2 ? 2 : raw <= 5 ? 5 : 10);
}

static void svg_ticks_linear(struct axis *a, int count)
{
  const double step = svg_tick_step((a->high - a->low) / count);
  a->decimals = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
  if (a->decimals > 5)
    a->decimals = -1;
  a->tick_count = 0;
  for (double k = ceil(a->low / step - 1e-9); k * step <= a->high + 1e-9 * step && a->tick_count < 24; k++)
    a->ticks[a->tick_count++] = k * step;
}

static void svg_ticks_logarithmic(struct axis *a)
{
  const double decades = log10(a->high / a->low), room = fabs(a->to - a->from) / 16;
  const int every = (int)ceil(decades / 8);
  static const double few[] = {1, 2, 5}, one[] = {1};
  const double *in = decades < 3 && 3 * decades < room ? few : one;
  const int per = in == few ? 3 : 1;
  a->decimals = -1;
  a->tick_count = 0;
  for (int d = (int)floor(log10(a->low)); d <= (int)ceil(log10(a->high)); d++)
    for (int k = 0; k < per && a->tick_count < 24; k++) {
      const double tick = in[k] * pow(10, d);
      if ((per > 1 || d % every == 0) && tick >= a->low * (1 - 1e-9) && tick <= a->high * (1 + 1e-9))
        a->ticks[a->tick_count++] = tick;
    }
}

/* Finds the range of the finite values; false if there is none. */
static bool svg_range_of(const struct svg_plot *plot, bool vertical, double *low, double *high)
{
  *low = INFINITY;
  *high = -INFINITY;
  for (int s = 0; s < plot->count; s++)
    for (size_t i = 0; i < plot->series[s].n; i++) {
      const struct svg_series *one = &plot->series[s];
      const double v = vertical ? one->y[i] : one->x[i];
      if (isfinite(v) && isfinite(one->y[i])) {
        *low = fmin(*low, vertical && one->low ? fmin(v, one->low[i]) : v);
        *high = fmax(*high, vertical && one->high ? fmax(v, one->high[i]) : !vertical && one->end ? one->end[i] : v);
      }
    }
  if (plot->rows && !(*low <= *high)) /* rows of bars that are not reached */
    *low = *high = 0;
  return *low <= *high;
}

static void svg_choose_unit(struct axis *a, enum svg_unit kind, double high)
{
  static const struct {
    enum svg_unit kind;
    double from, unit; /* the least value at the upper end */
    const char *name;
  } units[] = {{SVG_COUNT, 2e9, 1e9, "billions"}, {SVG_COUNT, 2e6, 1e6, "millions"},
               {SVG_COUNT, 2e4, 1e3, "thousands"}, {SVG_SECONDS, 2 * 86400, 86400, "d"},
               {SVG_SECONDS, 2 * 3600, 3600, "h"}, {SVG_SECONDS, 180, 60, "min"},
               {SVG_SECONDS, 1, 1, "s"}, {SVG_SECONDS, -INFINITY, 1e-3, "ms"},
               {SVG_PERCENT, -INFINITY, 0.01, ""}};
  a->unit = 1;
  a->unit_name = "";
  for (size_t i = sizeof units / sizeof *units; i-- > 0;) /* the largest that fits is the first of its kind */
    if (units[i].kind == kind && high >= units[i].from) {
      a->unit = units[i].unit;
      a->unit_name = units[i].name;
    }
}

/* The number of ticks that an axis has room for, `each` apart: 2 to 6. */
static int svg_tick_room(const struct axis *a, double each)
{
  return (int)fmin(6, fmax(2, fabs(a->to - a->from) / each));
}

static void svg_set_axis_x(struct canvas *c)
{
  struct axis *a = &c->x;
  double low, high;
  svg_range_of(c->plot, false, &low, &high);
  svg_choose_unit(a, c->plot->x_unit, high);
  a->logarithmic = c->plot->may_log_x && low > 0 && high / low > 12;
  if (a->logarithmic) {
    a->low = low / a->unit;
    a->high = high / a->unit;
    svg_ticks_logarithmic(a);
    return;
  }
  /* the axis of progress begins at 0, that of intervals with them */
  a->low = c->plot->series[0].form == SVG_BOXES ? low / a->unit : fmin(0, low / a->unit);
  a->high = high > low || high > 0 ? high / a->unit : a->low + 1;
  svg_ticks_linear(a, svg_tick_room(a, 36));
}

static void svg_set_axis_y(struct canvas *c)
{
  struct axis *a = &c->y;
  double low, high;
  if (c->plot->rows) {
    *a = (struct axis){.low = c->plot->rows - 0.5, .high = -0.5, .from = a->from, .to = a->to, .unit = 1,
                       .unit_name = ""};
    return;
  }
  svg_range_of(c->plot, true, &low, &high);
  svg_choose_unit(a, c->plot->y_unit, high);
  low /= a->unit;
  high /= a->unit;
  a->logarithmic = c->plot->may_log && low > 0 && high / low > 12;
  if (a->logarithmic) {
    const double pad = pow(high / low, 0.03);
    a->low = low / pad;
    a->high = high * pad;
    svg_ticks_logarithmic(a);
  } else {
    const double spread = high > low ? high - low : fmax(fabs(high), 1e-12);
    a->low = low - 0.04 * spread;
    a->high = high + 0.04 * spread;
    if (low >= 0 && low < 0.35 * spread)
      a->low = 0;
    if (c->plot->y_unit == SVG_PERCENT && high <= 100 && a->high > 100)
      a->high = 100;
    if (a->high <= a->low)
      a->low = a->high - 1;
    svg_ticks_linear(a, svg_tick_room(a, 18));
  }
  c->notes->logarithmic = a->logarithmic;
}

void svg_line(FILE *out, const char *class, double x1, double y1, double x2, double y2)
{
  fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2);
}

void svg_text(FILE *out, const char *class, const char *anchor, double x, double y, const char *format, ...)
{
  va_list values;
  fprintf(out, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, anchor, x, y);
  va_start(values, format);
  vfprintf(out, format, values);
  va_end(values);
  fputs("</text>\n", out);
}

static const char *svg_tick_text(const struct axis *a, double tick, char text[32])
{
  const double size = fabs(tick);
  if (a->decimals >= 0 && size < 1e6)
    snprintf(text, 32, "%.*f", a->decimals, size < 1e-12 ? 0.0 : tick);
  else
    snprintf(text, 32, size >= 1e-3 && size < 1e5 ? "%.6g" : "%.2g", tick);
  return text;
}

/* -- rows */

enum { NAME_LETTERS = 8 }; /* of the longest name beside the rows; longer ones are above them */

static bool svg_names_above(const struct svg_plot *plot)
{
  size_t longest = 0;
  for (int r = 0; r < plot->rows; r++)
    longest = strlen(plot->row[r]) > longest ? strlen(plot->row[r]) : longest;
  return longest > NAME_LETTERS;
}

static double svg_row_height(const struct canvas *c)
{
  return (c->y.from - c->y.to) / c->plot->rows;
}

/* Sets the upper and lower edge of what is drawn in a row. */
static void svg_row_edges(const struct canvas *c, double row, double *top, double *bottom)
{
  const double height = svg_row_height(c), middle = svg_to_pixel(&c->y, row), gap = height > 12 ? 2 : 0.5;
  *top = middle - height / 2 + (svg_names_above(c->plot) ? 17 : gap);
  *bottom = middle + height / 2 - gap;
}

/* Low rows have the names of some. */
static void svg_draw_row_names(struct canvas *c)
{
  const bool above = svg_names_above(c->plot);
  const int every = c->plot->rows ? (int)ceil(12 / svg_row_height(c)) : 1;
  for (int r = 0; r < c->plot->rows; r += every) {
    const double middle = svg_to_pixel(&c->y, r);
    fprintf(c->out, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", above ? "label" : "tick",
            above ? "start" : "end", above ? c->x.from : c->x.from - 8.0,
            above ? middle - svg_row_height(c) / 2 + 13 : middle + 4);
    markup_text(c->out, c->plot->row[r]);
    fputs("</text>\n", c->out);
  }
}

static void svg_draw_bars(struct canvas *c, const struct svg_series *s)
{
  for (size_t i = 0; i < s->n; i++) {
    double top, bottom;
    svg_row_edges(c, s->y[i], &top, &bottom);
    if (isfinite(s->x[i]))
      fprintf(c->out,
              "<rect class=\"bar s%d\" opacity=\".4\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
              s->number % SVG_COLORS, c->x.from, top, svg_to_pixel(&c->x, s->x[i]) - c->x.from, bottom - top);
    else
      svg_text(c->out, "tick", "start", c->x.from + 4, (top + bottom) / 2 + 4, "not reached");
  }
}

static void svg_draw_boxes(struct canvas *c, const struct svg_series *s)
{
  for (size_t i = 0; i < s->n; i++) {
    double top, bottom;
    svg_row_edges(c, s->y[i], &top, &bottom);
    const double inset = fmin(4 * s->box[i].depth, 0.35 * (bottom - top));
    const double x = svg_to_pixel(&c->x, s->x[i]), width = fmax(svg_to_pixel(&c->x, s->end[i]) - x, 0.3);
    char class[16] = "idle";
    if (s->number >= 0)
      snprintf(class, sizeof class, "box s%d", s->number);
    fprintf(c->out, "<g><rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>", class, x,
            top + inset, width, bottom - top - 2 * inset);
    markup_text(c->out, s->box[i].title);
    fputs("</title></rect>", c->out);
    if (s->box[i].mark >= 0 && bottom - top > 12 && width > (s->box[i].mark > 9 ? 17 : 10))
      svg_text(c->out, "in", "middle", x + width / 2, (top + bottom) / 2 + 4, "%d", s->box[i].mark);
    fputs("</g>\n", c->out);
  }
}

static void svg_draw_axes(struct canvas *c)
{
  char text[32];
  const struct svg_cell *cell = c->plot->cell;
  svg_draw_row_names(c);
  for (int i = 0; i < c->y.tick_count; i++) {
    const double y = svg_to_pixel(&c->y, c->y.ticks[i] * c->y.unit);
    svg_line(c->out, "grid", c->x.from, y, c->x.to, y);
    if (!cell || cell->left)
      svg_text(c->out, "tick", "end", c->x.from - 8, y + 4, "%s%s", svg_tick_text(&c->y, c->y.ticks[i], text),
               c->plot->y_unit == SVG_PERCENT ? "%" : "");
  }
  const double floor_y = c->y.from;
  svg_line(c->out, "axis", c->x.from, floor_y, c->x.to, floor_y);
  for (int i = 0; i < c->x.tick_count; i++) {
    const double x = svg_to_pixel(&c->x, c->x.ticks[i] * c->x.unit);
    svg_line(c->out, "axis", x, floor_y, x, floor_y + 4);
    if (!cell || cell->bottom)
      svg_text(c->out, "tick", "middle", x, floor_y + 18, "%s", svg_tick_text(&c->x, c->x.ticks[i], text));
  }
  if (cell && !cell->bottom)
    return;
  const bool has_unit = *c->x.unit_name;
  svg_text(c->out, "name", "middle", (c->x.from + c->x.to) / 2, floor_y + BOTTOM - 8, "%s%s%s%s", c->plot->x_label,
           has_unit ? " (" : "", c->x.unit_name, has_unit ? ")" : "");
}

/* -- lines */

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

/* Begins a path. wider: added to the stroke's width. */
static void svg_path_open(FILE *out, int number, const char *class, int wider)
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
static size_t svg_path_points(struct canvas *c, const struct svg_series *s)
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

static void svg_draw_dots(struct canvas *c, const struct svg_series *s, double radius)
{
  for (size_t i = 0; i < s->n; i++) {
    double y = svg_to_pixel(&c->y, s->y[i]), top, bottom;
    if (c->plot->rows) {
      svg_row_edges(c, s->y[i], &top, &bottom);
      y = (top + bottom) / 2;
    }
    if (isfinite(s->y[i]) && isfinite(s->x[i]))
      fprintf(c->out, "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", s->number % SVG_COLORS,
              svg_to_pixel(&c->x, s->x[i]), y, radius);
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

/* Writes a series' name; of one with more letters the end, where names differ. */
static void svg_draw_name(FILE *out, const char *name, size_t letters, double x, double y)
{
  const size_t length = strlen(name);
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
    svg_draw_name(c->out, s->label, letters, x, label[i].at + 4);
  }
}

int svg_rows_height(int rows, int height_of_row)
{
  return TOP + rows * height_of_row + BOTTOM;
}

int svg_labels_height(int labels, int usual)
{
  const int height = TOP + (int)(LABEL_STEP * (labels + 1)) + BOTTOM;
  return height > usual ? height : usual;
}

/* Sets the ends of the axes. labels: room for labels at the ends of lines, 0: none. */
static void svg_set_frame(struct canvas *c, double labels)
{
  const struct svg_plot *plot = c->plot;
  const struct svg_cell *cell = plot->cell;
  c->x.from = cell && !cell->left ? 0 : plot->rows && svg_names_above(plot) ? 12 : LEFT;
  c->x.to = plot->width - (cell ? 0 : labels > 0 ? labels : RIGHT);
  c->y.to = cell ? CELL_TOP : TOP;
  c->y.from = cell ? CELL_TOP + CELL_HEIGHT : plot->height - BOTTOM;
}

static void svg_draw_all(struct canvas *c, bool labeled, size_t letters)
{
  const struct svg_plot *plot = c->plot;
  struct end_label *labels = trm_alloc((size_t)plot->count * sizeof *labels, "report: labels");
  int n = 0;
  for (int s = 0; s < plot->count; s++) {
    svg_draw_series(c, s, &labels[n]);
    n += labels[n].x > 0 && plot->series[s].form == SVG_LINE;
  }
  if (labeled)
    svg_draw_labels(c, labels, n, letters);
  trm_free(labels);
}

/* -- small panels: one for each number of a line, in its order */

/* Returns the first series from `s` on that is a line, and the first one of its number; plot->count: there is none. */
static int svg_next_cell(const struct svg_plot *plot, int s)
{
  for (; s < plot->count; s++) {
    bool earlier = plot->series[s].form != SVG_LINE;
    for (int k = 0; k < s && !earlier; k++)
      earlier = plot->series[k].form == SVG_LINE && plot->series[k].number == plot->series[s].number;
    if (!earlier)
      break;
  }
  return s;
}

static int svg_cells(const struct svg_plot *plot)
{
  int cells = 0;
  for (int s = svg_next_cell(plot, 0); s < plot->count; s = svg_next_cell(plot, s + 1))
    cells++;
  return cells;
}

bool svg_is_grid(const struct svg_plot *plot)
{
  return !plot->rows && !plot->cell && svg_cells(plot) > SVG_MANY;
}

const char *svg_name_behind(const struct svg_plot *plot)
{
  for (int s = 0; s < plot->count; s++)
    if (plot->series[s].number == plot->behind && plot->series[s].form == SVG_LINE)
      return plot->series[s].label;
  return NULL;
}

static int svg_grid_columns(const struct svg_plot *plot)
{
  return (svg_cells(plot) > 12 ? 3 : 2) + (plot->width > 600);
}

int svg_grid_height(const struct svg_plot *plot)
{
  const int columns = svg_grid_columns(plot);
  return (svg_cells(plot) + columns - 1) / columns * (CELL_TOP + CELL_HEIGHT + CELL_GAP) - CELL_GAP + BOTTOM;
}

/* Draws the series of the cell's number over the one behind, in one color. */
static void svg_draw_cell(struct canvas *c, const char *name)
{
  const struct svg_plot *plot = c->plot;
  for (int s = 0; s < plot->count; s++)
    if (plot->series[s].number == plot->behind && plot->behind != plot->cell->number &&
        plot->series[s].form == SVG_LINE) {
      fputs("<path class=\"behind\" d=\"", c->out);
      svg_path_points(c, &plot->series[s]);
      fputs("\"/>\n", c->out);
    }
  struct svg_plot alone = *plot;
  struct svg_series *series = trm_alloc((size_t)plot->count * sizeof *series, "report: a panel");
  alone.series = series;
  alone.count = 0;
  for (int s = 0; s < plot->count; s++)
    if (plot->series[s].number == plot->cell->number) {
      series[alone.count] = plot->series[s];
      series[alone.count++].number = 0;
    }
  c->plot = &alone;
  svg_draw_all(c, false, 0);
  c->plot = plot;
  trm_free(series);
  svg_draw_name(c->out, name, (size_t)((c->x.to - c->x.from) / 6.6), c->x.from, CELL_TOP - 6);
}

/* Draws a panel, its upper left corner at (x, y). The axes are those of all series. */
static void svg_draw_panel(FILE *out, const struct svg_plot *plot, const struct svg_cell *cell, const char *name,
                           double x, double y, double width, struct svg_notes *notes)
{
  struct svg_plot small = *plot;
  struct canvas c = {.out = out, .plot = &small, .notes = notes};
  small.cell = cell;
  small.width = (int)width;
  svg_set_frame(&c, 0);
  fprintf(out, "<g transform=\"translate(%.1f,%.1f)\">\n", x, y);
  svg_set_axis_x(&c);
  svg_set_axis_y(&c);
  svg_draw_axes(&c);
  svg_draw_cell(&c, name);
  fputs("</g>\n", out);
}

static void svg_draw_grid(FILE *out, const struct svg_plot *plot, struct svg_notes *notes)
{
  const int cells = svg_cells(plot), columns = svg_grid_columns(plot);
  const double width = (double)(plot->width - LEFT - RIGHT - (columns - 1) * CELL_SPACE) / columns;
  int s = svg_next_cell(plot, 0);
  for (int i = 0; i < cells; i++, s = svg_next_cell(plot, s + 1)) {
    const int column = i % columns;
    const struct svg_cell cell = {plot->series[s].number, column == 0, i + columns >= cells};
    svg_draw_panel(out, plot, &cell, plot->series[s].label, column ? LEFT + column * (width + CELL_SPACE) : 0,
                   i / columns * (CELL_TOP + CELL_HEIGHT + CELL_GAP), column ? width : LEFT + width, notes);
  }
}

void svg_plot(FILE *out, const struct svg_plot *plot, struct svg_notes *notes)
{
  *notes = (struct svg_notes){0};
  size_t letters = 0;
  int lines = 0;
  for (int s = 0; s < plot->count; s++) {
    const size_t length = strlen(plot->series[s].label);
    letters = length > letters ? length : letters;
    lines += plot->series[s].form == SVG_LINE;
  }
  letters = letters > 28 ? 28 : letters;
  const int max_labels = (int)((plot->height - TOP - BOTTOM) / LABEL_STEP);
  const bool labeled = plot->labels && lines > 1 && lines <= max_labels;
  struct canvas c = {.out = out, .plot = plot, .notes = notes};

  fprintf(out, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", plot->width,
          plot->height, plot->width, plot->height);
  markup_text(out, plot->title);
  fprintf(out, "\" xmlns=\"http://www.w3.org/2000/svg\">\n");
  double low, high;
  if (!svg_range_of(plot, true, &low, &high)) {
    svg_text(out, "tick", "middle", plot->width / 2, plot->height / 2, "no finite values");
  } else if (svg_is_grid(plot)) {
    svg_draw_grid(out, plot, notes);
  } else {
    svg_set_frame(&c, labeled ? 40 + 6.6 * (double)letters : 0);
    svg_set_axis_x(&c);
    svg_set_axis_y(&c);
    svg_draw_axes(&c);
    svg_draw_all(&c, labeled, letters);
  }
  fprintf(out, "</svg>\n");
}
