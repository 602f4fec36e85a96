/* Plots as SVG: axes, and what is common to all. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/svg_private.h"

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

double svg_to_pixel(const struct axis *a, double value)
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
  const double decades = log10(a->high / a->low), max_ticks = fabs(a->to - a->from) / 16;
  const int every = (int)ceil(decades / 8);
  static const double few[] = {1, 2, 5}, one[] = {1};
  const double *in = decades < 3 && 3 * decades < max_ticks ? few : one;
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

bool svg_range_of(const struct svg_plot *plot, bool vertical, double *low, double *high)
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
static int svg_max_ticks(const struct axis *a, double each)
{
  return (int)fmin(6, fmax(2, fabs(a->to - a->from) / each));
}

void svg_set_axis_x(struct canvas *c)
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
  svg_ticks_linear(a, svg_max_ticks(a, 36));
}

void svg_set_axis_y(struct canvas *c)
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
    svg_ticks_linear(a, svg_max_ticks(a, 18));
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

void svg_draw_axes(struct canvas *c)
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

int svg_rows_height(int rows, int height_of_row)
{
  return TOP + rows * height_of_row + BOTTOM;
}

int svg_labels_height(int labels, int usual)
{
  const int height = TOP + (int)(LABEL_STEP * (labels + 1)) + BOTTOM;
  return height > usual ? height : usual;
}

void svg_set_frame(struct canvas *c, double labels)
{
  const struct svg_plot *plot = c->plot;
  const struct svg_cell *cell = plot->cell;
  c->x.from = cell && !cell->left ? 0 : plot->rows && svg_names_above(plot) ? 12 : LEFT;
  c->x.to = plot->width - (cell ? 0 : labels > 0 ? labels : RIGHT);
  c->y.to = cell ? CELL_TOP : TOP;
  c->y.from = cell ? CELL_TOP + CELL_HEIGHT : plot->height - BOTTOM;
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
    svg_set_frame(&c, labeled ? 40 + SVG_LETTER * (double)letters : 0);
    svg_set_axis_x(&c);
    svg_set_axis_y(&c);
    svg_draw_axes(&c);
    svg_draw_all(&c, labeled ? letters : 0);
  }
  fprintf(out, "</svg>\n");
}
