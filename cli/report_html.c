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
  ".s5{color:#a3d8fa}.s6{color:#bbb}}\n"
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
static void html_number_grouped(FILE *out, double value)
{
  char digits[40];
  const int n = snprintf(digits, sizeof digits, "%.0f", value);
  for (int i = 0; i < n; i++) {
    fputc(digits[i], out);
    if (i + 1 < n && (n - 1 - i) % 3 == 0 && digits[i] != '-')
      fputc(',', out);
  }
}

static void html_duration_write(FILE *out, double s)
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
  {"wall_s", "Time", "wall time of training", FIGURE_DURATION, 0, OF_TRAINING, REPORT_WALL},
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
  if (run->summary)
    return trm_node_number(trm_node_get(run->summary, column->key), NAN);
  if (column->logged == NOT_LOGGED || (column->logged == OF_TESTS && run->validates) || log->n == 0)
    return NAN;
  return log->point[log->n - 1].value[column->field];
}

static void html_cell_number(FILE *out, const struct column *column, const struct report_run *runs, int count, int i)
{
  const double value = html_number(&runs[i], column);
  bool best = column->better && count > 1 && isfinite(value);
  for (int k = 0; k < count; k++)
    if (column->better * (html_number(&runs[k], column) - value) > 1e-4 * fabs(value)) /* a tie */
      best = false;
  fprintf(out, "<td class=\"n\">%s", best ? "<b>" : "");
  if (!isfinite(value))
    fputs("–", out);
  else if (column->kind == FIGURE_COUNT || (column->kind == FIGURE_RATE && value >= 100))
    html_number_grouped(out, value);
  else if (column->kind == FIGURE_DURATION)
    html_duration_write(out, value);
  else if (column->kind == FIGURE_PERCENT)
    fprintf(out, "%.2f %%", 100 * value);
  else
    fprintf(out, "%.4g", value);
  fputs(best ? "</b></td>" : "</td>", out);
}

static void html_table_write(FILE *out, const struct report_run *runs, int count)
{
  fputs("<div class=\"wide\"><table><thead><tr><th>Run</th><th>Status</th><th>Strategy</th>", out);
  for (int c = 0; c < COLUMNS; c++)
    fprintf(out, "<th class=\"n\" title=\"%s\">%s</th>", columns[c].help, columns[c].head);
  fputs("<th title=\"SHA-256 of the weights, its beginning\">Weights</th></tr></thead><tbody>\n", out);
  for (int i = 0; i < count; i++) {
    fputs("<tr><td>", out);
    html_key_write(out, i);
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
    html_cell_text(out, runs[i].summary ? html_text(runs[i].summary, "status") : "not ended");
    html_cell_text(out, strategy ? strategy : html_text(runs[i].config, "strategy.name"));
    for (int c = 0; c < COLUMNS; c++)
      html_cell_number(out, &columns[c], runs, count, i);
    const char *hash = html_text(runs[i].summary, "weights_sha256");
    char brief[11];
    snprintf(brief, sizeof brief, "%s", hash ? hash : "–");
    markup_print(out, "<td><code title=\"%s\">%s</code></td></tr>\n", hash ? hash : "", brief);
  }
  fputs("</tbody></table></div>\n", out);
}

/* -- differences between the configurations */

static void html_differences_walk(FILE *out, const struct trm_node *node, const char *prefix,
                                  const struct report_run *runs, int count, int owner, bool *open)
{
  for (; node; node = node->next) {
    const char *key = node->key ? node->key : "";
    char *name = *prefix ? trm_format("%s.%s", prefix, key) : trm_strdup(key);
    if (node->kind == TRM_NODE_MAP) {
      html_differences_walk(out, node->first, name, runs, count, owner, open);
    } else if (node->kind == TRM_NODE_SCALAR && strcmp(name, "run.dir")) {
      bool differs = false, earlier = false;
      for (int k = 0; k < count; k++) {
        const struct trm_node *other = trm_node_get(runs[k].config, name);
        const char *text = other ? other->text : NULL;
        earlier |= k < owner && text;
        differs |= !text || strcmp(text, node->text);
      }
      if (differs && !earlier) {
        if (!*open) {
          fputs("<h2>Settings that differ</h2>\n<div class=\"wide\"><table><thead><tr><th>Option</th>", out);
          for (int k = 0; k < count; k++)
            markup_print(out, "<th>%s</th>", runs[k].name);
          fputs("</tr></thead><tbody>\n", out);
          *open = true;
        }
        markup_print(out, "<tr><td><code>%s</code></td>", name);
        for (int k = 0; k < count; k++)
          html_cell_text(out, html_text(runs[k].config, name));
        fputs("</tr>\n", out);
      }
    }
    trm_free(name);
  }
}

static void html_differences_write(FILE *out, const struct report_run *runs, int count)
{
  bool open = false;
  for (int i = 0; i < count; i++)
    if (runs[i].config->kind == TRM_NODE_MAP)
      html_differences_walk(out, runs[i].config->first, "", runs, count, i, &open);
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
  if (notes->coincide)
    fputs("Where lines coincide, the one below is drawn wider. ", out);
  if (notes->broken)
    fputs("Where a line breaks off, or ends in a cross, the value was not finite.", out);
  fputs("</figcaption>", out);
}

static void html_curve_write(FILE *out, const struct report_curve *curve, const struct report_run *runs, int count)
{
  const struct svg_plot plot = {.width = 640, .height = 340, .title = curve->title, .labels = true};
  struct svg_notes notes;
  if (report_curve_draw(NULL, curve, NULL, runs, count, plot, &notes) == 0)
    return;
  fprintf(out, "<figure><h3>%s</h3>\n", curve->title);
  report_curve_draw(out, curve, NULL, runs, count, plot, &notes);
  html_curve_caption(out, &notes);
  fputs("</figure>\n", out);
}

/* Returns true if epochs differ between evaluations: curves are then plotted over epochs. */
static bool html_epochs_rise(const struct report_run *runs, int count)
{
  for (int i = 0; i < count; i++)
    for (size_t k = 1; k < runs[i].test.n; k++)
      if (runs[i].test.point[k].value[REPORT_EPOCH] <= runs[i].test.point[k - 1].value[REPORT_EPOCH])
        return false;
  return true;
}

static void html_curves_write(FILE *out, const struct report_run *runs, int count)
{
  const bool epochs = html_epochs_rise(runs, count);
  const enum report_field progress = epochs ? REPORT_EPOCH : REPORT_SAMPLES;
  const char *name = epochs ? "epochs" : "samples";
  const enum svg_unit unit = epochs ? SVG_PLAIN : SVG_COUNT;
  char title[4][64];
  for (int i = 0; i < 4; i++)
    snprintf(title[i], sizeof title[i], "%s %s over %s", report_evaluated_split(runs, count),
             i < 2 ? "loss" : "accuracy", i % 2 ? "time" : name);
  const struct report_curve curves[] = {
    {"Training loss over samples", "samples", false, REPORT_SAMPLES, REPORT_LOSS, SVG_COUNT, SVG_PLAIN, true, true},
    {"Training loss over time", "wall time", false, REPORT_WALL, REPORT_LOSS, SVG_SECONDS, SVG_PLAIN, true, true},
    {title[0], name, true, progress, REPORT_LOSS, unit, SVG_PLAIN, true, false},
    {title[1], "wall time", true, REPORT_WALL, REPORT_LOSS, SVG_SECONDS, SVG_PLAIN, true, false},
    {title[2], name, true, progress, REPORT_ACCURACY, unit, SVG_PERCENT, false, false},
    {title[3], "wall time", true, REPORT_WALL, REPORT_ACCURACY, SVG_SECONDS, SVG_PERCENT, false, false},
    {"Learning rate over samples", "samples", false, REPORT_SAMPLES, REPORT_RATE, SVG_COUNT, SVG_PLAIN, true, false},
  };
  fputs("<h2>Curves</h2>\n", out);
  if (count > 1) {
    fputs("<p class=\"soft\">", out);
    for (int i = 0; i < count; i++) {
      fputs(" <span style=\"white-space:nowrap;margin-right:18px\">", out);
      html_key_write(out, i);
      markup_print(out, "%s</span>", runs[i].name);
    }
    fputs("</p>\n", out);
  }
  fputs("<div class=\"plots\">\n", out);
  for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
    html_curve_write(out, &curves[i], runs, count);
  fputs("</div>\n", out);
}

/* -- the page */

static void html_notes_write(FILE *out, const struct report_run *runs, int count)
{
  for (int i = 0; i < count; i++) {
    if (runs[i].superseded) {
      markup_print(out, "<p class=\"soft\">%s", runs[i].name);
      fprintf(out, " was resumed: %zu logged lines were computed again, and the later ones are shown.</p>\n",
              runs[i].superseded);
    }
    if (!runs[i].test.n)
      markup_print(out, "<p class=\"soft\">%s has no evaluations.</p>\n", runs[i].name);
  }
}

static void html_page_write(FILE *out, const char *title, const struct report_run *runs, int count)
{
  markup_print(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>%s</title>\n",
               title);
  fprintf(out, "<style>\n%s%s</style></head><body>\n", svg_style, style);
  markup_print(out, "<h1>%s</h1>\n", title);
  fprintf(out, "<p class=\"soft\">%d run%s, trireme %s</p>\n<h2>Runs</h2>\n", count, count == 1 ? "" : "s",
          PACKAGE_VERSION);
  html_table_write(out, runs, count);
  html_notes_write(out, runs, count);
  html_curves_write(out, runs, count);
  report_staleness(out, runs, count);
  report_trace(out, runs, count);
  if (count > 1)
    html_differences_write(out, runs, count);
  fputs("<h2>Configurations</h2>\n", out);
  for (int i = 0; i < count; i++)
    markup_print(out,
                 "<details><summary>%s <span class=\"soft\">%s/config.yaml</span></summary><pre>%s</pre></details>\n",
                 runs[i].name, runs[i].path, runs[i].config_text);
  fputs("</body></html>\n", out);
}

int report_html(const char *out, const char *title, const struct report_run *runs, int count)
{
  struct atomic_file file;
  TRM_CHECK(atomic_file_open(&file, out));
  html_page_write(file.stream, title, runs, count);
  return atomic_file_close(&file, !ferror(file.stream));
}
