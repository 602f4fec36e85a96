/* Stopping on purpose: SIGTERM, SIGINT and SIGUSR1 (what batch systems send before the time is up) ask for a checkpoint
 * and an orderly end. A second SIGINT or SIGTERM ends the process at once. */
#ifndef TRM_TRAIN_STOP_H
#define TRM_TRAIN_STOP_H

#include <stdbool.h>

void trm_stop_listen(void); /* installs the handlers */
bool trm_stop_requested(void);

#endif
