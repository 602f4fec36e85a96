/* Panels of a report: series with their values, drawn by svg.h, or written as CSV. */
#include <math.h>
#include <string.h>

#include "cli/report.h"
#include "core/document.h"
#include "core/memory.h"

static double *panel_values(size_t n)
{
  return trm_alloc(n * sizeof(double), "report: values of a curve");
}

struct svg_series *report_panel_add(struct report_panel *panel, const char *label, int number, size_t n,
                                    enum svg_form form)
{
  const size_t count = (size_t)panel->plot.count;
  struct svg_series *series = trm_grow((void *)panel->plot.series, &panel->capacity, count, count + 1, sizeof *series,
                                       "report: curves");
  panel->plot.series = series;
  panel->plot.count++;
  series[count] = (struct svg_series){
    .label = label, .number = number, .n = n, .x = panel_values(n), .y = panel_values(n), .form = form};
  if (form == SVG_BOXES) {
    series[count].end = panel_values(n);
    series[count].box = trm_alloc(n * sizeof *series->box, "report: boxes");
  }
  return &series[count];
}

void report_panel_add_band(struct svg_series *series)
{
  series->low = panel_values(series->n);
  series->high = panel_values(series->n);
}

void report_panel_add_row(struct report_panel *panel, char *name)
{
  const size_t rows = (size_t)panel->plot.rows;
  panel->row = trm_grow(panel->row, &panel->row_capacity, rows, rows + 1, sizeof *panel->row, "report: rows");
  panel->row[rows] = name;
  panel->plot.row = (const char *const *)panel->row;
  panel->plot.rows++;
}

void report_panel_free(struct report_panel *panel)
{
  for (int i = 0; i < panel->plot.count; i++) {
    const struct svg_series *s = &panel->plot.series[i];
    const void *const parts[] = {s->x, s->y, s->low, s->high, s->end, s->box};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
      trm_free((void *)parts[k]);
  }
  for (int i = 0; i < panel->plot.rows; i++)
    trm_free(panel->row[i]);
  trm_free((void *)panel->plot.series);
  trm_free(panel->row);
  *panel = (struct report_panel){.capacity = 0};
}

/* -- CSV */

static void panel_csv_text(FILE *out, const char *text)
{
  fputc('"', out);
  for (; *text; text++)
    fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
  fputc('"', out);
}

/* NAN: empty. */
static void panel_csv_number(FILE *out, const double *value, size_t i)
{
  char text[32];
  fputc(',', out);
  if (value && isinf(value[i]))
    fputs("inf", out);
  else if (value && !isnan(value[i]))
    fputs(trm_number_text(value[i], text), out);
}

void report_csv(FILE *out, const struct report_panel *panel, int count)
{
  fputs("panel,series,x,x_end,y,y_low,y_high\n", out);
  for (int p = 0; p < count; p++)
    for (int i = 0; i < panel[p].plot.count; i++) {
      const struct svg_series *s = &panel[p].plot.series[i];
      for (size_t k = 0; k < s->n; k++) {
        panel_csv_text(out, panel[p].title);
        fputc(',', out);
        panel_csv_text(out, s->label);
        panel_csv_number(out, s->x, k);
        panel_csv_number(out, s->end, k);
        if (panel[p].plot.rows) {
          fputc(',', out);
          panel_csv_text(out, panel[p].row[(size_t)s->y[k]]);
        } else {
          panel_csv_number(out, s->y, k);
        }
        panel_csv_number(out, s->low, k);
        panel_csv_number(out, s->high, k);
        fputc('\n', out);
      }
    }
}
