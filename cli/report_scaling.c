/* Speed-up and efficiency over the number of workers, from runs that are equal but for it. */
#include <math.h>
#include <string.h>

#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"

/* The workers of a run: simulate.workers, or MPI's ranks. */
static double scaling_workers(const struct report_run *run)
{
  const double simulated = trm_node_number(trm_node_get(run->config, "simulate.workers"), 0);
  return simulated > 0 ? simulated : trm_node_number(trm_node_get(run->summary, "ranks"), NAN);
}

/* Seconds of equal work: to the target if there is one, else a sample. */
static double scaling_seconds(const struct report *report, struct report_run *run)
{
  double samples = 0, seconds = NAN;
  if (!isnan(report->target))
    return report_target_of(report, REPORT_OVER_TIME, run);
  const struct report_series *const tracks[] = {&run->train, &run->test};
  for (int t = 0; t < 2; t++)
    if (tracks[t]->n && tracks[t]->point[tracks[t]->n - 1].value[REPORT_SAMPLES] > samples) {
      const double *last = tracks[t]->point[tracks[t]->n - 1].value;
      samples = last[REPORT_SAMPLES];
      seconds = last[REPORT_TIME];
    }
  return seconds / samples;
}

struct scaled {
  double workers, seconds, min, max; /* seconds: mean over seeds */
};

static struct scaled scaling_of(const struct report *report, const struct report_group *group)
{
  struct scaled s = {.workers = scaling_workers(group->run[0]), .min = INFINITY};
  for (int i = 0; i < group->used; i++) {
    const double seconds = scaling_seconds(report, group->run[i]);
    s.seconds += seconds / group->used;
    s.min = fmin(s.min, seconds);
    s.max = fmax(s.max, seconds);
  }
  if (group->used == 0)
    s.seconds = INFINITY;
  return s;
}

/* Groups that are one line: equal but for the number of workers. Returns those of group `first` (*n), fewest workers
 * first; none if it belongs to an earlier one. */
static struct scaled *scaling_line(const struct report *report, int first, int *n)
{
  static const char *const but[] = {"run.seed", "simulate.workers", NULL};
  struct scaled *line = trm_alloc((size_t)report->groups * sizeof *line, "report: scaling");
  *n = 0;
  for (int g = 0; g < report->groups; g++) {
    if (!report_same_settings(report->group[first].run[0]->config, report->group[g].run[0]->config, but))
      continue;
    if (g < first) {
      *n = 0;
      return line;
    }
    const struct scaled s = scaling_of(report, &report->group[g]);
    if (!(s.workers > 0) || !isfinite(s.seconds) || !(s.min > 0))
      continue;
    int at = (*n)++;
    for (; at > 0 && line[at - 1].workers > s.workers; at--)
      line[at] = line[at - 1];
    line[at] = s;
  }
  return line;
}

static void scaling_add(struct report_panel *panel, const char *label, int number, const struct scaled *line, int n,
                        bool efficiency)
{
  struct svg_series *series = report_panel_add(panel, label, number, (size_t)n, SVG_LINE);
  report_panel_add_band(series);
  for (int i = 0; i < n; i++) {
    const double factor = line[0].seconds * (efficiency ? line[0].workers / line[i].workers : 1);
    ((double *)series->x)[i] = line[i].workers;
    ((double *)series->y)[i] = factor / line[i].seconds;
    ((double *)series->low)[i] = factor / line[i].max;
    ((double *)series->high)[i] = factor / line[i].min;
  }
}

/* Returns the name of a group's line: the strategy, or, where several lines have one, that of its runs. */
static const char *scaling_label(const struct report *report, int group, const int *points /* (groups) */)
{
  const struct trm_node *strategy = trm_node_get(report->group[group].run[0]->config, "strategy.name");
  for (int g = 0; g < report->groups && strategy && strategy->text; g++) {
    const struct trm_node *other = trm_node_get(report->group[g].run[0]->config, "strategy.name");
    if (g != group && points[g] > 1 && other && other->text && strcmp(other->text, strategy->text) == 0)
      return report->group[group].name;
  }
  return strategy && strategy->text ? strategy->text : report->group[group].name;
}

int report_scaling(const struct report *report, struct report_panel *panel)
{
  const char *work = isnan(report->target) ? "samples per second" : "time to target";
  struct scaled **line = trm_alloc((size_t)report->groups * sizeof *line, "report: scaling");
  int *points = trm_alloc((size_t)report->groups * sizeof *points, "report: scaling");
  double base = INFINITY;
  int lines = 0;
  for (int g = 0; g < report->groups; g++)
    line[g] = scaling_line(report, g, &points[g]);
  for (int g = 0; g < report->groups; g++) {
    if (points[g] > 1) {
      const char *label = scaling_label(report, g, points);
      scaling_add(&panel[0], label, lines, line[g], points[g], false);
      scaling_add(&panel[1], label, lines++, line[g], points[g], true);
      base = fmin(base, line[g][0].workers);
    }
    trm_free(line[g]);
  }
  trm_free(line);
  trm_free(points);
  if (lines == 0)
    return trm_error(TRM_USAGE, "report: --picture=scaling: needs runs of several numbers of workers");
  snprintf(panel[0].title, sizeof panel[0].title, "Speed-up over %.0f worker%s (%s)", base,
           base == 1 ? "" : "s", work);
  snprintf(panel[1].title, sizeof panel[1].title, "Efficiency");
  panel[0].plot.x_label = panel[1].plot.x_label = "workers";
  panel[1].plot.y_unit = SVG_PERCENT;
  return TRM_OK;
}
