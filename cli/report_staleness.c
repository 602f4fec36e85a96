/* The report's section on staleness: of each run with a staleness.json a histogram and a row for each rank. */
#include <math.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "cli/svg.h"
#include "core/memory.h"
#include "core/status.h"

/* Size of a histogram in drawing units. */
enum { LEFT = 46, TOP = 12, WIDTH = 620, HEIGHT = 220, BARS_WIDTH = WIDTH - LEFT - 12,
       BARS_HEIGHT = HEIGHT - TOP - 44 };

/* A histogram of the values 0, 1, ..., n - 1, summed over ranks. */
struct counts {
  double *count; /* (n) */
  size_t n, capacity;
  double total, max;
};

/* Makes room for n values. */
static void stale_extend(struct counts *counts, size_t n)
{
  counts->count = trm_grow(counts->count, &counts->capacity, counts->n, n, sizeof *counts->count,
                           "report: a histogram");
  counts->n = n > counts->n ? n : counts->n;
}

static void stale_add(struct counts *counts, const struct trm_node *histogram)
{
  const struct trm_node *item = histogram ? histogram->first : NULL;
  for (size_t i = 0; item; item = item->next, i++) {
    const double count = trm_node_number(item, 0);
    stale_extend(counts, i + 1);
    if (isfinite(count) && count > 0) {
      counts->count[i] += count;
      counts->total += count;
      counts->max = fmax(counts->max, counts->count[i]);
    }
  }
}

/* Draws one bar for each value; (x, y) is the upper left corner. The bars have titles with their numbers. */
static void stale_write_bars(FILE *out, const struct counts *counts, double x, double y, double width, double height)
{
  const double each = width / (double)counts->n, gap = each > 4 ? 1 : 0;
  for (size_t i = 0; i < counts->n; i++) {
    if (counts->count[i] <= 0)
      continue;
    const double tall = fmax(counts->count[i] / counts->max * height, 0.5);
    fprintf(out,
            "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%zu: %.0f updates, "
            "%.3g %%</title></rect>",
            x + (double)i * each, y + height - tall, each - gap, tall, i, counts->count[i],
            100 * counts->count[i] / counts->total);
  }
}

static void stale_write_histogram(FILE *out, const struct counts *counts, int number)
{
  const double each = (double)BARS_WIDTH / (double)counts->n, floor_y = TOP + BARS_HEIGHT;
  fprintf(out, "<figure><svg class=\"s%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Staleness of updates\">\n",
          number % SVG_COLORS, WIDTH, HEIGHT);
  svg_line(out, "grid", LEFT, TOP, LEFT + BARS_WIDTH, TOP);
  svg_text(out, "tick", "end", LEFT - 6, TOP + 4, "%.3g %%",
           counts->total > 0 ? 100 * counts->max / counts->total : 0);
  stale_write_bars(out, counts, LEFT, TOP, BARS_WIDTH, BARS_HEIGHT);
  svg_line(out, "axis", LEFT, floor_y, LEFT + BARS_WIDTH, floor_y);
  const size_t step = (size_t)svg_tick_step(fmax(1, (double)counts->n / 10));
  for (size_t value = 0; value < counts->n; value += step)
    svg_text(out, "tick", "middle", LEFT + ((double)value + 0.5) * each, floor_y + 17, "%zu", value);
  svg_text(out, "name", "middle", LEFT + BARS_WIDTH / 2, HEIGHT - 8, "updates by others that an update has missed");
  fputs("</svg></figure>\n", out);
}

static void stale_write_row(FILE *out, const struct trm_node *rank, size_t bins, int number)
{
  struct counts counts = {.n = 0};
  stale_extend(&counts, bins);
  stale_add(&counts, trm_node_get(rank, "histogram"));
  static const char *const keys[] = {"rank",          "updates",       "staleness_mean",
                                     "staleness_p50", "staleness_p95", "staleness_max"};
  fputs("<tr>", out);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const double value = trm_node_number(trm_node_get(rank, keys[i]), NAN);
    char cell[32] = "–";
    if (isfinite(value))
      snprintf(cell, sizeof cell, "%.*f", strcmp(keys[i], "staleness_mean") == 0 ? 2 : 0, value);
    fprintf(out, "<td class=\"n\">%s</td>", cell);
  }
  fprintf(out, "<td><svg class=\"s%d\" width=\"160\" height=\"22\" viewBox=\"0 0 160 22\">", number % SVG_COLORS);
  stale_write_bars(out, &counts, 0, 0, 160, 22);
  fputs("</svg></td></tr>\n", out);
  trm_free(counts.count);
}

static void stale_write_run(FILE *out, const struct report_run *run, const struct trm_node *ranks, int number)
{
  struct counts all = {.n = 0};
  stale_extend(&all, 1);
  for (const struct trm_node *rank = ranks->first; rank; rank = rank->next)
    stale_add(&all, trm_node_get(rank, "histogram"));
  markup_print(out, "<h3>%s</h3>\n<div class=\"plots\">\n", run->name);
  stale_write_histogram(out, &all, number);
  fputs("<div class=\"wide\"><table><thead><tr><th class=\"n\">Rank</th><th class=\"n\">Updates</th><th class=\"n\">"
        "Mean</th><th class=\"n\">50 %</th><th class=\"n\">95 %</th><th class=\"n\">Most</th><th>Histogram</th></tr>"
        "</thead><tbody>\n", out);
  for (const struct trm_node *rank = ranks->first; rank; rank = rank->next)
    stale_write_row(out, rank, all.n, number);
  fputs("</tbody></table></div>\n</div>\n", out);
  trm_free(all.count);
}

static const struct trm_node *stale_ranks(const struct report_run *run)
{
  const struct trm_node *ranks = trm_node_get(run->staleness, "ranks");
  return ranks && ranks->kind == TRM_NODE_LIST && ranks->first ? ranks : NULL;
}

void report_staleness(FILE *out, const struct report *report)
{
  bool begun = false;
  for (int g = 0; g < report->groups; g++) { /* of several seeds one */
    const struct trm_node *ranks = stale_ranks(report->group[g].run[0]);
    if (!ranks)
      continue;
    if (!begun)
      fputs("<h2>Staleness</h2>\n<p class=\"soft\">How many updates by others were made between the weights that a "
            "gradient was computed at and its own arrival.</p>\n", out);
    begun = true;
    stale_write_run(out, report->group[g].run[0], ranks, g);
  }
}

int report_stale(const struct report *report, struct report_panel *panel)
{
  for (int g = 0; g < report->groups; g++) {
    const struct report_group *group = &report->group[g];
    struct counts counts = {.n = 0};
    for (int i = 0; i < group->used; i++) {
      const struct trm_node *ranks = stale_ranks(group->run[i]);
      for (const struct trm_node *rank = ranks ? ranks->first : NULL; rank; rank = rank->next)
        stale_add(&counts, trm_node_get(rank, "histogram"));
    }
    if (counts.total > 0) {
      struct svg_series *series = report_panel_add(panel, group->label, g, counts.n, SVG_LINE);
      for (size_t k = 0; k < counts.n; k++) {
        ((double *)series->x)[k] = (double)k;
        ((double *)series->y)[k] = counts.count[k] / counts.total;
      }
    }
    trm_free(counts.count);
  }
  snprintf(panel->title, sizeof panel->title, "Staleness: share of the updates");
  panel->plot.x_label = "updates by others that an update has missed";
  panel->plot.y_unit = SVG_PERCENT;
  panel->plot.behind = report->baseline;
  return TRM_OK;
}
