/* The report as a self-contained page without scripts and fonts. */
#include <math.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "cli/svg.h"
#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/status.h"

/* Style of the page; follows svg_style, whose colors it replaces on a dark page. */
static const char style[] =
  ":root{color-scheme:light dark;--page:#fff;--card:#fff;--ink:#1c2126;--soft:#5b6570;--rule:#d9dee3;--faint:#eceff2}\n"
  "@media(prefers-color-scheme:dark){:root{--page:#14181c;--card:#1a1f24;--ink:#e4e8ec;--soft:#9aa5b0;--rule:#3a424a;"
  "--faint:#282f36}.s0{color:#4fa8e8}.s1{color:#ff8a4a}.s2{color:#2fcf9f}.s3{color:#e69ac6}.s4{color:#f2bd45}"
  ".s5{color:#a3d8fa}.s6{color:#bbb}.s7{color:#e8ecf0}.s8{color:#3d6a88}}\n"
  "*{box-sizing:border-box}body{margin:0 auto;max-width:1400px;padding:28px 32px 48px;background:var(--page);"
  "color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
  "h1{font-size:26px;margin:0}h2{font-size:19px;margin:36px 0 12px}h3{font-size:15px;margin:0 0 6px}"
  "p{margin:4px 0}.soft,figcaption{color:var(--soft);font-size:13px}\n"
  ".wide{overflow-x:auto;border:1px solid var(--rule);border-radius:8px;background:var(--card)}"
  "table{border-collapse:collapse;width:100%;font-size:13.5px}"
  "th,td{padding:7px 10px;text-align:left;white-space:nowrap;border-bottom:1px solid var(--faint);vertical-align:top}"
  "tr:last-child td{border-bottom:0}th{color:var(--soft);font-weight:600;vertical-align:bottom;white-space:normal}"
  "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.model{white-space:normal;color:var(--soft);"
  "font-size:12.5px}.model{min-width:17.5em;padding-left:34px}"
  "code,pre{font:12.5px/1.45 ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}\n"
  ".key{width:26px;height:10px;margin-right:8px;display:inline-block}\n"
  ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:18px}"
  "figure{margin:0;padding:14px 16px 10px;border:1px solid var(--rule);border-radius:8px;background:var(--card)}"
  "figure{overflow-x:auto}figure svg{display:block;width:100%;min-width:440px;height:auto}"
  "figure .key{display:inline-block;width:26px;min-width:0;height:10px}.schedule>svg{min-width:800px}\n"
  ".grid{stroke:var(--faint)}.axis{stroke:var(--soft)}.tick,.name{fill:var(--soft)}.label{fill:var(--ink)}"
  ".dot,.box{stroke:var(--card)}.idle{fill:var(--page);stroke:var(--rule);stroke-width:.5}"
  ".in{fill:var(--page);font-size:11px;pointer-events:none}.plots+h3{margin-top:20px}\n"
  "details{border:1px solid var(--rule);border-radius:8px;margin:8px 0;background:var(--card)}"
  "summary{cursor:pointer;padding:8px 14px}details pre{margin:0;padding:4px 16px 12px;overflow-x:auto}\n"
  "@media print{body{padding:0}figure,tr{break-inside:avoid}}\n";

/* -- the curves */

static void html_curve_caption(FILE *out, const struct svg_plot *plot, const struct svg_notes *notes)
{
  fputs("<figcaption>", out);
  if (svg_is_grid(plot) && svg_name_behind(plot))
    markup_print(out, "Grey: %s. ", svg_name_behind(plot));
  if (notes->logarithmic)
    fputs("Logarithmic scale. ", out);
  if (notes->averaged)
    fprintf(out, "Thin: every logged value. Thick: the mean of each of %d equal windows of a run. ", SVG_WINDOWS);
  if (notes->drawn < notes->points)
    fprintf(out, "%zu of %zu points are drawn: of each half pixel the first, the lowest, the highest and the last. ",
            notes->drawn, notes->points);
  if (notes->banded)
    fputs("Lines of several seeds are means, bands reach from the least to the largest. ", out);
  if (notes->coincide)
    fputs("Where lines coincide, the one below is drawn wider. ", out);
  if (notes->broken)
    fputs("Where a line breaks off, or ends in a cross, the value was not finite.", out);
  fputs("</figcaption>", out);
}

static void html_curve_write(FILE *out, const struct report_curve *curve, const struct report *report)
{
  struct report_panel panel = {.plot = {.width = 640, .title = curve->title, .labels = true}};
  struct svg_notes notes;
  report_add_curves(&panel, curve, report, SVG_LINE);
  panel.plot.height = svg_is_grid(&panel.plot) ? svg_grid_height(&panel.plot)
                                               : svg_labels_height(panel.plot.count, 340);
  if (panel.plot.count > 0) {
    fprintf(out, "<figure><h3>%s</h3>\n", curve->title);
    svg_plot(out, &panel.plot, &notes);
    html_curve_caption(out, &panel.plot, &notes);
    fputs("</figure>\n", out);
  }
  report_panel_free(&panel);
}

/* Returns true if epochs differ between evaluations: curves are then plotted over epochs. */
static bool html_epochs_rise(const struct report *report)
{
  for (int i = 0; i < report->count; i++)
    for (size_t k = 1; k < report->run[i].test.n; k++)
      if (report->run[i].test.point[k].value[REPORT_EPOCH] <= report->run[i].test.point[k - 1].value[REPORT_EPOCH])
        return false;
  return true;
}

/* Curves over the axis of the report, and over time. */
static void html_curves_write(FILE *out, const struct report *report)
{
  static const struct {
    const char *name; /* %s: the split */
    bool test;
    enum report_field y;
    enum svg_unit unit;
    bool may_log, means, over_time;
  } curves[] = {{"Training loss", false, REPORT_LOSS, SVG_PLAIN, true, true, true},
                {"%s loss", true, REPORT_LOSS, SVG_PLAIN, true, false, true},
                {"%s accuracy", true, REPORT_ACCURACY, SVG_PERCENT, false, false, true},
                {"Learning rate", false, REPORT_RATE, SVG_PLAIN, true, false, false}};
  fputs("<h2>Curves</h2>\n", out);
  if (report->count > 1 && report->groups <= SVG_MANY) {
    fputs("<p class=\"soft\">", out);
    for (int g = 0; g < report->groups; g++) {
      fputs(" <span style=\"white-space:nowrap;margin-right:18px\">", out);
      report_write_key(out, g);
      markup_print(out, "%s</span>", report->group[g].label);
    }
    fputs("</p>\n", out);
  }
  fputs("<div class=\"plots\">\n", out);
  for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
    for (int over_time = report->axis == REPORT_OVER_TIME && curves[i].over_time; over_time <= curves[i].over_time;
         over_time++) {
      char title[96], name[64];
      struct report_curve curve = {.title = title, .test = curves[i].test, .y = curves[i].y, .y_unit = curves[i].unit,
                                   .may_log = curves[i].may_log, .means = curves[i].means};
      report_set_axis(report, over_time ? REPORT_OVER_TIME : report->axis, &curve);
      if (curve.test && curve.x == REPORT_SAMPLES && html_epochs_rise(report)) {
        curve.x = REPORT_EPOCH;
        curve.x_label = "epochs";
        curve.x_unit = SVG_PLAIN;
      }
      snprintf(name, sizeof name, curves[i].test ? "%s %s" : "%.0s%s", report_evaluated_split(report),
               curves[i].test ? curves[i].name + 3 : curves[i].name);
      snprintf(title, sizeof title, "%s over %s", name, over_time ? "time" : curve.x_label);
      html_curve_write(out, &curve, report);
    }
  fputs("</div>\n", out);
}

/* -- the page */

static void html_notes_write(FILE *out, const struct report *report)
{
  const struct report_run *runs = report->run;
  for (int i = 0; i < report->count; i++) {
    if (runs[i].superseded) {
      markup_print(out, "<p class=\"soft\">%s", runs[i].name);
      fprintf(out, " was resumed: %zu logged lines were computed again, and the later ones are shown.</p>\n",
              runs[i].superseded);
    }
    if (!runs[i].test.n)
      markup_print(out, "<p class=\"soft\">%s has no evaluations.</p>\n", runs[i].name);
  }
}

static void html_page_write(FILE *out, const char *title, const struct report *report)
{
  markup_print(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>%s</title>\n",
               title);
  fprintf(out, "<style>\n%s%s</style></head><body>\n", svg_style, style);
  markup_print(out, "<h1>%s</h1>\n", title);
  fprintf(out, "<p class=\"soft\">%d run%s, trireme %s</p>\n", report->count, report->count == 1 ? "" : "s",
          PACKAGE_VERSION);
  report_series_table(out, report);
  report_runs_table(out, report);
  html_notes_write(out, report);
  report_target_table(out, report);
  html_curves_write(out, report);
  report_staleness(out, report);
  report_trace(out, report);
  report_differences_table(out, report);
  fputs("<h2>Configurations</h2>\n", out);
  for (int g = 0; g < report->groups; g++) {
    const struct report_run *run = report->group[g].run[0];
    markup_print(out,
                 "<details><summary>%s <span class=\"soft\">%s/config.yaml</span></summary><pre>%s</pre></details>\n",
                 run->name, run->path, run->config_text ? run->config_text : "");
  }
  fputs("</body></html>\n", out);
}

int report_html(const char *out, const char *title, const struct report *report)
{
  struct atomic_file file;
  TRM_CHECK(atomic_file_open(&file, out));
  html_page_write(file.stream, title, report);
  return atomic_file_close(&file, !ferror(file.stream));
}
