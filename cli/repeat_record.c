#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/repeat.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/sha256.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "mpi/strategies.h"

/* -- reading a run */

static const char *repeat_text(const struct trm_node *map, const char *key)
{
  const struct trm_node *node = trm_node_get(map, key);
  return node && node->text && strcmp(node->text, "null") != 0 ? node->text : "";
}

const char *repeat_record_text(const struct repeat_run *run, const char *key)
{
  return repeat_text(run->record, key);
}

int repeat_record_number(const struct repeat_run *run, const char *key)
{
  return (int)trm_node_number(trm_node_get(run->record, key), 0);
}

/* Reads DIR/NAME. */
static int repeat_read(const char *dir, const char *name, struct trm_node **root)
{
  char *path = trm_format("%s/%s", dir, name);
  int status = TRM_OK;
  if (access(path, R_OK) != 0)
    status = trm_error(TRM_USAGE, "%s: %s", path, strerror(errno));
  else if (trm_document_read(path, root) != TRM_OK)
    status = trm_error_context(TRM_USAGE, "%s: damaged", path);
  trm_free(path);
  return status;
}

static int repeat_refuse_damaged(const struct repeat_run *run, const char *what, const char *key)
{
  return trm_error(TRM_USAGE, "%s/record.json: damaged: no %s under \"%s\"", run->dir, what, key);
}

static int repeat_check_files(const struct repeat_run *run, const char *map, const char *digest)
{
  const struct trm_node *files = trm_node_get(run->record, map);
  if (!files || files->kind != TRM_NODE_MAP)
    return repeat_refuse_damaged(run, "map", map);
  for (const struct trm_node *file = files->first; file; file = file->next)
    if (!repeat_text(file, "file")[0] || !trm_node_get(file, digest))
      return repeat_refuse_damaged(run, "file and digest", file->key);
  return TRM_OK;
}

static int repeat_check_record(const struct repeat_run *run)
{
  static const char *const texts[] = {"version", "revision", "config_sha256", "folder", "shares"};
  static const char *const counts[] = {"ranks", "nodes", "threads"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!repeat_record_text(run, texts[i])[0])
      return repeat_refuse_damaged(run, "text", texts[i]);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const double count = trm_node_number(trm_node_get(run->record, counts[i]), 0);
    if (!(count >= 1 && count <= INT_MAX && count == (int)count))
      return repeat_refuse_damaged(run, "number", counts[i]);
  }
  const struct trm_node *software = trm_node_get(run->record, "software");
  if (!software || software->kind != TRM_NODE_MAP)
    return repeat_refuse_damaged(run, "map", "software");
  TRM_CHECK(repeat_check_files(run, "data", "digest"));
  return repeat_check_files(run, "files", "sha256");
}

static int repeat_read_config(struct repeat_run *run)
{
  char *path = trm_format("%s/config.yaml", run->dir), hex[65];
  int status = trm_sha256_file(path, hex);
  if (status == TRM_OK && strcmp(hex, repeat_record_text(run, "config_sha256")) != 0)
    status = trm_error(TRM_USAGE, "%s: changed since the run: its SHA-256 is %.16s..., in record.json %.16s...", path,
                       hex, repeat_record_text(run, "config_sha256"));
  if (status == TRM_OK)
    status = trm_options_read(&run->options, path);
  trm_free(path);
  return status == TRM_OK ? TRM_OK : TRM_USAGE;
}

int repeat_run_open(struct repeat_run *run, const char *dir)
{
  *run = (struct repeat_run){0};
  trm_options_default(&run->options);
  char *real = realpath(dir, NULL);
  if (!real)
    return trm_error(TRM_USAGE, "%s: there is no run: %s", dir, strerror(errno));
  run->dir = trm_strdup(real);
  free(real);
  TRM_CHECK(repeat_read(run->dir, "record.json", &run->record));
  TRM_CHECK(repeat_check_record(run));
  TRM_CHECK(repeat_read_config(run));
  TRM_CHECK(repeat_read(run->dir, "summary.json", &run->summary));
  const char *status = repeat_text(run->summary, "status");
  if (strcmp(status, "done") != 0 && strcmp(status, "early-stop") != 0 && strcmp(status, "failed") != 0)
    return trm_error(TRM_USAGE, "%s: the run has no end to compare with: its status is \"%s\"", dir, status);
  run->simulated = run->options.simulate.workers > 0;
  char *metrics = trm_format("%s/metrics.jsonl", run->dir);
  const int readable = access(metrics, R_OK) == 0 ? TRM_OK : trm_error(TRM_USAGE, "%s: %s", metrics, strerror(errno));
  trm_free(metrics);
  return readable;
}

void repeat_run_close(struct repeat_run *run)
{
  trm_node_free(run->record);
  trm_node_free(run->summary);
  trm_options_free(&run->options);
  trm_free(run->dir);
}

/* -- may it be repeated */

static int repeat_check_data(const char *split, const char *file, const char *digest)
{
  char now[65];
  if (trm_data_digest(file, now) != TRM_OK)
    return trm_error_context(TRM_USAGE, "the %s split cannot be read", split);
  if (strcmp(now, digest) == 0)
    return TRM_OK;
  return trm_error(TRM_USAGE, "%s: not the data of the run (%s split): its digest is %.16s..., in record.json %.16s...",
                   file, split, now, digest);
}

static int repeat_check_file(const char *option, const char *file, const char *sha256)
{
  char now[65];
  if (trm_sha256_file(file, now) != TRM_OK)
    return TRM_USAGE;
  if (strcmp(now, sha256) == 0)
    return TRM_OK;
  return trm_error(TRM_USAGE, "%s: %s: changed since the run: its SHA-256 is %.16s..., in record.json %.16s...", option,
                   file, now, sha256);
}

int repeat_check_inputs(const struct repeat_run *run)
{
  const char *version = repeat_record_text(run, "version");
  if (strcmp(version, PACKAGE_VERSION) != 0)
    return trm_error(TRM_USAGE, "%s: the run was made by version %s, and this is %s", run->dir, version,
                     PACKAGE_VERSION);
  for (const struct trm_node *f = trm_node_get(run->record, "data")->first; f; f = f->next)
    TRM_CHECK(repeat_check_data(f->key, repeat_text(f, "file"), repeat_text(f, "digest")));
  for (const struct trm_node *f = trm_node_get(run->record, "files")->first; f; f = f->next)
    TRM_CHECK(repeat_check_file(f->key, repeat_text(f, "file"), repeat_text(f, "sha256")));
  return TRM_OK;
}

/* Asynchronous ranks of a real network make their updates in an order of its own. */
int repeat_check_method(struct repeat_run *run)
{
  const struct trm_options *o = &run->options;
  const struct trm_strategy_ops *strategy = trm_strategy_find(o->strategy.name);
  if (!strategy)
    return TRM_USAGE;
  if (!run->simulated && strcmp(repeat_record_text(run, "shares"), "measured") == 0)
    return trm_error(TRM_USAGE, "%s: cannot be repeated: parallel.shares=measured, and real speeds are others in each "
                     "run", run->dir);
  if (run->simulated || repeat_record_number(run, "ranks") == 1 || !strategy->next_batch)
    return TRM_OK;
  run->replays = o->run.record[0] != '\0';
  if (run->replays)
    return TRM_OK;
  return trm_error(TRM_USAGE, "%s: cannot be repeated: strategy.name=%s on %d real ranks, whose updates came in an "
                   "order that was not recorded (run.record; on a virtual network, simulate.workers, it follows from "
                   "the configuration)", run->dir, o->strategy.name, repeat_record_number(run, "ranks"));
}

void repeat_warn_of_software(const struct repeat_run *first, const struct repeat_run *second)
{
  const char *was = repeat_record_text(first, "revision"), *is = repeat_record_text(second, "revision");
  if (strcmp(was, is) != 0)
    trm_warn("revision: \"%s\" in the run, \"%s\" now", was, is);
  for (const struct trm_node *node = trm_node_get(first->record, "software")->first; node; node = node->next) {
    char *key = trm_format("software.%s", node->key);
    was = repeat_record_text(first, key);
    is = repeat_record_text(second, key);
    if (strcmp(was, is) != 0)
      trm_warn("%s: \"%s\" in the run, \"%s\" now", node->key, was, is);
    trm_free(key);
  }
}
