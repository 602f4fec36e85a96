#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "train/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/audit.h"
#include "core/ledger.h"
#include "core/memory.h"
#include "core/private_files.h"
#include "core/sha256.h"
#include "core/status.h"

/* Removes a file of an earlier run, if it is there. */
static int run_dir_remove_file(const char *folder, const char *name)
{
  char *file = trm_format("%s/%s", folder, name);
  const int status = unlink(file) == 0 || errno == ENOENT
                       ? TRM_OK : trm_error(TRM_FAILED, "%s: cannot be removed: %s", file, strerror(errno));
  trm_free(file);
  return status;
}

/* Removes the checkpoints of an earlier run: what stayed would be resumed. */
static int run_dir_remove_checkpoints(const char *folder)
{
  DIR *d = opendir(folder);
  if (!d && errno != ENOENT)
    return trm_error(TRM_FAILED, "%s: cannot be listed: %s", folder, strerror(errno));
  int status = TRM_OK;
  for (struct dirent *e; d && status == TRM_OK && (e = readdir(d));) {
    const size_t n = strlen(e->d_name);
    if ((n > 3 && strcmp(e->d_name + n - 3, ".h5") == 0) || (n > 7 && strcmp(e->d_name + n - 7, ".h5.sig") == 0))
      status = run_dir_remove_file(folder, e->d_name);
  }
  if (d)
    closedir(d);
  return status;
}

/* Removes the files of an earlier run and no others. */
static int run_dir_remove_run(const char *path)
{
  static const char *const files[] = {"config.yaml", "record.json", "metrics.jsonl", "summary.json",
                                      "staleness.json"};
  char *folder = trm_format("%s/checkpoints", path);
  int status = run_dir_remove_checkpoints(folder);
  for (size_t i = 0; i < sizeof files / sizeof *files && status == TRM_OK; i++)
    status = run_dir_remove_file(path, files[i]);
  trm_event_file_remove(path);
  trm_free(folder);
  return status;
}

/* True for the name under which a file of a run is written, which a killed process leaves. Others may be the user's. */
static bool run_dir_is_unfinished(const char *name)
{
  static const char *const files[] = {"config.yaml", "record.json", "metrics.jsonl", "summary.json", "staleness.json",
                                      "lease.", "step-", "best.h5", "last"};
  const size_t n = strlen(name);
  bool ours = false;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    ours |= strncmp(name, files[i], strlen(files[i])) == 0;
  return ours && n > 4 && strcmp(name + n - 4, ".new") == 0;
}

static void run_dir_remove_unfinished(const char *folder)
{
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));)
    if (run_dir_is_unfinished(e->d_name)) {
      char *file = trm_format("%s/%s", folder, e->d_name);
      unlink(file);
      trm_free(file);
    }
  if (d)
    closedir(d);
}

/* Removes from metrics.jsonl the lines of later steps, those with test scores, which the resumed run computes at its
 * end, and a last line that a killed job left incomplete. */
static int run_dir_drop_metrics_after(const char *path, int64_t step)
{
  FILE *in = fopen(path, "r");
  if (!in)
    return errno == ENOENT ? TRM_OK : trm_error(TRM_FAILED, "%s: cannot be read: %s", path, strerror(errno));
  struct atomic_file out;
  int status = atomic_file_open(&out, path);
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t n; status == TRM_OK && (n = getline(&line, &capacity, in)) > 0;) {
    long long at;
    if (line[n - 1] == '\n' && sscanf(line, "{\"step\":%lld", &at) == 1 && at <= step &&
        !strstr(line, "\"test_loss\""))
      fputs(line, out.stream);
  }
  const bool read = !ferror(in);
  const int reason = errno;
  free(line);
  fclose(in);
  if (status == TRM_OK)
    status = atomic_file_close(&out, read && !ferror(out.stream));
  return read ? status : trm_error(TRM_FAILED, "%s: cannot be read: %s", path, strerror(reason));
}

bool trm_run_dir_is_finished(const char *path, uint64_t *steps, bool *early)
{
  char *name = trm_format("%s/summary.json", path);
  struct trm_node *summary = NULL;
  const bool read = access(name, F_OK) == 0 && trm_document_read(name, &summary) == TRM_OK;
  const struct trm_node *status = read ? trm_node_get(summary, "status") : NULL;
  const double count = read ? trm_node_number(trm_node_get(summary, "steps"), 0) : 0;
  *steps = count > 0 ? (uint64_t)count : 0;
  const struct trm_node *reason = read ? trm_node_get(summary, "reason") : NULL;
  *early = (status && status->text && strcmp(status->text, "early-stop") == 0) ||
           (reason && reason->text && strcmp(reason->text, "train.seconds") == 0);
  const bool finished = *early || (status && status->text && strcmp(status->text, "done") == 0);
  trm_node_free(summary);
  trm_free(name);
  return finished;
}

/* Prepares the files of a run that is resumed after a step: the results of an earlier process are not those of this
 * one. */
static int run_dir_resume(const char *path, const char *metrics, int64_t step)
{
  TRM_CHECK(run_dir_remove_file(path, "summary.json"));
  return run_dir_drop_metrics_after(metrics, step);
}

int trm_run_dir_write_config(const struct trm_run_dir *dir, const struct trm_options *options)
{
  char *name = trm_format("%s/config.yaml", dir->path);
  struct atomic_file file;
  int status = atomic_file_open(&file, name);
  if (status == TRM_OK) {
    const bool written = trm_options_write(options, file.stream, "trireme " PACKAGE_VERSION) == TRM_OK;
    status = atomic_file_close(&file, written && !ferror(file.stream));
  }
  trm_free(name);
  return status;
}

int trm_run_dir_take(struct trm_run_dir *dir, const struct trm_run_options *options, double wait_s)
{
  const char *path = options->dir;
  *dir = (struct trm_run_dir){.path = trm_strdup(path), .group = options->group, .made = access(path, F_OK) != 0};
  TRM_CHECK(trm_make_directories(path));
  TRM_CHECK(trm_private_files_share(path, dir->group));
  TRM_CHECK(trm_lease_take(path, wait_s, &dir->lease));
  char *checkpoints = trm_format("%s/checkpoints", path);
  run_dir_remove_unfinished(path);
  run_dir_remove_unfinished(checkpoints);
  trm_free(checkpoints);
  return TRM_OK;
}

int trm_run_dir_hash_config(const struct trm_run_dir *dir, const struct trm_options *options, char hex[65])
{
  char *text = NULL;
  size_t bytes = 0;
  struct trm_sha256 sha;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream || trm_options_write(options, stream, "trireme " PACKAGE_VERSION) != TRM_OK || fclose(stream) != 0)
    return trm_error(TRM_FAILED, "%s: no memory for the configuration", dir->path);
  trm_sha256_begin(&sha);
  trm_sha256_add(&sha, text, bytes);
  trm_sha256_end(&sha, hex);
  free(text);
  return TRM_OK;
}

/* Adds the begin of the run, or of its continuation, to the audit log. */
static int run_dir_audit_start(const struct trm_run_dir *dir, const struct trm_options *options, uint64_t step)
{
  char config[65];
  TRM_CHECK(trm_run_dir_hash_config(dir, options, config));
  return trm_audit_append(dir->path, &(struct trm_audit_event){
    .event = "start", .step = step, .data = dir->data_digest, .config = config});
}

int trm_run_dir_audit_checkpoint(const struct trm_run_dir *dir, const char *file, uint64_t step)
{
  return trm_audit_append(dir->path, &(struct trm_audit_event){.event = "checkpoint", .step = step, .file = file});
}

bool trm_run_dir_has_events(const struct trm_options *options)
{
  return strcmp(options->log.tensorboard, "no") != 0 && options->log.tensorboard[0] != '\0';
}

/* Opens the event file of log.tensorboard. */
static int run_dir_open_events(struct trm_run_dir *dir, const struct trm_options *options, int64_t resume_step)
{
  const char *where = options->log.tensorboard;
  char *run = realpath(dir->path, NULL);
  const char *name = run ? strrchr(run, '/') : NULL;
  char *folder = strcmp(where, "yes") == 0 ? trm_strdup(dir->path) : trm_format("%s%s", where, name ? name : "/run");
  int status = TRM_OK;
  if (trm_run_dir_has_events(options))
    status = trm_event_file_open(&dir->events, folder, resume_step < 0 ? -1 : resume_step + 1);
  trm_free(folder);
  free(run);
  return status;
}

int trm_run_dir_open(struct trm_run_dir *dir, const struct trm_options *options, int64_t resume_step)
{
  char *checkpoints = trm_format("%s/checkpoints", dir->path);
  char *metrics = trm_format("%s/metrics.jsonl", dir->path);
  const bool holds_run = access(metrics, F_OK) == 0;
  int status = TRM_OK;
  if (resume_step >= 0)
    status = run_dir_resume(dir->path, metrics, resume_step);
  else if (holds_run && options->run.overwrite)
    status = run_dir_remove_run(dir->path);
  else if (holds_run)
    status = trm_error(TRM_USAGE,
                       "run.dir: %s holds a run already; choose another run.dir, resume it (run.resume=auto) or "
                       "replace it (run.overwrite=yes)",
                       dir->path);
  if (status == TRM_OK) {
    trm_ledger_folder_remove(dir->path); /* of an earlier job */
    status = trm_make_directories(checkpoints);
  }
  if (status == TRM_OK)
    status = trm_private_files_share(checkpoints, dir->group);
  if (status == TRM_OK)
    status = trm_run_dir_write_config(dir, options);
  if (status == TRM_OK && !(dir->metrics = fopen(metrics, "a")))
    status = trm_error(TRM_FAILED, "%s: cannot write: %s", metrics, strerror(errno));
  if (status == TRM_OK)
    status = run_dir_open_events(dir, options, resume_step);
  if (status == TRM_OK)
    status = run_dir_audit_start(dir, options, resume_step > 0 ? (uint64_t)resume_step : 0);
  trm_free(checkpoints);
  trm_free(metrics);
  return status;
}

static void run_dir_begin_line(struct trm_json *json, struct trm_run_dir *dir, const struct trm_progress_point *at)
{
  dir->line = dir->events.stream ? open_memstream(&dir->text, &dir->bytes) : NULL;
  trm_json_open(json, dir->line ? dir->line : dir->metrics);
  trm_json_object(json, NULL);
  trm_json_integer(json, "step", (int64_t)at->step);
  trm_json_integer(json, "epoch", (int64_t)at->epoch);
  trm_json_integer(json, "samples", (int64_t)at->samples);
  trm_json_number(json, "wall_s", at->wall_s);
  trm_json_number(json, "train_s", at->train_s);
  if (!isnan(at->virtual_s))
    trm_json_number(json, "virtual_s", at->virtual_s);
}

/* Ends the text of a line and adds it to metrics.jsonl and to the events. */
static int run_dir_add_events(struct trm_run_dir *dir)
{
  struct trm_node *line = NULL;
  if (fclose(dir->line) != 0)
    return trm_error(TRM_FAILED, "%s/metrics.jsonl: no memory for a line", dir->path);
  fwrite(dir->text, 1, dir->bytes, dir->metrics);
  int status = trm_document_parse(dir->text, dir->bytes, "log.tensorboard", &line);
  if (status == TRM_OK)
    status = trm_event_file_add_line(&dir->events, line, NAN);
  if (status == TRM_OK)
    status = trm_event_file_flush(&dir->events);
  trm_node_free(line);
  free(dir->text);
  dir->text = NULL;
  return status;
}

static int run_dir_end_line(struct trm_json *json, struct trm_run_dir *dir)
{
  trm_json_end(json);
  if (dir->line)
    TRM_CHECK(run_dir_add_events(dir));
  const enum trm_ledger_operation before = trm_ledger_enter(&(struct trm_ledger_call){.operation = TRM_LEDGER_WRITE});
  const bool written = fflush(dir->metrics) == 0;
  trm_ledger_leave(before);
  if (!written)
    return trm_error(TRM_FAILED, "%s/metrics.jsonl: cannot write: %s", dir->path, strerror(errno));
  return TRM_OK;
}

int trm_run_dir_log_train(struct trm_run_dir *dir, const struct trm_progress_point *at, double loss, double accuracy,
                          double rate)
{
  struct trm_json json;
  TRM_CHECK(trm_lease_check(dir->lease));
  run_dir_begin_line(&json, dir, at);
  trm_json_number(&json, "loss", loss);
  if (!isnan(accuracy))
    trm_json_number(&json, "accuracy", accuracy);
  trm_json_number(&json, "lr", rate);
  return run_dir_end_line(&json, dir);
}

/* Writes PREFIX_KEY: value. */
static void run_dir_write_figure(struct trm_json *json, const char *prefix, const char *key, double value)
{
  char name[64];
  snprintf(name, sizeof name, "%s_%s", prefix, key);
  trm_json_number(json, name, value);
}

static void run_dir_write_score(struct trm_json *json, const char *prefix, const struct trm_score *score, bool tokens,
                                double token_bytes)
{
  run_dir_write_figure(json, prefix, "loss", score->loss);
  run_dir_write_figure(json, prefix, "accuracy", score->accuracy);
  if (!tokens)
    return;
  const double bits = score->loss / log(2);
  run_dir_write_figure(json, prefix, "perplexity", exp(score->loss));
  run_dir_write_figure(json, prefix, "bits", bits);
  if (token_bytes > 0)
    run_dir_write_figure(json, prefix, "bits_per_byte", bits / token_bytes);
}

static void run_dir_write_quantiles(struct trm_json *json, const struct trm_staleness *total)
{
  static const struct {
    const char *key;
    double fraction;
  } quantile[] = {{"staleness_p50", 0.5}, {"staleness_p95", 0.95}, {"staleness_max", 1}};
  trm_json_number(json, "staleness_mean", trm_staleness_mean(total));
  for (size_t i = 0; i < sizeof quantile / sizeof *quantile; i++)
    trm_json_number(json, quantile[i].key,
                    total->updates > 0 ? (double)trm_staleness_quantile(total, quantile[i].fraction) : NAN);
}

int trm_run_dir_staleness_begin(struct trm_run_dir *dir)
{
  dir->staleness_path = trm_format("%s/staleness.json", dir->path);
  const int status = atomic_file_open(&dir->staleness_file, dir->staleness_path);
  if (status != TRM_OK) {
    trm_free(dir->staleness_path);
    dir->staleness_path = NULL;
    return status;
  }
  trm_json_open(&dir->staleness, dir->staleness_file.stream);
  trm_json_object(&dir->staleness, NULL);
  trm_json_list(&dir->staleness, "ranks");
  return TRM_OK;
}

void trm_run_dir_staleness_add(struct trm_run_dir *dir, int rank, const struct trm_staleness *one)
{
  struct trm_json *json = &dir->staleness;
  if (!dir->staleness_path || one->updates == 0)
    return;
  trm_json_object(json, NULL);
  trm_json_integer(json, "rank", rank);
  trm_json_integer(json, "updates", (int64_t)one->updates);
  run_dir_write_quantiles(json, one);
  trm_json_list(json, "histogram");
  for (uint64_t value = 0; value < TRM_STALENESS_BINS && value <= one->max; value++)
    trm_json_integer(json, NULL, (int64_t)one->count[value]);
  trm_json_end(json);
  trm_json_end(json);
}

int trm_run_dir_staleness_end(struct trm_run_dir *dir)
{
  if (!dir->staleness_path)
    return TRM_OK;
  trm_json_end(&dir->staleness);
  trm_json_end(&dir->staleness);
  const int status = atomic_file_close(&dir->staleness_file, !ferror(dir->staleness_file.stream));
  trm_free(dir->staleness_path);
  dir->staleness_path = NULL;
  return status;
}

int trm_run_dir_log_evaluation(struct trm_run_dir *dir, const struct trm_progress_point *at, enum trm_split split,
                               const struct trm_dataset *dataset, const struct trm_score *score,
                               const struct trm_staleness *total, const double *mean_of_rank, int ranks)
{
  struct trm_json json;
  TRM_CHECK(trm_lease_check(dir->lease));
  run_dir_begin_line(&json, dir, at);
  run_dir_write_score(&json, trm_split_name(split), score, dataset->spec.tokens, dataset->token_bytes);
  if (total)
    run_dir_write_quantiles(&json, total);
  if (total && dir->events.stream)
    TRM_CHECK(trm_event_file_add_histogram(&dir->events, "staleness/updates", (int64_t)at->step, NAN, total->count,
                                           TRM_STALENESS_BINS));
  while (ranks > 0 && isnan(mean_of_rank[ranks - 1]))
    ranks--;
  if (ranks > 0) {
    trm_json_list(&json, "staleness_workers");
    for (int i = 0; i < ranks; i++)
      trm_json_number(&json, NULL, mean_of_rank[i]);
    trm_json_end(&json);
  }
  return run_dir_end_line(&json, dir);
}

/* What the simulation has cost. */
static void run_dir_write_costs(struct trm_json *json, struct trm_comm *comm)
{
  struct trm_comm_costs costs;
  comm->ops->costs(comm, &costs);
  trm_json_object(json, "simulation");
  trm_json_integer(json, "events", (int64_t)costs.events);
  trm_json_integer(json, "switches", (int64_t)costs.switches);
  trm_json_integer(json, "messages", (int64_t)costs.messages);
  trm_json_integer(json, "bytes", (int64_t)costs.bytes);
  trm_json_number(json, "cpu_s", costs.cpu_s);
  trm_json_number(json, "gradients_cpu_s", costs.compute_s);
  trm_json_number(json, "owners_cpu_s", costs.calls_s);
  trm_json_end(json);
}

static void run_dir_write_over_ranks(struct trm_json *json, const char *key, const struct trm_over_ranks *figure)
{
  trm_json_object(json, key);
  trm_json_number(json, "min", figure->min);
  trm_json_number(json, "mean", figure->mean);
  trm_json_number(json, "max", figure->max);
  trm_json_integer(json, "max_rank", figure->max_rank);
  trm_json_end(json);
}

/* Seconds in steps, over the ranks. */
static void run_dir_write_rank_times(struct trm_json *json, const struct trm_result *result)
{
  trm_json_object(json, "seconds_over_ranks");
  run_dir_write_over_ranks(json, "compute", &result->compute);
  run_dir_write_over_ranks(json, "wait", &result->wait);
  run_dir_write_over_ranks(json, "comm", &result->comm);
  trm_json_end(json);
  if (result->slowest.rank < 0)
    return;
  trm_json_object(json, "slowest");
  trm_json_integer(json, "rank", result->slowest.rank);
  trm_json_text(json, "host", result->slowest.host);
  trm_json_number(json, "computed_s", result->slowest.compute_s);
  trm_json_number(json, "others_s", result->slowest.others_s);
  trm_json_number(json, "cost_s", result->slowest.cost_s);
  trm_json_end(json);
}

/* A step of a rank, in the mean. */
static void run_dir_write_between_nodes(struct trm_json *json, const struct trm_wire_means *means)
{
  trm_json_object(json, "between_nodes");
  trm_json_number(json, "bytes", means->bytes);
  trm_json_number(json, "wire_s", means->wire_s);
  trm_json_number(json, "hidden_s", means->hidden_s);
  trm_json_number(json, "exposed_s", means->exposed_s);
  trm_json_end(json);
}

int trm_run_dir_write_summary(const struct trm_run_dir *dir, const struct trm_options *options,
                              const struct trm_modules *modules, const struct trm_model *model,
                              const struct trm_result *result, const struct trm_staleness *total)
{
  TRM_CHECK(trm_lease_check(dir->lease));
  char *path = trm_format("%s/summary.json", dir->path);
  char *layout = trm_format("data %d x pipeline %d x tensor %d%s", modules->grid->size[TRM_AXIS_DATA],
                            modules->grid->size[TRM_AXIS_PIPELINE], modules->grid->size[TRM_AXIS_TENSOR],
                            (const char *const[]){"", ", zero 1", ", zero 2", ", zero 3"}[options->parallel.zero]);
  const bool tokens = model->spec.tokens;
  struct atomic_file file;
  int status = atomic_file_open(&file, path);
  if (status == TRM_OK) {
    struct trm_json json;
    trm_json_open(&json, file.stream);
    trm_json_object(&json, NULL);
    trm_json_text(&json, "version", PACKAGE_VERSION);
    trm_json_text(&json, "status", result->status);
    if (result->reason)
      trm_json_text(&json, "reason", result->reason);
    trm_json_text(&json, "model", model->text);
    trm_json_integer(&json, "parameters", (int64_t)trm_model_size(model));
    trm_json_integer(&json, "trained_parameters", (int64_t)result->trained_parameters);
    trm_json_number(&json, "train_flop", result->train_flop);
    trm_json_integer(&json, "gradient_bytes", (int64_t)result->gradient_bytes);
    trm_json_integer(&json, "ranks", modules->comm->size);
    trm_json_integer(&json, "threads", modules->device->threads);
    trm_json_text(&json, "layout", layout);
    trm_json_text(&json, "strategy", modules->strategy->name);
    trm_json_integer(&json, "seed", options->run.seed);
    trm_json_integer(&json, "lanes", options->run.lanes);
    trm_json_text(&json, "shares", options->parallel.shares);
    trm_json_integer(&json, "epochs", (int64_t)result->epochs);
    trm_json_integer(&json, "steps", (int64_t)result->steps);
    trm_json_integer(&json, "samples", (int64_t)result->samples);
    trm_json_number(&json, "wall_s", result->wall_s);
    if (!isnan(result->virtual_s))
      trm_json_number(&json, "virtual_s", result->virtual_s);
    trm_json_number(&json, "samples_per_s", result->samples_per_s);
    if (!isnan(result->joules))
      trm_json_number(&json, "joules", result->joules);
    if (!isnan(result->gpu_joules))
      trm_json_number(&json, "gpu_joules", result->gpu_joules);
    trm_json_number(&json, "train_s", result->train_s);
    trm_json_number(&json, "comm_s", result->comm_s);
    trm_json_number(&json, "wait_s", result->wait_s);
    run_dir_write_rank_times(&json, result);
    if (result->between_nodes.bytes > 0)
      run_dir_write_between_nodes(&json, &result->between_nodes);
    trm_json_number(&json, "final_train_loss", result->final_train_loss);
    if (result->consensus > 0)
      trm_json_number(&json, "consensus_distance", result->consensus);
    if (!isnan(result->conflicts))
      trm_json_number(&json, "conflicts", result->conflicts);
    run_dir_write_score(&json, "validation", &result->validation, tokens, result->validation_token_bytes);
    run_dir_write_score(&json, "best_validation", &result->best_validation, false, 0);
    trm_json_integer(&json, "best_step", (int64_t)result->best_step);
    run_dir_write_score(&json, "test", &result->test, tokens, result->test_token_bytes);
    for (int i = 0; i < TRM_MEASURES; i++)
      if (result->measures.applies[i])
        run_dir_write_figure(&json, "test", trm_measure_texts[i].key, result->measures.value[i]);
    if (options->run.verify_every > 0) {
      trm_json_integer(&json, "verified_steps", (int64_t)result->verified_steps);
      trm_json_integer(&json, "transient_faults", (int64_t)result->transient_faults);
    }
    if (!isnan(result->bubble)) {
      trm_json_number(&json, "bubble", result->bubble);
      trm_json_number(&json, "bubble_theory", result->bubble_theory);
    }
    trm_json_integer(&json, "planned_bytes", (int64_t)result->planned_bytes);
    trm_json_integer(&json, "max_resident_bytes", (int64_t)result->max_resident_bytes);
    if (result->weights_sha256[0])
      trm_json_text(&json, "weights_sha256", result->weights_sha256);
    else
      trm_json_number(&json, "weights_sha256", NAN);
    if (total)
      run_dir_write_quantiles(&json, total);
    if (modules->comm->ops->costs)
      run_dir_write_costs(&json, modules->comm);
    trm_json_end(&json);
    status = atomic_file_close(&file, !ferror(file.stream));
  }
  trm_free(layout);
  trm_free(path);
  TRM_CHECK(status);
  return trm_audit_append(dir->path, &(struct trm_audit_event){
    .event = "end", .step = result->steps, .status = result->status,
    .weights_sha256 = result->weights_sha256[0] ? result->weights_sha256 : NULL});
}

int trm_run_dir_write_stalled(const char *path, const char *reason, int ranks, uint64_t step)
{
  char *name = trm_format("%s/summary.json", path);
  struct atomic_file file;
  int status = atomic_file_open(&file, name);
  if (status == TRM_OK) {
    struct trm_json json;
    trm_json_open(&json, file.stream);
    trm_json_object(&json, NULL);
    trm_json_text(&json, "version", PACKAGE_VERSION);
    trm_json_text(&json, "status", "stalled");
    trm_json_text(&json, "reason", reason);
    trm_json_integer(&json, "ranks", ranks);
    trm_json_integer(&json, "steps", (int64_t)step);
    trm_json_end(&json);
    status = atomic_file_close(&file, !ferror(file.stream));
  }
  if (status == TRM_OK)
    status = trm_audit_append(path, &(struct trm_audit_event){.event = "end", .step = step, .status = "stalled"});
  trm_free(name);
  return status;
}

void trm_run_dir_close(struct trm_run_dir *dir)
{
  if (dir->metrics)
    fclose(dir->metrics);
  trm_event_file_close(&dir->events);
  trm_lease_return(dir->lease);
  if (dir->made)
    rmdir(dir->path);
  trm_free(dir->path);
  *dir = (struct trm_run_dir){0};
}
