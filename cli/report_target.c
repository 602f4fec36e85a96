/* The time, or the updates or samples, to a target: as a picture, and as the page's section. */
#include <ctype.h>
#include <math.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"

static bool target_is_accuracy(const struct report *report)
{
  bool accuracy = false;
  for (int i = 0; i < report->count; i++)
    accuracy |= report->run[i].has_accuracy;
  return accuracy;
}

double report_target_of(const struct report *report, enum report_axis axis, const struct report_run *run)
{
  const bool accuracy = target_is_accuracy(report);
  struct report_curve curve;
  report_set_axis(report, axis, &curve);
  for (size_t k = 0; k < run->test.n; k++) {
    const double *value = run->test.point[k].value;
    if (accuracy ? value[REPORT_ACCURACY] >= report->target : value[REPORT_LOSS] <= report->target)
      return value[curve.x];
  }
  return INFINITY;
}

/* Over the runs of a series that reach the target. */
struct reached {
  int runs;
  double mean, min, max;
};

static struct reached target_reached(const struct report *report, enum report_axis axis,
                                     const struct report_group *group)
{
  struct reached all = {.min = INFINITY, .max = -INFINITY};
  double sum = 0;
  for (int i = 0; i < group->used; i++) {
    const double x = report_target_of(report, axis, group->run[i]);
    if (isinf(x))
      continue;
    all.runs++;
    sum += x;
    all.min = fmin(all.min, x);
    all.max = fmax(all.max, x);
  }
  all.mean = all.runs > 0 ? sum / all.runs : INFINITY;
  return all;
}

/* "accuracy of 75 %" */
static void target_text(const struct report *report, char text[64])
{
  if (target_is_accuracy(report))
    snprintf(text, 64, "accuracy of %.4g %%", 100 * report->target);
  else
    snprintf(text, 64, "loss of %.4g", report->target);
}

int report_target(const struct report *report, struct report_panel *panel)
{
  struct report_curve curve;
  char text[64];
  if (isnan(report->target))
    return trm_error(TRM_USAGE, "report: --picture=target: --target=VALUE names it");
  report_set_axis(report, report->axis, &curve);
  panel->plot.x_label = curve.x_label;
  panel->plot.x_unit = curve.x_unit;
  target_text(report, text);
  snprintf(panel->title, sizeof panel->title, "%s %s: mean (bars), seeds (dots)", report_evaluated_split(report), text);
  for (int g = 0; g < report->groups; g++) {
    const struct report_group *group = &report->group[g];
    const struct reached reached = target_reached(report, report->axis, group);
    struct svg_series *bar = report_panel_add(panel, "mean", g, 1, SVG_BARS);
    ((double *)bar->x)[0] = reached.mean;
    ((double *)bar->y)[0] = g;
    struct svg_series *dots = report_panel_add(panel, "seed", g, (size_t)group->count, SVG_DOTS);
    for (int i = 0; i < group->count; i++) {
      ((double *)dots->x)[i] = i < group->used ? report_target_of(report, report->axis, group->run[i]) : INFINITY;
      ((double *)dots->y)[i] = g;
    }
    report_panel_add_row(panel, group->count == 1 ? trm_strdup(group->name)
                                                  : trm_format("%s: reached by %d of %d", group->name, reached.runs,
                                                               group->count));
  }
  return TRM_OK;
}

/* "12.3 s (11.0 s to 13.1 s)", or a dash. */
static void target_cell(FILE *out, const struct reached *reached, void (*write)(FILE *out, double value))
{
  fputs("<td class=\"n\">", out);
  if (reached->runs == 0)
    fputs("–", out);
  else
    write(out, reached->mean);
  if (reached->runs > 1) {
    fputs(" <span class=\"soft\">(", out);
    write(out, reached->min);
    fputs(" to ", out);
    write(out, reached->max);
    fputs(")</span>", out);
  }
  fputs("</td>", out);
}

void report_target_table(FILE *out, const struct report *report)
{
  struct report_curve time;
  char text[64];
  if (isnan(report->target))
    return;
  target_text(report, text);
  report_set_axis(report, REPORT_OVER_TIME, &time);
  fprintf(out, "<h2>Time to target</h2>\n<p class=\"soft\">The first evaluation with a %c%s %s or better: mean over "
               "the runs that have one, and the least and the largest. Time is %s of training. Runs that failed, "
               "diverged or have not ended count as without.</p>\n",
          tolower((unsigned char)report_evaluated_split(report)[0]), report_evaluated_split(report) + 1, text,
          time.x_label);
  fputs("<div class=\"wide\"><table><thead><tr><th>Series</th><th class=\"n\">Reached by</th><th class=\"n\">Time</th>"
        "<th class=\"n\">Updates</th><th class=\"n\">Samples</th></tr></thead><tbody>\n", out);
  static const struct {
    enum report_axis axis;
    void (*write)(FILE *out, double value);
  } columns[] = {{REPORT_OVER_TIME, report_write_duration},
                 {REPORT_OVER_UPDATES, report_write_count},
                 {REPORT_OVER_SAMPLES, report_write_count}};
  for (int g = 0; g < report->groups; g++) {
    const struct report_group *group = &report->group[g];
    const struct reached reached = target_reached(report, REPORT_OVER_TIME, group);
    markup_print(out, "<tr><td>%s</td>", group->name);
    fprintf(out, "<td class=\"n\">%d of %d</td>", reached.runs, group->count);
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
      const struct reached cell = target_reached(report, columns[c].axis, group);
      target_cell(out, &cell, columns[c].write);
    }
    fputs("</tr>\n", out);
  }
  fputs("</tbody></table></div>\n", out);
}
