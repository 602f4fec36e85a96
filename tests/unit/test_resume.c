/* Runs that are stopped after each of their steps and resumed: the log, the scores and the weights are those of the run
 * that was not stopped. One rank, and two ranks of a virtual network, each run in a process of its own. */
#include <signal.h>
#include <sys/stat.h>

#include "child.h"
#include "core/document.h"
#include "core/log.h"
#include "dataset_files.h"
#include "job/job.h"
#include "mpi/strategies.h"
#include "suite.h"

enum { STEPS = 12, WIDTH = 12, OUTPUT = 1 << 14 };

static char folder[256], data_file[300];

struct variant {
  const char *name;
  const char *const *options; /* names and values, then NULL */
};
static const char *const one_rank[] = {"optim.ema", "0.9", "optim.schedule", "cosine", "data.flip", "yes", NULL};
static const char *const two_ranks[] = {"simulate.workers", "2", "simulate.threads", "1", "run.lanes", "2",
                                        "train.evaluate_every", "3", NULL};
static const char *const stops_early[] = {"train.evaluate_every", "2", "train.stop_patience", "2", "train.stop_delta",
                                          "1", NULL};
static const struct variant variants[] = {
  {"one rank", one_rank}, {"two ranks", two_ranks}, {"early stop", stops_early}};

/* -- one run, in a child process */

static struct {
  const struct variant *variant;
  char dir[300], resume[400];
  uint64_t cut; /* the run is stopped after this step; 0: it is not */
} call;

/* The synchronous method, with a signal after the step before the cut: requests are counted when a step begins. */
static struct trm_strategy_ops cutting;
static int (*cut_inner_step)(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums);

static int cut_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  const int status = cut_inner_step(strategy, rate, sums);
  if (strategy->updates + 1 == call.cut)
    raise(SIGUSR1);
  return status;
}

static const struct trm_strategy_ops *cut_select(const struct trm_strategy *strategy)
{
  const struct trm_strategy_ops *sync = trm_strategy_find("sync");
  cutting = *sync->select(strategy);
  cut_inner_step = cutting.step;
  cutting.step = cut_step;
  cutting.select = cut_select;
  if (call.cut == 1)
    raise(SIGTERM);
  return &cutting;
}

static int run_set_options(struct trm_options *options)
{
  static const char *const common[] = {
    "model", "linear 9 | tanh | dropout 0.2 | linear 7", "train.epochs", "3", "train.batch", "24",
    "data.validation", "0.1", "optim.name", "momentum", "optim.lr", "0.001", "optim.momentum", "0.9", "run.seed", "3",
    "log.every", "5", "parallel.threads", "1", NULL};
  const char *const files[] = {"data.file", data_file, "run.dir", call.dir, "run.resume", call.resume, NULL};
  const char *const *const lists[] = {common, call.variant->options, files};
  for (size_t l = 0; l < 3; l++)
    for (const char *const *name = lists[l]; *name; name += 2)
      TRM_CHECK(trm_options_set(options, name[0], name[1]));
  return TRM_OK;
}

static void run_child(void)
{
  struct trm_job job;
  struct trm_result result;
  trm_job_init(&job);
  int status = run_set_options(&job.options);
  job.serial = job.options.simulate.workers == 0;
  cutting = *trm_strategy_find("sync");
  cutting.select = cut_select;
  status = trm_job_open(&job, status);
  job.modules.strategy = &cutting;
  if (status == TRM_OK)
    status = trm_job_train(&job, &result);
  if (status != TRM_OK)
    trm_log_error();
  trm_job_close(&job);
  fflush(stderr);
  _exit(status);
}

/* Trains in directory `name` of the folder; returns the exit status. */
static int run_train(const struct variant *variant, const char *name, const char *resume, uint64_t cut, char *output)
{
  call.variant = variant;
  call.cut = cut;
  snprintf(call.dir, sizeof call.dir, "%s/%s", folder, name);
  snprintf(call.resume, sizeof call.resume, "%s", resume);
  return child_run(run_child, output, OUTPUT);
}

/* -- records */

/* Reads a file of a run, empty if there is none; free. */
static char *record_text(const char *name, const char *file)
{
  char *path = trm_format("%s/%s/%s", folder, name, file), *text = calloc(1, OUTPUT);
  FILE *in = fopen(path, "r");
  if (in) {
    text[fread(text, 1, OUTPUT - 1, in)] = '\0';
    fclose(in);
  }
  trm_free(path);
  return text;
}

/* Removes the value of a key, a number, wherever it is. */
static void record_remove(char *text, const char *key)
{
  for (char *at = strstr(text, key); at; at = strstr(at, key)) {
    at += strlen(key);
    const size_t value = strcspn(at, ",}");
    memmove(at, at + value, strlen(at + value) + 1);
  }
}

/* Removes an object that is there once at most, by its key and how it ends. */
static void record_remove_object(char *text, const char *key, const char *end)
{
  char *from = strstr(text, key), *to = from ? strstr(from, end) : NULL;
  CU_ASSERT(!from || to);
  if (to)
    memmove(from, to + strlen(end), strlen(to + strlen(end)) + 1);
}

/* Reads metrics.jsonl or summary.json without times and memory, which no two runs have in common; free. */
static char *record_of(const char *name, const char *file)
{
  static const char *const varies[] = {"wall_s", "train_s", "virtual_s", "comm_s", "wait_s", "samples_per_s",
                                       "planned_bytes", "max_resident_bytes", "joules"};
  char *text = record_text(name, file);
  for (size_t i = 0; i < sizeof varies / sizeof *varies; i++) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", varies[i]);
    record_remove(text, key);
  }
  record_remove_object(text, "\"seconds_over_ranks\":", "}},");
  record_remove_object(text, "\"between_nodes\":", "},");
  char *simulation = strstr(text, ",\"simulation\":"); /* the last of a summary: messages of this process */
  if (simulation)
    *simulation = '\0';
  return text;
}

static bool record_is_same(const char *one, const char *other, const char *file)
{
  char *a = record_of(one, file), *b = record_of(other, file);
  const bool same = a[0] && strcmp(a, b) == 0;
  if (!same)
    printf("\n%s of %s:\n%s\nof %s:\n%s\n", file, one, a, other, b);
  free(a);
  free(b);
  return same;
}

/* -- tests */

static void test_cuts(void)
{
  static char output[OUTPUT];
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    const struct variant *variant = &variants[v];
    char whole[32], part[32];
    int stops = 0;
    snprintf(whole, sizeof whole, "whole%zu", v);
    CU_ASSERT_EQUAL_FATAL(run_train(variant, whole, "", 0, output), TRM_OK);
    for (uint64_t cut = 1; cut < STEPS; cut++) {
      snprintf(part, sizeof part, "part%zu-%d", v, (int)cut);
      const int status = run_train(variant, part, "", cut, output);
      stops += status == TRM_STOPPED;
      if (status == TRM_STOPPED)
        CU_ASSERT_EQUAL(run_train(variant, part, "auto", 0, output), TRM_OK);
      const bool same =
        record_is_same(whole, part, "metrics.jsonl") && record_is_same(whole, part, "summary.json");
      CU_ASSERT(same);
      if (!same)
        printf("%s, stopped after step %d:\n%s", variant->name, (int)cut, output);
    }
    CU_ASSERT(stops >= 5);
  }
}

static struct stat file_state(const char *name, const char *file)
{
  char *path = trm_format("%s/%s/%s", folder, name, file);
  struct stat state = {0};
  CU_ASSERT_EQUAL(stat(path, &state), 0);
  trm_free(path);
  return state;
}

/* A run that has finished and is started again: no file is written, and it says so. */
static void test_finished(void)
{
  static char output[OUTPUT];
  static const char *const files[] = {"metrics.jsonl", "summary.json", "config.yaml", "checkpoints",
                                      "checkpoints/best.h5"};
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    struct stat before[5];
    char whole[32];
    snprintf(whole, sizeof whole, "whole%zu", v);
    for (int i = 0; i < 5; i++)
      before[i] = file_state(whole, files[i]);
    CU_ASSERT_EQUAL(run_train(&variants[v], whole, "auto", 0, output), TRM_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(output, "has finished"));
    for (int i = 0; i < 5; i++) {
      const struct stat after = file_state(whole, files[i]);
      CU_ASSERT(after.st_ino == before[i].st_ino && after.st_size == before[i].st_size);
      CU_ASSERT_EQUAL(memcmp(&after.st_mtim, &before[i].st_mtim, sizeof after.st_mtim), 0);
    }
  }
}

static void make_folder(void)
{
  made_folder(folder);
  CU_ASSERT_NOT_EQUAL_FATAL(folder[0], '\0');
  snprintf(data_file, sizeof data_file, "%s/data.h5", folder);
}

/* In a child: the libraries' threads would not survive the forks after this. */
static void data_child(void)
{
  _exit(made_file(data_file, MADE_BYTES, WIDTH, 100, 30, 0));
}

static void make_data(void)
{
  static char output[OUTPUT];
  CU_ASSERT_EQUAL_FATAL(child_run(data_child, output, OUTPUT), TRM_OK);
}

static void remove_folder(void)
{
  made_folder_remove(folder);
  CU_ASSERT(access(folder, F_OK) != 0);
}

int main(void)
{
  CU_TestInfo tests[] = {{"a folder", make_folder},
                         {"a data set", make_data},
                         {"stopped after each step and resumed: the same record", test_cuts},
                         {"finished, and started again: the same files", test_finished},
                         {"no folder", remove_folder},
                         CU_TEST_INFO_NULL};
  return suite_run("resume", tests);
}
