/* trireme repeat: runs a run again from its record, and compares the bits. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/repeat.h"
#include "cli/run_child.h"
#include "cli/run_state.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/security.h"
#include "core/status.h"
#include "mpi/real.h"

static const char usage[] =
  "usage: trireme repeat RUN [--dir=DIR] [--launch=\"mpiexec -n {ranks}\"] [--overwrite]\n\n"
  "Trains a finished run again, from its config.yaml and record.json, in another directory, and says\n"
  "whether the bits are equal: the hash of the weights (summary.json), and every line of\n"
  "metrics.jsonl but for real times. The version of the program, the data and the other files must\n"
  "be those of the run; other libraries, compilers and processors are warned of. OpenBLAS is made to\n"
  "use the run's kernels (OPENBLAS_CORETYPE). Paths are relative to the folder where the run began.\n"
  "A run on a virtual network is repeated there, a synchronous one on as many ranks, and a real\n"
  "asynchronous one, if it has recorded the order of its events (run.record), on a virtual network.\n\n"
  "  --dir=DIR       where the second run is written (RUN.repeat)\n"
  "  --launch=WORDS  what starts the ranks of a real run of several; {ranks} and {nodes} are\n"
  "                  replaced (mpiexec -n {ranks})\n"
  "  --overwrite     replace an earlier run in that directory\n\n"
  "Exit status: 0 equal; 1 different: the first difference is named; 2 the run cannot be repeated,\n"
  "and why; 3 stopped by a signal.\n";

struct repeat_flags {
  char *dir, *launch;
  bool overwrite;
};
static const struct trm_option flags[] = {
  {"dir", TRM_OPTION_TEXT, offsetof(struct repeat_flags, dir), NULL, NO_RANGE},
  {"launch", TRM_OPTION_TEXT, offsetof(struct repeat_flags, launch), NULL, NO_RANGE},
  {"overwrite", TRM_OPTION_BOOL, offsetof(struct repeat_flags, overwrite), NULL, NO_RANGE}, END_OF_FLAGS};

/* -- the words of the second run's command */

enum { MAX_WORDS = 64 };
struct repeat_words {
  char *word[MAX_WORDS + 1]; /* (count), owned, then NULL */
  int count;
};

/* Adds a word, which it owns from now on. */
static int repeat_add(struct repeat_words *words, char *word)
{
  if (words->count < MAX_WORDS) {
    words->word[words->count++] = word;
    return TRM_OK;
  }
  trm_free(word);
  return trm_error(TRM_USAGE, "repeat: --launch: more than %d words", MAX_WORDS);
}

/* Returns the word with a number in the place of {ranks} or {nodes}. free. */
static char *repeat_fill(const char *word, const char *place, int number)
{
  const char *at = strstr(word, place);
  return at ? trm_format("%.*s%d%s", (int)(at - word), word, number, at + strlen(place)) : trm_strdup(word);
}

/* Adds the words of the launcher, which are separated by spaces. */
static int repeat_add_launcher(struct repeat_words *words, const struct repeat_run *run, const char *launch)
{
  char *copy = trm_strdup(launch), *save, *part = strtok_r(copy, " ", &save);
  int status = TRM_OK;
  for (; part && status == TRM_OK; part = strtok_r(NULL, " ", &save)) {
    char *word = repeat_fill(part, "{ranks}", repeat_record_number(run, "ranks"));
    status = repeat_add(words, repeat_fill(word, "{nodes}", repeat_record_number(run, "nodes")));
    trm_free(word);
  }
  trm_free(copy);
  return status;
}

/* Adds what ranks must be told beyond the configuration. */
static int repeat_add_options(struct repeat_words *words, const struct repeat_run *run, const char *dir, bool overwrite)
{
  const char *resume = run->options.run.resume;
  char *own = trm_format("%s/", run->dir), *from = realpath(resume, NULL);
  const bool whole = strcmp(resume, "auto") == 0 || (from && strncmp(from, own, strlen(own)) == 0);
  const int ranks = repeat_record_number(run, "ranks"), nodes = repeat_record_number(run, "nodes");
  trm_free(own);
  free(from);
  TRM_CHECK(repeat_add(words, trm_format("--run.dir=%s", dir)));
  TRM_CHECK(repeat_add(words, trm_strdup("--log.tensorboard=no")));
  TRM_CHECK(repeat_add(words, trm_format("--run.overwrite=%s", overwrite ? "yes" : "no")));
  TRM_CHECK(repeat_add(words, trm_format("--run.resume=%s", whole ? "" : resume)));
  if (run->simulated) {
    TRM_CHECK(repeat_add(words, trm_format("--parallel.shares=%s", repeat_record_text(run, "shares"))));
    return repeat_add(words, trm_strdup("--run.record="));
  }
  if (!run->replays)
    return repeat_add(words, trm_format("--parallel.threads=%d", repeat_record_number(run, "threads")));
  TRM_CHECK(repeat_add(words, trm_format("--simulate.replay=%s", run->options.run.record)));
  TRM_CHECK(repeat_add(words, trm_strdup("--run.record=")));
  TRM_CHECK(repeat_add(words, trm_format("--simulate.workers=%d", ranks)));
  return repeat_add(words, trm_format("--simulate.nodes=%d", nodes));
}

static int repeat_build_words(struct repeat_words *words, const struct repeat_run *run, const struct repeat_flags *f,
                              const char *dir)
{
  char program[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n <= 0)
    return trm_error(TRM_FAILED, "repeat: the path of the program is not known: %s", strerror(errno));
  program[n] = '\0';
  const bool launches = !run->simulated && !run->replays && (f->launch || repeat_record_number(run, "ranks") > 1);
  if (launches)
    TRM_CHECK(repeat_add_launcher(words, run, f->launch ? f->launch : "mpiexec -n {ranks}"));
  TRM_CHECK(repeat_add(words, trm_strdup(program)));
  TRM_CHECK(repeat_add(words, trm_strdup("train")));
  TRM_CHECK(repeat_add(words, trm_format("%s/config.yaml", run->dir)));
  return repeat_add_options(words, run, dir, f->overwrite);
}

/* -- running */

/* Runs the command to its end. A summary.json that is there already is an earlier repetition's (--overwrite). */
static int repeat_train(char *const *words, const char *dir)
{
  struct run_files before, now;
  struct run_child child;
  int signal = 0;
  run_files_look(dir, &before);
  run_child_listen();
  if (run_child_start(&child, words, NULL) != TRM_OK)
    return TRM_USAGE; /* its message is recorded; 1 would say that bits differ */
  while (child.runs) {
    const int came = run_child_wait(&child, 1, 1);
    signal = came ? came : signal;
  }
  const int status = run_child_exit_status(&child);
  run_files_look(dir, &now);
  const bool ended = now.summary.number != 0 && run_file_differs(&now.summary, &before.summary);
  if (signal)
    return trm_error(TRM_STOPPED, "repeat: stopped by a signal");
  if (status == 128 + SIGILL)
    return trm_error(TRM_USAGE, "repeat: this processor has no instructions of OPENBLAS_CORETYPE=%s",
                     getenv("OPENBLAS_CORETYPE") ? getenv("OPENBLAS_CORETYPE") : "");
  if (!ended || status == TRM_USAGE)
    return trm_error(TRM_USAGE, "repeat: the second run has not ended (status %d of %s; its message is above)", status,
                     words[0]);
  return TRM_OK;
}

/* Compares, and says why the bits may differ. */
static int repeat_judge(const struct repeat_run *first, const struct repeat_run *second)
{
  static const char core[] = "software.blas_core";
  const char *was = repeat_record_text(first, core), *is = repeat_record_text(second, core);
  repeat_warn_of_software(first, second);
  const int status = repeat_compare(first, second);
  if (status == TRM_OK) {
    printf("equal: %s and %s have the same bits\n", first->dir, second->dir);
    return TRM_OK;
  }
  if (strcmp(was, is) != 0)
    return trm_error_context(TRM_USAGE, "%s: cannot be repeated: its products were computed by OpenBLAS' kernels "
                             "\"%s\", and here by \"%s\"", first->dir, was, is);
  const char *hint = " (real ranks: the order of sums depends on their number and nodes, unless run.lanes is set)";
  const bool unordered = !first->simulated && !first->replays && first->options.run.lanes == 0 &&
                         repeat_record_number(first, "ranks") > 1;
  return trm_error_context(status, "different%s", unordered ? hint : "");
}

static int repeat_train_and_compare(struct repeat_run *first, const struct repeat_flags *f, const char *dir)
{
  struct repeat_words words = {.count = 0};
  struct repeat_run second;
  const char *core = repeat_record_text(first, "software.blas_core"), *folder = repeat_record_text(first, "folder");
  TRM_CHECK(repeat_check_method(first));
  if (chdir(folder) != 0)
    trm_warn("repeat: %s, where the run began: %s: paths are relative to this folder", folder, strerror(errno));
  TRM_CHECK(security_set_key(first->options.security.key) == TRM_OK ? TRM_OK : TRM_USAGE);
  int status = repeat_check_inputs(first);
  security_clear();
  TRM_CHECK(status);
  if (core[0])
    setenv("OPENBLAS_CORETYPE", core, 1);
  status = repeat_build_words(&words, first, f, dir);
  if (status == TRM_OK)
    status = repeat_train(words.word, dir);
  for (int i = 0; i < words.count; i++)
    trm_free(words.word[i]);
  TRM_CHECK(status);
  status = repeat_run_open(&second, dir);
  if (status == TRM_OK)
    status = repeat_judge(first, &second);
  repeat_run_close(&second);
  return status;
}

static int cmd_repeat_run(const struct call *call)
{
  const struct repeat_flags *f = call->values;
  struct repeat_run first;
  char folder[PATH_MAX];
  TRM_CHECK(trm_launch_require_single("trireme repeat"));
  if (!getcwd(folder, sizeof folder))
    return trm_error(TRM_FAILED, "repeat: the working folder is not known: %s", strerror(errno));
  int status = repeat_run_open(&first, call->args[0]);
  if (status == TRM_OK) {
    char *dir = !f->dir           ? trm_format("%s.repeat", first.dir)
                : f->dir[0] == '/' ? trm_strdup(f->dir)
                                   : trm_format("%s/%s", folder, f->dir);
    status = repeat_train_and_compare(&first, f, dir);
    trm_free(dir);
  }
  repeat_run_close(&first);
  return status;
}

const struct command cmd_repeat = {
  .name = "repeat", .help = "train a finished run again, and compare the bits",
  .usage = usage, .flags = flags, .bytes = sizeof(struct repeat_flags), .max_args = 1,
  .missing = "no run named", .run = cmd_repeat_run,
};
