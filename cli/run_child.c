#include "cli/run_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/status.h"

extern char **environ;

/* Signals as they come, one message each. A handler serves all threads: libraries may have begun some. */
static int message_pipe[2];

struct message {
  int number;
  bool of_terminal; /* sent to all processes of the group */
};

static void child_take_signal(int number, siginfo_t *info, void *context)
{
  const struct message message = {number, info->si_code == SI_KERNEL};
  const int saved = errno;
  (void)context;
  if (write(message_pipe[1], &message, sizeof message) < 0) {
    /* full: many have come */
  }
  errno = saved;
}

void run_child_listen(void)
{
  static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGCHLD};
  struct sigaction action;
  if (pipe(message_pipe) != 0)
    trm_abort_on_error(trm_error(TRM_FAILED, "no pipe: %s", strerror(errno)));
  for (int i = 0; i < 2; i++) {
    fcntl(message_pipe[i], F_SETFD, FD_CLOEXEC);
    fcntl(message_pipe[i], F_SETFL, O_NONBLOCK);
  }
  memset(&action, 0, sizeof action);
  action.sa_sigaction = child_take_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    sigaction(numbers[i], &action, NULL);
}

int run_child_start(struct run_child *child, char *const *words, const char *output)
{
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (output) {
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
  }
  const int reason = posix_spawnp(&child->pid, words[0], &files, NULL, words, environ);
  posix_spawn_file_actions_destroy(&files);
  child->runs = reason == 0;
  return reason ? trm_error(TRM_FAILED, "%s: cannot be started: %s", words[0], strerror(reason)) : TRM_OK;
}

static void child_reap(struct run_child *children, int count)
{
  for (int i = 0; i < count; i++)
    if (children[i].runs && waitpid(children[i].pid, &children[i].status, WNOHANG) == children[i].pid)
      children[i].runs = false;
}

static int child_count(const struct run_child *children, int count)
{
  int running = 0;
  for (int i = 0; i < count; i++)
    running += children[i].runs;
  return running;
}

bool run_child_any_runs(const struct run_child *children, int count)
{
  return child_count(children, count) > 0;
}

void run_child_signal(const struct run_child *children, int count, int number)
{
  for (int i = 0; i < count; i++)
    if (children[i].runs)
      kill(children[i].pid, number);
}

static double child_clock(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waits while more than so many of them run. */
static int child_wait(struct run_child *children, int count, int running, double seconds)
{
  const double end = child_clock() + seconds;
  for (double left = seconds; left > 0; left = end - child_clock()) {
    struct pollfd input = {.fd = message_pipe[0], .events = POLLIN};
    struct message message;
    child_reap(children, count);
    if (count > 0 && child_count(children, count) <= running)
      return 0;
    if (poll(&input, 1, (int)(1000 * left) + 1) <= 0 || read(message_pipe[0], &message, sizeof message) <= 0 ||
        message.number == SIGCHLD)
      continue;
    if (!message.of_terminal)
      run_child_signal(children, count, SIGUSR1);
    return message.number;
  }
  child_reap(children, count);
  return 0;
}

int run_child_wait(struct run_child *children, int count, double seconds)
{
  return child_wait(children, count, 0, seconds);
}

int run_child_wait_any(struct run_child *children, int count, double seconds)
{
  const int running = child_count(children, count);
  return child_wait(children, count, running > 0 ? running - 1 : 0, seconds);
}

int run_child_exit_status(const struct run_child *child)
{
  return WIFEXITED(child->status) ? WEXITSTATUS(child->status) : 128 + WTERMSIG(child->status);
}
