/* trireme run: starts the job of a run, and starts it again from its newest checkpoint when it was cut off. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/command.h"
#include "cli/run_child.h"
#include "cli/run_hosts.h"
#include "cli/run_segments.h"
#include "cli/run_state.h"
#include "cli/run_words.h"
#include "core/lease.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real.h"
#include "train/memory_files.h"

static const char usage[] =
  "usage: trireme run [--restarts=N] -- LAUNCHER... trireme train [CONFIG.yaml] [--section.key=value ...]\n"
  "       trireme run --hosts=A,B,... -- mpiexec -hosts {hosts} -n {ranks} trireme train ...\n\n"
  "Starts the job, and when it crashes, is killed, stalls or loses a host, starts it again with\n"
  "run.resume=auto, after 1, 2, 4, ... 60 s, and 1 s after a new checkpoint. It ends with status\n"
  "0: the run has finished; 1 or 2: it was refused, or has failed without a new checkpoint since\n"
  "its start; 3: stopped by a signal, which is passed on; 1 or 4: no restart was left.\n\n"
  "  --restarts=N        restarts at most (10)\n"
  "  --hosts=A,B,...     the hosts that replace {hosts} in the command; in a Slurm job those of\n"
  "                      its allocation. A restart leaves out those where the command's launcher\n"
  "                      cannot start the program `true` within 20 s.\n"
  "  --ranks-per-host=P  {nodes} is the number of hosts, {ranks} P times that (P: Slurm's\n"
  "                      --ntasks-per-node, else 1)\n\n"
  "  trireme run -- mpiexec -n 4 trireme train config.yaml\n"
  "  trireme run -- srun --nodelist={hosts} --nodes={nodes} --ntasks={ranks} trireme train c.yaml\n\n"
  "A Slurm job outlives a lost node with `sbatch --no-kill`.\n";

struct run_flags {
  int64_t restarts, ranks_per_host;
  const char *hosts;
};
#define AT(field) offsetof(struct run_flags, field)
static const struct trm_option flags[] = {
  {"restarts", TRM_OPTION_INT, AT(restarts), "10", RANGE(0, INT32_MAX)},
  {"hosts", TRM_OPTION_TEXT, AT(hosts), NULL, NO_RANGE},
  {"ranks-per-host", TRM_OPTION_INT, AT(ranks_per_host), "0", RANGE(0, INT32_MAX)},
  END_OF_FLAGS};

/* Seconds for the launcher to end, after summary.json and after SIGTERM: it may wait for a host that is lost. */
enum { LAUNCHER_S = 15, LAUNCHER_TERM_S = 5, MAX_PAUSE_S = 60 };

struct run {
  struct run_words words;
  struct run_hosts hosts, answering; /* answering: those of the next start */
  struct trm_options options;
  const char *dir;          /* run.dir */
  struct run_files before;  /* of the latest start */
  struct run_child launcher;
  int signal;               /* that came to this process; 0: none */
  bool progressed;          /* the latest job wrote a checkpoint */
};

/* -- one job */

/* Waits for the launcher. One that does not end long after the results are there, or after the ranks have ended without
 * any, is ended: then the lease of the run directory is no longer renewed. */
static void run_wait(struct run *r)
{
  struct run_file lease = r->before.lease;
  for (int overdue_s = 0, silent_s = 0; r->launcher.runs;) {
    struct run_files now;
    const int signal = run_child_wait(&r->launcher, 1, 1);
    r->signal = signal ? signal : r->signal;
    run_files_look(r->dir, &now);
    const bool taken = run_file_differs(&now.lease, &r->before.lease) && now.lease.number != 0;
    silent_s = taken && !run_file_differs(&now.lease, &lease) ? silent_s + 1 : 0;
    lease = now.lease;
    const bool ended = run_file_differs(&now.summary, &r->before.summary) && now.summary.number != 0;
    overdue_s += ended || silent_s >= TRM_LEASE_S;
    if (overdue_s == LAUNCHER_S)
      run_child_signal(&r->launcher, 1, SIGTERM);
    if (overdue_s >= LAUNCHER_S + LAUNCHER_TERM_S)
      run_child_signal(&r->launcher, 1, SIGKILL);
  }
}

/* Finds the hosts that answer. Returns false if none does, or a signal has come. */
static bool run_find_hosts(struct run *r)
{
  run_hosts_free(&r->answering);
  const int signal = run_hosts_probe(&r->hosts, &r->words, &r->answering);
  r->signal = signal ? signal : r->signal;
  return r->answering.count > 0 && !r->signal;
}

/* True if the program has refused to train: its own status, before a run directory was opened, on hosts that answer. */
static bool run_was_refused(struct run *r, bool began)
{
  const int status = run_child_exit_status(&r->launcher);
  return !began && (status == TRM_FAILED || status == TRM_USAGE) &&
         (r->hosts.count == 0 || (run_find_hosts(r) && r->answering.count == r->hosts.count));
}

/* Returns the status of a job that has ended. *restart: another is due, and the reason is the error. */
static int run_judge(struct run *r, bool *restart)
{
  const struct run_state *state;
  struct run_files now;
  const int launcher = run_child_exit_status(&r->launcher);
  run_files_look(r->dir, &now);
  const bool began = run_file_differs(&now.config, &r->before.config);
  const bool ended = run_file_differs(&now.summary, &r->before.summary) && now.summary.number != 0;
  r->progressed = strcmp(now.newest, r->before.newest) != 0;
  *restart = false;
  TRM_CHECK(run_state_read(r->dir, &state));
  if (state->code == TRM_OK && (ended || launcher == TRM_OK))
    return TRM_OK;
  if (r->signal || (ended && state->code == TRM_STOPPED))
    return trm_error(TRM_STOPPED, "run: %s: stopped by a signal; run.resume=auto resumes it", r->dir);
  if (run_was_refused(r, began))
    return trm_error(launcher, "run: the job did not begin to train (its message is above): no restart");
  if (ended && state->code == TRM_FAILED && !r->progressed)
    return trm_error(TRM_FAILED, "run: %s: failed (its message is above) without a new checkpoint: no restart", r->dir);
  *restart = true;
  if (ended)
    return trm_error(state->code, "the run has %s", state->status);
  return trm_error(TRM_FAILED, "the job was cut off %s (status %d of %s)", began ? "in training" : "in its start",
                   launcher, r->words.word[0]);
}

/* Starts the job and waits for its end. Results as above. */
static int run_once(struct run *r, bool resumes, bool *restart)
{
  char **list = run_words_of_job(&r->words, &r->answering, resumes);
  run_files_look(r->dir, &r->before);
  const int status = run_child_start(&r->launcher, list, NULL);
  run_words_free(list);
  *restart = false;
  TRM_CHECK(status);
  run_wait(r);
  return run_judge(r, restart);
}

/* -- restarts */

static void run_log_hosts(const struct run *r)
{
  const int ranks = r->answering.count * r->answering.ranks_per_host;
  if (r->answering.count < r->hosts.count)
    trm_warn("run: %d of %d hosts answer: %d rank%s", r->answering.count, r->hosts.count, ranks, ranks == 1 ? "" : "s");
}

/* Waits, and starts the job again on the hosts that answer. Results as of run_judge. */
static int run_restart(struct run *r, int pause_s, struct timespec since, bool *restart)
{
  r->signal = run_child_wait(NULL, 0, pause_s);
  run_segments_remove(since);
  const bool ready = !r->signal && (r->hosts.count == 0 || run_find_hosts(r));
  *restart = !r->signal && !ready;
  if (r->signal)
    return trm_error(TRM_STOPPED, "run: %s: stopped by a signal before a restart; run.resume=auto resumes it", r->dir);
  if (!ready)
    return trm_error(TRM_FAILED, "no host answers");
  run_log_hosts(r);
  return run_once(r, true, restart);
}

/* Removes the copies of the state in the memory of this machine and of the hosts (run.buddy): no job will read them,
 * and the machines may be others' from now on. */
static void run_remove_memory(const struct run *r)
{
  char *folder = r->options.run.buddy > 0 ? trm_memory_files_folder(TRM_MEMORY_ROOT, r->dir) : NULL;
  if (folder)
    trm_memory_files_remove(folder, false);
  if (folder && r->hosts.count > 0)
    run_hosts_remove(&r->hosts, &r->words, folder);
  trm_free(folder);
}

static int run_with_restarts(struct run *r, int restarts)
{
  struct timespec since;
  bool restart;
  clock_gettime(CLOCK_REALTIME_COARSE, &since);
  int status = run_once(r, false, &restart), pause_s = 1;
  for (int i = 1; restart && i <= restarts; i++) {
    pause_s = r->progressed ? 1 : pause_s;
    trm_warn("run: restart %d of %d in %d s: %s", i, restarts, pause_s, trm_error_text());
    r->progressed = false;
    status = run_restart(r, pause_s, since, &restart);
    pause_s = pause_s < MAX_PAUSE_S / 2 ? 2 * pause_s : MAX_PAUSE_S;
  }
  run_segments_remove(since);
  if (status == TRM_FAILED || status == TRM_STALLED) {
    char *reason = trm_strdup(trm_error_text());
    run_remove_memory(r);
    trm_error(status, "%s", reason);
    trm_free(reason);
  }
  return restart ? trm_error_context(status, "run: %s: no restart is left of %d", r->dir, restarts) : status;
}

/* Reads the options of `train`, which end with the words or at a ":". */
static int run_read_options(struct run *r)
{
  char **list = run_words_of_job(&r->words, &r->hosts, false);
  int count = 1;
  while (list[r->words.train + count] && strcmp(list[r->words.train + count], ":") != 0)
    count++;
  char **copy = trm_alloc(((size_t)count + 1) * sizeof *copy, "the words of a command");
  memcpy(copy, list + r->words.train, (size_t)count * sizeof *copy);
  const int status = command_read_options(&cmd_train, count, copy, &r->options);
  r->dir = r->options.run.dir;
  trm_free(copy);
  run_words_free(list);
  return status;
}

static int run_open(struct run *r, const struct call *call)
{
  const struct run_flags *f = call->values;
  TRM_CHECK(trm_launch_require_single("trireme run"));
  TRM_CHECK(run_words_open(&r->words, call->args, call->nargs));
  const bool hosts = run_words_name_hosts(&r->words);
  if (!hosts && (f->hosts || f->ranks_per_host > 0))
    return trm_error(TRM_USAGE, "run: --hosts and --ranks-per-host: the command has no {hosts}, {nodes} or {ranks}");
  if (hosts)
    TRM_CHECK(run_hosts_open(&r->hosts, f->hosts, (int)f->ranks_per_host));
  run_hosts_copy(&r->answering, &r->hosts);
  return run_read_options(r);
}

static int cmd_run_run(const struct call *call)
{
  const struct run_flags *f = call->values;
  struct run r = {0};
  run_child_listen();
  int status = run_open(&r, call);
  if (status == TRM_OK)
    status = run_with_restarts(&r, (int)f->restarts);
  run_hosts_free(&r.hosts);
  run_hosts_free(&r.answering);
  trm_options_free(&r.options);
  return status;
}

const struct command cmd_run = {
  .name = "run", .help = "start the job of a run, and start it again when it was cut off",
  .usage = usage, .flags = flags, .bytes = sizeof(struct run_flags), .max_args = ANY_ARGS,
  .missing = "no command named", .run = cmd_run_run,
};
