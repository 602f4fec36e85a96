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
  "figure svg{display:block;width:100%;height:auto}\n"
  ".grid{stroke:var(--faint)}.axis{stroke:var(--soft)}.tick,.name{fill:var(--soft)}.label{fill:var(--ink)}"
  ".dot,.box{stroke:var(--card)}.idle{fill:var(--page);stroke:var(--rule);stroke-width:.5}"
  ".in{fill:var(--page);font-size:11px;pointer-events:none}.plots+h3{margin-top:20px}\n"
  "details{border:1px solid var(--rule);border-radius:8px;margin:8px 0;background:var(--card)}"
  "summary{cursor:pointer;padding:8px 14px}details pre{margin:0;padding:4px 16px 12px;overflow-x:auto}\n"
  "@media print{body{padding:0}figure,tr{break-inside:avoid}}\n";

/* -- the table of the runs */

static void html_key_write(FILE *out, int number)
{
  fputs("<svg class=\"key\" viewBox=\"0 0 26 10\">", out);
  svg_key(out, number, 1, 5, 24);
  fputs("</svg>", out);
}

/* The text of an entry; NULL: it is missing, empty or null. */
static const char *html_text(const struct trm_node *map, const char *key)
{
  const struct trm_node *node = trm_node_get(map, key);
  return node && node->text && *node->text && strcmp(node->text, "null") ? node->text : NULL;
}

static void html_cell_text(FILE *out, const char *text)
{
  markup_print(out, "<td>%s</td>", text ? text : "–");
}

/* 1234567 -> 1,234,567 */
void report_write_count(FILE *out, double value)
{
  char digits[40];
  const int n = snprintf(digits, sizeof digits, "%.0f", value);
  for (int i = 0; i < n; i++) {
    fputc(digits[i], out);
    if (i + 1 < n && (n - 1 - i) % 3 == 0 && digits[i] != '-')
      fputc(',', out);
  }
}

void report_write_duration(FILE *out, double s)
{
  const long long whole = (long long)(s + 0.5);
  if (s < 60)
    fprintf(out, "%.*f s", s < 10 ? 2 : 1, s);
  else if (whole < 3600)
    fprintf(out, "%lld min %02lld s", whole / 60, whole % 60);
  else
    fprintf(out, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
}

enum figure_kind { FIGURE_COUNT, FIGURE_RATE, FIGURE_LOSS, FIGURE_PERCENT, FIGURE_DURATION };
/* Location of an unfinished run's value in its log. */
enum logged { NOT_LOGGED, OF_TRAINING, OF_TESTS };
static const struct column {
  const char *key, *head, *help;
  enum figure_kind kind;
  int better; /* 1: higher is better, -1: lower; 0: neither */
  enum logged logged;
  enum report_field field;
} columns[] = {
  {"ranks", "Ranks", "MPI ranks", FIGURE_COUNT, 0, NOT_LOGGED, 0},
  {"threads", "Threads", "threads of each rank", FIGURE_COUNT, 0, NOT_LOGGED, 0},
  {"epochs", "Epochs", "epochs of training", FIGURE_COUNT, 0, NOT_LOGGED, 0},
  {"steps", "Steps", "updates of the weights", FIGURE_COUNT, 0, OF_TRAINING, REPORT_STEP},
  {"wall_s", "Time", "wall time of training, or virtual time", FIGURE_DURATION, 0, OF_TRAINING, REPORT_WALL},
  {"samples_per_s", "Samples/s", "samples trained per second, all ranks together", FIGURE_RATE, 0, NOT_LOGGED, 0},
  {"final_train_loss", "Train loss", "training loss at the end", FIGURE_LOSS, 0, NOT_LOGGED, 0},
  {"best_validation_loss", "Best validation loss", "validation loss of best.h5", FIGURE_LOSS, -1, NOT_LOGGED, 0},
  {"best_validation_accuracy", "Best validation accuracy", "validation accuracy of best.h5", FIGURE_PERCENT, 1,
   NOT_LOGGED, 0},
  {"test_loss", "Test loss", "test loss of the final weights", FIGURE_LOSS, -1, OF_TESTS, REPORT_LOSS},
  {"test_accuracy", "Test accuracy", "test accuracy of the final weights", FIGURE_PERCENT, 1, OF_TESTS,
   REPORT_ACCURACY},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* Returns a value of a run's summary, of an unfinished run from its log; NAN: not logged. */
static double html_number(const struct report_run *run, const struct column *column)
{
  const struct report_series *log = column->logged == OF_TRAINING ? &run->train : &run->test;
  const bool is_time = column->kind == FIGURE_DURATION;
  if (run->summary)
    return trm_node_number(trm_node_get(run->summary, is_time && run->modeled ? "virtual_s" : column->key), NAN);
  if (column->logged == NOT_LOGGED || (column->logged == OF_TESTS && run->validates) || log->n == 0)
    return NAN;
  return log->point[log->n - 1].value[column->field];
}

static void html_time_write(FILE *out, double seconds, bool modeled)
{
  report_write_duration(out, seconds);
  fputs(modeled ? " <span class=\"soft\">virtual</span>" : "", out);
}

static void html_cell_number(FILE *out, const struct column *column, const struct report *report, int i)
{
  const struct report_run *runs = report->run;
  const int count = report->count;
  const double value = html_number(&runs[i], column);
  bool best = column->better && count > 1 && isfinite(value);
  for (int k = 0; k < count; k++)
    if (column->better * (html_number(&runs[k], column) - value) > 1e-4 * fabs(value)) /* a tie */
      best = false;
  fprintf(out, "<td class=\"n\">%s", best ? "<b>" : "");
  if (!isfinite(value))
    fputs("–", out);
  else if (column->kind == FIGURE_COUNT || (column->kind == FIGURE_RATE && value >= 100))
    report_write_count(out, value);
  else if (column->kind == FIGURE_DURATION)
    html_time_write(out, value, runs[i].modeled);
  else if (column->kind == FIGURE_PERCENT)
    fprintf(out, "%.2f %%", 100 * value);
  else
    fprintf(out, "%.4g", value);
  fputs(best ? "</b></td>" : "</td>", out);
}

static void html_table_write(FILE *out, const struct report *report)
{
  const struct report_run *runs = report->run;
  fputs("<div class=\"wide\"><table><thead><tr><th>Run</th><th>Status</th><th>Strategy</th>", out);
  for (int c = 0; c < COLUMNS; c++)
    fprintf(out, "<th class=\"n\" title=\"%s\">%s</th>", columns[c].help, columns[c].head);
  fputs("<th title=\"SHA-256 of the weights, its beginning\">Weights</th></tr></thead><tbody>\n", out);
  for (int i = 0; i < report->count; i++) {
    fputs("<tr><td>", out);
    html_key_write(out, runs[i].group);
    const char *strategy = html_text(runs[i].summary, "strategy"), *model = html_text(runs[i].summary, "model");
    model = model ? model : html_text(runs[i].config, "model");
    markup_print(out, "<b>%s</b><div class=\"model\">%s", runs[i].name, model ? model : "");
    const char *layout = html_text(runs[i].summary, "layout");
    if (layout)
      markup_print(out, "<br>%s", layout);
    const struct trm_node *slowest = trm_node_get(runs[i].summary, "slowest");
    const char *rank = html_text(slowest, "rank"), *host = html_text(slowest, "host"),
               *cost = html_text(slowest, "cost_s");
    if (rank && host && cost)
      markup_print(out, "<br>slowest: rank %s (host %s), which cost %s s", rank, host, cost);
    fputs("</div></td>", out);
    html_cell_text(out, runs[i].outcome);
    html_cell_text(out, strategy ? strategy : html_text(runs[i].config, "strategy.name"));
    for (int c = 0; c < COLUMNS; c++)
      html_cell_number(out, &columns[c], report, i);
    const char *hash = html_text(runs[i].summary, "weights_sha256");
    char brief[11];
    snprintf(brief, sizeof brief, "%s", hash ? hash : "–");
    markup_print(out, "<td><code title=\"%s\">%s</code></td></tr>\n", hash ? hash : "", brief);
  }
  fputs("</tbody></table></div>\n", out);
}

/* -- differences between the configurations */

/* The configuration of a series. */
static const struct trm_node *html_config(const struct report *report, int group)
{
  return report->group[group].run[0]->config;
}

/* Adds rows for the options of the series `owner` that earlier series do not have, and whose values differ. Seeds are
 * no such option where they are the runs of a series. */
static void html_differences_walk(FILE *out, const struct trm_node *node, const char *prefix,
                                  const struct report *report, int owner, bool *open)
{
  const bool seeds = report->groups < report->count;
  for (; node; node = node->next) {
    const char *key = node->key ? node->key : "";
    char *name = *prefix ? trm_format("%s.%s", prefix, key) : trm_strdup(key);
    if (node->kind == TRM_NODE_MAP) {
      html_differences_walk(out, node->first, name, report, owner, open);
    } else if (node->kind == TRM_NODE_SCALAR && strcmp(name, "run.dir") && (!seeds || strcmp(name, "run.seed"))) {
      bool differs = false, earlier = false;
      for (int k = 0; k < report->groups; k++) {
        const struct trm_node *other = trm_node_get(html_config(report, k), name);
        const char *text = other ? other->text : NULL;
        earlier |= k < owner && text;
        differs |= !text || strcmp(text, node->text);
      }
      if (differs && !earlier) {
        if (!*open) {
          fputs("<h2>Settings that differ</h2>\n<div class=\"wide\"><table><thead><tr><th>Option</th>", out);
          for (int k = 0; k < report->groups; k++)
            markup_print(out, "<th>%s</th>", report->group[k].name);
          fputs("</tr></thead><tbody>\n", out);
          *open = true;
        }
        markup_print(out, "<tr><td><code>%s</code></td>", name);
        for (int k = 0; k < report->groups; k++)
          html_cell_text(out, html_text(html_config(report, k), name));
        fputs("</tr>\n", out);
      }
    }
    trm_free(name);
  }
}

static void html_differences_write(FILE *out, const struct report *report)
{
  bool open = false;
  for (int i = 0; i < report->groups; i++)
    if (html_config(report, i) && html_config(report, i)->kind == TRM_NODE_MAP)
      html_differences_walk(out, html_config(report, i)->first, "", report, i, &open);
  if (open)
    fputs("</tbody></table></div>\n", out);
}

/* -- the curves */

static void html_curve_caption(FILE *out, const struct svg_notes *notes)
{
  fputs("<figcaption>", out);
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
  panel.plot.height = svg_labels_height(panel.plot.count, 340);
  if (panel.plot.count > 0) {
    fprintf(out, "<figure><h3>%s</h3>\n", curve->title);
    svg_plot(out, &panel.plot, &notes);
    html_curve_caption(out, &notes);
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
  if (report->groups > 1 || report->count > 1) {
    fputs("<p class=\"soft\">", out);
    for (int g = 0; g < report->groups; g++) {
      fputs(" <span style=\"white-space:nowrap;margin-right:18px\">", out);
      html_key_write(out, g);
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
  fprintf(out, "<p class=\"soft\">%d run%s, trireme %s</p>\n<h2>Runs</h2>\n", report->count,
          report->count == 1 ? "" : "s", PACKAGE_VERSION);
  html_table_write(out, report);
  html_notes_write(out, report);
  report_target_table(out, report);
  html_curves_write(out, report);
  report_staleness(out, report);
  report_trace(out, report);
  if (report->groups > 1)
    html_differences_write(out, report);
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
