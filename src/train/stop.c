#include "train/stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"

static volatile sig_atomic_t stop_requested; /* of the process: a signal stops all its ranks */

static void stop_request(int number)
{
  (void)number;
  stop_requested = 1;
}

static void stop_end_process(int number)
{
  (void)number;
  _exit(TRM_STOPPED);
}

void trm_stop_listen(bool saves)
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = saves ? stop_request : stop_end_process;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
}

bool trm_stop_requested(void)
{
  return stop_requested;
}
