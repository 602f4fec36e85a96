/* Lists of values, and the runs that their combinations make. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/status.h"

enum { MAX_VALUES = 10000 };

/* -- values */

static bool sweep_is_number(const struct trm_option *row)
{
  return row->type == TRM_OPTION_INT || row->type == TRM_OPTION_REAL;
}

bool sweep_axis_has(const struct sweep_axis *axis, const char *value)
{
  for (int i = 0; i < axis->count; i++)
    if (strcmp(axis->value[i], value) == 0)
      return true;
  return false;
}

int sweep_axis_add(struct sweep_axis *axis, const char *value)
{
  if (axis->count == MAX_VALUES)
    return trm_error(TRM_USAGE, "option %s: more than %d values", axis->row->name, MAX_VALUES);
  axis->value = trm_grow(axis->value, &axis->capacity, (size_t)axis->count, (size_t)axis->count + 1,
                         sizeof *axis->value, "sweep: values");
  axis->value[axis->count++] = trm_strdup(value);
  return TRM_OK;
}

static int sweep_add_value(struct sweep_axis *axis, const char *text)
{
  struct trm_options checked;
  char number[32];
  trm_options_default(&checked);
  const int status = trm_options_set(&checked, axis->row->name, text);
  trm_options_free(&checked);
  TRM_CHECK(status);
  if (axis->row->type == TRM_OPTION_INT)
    snprintf(number, sizeof number, "%lld", strtoll(text, NULL, 10));
  if (axis->row->type == TRM_OPTION_REAL)
    trm_number_text(strtod(text, NULL), number);
  text = sweep_is_number(axis->row) ? number : text;
  if (sweep_axis_has(axis, text))
    return trm_error(TRM_USAGE, "option %s: the value %.80s is given twice", axis->row->name, text);
  return sweep_axis_add(axis, text);
}

/* LOW..HIGH: whole numbers, or a range to draw from. */
static int sweep_add_range(struct sweep_axis *axis, const char *text, const char *dots, bool random)
{
  char *low = trm_format("%.*s", (int)(dots - text), text), *low_end, *high_end;
  const char *high = dots + 2, *name = axis->row->name;
  axis->low = strtod(low, &low_end);
  axis->high = strtod(high, &high_end);
  const bool numbers = *low && !*low_end && *high && !*high_end && isfinite(axis->low) && isfinite(axis->high);
  const bool whole = numbers && axis->low == floor(axis->low) && axis->high == floor(axis->high);
  trm_free(low);
  if (!numbers || axis->low > axis->high)
    return trm_error(TRM_USAGE, "option %s: %.80s is no range LOW..HIGH", name, text);
  if (random) {
    axis->range = true;
    return TRM_OK;
  }
  if (!whole)
    return trm_error(TRM_USAGE, "option %s: %.80s: a range of a grid is of whole numbers (--search=random draws from "
                     "any)", name, text);
  if (axis->high - axis->low >= MAX_VALUES)
    return trm_error(TRM_USAGE, "option %s: %.80s: more than %d values", name, text, MAX_VALUES);
  for (double value = axis->low; value <= axis->high; value++) {
    char number[32];
    TRM_CHECK(sweep_add_value(axis, trm_number_text(value, number)));
  }
  return TRM_OK;
}

static int sweep_add_item(struct sweep_axis *axis, const char *item, bool random)
{
  const char *dots = sweep_is_number(axis->row) ? strstr(item, "..") : NULL;
  if (axis->range || (random && dots && axis->count > 0))
    return trm_error(TRM_USAGE, "option %s: a range to draw from stands alone", axis->row->name);
  if (dots)
    return sweep_add_range(axis, item, dots, random);
  return sweep_add_value(axis, item);
}

/* Sets the axis of an option, without values. */
static int sweep_axis_open(struct sweep_axis *axis, const char *name, const char *list)
{
  *axis = (struct sweep_axis){.role = strcmp(name, "run.seed") == 0 ? SWEEP_SEED : SWEEP_CELL};
  for (axis->row = trm_option_table; axis->row->name && strcmp(axis->row->name, name) != 0;)
    axis->row++;
  if (!axis->row->name) {
    struct trm_options checked;
    trm_options_default(&checked);
    const int status = trm_options_set(&checked, name, list); /* the message names the nearest option */
    trm_options_free(&checked);
    return status;
  }
  axis->ordered = sweep_is_number(axis->row);
  return TRM_OK;
}

int sweep_axis_one(struct sweep_axis *axis, const char *name, const char *value)
{
  TRM_CHECK(sweep_axis_open(axis, name, value));
  return sweep_add_value(axis, value);
}

int sweep_axis_read(struct sweep_axis *axis, const char *name, const char *list, bool random)
{
  TRM_CHECK(sweep_axis_open(axis, name, list));
  const char *separator = axis->row->type == TRM_OPTION_TEXT && strcmp(name, "strategy.name") != 0 ? ";" : ",";
  int status = TRM_OK;
  for (const char *at = list; at && status == TRM_OK;) {
    const size_t length = strcspn(at, separator);
    size_t begin = strspn(at, " "), end = length;
    begin = begin < length ? begin : length;
    while (end > begin && at[end - 1] == ' ')
      end--;
    char *item = trm_format("%.*s", (int)(end - begin), at + begin);
    status = sweep_add_item(axis, item, random);
    trm_free(item);
    at = at[length] ? at + length + 1 : NULL;
  }
  axis->listed = axis->count;
  return status;
}

void sweep_axis_free(struct sweep_axis *axis)
{
  for (int i = 0; i < axis->count; i++)
    trm_free(axis->value[i]);
  trm_free(axis->value);
  *axis = (struct sweep_axis){0};
}

/* -- settings and cells */

void sweep_cell_values(const struct sweep *sweep, int cell, const char *value[SWEEP_MAX_AXES])
{
  for (int i = sweep->axes - 1; i >= 0; i--) {
    const struct sweep_axis *axis = &sweep->axis[i];
    value[i] = NULL;
    if (axis->role != SWEEP_CELL)
      continue;
    value[i] = axis->value[cell % axis->count];
    cell /= axis->count;
  }
}

/* Draws a value of the axis. Ranges above 0 of numbers with fractions: the logarithm is uniform, and three digits are
 * kept; other ranges are uniform. */
static int sweep_draw_value(struct sweep_axis *axis, uint64_t seed, uint32_t stream, uint64_t trial, const char **value)
{
  const double u = (double)trm_random_uniform(seed, TRM_RANDOM_SWEEP, stream, trial);
  if (!axis->range) {
    *value = axis->value[(int)(u * axis->count)];
    return TRM_OK;
  }
  double x = axis->low + u * (axis->high - axis->low);
  if (axis->row->type == TRM_OPTION_INT)
    x = axis->low + floor(u * (axis->high - axis->low + 1));
  else if (axis->low > 0)
    x = axis->low * pow(axis->high / axis->low, u);
  char text[32], number[32];
  snprintf(text, sizeof text, axis->row->type == TRM_OPTION_INT ? "%.0f" : "%.3g", x);
  trm_number_text(fmin(fmax(strtod(text, NULL), axis->low), axis->high), number);
  for (int i = 0; i < axis->count; i++)
    if (strcmp(axis->value[i], number) == 0) {
      *value = axis->value[i];
      return TRM_OK;
    }
  TRM_CHECK(sweep_add_value(axis, number));
  *value = axis->value[axis->count - 1];
  return TRM_OK;
}

static int sweep_draw_settings(struct sweep *sweep, int trials, uint64_t seed)
{
  enum { TRIES = 100 }; /* draws for each setting, as some are equal */
  for (uint64_t draw = 0; sweep->settings < trials && draw < (uint64_t)trials * TRIES; draw++) {
    const char **row = sweep->setting + (size_t)sweep->settings * (size_t)sweep->axes;
    bool twice = false;
    for (int i = 0; i < sweep->axes; i++)
      if (sweep->axis[i].role == SWEEP_TUNED)
        TRM_CHECK(sweep_draw_value(&sweep->axis[i], seed, (uint32_t)i, draw, &row[i]));
    for (int s = 0; s < sweep->settings && !twice; s++) {
      twice = true;
      for (int i = 0; i < sweep->axes; i++)
        twice &= sweep->setting[(size_t)s * (size_t)sweep->axes + (size_t)i] == row[i];
    }
    sweep->settings += !twice;
  }
  return TRM_OK;
}

static int sweep_count(const struct sweep *sweep, enum sweep_role role, int *count)
{
  double product = 1;
  for (int i = 0; i < sweep->axes; i++)
    if (sweep->axis[i].role == role)
      product *= sweep->axis[i].count;
  if (product > SWEEP_MAX_RUNS)
    return trm_error(TRM_USAGE, "sweep: the lists make more than %d runs", SWEEP_MAX_RUNS);
  *count = (int)product;
  return TRM_OK;
}

/* A rung for each third, until one setting is left, or the budget is. */
static void sweep_make_rungs(struct sweep *sweep)
{
  struct sweep_halving *h = &sweep->halving;
  const bool steps = sweep->options.train.steps > 0;
  h->option = steps ? "train.steps" : "train.epochs";
  h->budget = steps ? sweep->options.train.steps : sweep->options.train.epochs;
  int64_t share = 3;
  for (int left = (sweep->settings + 2) / 3; left > 1 && share <= h->budget; left = (left + 2) / 3, share *= 3)
    h->rungs++;
}

/* True if the values of the setting are the cell's. */
static bool sweep_may_use(const struct sweep *sweep, int cell, int setting)
{
  for (int i = 0; i < sweep->axes; i++) {
    const struct sweep_axis values = sweep_values_of(sweep, cell, i);
    if (values.role == SWEEP_TUNED &&
        !sweep_axis_has(&values, sweep->setting[(size_t)setting * (size_t)sweep->axes + (size_t)i]))
      return false;
  }
  return true;
}

int sweep_make_settings(struct sweep *sweep, enum sweep_search search, int trials, uint64_t seed)
{
  int settings = trials;
  TRM_CHECK(sweep_count(sweep, SWEEP_CELL, &sweep->cells));
  if (search != SWEEP_RANDOM)
    TRM_CHECK(sweep_count(sweep, SWEEP_TUNED, &settings));
  if ((double)sweep->cells * settings > SWEEP_MAX_RUNS)
    return trm_error(TRM_USAGE, "sweep: the lists make more than %d runs", SWEEP_MAX_RUNS);
  sweep->setting = trm_alloc((size_t)settings * (size_t)sweep->axes * sizeof *sweep->setting, "sweep: settings");
  sweep->chosen = trm_alloc((size_t)sweep->cells * sizeof *sweep->chosen, "sweep: choices");
  sweep->halving.kept = trm_alloc((size_t)sweep->cells * (size_t)settings * sizeof *sweep->halving.kept,
                                  "sweep: settings");
  sweep->halving.rungs = 1;
  if (search == SWEEP_RANDOM) {
    for (int i = 0; i < sweep->cells * settings; i++)
      sweep->halving.kept[i] = true;
    return sweep_draw_settings(sweep, trials, seed);
  }
  sweep->settings = settings;
  for (int s = 0; s < settings; s++)
    for (int i = sweep->axes - 1, rest = s; i >= 0; i--)
      if (sweep->axis[i].role == SWEEP_TUNED) {
        sweep->setting[(size_t)s * (size_t)sweep->axes + (size_t)i] = sweep->axis[i].value[rest % sweep->axis[i].count];
        rest /= sweep->axis[i].count;
      }
  for (int cell = 0; cell < sweep->cells; cell++)
    for (int s = 0; s < settings; s++)
      sweep->halving.kept[cell * settings + s] = sweep_may_use(sweep, cell, s);
  if (search == SWEEP_HALVING)
    sweep_make_rungs(sweep);
  return TRM_OK;
}

/* -- runs */

/* Returns the name of a run's folder: KEY=VALUE,KEY=VALUE, with other characters than those of plain names replaced and
 * the begin of a hash added, and so where it is long. That of a variant's run is of its options, too. */
static char *sweep_run_name(const struct sweep *sweep, const struct sweep_run *run)
{
  enum { MAX_NAME = 180 };
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-+_=,";
  char *name = NULL, digest[65];
  struct trm_sha256 sha;
  for (int i = 0; i < sweep->axes; i++)
    trm_append(&name, "%s%s=%s", i ? "," : "", sweep->axis[i].row->name, run->value[i]);
  if (run->budget > 0)
    trm_append(&name, ",%s=%lld", sweep->halving.option, (long long)run->budget);
  const size_t length = strlen(name);
  const char *options = sweep_variant_options(sweep, run);
  if (strspn(name, plain) == length && length <= MAX_NAME && sweep->variants == 0)
    return name;
  trm_sha256_begin(&sha);
  trm_sha256_add(&sha, name, length);
  trm_sha256_add(&sha, options, strlen(options));
  trm_sha256_end(&sha, digest);
  for (size_t i = 0; i < length; i++)
    if (!strchr(plain, name[i]))
      name[i] = '_';
  char *hashed = trm_format("%.*s-%.12s", MAX_NAME, name, digest);
  trm_free(name);
  return hashed;
}

static void sweep_make_run(const struct sweep *sweep, struct sweep_run *run, int cell, int setting,
                           const struct sweep_axis *seeds, int seed, int rung, int64_t budget)
{
  *run = (struct sweep_run){.cell = cell, .setting = setting, .seed = seed, .rung = rung, .budget = budget,
                            .validation = {NAN, NAN}, .test = {NAN, NAN}};
  sweep_cell_values(sweep, cell, run->value);
  for (int i = 0; i < sweep->axes; i++) {
    if (sweep->axis[i].role == SWEEP_TUNED)
      run->value[i] = sweep->setting[(size_t)setting * (size_t)sweep->axes + (size_t)i];
    if (sweep->axis[i].role == SWEEP_SEED)
      run->value[i] = seeds->value[seed];
  }
  run->name = sweep_run_name(sweep, run);
}

static bool sweep_tunes(const struct sweep *sweep)
{
  for (int i = 0; i < sweep->axes; i++)
    if (sweep->axis[i].role == SWEEP_TUNED)
      return true;
  return false;
}

int sweep_make_tune(struct sweep *sweep)
{
  const double count = (double)sweep->cells * sweep->settings * sweep->tune_seeds.count;
  if (!sweep_tunes(sweep))
    return TRM_OK;
  if (count > SWEEP_MAX_RUNS)
    return trm_error(TRM_USAGE, "sweep: the lists make more than %d runs", SWEEP_MAX_RUNS);
  const struct sweep_halving *h = &sweep->halving;
  struct sweep_runs *tune = &sweep->tune;
  int64_t budget = h->budget;
  for (int rung = h->rung + 1; rung < h->rungs; rung++)
    budget /= 3;
  tune->run = trm_grow(tune->run, &tune->capacity, (size_t)tune->count, (size_t)tune->count + (size_t)count,
                       sizeof *tune->run, "sweep: runs");
  for (int cell = 0; cell < sweep->cells; cell++)
    for (int setting = 0; setting < sweep->settings; setting++)
      for (int seed = 0; seed < sweep->tune_seeds.count && h->kept[cell * sweep->settings + setting]; seed++)
        sweep_make_run(sweep, &tune->run[tune->count++], cell, setting, &sweep->tune_seeds, seed, h->rung,
                       budget < h->budget ? budget : 0);
  return TRM_OK;
}

int sweep_make_final(struct sweep *sweep)
{
  const struct sweep_axis *seeds = &sweep->axis[sweep->axes - 1];
  const double count = (double)sweep->cells * seeds->count;
  if (count > SWEEP_MAX_RUNS)
    return trm_error(TRM_USAGE, "sweep: the lists make more than %d runs", SWEEP_MAX_RUNS);
  sweep->final.run = trm_alloc((size_t)count * sizeof *sweep->final.run, "sweep: runs");
  for (int cell = 0; cell < sweep->cells; cell++)
    for (int seed = 0; seed < seeds->count && sweep->chosen[cell] >= 0; seed++)
      sweep_make_run(sweep, &sweep->final.run[sweep->final.count++], cell, sweep->chosen[cell], seeds, seed, 0, 0);
  return TRM_OK;
}

void sweep_runs_free(struct sweep_runs *runs)
{
  for (int i = 0; i < runs->count; i++)
    trm_free(runs->run[i].name);
  trm_free(runs->run);
  *runs = (struct sweep_runs){0};
}
