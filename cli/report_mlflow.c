/* Runs in the folder of MLflow's file store (mlruns): meta.yaml, params, metrics and tags of each. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/report.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/private_files.h"
#include "core/sha256.h"
#include "core/status.h"

#define EXPERIMENT "823710420610452597" /* its number in the store: a constant, so that runs come together there */
enum { RUNNING = 1, FINISHED = 3, FAILED = 4, KILLED = 5 }; /* mlflow.entities.RunStatus */
enum { MAX_METRICS = 64, VALUE_LENGTH = 6000 /* of MLflow's parameters */ };

/* -- files */

/* Writes a file of one text, FOLDER/NAME. */
static int mlflow_write(const char *folder, const char *name, const char *text)
{
  char *path = trm_format("%s/%s", folder, name);
  FILE *out = fopen(path, "w");
  bool written = out != NULL;
  if (out) {
    written = fputs(text, out) >= 0;
    written = fclose(out) == 0 && written;
  }
  const int status = written ? TRM_OK : trm_error(TRM_FAILED, "%s: cannot write: %s", path, strerror(errno));
  trm_free(path);
  return status;
}

/* The same of a text that it frees. */
static int mlflow_write_owned(const char *folder, const char *name, char *text)
{
  const int status = mlflow_write(folder, name, text);
  trm_free(text);
  return status;
}

static const char *mlflow_text(const struct trm_node *map, const char *key)
{
  const struct trm_node *node = trm_node_get(map, key);
  return node && node->text && strcmp(node->text, "null") != 0 ? node->text : "";
}

/* A text as a scalar of YAML: quoted, on one line. */
static char *mlflow_quote(const char *text)
{
  char *out = trm_alloc(2 * strlen(text) + 3, "report: a name"), *to = out;
  *to++ = '\'';
  for (; *text; text++) {
    if (*text == '\'')
      *to++ = '\'';
    *to++ = (unsigned char)*text < ' ' ? ' ' : *text;
  }
  *to++ = '\'';
  *to = '\0';
  return out;
}

/* -- parameters: the options */

static int mlflow_write_params(const char *folder, const struct trm_node *map, const char *prefix)
{
  int status = TRM_OK;
  for (const struct trm_node *entry = map ? map->first : NULL; entry && status == TRM_OK; entry = entry->next) {
    char *name = trm_format("%s%s%s", prefix, *prefix ? "." : "", entry->key ? entry->key : "");
    if (entry->kind == TRM_NODE_MAP)
      status = mlflow_write_params(folder, entry, name);
    else if (entry->kind == TRM_NODE_SCALAR && entry->key)
      status = mlflow_write_owned(folder, name, trm_format("%.*s", VALUE_LENGTH, entry->text));
    trm_free(name);
  }
  return status;
}

/* -- metrics: a file for each, with a line "milliseconds value step" for each value */

struct metric_files {
  const char *folder;
  char *name[MAX_METRICS];
  FILE *stream[MAX_METRICS];
  int n;
};

/* Returns NULL with *status TRM_OK if there are too many. */
static FILE *mlflow_metric_stream(struct metric_files *files, const char *name, int *status)
{
  int i = 0;
  while (i < files->n && strcmp(files->name[i], name) != 0)
    i++;
  if (i < files->n || i == MAX_METRICS)
    return i < files->n ? files->stream[i] : NULL;
  char *path = trm_format("%s/%s", files->folder, name);
  if ((files->stream[i] = fopen(path, "w"))) {
    files->name[i] = trm_strdup(name);
    files->n++;
  } else {
    *status = trm_error(TRM_FAILED, "%s: cannot write: %s", path, strerror(errno));
  }
  trm_free(path);
  return files->stream[i];
}

static bool mlflow_is_metric(const struct trm_node *entry)
{
  static const char *const places[] = {"step", "samples", "wall_s", "train_s", "virtual_s"};
  bool place = !entry->key || entry->kind != TRM_NODE_SCALAR || !isfinite(trm_node_number(entry, NAN));
  for (size_t i = 0; !place && i < sizeof places / sizeof *places; i++)
    place = strcmp(entry->key, places[i]) == 0;
  return !place;
}

/* The results that are not logged while a run trains. */
static int mlflow_add_results(struct metric_files *files, const struct trm_node *summary, double time)
{
  static const char *const names[] = {"wall_s", "train_s", "comm_s", "wait_s", "virtual_s", "samples_per_s",
                                      "final_train_loss", "best_validation_loss", "best_validation_accuracy",
                                      "max_resident_bytes", "joules", "gpu_joules"};
  int status = TRM_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names && status == TRM_OK; i++) {
    const double value = trm_node_number(trm_node_get(summary, names[i]), NAN);
    FILE *out = isfinite(value) ? mlflow_metric_stream(files, names[i], &status) : NULL;
    if (out)
      fprintf(out, "%.0f %s %s\n", 1000 * time, mlflow_text(summary, names[i]), mlflow_text(summary, "steps"));
  }
  return status;
}

static int mlflow_write_metrics(const char *folder, const struct report_run *run, const struct report_lines *lines)
{
  struct metric_files files = {.folder = folder};
  int status = TRM_OK;
  for (size_t i = 0; i < lines->n; i++)
    for (const struct trm_node *entry = lines->line[i]->first; entry && status == TRM_OK; entry = entry->next) {
      FILE *out = mlflow_is_metric(entry) ? mlflow_metric_stream(&files, entry->key, &status) : NULL;
      if (out)
        fprintf(out, "%.0f %s %s\n", 1000 * report_lines_time(lines, i), entry->text,
                mlflow_text(lines->line[i], "step"));
    }
  if (status == TRM_OK && run->summary)
    status = mlflow_add_results(&files, run->summary, lines->n ? report_lines_time(lines, lines->n - 1) : 0);
  for (int i = 0; i < files.n; i++) {
    const bool written = !ferror(files.stream[i]);
    if ((fclose(files.stream[i]) != 0 || !written) && status == TRM_OK)
      status = trm_error(TRM_FAILED, "%s/%s: cannot write: %s", folder, files.name[i], strerror(errno));
    trm_free(files.name[i]);
  }
  return status;
}

/* -- tags and the run */

static int mlflow_write_tags(const char *folder, const struct report_run *run)
{
  char *path = trm_format("%s/record.json", run->path), *whole = realpath(run->path, NULL);
  struct trm_node *record = NULL;
  struct stat about;
  int status = stat(path, &about) == 0 ? trm_document_read(path, &record) : TRM_OK;
  const char *const tags[][2] = {{"mlflow.runName", run->name},
                                 {"mlflow.source.name", "trireme"},
                                 {"mlflow.source.type", "JOB"},
                                 {"mlflow.source.git.commit", mlflow_text(record, "revision")},
                                 {"trireme.version", mlflow_text(run->summary, "version")},
                                 {"trireme.status", run->outcome},
                                 {"trireme.reason", mlflow_text(run->summary, "reason")},
                                 {"trireme.layout", mlflow_text(run->summary, "layout")},
                                 {"trireme.ranks", mlflow_text(run->summary, "ranks")},
                                 {"trireme.weights_sha256", mlflow_text(run->summary, "weights_sha256")},
                                 {"trireme.folder", whole ? whole : run->path}};
  for (size_t i = 0; i < sizeof tags / sizeof *tags && status == TRM_OK; i++)
    if (tags[i][1][0])
      status = mlflow_write(folder, tags[i][0], tags[i][1]);
  trm_node_free(record);
  free(whole);
  trm_free(path);
  return status;
}

static int mlflow_run_status(const struct report_run *run)
{
  if (strcmp(run->outcome, "done") == 0 || strcmp(run->outcome, "early-stop") == 0)
    return FINISHED;
  if (!run->summary)
    return RUNNING;
  return strcmp(mlflow_text(run->summary, "status"), "stopped") == 0 ? KILLED : FAILED;
}

static int mlflow_write_meta(const char *folder, const char *id, const struct report_run *run,
                             const struct report_lines *lines)
{
  char *name = mlflow_quote(run->name), *whole = realpath(folder, NULL);
  char *artifacts = trm_format("%s/artifacts", whole ? whole : folder), *place = mlflow_quote(artifacts);
  const int state = mlflow_run_status(run);
  char *end = state == RUNNING || !lines->n
                ? trm_strdup("null") : trm_format("%.0f", 1000 * report_lines_time(lines, lines->n - 1));
  char *text = trm_format(
    "artifact_uri: %s\nend_time: %s\nentry_point_name: ''\nexperiment_id: '%s'\nlifecycle_stage: active\nrun_id: %s\n"
    "run_name: %s\nrun_uuid: %s\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: %.0f\nstatus: %d\n"
    "tags: []\nuser_id: ''\n",
    place, end, EXPERIMENT, id, name, id, 1000 * lines->start, state);
  trm_free(end);
  trm_free(name);
  trm_free(place);
  trm_free(artifacts);
  free(whole);
  return mlflow_write_owned(folder, "meta.yaml", text);
}

/* The same run gets the same number, and replaces its earlier export. */
static void mlflow_run_id(const struct report_run *run, char id[33])
{
  char *whole = realpath(run->path, NULL), hex[65];
  const char *path = whole ? whole : run->path;
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  trm_sha256_add(&hash, path, strlen(path));
  trm_sha256_end(&hash, hex);
  snprintf(id, 33, "%.32s", hex);
  free(whole);
}

static int mlflow_write_run(const char *experiment, const struct report_run *run)
{
  static const char *const folders[] = {"params", "metrics", "tags", "artifacts"};
  char id[33], *path[4] = {NULL};
  struct report_lines lines;
  mlflow_run_id(run, id);
  TRM_CHECK(report_lines_read(&lines, run));
  char *folder = trm_format("%s/%s", experiment, id);
  int status = TRM_OK;
  for (int i = 0; i < 4; i++) {
    path[i] = trm_format("%s/%s", folder, folders[i]);
    if (status == TRM_OK)
      status = trm_make_directories(path[i]);
  }
  if (status == TRM_OK)
    status = mlflow_write_params(path[0], run->config, "");
  if (status == TRM_OK)
    status = mlflow_write_metrics(path[1], run, &lines);
  if (status == TRM_OK)
    status = mlflow_write_tags(path[2], run);
  if (status == TRM_OK)
    status = mlflow_write_meta(folder, id, run, &lines);
  for (int i = 0; i < 4; i++)
    trm_free(path[i]);
  trm_free(folder);
  report_lines_free(&lines);
  return status;
}

int report_mlflow(const char *dir, const struct report *report)
{
  char *experiment = trm_format("%s/" EXPERIMENT, dir);
  int status = trm_make_directories(experiment);
  if (status == TRM_OK) {
    char *whole = realpath(experiment, NULL), *place = mlflow_quote(whole ? whole : experiment);
    status = mlflow_write_owned(experiment, "meta.yaml", trm_format(
      "artifact_location: %s\nexperiment_id: '" EXPERIMENT "'\nlifecycle_stage: active\nname: trireme\n", place));
    trm_free(place);
    free(whole);
  }
  for (int i = 0; i < report->count && status == TRM_OK; i++)
    status = mlflow_write_run(experiment, &report->run[i]);
  if (status == TRM_OK)
    trm_info("%s: MLflow's files of %d run%s", dir, report->count, report->count == 1 ? "" : "s");
  trm_free(experiment);
  return status;
}
