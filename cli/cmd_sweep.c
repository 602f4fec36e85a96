/* trireme sweep: the combinations of listed values of options, as runs, and what they show. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/run_child.h"
#include "cli/sweep.h"
#include "core/atomic_file.h"
#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/private_files.h"
#include "core/status.h"
#include "mpi/real.h"

static const char usage[] =
  "usage: trireme sweep CONFIG.yaml [--section.key=LIST ...] [--tune=KEY[,KEY]] [flag ...]\n"
  "       trireme sweep DIR [flag ...]          goes on with a sweep that began\n\n"
  "Runs `trireme train` for every combination of the listed values, several at a time, each in\n"
  "DIR/runs/NAME with one thread. A LIST is 0.1,0.2,0.4, or 1..5 of whole numbers, or A; B of texts\n"
  "(strategy.name: A,B). The runs stay, and those that have ended are not run again: after a kill\n"
  "the same command goes on.\n\n"
  "Each combination but run.seed is a row of the table. Values of the options of --tune are chosen\n"
  "for each row by the mean validation accuracy (the loss where there is none) over --tune-seeds;\n"
  "the runs with all values of run.seed follow, and their test accuracy is in the table. Writes\n"
  "DIR/results.csv and table.md (means, standard deviations), DIR/runs.csv (every run), and prints\n"
  "the table. Runs that failed, took too long or diverged (the final training loss is above twice\n"
  "the first, or a loss was not finite) are counted there, and means are of the others. Of settings,\n"
  "those with the most runs that are done come first. A best value at the edge of its grid is a\n"
  "warning.\n\n"
  "  --dir=DIR           folder of the sweep (sweeps/latest)\n"
  "  --variants=FILE     lines `name | --key=value --key=value`: a row for each, with these options; of the\n"
  "                      options of --tune a line may have its own LIST\n"
  "  --tune=KEY[,KEY]    options whose value is chosen\n"
  "  --tune-seeds=LIST   run.seed of the runs that choose (101)\n"
  "  --search=random     tries --trials=N (20) settings of the tuned options, drawn by --search-seed\n"
  "                      (1): from lists, or from ranges --optim.lr=0.001..1 (uniform in the logarithm)\n"
  "  --search=halving    tries the settings with a part of train.steps (or epochs), and the best third\n"
  "                      of them with three times as much, until the whole is reached\n"
  "  --baseline=KEY=VALUE[,KEY=VALUE]\n"
  "                      rows with these values are compared with: mean difference and p-value of a\n"
  "                      paired t-test over the seeds, two-sided\n"
  "  --figures=KEY[,KEY] columns for figures of the runs' summary.json (train_s, between_nodes.bytes, ...);\n"
  "                      target.KEY: of the first evaluation that reaches --target, of metrics.jsonl\n"
  "  --target=A          a validation accuracy, 0.9: for target.step, target.samples, target.train_s\n"
  "  --x=KEY             writes DIR/picture.svg too: test results over this option, a line for each other row\n"
  "  --y=FIGURE          those of a column of --figures in place of them\n"
  "  --jobs=N            runs at a time (the number of cores; with --launch 1)\n"
  "  --time-limit=S      ends a run after S seconds\n"
  "  --retry             runs those that failed or took too long again\n"
  "  --launch=WORDS      puts these words before each run: --launch=\"mpiexec -n 4\"\n"
  "  --collect           runs nothing: results of what has ended\n"
  "  --slurm             runs nothing: writes DIR/task.sbatch and DIR/submit.sh, which submits the runs\n"
  "                      as job arrays; --collect is their last job\n"
  "  --task=N            runs the N-th run alone, from 0\n\n"
  "  trireme sweep config.yaml --optim.lr=0.1,0.2,0.4 --run.seed=1..5\n"
  "  trireme sweep config.yaml --strategy.name=sync,asgd --optim.lr=0.05,0.1,0.2,0.4 --tune=optim.lr \\\n"
  "    --run.seed=1..5 --baseline=strategy.name=sync --dir=sweeps/methods\n";

struct sweep_flags {
  const char *dir, *variants, *tune, *tune_seeds, *baseline, *figures, *x, *y, *launch;
  enum sweep_search search;
  int64_t trials, search_seed, jobs, task;
  double target, limit_s;
  bool retry, collect, slurm;
};
#define AT(field) offsetof(struct sweep_flags, field)
static const char *const searches[] = {"grid", "random", "halving", NULL};
static const struct trm_option flags[] = {
  {"dir", TRM_OPTION_TEXT, AT(dir), NULL, NO_RANGE},
  {"variants", TRM_OPTION_TEXT, AT(variants), NULL, NO_RANGE},
  {"figures", TRM_OPTION_TEXT, AT(figures), NULL, NO_RANGE},
  {"target", TRM_OPTION_REAL, AT(target), "0", RANGE(0, 1)},
  {"x", TRM_OPTION_TEXT, AT(x), NULL, NO_RANGE},
  {"y", TRM_OPTION_TEXT, AT(y), NULL, NO_RANGE},
  {"tune", TRM_OPTION_TEXT, AT(tune), NULL, NO_RANGE},
  {"tune-seeds", TRM_OPTION_TEXT, AT(tune_seeds), "101", NO_RANGE},
  {"baseline", TRM_OPTION_TEXT, AT(baseline), NULL, NO_RANGE},
  {"launch", TRM_OPTION_TEXT, AT(launch), NULL, NO_RANGE},
  {"search", TRM_OPTION_CHOICE, AT(search), "grid", 0, 0, searches, NULL},
  {"trials", TRM_OPTION_INT, AT(trials), "20", RANGE(1, 10000)},
  {"search-seed", TRM_OPTION_INT, AT(search_seed), "1", RANGE(0, INT32_MAX)},
  {"jobs", TRM_OPTION_INT, AT(jobs), "0", RANGE(0, 4096)},
  {"task", TRM_OPTION_INT, AT(task), "-1", RANGE(-1, INT32_MAX)},
  {"time-limit", TRM_OPTION_REAL, AT(limit_s), "0", RANGE(0, 1e9)},
  {"retry", TRM_OPTION_BOOL, AT(retry), NULL, NO_RANGE},
  {"collect", TRM_OPTION_BOOL, AT(collect), NULL, NO_RANGE},
  {"slurm", TRM_OPTION_BOOL, AT(slurm), NULL, NO_RANGE},
  END_OF_FLAGS};

/* -- the definition: configuration, lists and flags, in DIR/config.yaml and DIR/sweep.json */

/* Adds the option NAME=LIST: an axis, or a value of every run. */
static int sweep_add_option(struct sweep *sweep, const struct sweep_flags *f, const char *word)
{
  const size_t length = strcspn(word, "=");
  char *name = trm_format("%.*s", (int)length, word);
  const bool tuned = sweep_is_listed(f->tune, name);
  struct sweep_axis axis;
  int status = sweep_axis_read(&axis, name, word + length + 1, tuned && f->search == SWEEP_RANDOM);
  for (int i = 0; i < sweep->axes && status == TRM_OK; i++)
    if (sweep->axis[i].row == axis.row)
      status = trm_error(TRM_USAGE, "sweep: option %s is given twice", name);
  if (status == TRM_OK && strcmp(name, "run.dir") == 0)
    status = trm_error(TRM_USAGE, "sweep: run.dir: each run has a folder in --dir");
  if (status == TRM_OK && tuned && axis.role == SWEEP_SEED)
    status = trm_error(TRM_USAGE, "sweep: --tune=%s: seeds are not chosen", f->tune);
  if (status == TRM_OK && axis.count == 1 && !axis.range && axis.role != SWEEP_SEED) {
    status = trm_options_set(&sweep->options, name, axis.value[0]);
    if (status == TRM_OK && tuned)
      status = trm_error(TRM_USAGE, "sweep: --tune=%s: %s has one value", f->tune, name);
    sweep_axis_free(&axis);
  } else if (status == TRM_OK && sweep->axes == SWEEP_MAX_AXES - 1) {
    status = trm_error(TRM_USAGE, "sweep: more than %d options with lists", SWEEP_MAX_AXES - 1);
    sweep_axis_free(&axis);
  } else if (status == TRM_OK) {
    axis.role = tuned ? SWEEP_TUNED : axis.role;
    sweep->axis[sweep->axes++] = axis;
  } else {
    sweep_axis_free(&axis);
  }
  trm_free(name);
  return status;
}

/* Moves the seeds to the end, or adds the configuration's. */
static int sweep_add_seeds(struct sweep *sweep)
{
  int at = 0;
  while (at < sweep->axes && sweep->axis[at].role != SWEEP_SEED)
    at++;
  if (at == sweep->axes) {
    char *seed = trm_format("%lld", (long long)sweep->options.run.seed);
    const int status = sweep_axis_read(&sweep->axis[sweep->axes++], "run.seed", seed, false);
    trm_free(seed);
    return status;
  }
  const struct sweep_axis seeds = sweep->axis[at];
  memmove(&sweep->axis[at], &sweep->axis[at + 1], (size_t)(sweep->axes - at - 1) * sizeof seeds);
  sweep->axis[sweep->axes - 1] = seeds;
  return TRM_OK;
}

static bool sweep_has_axis(const struct sweep *sweep, const char *name)
{
  for (int i = 0; i < sweep->axes; i++)
    if (strcmp(sweep->axis[i].row->name, name) == 0)
      return true;
  return false;
}

/* Each name of --tune must be an option with a list. */
static int sweep_check_tuned(const struct sweep *sweep, const struct sweep_flags *f)
{
  for (const char *at = f->tune; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    char *name = trm_format("%.*s", (int)strcspn(at, ","), at);
    const bool known = sweep_has_axis(sweep, name);
    if (!known)
      trm_error(TRM_USAGE, "sweep: --tune: the option %s has no list of values: --%s=LIST", name, name);
    trm_free(name);
    if (!known)
      return TRM_USAGE;
  }
  if (f->search == SWEEP_HALVING && (sweep_has_axis(sweep, "train.steps") || sweep_has_axis(sweep, "train.epochs")))
    return trm_error(TRM_USAGE, "sweep: --search=halving: train.steps and train.epochs have one value");
  for (int v = 0; f->search == SWEEP_HALVING && v < sweep->variants; v++)
    if (strstr(sweep->variant[v].options, "--train.steps=") || strstr(sweep->variant[v].options, "--train.epochs="))
      return trm_error(TRM_USAGE, "sweep: --search=halving: train.steps and train.epochs have one value");
  if (f->search == SWEEP_HALVING && (f->slurm || f->task >= 0))
    return trm_error(TRM_USAGE, "sweep: --search=halving: a job array does not know which settings are next; run the "
                     "sweep in one job");
  return TRM_OK;
}

static void sweep_warn_seeds(const struct sweep *sweep)
{
  const struct sweep_axis *seeds = &sweep->axis[sweep->axes - 1];
  for (int i = 0; i < seeds->count; i++)
    for (int k = 0; k < sweep->tune_seeds.count; k++)
      if (strcmp(seeds->value[i], sweep->tune_seeds.value[k]) == 0)
        trm_warn("sweep: seed %s chooses the settings, and is in the results: --tune-seeds", seeds->value[i]);
}

/* Names in sweep->figure are allocated. */
static int sweep_add_figures(struct sweep *sweep, const struct sweep_flags *f)
{
  sweep->target = f->target;
  for (const char *at = f->figures; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    if (sweep->figures == SWEEP_MAX_FIGURES)
      return trm_error(TRM_USAGE, "sweep: --figures: more than %d", SWEEP_MAX_FIGURES);
    char *name = trm_format("%.*s", (int)strcspn(at, ","), at);
    sweep->figure[sweep->figures++] = name;
    if (strncmp(name, "target.", strlen("target.")) == 0 && f->target <= 0)
      return trm_error(TRM_USAGE, "sweep: --figures=%s needs --target, a validation accuracy", name);
  }
  return sweep_check_picture(sweep, f->x, f->y);
}

/* Finishes the definition once all options are there. */
static int sweep_define(struct sweep *sweep, const struct sweep_flags *f)
{
  TRM_CHECK(sweep_finish_variants(sweep));
  if (sweep->owns > 0 && f->search == SWEEP_RANDOM)
    return trm_error(TRM_USAGE, "sweep: --variants: own values of tuned options need --search=grid or halving");
  TRM_CHECK(sweep_add_figures(sweep, f));
  TRM_CHECK(sweep_add_seeds(sweep));
  TRM_CHECK(sweep_check_tuned(sweep, f));
  TRM_CHECK(sweep_axis_read(&sweep->tune_seeds, "run.seed", f->tune_seeds, false));
  if (f->tune)
    sweep_warn_seeds(sweep);
  if (sweep->options.simulate.workers > 0 || sweep_has_axis(sweep, "simulate.workers"))
    sweep->options.simulate.threads = 1;
  TRM_CHECK(sweep_make_settings(sweep, f->search, (int)f->trials, (uint64_t)f->search_seed));
  return sweep_make_tune(sweep);
}

/* -- its folder */

/* Takes the sweep's folder for this process and its runs, which inherit the lock: it waits for runs of a sweep that was
 * killed. The lock ends with them. */
static int sweep_lock(const char *dir)
{
  char *path = trm_format("%s/lock", dir);
  const int file = open(path, O_RDWR | O_CREAT, 0666);
  int status = file < 0 ? trm_error(TRM_FAILED, "%s: %s", path, strerror(errno)) : TRM_OK;
  for (bool waits = false; status == TRM_OK && flock(file, LOCK_EX | LOCK_NB) != 0; waits = true) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      status = trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
    else if (run_child_wait(NULL, 0, 0.2))
      status = trm_error(TRM_STOPPED, "sweep: stopped by a signal");
    else if (!waits)
      trm_info("sweep: %s: another sweep, or runs of one that was killed, are at work there: waiting", dir);
  }
  trm_free(path);
  return status;
}

/* Returns the text of a file; NULL: there is none. free. */
static char *sweep_read_text(const char *path)
{
  FILE *in = fopen(path, "r");
  char *text = NULL;
  size_t capacity = 0;
  if (in && getdelim(&text, &capacity, '\0', in) < 0) {
    free(text);
    text = NULL;
  }
  if (in)
    fclose(in);
  return text;
}

/* Writes DIR/config.yaml; refuses a folder of runs with other options. */
static int sweep_write_config(const struct sweep *sweep)
{
  char *path = trm_format("%s/config.yaml", sweep->dir), *before = sweep_read_text(path), *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  int status = stream ? trm_options_write(&sweep->options, stream, "trireme sweep: options of all runs") : TRM_FAILED;
  if (stream && fclose(stream) != 0)
    status = trm_error(TRM_FAILED, "%s: no memory", path);
  struct atomic_file file;
  if (status == TRM_OK && before && strcmp(before, text) != 0) {
    status = trm_error(TRM_USAGE, "%s: the runs in this folder have other options: another --dir", path);
  } else if (status == TRM_OK && !before) {
    status = atomic_file_open(&file, path);
    if (status == TRM_OK) {
      fwrite(text, 1, bytes, file.stream);
      status = atomic_file_close(&file, !ferror(file.stream));
    }
  }
  free(before);
  free(text);
  trm_free(path);
  return status;
}

static int sweep_write_definition(const struct sweep *sweep, const struct sweep_flags *f, char *const *args, int count)
{
  char *path = trm_format("%s/sweep.json", sweep->dir);
  struct atomic_file file;
  struct trm_json json;
  int status = atomic_file_open(&file, path);
  if (status == TRM_OK) {
    trm_json_open(&json, file.stream);
    trm_json_object(&json, NULL);
    trm_json_list(&json, "options");
    for (int i = 0; i < count; i++)
      if (strncmp(args[i], "--", 2) == 0)
        trm_json_text(&json, NULL, args[i] + 2);
    trm_json_end(&json);
    trm_json_list(&json, "variants");
    for (int i = 0; i < sweep->variants; i++)
      trm_json_text(&json, NULL, sweep->variant[i].line);
    trm_json_end(&json);
    trm_json_text(&json, "figures", f->figures ? f->figures : "");
    trm_json_number(&json, "target", f->target);
    trm_json_text(&json, "x", f->x ? f->x : "");
    trm_json_text(&json, "y", f->y ? f->y : "");
    trm_json_text(&json, "tune", f->tune ? f->tune : "");
    trm_json_text(&json, "tune_seeds", f->tune_seeds);
    trm_json_text(&json, "search", searches[f->search]);
    trm_json_integer(&json, "trials", f->trials);
    trm_json_integer(&json, "search_seed", f->search_seed);
    trm_json_text(&json, "baseline", f->baseline ? f->baseline : "");
    trm_json_end(&json);
    status = atomic_file_close(&file, !ferror(file.stream));
  }
  trm_free(path);
  return status;
}

static const char *sweep_text(const struct trm_node *root, const char *key)
{
  const struct trm_node *node = trm_node_get(root, key);
  return node && node->text && *node->text ? node->text : NULL;
}

/* Reads the definition of a sweep that began. Texts of *f are the tree's. */
static int sweep_read_definition(struct sweep *sweep, struct sweep_flags *f, struct trm_node **root)
{
  char *path = trm_format("%s/sweep.json", sweep->dir), *config = trm_format("%s/config.yaml", sweep->dir);
  int status = trm_document_read(path, root);
  const struct trm_node *list = status == TRM_OK ? trm_node_get(*root, "options") : NULL;
  if (status == TRM_OK && (!list || !sweep_text(*root, "tune_seeds")))
    status = trm_error(TRM_FAILED, "%s: damaged", path);
  if (status == TRM_OK)
    status = trm_options_read(&sweep->options, config);
  if (status == TRM_OK) {
    const char *search = sweep_text(*root, "search");
    f->tune = sweep_text(*root, "tune");
    f->tune_seeds = sweep_text(*root, "tune_seeds");
    f->baseline = f->baseline ? f->baseline : sweep_text(*root, "baseline");
    f->figures = f->figures ? f->figures : sweep_text(*root, "figures");
    f->x = f->x ? f->x : sweep_text(*root, "x");
    f->y = f->y ? f->y : sweep_text(*root, "y");
    f->target = f->target > 0 ? f->target : trm_node_number(trm_node_get(*root, "target"), 0);
    for (int i = 0; search && searches[i]; i++)
      if (strcmp(search, searches[i]) == 0)
        f->search = (enum sweep_search)i;
    f->trials = (int64_t)trm_node_number(trm_node_get(*root, "trials"), 1);
    f->search_seed = (int64_t)trm_node_number(trm_node_get(*root, "search_seed"), 1);
    f->trials = f->trials < 1 ? 1 : f->trials > 10000 ? 10000 : f->trials;
  }
  for (const struct trm_node *node = list ? list->first : NULL; node && status == TRM_OK; node = node->next)
    status = node->text && strchr(node->text, '=') ? sweep_add_option(sweep, f, node->text)
                                                   : trm_error(TRM_FAILED, "%s: damaged", path);
  list = status == TRM_OK ? trm_node_get(*root, "variants") : NULL;
  for (const struct trm_node *node = list ? list->first : NULL; node && status == TRM_OK; node = node->next)
    status = node->text ? sweep_add_variant(sweep, node->text, f->tune) : trm_error(TRM_FAILED, "%s: damaged", path);
  trm_free(path);
  trm_free(config);
  return status;
}

/* -- the work */

/* Chooses the settings, and makes the final runs. */
static int sweep_choose_settings(struct sweep *sweep)
{
  int done = 0, scored = 0;
  for (int i = 0; i < sweep->tune.count; i++) {
    done += sweep->tune.run[i].outcome == SWEEP_DONE;
    scored += sweep->tune.run[i].outcome == SWEEP_DONE && !isnan(sweep->tune.run[i].validation.loss);
  }
  if (done > 0 && scored == 0)
    return trm_error(TRM_USAGE, "sweep: --tune chooses on the validation split: set data.validation");
  sweep_choose(sweep);
  return sweep_make_final(sweep);
}

static int sweep_run_task(struct sweep *sweep, const struct sweep_jobs *jobs, int64_t task)
{
  struct sweep_runs one = {.count = 1};
  const int seeds = sweep->axis[sweep->axes - 1].count;
  const int64_t final = task - sweep->tune.count;
  if (final >= (int64_t)sweep->cells * seeds)
    return trm_error(TRM_USAGE, "sweep: --task=%lld: there are %lld runs", (long long)task,
                     (long long)sweep->tune.count + (long long)sweep->cells * seeds);
  if (final < 0) {
    one.run = &sweep->tune.run[task];
  } else {
    TRM_CHECK(sweep_runs_read(sweep, &sweep->tune));
    TRM_CHECK(sweep_choose_settings(sweep));
    for (int i = 0; i < sweep->final.count; i++)
      if (sweep->final.run[i].cell == final / seeds && sweep->final.run[i].seed == final % seeds)
        one.run = &sweep->final.run[i];
  }
  if (!one.run)
    return trm_error(TRM_FAILED, "sweep: --task=%lld: no run that tunes its setting is done", (long long)task);
  TRM_CHECK(sweep_runs_start(sweep, &one, jobs));
  if (one.run->outcome == SWEEP_DONE)
    return TRM_OK;
  return trm_error(TRM_FAILED, "sweep: %s: %s", one.run->name, sweep_outcome_name[one.run->outcome]);
}

static int sweep_run_all(struct sweep *sweep, const struct sweep_flags *f, const struct sweep_jobs *jobs)
{
  for (;;) {
    TRM_CHECK(f->collect ? sweep_runs_read(sweep, &sweep->tune) : sweep_runs_start(sweep, &sweep->tune, jobs));
    if (sweep->halving.rung == sweep->halving.rungs - 1)
      break;
    sweep_halve(sweep);
    TRM_CHECK(sweep_make_tune(sweep));
  }
  TRM_CHECK(sweep_choose_settings(sweep));
  TRM_CHECK(f->collect ? sweep_runs_read(sweep, &sweep->final) : sweep_runs_start(sweep, &sweep->final, jobs));
  TRM_CHECK(sweep_write_results(sweep, f->baseline));
  if (f->x)
    TRM_CHECK(sweep_write_picture(sweep, f->x, f->y));
  for (int i = 0; i < sweep->final.count; i++)
    if (sweep->final.run[i].outcome == SWEEP_DONE)
      return TRM_OK;
  return trm_error(TRM_FAILED, "sweep: no run is done; their messages are in %s/runs/*.log", sweep->dir);
}

/* Refuses flags that would have no effect. begun: the folder has the definition, which *f has been completed from. */
static int sweep_check_flags(const struct call *call, const struct sweep_flags *f, bool begun)
{
  const bool chooses = begun || f->tune, draws = begun || f->search == SWEEP_RANDOM, task = f->task >= 0;
  const struct {
    const char *flag;
    bool idle;
    const char *why;
  } rules[] = {
    {"dir", begun, "the sweep began, and this is fixed"},
    {"variants", begun, "the sweep began, and this is fixed"},
    {"tune", begun, "the sweep began, and this is fixed"},
    {"tune-seeds", begun, "the sweep began, and this is fixed"},
    {"search", begun, "the sweep began, and this is fixed"},
    {"trials", begun, "the sweep began, and this is fixed"},
    {"search-seed", begun, "the sweep began, and this is fixed"},
    {"tune-seeds", !chooses, "is for values of the options of --tune"},
    {"search", !chooses, "is for values of the options of --tune"},
    {"trials", !draws, "needs --search=random"},
    {"search-seed", !draws, "needs --search=random"},
    {"target", !f->figures || !strstr(f->figures, "target."), "needs --figures=target.KEY"},
    {"y", !f->x, "needs --x"},
    {"slurm", f->collect || task, "excludes --collect and --task"},
    {"collect", task, "excludes --task"},
    {"jobs", f->collect || f->slurm || task, "--collect, --slurm and --task run none beside one another"},
    {"time-limit", f->collect, "--collect runs nothing"},
    {"retry", f->collect || f->slurm, "--collect and --slurm run nothing"},
    {"launch", f->collect, "--collect runs nothing"},
  };
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i].idle && command_is_given(call, rules[i].flag))
      return trm_error(TRM_USAGE, "sweep: --%s: %s", rules[i].flag, rules[i].why);
  return TRM_OK;
}

/* Reads the definition, from the command line or the folder, and opens the folder. */
static int sweep_open(struct sweep *sweep, struct sweep_flags *f, const struct call *call, struct trm_node **root)
{
  const char *config = NULL;
  struct stat about;
  for (int i = 0; i < call->nargs; i++) {
    if (strncmp(call->args[i], "--", 2) == 0)
      continue;
    if (config)
      return trm_error(TRM_USAGE, "sweep: one argument too many: \"%s\"", call->args[i]);
    config = call->args[i];
  }
  if (!config)
    return trm_error(TRM_USAGE, "sweep: no configuration named; trireme sweep --help shows the usage");
  const bool begun = stat(config, &about) == 0 && S_ISDIR(about.st_mode);
  sweep->dir = begun ? config : f->dir ? f->dir : "sweeps/latest";
  if (begun && call->nargs > 1)
    return trm_error(TRM_USAGE, "sweep: %s: the sweep began, and its options are fixed", config);
  if (begun)
    TRM_CHECK(sweep_read_definition(sweep, f, root));
  TRM_CHECK(sweep_check_flags(call, f, begun));
  if (begun)
    return sweep_define(sweep, f);
  TRM_CHECK(trm_options_read(&sweep->options, config));
  for (int i = 0; i < call->nargs; i++)
    if (strncmp(call->args[i], "--", 2) == 0)
      TRM_CHECK(sweep_add_option(sweep, f, call->args[i] + 2));
  if (f->variants) {
    char *text = sweep_read_text(f->variants);
    const int status = text ? sweep_read_variants(sweep, text, f->tune)
                            : trm_error(TRM_USAGE, "sweep: --variants=%s: it cannot be read, or is empty", f->variants);
    free(text);
    TRM_CHECK(status);
  }
  return sweep_define(sweep, f);
}

static int sweep_run(struct sweep *sweep, struct sweep_flags *f, const struct call *call)
{
  struct trm_node *root = NULL;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  const struct sweep_jobs jobs = {
    .count = f->jobs > 0 ? (int)f->jobs : f->launch || cores < 1 ? 1 : cores > 4096 ? 4096 : (int)cores,
    .limit_s = f->limit_s, .retry = f->retry, .launch = f->launch};
  int status = sweep_open(sweep, f, call, &root);
  if (status == TRM_OK)
    status = sweep_check_baseline(sweep, f->baseline);
  char *runs = trm_format("%s/runs", sweep->dir ? sweep->dir : "");
  if (status == TRM_OK)
    status = trm_make_directories(runs);
  if (status == TRM_OK && f->task < 0 && !f->collect)
    status = sweep_lock(sweep->dir);
  if (status == TRM_OK && !root)
    status = sweep_write_config(sweep);
  if (status == TRM_OK && !root)
    status = sweep_write_definition(sweep, f, call->args, call->nargs);
  if (status == TRM_OK && !f->launch)
    setenv("OMP_NUM_THREADS", "1", 1);
  if (status == TRM_OK)
    status = f->slurm       ? sweep_write_slurm(sweep, &jobs)
             : f->task >= 0 ? sweep_run_task(sweep, &jobs, f->task)
                            : sweep_run_all(sweep, f, &jobs);
  trm_free(runs);
  trm_node_free(root);
  return status;
}

static int cmd_sweep_run(const struct call *call)
{
  struct sweep_flags f = *(const struct sweep_flags *)call->values; /* its texts are the call's, or the definition's */
  struct sweep sweep = {.dir = NULL};
  TRM_CHECK(trm_launch_require_single("trireme sweep"));
  run_child_listen();
  trm_options_default(&sweep.options);
  const int status = sweep_run(&sweep, &f, call);
  sweep_runs_free(&sweep.tune);
  sweep_runs_free(&sweep.final);
  for (int i = 0; i < sweep.axes; i++)
    sweep_axis_free(&sweep.axis[i]);
  sweep_axis_free(&sweep.tune_seeds);
  sweep_variants_free(&sweep);
  for (int i = 0; i < sweep.figures; i++)
    trm_free((char *)sweep.figure[i]);
  trm_free(sweep.setting);
  trm_free(sweep.halving.kept);
  trm_free(sweep.chosen);
  trm_options_free(&sweep.options);
  return status;
}

const struct command cmd_sweep = {
  .name = "sweep", .help = "run the combinations of lists of values, and tabulate them",
  .usage = usage, .flags = flags, .bytes = sizeof(struct sweep_flags), .max_args = ANY_ARGS,
  .missing = "no configuration named", .keeps_options = true, .run = cmd_sweep_run,
};
