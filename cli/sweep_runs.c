/* Runs as processes: several at a time, each in its folder DIR/runs/NAME, with its messages in DIR/runs/NAME.log. What
 * the folders hold says what is left to do, so that a sweep that was killed goes on where it was. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/outcome.h"
#include "cli/run_child.h"
#include "cli/run_state.h"
#include "cli/sweep.h"
#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

const char *const sweep_outcome_name[SWEEP_OUTCOMES] = {"not run", "done", "diverged", "failed", "timeout"};

/* -- outcomes */

static char *sweep_run_path(const struct sweep *sweep, const struct sweep_run *run, const char *file)
{
  return trm_format("%s/runs/%s%s", sweep->dir, run->name, file);
}

/* Returns the first training loss of a run; NAN: none is logged. */
static double sweep_first_loss(const struct sweep *sweep, const struct sweep_run *run)
{
  static const char key[] = "\"loss\":";
  char *path = sweep_run_path(sweep, run, "/metrics.jsonl"), *line = NULL;
  FILE *in = fopen(path, "r");
  double loss = NAN;
  size_t capacity = 0;
  while (in && isnan(loss) && getline(&line, &capacity, in) > 0) {
    const char *at = strstr(line, key);
    char *end;
    const double value = at ? strtod(at + strlen(key), &end) : NAN;
    if (at && end != at + strlen(key))
      loss = value;
  }
  free(line);
  if (in)
    fclose(in);
  trm_free(path);
  return loss;
}

static struct sweep_scores sweep_run_scores(const struct trm_node *summary, const char *split)
{
  char accuracy[64], loss[64];
  snprintf(accuracy, sizeof accuracy, "%s_accuracy", split);
  snprintf(loss, sizeof loss, "%s_loss", split);
  return (struct sweep_scores){trm_node_number(trm_node_get(summary, accuracy), NAN),
                               trm_node_number(trm_node_get(summary, loss), NAN)};
}

/* Sets the run's figures: of the summary, and, where the name is "target.key", of the line of metrics.jsonl with the
 * first validation accuracy that reaches the target. */
static void sweep_read_figures(const struct sweep *sweep, struct sweep_run *run, const struct trm_node *summary)
{
  char *path = sweep_run_path(sweep, run, "/metrics.jsonl"), *line = NULL, *at;
  FILE *in = sweep->target > 0 ? fopen(path, "r") : NULL;
  static const char accuracy[] = "\"validation_accuracy\":", target[] = "target.";
  size_t capacity = 0;
  bool reached = false;
  while (in && !reached && getline(&line, &capacity, in) > 0)
    reached = (at = strstr(line, accuracy)) && strtod(at + strlen(accuracy), NULL) >= sweep->target;
  for (int i = 0; i < sweep->figures; i++) {
    const char *name = sweep->figure[i];
    run->figure[i] = trm_node_number(trm_node_get(summary, name), NAN);
    if (strncmp(name, target, strlen(target)) != 0 || !reached)
      continue;
    char *key = trm_format("\"%s\":", name + strlen(target));
    at = strstr(line, key);
    run->figure[i] = at ? strtod(at + strlen(key), NULL) : NAN;
    trm_free(key);
  }
  free(line);
  if (in)
    fclose(in);
  trm_free(path);
}

static int sweep_read_summary(const struct sweep *sweep, struct sweep_run *run, bool ended_well)
{
  char *path = sweep_run_path(sweep, run, "/summary.json");
  struct trm_node *summary = NULL;
  const int status = trm_document_read(path, &summary);
  if (status == TRM_OK) {
    run->outcome = outcome_is_diverged(summary, sweep_first_loss(sweep, run)) ? SWEEP_DIVERGED
                   : ended_well                                               ? SWEEP_DONE
                                                                              : SWEEP_FAILED;
    run->validation = sweep_run_scores(summary, "validation");
    run->test = sweep_run_scores(summary, "test");
    sweep_read_figures(sweep, run, summary);
  }
  trm_node_free(summary);
  trm_free(path);
  return status;
}

/* Marks beside a run's folder, of runs that have no summary.json: that they took too long, or failed before. */
static bool sweep_has_mark(const struct sweep *sweep, const struct sweep_run *run, const char *suffix)
{
  char *path = sweep_run_path(sweep, run, suffix);
  const bool is_there = access(path, F_OK) == 0;
  trm_free(path);
  return is_there;
}

static void sweep_mark(const struct sweep *sweep, const struct sweep_run *run, const char *suffix)
{
  char *path = sweep_run_path(sweep, run, suffix);
  FILE *mark = fopen(path, "w");
  if (!mark || fclose(mark) != 0)
    trm_warn("%s: cannot be written: %s", path, strerror(errno));
  trm_free(path);
}

static void sweep_unmark(const struct sweep *sweep, const struct sweep_run *run, const char *suffix)
{
  char *path = sweep_run_path(sweep, run, suffix);
  unlink(path);
  trm_free(path);
}

int sweep_run_read(const struct sweep *sweep, struct sweep_run *run)
{
  char *path = sweep_run_path(sweep, run, "");
  const struct run_state *state;
  int status = run_state_read(path, &state);
  if (status == TRM_OK && (state->code == TRM_OK || state->code == TRM_FAILED))
    status = sweep_read_summary(sweep, run, state->code == TRM_OK);
  else if (status == TRM_OK)
    run->outcome = sweep_has_mark(sweep, run, ".timeout")  ? SWEEP_TIMEOUT
                   : sweep_has_mark(sweep, run, ".failed") ? SWEEP_FAILED
                                                           : SWEEP_NOT_RUN;
  trm_free(path);
  return status;
}

int sweep_runs_read(const struct sweep *sweep, struct sweep_runs *runs)
{
  for (int i = 0; i < runs->count; i++)
    TRM_CHECK(sweep_run_read(sweep, &runs->run[i]));
  return TRM_OK;
}

/* -- processes */

/* The words of a command, the last one NULL. */
struct word_list {
  char **word;
  size_t count, capacity;
};

static void sweep_add_word(struct word_list *list, char *word) /* takes the word */
{
  list->word = trm_grow(list->word, &list->capacity, list->count, list->count + 2, sizeof *list->word, "sweep: words");
  list->word[list->count++] = word;
}

static void sweep_add_launcher(struct word_list *list, const char *launch)
{
  for (const char *at = launch; at && *(at += strspn(at, " "));) {
    const size_t length = strcspn(at, " ");
    sweep_add_word(list, trm_format("%.*s", (int)length, at));
    at += length;
  }
}

/* Options may have blanks in their values. */
static void sweep_add_options(struct word_list *list, const char *options)
{
  for (const char *at = options, *next; *at; at = next) {
    next = strstr(at, " --");
    next = next ? next + 1 : at + strlen(at);
    sweep_add_word(list, trm_format("%.*s", (int)(next - at - (*next != '\0')), at));
  }
}

/* Starts the run, from its newest checkpoint if it has one and has not failed. */
static int sweep_start_run(const struct sweep *sweep, const struct sweep_run *run, const struct sweep_jobs *jobs,
                           struct run_child *child)
{
  char *path = sweep_run_path(sweep, run, ""), *log = sweep_run_path(sweep, run, ".log");
  struct word_list list = {NULL, 0, 0};
  const struct run_state *state;
  int status = run_state_read(path, &state);
  sweep_add_launcher(&list, jobs->launch);
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  sweep_add_word(&list, length > 0 ? trm_format("%.*s", (int)length, program) : trm_strdup("trireme"));
  sweep_add_word(&list, trm_strdup("train"));
  sweep_add_word(&list, trm_format("%s/config.yaml", sweep->dir));
  for (int i = sweep_has_variants(sweep); i < sweep->axes; i++)
    if (*run->value[i] || sweep->axis[i].role != SWEEP_TUNED) /* "" of a tuned option: the variant does not have it */
      sweep_add_word(&list, trm_format("--%s=%s", sweep->axis[i].row->name, run->value[i]));
  sweep_add_options(&list, sweep_variant_options(sweep, run));
  if (run->budget > 0)
    sweep_add_word(&list, trm_format("--%s=%lld", sweep->halving.option, (long long)run->budget));
  sweep_add_word(&list, trm_format("--run.dir=%s", path));
  sweep_add_word(&list, trm_strdup("--run.overwrite=yes"));
  if (state->code != TRM_FAILED) /* it also waits for the lease of a process that is ending */
    sweep_add_word(&list, trm_strdup("--run.resume=auto"));
  sweep_unmark(sweep, run, ".timeout");
  sweep_unmark(sweep, run, ".failed");
  if (status == TRM_OK)
    status = run_child_start(child, list.word, log);
  for (size_t i = 0; i < list.count; i++)
    trm_free(list.word[i]);
  trm_free(list.word);
  trm_free(log);
  trm_free(path);
  return status;
}

struct slot {
  struct sweep_run *run; /* NULL: free */
  double began_s;
  bool overdue;
};

/* The processes of a sweep. */
struct pool {
  const struct sweep *sweep;
  const struct sweep_jobs *jobs;
  struct run_child *child; /* (jobs->count) */
  struct slot *slot;       /* (jobs->count) */
  int ended, bad;          /* runs */
};

static double sweep_clock(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool sweep_must_run(const struct sweep_run *run, bool retry)
{
  return run->outcome == SWEEP_NOT_RUN || (retry && (run->outcome == SWEEP_FAILED || run->outcome == SWEEP_TIMEOUT));
}

enum { TERM_S = 10 }; /* for a launcher to end its ranks, before it is killed */

/* Ends runs that take too long. */
static void sweep_end_overdue(struct pool *pool)
{
  for (int i = 0; i < pool->jobs->count; i++) {
    struct slot *slot = &pool->slot[i];
    const double over_s = slot->run ? sweep_clock() - slot->began_s - pool->jobs->limit_s : -1;
    const bool launched = pool->jobs->launch != NULL;
    if (!slot->run || pool->jobs->limit_s <= 0 || over_s < 0 || (slot->overdue && launched && over_s < TERM_S))
      continue;
    if (!slot->overdue)
      sweep_mark(pool->sweep, slot->run, ".timeout");
    run_child_signal(&pool->child[i], 1, launched && !slot->overdue ? SIGTERM : SIGKILL);
    slot->overdue = true;
  }
}

/* Reads the results of runs that have ended, and frees their places. */
static int sweep_collect(struct pool *pool, int total)
{
  for (int i = 0; i < pool->jobs->count; i++) {
    struct slot *slot = &pool->slot[i];
    struct sweep_run *run = slot->run;
    if (!run || pool->child[i].runs)
      continue;
    slot->run = NULL;
    run->outcome = SWEEP_NOT_RUN;
    TRM_CHECK(sweep_run_read(pool->sweep, run));
    const int code = run_child_exit_status(&pool->child[i]);
    if (run->outcome == SWEEP_NOT_RUN && code != TRM_STOPPED) {
      run->outcome = SWEEP_FAILED;
      sweep_mark(pool->sweep, run, ".failed");
    }
    pool->ended++;
    pool->bad += run->outcome != SWEEP_DONE;
    if (run->outcome != SWEEP_DONE && run->outcome != SWEEP_NOT_RUN)
      trm_warn("sweep: %s: %s/runs/%s.log", sweep_outcome_name[run->outcome], pool->sweep->dir, run->name);
    if (trm_progress_is_terminal())
      trm_progress("sweep: %d of %d runs, %d not done", pool->ended, total, pool->bad);
  }
  return TRM_OK;
}

/* Starts runs where there is room. *next: the first that was not considered. */
static int sweep_fill(struct pool *pool, struct sweep_runs *runs, int *next)
{
  for (int i = 0; i < pool->jobs->count; i++) {
    while (!pool->slot[i].run && *next < runs->count && !sweep_must_run(&runs->run[*next], pool->jobs->retry))
      ++*next;
    if (pool->slot[i].run || *next == runs->count)
      continue;
    pool->slot[i] = (struct slot){.run = &runs->run[*next], .began_s = sweep_clock()};
    ++*next;
    const int status = sweep_start_run(pool->sweep, pool->slot[i].run, pool->jobs, &pool->child[i]);
    if (status != TRM_OK)
      pool->slot[i].run = NULL;
    TRM_CHECK(status);
  }
  return TRM_OK;
}

static int sweep_work(struct pool *pool, struct sweep_runs *runs, int total)
{
  for (int next = 0;;) {
    TRM_CHECK(sweep_fill(pool, runs, &next));
    if (!run_child_any_runs(pool->child, pool->jobs->count))
      return TRM_OK;
    const int number = run_child_wait_any(pool->child, pool->jobs->count, pool->jobs->limit_s > 0 ? 0.2 : 5);
    if (number)
      return trm_error(TRM_STOPPED, "sweep: stopped by a signal; the same command goes on");
    sweep_end_overdue(pool);
    TRM_CHECK(sweep_collect(pool, total));
  }
}

int sweep_runs_start(const struct sweep *sweep, struct sweep_runs *runs, const struct sweep_jobs *jobs)
{
  int total = 0;
  TRM_CHECK(sweep_runs_read(sweep, runs));
  for (int i = 0; i < runs->count; i++)
    total += sweep_must_run(&runs->run[i], jobs->retry);
  if (total == 0)
    return TRM_OK;
  trm_info("sweep: %d run%s, %d at a time; %d ended before", total, total == 1 ? "" : "s",
           total < jobs->count ? total : jobs->count, runs->count - total);
  struct pool pool = {.sweep = sweep, .jobs = jobs};
  pool.child = trm_alloc((size_t)jobs->count * sizeof *pool.child, "sweep: processes");
  pool.slot = trm_alloc((size_t)jobs->count * sizeof *pool.slot, "sweep: processes");
  const int status = sweep_work(&pool, runs, total);
  if (status != TRM_OK) { /* the runs write checkpoints and end */
    if (status != TRM_STOPPED)
      run_child_signal(pool.child, jobs->count, SIGUSR1);
    while (run_child_any_runs(pool.child, jobs->count))
      run_child_wait(pool.child, jobs->count, 1);
  }
  trm_progress_end();
  trm_free(pool.child);
  trm_free(pool.slot);
  return status;
}
