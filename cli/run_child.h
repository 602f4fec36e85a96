/* Child processes of `trireme run` and `trireme sweep`, and signals to it, which it passes on to them. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct run_child {
  pid_t pid;
  bool runs;
  int status; /* of waitpid, once it has ended */
};

/* From now on SIGTERM, SIGINT and SIGUSR1 end run_child_wait, not the process. */
void run_child_listen(void);
/* Starts a program by its words, which end with NULL. output: a file that gets its output and messages, and it has no
 * input; NULL: it has those of this process. */
int run_child_start(struct run_child *child, char *const *words, const char *output);
/* Waits until all of them have ended, a signal has come, or for so many seconds. Passes a signal on to those that run,
 * unless the terminal has: as SIGUSR1, which every launcher forwards, while some end the ranks at once on SIGTERM.
 * Returns the signal; 0: none has come. No children: waits for a signal. */
int run_child_wait(struct run_child *children, int count, double seconds);
/* The same, until one of those that run has ended. */
int run_child_wait_any(struct run_child *children, int count, double seconds);
bool run_child_any_runs(const struct run_child *children, int count);
/* Sends a signal to those that run. */
void run_child_signal(const struct run_child *children, int count, int number);
/* Returns its exit status; 128 + the signal that ended it. */
int run_child_exit_status(const struct run_child *child);
