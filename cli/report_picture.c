/* Pictures of runs for a paper, with text that can be read at the width of a column: the panels of a kind below one
 * another, and a legend. The same panels as CSV. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/status.h"

enum { WIDTH = 440, PANEL = 250, TITLE = 26, HEADING = 20, LEGEND_ROW = 18, MARGIN = 8, KEY = 22, BAR_ROW = 36,
       BOX_ROW = 18, MAX_PANELS = 2 };
#define TITLE_LETTER 8.0 /* mean widths of a letter of the title and of headings */
#define HEADING_LETTER 7.4

static const char picture_style[] =
  "svg{font-family:'DejaVu Sans',Verdana,Arial,sans-serif}.title{font-size:14px;fill:#1c2126}"
  ".heading{font-size:12px;font-weight:600;fill:#1c2126}\n";

/* -- the kinds */

static int picture_loss(const struct report *report, struct report_panel *panel)
{
  struct report_curve train = {.y = REPORT_LOSS, .may_log = true, .means = true}, test = train;
  test.test = true;
  report_set_axis(report, report->axis, &train);
  report_set_axis(report, report->axis, &test);
  report_add_curves(panel, &train, report, SVG_LINE);
  const int lines = panel->plot.count;
  report_add_curves(panel, &test, report, SVG_DOTS);
  const char *split = report_evaluated_split(report);
  if (panel->plot.count > lines)
    snprintf(panel->title, sizeof panel->title, "Loss: training (lines), %c%s (dots)", tolower((unsigned char)split[0]),
             split + 1);
  else
    snprintf(panel->title, sizeof panel->title, "Loss: training");
  return TRM_OK;
}

static int picture_accuracy(const struct report *report, struct report_panel *panel)
{
  struct report_curve curve = {.test = true, .y = REPORT_ACCURACY, .y_unit = SVG_PERCENT};
  report_set_axis(report, report->axis, &curve);
  report_add_curves(panel, &curve, report, SVG_LINE);
  snprintf(panel->title, sizeof panel->title, "%s accuracy", report_evaluated_split(report));
  return TRM_OK;
}

static int picture_curves(const struct report *report, struct report_panel *panel)
{
  TRM_CHECK(picture_loss(report, &panel[0]));
  return picture_accuracy(report, &panel[1]);
}

/* Writes the run's name, or as much of it as there is room for, before the panel's title, of which notes are cut. */
static void picture_name_run(struct report_panel *panel, const char *name)
{
  const size_t letters = (size_t)((WIDTH - 2 * MARGIN) / HEADING_LETTER), used = strcspn(panel->title, ";") + 2;
  const int left = letters > used ? (int)(letters - used) : 0;
  char *title = trm_format("%.*s: %.*s", left, name, (int)used - 2, panel->title);
  snprintf(panel->title, sizeof panel->title, "%s", title);
  trm_free(title);
}

static int picture_gantt(const struct report *report, struct report_panel *panel)
{
  for (int i = 0; i < report->count; i++)
    if (report_trace_read(report, &report->run[i], panel)) {
      if (report->count > 1)
        picture_name_run(panel, report->run[i].name);
      return TRM_OK;
    }
  return TRM_OK;
}

const char *const report_kinds[] = {"curves", "loss", "accuracy", "staleness", "target", "scaling", "gantt", NULL};
static const struct {
  int (*make)(const struct report *report, struct report_panel *panel); /* (MAX_PANELS); a panel may stay empty */
  const char *missing;
} kinds[] = {
  [REPORT_CURVES] = {picture_curves, "no values are logged"},
  [REPORT_LOSSES] = {picture_loss, "no losses are logged"},
  [REPORT_ACCURACIES] = {picture_accuracy, "no evaluation has an accuracy"},
  [REPORT_STALENESS] = {report_stale, "no run has a staleness.json"},
  [REPORT_TARGET] = {report_target, "no values are logged"},
  [REPORT_SCALING] = {report_scaling, "no values are logged"},
  [REPORT_GANTT] = {picture_gantt, "no run has a trace.json with events of that time: run.trace=steps"},
};

/* -- the drawing */

/* The legend of small panels: what is behind their lines. */
static int picture_behind(FILE *out, const struct svg_plot *plot, int y)
{
  const char *name = svg_name_behind(plot);
  if (!name)
    return 0;
  if (out) {
    svg_behind_key(out, MARGIN, y + 6, KEY);
    svg_name(out, name, WIDTH - 2 * MARGIN - KEY - 6, MARGIN + KEY + 6, y + 10);
  }
  return LEGEND_ROW;
}

/* Draws the key of a line, with the dots of the same number, or of boxes. */
static void picture_key(FILE *out, const struct svg_plot *plot, const struct svg_series *s, double x, int base)
{
  if (s->form == SVG_BOXES) {
    svg_box_key(out, s->number, x, base - 9, KEY);
    return;
  }
  svg_key(out, s->number, x, base - 4, KEY);
  for (int i = 0; i < plot->count; i++)
    if (plot->series[i].form == SVG_DOTS && plot->series[i].number == s->number)
      svg_dot(out, s->number, true, x + KEY / 2.0, base - 4, 3.2);
}

/* Draws the legend of the panel's lines or boxes from `y` down if `out` is given. Returns its height: 0 for one line,
 * which the title names, and where the lines are labeled. */
static int picture_legend(FILE *out, const struct report_panel *panel, int y)
{
  const struct svg_plot *plot = &panel->plot;
  double x = MARGIN;
  int rows = 1, entries = 0;
  if (svg_is_grid(plot))
    return picture_behind(out, plot, y);
  for (int i = 0; i < plot->count && !plot->labels; i++) {
    const struct svg_series *s = &plot->series[i];
    bool earlier = false; /* boxes of several depths */
    for (int k = 0; k < i; k++)
      earlier |= plot->series[k].label == s->label;
    if (earlier || (s->form != SVG_LINE && s->form != SVG_BOXES))
      continue;
    entries += s->form == SVG_BOXES ? 2 : 1;
    const double width = KEY + 8 + SVG_LETTER * (double)strlen(s->label) + 14;
    if (x > MARGIN && x + width > WIDTH) {
      x = MARGIN;
      rows++;
    }
    if (out) {
      const int base = y + LEGEND_ROW * (rows - 1) + 10;
      picture_key(out, plot, s, x, base);
      svg_name(out, s->label, WIDTH - MARGIN - x - KEY - 6, x + KEY + 6, base);
    }
    x += width;
  }
  return entries > 1 ? LEGEND_ROW * rows : 0;
}

/* Sets the sizes: rows, and small panels, take room for themselves. */
static void picture_size(struct report_panel *panel)
{
  struct svg_plot *plot = &panel->plot;
  bool boxes = false;
  for (int i = 0; i < plot->count; i++)
    boxes |= plot->series[i].form == SVG_BOXES;
  plot->width = WIDTH;
  plot->title = panel->title;
  const int row = !boxes ? BAR_ROW : plot->rows > 64 ? 3 : plot->rows > 16 ? 8 : BOX_ROW;
  plot->height = plot->rows          ? svg_rows_height(plot->rows, row)
                 : svg_is_grid(plot) ? svg_grid_height(plot)
                                     : PANEL;
}

/* Writes the picture as SVG; returns its height. */
static int picture_draw(FILE *out, const char *title, struct report_panel *panel, int panels)
{
  int y = TITLE;
  bool banded = false;
  for (int p = 0; p < panels; p++) {
    picture_size(&panel[p]);
    y += HEADING + panel[p].plot.height;
    for (int i = 0; i < panel[p].plot.count; i++)
      banded |= panel[p].plot.series[i].low != NULL;
  }
  const int legend = y, note = legend + picture_legend(NULL, panel, 0);
  const int height = note + (banded ? LEGEND_ROW : 0) + MARGIN;
  y = TITLE;
  fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", WIDTH,
          height, WIDTH, height);
  fprintf(out, "<style>\n%s%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", svg_style,
          picture_style);
  fprintf(out, "<text class=\"title\" x=\"%d\" y=\"18\"", MARGIN);
  if (TITLE_LETTER * (double)strlen(title) > WIDTH - 2 * MARGIN)
    fprintf(out, " textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\"", WIDTH - 2 * MARGIN);
  fputs(">", out);
  markup_text(out, title);
  fputs("</text>\n", out);
  for (int p = 0; p < panels; p++) {
    struct svg_notes notes;
    fprintf(out, "<text class=\"heading\" x=\"%d\" y=\"%d\">", MARGIN, y + 13);
    markup_text(out, panel[p].title);
    fprintf(out, "</text>\n<g transform=\"translate(0,%d)\">", y + HEADING);
    svg_plot(out, &panel[p].plot, &notes);
    fputs("</g>\n", out);
    y += HEADING + panel[p].plot.height;
  }
  if (note > legend)
    picture_legend(out, panel, legend);
  if (banded)
    svg_text(out, "tick", "start", MARGIN, note + 10, "Bands: min to max of seeds");
  fputs("</svg>\n", out);
  return height;
}

/* Makes the picture in memory (*made, *bytes), which the caller frees. */
static int picture_make(enum report_format format, const char *title, struct report_panel *panel, int panels,
                        char **made, size_t *bytes)
{
  FILE *out = open_memstream(made, bytes);
  int height = 0;
  if (out && format == REPORT_CSV)
    report_csv(out, panel, panels);
  else if (out)
    height = picture_draw(out, title, panel, panels);
  if (!out || ferror(out) | fclose(out))
    return trm_error(TRM_FAILED, "report: no memory for the picture");
  if (format == REPORT_SVG || format == REPORT_CSV)
    return TRM_OK;
  return report_render(format, made, bytes, WIDTH, height);
}

int report_picture(const char *path, enum report_format format, enum report_kind kind, const char *title,
                   const struct report *report)
{
  struct report_panel panel[MAX_PANELS] = {{.capacity = 0}};
  char *made = NULL;
  size_t bytes = 0;
  struct atomic_file file;
  int status = kinds[kind].make(report, panel), panels = MAX_PANELS;
  while (panels > 0 && panel[panels - 1].plot.count == 0)
    panels--;
  if (status == TRM_OK && panels == 0)
    status = trm_error(TRM_USAGE, "report: --picture=%s: %s", report_kinds[kind], kinds[kind].missing);
  if (status == TRM_OK)
    status = picture_make(format, title, panel, panels, &made, &bytes);
  if (status == TRM_OK)
    status = atomic_file_open(&file, path);
  if (status == TRM_OK)
    status = atomic_file_close(&file, fwrite(made, 1, bytes, file.stream) == bytes);
  free(made);
  for (int p = 0; p < MAX_PANELS; p++)
    report_panel_free(&panel[p]);
  return status;
}
