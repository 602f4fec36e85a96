/* The time to a target. */
#include <math.h>

#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"

static struct report_curve target_curve(const struct report *report)
{
  bool accuracy = false;
  for (int i = 0; i < report->count; i++)
    accuracy |= report->run[i].has_accuracy;
  struct report_curve curve = {.test = true, .y = accuracy ? REPORT_ACCURACY : REPORT_LOSS};
  report_set_axis(report, report->axis, &curve);
  return curve;
}

double report_target_of(const struct report *report, const struct report_group *group)
{
  const struct report_curve curve = target_curve(report);
  struct report_panel panel = {.capacity = 0};
  const struct svg_series *series = report_add_curve(&panel, &curve, group, 0, SVG_LINE);
  double reached = INFINITY;
  for (size_t k = 0; series && k < series->n && isinf(reached); k++)
    if (curve.y == REPORT_ACCURACY ? series->y[k] >= report->target : series->y[k] <= report->target)
      reached = series->x[k];
  report_panel_free(&panel);
  return reached;
}

double report_target_of_run(const struct report *report, struct report_run *run)
{
  const struct report_group alone = {.run = &run, .count = 1, .used = 1, .label = ""};
  return report_target_of(report, &alone);
}

int report_target(const struct report *report, struct report_panel *panel)
{
  if (isnan(report->target))
    return trm_error(TRM_USAGE, "report: --picture=target: --target=VALUE names it");
  const struct report_curve curve = target_curve(report);
  const bool accuracy = curve.y == REPORT_ACCURACY;
  panel->plot.x_label = curve.x_label;
  panel->plot.x_unit = curve.x_unit;
  snprintf(panel->title, sizeof panel->title, "%s of %.4g%s first reached: mean (bars) and seeds (dots)",
           accuracy ? "Accuracy" : "Loss", accuracy ? 100 * report->target : report->target,
           accuracy ? " %" : "");
  for (int g = 0; g < report->groups; g++) {
    const struct report_group *group = &report->group[g];
    struct svg_series *bar = report_panel_add(panel, "mean", g, 1, SVG_BARS);
    ((double *)bar->x)[0] = report_target_of(report, group);
    ((double *)bar->y)[0] = g;
    int reached = 0;
    struct svg_series *dots = report_panel_add(panel, "seed", g, (size_t)group->count, SVG_DOTS);
    for (int i = 0; i < group->count; i++) {
      const double x = i < group->used ? report_target_of_run(report, group->run[i]) : INFINITY;
      ((double *)dots->x)[i] = x;
      ((double *)dots->y)[i] = g;
      reached += isfinite(x);
    }
    report_panel_add_row(panel, group->count == 1 ? trm_strdup(group->name)
                                                  : trm_format("%s: reached by %d of %d", group->name, reached,
                                                               group->count));
  }
  return TRM_OK;
}
