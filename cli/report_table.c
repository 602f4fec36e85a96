/* Tables of the page: runs, series, and the settings that differ. */
#include <math.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "cli/svg.h"
#include "cli/sweep.h"
#include "core/memory.h"

/* -- the table of the runs */

void report_write_key(FILE *out, int number)
{
  fputs("<svg class=\"key\" viewBox=\"0 0 26 10\">", out);
  svg_key(out, number, 1, 5, 24);
  fputs("</svg>", out);
}

/* The text of an entry; NULL: it is missing, empty or null. */
static const char *table_text(const struct trm_node *map, const char *key)
{
  const struct trm_node *node = trm_node_get(map, key);
  return node && node->text && *node->text && strcmp(node->text, "null") ? node->text : NULL;
}

static void table_cell_text(FILE *out, const char *text)
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
    fprintf(out, s < 1 ? "%.3g s" : s < 10 ? "%.2f s" : "%.1f s", s);
  else if (whole < 3600)
    fprintf(out, "%lld min %02lld s", whole / 60, whole % 60);
  else
    fprintf(out, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
}

enum figure_kind { FIGURE_COUNT, FIGURE_RATE, FIGURE_LOSS, FIGURE_PERCENT, FIGURE_DURATION };
/* Location of an unfinished run's value in its log. MEASURE: it has none, and the column is shown if a run has it. */
enum logged { NOT_LOGGED, MEASURE, OF_TRAINING, OF_TESTS };
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
  {"test_perplexity", "Perplexity", "test perplexity", FIGURE_LOSS, -1, MEASURE, 0},
  {"test_top5", "Top-5 accuracy", "test rows whose class is among the five likeliest", FIGURE_PERCENT, 1, MEASURE, 0},
  {"test_f1_macro", "F1", "test F1, macro average", FIGURE_LOSS, 1, MEASURE, 0},
  {"test_auc", "AUC", "test area under the ROC curve; of several classes one against the rest, macro average",
   FIGURE_LOSS, 1, MEASURE, 0},
  {"test_ece", "Calibration error", "expected calibration error on the test split", FIGURE_LOSS, -1, MEASURE, 0},
  {"test_mae", "MAE", "test mean absolute error", FIGURE_LOSS, -1, MEASURE, 0},
  {"test_rmse", "RMSE", "test root mean squared error", FIGURE_LOSS, -1, MEASURE, 0},
  {"test_r2", "R²", "test coefficient of determination", FIGURE_LOSS, 1, MEASURE, 0},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* Returns a value of a run's summary, of an unfinished run from its log; NAN: not logged. */
static double table_number(const struct report_run *run, const struct column *column)
{
  const struct report_series *log = column->logged == OF_TRAINING ? &run->train : &run->test;
  const bool is_time = column->kind == FIGURE_DURATION;
  if (run->summary)
    return trm_node_number(trm_node_get(run->summary, is_time && run->modeled ? "virtual_s" : column->key), NAN);
  if (column->logged <= MEASURE || (column->logged == OF_TESTS && run->validates) || log->n == 0)
    return NAN;
  return log->point[log->n - 1].value[column->field];
}

static bool table_shows(const struct report *report, const struct column *column)
{
  bool shown = column->logged != MEASURE;
  for (int i = 0; i < report->count && !shown; i++)
    shown = isfinite(table_number(&report->run[i], column));
  return shown;
}

/* The series have no counts. */
static bool table_shows_of_series(const struct report *report, const struct column *column)
{
  return column->kind != FIGURE_COUNT && table_shows(report, column);
}

static void table_number_write(FILE *out, enum figure_kind kind, double value)
{
  if (!isfinite(value))
    fputs("–", out);
  else if (kind == FIGURE_COUNT || (kind == FIGURE_RATE && value >= 100))
    report_write_count(out, value);
  else if (kind == FIGURE_DURATION)
    report_write_duration(out, value);
  else if (kind == FIGURE_PERCENT)
    fprintf(out, "%.2f %%", 100 * value);
  else
    fprintf(out, "%.4g", value);
}

/* Says of a time that it is virtual. */
static void table_clock_write(FILE *out, const struct column *column, const struct report_run *run)
{
  if (column->kind == FIGURE_DURATION && run->modeled)
    fputs(" <span class=\"soft\">virtual</span>", out);
}

static void table_cell_number(FILE *out, const struct column *column, const struct report *report, int i)
{
  const struct report_run *runs = report->run;
  const int count = report->count;
  const double value = table_number(&runs[i], column);
  bool best = column->better && count > 1 && isfinite(value);
  for (int k = 0; k < count; k++)
    if (column->better * (table_number(&runs[k], column) - value) > 1e-4 * fabs(value)) /* a tie */
      best = false;
  fprintf(out, "<td class=\"n\">%s", best ? "<b>" : "");
  table_number_write(out, column->kind, value);
  fputs(best ? "</b>" : "", out);
  table_clock_write(out, column, &runs[i]);
  fputs("</td>", out);
}

void report_runs_table(FILE *out, const struct report *report)
{
  const struct report_run *runs = report->run;
  const bool folded = report->groups < report->count; /* under the table of the series */
  if (folded)
    fprintf(out, "<details><summary>%d runs</summary>\n", report->count);
  else
    fputs("<h2>Runs</h2>\n", out);
  fputs("<div class=\"wide\"><table><thead><tr><th>Run</th><th>Status</th><th>Strategy</th>", out);
  for (int c = 0; c < COLUMNS; c++)
    if (table_shows(report, &columns[c]))
      fprintf(out, "<th class=\"n\" title=\"%s\">%s</th>", columns[c].help, columns[c].head);
  fputs("<th title=\"SHA-256 of the weights, its beginning\">Weights</th></tr></thead><tbody>\n", out);
  for (int i = 0; i < report->count; i++) {
    fputs("<tr><td>", out);
    report_write_key(out, runs[i].group);
    const char *strategy = table_text(runs[i].summary, "strategy"), *model = table_text(runs[i].summary, "model");
    model = model ? model : table_text(runs[i].config, "model");
    markup_print(out, "<b>%s</b><div class=\"model\">%s", runs[i].name, model ? model : "");
    const char *layout = table_text(runs[i].summary, "layout");
    if (layout)
      markup_print(out, "<br>%s", layout);
    const struct trm_node *slowest = trm_node_get(runs[i].summary, "slowest");
    const char *rank = table_text(slowest, "rank"), *host = table_text(slowest, "host");
    const double cost = trm_node_number(trm_node_get(slowest, "cost_s"), NAN);
    if (rank && host && isfinite(cost)) {
      markup_print(out, "<br>slowest: rank %s (host %s), which cost ", rank, host);
      report_write_duration(out, cost);
    }
    fputs("</div></td>", out);
    table_cell_text(out, runs[i].outcome);
    table_cell_text(out, strategy ? strategy : table_text(runs[i].config, "strategy.name"));
    for (int c = 0; c < COLUMNS; c++)
      if (table_shows(report, &columns[c]))
        table_cell_number(out, &columns[c], report, i);
    const char *hash = table_text(runs[i].summary, "weights_sha256");
    char brief[11];
    snprintf(brief, sizeof brief, "%s", hash ? hash : "–");
    markup_print(out, "<td><code title=\"%s\">%s</code></td></tr>\n", hash ? hash : "", brief);
  }
  fputs(folded ? "</tbody></table></div></details>\n" : "</tbody></table></div>\n", out);
}

/* -- the table of the series */

/* "75.33 % (1.20 %)": the mean over the runs of a series that have the figure, and its standard deviation. */
static void table_cell_sample(FILE *out, const struct column *column, const struct report_group *group, double *value)
{
  int n = 0;
  for (int i = 0; i < group->used; i++) {
    value[n] = table_number(group->run[i], column);
    n += isfinite(value[n]);
  }
  const struct sweep_sample sample = sweep_sample_of(value, n);
  fputs("<td class=\"n\">", out);
  table_number_write(out, column->kind, sample.mean);
  if (n > 1) {
    fputs(" <span class=\"soft\">(", out);
    if (column->kind == FIGURE_LOSS)
      fprintf(out, "%.2g", sample.deviation);
    else
      table_number_write(out, column->kind, sample.deviation);
    fputs(")</span>", out);
  }
  if (n > 0)
    table_clock_write(out, column, group->run[0]);
  fputs("</td>", out);
}

/* "3 of 5: 1 failed, 1 diverged" */
static void table_outcomes_write(FILE *out, const struct report_group *group)
{
  fprintf(out, "<td>%d of %d", group->used, group->count);
  for (int i = group->used; i < group->count; i++) {
    int same = 1;
    bool earlier = false;
    for (int k = group->used; k < group->count; k++) {
      const bool equal = strcmp(group->run[k]->outcome, group->run[i]->outcome) == 0;
      earlier |= equal && k < i;
      same += equal && k > i;
    }
    if (!earlier) {
      fprintf(out, "%s%d ", i == group->used ? ": " : ", ", same);
      markup_print(out, "%s", group->run[i]->outcome);
    }
  }
  fputs("</td>", out);
}

void report_series_table(FILE *out, const struct report *report)
{
  if (report->groups == report->count)
    return;
  double *value = trm_alloc((size_t)report->count * sizeof *value, "report: figures of a series");
  fputs("<h2>Series</h2>\n<p class=\"soft\">Means, and standard deviations over the seeds.</p>\n"
        "<div class=\"wide\"><table><thead><tr><th>Series</th><th>Runs</th>", out);
  for (int c = 0; c < COLUMNS; c++)
    if (table_shows_of_series(report, &columns[c]))
      fprintf(out, "<th class=\"n\" title=\"%s\">%s</th>", columns[c].help, columns[c].head);
  fputs("</tr></thead><tbody>\n", out);
  for (int g = 0; g < report->groups; g++) {
    const struct report_group *group = &report->group[g];
    fputs("<tr><td>", out);
    report_write_key(out, g);
    markup_print(out, "<b>%s</b></td>", group->name);
    table_outcomes_write(out, group);
    for (int c = 0; c < COLUMNS; c++)
      if (table_shows_of_series(report, &columns[c]))
        table_cell_sample(out, &columns[c], group, value);
    fputs("</tr>\n", out);
  }
  fputs("</tbody></table></div>\n", out);
  trm_free(value);
}

/* -- differences between the configurations */

/* The configuration of a series. */
static const struct trm_node *table_config(const struct report *report, int group)
{
  return report->group[group].run[0]->config;
}

/* Adds rows for the options of the series `owner` that earlier series do not have, and whose values differ. Seeds are
 * no such option where they are the runs of a series. */
static void table_differences_walk(FILE *out, const struct trm_node *node, const char *prefix,
                                  const struct report *report, int owner, bool *open)
{
  const bool seeds = report->groups < report->count;
  for (; node; node = node->next) {
    const char *key = node->key ? node->key : "";
    char *name = *prefix ? trm_format("%s.%s", prefix, key) : trm_strdup(key);
    if (node->kind == TRM_NODE_MAP) {
      table_differences_walk(out, node->first, name, report, owner, open);
    } else if (node->kind == TRM_NODE_SCALAR && !report_is_no_setting(name) && (!seeds || strcmp(name, "run.seed"))) {
      bool differs = false, earlier = false;
      for (int k = 0; k < report->groups; k++) {
        const struct trm_node *other = trm_node_get(table_config(report, k), name);
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
          table_cell_text(out, table_text(table_config(report, k), name));
        fputs("</tr>\n", out);
      }
    }
    trm_free(name);
  }
}

void report_differences_table(FILE *out, const struct report *report)
{
  bool open = false;
  for (int i = 0; i < report->groups && report->groups > 1; i++)
    if (table_config(report, i) && table_config(report, i)->kind == TRM_NODE_MAP)
      table_differences_walk(out, table_config(report, i)->first, "", report, i, &open);
  if (open)
    fputs("</tbody></table></div>\n", out);
}
