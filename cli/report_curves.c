/* The curves of a report's series. */
#include <math.h>
#include <stdlib.h>

#include "cli/report.h"
#include "core/memory.h"

static const struct report_series *curves_track(const struct report_curve *curve, const struct report_run *run)
{
  return curve->test ? &run->test : &run->train;
}

static bool curves_has_values(const struct report_curve *curve, const struct report_run *run)
{
  if (curve->y == REPORT_RATE)
    return run->train.n && run->has_rate;
  if (!curve->test)
    return run->train.n > 0;
  return run->test.n && (curve->y == REPORT_ACCURACY ? run->has_accuracy : run->has_loss);
}

const char *report_evaluated_split(const struct report *report)
{
  int validates = 0, tests = 0;
  for (int i = 0; i < report->count; i++) {
    validates += report->run[i].test.n && report->run[i].validates;
    tests += report->run[i].test.n && !report->run[i].validates;
  }
  return validates && tests ? "Evaluation" : validates ? "Validation" : "Test";
}

void report_set_axis(const struct report *report, enum report_axis axis, struct report_curve *curve)
{
  int modeled = 0;
  for (int i = 0; i < report->count; i++)
    modeled += report->run[i].modeled;
  static const enum report_field fields[] = {REPORT_SAMPLES, REPORT_STEP, REPORT_TIME};
  const char *const labels[] = {
    "samples", "updates", modeled == 0 ? "wall time" : modeled == report->count ? "virtual time" : "time"};
  curve->x = fields[axis];
  curve->x_label = labels[axis];
  curve->x_unit = axis == REPORT_OVER_TIME ? SVG_SECONDS : SVG_COUNT;
}

/* -- the mean of several runs */

struct cursor {
  const struct report_point *point; /* (n) */
  size_t n, at;
};

/* The value of a run's piecewise linear curve at x, which is not below that of its first point and does not fall from
 * call to call. After its last point a run keeps that value. */
static double curves_value(struct cursor *c, const struct report_curve *curve, double x)
{
  while (c->at + 1 < c->n && c->point[c->at + 1].value[curve->x] <= x)
    c->at++;
  const double *a = c->point[c->at].value;
  if (c->at + 1 == c->n || a[curve->x] == x)
    return a[curve->y];
  const double *b = c->point[c->at + 1].value;
  return a[curve->y] + (b[curve->y] - a[curve->y]) * (x - a[curve->x]) / (b[curve->x] - a[curve->x]);
}

static int curves_compare(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sets x (as many as the runs have points in all) to the points of all runs that no run begins after. Returns their
 * number, each once. */
static size_t curves_grid(const struct cursor *run, int runs, const struct report_curve *curve, double *x)
{
  double begin = -INFINITY;
  size_t all = 0, n = 0;
  for (int i = 0; i < runs; i++)
    begin = fmax(begin, run[i].point[0].value[curve->x]);
  for (int i = 0; i < runs; i++)
    for (size_t k = 0; k < run[i].n; k++)
      if (run[i].point[k].value[curve->x] >= begin)
        x[all++] = run[i].point[k].value[curve->x];
  qsort(x, all, sizeof *x, curves_compare);
  for (size_t k = 0; k < all; k++)
    if (n == 0 || x[k] != x[n - 1])
      x[n++] = x[k];
  return n;
}

static void curves_mean(struct svg_series *series, struct cursor *run, int runs, const struct report_curve *curve)
{
  double *x = (double *)series->x, *y = (double *)series->y;
  series->n = curves_grid(run, runs, curve, x);
  report_panel_add_band(series);
  double *low = (double *)series->low, *high = (double *)series->high;
  for (size_t k = 0; k < series->n; k++) {
    double sum = 0;
    low[k] = INFINITY;
    high[k] = -INFINITY;
    for (int i = 0; i < runs; i++) {
      const double value = curves_value(&run[i], curve, x[k]);
      sum += value;
      low[k] = fmin(low[k], value);
      high[k] = fmax(high[k], value);
    }
    y[k] = sum / runs; /* not finite where a run's value is not */
    if (!isfinite(y[k]))
      low[k] = high[k] = NAN;
  }
}

const struct svg_series *report_add_curve(struct report_panel *panel, const struct report_curve *curve,
                                          const struct report_group *group, int number, enum svg_form form)
{
  struct cursor *run = trm_alloc((size_t)group->count * sizeof *run, "report: runs of a curve");
  struct svg_series *series = NULL;
  size_t points = 0;
  int runs = 0;
  for (int i = 0; i < group->used; i++)
    if (curves_has_values(curve, group->run[i])) {
      const struct report_series *track = curves_track(curve, group->run[i]);
      run[runs++] = (struct cursor){track->point, track->n, 0};
      points += track->n;
    }
  if (runs > 0)
    series = report_panel_add(panel, group->label, number, points, form);
  if (runs > 1)
    curves_mean(series, run, runs, curve);
  for (size_t k = 0; runs == 1 && k < points; k++) {
    ((double *)series->x)[k] = run->point[k].value[curve->x];
    ((double *)series->y)[k] = run->point[k].value[curve->y];
  }
  trm_free(run);
  return series;
}

/* True if lines end at values of x so different that the short ones are a dot on a linear axis. */
static bool curves_end_apart(const struct svg_plot *plot)
{
  double first = INFINITY, last = 0;
  for (int s = 0; s < plot->count; s++)
    if (plot->series[s].form == SVG_LINE && plot->series[s].n) {
      first = fmin(first, plot->series[s].x[plot->series[s].n - 1]);
      last = fmax(last, plot->series[s].x[plot->series[s].n - 1]);
    }
  return last > 12 * first;
}

void report_add_curves(struct report_panel *panel, const struct report_curve *curve, const struct report *report,
                       enum svg_form form)
{
  struct svg_plot *plot = &panel->plot;
  if (form == SVG_LINE) {
    plot->x_label = curve->x_label;
    plot->x_unit = curve->x_unit;
    plot->y_unit = curve->y_unit;
    plot->may_log = curve->may_log;
    plot->means = curve->means;
    plot->behind = report->baseline;
  }
  for (int g = 0; g < report->groups; g++)
    report_add_curve(panel, curve, &report->group[g], g, form);
  plot->may_log_x = curves_end_apart(plot);
}
