/* Reads what runs left: config.yaml, metrics.jsonl (a line at a time), summary.json. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static void track_add(struct report_track *track, const struct report_point *point)
{
  if (track->n == track->room) {
    const size_t room = track->room ? 2 * track->room : 256;
    struct report_point *more = trm_alloc(room * sizeof *more, "report: logged values");
    if (track->n)
      memcpy(more, track->point, track->n * sizeof *more);
    trm_free(track->point);
    track->point = more;
    track->room = room;
  }
  track->point[track->n++] = *point;
}

/* A run that was killed and resumed from a checkpoint computes some steps again: the later lines count. */
static size_t track_rewind(struct report_track *track, double step)
{
  size_t dropped = 0;
  while (track->n && track->point[track->n - 1].step >= step) {
    track->n--;
    dropped++;
  }
  return dropped;
}

static bool node_has(const struct trm_node *map, const char *key, double *value)
{
  const struct trm_node *node = trm_node_get(map, key);
  *value = trm_node_number(node, NAN);
  return node != NULL;
}

static int line_take(struct report_run *run, const struct trm_node *line, const char *where, double *last_step)
{
  if (line->kind != TRM_NODE_MAP)
    return trm_error(TRM_FAILED, "%s: damaged line: not a JSON object", where);
  struct report_point at = {.loss = NAN, .accuracy = NAN, .rate = NAN};
  const struct {
    const char *key;
    double *value;
  } needed[] = {{"step", &at.step}, {"epoch", &at.epoch}, {"samples", &at.samples}, {"wall_s", &at.wall_s}};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (!node_has(line, needed[i].key, needed[i].value) || !isfinite(*needed[i].value))
      return trm_error(TRM_FAILED, "%s: damaged line: no number under \"%s\"", where, needed[i].key);
  if (at.step < *last_step)
    run->superseded += track_rewind(&run->train, at.step) + track_rewind(&run->test, at.step);
  *last_step = at.step;

  struct report_point train = at, test = at;
  const bool rate = node_has(line, "lr", &train.rate);
  if (node_has(line, "loss", &train.loss)) {
    node_has(line, "accuracy", &train.accuracy);
    run->has_rate |= rate;
    track_add(&run->train, &train);
  }
  const bool loss = node_has(line, "test_loss", &test.loss), accuracy = node_has(line, "test_accuracy", &test.accuracy);
  if (loss || accuracy) {
    run->has_loss |= loss;
    run->has_accuracy |= accuracy;
    track_add(&run->test, &test);
  }
  return TRM_OK;
}

static int metrics_read(struct report_run *run, const char *path)
{
  FILE *in = fopen(path, "r");
  if (!in)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  int status = TRM_OK;
  char *line = NULL;
  size_t room = 0, number = 0;
  double last_step = -INFINITY;
  ssize_t length;
  while (status == TRM_OK && (length = getline(&line, &room, in)) > 0) {
    number++;
    const bool whole = line[length - 1] == '\n';
    char *where = trm_format("%s:%zu", path, number);
    struct trm_node *root = NULL;
    if (line[strspn(line, " \t\r\n")] != '\0' || memchr(line, '\0', (size_t)length)) {
      status = trm_document_parse(line, (size_t)length, where, &root);
      if (status == TRM_OK)
        status = line_take(run, root, where, &last_step);
      else
        status = trm_error(TRM_FAILED, "%s: damaged line: not a JSON object", where);
      if (status != TRM_OK && !whole) {
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

static int text_read(const char *path, char **text)
{
  FILE *in = fopen(path, "r");
  if (!in)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  char *all = NULL;
  size_t room = 0;
  errno = 0;
  const ssize_t length = getdelim(&all, &room, '\0', in);
  const bool bad = ferror(in);
  fclose(in);
  *text = trm_strdup(length > 0 ? all : "");
  free(all);
  return bad ? trm_error(TRM_FAILED, "%s: cannot read: %s", path, strerror(errno)) : TRM_OK;
}

static int run_read(struct report_run *run)
{
  char *config = trm_format("%s/config.yaml", run->path), *metrics = trm_format("%s/metrics.jsonl", run->path);
  char *summary = trm_format("%s/summary.json", run->path);
  int status = text_read(config, &run->config_text);
  if (status == TRM_OK)
    status = trm_document_read(config, &run->config);
  if (status == TRM_OK)
    status = metrics_read(run, metrics);
  if (status == TRM_OK && access(summary, F_OK) != 0 && errno == ENOENT)
    trm_warn("%s: no such file: the run has not ended, or was killed", summary);
  else if (status == TRM_OK)
    status = trm_document_read(summary, &run->summary);
  if (status == TRM_OK && run->summary && run->summary->kind != TRM_NODE_MAP)
    status = trm_error(TRM_FAILED, "%s: damaged: not a JSON object", summary);
  trm_free(config);
  trm_free(metrics);
  trm_free(summary);
  return status;
}

static char *last_part(const char *path)
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
    runs[i] = (struct report_run){.path = paths[i], .name = last_part(paths[i])};
    TRM_CHECK(run_read(&runs[i]));
  }
  for (int i = 0; i < count; i++) {
    bool twice = !strcmp(runs[i].name, "") || !strcmp(runs[i].name, ".") || !strcmp(runs[i].name, "..");
    for (int k = 0; k < count; k++) {
      char *other = last_part(paths[k]);
      twice |= k != i && !strcmp(runs[i].name, other);
      trm_free(other);
    }
    if (twice) {
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
    trm_free(runs[i].train.point);
    trm_free(runs[i].test.point);
  }
}
