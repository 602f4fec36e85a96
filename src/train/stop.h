/* Stop requests: SIGTERM, SIGINT and SIGUSR1 (sent by batch systems before the time limit) request a checkpoint and an
 * orderly end, however many arrive: batch systems and launchers send several, and none may prevent the checkpoint.
 * SIGQUIT (Ctrl-\) and SIGKILL end the process at once. Not collective. */
#pragma once

#include <stdbool.h>

/* Installs the handlers. saves: false during the set-up, when there is nothing to save, and a file that does not answer
 * may be waited for: a signal ends the process at once, with status TRM_STOPPED. */
void trm_stop_listen(bool saves);
bool trm_stop_requested(void); /* true after the first of these signals in this process */
