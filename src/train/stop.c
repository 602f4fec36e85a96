#include "train/stop.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t stop_requested; /* of the process: a signal stops all its ranks */

static void stop_on_signal(int number)
{
  (void)number;
  stop_requested = 1;
}

void trm_stop_listen(void)
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = stop_on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
}

bool trm_stop_requested(void)
{
  return stop_requested;
}
