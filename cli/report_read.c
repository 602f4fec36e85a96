/* Reads run directories, config.yaml, metrics.jsonl, summary.json, staleness.json, and the runs of a sweep. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

/* Adds a point. If it is of an earlier step than the last one, the points from its step on are dropped before: a run
 * that was killed and resumed has computed them again. */
static void report_read_add_point(struct report_run *run, struct report_series *series,
                                  const struct report_point *point)
{
  const double step = point->value[REPORT_STEP];
  if (series->n && series->point[series->n - 1].value[REPORT_STEP] > step)
    for (; series->n && series->point[series->n - 1].value[REPORT_STEP] >= step; run->superseded++)
      series->n--;
  series->point = trm_grow(series->point, &series->capacity, series->n, series->n + 1, sizeof *point, "report: values");
  series->point[series->n++] = *point;
}

static bool report_read_number(const struct trm_node *map, const char *key, double *value)
{
  const struct trm_node *node = trm_node_get(map, key);
  *value = trm_node_number(node, NAN);
  return node != NULL;
}

/* Evaluations of an asynchronous run may come after training steps beyond theirs: each series is in order. */
static int report_read_line(struct report_run *run, const struct trm_node *line, const char *where)
{
  if (line->kind != TRM_NODE_MAP)
    return trm_error(TRM_FAILED, "%s: damaged line: not a JSON object", where);
  struct report_point at;
  static const char *const needed[] = {"step", "epoch", "samples", "wall_s"};
  for (int i = 0; i < REPORT_FIELDS; i++)
    at.value[i] = NAN;
  for (int i = 0; i <= REPORT_WALL; i++)
    if (!report_read_number(line, needed[i], &at.value[i]) || !isfinite(at.value[i]))
      return trm_error(TRM_FAILED, "%s: damaged line: no number under \"%s\"", where, needed[i]);

  double virtual_s;
  run->modeled |= report_read_number(line, "virtual_s", &virtual_s);
  if (!report_read_number(line, "train_s", &at.value[REPORT_TIME]) || !isfinite(at.value[REPORT_TIME]))
    at.value[REPORT_TIME] = isfinite(virtual_s) ? virtual_s : at.value[REPORT_WALL];
  at.value[REPORT_WALL] = isfinite(virtual_s) ? virtual_s : at.value[REPORT_WALL];
  struct report_point train = at, test = at;
  const bool rate = report_read_number(line, "lr", &train.value[REPORT_RATE]);
  if (report_read_number(line, "loss", &train.value[REPORT_LOSS])) {
    report_read_number(line, "accuracy", &train.value[REPORT_ACCURACY]);
    run->has_rate |= rate;
    report_read_add_point(run, &run->train, &train);
  }
  const bool validation = trm_node_get(line, "validation_loss") != NULL;
  run->validates |= validation;
  const bool loss = report_read_number(line, validation ? "validation_loss" : "test_loss", &test.value[REPORT_LOSS]),
             accuracy = report_read_number(line, validation ? "validation_accuracy" : "test_accuracy",
                                           &test.value[REPORT_ACCURACY]);
  if ((loss || accuracy) && validation == run->validates) {
    run->has_loss |= loss;
    run->has_accuracy |= isfinite(test.value[REPORT_ACCURACY]);
    report_read_add_point(run, &run->test, &test);
  }
  return TRM_OK;
}

static int report_read_metrics(struct report_run *run, const char *path)
{
  FILE *in = fopen(path, "r");
  if (!in)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  int status = TRM_OK;
  char *line = NULL;
  size_t capacity = 0, number = 0;
  ssize_t length;
  while (status == TRM_OK && (length = getline(&line, &capacity, in)) > 0) {
    number++;
    const bool complete = line[length - 1] == '\n';
    char *where = trm_format("%s:%zu", path, number);
    struct trm_node *root = NULL;
    if (line[strspn(line, " \t\r\n")] != '\0' || memchr(line, '\0', (size_t)length)) {
      status = trm_document_parse(line, (size_t)length, where, &root);
      if (status == TRM_OK)
        status = report_read_line(run, root, where);
      else
        status = trm_error(TRM_FAILED, "%s: damaged line: not a JSON object", where);
      if (status != TRM_OK && !complete) {
        trm_warn("%s: the last line is incomplete (a killed run leaves one): not used", where);
        status = TRM_OK;
      }
    }
    trm_node_free(root);
    trm_free(where);
  }
  if (status == TRM_OK && ferror(in))
    status = trm_error(TRM_FAILED, "%s: cannot read: %s", path, strerror(errno));
  free(line);
  fclose(in);
  if (run->superseded)
    trm_warn("%s: %zu lines were computed again after a resume: the later ones are used", path, run->superseded);
  if (status == TRM_OK && !run->train.n && !run->test.n)
    trm_warn("%s: no values yet: the run has a row in the table and no curve", path);
  return status;
}

static int report_read_text(const char *path, char **text)
{
  FILE *in = fopen(path, "r");
  if (!in)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  char *all = NULL;
  size_t capacity = 0;
  errno = 0;
  const ssize_t length = getdelim(&all, &capacity, '\0', in);
  const bool bad = ferror(in);
  fclose(in);
  *text = trm_strdup(length > 0 ? all : "");
  free(all);
  return bad ? trm_error(TRM_FAILED, "%s: cannot read: %s", path, strerror(errno)) : TRM_OK;
}

static int report_read_run(struct report_run *run)
{
  char *config = trm_format("%s/config.yaml", run->path), *metrics = trm_format("%s/metrics.jsonl", run->path);
  char *summary = trm_format("%s/summary.json", run->path), *staleness = trm_format("%s/staleness.json", run->path);
  const bool began = access(config, F_OK) == 0 && access(metrics, F_OK) == 0;
  if (run->sweep_status && strcmp(run->sweep_status, "done") != 0 && !began) {
    trm_warn("%s: %s before it began", run->path, run->sweep_status);
    trm_free(config);
    trm_free(metrics);
    trm_free(summary);
    trm_free(staleness);
    return TRM_OK;
  }
  int status = report_read_text(config, &run->config_text);
  if (status == TRM_OK)
    status = trm_document_read(config, &run->config);
  if (status == TRM_OK)
    status = report_read_metrics(run, metrics);
  if (status == TRM_OK && access(summary, F_OK) != 0 && errno == ENOENT)
    trm_warn("%s: no such file: the run has not ended, or was killed", summary);
  else if (status == TRM_OK)
    status = trm_document_read(summary, &run->summary);
  if (status == TRM_OK && run->summary && run->summary->kind != TRM_NODE_MAP)
    status = trm_error(TRM_FAILED, "%s: damaged: not a JSON object", summary);
  if (status == TRM_OK && access(staleness, F_OK) == 0)
    status = trm_document_read(staleness, &run->staleness);
  trm_free(config);
  trm_free(metrics);
  trm_free(summary);
  trm_free(staleness);
  return status;
}

static char *report_read_last_component(const char *path)
{
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/')
    end--;
  size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/')
    begin--;
  return trm_format("%.*s", (int)(end - begin), path + begin);
}

static struct report_run *report_read_add_run(struct report *report, char *path)
{
  const size_t count = (size_t)report->count;
  report->run = trm_grow(report->run, &report->capacity, count, count + 1, sizeof *report->run, "report: runs");
  struct report_run *run = &report->run[report->count++];
  *run = (struct report_run){.path = path, .name = report_read_last_component(path)};
  return run;
}

/* -- sweeps */

enum { MAX_FIELDS = 64 };

/* Divides a line of CSV in place; returns the number of fields. */
static int report_read_fields(char *line, char *field[MAX_FIELDS])
{
  int n = 0;
  char *to = line;
  while (n < MAX_FIELDS) {
    bool quoted = *line == '"', last;
    line += quoted;
    field[n++] = to;
    while (*line && (quoted || !strchr(",\r\n", *line))) {
      if (quoted && *line == '"' && line[1] != '"')
        quoted = false;
      else
        *to++ = *(line += quoted && *line == '"');
      line++;
    }
    last = *line != ',';
    line += !last;
    *to++ = '\0';
    if (last)
      break;
  }
  return n;
}

/* The target and the baseline of a sweep are those of the report if it has none. */
static void report_read_definition(struct report *report, const char *dir)
{
  char *path = trm_format("%s/sweep.json", dir);
  struct trm_node *root = NULL;
  if (access(path, F_OK) == 0 && trm_document_read(path, &root) == TRM_OK) {
    const double target = trm_node_number(trm_node_get(root, "target"), 0);
    const struct trm_node *baseline = trm_node_get(root, "baseline");
    if (isnan(report->target) && target > 0)
      report->target = target;
    if (!report->baselines && baseline && baseline->text && *baseline->text)
      report->baselines = trm_strdup(baseline->text);
  }
  trm_node_free(root);
  trm_free(path);
}

/* Adds the final runs of DIR/runs.csv. */
static int report_read_sweep(struct report *report, const char *dir, const char *path)
{
  FILE *in = fopen(path, "r");
  if (!in)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  static const char *const names[] = {"phase", "status", "run"};
  enum { PHASE, STATUS, RUN, NAMES };
  int at[NAMES] = {-1, -1, -1}, n = 0, status = TRM_OK;
  char *line = NULL, *field[MAX_FIELDS];
  size_t capacity = 0;
  for (long long number = 1; status == TRM_OK && getline(&line, &capacity, in) > 0; number++) {
    const int fields = report_read_fields(line, field);
    for (int i = 0; number == 1 && i < fields; i++)
      for (int k = 0; k < NAMES; k++)
        at[k] = strcmp(field[i], names[k]) == 0 ? i : at[k];
    for (int k = 0; k < NAMES; k++)
      if (at[k] < 0 || at[k] >= fields)
        status = trm_error(TRM_FAILED, "%s:%lld: no \"%s\"; trireme sweep %s --collect writes it anew", path, number,
                           names[k], dir);
    if (status == TRM_OK && number > 1 && strcmp(field[at[PHASE]], "final") == 0) {
      report_read_add_run(report, trm_format("%s/runs/%s", dir, field[at[RUN]]))->sweep_status =
        trm_strdup(field[at[STATUS]]);
      n++;
    }
  }
  free(line);
  fclose(in);
  report_read_definition(report, dir);
  return status == TRM_OK && n == 0 ? trm_error(TRM_FAILED, "%s: the sweep has no final runs yet", path) : status;
}

int report_read(struct report *report, int count, char **paths)
{
  for (int i = 0; i < count; i++) {
    char *table = trm_format("%s/runs.csv", paths[i]);
    const bool sweep = access(table, F_OK) == 0;
    const int status = sweep ? report_read_sweep(report, paths[i], table) : TRM_OK;
    trm_free(table);
    TRM_CHECK(status);
    if (!sweep)
      report_read_add_run(report, trm_strdup(paths[i]));
  }
  for (int i = 0; i < report->count; i++)
    TRM_CHECK(report_read_run(&report->run[i]));
  for (int i = 0; i < report->count; i++) {
    struct report_run *run = &report->run[i];
    bool ambiguous = !strcmp(run->name, "") || !strcmp(run->name, ".") || !strcmp(run->name, "..");
    for (int k = 0; k < report->count; k++) {
      char *other = report_read_last_component(report->run[k].path);
      ambiguous |= k != i && !strcmp(run->name, other);
      trm_free(other);
    }
    if (ambiguous) {
      trm_free(run->name);
      run->name = trm_strdup(run->path);
    }
  }
  return TRM_OK;
}

void report_free(struct report *report)
{
  for (int i = 0; i < report->count; i++) {
    struct report_run *run = &report->run[i];
    trm_free(run->path);
    trm_free(run->name);
    trm_free(run->sweep_status);
    trm_free(run->config_text);
    trm_node_free(run->config);
    trm_node_free(run->summary);
    trm_node_free(run->staleness);
    trm_free(run->train.point);
    trm_free(run->test.point);
  }
  trm_free(report->run);
  trm_free(report->baselines);
  report_free_groups(report);
}
