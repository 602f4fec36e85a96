#include "train/stop.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
  if (asked && number != SIGUSR1) {
    signal(number, SIG_DFL);
    raise(number);
  }
  asked = 1;
}

void trm_stop_listen(void)
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
}

bool trm_stop_asked(void)
{
  return asked;
}
