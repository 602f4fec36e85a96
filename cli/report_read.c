/* Reads run directories: config.yaml, metrics.jsonl, summary.json, staleness.json. */
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

int report_read(struct report_run *runs, int count, char **paths)
{
  for (int i = 0; i < count; i++) {
    runs[i] = (struct report_run){.path = paths[i], .name = report_read_last_component(paths[i])};
    TRM_CHECK(report_read_run(&runs[i]));
  }
  for (int i = 0; i < count; i++) {
    bool ambiguous = !strcmp(runs[i].name, "") || !strcmp(runs[i].name, ".") || !strcmp(runs[i].name, "..");
    for (int k = 0; k < count; k++) {
      char *other = report_read_last_component(paths[k]);
      ambiguous |= k != i && !strcmp(runs[i].name, other);
      trm_free(other);
    }
    if (ambiguous) {
      trm_free(runs[i].name);
      runs[i].name = trm_strdup(runs[i].path);
    }
  }
  return TRM_OK;
}

void report_free(struct report_run *runs, int count)
{
  for (int i = 0; i < count; i++) {
    trm_free(runs[i].name);
    trm_free(runs[i].config_text);
    trm_node_free(runs[i].config);
    trm_node_free(runs[i].summary);
    trm_node_free(runs[i].staleness);
    trm_free(runs[i].train.point);
    trm_free(runs[i].test.point);
  }
}
