/* Shared memory that MPI leaves in /dev/shm of a process that is killed while it starts or ends. */
#pragma once

#include <time.h>

/* Removes segments of MPI on this machine that this user's processes have changed after a time (CLOCK_REALTIME_COARSE,
 * the clock of files), and that no process has mapped or open any more. */
void run_segments_remove(struct timespec since);
