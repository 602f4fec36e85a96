/* The series of a report's curves. */
#include "cli/report.h"
#include "core/memory.h"

static bool curves_has_values(const struct report_curve *curve, const struct report_run *run)
{
  if (curve->y == REPORT_RATE)
    return run->train.n && run->has_rate;
  if (!curve->test)
    return run->train.n > 0;
  return run->test.n && (curve->y == REPORT_ACCURACY ? run->has_accuracy : run->has_loss);
}

const char *report_evaluated_split(const struct report_run *runs, int count)
{
  int validates = 0;
  for (int i = 0; i < count; i++)
    validates += runs[i].validates;
  return validates == count ? "Validation" : validates ? "Evaluation" : "Test";
}

static int curves_series(const struct report_curve *curve, const struct report_run *runs, int count,
                         struct svg_series *series)
{
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (!curves_has_values(curve, &runs[i]))
      continue;
    const struct report_series *track = curve->test ? &runs[i].test : &runs[i].train;
    double *x = trm_alloc(2 * track->n * sizeof *x, "report: a curve"), *y = x + track->n;
    for (size_t k = 0; k < track->n; k++) {
      x[k] = track->point[k].value[curve->x];
      y[k] = track->point[k].value[curve->y];
    }
    series[n++] = (struct svg_series){.label = runs[i].name, .number = i, .n = track->n, .x = x, .y = y};
  }
  return n;
}

int report_curve_draw(FILE *out, const struct report_curve *line, const struct report_curve *dots,
                      const struct report_run *runs, int count, struct svg_plot plot, struct svg_notes *notes)
{
  struct svg_series *series = trm_alloc(2 * (size_t)count * sizeof *series, "report: curves");
  const int lines = curves_series(line, runs, count, series);
  const int n = lines + (dots ? curves_series(dots, runs, count, series + lines) : 0);
  for (int i = lines; i < n; i++)
    series[i].points = true;
  plot.x_label = line->x_label;
  plot.x_unit = line->x_unit;
  plot.y_unit = line->y_unit;
  plot.may_log = line->may_log;
  plot.means = line->means;
  plot.series = series;
  plot.count = n;
  if (out)
    svg_plot(out, &plot, notes);
  for (int i = 0; i < n; i++)
    trm_free((void *)series[i].x);
  trm_free(series);
  return n;
}
