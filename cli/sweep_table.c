/* Results: every run as CSV, the cells as CSV and as a table in Markdown. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep.h"
#include "core/atomic_file.h"
#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

/* -- a cell's figures */

struct cell {
  int outcomes[SWEEP_OUTCOMES]; /* runs */
  struct sweep_sample validation, test;
  struct sweep_sample figure[SWEEP_MAX_FIGURES]; /* of the runs that have it */
  bool compared;                /* with the baseline */
  struct sweep_sample difference;
  double p;
};

struct table {
  const struct sweep *sweep;
  int seeds;
  bool accuracy, test_accuracy; /* scores are accuracies, not losses: on the validation and on the test split */
  struct cell *cell;            /* (cells) */
};

/* Returns the run of a cell and seed, NULL: there is none. */
static const struct sweep_run *table_run(const struct sweep *sweep, int cell, int seed)
{
  for (int i = 0; i < sweep->final.count; i++)
    if (sweep->final.run[i].cell == cell && sweep->final.run[i].seed == seed)
      return &sweep->final.run[i];
  return NULL;
}

/* Returns the score of a run on the test or validation split. NAN: none. */
static double table_score(const struct table *table, const struct sweep_run *run, bool test)
{
  if (!run || run->outcome != SWEEP_DONE)
    return NAN;
  if (test)
    return table->test_accuracy ? run->test.accuracy : run->test.loss;
  return table->accuracy ? run->validation.accuracy : run->validation.loss;
}

static struct sweep_sample table_sample(const struct table *table, int cell, bool test, double *value)
{
  int n = 0;
  for (int seed = 0; seed < table->seeds; seed++) {
    const double score = table_score(table, table_run(table->sweep, cell, seed), test);
    if (isfinite(score))
      value[n++] = score;
  }
  return sweep_sample_of(value, n);
}

static struct sweep_sample table_figure(const struct table *table, int cell, int figure, double *value)
{
  int n = 0;
  for (int seed = 0; seed < table->seeds; seed++) {
    const struct sweep_run *run = table_run(table->sweep, cell, seed);
    if (run && run->outcome == SWEEP_DONE && isfinite(run->figure[figure]))
      value[n++] = run->figure[figure];
  }
  return sweep_sample_of(value, n);
}

/* Differences of the seeds that both cells have. */
static void table_compare(const struct table *table, int cell, int baseline, double *value)
{
  int n = 0;
  for (int seed = 0; seed < table->seeds; seed++) {
    const double own = table_score(table, table_run(table->sweep, cell, seed), true);
    const double base = table_score(table, table_run(table->sweep, baseline, seed), true);
    if (isfinite(own) && isfinite(base))
      value[n++] = own - base;
  }
  struct cell *c = &table->cell[cell];
  c->compared = cell != baseline && n > 0;
  c->difference = sweep_sample_of(value, n);
  c->p = sweep_paired_test(&c->difference);
}

/* -- the baseline */

/* Reads KEY=VALUE[,KEY=VALUE] into value, by axis. */
static int table_read_baseline(const struct sweep *sweep, const char *text, char *value[SWEEP_MAX_AXES])
{
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, ","), key = strcspn(at, "=,");
    bool known = false;
    for (int i = 0; i < sweep->axes; i++) {
      const struct sweep_axis *axis = &sweep->axis[i];
      if (axis->role != SWEEP_CELL || strlen(axis->row->name) != key || memcmp(axis->row->name, at, key) != 0)
        continue;
      for (int k = 0; k < axis->count; k++)
        if (key < length && strlen(axis->value[k]) == length - key - 1 &&
            memcmp(axis->value[k], at + key + 1, length - key - 1) == 0) {
          trm_free(value[i]);
          value[i] = trm_strdup(axis->value[k]);
          known = true;
        }
    }
    if (!known)
      return trm_error(TRM_USAGE, "sweep: --baseline=%s: %.*s is no value of an option with a list that makes rows",
                       text, (int)length, at);
    at += length + (at[length] == ',');
  }
  return TRM_OK;
}

int sweep_check_baseline(const struct sweep *sweep, const char *baseline)
{
  char *value[SWEEP_MAX_AXES] = {NULL};
  const int status = baseline ? table_read_baseline(sweep, baseline, value) : TRM_OK;
  for (int i = 0; i < sweep->axes; i++)
    trm_free(value[i]);
  return status;
}

/* Returns the cell with the baseline's values, and those of this cell where it names none. */
static int table_baseline_of(const struct sweep *sweep, int cell, char *const baseline[SWEEP_MAX_AXES])
{
  const char *own[SWEEP_MAX_AXES], *other[SWEEP_MAX_AXES];
  sweep_cell_values(sweep, cell, own);
  for (int candidate = 0; candidate < sweep->cells; candidate++) {
    bool same = true;
    sweep_cell_values(sweep, candidate, other);
    for (int i = 0; i < sweep->axes; i++)
      same &= !own[i] || strcmp(other[i], baseline[i] ? baseline[i] : own[i]) == 0;
    if (same)
      return candidate;
  }
  return cell;
}

static int table_fill(struct table *table, const char *baseline)
{
  const struct sweep *sweep = table->sweep;
  char *base[SWEEP_MAX_AXES] = {NULL};
  double *value = trm_alloc(((size_t)table->seeds + 1) * sizeof *value, "sweep: scores");
  const int status = baseline ? table_read_baseline(sweep, baseline, base) : TRM_OK;
  for (int cell = 0; cell < sweep->cells && status == TRM_OK; cell++) {
    for (int seed = 0; seed < table->seeds; seed++) {
      const struct sweep_run *run = table_run(sweep, cell, seed);
      table->cell[cell].outcomes[run ? run->outcome : SWEEP_NOT_RUN]++;
    }
    table->cell[cell].validation = table_sample(table, cell, false, value);
    table->cell[cell].test = table_sample(table, cell, true, value);
    for (int i = 0; i < sweep->figures; i++)
      table->cell[cell].figure[i] = table_figure(table, cell, i, value);
    if (baseline)
      table_compare(table, cell, table_baseline_of(sweep, cell, base), value);
  }
  for (int i = 0; i < sweep->axes; i++)
    trm_free(base[i]);
  trm_free(value);
  return status;
}

/* -- CSV */

static void table_csv_text(FILE *out, const char *text)
{
  if (!strpbrk(text, ",\"\n")) {
    fputs(text, out);
    return;
  }
  fputc('"', out);
  for (; *text; text++)
    fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
  fputc('"', out);
}

static void table_csv_number(FILE *out, double value)
{
  char number[32];
  fprintf(out, ",%s", isfinite(value) ? trm_number_text(value, number) : "");
}

static void table_csv_runs(FILE *out, const struct sweep *sweep, const struct sweep_runs *runs, const char *phase)
{
  for (int r = 0; r < runs->count; r++) {
    const struct sweep_run *run = &runs->run[r];
    const bool done = run->outcome == SWEEP_DONE;
    fputs(phase, out);
    if (runs == &sweep->tune && sweep->halving.rungs > 1)
      fprintf(out, " %d", run->rung + 1);
    for (int i = 0; i < sweep->axes; i++) {
      fputc(',', out);
      table_csv_text(out, run->value[i]);
    }
    fprintf(out, ",%s,", sweep_outcome_name[run->outcome]);
    table_csv_text(out, run->name);
    table_csv_number(out, done ? run->validation.accuracy : NAN);
    table_csv_number(out, done ? run->validation.loss : NAN);
    table_csv_number(out, done && runs == &sweep->final ? run->test.accuracy : NAN);
    table_csv_number(out, done && runs == &sweep->final ? run->test.loss : NAN);
    for (int i = 0; i < sweep->figures; i++)
      table_csv_number(out, done ? run->figure[i] : NAN);
    fputc('\n', out);
  }
}

static void table_write_runs(FILE *out, const struct table *table)
{
  const struct sweep *sweep = table->sweep;
  fputs("phase", out);
  for (int i = 0; i < sweep->axes; i++)
    fprintf(out, ",%s", sweep->axis[i].row->name);
  fputs(",status,run,validation_accuracy,validation_loss,test_accuracy,test_loss", out);
  for (int i = 0; i < sweep->figures; i++)
    fprintf(out, ",%s", sweep->figure[i]);
  fputc('\n', out);
  table_csv_runs(out, sweep, &sweep->tune, "tune");
  table_csv_runs(out, sweep, &sweep->final, "final");
}

/* Returns the value of a cell's axis; "": no setting was chosen. */
static const char *table_value(const struct sweep *sweep, int cell, int axis)
{
  const char *value[SWEEP_MAX_AXES];
  if (sweep->axis[axis].role == SWEEP_TUNED)
    return sweep->chosen[cell] < 0 ? "" : sweep->setting[(size_t)sweep->chosen[cell] * (size_t)sweep->axes +
                                                         (size_t)axis];
  sweep_cell_values(sweep, cell, value);
  return value[axis];
}

static bool table_at_edge(const struct sweep *sweep, int cell, int axis)
{
  const struct sweep_axis values = sweep_values_of(sweep, cell, axis);
  return values.role == SWEEP_TUNED && sweep->chosen[cell] >= 0 &&
         sweep_at_edge(&values, table_value(sweep, cell, axis));
}

static void table_write_cells(FILE *out, const struct table *table)
{
  const struct sweep *sweep = table->sweep;
  for (int i = 0; i < sweep->axes - 1; i++)
    fprintf(out, "%s,", sweep->axis[i].row->name);
  fputs("edge,runs", out);
  for (int k = SWEEP_DONE; k < SWEEP_OUTCOMES; k++)
    fprintf(out, ",%s", sweep_outcome_name[k]);
  fprintf(out, ",validation_%s,validation_deviation", table->accuracy ? "accuracy" : "loss");
  fprintf(out, ",test_%s,test_deviation,difference,pairs,p", table->test_accuracy ? "accuracy" : "loss");
  for (int i = 0; i < sweep->figures; i++)
    fprintf(out, ",%s", sweep->figure[i]);
  fputc('\n', out);
  for (int cell = 0; cell < sweep->cells; cell++) {
    const struct cell *c = &table->cell[cell];
    bool edge = false;
    for (int i = 0; i < sweep->axes - 1; i++) {
      table_csv_text(out, table_value(sweep, cell, i));
      fputc(',', out);
      edge |= table_at_edge(sweep, cell, i);
    }
    fprintf(out, "%s,%d", edge ? "yes" : "no", table->seeds);
    for (int k = SWEEP_DONE; k < SWEEP_OUTCOMES; k++)
      fprintf(out, ",%d", c->outcomes[k]);
    table_csv_number(out, c->validation.mean);
    table_csv_number(out, c->validation.deviation);
    table_csv_number(out, c->test.mean);
    table_csv_number(out, c->test.deviation);
    table_csv_number(out, c->compared ? c->difference.mean : NAN);
    table_csv_number(out, c->compared ? c->difference.n : NAN);
    table_csv_number(out, c->compared ? c->p : NAN);
    for (int i = 0; i < sweep->figures; i++)
      table_csv_number(out, c->figure[i].mean);
    fputc('\n', out);
  }
}

/* -- Markdown */

/* "91.20 (0.31)": percent of an accuracy, four digits of a loss. */
static void table_print_sample(FILE *out, const struct sweep_sample *sample, bool accuracy)
{
  if (sample->n == 0)
    fputs(" | -", out);
  else
    fprintf(out, accuracy ? " | %.2f" : " | %.4g", accuracy ? 100 * sample->mean : sample->mean);
  if (!isnan(sample->deviation))
    fprintf(out, accuracy ? " (%.2f)" : " (%.2g)", accuracy ? 100 * sample->deviation : sample->deviation);
}

/* "12.3", or "12.3 (2 of 3)" where not every run has the figure. */
static void table_print_figure(FILE *out, const struct sweep_sample *sample, int done)
{
  if (sample->n == 0)
    fputs(" | -", out);
  else
    fprintf(out, fabs(sample->mean) >= 1e4 ? " | %.0f" : " | %.4g", sample->mean);
  if (sample->n > 0 && sample->n < done)
    fprintf(out, " (%d of %d)", sample->n, done);
}

static void table_print_outcomes(FILE *out, const struct table *table, const struct cell *c)
{
  fprintf(out, " | %d of %d", c->outcomes[SWEEP_DONE], table->seeds);
  for (int k = 0; k < SWEEP_OUTCOMES; k++)
    if (k != SWEEP_DONE && c->outcomes[k] > 0)
      fprintf(out, ", %d %s", c->outcomes[k], sweep_outcome_name[k]);
}

static void table_print_row(FILE *out, const struct table *table, int cell, bool compares)
{
  const struct cell *c = &table->cell[cell];
  fputs("|", out);
  for (int i = 0; i < table->sweep->axes - 1; i++) {
    const char *value = table_value(table->sweep, cell, i);
    fprintf(out, "%s ", i ? " |" : "");
    for (const char *at = *value ? value : "-"; *at; at++)
      fprintf(out, *at == '|' ? "\\|" : "%c", *at);
    if (table_at_edge(table->sweep, cell, i))
      fputs(" (edge)", out);
  }
  if (table->sweep->axes == 1)
    fputs(" -", out);
  table_print_outcomes(out, table, c);
  table_print_sample(out, &c->validation, table->accuracy);
  table_print_sample(out, &c->test, table->test_accuracy);
  for (int i = 0; i < table->sweep->figures; i++)
    table_print_figure(out, &c->figure[i], c->outcomes[SWEEP_DONE]);
  if (compares && c->compared) {
    fprintf(out, table->test_accuracy ? " | %+.2f" : " | %+.3g",
            table->test_accuracy ? 100 * c->difference.mean : c->difference.mean);
    fprintf(out, isnan(c->p) ? " | -" : " | %.2g", c->p);
  } else if (compares) {
    fputs(" | - | -", out);
  }
  fputs(" |\n", out);
}

static void table_print(FILE *out, const struct table *table, const char *baseline)
{
  const struct sweep *sweep = table->sweep;
  const char *const unit[] = {"loss", "accuracy, %"};
  fputs("|", out);
  for (int i = 0; i < sweep->axes - 1; i++)
    fprintf(out, "%s %s", i ? " |" : "", sweep->axis[i].row->name);
  fprintf(out, "%s | runs done | validation %s: mean (standard deviation) | test %s: mean (standard deviation)",
          sweep->axes == 1 ? " all" : "", unit[table->accuracy], unit[table->test_accuracy]);
  for (int i = 0; i < sweep->figures; i++)
    fprintf(out, " | %s", sweep->figure[i]);
  if (baseline)
    fprintf(out, " | difference from %s | p", baseline);
  fputs(" |\n|", out);
  for (int i = 0; i < (sweep->axes == 1 ? 1 : sweep->axes - 1) + 3 + sweep->figures + (baseline ? 2 : 0); i++)
    fputs("---|", out);
  fputs("\n", out);
  for (int cell = 0; cell < sweep->cells; cell++)
    table_print_row(out, table, cell, baseline != NULL);
}

/* -- warnings */

static void table_warn_axis(const struct sweep *sweep, int cell, int axis)
{
  const char *value[SWEEP_MAX_AXES];
  char *of = NULL;
  sweep_cell_values(sweep, cell, value);
  for (int i = 0; i < sweep->axes && sweep->axis[axis].role == SWEEP_TUNED; i++)
    if (value[i])
      trm_append(&of, "%s%s=%s", of ? ", " : " for ", sweep->axis[i].row->name, value[i]);
  trm_warn("sweep: %s=%s, the best one%s, is at the edge of its grid: add values beyond it",
           sweep->axis[axis].row->name, table_value(sweep, cell, axis), of ? of : "");
  trm_free(of);
}

/* Tuned values are warned of for each cell; where none is tuned, the best cell's are. */
static void table_warn(const struct table *table)
{
  const struct sweep *sweep = table->sweep;
  const int best = sweep->tune.count > 0 ? -1 : sweep_best_cell(sweep);
  int bad[SWEEP_OUTCOMES] = {0}, tuned = 0;
  for (int cell = 0; cell < sweep->cells; cell++) {
    for (int i = 0; i < sweep->axes - 1; i++)
      if (table_at_edge(sweep, cell, i) ||
          (cell == best && sweep_at_edge(&sweep->axis[i], table_value(sweep, cell, i))))
        table_warn_axis(sweep, cell, i);
    for (int k = 0; k < SWEEP_OUTCOMES; k++)
      bad[k] += table->cell[cell].outcomes[k];
  }
  for (int i = 0; i < sweep->tune.count; i++)
    tuned += sweep->tune.run[i].outcome != SWEEP_DONE;
  if (tuned > 0)
    trm_warn("sweep: %d of the %d runs that tune are not done: runs.csv", tuned, sweep->tune.count);
  for (int k = 0; k < SWEEP_OUTCOMES; k++)
    if (k != SWEEP_DONE && bad[k] > 0)
      trm_warn("sweep: %d of %d runs: %s; means are of the others", bad[k], sweep->cells * table->seeds,
               sweep_outcome_name[k]);
}

/* -- files */

static int table_write(const struct table *table, const char *name, const char *baseline,
                       void (*csv)(FILE *out, const struct table *table))
{
  char *path = trm_format("%s/%s", table->sweep->dir, name);
  struct atomic_file file;
  int status = atomic_file_open(&file, path);
  if (status == TRM_OK) {
    if (csv)
      csv(file.stream, table);
    else
      table_print(file.stream, table, baseline);
    status = atomic_file_close(&file, !ferror(file.stream));
  }
  trm_free(path);
  return status;
}

int sweep_write_results(const struct sweep *sweep, const char *baseline)
{
  struct table table = {.sweep = sweep, .seeds = sweep->axis[sweep->axes - 1].count};
  table.accuracy = sweep_has_accuracy(&sweep->final, false);
  table.test_accuracy = sweep_has_accuracy(&sweep->final, true);
  table.cell = trm_alloc((size_t)sweep->cells * sizeof *table.cell, "sweep: cells");
  int status = table_fill(&table, baseline);
  if (status == TRM_OK)
    status = table_write(&table, "runs.csv", NULL, table_write_runs);
  if (status == TRM_OK)
    status = table_write(&table, "results.csv", NULL, table_write_cells);
  if (status == TRM_OK)
    status = table_write(&table, "table.md", baseline, NULL);
  if (status == TRM_OK) {
    table_print(stdout, &table, baseline);
    fflush(stdout);
    table_warn(&table);
  }
  trm_free(table.cell);
  return status;
}
